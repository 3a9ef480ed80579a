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
from labeldp.mechanisms.groups import DealtGroups, rows_per_chunk, unsigned
from labeldp.mechanisms.local import GroupMechanism, Priors

Floats = NDArray[np.float64]
Loads = NDArray[Any]  # uint32, or uint64 past 256 groups

MASS_BITS = 22
"""Prior masses are added as whole numbers of 2^-22, so that no order of summation matters."""

MOST_DEALT_GROUPS = 512
"""Dealing takes classes x groups steps a row; beyond this many groups only one label each is tried."""

NO_GAIN = 1e-12
"""Information (nats) that is not worth another group."""

NUMBER_BITS = 8
"""A load carries its group's number in this many low bits; masses are shifted above them (twice as many past 256 groups)."""


@dataclass(frozen=True)
class GroupedResponse(GroupMechanism):
    """Deal the labels into m groups of about equal prior mass, then randomized response over the groups.

    The labels are dealt one by one, each to the lightest group so far, in the order of log prior + public Gumbel noise per
    row; the number of groups m is the one whose report carries the most mutual information about the label under the prior.
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
        places, masses = ordered_masses(priors, dealing, max(counts_to_try))
        heaviest = priors.max(axis=1) * (1 - 2 * checks.PRIOR_SUM_TOLERANCE)  # whatever the row sums to

        best = np.full(n_rows, -1.0)
        counts = np.ones(n_rows, dtype=np.int64)
        dealt = np.zeros((n_classes, n_rows), dtype=unsigned(max(counts_to_try)))
        for m in sorted(counts_to_try, key=lambda m: -even_information(m, ratio)):
            open_rows = np.flatnonzero(information_bound(m, heaviest, ratio) > best - NO_GAIN)
            if len(open_rows) == 0:
                continue
            everywhere = len(open_rows) == n_rows
            groups, group_masses = deal_to_lightest(masses if everywhere else masses[:, open_rows], m)
            gained = information(group_masses, ratio)
            fewer = m < counts[open_rows]  # of equally informative numbers the smaller
            better = gained > best[open_rows] + np.where(fewer, -NO_GAIN, NO_GAIN)
            rows = open_rows[better]
            best[rows], counts[rows] = gained[better], m
            if everywhere and better.all():
                dealt = groups.astype(dealt.dtype)
            else:
                dealt[:, rows] = groups[:, better]
        by_label = np.empty((n_rows, n_classes), dtype=dealt.dtype)
        for block in _blocks(n_rows, n_classes):
            by_label[block].ravel()[places[block]] = np.ascontiguousarray(dealt[:, block].T)
        return DealtGroups(by_label, counts)


def ordered_masses(priors: Priors, dealing: Dealing, most_groups: int) -> tuple[NDArray[np.uint32], Loads]:
    """Return where each row's labels lie in dealing order (within its block of rows), and their masses, classes x rows."""
    n_rows, n_classes = priors.shape
    places = np.empty((n_rows, n_classes), dtype=np.uint32)
    masses = np.empty((n_classes, n_rows), dtype=np.uint32 if most_groups <= 1 << NUMBER_BITS else np.uint64)
    for rows in _blocks(n_rows, n_classes):
        places[rows] = noisy_order(priors[rows], Dealing(dealing.key, dealing.rows[rows]))
        masses[:, rows] = loads_of(priors[rows].take(places[rows]), most_groups)
    return places, masses


def _blocks(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Yield blocks of rows small enough to be sorted and reordered within the processor's nearest cache."""
    step = rows_per_chunk(n_classes, cells=2**15)
    return (slice(start, start + step) for start in range(0, n_rows, step))


def noisy_order(priors: Priors, dealing: Dealing) -> NDArray[np.uint32]:
    """Return the places of each row's labels by descending log prior + Gumbel noise, that is ascending exponential / prior.

    The label's number replaces the lowest bits of the (positive) float that is sorted by, so that sorting numbers sorts
    labels; equal keys fall in the order of the classes. Places are row x classes + label, for flat arrays.
    """
    n_rows, n_classes = priors.shape
    label_bits = np.uint32((1 << (n_classes - 1).bit_length()) - 1)
    with np.errstate(divide="ignore", over="ignore"):
        race = np.divide(dealing.exponentials(n_classes), priors, dtype=np.float32, casting="same_kind")
    keys = race.view(np.uint32)
    keys &= ~label_bits
    keys |= np.arange(n_classes, dtype=np.uint32)
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
    """Deal labels (classes x rows, in dealing order) each to the lightest of m groups; return groups and final masses.

    The loads are kept in ascending order, and each carries its group's number in its lowest bits, so that the lightest
    group is always the first and of equally light groups the lowest number wins.
    """
    if m == len(masses):  # one label each
        alone = np.broadcast_to(np.arange(m, dtype=unsigned(m))[:, None], masses.shape)
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
    lightest &= integers((1 << number_bits) - 1)
    return lightest.astype(unsigned(m)), np.array(loads) / 2.0 ** (MASS_BITS + number_bits)


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
