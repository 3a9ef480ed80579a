"""GroupedResponse: report the group of the label, with groups that make the report most informative."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.epsilon import Epsilon, EpsilonLike, Odds
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.groups import DealtGroups, Index, rows_per_chunk, unsigned
from labeldp.mechanisms.local import GroupMechanism, Priors

Floats = NDArray[np.float64]
Loads = NDArray[Any]  # uint32, or uint64 past 256 groups

MASS_BITS = 22
"""Prior masses are added as whole numbers of 2^-22, so that no order of summation matters."""

MOST_DEALT_GROUPS = 512
"""Dealing takes classes x groups steps a row; beyond this many groups only one label each is tried."""

FIRST_LABELS = 128
"""How many labels of a row are dealt one by one at least; the rest, if any, are light and are dealt by lot."""

LOT = np.uint32(0x9E3779B1)
"""Lots are the dealing noise times this, modulo 2^32: its low bits, which hardly decided the order, become high ones."""

NO_GAIN = 1e-12
"""Information (nats) that is not worth another group."""

NUMBER_BITS = 8
"""A load carries its group's number in this many low bits; masses are shifted above them (twice as many past 256 groups)."""


@dataclass(frozen=True)
class GroupedResponse(GroupMechanism):
    """Deal the labels into m groups of about equal prior mass, then randomized response over the groups.

    The labels are dealt one by one, each to the lightest group so far, in the order of log prior + public Gumbel noise per
    row; the number of groups m is the one whose report carries the most mutual information about the label under the prior.
    With very many classes the light labels that come late in that order are dealt by lot, to the groups that lack most.
    The noise in the order lets every pair of classes fall apart in some rows. At small epsilon, or with many classes, a
    reported group carries several times the information of a reported label.

    Privacy
    -------
    epsilon-label-DP per row; neighbours differ in one label. Public: prior, dealing key, epsilon. Secret: label.
    Proof: docs/proofs/response.md; the groups depend on the prior and the key alone.

    >>> law = GroupedResponse(epsilon="1").law(0, [0.5, 0.25, 0.25])
    >>> {tuple(sorted(report)): round(float(chance), 3) for report, chance in law.items()}
    {(0,): 0.576, (1,): 0.212, (2,): 0.212}
    """

    epsilon: EpsilonLike

    deals_at_random = True
    cells_at_once = 2**22  # one label of all rows is dealt at a time, so rows should be many

    def deal(self, priors: Priors, dealing: Dealing) -> DealtGroups:
        n_rows, n_classes = priors.shape
        odds = Odds.within(Epsilon.of(self.epsilon))
        ratio = odds.keep / odds.other
        counts_to_try = group_counts(n_classes, ratio)
        hand = first_labels(priors, dealing, most_groups=max(counts_to_try))
        heaviest = priors.max(axis=1) * (1 - 2 * checks.PRIOR_SUM_TOLERANCE)  # whatever the row sums to

        best = np.full(n_rows, -1.0)
        counts = np.ones(n_rows, dtype=np.int64)
        dealt = np.zeros(hand.masses.shape, dtype=unsigned(max(counts_to_try)))
        loads = np.zeros((max(counts_to_try), n_rows))
        for m in sorted(counts_to_try, key=lambda m: -even_information(m, ratio)):
            open_rows = np.flatnonzero(information_bound(m, heaviest, ratio) > best - NO_GAIN)
            if len(open_rows) == 0:
                continue
            everywhere = len(open_rows) == n_rows
            groups, group_masses = deal_to_lightest(hand.masses if everywhere else hand.masses[:, open_rows], m)
            gained = information(filled_up(group_masses), ratio)
            fewer = m < counts[open_rows]  # of equally informative numbers the smaller
            better = gained > best[open_rows] + np.where(fewer, -NO_GAIN, NO_GAIN)
            rows = open_rows[better]
            best[rows], counts[rows] = gained[better], m
            if everywhere and better.all():
                dealt, loads[:m] = groups.astype(dealt.dtype, copy=False), group_masses
            else:
                dealt[:, rows], loads[:m, rows] = groups[:, better], group_masses[:, better]
        by_label = hand.groups_by_lot(loads, counts, dealt.dtype)
        for block in _blocks(n_rows, n_classes):
            by_label[block].ravel()[hand.places[block]] = np.ascontiguousarray(dealt[:, block].T)
        return DealtGroups(by_label, counts)


@dataclass(frozen=True, slots=True)
class Hand:
    """The labels that are dealt one by one, and a lot for each of the others.

    `places` says where a row's first labels lie, in dealing order (row x classes + label, within its block of rows), `masses`
    are their prior masses, first labels x rows. `lots` are 32-bit numbers for all labels, None if all are dealt one by one.
    """

    places: NDArray[np.uint32]
    masses: Loads
    lots: NDArray[np.uint32] | None
    shape: tuple[int, int]

    def groups_by_lot(self, loads: Floats, counts: Index, dtype: Any) -> NDArray[Any]:
        """Give every label the group that its lot falls on: a group's share of the lots is what it lacks of an even mass."""
        groups = np.zeros(self.shape, dtype=dtype)
        if self.lots is None:
            return groups
        for m in np.unique(counts):
            rows = np.flatnonzero(counts == m)
            lacks = np.maximum(filled_up(loads[:m, rows]) - loads[:m, rows], 0) + 1e-12
            ends = np.cumsum(lacks, axis=0) / lacks.sum(axis=0) * 2.0**32
            for block in np.array_split(rows, max(1, len(rows) // rows_per_chunk(self.shape[1], cells=2**15))):
                drawn = self.lots[block]
                found = np.zeros(drawn.shape, dtype=dtype)
                for end in ends[:-1, np.searchsorted(rows, block)]:
                    found += drawn >= end.astype(np.uint32)[:, None]
                groups[block] = found
        return groups


def first_labels(priors: Priors, dealing: Dealing, *, most_groups: int) -> Hand:
    """Return the labels of each row that are dealt one by one: all, or with many classes the first in the noisy order.

    The first 128 (or four per group) hold the heavy ones. What is left is light, and falls about evenly by lot.
    """
    n_rows, n_classes = priors.shape
    first = min(n_classes, max(FIRST_LABELS, 4 * most_groups))
    places = np.empty((n_rows, first), dtype=np.uint32)
    masses = np.empty((first, n_rows), dtype=np.uint32 if most_groups <= 1 << NUMBER_BITS else np.uint64)
    lots = None if first == n_classes else np.empty(priors.shape, dtype=np.uint32)
    for rows in _blocks(n_rows, n_classes):
        block = Dealing(dealing.key, dealing.rows[rows])
        words = block.words(n_classes)
        places[rows] = noisy_order(priors[rows], block.exponentials(words), first)
        masses[:, rows] = loads_of(priors[rows].take(places[rows]), most_groups)
        if lots is not None:
            lots[rows] = (words if dealing.key else np.arange(n_classes, dtype=np.uint32)) * LOT
    return Hand(places, masses, lots, (n_rows, n_classes))


def filled_up(loads: Floats) -> Floats:
    """Return the loads after what is missing to a mass of 1 went to the groups that lack most of an even share."""
    lacks = np.maximum(1 / len(loads) - loads, 0)
    missing = np.maximum(1 - loads.sum(axis=0), 0)
    return loads + lacks * (missing / np.maximum(lacks.sum(axis=0), 1e-12))


def _blocks(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Yield blocks of rows small enough to be sorted and reordered within the processor's nearest cache."""
    step = rows_per_chunk(n_classes, cells=2**15)
    return (slice(start, start + step) for start in range(0, n_rows, step))


def noisy_order(priors: Priors, exponentials: NDArray[np.float32], first: int) -> NDArray[np.uint32]:
    """Return the places of each row's first labels by descending log prior + Gumbel noise: ascending exponential / prior.

    The label's number replaces the lowest bits of the (positive) float that is sorted by, so that sorting numbers sorts
    labels; equal keys fall in the order of the classes. Places are row x classes + label, for flat arrays.
    """
    n_rows, n_classes = priors.shape
    label_bits = np.uint32((1 << (n_classes - 1).bit_length()) - 1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # 0/0 sorts last, as any label of prior 0
        race = np.divide(exponentials, priors, dtype=np.float32, casting="same_kind")
    keys = race.view(np.uint32)
    keys &= ~label_bits
    keys |= np.arange(n_classes, dtype=np.uint32)
    if first < n_classes:
        keys.partition(first, axis=1)
        keys = np.ascontiguousarray(keys[:, :first])
    keys.sort(axis=1)
    keys &= label_bits
    keys += (np.arange(n_rows, dtype=np.uint32) * np.uint32(n_classes))[:, None]
    return keys


def group_counts(n_classes: int, ratio: float) -> list[int]:
    """Return the numbers of groups to try: all up to 16, then steps of an eighth, at most e^epsilon + 1 and the classes.

    Of groups of equal mass never more than e^epsilon + 1 are best, rounded up; docs/proofs/response.md has the proof.
    """
    largest = int(min(n_classes, np.ceil(ratio) + 1))
    counts = [2]
    while counts[-1] < min(largest, MOST_DEALT_GROUPS):
        counts.append(min(largest, MOST_DEALT_GROUPS, counts[-1] + max(1, counts[-1] // 8)))
    return counts if counts[-1] == largest or largest < n_classes else [*counts, n_classes]


def loads_of(priors: Priors, most_groups: int) -> Loads:
    """Return prior masses as whole numbers above the bits of a group's number, classes x rows."""
    narrow = most_groups <= 1 << NUMBER_BITS
    scaled = priors * 2.0 ** (MASS_BITS + (NUMBER_BITS if narrow else 2 * NUMBER_BITS))
    low_bits = (1 << (NUMBER_BITS if narrow else 2 * NUMBER_BITS)) - 1
    masses: Any = scaled.astype(np.uint32 if narrow else np.uint64)
    masses &= ~masses.dtype.type(low_bits)
    return masses.T


def deal_to_lightest(masses: Loads, m: int) -> tuple[NDArray[np.unsignedinteger[Any]], Floats]:
    """Deal labels (classes x rows, in dealing order) each to the lightest of m groups; return groups and their masses.

    The loads are kept in ascending order, and each carries its group's number in its lowest bits, so that the lightest
    group is always the first and of equally light groups the lowest number wins.
    """
    if m == len(masses):  # one label each
        alone = np.tile(np.arange(m, dtype=unsigned(m))[:, None], masses.shape[1])
        return alone, masses / 2.0 ** (MASS_BITS + (NUMBER_BITS if masses.dtype == np.uint32 else 2 * NUMBER_BITS))
    integers = masses.dtype.type
    number_bits = NUMBER_BITS if integers is np.uint32 else 2 * NUMBER_BITS
    loads = [np.full(masses.shape[1], group, dtype=integers) for group in range(m)]
    spare = np.empty(masses.shape[1], dtype=integers)
    lightest = np.empty_like(masses)
    for mass, chosen in zip(masses, lightest, strict=True):
        chosen[:] = loads[0]
        loads[0] += mass
        for place in range(m - 1):  # the heavier one rises
            np.minimum(loads[place], loads[place + 1], out=spare)
            np.maximum(loads[place], loads[place + 1], out=loads[place + 1])
            loads[place], spare = spare, loads[place]
    number = integers((1 << number_bits) - 1)
    lightest &= number
    by_weight = np.array(loads)
    by_number = np.empty(by_weight.shape)
    np.put_along_axis(
        by_number, (by_weight & number).astype(np.int64), by_weight / 2.0 ** (MASS_BITS + number_bits), axis=0
    )
    return lightest.astype(unsigned(m)), by_number


def information(masses: Floats, ratio: float) -> Floats:
    """Return the mutual information (nats) between label and reported group, for group masses of shape (m, rows)."""
    shares = masses / masses.sum(axis=0)
    return _information(len(masses), ratio, _plogp(1 + (ratio - 1) * shares).sum(axis=0))


def information_bound(m: int, heaviest: Floats, ratio: float) -> Floats:
    """Return an upper bound on the information of any m groups when the likeliest label has the given mass.

    -x log x is concave, so even masses are best; one group must hold the likeliest label.
    """
    first = np.maximum(heaviest, 1 / m)
    rest = (1 - first) / (m - 1)
    return _information(m, ratio, _plogp(1 + (ratio - 1) * first) + (m - 1) * _plogp(1 + (ratio - 1) * rest))


def even_information(m: int, ratio: float) -> float:
    """Return the information of m groups of equal mass."""
    return float(information_bound(m, np.zeros(1), ratio)[0])


def _information(m: int, ratio: float, sum_plogp: Floats) -> Floats:
    """H(report) - H(report | label), where group j is reported with probability a_j / D, D = e^epsilon + m - 1."""
    total = ratio + m - 1
    return (_plogp(ratio) - sum_plogp) / total


def _plogp(a: Any) -> Any:
    return a * np.log(a)
