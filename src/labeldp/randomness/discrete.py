"""Exact discrete Laplace and Gaussian noise (Canonne, Kamath, Steinke 2020), vectorised, on our own bits.

Every decision compares integers. An array of probabilities is a pair (numerators, denominator); integers beyond 2^63 are
held as Python integers in object arrays, and the comparison then reads as many random words as it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.randomness.bits import WordSource
from labeldp.randomness.integers import LARGEST_BOUND, below

Integers = NDArray[Any]  # int64, or object where Python integers are needed
Flags = NDArray[np.bool_]

SATURATION = 2**62
"""Noise beyond this is reported as this; add it to less than 2^60 and clamp the sum to 2^61, and no draw is told apart."""

LARGEST_LAPLACE_SCALE = 2**54
"""Scales are ratios of integers up to this; it leaves room for 2^8 full periods below 2^63."""


def bernoulli(numerators: Integers, denominator: int, bits: WordSource) -> Flags:
    """Flip independent coins, the i-th true with probability numerators[i] / denominator, exactly."""
    if denominator < LARGEST_BOUND:
        return below(denominator, len(numerators), bits) < numerators.astype(np.uint64)
    heads = np.zeros(len(numerators), dtype=np.bool_)
    undecided = np.arange(len(numerators))
    rest = numerators.astype(object)
    while len(undecided):  # compare a random real with the probability, 64 binary digits at a time
        digits, rest = (rest << 64) // denominator, (rest << 64) % denominator
        word = bits.words(len(undecided)).astype(object)
        heads[undecided] = word < digits
        equal = np.flatnonzero(word == digits)
        undecided, rest = undecided[equal], rest[equal]
    return heads


def bernoulli_exp(numerators: Integers, denominator: int, bits: WordSource) -> Flags:
    """Flip independent coins, the i-th true with probability exp(-numerators[i] / denominator), exactly."""
    whole, part = numerators // denominator, numerators % denominator
    heads = _bernoulli_exp_fraction(part, denominator, bits)
    tossing = np.flatnonzero(heads & (whole > 0))
    while len(tossing):  # exp(-whole) is `whole` coins of probability exp(-1), all of which must be heads
        heads[tossing] = _bernoulli_exp_fraction(np.ones(len(tossing), dtype=np.int64), 1, bits)
        whole[tossing] -= 1
        tossing = tossing[heads[tossing] & (whole[tossing] > 0)]
    return heads


def _bernoulli_exp_fraction(numerators: Integers, denominator: int, bits: WordSource) -> Flags:
    """Flip coins of probability exp(-x) for 0 <= x <= 1: the first failure in coins x/1, x/2, x/3 .. is at an odd place."""
    odd = np.zeros(len(numerators), dtype=np.bool_)
    running = np.arange(len(numerators))
    place = 1
    while len(running):
        odd[running] = place % 2 == 1
        running = running[bernoulli(numerators[running], denominator * place, bits)]
        place += 1
    return odd


def discrete_laplace(scale: Fraction, count: int, bits: WordSource) -> NDArray[np.int64]:
    """Draw integers x with probability proportional to exp(-|x| / scale)."""
    numerator, denominator = scale.numerator, scale.denominator
    if not (0 < numerator <= LARGEST_LAPLACE_SCALE and denominator <= LARGEST_LAPLACE_SCALE):
        raise AssertionError(f"the scale's numerator and denominator must lie between 1 and {LARGEST_LAPLACE_SCALE}")

    def propose(n: int) -> tuple[NDArray[np.int64], Flags]:
        remainder = below(numerator, n, bits).astype(np.int64)
        accepted = bernoulli_exp(remainder, numerator, bits)
        periods = _geometric_exp_one(n, bits)
        if periods.max(initial=0) < 256:
            size = (remainder + numerator * periods) // denominator
        else:  # which nobody will see, but without it the noise would be bounded, and the guarantee not pure
            exact = (remainder.astype(object) + numerator * periods.astype(object)) // denominator
            size = np.minimum(exact, SATURATION).astype(np.int64)
        negative = below(2, n, bits).astype(np.bool_)
        return np.where(negative, -size, size), accepted & ~(negative & (size == 0))

    return _until_accepted(propose, count)


def _geometric_exp_one(count: int, bits: WordSource) -> NDArray[np.int64]:
    """Count heads before the first tail of coins with probability exp(-1)."""
    heads = np.zeros(count, dtype=np.int64)
    running = np.arange(count)
    while len(running):
        running = running[_bernoulli_exp_fraction(np.ones(len(running), dtype=np.int64), 1, bits)]
        heads[running] += 1
    return heads


def discrete_gaussian(variance: Fraction, count: int, bits: WordSource) -> NDArray[np.int64]:
    """Draw integers x with probability proportional to exp(-x^2 / (2 variance))."""
    p, q = variance.numerator, variance.denominator
    t = isqrt(max(p, 0) // q) + 1
    if not (p > 0 and t <= LARGEST_LAPLACE_SCALE):
        raise AssertionError("the variance must be positive, and its root at most 2^54")

    def propose(n: int) -> tuple[NDArray[np.int64], Flags]:
        x = discrete_laplace(Fraction(t), n, bits)
        # accept with probability exp(-(|x| - variance/t)^2 / (2 variance)), the fraction cleared
        distance = np.abs(x).astype(object) * (q * t) - p
        return x, bernoulli_exp(distance * distance, 2 * p * q * t * t, bits)

    return _until_accepted(propose, count)


def _until_accepted(propose: Callable[[int], tuple[NDArray[np.int64], Flags]], count: int) -> NDArray[np.int64]:
    """Redraw what was refused until every place is filled."""
    drawn = np.zeros(count, dtype=np.int64)
    open_places = np.arange(count)
    while len(open_places):
        values, accepted = propose(len(open_places))
        drawn[open_places[accepted]] = values[accepted]
        open_places = open_places[~accepted]
    return drawn
