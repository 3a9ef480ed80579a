"""Keep the label, or draw one blindly from public weights: a channel whose blind answer need not be uniform.

Rows that share a prior share their weights, so these are held once per different row of weights, with a number per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.epsilon import Odds
from labeldp.mechanisms.groups import Index, OwnGroups, rows_per_chunk, unsigned
from labeldp.randomness import Bits, below_each

if TYPE_CHECKING:
    from labeldp.mechanisms.channel import Report

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

MOST_WEIGHT = 2**62
"""The weights of a row, and its odds of keeping the label, lie below this each: their total then lies below 2^63."""

HALF, LOW_HALF = np.uint64(32), np.uint64(2**32 - 1)


@dataclass(frozen=True, eq=False)
class KeepOrDraw:
    """Report j with weight w_j, and with d more if j is the label: `weights[which[i]]` are the w of row i.

    d is not given. It is the most that epsilon allows, floor(smallest w x (keep - other) / other), so that
    (w_j + d) other <= w_j keep for every j. The total, sum w + d, is the same for every label. A draw reads one integer u
    below it: u < d keeps the label, and u - d falls into the cumulative weights otherwise. Where d is 0 nothing is revealed.

    Privacy
    -------
    epsilon-label-DP per row, with e^epsilon >= keep/other. Public: weights and odds. Secret: labels.
    Proof: docs/proofs/cluster-rr.md.
    """

    weights: Integers
    which: NDArray[np.unsignedinteger[Any]]
    odds: Odds

    kind = "keep-or-draw"

    def __post_init__(self) -> None:
        if not 1 <= self.odds.other <= self.odds.keep or self.odds.other != 1 << 32:
            raise AssertionError("odds must be keep : 2^32 with keep at least 2^32")
        if type(self.weights) is not np.ndarray or self.weights.dtype != np.int64 or self.weights.ndim != 2:
            raise AssertionError("weights must be whole numbers, different rows x classes")
        if min(self.weights.shape) < 1 or self.weights.min() < 1:
            raise AssertionError("every class must have a weight of at least 1")
        if type(self.which) is not np.ndarray or self.which.dtype.kind != "u" or self.which.ndim != 1:
            raise AssertionError("which must be one whole number per row")
        if self.which.max(initial=0) >= len(self.weights):
            raise AssertionError("which must name existing rows of weights")
        sums = self.weights.sum(axis=1, dtype=np.float64)  # floats do not overflow, and err by far less than a half
        most_kept = float(self.weights.min(axis=1).max()) * (self.odds.excess / self.odds.other)
        if sums.max() >= MOST_WEIGHT or most_kept >= MOST_WEIGHT:
            raise AssertionError("the total of a row must lie below 2^63")
        self.weights.flags.writeable = False
        self.which.flags.writeable = False

    @cached_property
    def kept(self) -> Integers:
        """d, the weight of keeping the label, for each different row of weights.

        The product of the smallest weight and keep - other may exceed 64 bits, so it is taken by halves of 32 bits.
        """
        smallest = self.weights.min(axis=1).astype(np.uint64)
        whole, part = (np.uint64(half) for half in divmod(self.odds.excess, self.odds.other))
        high, low = smallest >> HALF, smallest & LOW_HALF
        return (smallest * whole + high * part + (low * part >> HALF)).astype(np.int64)

    @cached_property
    def totals(self) -> Integers:
        """Sum w + d, for each different row of weights."""
        return self.weights.sum(axis=1) + self.kept

    @property
    def n_rows(self) -> int:
        return len(self.which)

    @property
    def n_classes(self) -> int:
        return int(self.weights.shape[1])

    @property
    def groups(self) -> OwnGroups:
        """Every report is a single label."""
        return OwnGroups(self.n_rows, self.n_classes)

    @property
    def reveals(self) -> NDArray[np.bool_]:
        """Whether a row's report depends on its label at all."""
        return (self.kept > 0)[self.which]

    def draw(self, true_labels: NDArray[Any], bits: Bits) -> NDArray[Any]:
        """Return the reported label of every row."""
        ends = np.cumsum(self.weights[:, :-1], axis=1)
        reports = np.empty(self.n_rows, dtype=unsigned(self.n_classes))
        step = rows_per_chunk(self.n_classes)
        for start in range(0, self.n_rows, step):
            which = self.which[start : start + step]
            u = below_each(self.totals[which].astype(np.uint64), bits)
            beyond = u.view(np.int64) - self.kept[which]  # u lies below 2^63
            blind = (beyond[:, None] >= ends[which]).sum(axis=1)
            reports[start : start + step] = np.where(beyond < 0, true_labels[start : start + step], blind)
        return reports

    def likelihood(self, reports: NDArray[Any], index: Index) -> NDArray[np.float64]:
        """Return P(report | label) for the given rows, shape (len(index), n_classes)."""
        which, reported = self.which[index], reports[index].astype(np.int64)
        weights, totals = self.weights[which, reported], self.totals[which]
        out = np.repeat((weights / totals)[:, None], self.n_classes, axis=1)
        out[np.arange(len(index)), reported] = (weights + self.kept[which]) / totals
        return out

    def debiased(self, reports: NDArray[Any], index: Index) -> NDArray[np.float64]:
        """Return c with mean 1 for a row's own label and 0 for any other: c_y = (1[y is reported] total - w_y) / d."""
        which, reported = self.which[index], reports[index].astype(np.int64)
        out = -self.weights[which].astype(np.float64)
        out[np.arange(len(index)), reported] += self.totals[which]
        return np.divide(out, self.kept[which][:, None], out=out)

    def law(self, row: int, label: int) -> dict[Report, Fraction]:
        """Return the exact distribution of the report of one row with the given label."""
        place = int(self.which[row])
        kept, total = int(self.kept[place]), int(self.totals[place])
        weights: list[int] = self.weights[place].tolist()
        return {j: Fraction(weight + kept * (j == label), total) for j, weight in enumerate(weights)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"weights": self.weights, "which": self.which}

    def description(self) -> dict[str, Any]:
        return {"kind": self.kind, "keep": self.odds.keep, "other": self.odds.other}

    @classmethod
    def join(cls, parts: Sequence[KeepOrDraw]) -> KeepOrDraw:
        """Put channels of consecutive rows, at the same odds, together; equal rows of weights are again held once."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part.weights) for part in parts[:-1])])
        weights = np.concatenate([part.weights for part in parts])
        which = np.concatenate([part.which + start for part, start in zip(parts, starts, strict=True)])
        first, again = equal_rows(weights)
        return cls(weights[first], again[which], parts[0].odds)


def equal_rows(table: NDArray[Any]) -> tuple[Index, NDArray[np.unsignedinteger[Any]]]:
    """Return where each different row of a table of 64-bit numbers is met first, and which of them every row is.

    Rows are compared by a key, and then in full. Should two different rows share a key, no row is said to equal another.
    """
    words = np.ascontiguousarray(table).view(np.uint64)
    _, first, which = np.unique(row_keys(words), return_index=True, return_inverse=True)
    if len(first) == len(words) or (words != words[first[which]]).any():
        first = which = np.arange(len(words))
    return first, which.astype(unsigned(len(first)))


def row_keys(words: Words) -> Words:
    """Return a 64-bit number for each row; it only saves memory and time, so that nothing rests on how well it mixes."""
    multipliers = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    multipliers ^= multipliers >> np.uint64(30)
    multipliers *= np.uint64(0xBF58476D1CE4E5B9)
    multipliers ^= multipliers >> np.uint64(27)
    multipliers |= np.uint64(1)
    mixed = words >> HALF  # a float's last bits are often all 0
    mixed ^= words
    keys: Words = np.einsum("ij,j->i", mixed, multipliers)
    return keys
