"""What a curator hands out: noisy counts and sums per public group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.vault.files import Arrays, Facts, Stored
from labeldp.vault.labels import Classes
from labeldp.vault.receipt import Receipt

Floats = NDArray[np.float64]

MOST_CELLS = 2**24
"""How many cells one histogram may have; its memory and noise grow with them."""


def public_groups(
    groups: Any, n_groups: int | None, *, n_rows: int, n_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the public group of each asked row, and each group's number of rows, or raise InvalidArgument."""
    array = checks.array(groups=groups)
    if array.shape != (n_rows,) or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= 2**31:
        raise InvalidArgument(f"groups must be one whole number from 0 per asked row ({n_rows}).")
    numbers = array.astype(np.int64)
    count = int(numbers.max()) + 1 if n_groups is None else n_groups
    count = checks.integer(n_groups=count, at_least=1, at_most=MOST_CELLS // n_classes)
    if numbers.max() >= count:
        raise InvalidArgument(f"groups must lie below n_groups ({count}).")
    return numbers, np.bincount(numbers, minlength=count)


@dataclass(frozen=True, eq=False)
class HistogramRelease(Stored):
    """Noisy counts of each class in each group; the groups and their sizes are public.

    Attributes
    ----------
    counts : (groups, K) integers, true count plus discrete Laplace noise; may be negative.
    totals : (groups,) the public number of rows in each group.
    groups : (n,) the public group of each of `rows`.
    """

    counts: NDArray[np.int64]
    totals: NDArray[np.int64]
    groups: NDArray[np.int64]
    rows: NDArray[np.int64]
    classes: tuple[Any, ...]
    receipt: Receipt

    def __post_init__(self) -> None:
        self.counts.flags.writeable = False

    KIND = "histogram"

    def projected(self) -> Floats:
        """Return the nearest counts that are not negative and add up to each group's public size.

        >>> project_on_totals(np.array([[7.0, -2.0, 3.0]]), np.array([10])).tolist()
        [[7.0, 0.0, 3.0]]
        """
        return project_on_totals(self.counts.astype(np.float64), self.totals)

    def contents(self) -> tuple[Facts, Arrays]:
        facts = {
            "kind": self.KIND,
            "private": self.private,
            "classes": list(self.classes),
            "receipt": self.receipt.to_json(),
        }
        return facts, {name: getattr(self, name) for name in ("counts", "totals", "groups", "rows")}

    @classmethod
    def from_contents(cls, facts: Facts, arrays: Arrays) -> HistogramRelease:
        _expect(facts, cls.KIND, arrays, {"counts": 2, "totals": 1, "groups": 1, "rows": 1}, ("classes", "receipt"))
        _check_groups(arrays)
        classes = Classes.declared(facts["classes"]).names
        if arrays["counts"].shape != (len(arrays["totals"]), len(classes)):
            raise InvalidArgument("the file's counts do not fit its groups and classes.")
        return cls(**arrays, classes=classes, receipt=Receipt.from_json(facts["receipt"]))

    def __repr__(self) -> str:
        return f"<HistogramRelease of {len(self.totals)} groups: {self.receipt}>"


@dataclass(frozen=True, eq=False)
class SumRelease(Stored):
    """Noisy sums of the labels in each group; the groups and their sizes are public."""

    sums: NDArray[np.int64]
    totals: NDArray[np.int64]
    groups: NDArray[np.int64]
    rows: NDArray[np.int64]
    low: int
    high: int
    receipt: Receipt

    def __post_init__(self) -> None:
        self.sums.flags.writeable = False

    KIND = "sums"

    def means(self) -> Floats:
        """Return each group's noisy mean, clipped to the public bounds; the middle of them for an empty group."""
        middle = (self.low + self.high) / 2
        means = np.divide(self.sums, self.totals, out=np.full(len(self.sums), middle), where=self.totals > 0)
        return np.clip(means, self.low, self.high)

    def contents(self) -> tuple[Facts, Arrays]:
        facts = {
            "kind": self.KIND,
            "private": self.private,
            "low": self.low,
            "high": self.high,
            "receipt": self.receipt.to_json(),
        }
        return facts, {name: getattr(self, name) for name in ("sums", "totals", "groups", "rows")}

    @classmethod
    def from_contents(cls, facts: Facts, arrays: Arrays) -> SumRelease:
        _expect(facts, cls.KIND, arrays, {"sums": 1, "totals": 1, "groups": 1, "rows": 1}, ("low", "high", "receipt"))
        _check_groups(arrays)
        if len(arrays["sums"]) != len(arrays["totals"]):
            raise InvalidArgument("the file's sums do not fit its groups.")
        return cls(
            **arrays, low=int(facts["low"]), high=int(facts["high"]), receipt=Receipt.from_json(facts["receipt"])
        )

    def __repr__(self) -> str:
        return f"<SumRelease of {len(self.totals)} groups: {self.receipt}>"


@dataclass(frozen=True, eq=False)
class AgreementRelease(Stored):
    """The noisy number of rows whose label equals the prediction, of a public number of rows."""

    count: int
    n_rows: int
    receipt: Receipt

    KIND = "agreement"

    @property
    def share(self) -> float:
        """The noisy accuracy, clipped to [0, 1]."""
        return float(np.clip(self.count / self.n_rows, 0.0, 1.0))

    def contents(self) -> tuple[Facts, Arrays]:
        facts = {"kind": self.KIND, "private": self.private, "count": self.count, "n_rows": self.n_rows}
        return facts | {"receipt": self.receipt.to_json()}, {}

    @classmethod
    def from_contents(cls, facts: Facts, arrays: Arrays) -> AgreementRelease:
        _expect(facts, cls.KIND, arrays, {}, ("count", "n_rows", "receipt"))
        return cls(int(facts["count"]), int(facts["n_rows"]), Receipt.from_json(facts["receipt"]))

    def __repr__(self) -> str:
        return f"<AgreementRelease: {self.receipt}>"


def project_on_totals(counts: Floats, totals: NDArray[Any]) -> Floats:
    """Project each row on the simplex {x >= 0, sum x = total}, in the Euclidean sense."""
    descending = -np.sort(-counts, axis=1)
    surplus = (np.cumsum(descending, axis=1) - totals[:, None]) / np.arange(1, counts.shape[1] + 1)
    kept = (descending > surplus).sum(axis=1).clip(1)  # a total of 0 keeps one entry, which becomes 0
    return np.maximum(counts - surplus[np.arange(len(counts)), kept - 1][:, None], 0.0)


def _expect(facts: Facts, kind: str, arrays: Arrays, dimensions: dict[str, int], keys: tuple[str, ...]) -> None:
    if facts.get("kind") != kind:
        raise InvalidArgument(f"the file holds a {facts.get('kind')}, not a {kind}.")
    fits = set(arrays) == set(dimensions) and all(
        arrays[name].ndim == ndim and arrays[name].dtype.kind in "iu" for name, ndim in dimensions.items()
    )
    if not fits:
        raise InvalidArgument(f"the file's arrays are not those of a {kind}.")
    missing = [key for key in keys if key not in facts]
    if missing:
        raise InvalidArgument(f"the file lacks what a {kind} must say: {', '.join(missing)}.")


def _check_groups(arrays: Arrays) -> None:
    """Raise unless each row is in one of the groups, and the groups are as large as they are said to be."""
    groups, totals = arrays["groups"], arrays["totals"]
    fit = len(groups) == len(arrays["rows"]) and bool(((groups >= 0) & (groups < len(totals))).all())
    if not fit or not np.array_equal(np.bincount(groups.astype(np.int64), minlength=len(totals)), totals):
        raise InvalidArgument("the file's groups do not fit its rows and their totals.")
