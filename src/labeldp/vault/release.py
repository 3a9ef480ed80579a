"""What leaves the vault for learning: noisy reports and their public noise law."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.mechanisms.channel import ReleasedChannel, Table, Truth, channel_from
from labeldp.mechanisms.groups import Candidates, DealtGroups, Groups, OwnGroups
from labeldp.vault.files import Arrays, Facts, Stored
from labeldp.vault.frequencies import ClassFrequencies, class_frequencies
from labeldp.vault.labels import Classes
from labeldp.vault.receipt import Receipt

KIND = "release"


@dataclass(frozen=True, eq=False)
class Release(Stored):
    """One noisy report per row, with the exact law it was drawn from. Everything here is public.

    Attributes
    ----------
    reports : the reported group (or output) of each row.
    rows : the vault's row numbers, in order.
    classes : the declared class names.
    receipt : what was asked and what it cost.
    """

    reports: NDArray[Any]
    rows: NDArray[np.int64]
    classes: tuple[Any, ...]
    channel: ReleasedChannel
    outputs: tuple[Fraction, ...] | None
    receipt: Receipt

    def __post_init__(self) -> None:
        self.reports.flags.writeable = False
        self.rows.flags.writeable = False

    def __len__(self) -> int:
        return len(self.reports)

    @property
    def groups(self) -> Groups:
        """The public map from label to group, row by row."""
        if isinstance(self.channel, Table):
            raise InvalidArgument("this release was drawn from a table of outputs; it has `values`, not groups.")
        return self.channel.groups

    @property
    def labels(self) -> NDArray[Any]:
        """One noisy label per row, as class names."""
        return Classes(self.classes).decode(self.label_numbers)

    @property
    def label_numbers(self) -> NDArray[np.int64]:
        """One noisy label per row, as class numbers 0 .. K - 1."""
        groups = self.groups
        if isinstance(groups, (OwnGroups, Candidates)):
            return groups.labels_of(self.reports)
        assert isinstance(groups, DealtGroups)
        members = groups.groups == self.reports[:, None]
        if not (members.sum(axis=1) == 1).all():
            raise InvalidArgument(
                "a report of this release is a group that may hold several labels, so there is no one noisy label per row. "
                "Train on release.likelihood(), or release with RRWithPrior for single labels."
            )
        return members.argmax(axis=1)

    @property
    def values(self) -> NDArray[np.float64]:
        """One number per row whose mean is the true value exactly (UnbiasedResponse)."""
        if self.outputs is None:
            raise InvalidArgument("only a release by UnbiasedResponse has unbiased values.")
        return np.array([float(value) for value in self.outputs])[self.reports]

    def likelihood(self, rows: Any = None) -> NDArray[np.float64]:
        """Return P(this report | true label = y) for every label y.

        Parameters
        ----------
        rows : positions within this release, in any order, or a mask over it; None means all.

        Returns
        -------
        array of shape (rows, K). Each row of it is a likelihood, not a distribution: it need not sum to 1.
        """
        return self.channel.likelihood(self.reports, self._positions(rows))

    def _positions(self, rows: Any) -> NDArray[np.int64]:
        if rows is None:
            return np.arange(len(self))
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_ and chosen.shape == (len(self),):
            return np.flatnonzero(chosen)
        if (
            chosen.ndim != 1
            or chosen.dtype.kind not in "iu"
            or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self))
        ):
            raise InvalidArgument(
                f"rows must be positions from 0 to {len(self) - 1} within the release, or a mask over it."
            )
        return chosen.astype(np.int64)

    def class_frequencies(self) -> ClassFrequencies:
        """Estimate how often each class occurs, without bias; see `frequencies`."""
        shared = self.receipt.priors is None or self.receipt.priors["shared"]
        return class_frequencies(self.channel, self.reports, self.classes, own_maps=not shared)

    def contents(self) -> tuple[Facts, Arrays]:
        facts = {
            "kind": KIND,
            "private": self.private,
            "classes": list(self.classes),
            "channel": self.channel.description(),
            "outputs": None if self.outputs is None else [str(value) for value in self.outputs],
            "receipt": self.receipt.to_json(),
        }
        arrays = {f"channel_{name}": array for name, array in self.channel.arrays().items()}
        return facts, {"reports": self.reports, "rows": self.rows, **arrays}

    @classmethod
    def from_contents(cls, facts: Facts, arrays: Arrays) -> Release:
        if facts.get("kind") != KIND:
            raise InvalidArgument(f"the file holds a {facts.get('kind')}, not a release of noisy reports.")
        try:
            reports, rows = arrays["reports"], arrays["rows"]
            classes = Classes.declared(facts["classes"])
            channel = channel_from(
                facts["channel"],
                {name.removeprefix("channel_"): array for name, array in arrays.items() if name.startswith("channel_")},
                n_rows=len(reports),
                n_classes=len(classes),
            )
            outputs = None if facts["outputs"] is None else tuple(Fraction(text) for text in facts["outputs"])
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            raise InvalidArgument("the file is not a release of noisy reports.") from None
        sizes = channel.weights.shape[1] if isinstance(channel, Table) else channel.groups.sizes
        if reports.ndim != 1 or reports.dtype.kind != "u" or rows.shape != reports.shape or (reports >= sizes).any():
            raise InvalidArgument("the file's reports do not fit its channel.")
        receipt = Receipt.from_json(facts["receipt"])
        if isinstance(channel, Truth) and receipt.private:
            raise InvalidArgument("the file holds true labels but a receipt that calls them private.")
        return cls(reports, rows, classes.names, channel, outputs, receipt)

    def __repr__(self) -> str:
        return f"<Release of {len(self)} reports: {self.receipt}>"
