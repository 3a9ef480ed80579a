"""What a local mechanism does to a row, as public integers: the sampler, the law, the likelihood and the proof read them.

A channel is made before the labels are touched. It is one of three kinds: `Response`, randomized response over the groups of
a public map (the compact form); `KeepOrDraw`, which keeps the label or draws one from public weights; or `Table`, one integer
table of labels x outputs shared by all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.epsilon import Odds
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.groups import NO_GROUP, Groups, Index, OwnGroups, groups_from, rows_per_chunk, unsigned
from labeldp.mechanisms.keep_or_draw import KeepOrDraw
from labeldp.randomness import Bits, below, below_each

Report = int | frozenset[int]


@dataclass(frozen=True, eq=False)
class Response:
    """Randomized response over the groups of a public map; a label in no group answers uniformly.

    With odds keep : other and m groups, a row's own group has weight keep and every other one has weight other, of a total
    keep + (m - 1) other. A draw reads one integer u below that total: u < keep - other tells the own group, and the rest,
    divided by other = 2^32, names one of the m groups blindly. Rows whose map leaves labels out draw a second integer below
    m, whatever their label, which answers for the labels in no group.

    Privacy
    -------
    epsilon-label-DP per row, with e^epsilon >= keep/other. Public: map and odds. Secret: labels.
    Proof: docs/proofs/response.md.
    """

    groups: Groups
    odds: Odds

    def __post_init__(self) -> None:
        if not 1 <= self.odds.other <= self.odds.keep or self.odds.other != 1 << 32:
            raise AssertionError("odds must be keep : 2^32 with keep at least 2^32")
        if self.total(int(self.groups.sizes.max(initial=1))) >= 1 << 63:
            raise AssertionError("the total of the odds must lie below 2^63")

    @property
    def n_rows(self) -> int:
        return self.groups.n_rows

    @property
    def n_classes(self) -> int:
        return self.groups.n_classes

    @property
    def reveals(self) -> NDArray[np.bool_]:
        """Whether a row's report depends on its label at all: with a single group it does not."""
        return self.groups.sizes > 1

    def total(self, size: int) -> int:
        return self.odds.excess + size * self.odds.other

    def draw(self, true_labels: NDArray[Any], bits: Bits) -> NDArray[Any]:
        """Return the reported group of every row."""
        sizes = self.groups.sizes
        reports = np.empty(self.n_rows, dtype=unsigned(int(sizes.max(initial=1))))
        for index in self._chunks():
            reports[index] = self._draw_rows(index, true_labels[index], sizes[index].astype(np.uint64), bits)
        return reports

    def _draw_rows(self, index: Index, labels: NDArray[Any], sizes: NDArray[np.uint64], bits: Bits) -> Index:
        if (sizes == sizes[0]).all():
            u = below(self.total(int(sizes[0])), len(index), bits)
        else:
            u = below_each(np.uint64(self.odds.excess) + sizes * np.uint64(self.odds.other), bits)
        own = self.groups.own(index, labels)
        report = u.view(np.int64)  # u lies below 2^63
        report -= self.odds.excess
        tells = report < 0
        report >>= 32
        np.copyto(report, own, where=tells)
        out = self.groups.leaves_labels_out(index)
        if out.any():
            uniform = below_each(sizes[out], bits).astype(np.int64)
            report[out] = np.where(own[out] == NO_GROUP, uniform, report[out])
        return report

    def likelihood(self, reports: NDArray[Any], index: Index) -> NDArray[np.float64]:
        """Return P(report | label) for the given rows, shape (len(index), n_classes)."""
        out = np.empty((len(index), self.n_classes))
        step = rows_per_chunk(self.n_classes)
        for start in range(0, len(index), step):
            rows = index[start : start + step]
            sizes, place = np.unique(self.groups.sizes[rows], return_inverse=True)
            own, other, uniform = (
                np.array([weight / total for weight, total in table])[place][:, None]
                for table in zip(*(self._weights(int(size)) for size in sizes), strict=True)
            )
            groups = self.groups.assignment(rows)
            chunk = np.where(groups == reports[rows].astype(np.int64)[:, None], own, other)
            out[start : start + step] = np.where(groups == NO_GROUP, uniform, chunk)
        return out

    def _weights(self, size: int) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        total = self.total(size)
        return (self.odds.keep, total), (self.odds.other, total), (1, size)

    def law(self, row: int, label: int) -> dict[Report, Fraction]:
        """Return the exact distribution of the report of one row with the given label."""
        groups = self.groups.assignment(np.array([row]))[0]
        size = int(self.groups.sizes[row])
        own, other, uniform = (Fraction(weight, total) for weight, total in self._weights(size))
        law: dict[Report, Fraction] = {}
        for group in range(size):
            members = np.flatnonzero(groups == group).tolist()
            report = members[0] if self.groups.single_labels else frozenset(members)
            chance = uniform if groups[label] == NO_GROUP else own if groups[label] == group else other
            law[report] = law.get(report, Fraction(0)) + chance  # groups left empty are one and the same report
        return law

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.groups.arrays()

    def description(self) -> dict[str, Any]:
        return {"kind": self.groups.kind, "keep": self.odds.keep, "other": self.odds.other}

    def _chunks(self) -> Iterator[Index]:
        step = rows_per_chunk(1 if self.groups.kind == "own" else self.n_classes)
        for start in range(0, self.n_rows, step):
            yield np.arange(start, min(start + step, self.n_rows))


@dataclass(frozen=True, eq=False)
class Table:
    """One integer table for all rows: weights[y, o] is the odds of output o given label y, the same total for every y.

    Privacy
    -------
    epsilon-label-DP per row: within each column, max x other <= min x keep, checked here. Proof: docs/proofs/response.md.
    """

    weights: NDArray[np.int64]
    odds: Odds
    n_rows: int

    kind = "table"

    def __post_init__(self) -> None:
        if type(self.weights) is not np.ndarray or self.weights.dtype != np.int64 or self.weights.ndim != 2:
            raise AssertionError("a table must be whole numbers, labels x outputs")
        columns = [[int(weight) for weight in column] for column in self.weights.T]
        if any(max(column) * self.odds.other > min(column) * self.odds.keep or min(column) < 1 for column in columns):
            raise AssertionError("a column of the table breaks epsilon")
        if len({sum(int(weight) for weight in row) for row in self.weights}) != 1 or self.total >= 1 << 63:
            raise AssertionError("the rows of the table must have one total, below 2^63")

    @property
    def n_classes(self) -> int:
        return len(self.weights)

    @property
    def total(self) -> int:
        return sum(int(weight) for weight in self.weights[0])

    @property
    def reveals(self) -> NDArray[np.bool_]:
        return np.broadcast_to(np.bool_((self.weights != self.weights[0]).any()), self.n_rows)

    def draw(self, true_labels: NDArray[Any], bits: Bits) -> NDArray[Any]:
        """Return the reported output of every row."""
        ends = np.cumsum(self.weights, axis=1).astype(np.uint64)
        reports = np.empty(self.n_rows, dtype=unsigned(ends.shape[1]))
        step = rows_per_chunk(ends.shape[1])
        for start in range(0, self.n_rows, step):
            labels = true_labels[start : start + step]
            u = below(self.total, len(labels), bits)
            reports[start : start + step] = (u[:, None] >= ends[labels]).sum(axis=1)
        return reports

    def likelihood(self, reports: NDArray[Any], index: Index) -> NDArray[np.float64]:
        """Return P(report | label) for the given rows, shape (len(index), n_classes)."""
        total = self.total
        chances = np.array([[int(weight) / total for weight in column] for column in self.weights.T])
        return chances[reports[index]]

    def law(self, row: int, label: int) -> dict[Report, Fraction]:  # noqa: ARG002 - the law is the same in every row
        """Return the exact distribution of the report of a row with the given label."""
        return {output: Fraction(int(weight), self.total) for output, weight in enumerate(self.weights[label])}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"weights": self.weights}

    def description(self) -> dict[str, Any]:
        return {"kind": self.kind, "keep": self.odds.keep, "other": self.odds.other}


@dataclass(frozen=True, eq=False)
class Truth:
    """No noise at all: the channel of an unprotected baseline."""

    groups: OwnGroups

    kind = "truth"

    @property
    def n_rows(self) -> int:
        return self.groups.n_rows

    @property
    def n_classes(self) -> int:
        return self.groups.n_classes

    def likelihood(self, reports: NDArray[Any], index: Index) -> NDArray[np.float64]:
        return (reports[index][:, None] == np.arange(self.n_classes)).astype(np.float64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def description(self) -> dict[str, Any]:
        return {"kind": self.kind}


Channel = Response | Table | KeepOrDraw
ReleasedChannel = Channel | Truth


def channel_from(
    description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, n_rows: int, n_classes: int
) -> ReleasedChannel:
    """Rebuild a channel from a release's file."""
    try:
        if description["kind"] == Truth.kind:
            return Truth(OwnGroups(n_rows, n_classes))
        odds = Odds(int(description["keep"]), int(description["other"]))
        if description["kind"] == Table.kind:
            return Table(arrays["weights"], odds, n_rows)
        if description["kind"] == KeepOrDraw.kind:
            channel = KeepOrDraw(arrays["weights"], arrays["which"], odds)
            if (channel.n_rows, channel.n_classes) != (n_rows, n_classes):
                raise AssertionError("the weights must fit the release")
            return channel
        return Response(groups_from(description["kind"], n_rows, n_classes, arrays), odds)
    except (KeyError, TypeError, AssertionError):
        raise InvalidArgument("the file does not describe a channel of this version of labeldp.") from None
