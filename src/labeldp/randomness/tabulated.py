"""Exact discrete Gaussian noise of a whole variance, by inversion: one random word a number, ten times as quick as rejection.

The size |x| of a draw is the place of a random real U among the cumulative probabilities C_0 < C_1 < ..; a coin gives the
sign. 63 binary digits of U decide, compared with a table of the C_k rounded down. Where they leave it open (once in 10^14
draws), more digits of U are drawn and the C_k are computed anew, both as fine as it takes: no draw is ever approximate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from labeldp.randomness.bits import Bits, Words

LARGEST_TABULATED_VARIANCE = 2**32
"""Beyond it the table would be longer than 600,000 places; `discrete_gaussian` draws any variance."""

PLACES_PER_DEVIATION = 9
PLACES_AT_ONCE = 2**14
PLACES_PER_DRAW = 5
"""A table of 2^14 places is made in a blink. A longer one pays off where it saves a draw for every five further places."""

DIGITS = 63
GUIDE_DIGITS = 18
UNSURE = -1
GUARD = 128
"""Binary digits beyond those asked for that the table is computed with."""


def worth_a_table(variance: int, count: int) -> bool:
    """Return whether this many draws are quicker by a table, which must be made first, than by rejection.

    Both draw by the same law, and count and variance are public.
    """
    places = PLACES_PER_DEVIATION * isqrt(variance)
    return variance <= LARGEST_TABULATED_VARIANCE and places <= PLACES_AT_ONCE + PLACES_PER_DRAW * count


def tabulated_gaussian(variance: int, count: int, bits: Bits) -> NDArray[np.int64]:
    """Draw integers x with probability proportional to exp(-x^2 / (2 variance)), exactly."""
    if not 1 <= variance <= LARGEST_TABULATED_VARIANCE:
        raise AssertionError(f"a tabulated variance must lie between 1 and {LARGEST_TABULATED_VARIANCE}")
    table = _table(variance)
    words = bits.words(count)
    negative = (words & np.uint64(1)).astype(np.bool_)
    words >>= np.uint64(1)
    sizes = table.guide[words >> np.uint64(DIGITS - GUIDE_DIGITS)].astype(np.int64)
    near_an_edge = np.flatnonzero(sizes == UNSURE)
    sizes[near_an_edge] = table.search(words[near_an_edge])
    for place in np.flatnonzero(sizes == UNSURE):
        sizes[place] = _decide(variance, int(words[place]), bits)
    words.fill(0)  # nobody needs them again
    return np.where(negative, -sizes, sizes)


@dataclass(frozen=True, slots=True)
class _Table:
    """The C_k in units of 2^-63, edge <= C_k <= edge + 2, and the sizes that the first digits of U decide alone."""

    edges: Words
    guide: NDArray[np.int32]

    def search(self, digits: Words) -> NDArray[np.int64]:
        """Return how many C_k are at most U, UNSURE where these digits of U do not say."""
        sizes = np.searchsorted(self.edges, digits, side="right")
        unsure = (sizes > 0) & (digits - self.edges[sizes - 1] < 2)
        return np.where(unsure, UNSURE, sizes)


@lru_cache(maxsize=4)
def _table(variance: int) -> _Table:
    edges = np.array(list(_edges(variance)), dtype=np.uint64)
    firsts = np.arange(2**GUIDE_DIGITS, dtype=np.uint64) << np.uint64(DIGITS - GUIDE_DIGITS)
    lasts = firsts + np.uint64(2 ** (DIGITS - GUIDE_DIGITS) - 1)
    sizes = np.searchsorted(edges, lasts, side="right")
    before = np.searchsorted(edges, np.maximum(firsts, 2) - 2, side="right")  # an edge up to 2 below leaves doubt too
    guide = np.where(before == sizes, sizes, UNSURE).astype(np.int32)
    edges.flags.writeable = guide.flags.writeable = False
    return _Table(edges, guide)


def _edges(variance: int) -> Iterator[int]:
    """Yield the C_k in units of 2^-63, rounded down, up to the one that leaves no doubt beyond it undecided."""
    for low, high in _cumulative(variance, DIGITS):
        if high - low > 2:  # the proof of every draw needs it
            raise AssertionError("the table must know every cumulative probability within two units")
        yield low
        if low >= 2**DIGITS - 2:  # every larger number of 63 digits is within 2 of it
            return
    raise AssertionError("the table ended before the digits did")


def _decide(variance: int, digits: int, bits: Bits) -> int:
    """Return the size of a draw that its first 63 digits leave open, with as many further digits as it takes."""
    known = DIGITS
    while True:
        digits, known = digits << 64 | int(bits.words(1)[0]), known + 64
        for size, (low, high) in enumerate(_cumulative(variance, known)):
            if digits < low:  # and U < (digits + 1) / 2^known
                return size
            if digits < high:
                break


def _cumulative(variance: int, precision: int) -> Iterator[tuple[int, int]]:
    """Yield integers low <= 2^precision C_k <= high for k = 0, 1, .. until the rest is below a unit.

    C_k is the sum of w_j = exp(-j^2 / (2 variance)) over |j| <= k, divided by the sum over all j. What follows the last
    weight w_m, m >= 1, adds up to at most 2 w_m / (1 - exp(-m / variance)) <= 2 w_m (1 + variance).
    """
    fine = precision + GUARD
    lows, highs = [], []
    for low, high in _weights(variance, fine):
        lows.append(low)
        highs.append(high)
        if high * (1 + variance) >> (GUARD - 8) == 0:
            break
    least = 2 * sum(lows) - lows[0]
    most = 2 * sum(highs) - highs[0] + 2 * highs[-1] * (1 + variance)
    low_sum, high_sum = -lows[0], -highs[0]
    for low, high in zip(lows, highs, strict=True):
        low_sum, high_sum = low_sum + 2 * low, high_sum + 2 * high
        yield (low_sum << precision) // most, min(-(-(high_sum << precision) // least), 1 << precision)


def _weights(variance: int, fine: int) -> Iterator[tuple[int, int]]:
    """Yield integers low <= 2^fine w_k <= high for k = 0, 1, ..: each weight is the one before times a falling ratio."""
    low = high = 1 << fine
    (low_ratio, high_ratio), (low_fall, high_fall) = (
        _exp_minus_one_over(2 * variance, fine),
        _exp_minus_one_over(variance, fine),
    )
    while True:
        yield low, high
        low, high = low * low_ratio >> fine, -(-high * high_ratio >> fine)
        low_ratio, high_ratio = low_ratio * low_fall >> fine, -(-high_ratio * high_fall >> fine)


def _exp_minus_one_over(divisor: int, fine: int) -> tuple[int, int]:
    """Return integers around 2^fine exp(-1 / divisor): every term of the series is rounded by less than 1."""
    term, total, terms = 1 << fine, 0, 0
    while term:
        total += -term if terms % 2 else term
        terms += 1
        term //= divisor * terms
    return total - terms - 1, total + terms + 1
