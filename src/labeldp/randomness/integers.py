"""Unbiased bounded integers, by rejection, vectorised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labeldp.randomness.bits import Words, WordSource

LARGEST_BOUND = 2**63


def below(bound: int, count: int, bits: WordSource) -> Words:
    """Return `count` independent integers, each uniform over 0 .. bound - 1, for one bound."""
    if not 1 <= bound < LARGEST_BOUND:
        raise AssertionError("a bound must be at least 1 and below 2^63")
    words = bits.words(count)
    step = np.uint64(bound)
    last_fair = np.uint64(2**64 - 1 - 2**64 % bound)  # above it the last, incomplete block of `bound` words begins
    unfair = np.flatnonzero(words > last_fair)
    while len(unfair):
        words[unfair] = bits.words(len(unfair))
        unfair = unfair[words[unfair] > last_fair]
    return np.remainder(words, step, out=words)


def below_each(bounds: NDArray[np.uint64], bits: WordSource) -> Words:
    """Return independent integers, the i-th uniform over 0 .. bounds[i] - 1."""
    if bounds.dtype != np.uint64:  # the wrapping arithmetic below is that of 64 bits
        raise AssertionError("bounds must be uint64")
    if len(bounds) and not 1 <= bounds.min() <= bounds.max() < LARGEST_BOUND:
        raise AssertionError("every bound must be at least 1 and below 2^63")
    words = bits.words(len(bounds))
    drawn = words % bounds
    last_block = ~bounds + np.uint64(1)  # 2^64 - bound: a block of words that begins above it is incomplete
    words -= drawn
    unfair = np.flatnonzero(words > last_block)
    while len(unfair):
        again = bits.words(len(unfair))
        drawn[unfair] = again % bounds[unfair]
        unfair = unfair[again - drawn[unfair] > last_block[unfair]]
    return drawn
