"""The (epsilon, delta) of exact discrete Gaussian noise on integer vectors, with every rounding on the safe side.

The discrete Gaussian of variance v on the integers is, within a factor 1 +- 1.5e-17 per coordinate, a randomized rounding of
the continuous one of variance v - 2; so the analytic formula of Balle and Wang (2018) holds for it at v - 2, with the factor
taken off epsilon and put on delta. Proof: docs/proofs/normal.md. The formula is evaluated in decimals of 100 digits.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

SMOOTHING = 2
"""The variance that the rounding adds to the continuous noise."""

UNEVENNESS = Fraction(15, 10**18)
"""At least 2 (e^-a + e^-4a + e^-9a + ..) with a = 2 pi^2 SMOOTHING: how far a sum of Gaussian weights over shifted integers
strays from its mean."""

ERROR = Decimal("1e-80")
"""More than all rounding errors of the formula in 100 digits: they are below 1e-90, and the true delta is a number below 1."""

RELATIVE = Decimal("1e-100")
"""The last term of a series, as a share of its sum."""

FINE = 2**30
"""Parts of one that a continuous variance is told in."""

FAR = 30
"""Beyond this many deviations a tail is below 1e-190."""


def delta_bound(epsilon: Fraction, *, variance: int, squared_sensitivity: int, dimension: int) -> Decimal:
    """Return a delta with which discrete Gaussian noise of this variance, in each coordinate, is (epsilon, delta)-DP.

    Neighbours are integer vectors of this dimension whose squared distance is at most `squared_sensitivity`.
    """
    if variance <= SMOOTHING:
        return Decimal(1)
    above, below = 1 + UNEVENNESS, 1 - UNEVENNESS
    with localcontext(_exact()):
        loss = dimension * (_decimal(above / below).ln() + ERROR)
        delta = (
            gaussian_delta(_decimal(epsilon) - loss, Decimal(squared_sensitivity) / (variance - SMOOTHING))
            * _decimal(above) ** dimension
        )
        return min(Decimal(1), delta + ERROR)


def gaussian_delta(epsilon: Decimal, squared_ratio: Decimal) -> Decimal:
    """Return at least the delta of continuous Gaussian noise on a sensitivity of m = sqrt(squared_ratio) deviations.

    Balle and Wang (2018), Theorem 8: delta = Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m).
    """
    with localcontext(_exact()):
        m = squared_ratio.sqrt()
        delta = _normal_cdf(m / 2 - epsilon / m) - epsilon.exp() * _normal_cdf(-m / 2 - epsilon / m)
        return max(delta, Decimal(0)) + ERROR


@lru_cache(maxsize=256)
def smallest_variance(epsilon: Fraction, delta: Fraction, *, squared_sensitivity: int, dimension: int) -> int:
    """Return the smallest whole variance whose delta bound at epsilon is at most delta."""

    def private(variance: int) -> bool:
        bound = delta_bound(epsilon, variance=variance, squared_sensitivity=squared_sensitivity, dimension=dimension)
        return Fraction(bound) <= delta

    return _least(private)


@lru_cache(maxsize=256)
def smallest_epsilon(
    delta: Fraction, *, variance: int, squared_sensitivity: int, dimension: int, units_per_one: int
) -> int:
    """Return, in whole units, the smallest epsilon whose delta bound with this variance is at most delta."""
    if variance <= SMOOTHING:
        raise AssertionError(f"a variance must be above {SMOOTHING} for any epsilon to be proven")

    def private(units: int) -> bool:
        bound = delta_bound(
            Fraction(units, units_per_one),
            variance=variance,
            squared_sensitivity=squared_sensitivity,
            dimension=dimension,
        )
        return Fraction(bound) <= delta

    return _least(private)


@lru_cache(maxsize=256)
def continuous_variance(epsilon: Fraction, delta: Fraction, *, squared_sensitivity: int) -> float:
    """Return the smallest variance of continuous Gaussian noise with this guarantee: what real numbers would need."""

    def private(parts: int) -> bool:
        ratio = _decimal(Fraction(squared_sensitivity * FINE, parts))
        return Fraction(gaussian_delta(_decimal(epsilon), ratio)) <= delta

    return _least(private) / FINE


def _least(holds: Callable[[int], bool]) -> int:
    """Return the smallest n >= 1 for which something holds that holds for all larger n."""
    above = 1
    while not holds(above):
        above *= 4
    below = above // 4  # 0, or known not to hold
    while above - below > 1:
        middle = (above + below) // 2
        above, below = (middle, below) if holds(middle) else (above, middle)
    return above


def _normal_cdf(x: Decimal) -> Decimal:
    """Return Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/15 + ..), whose terms all have the sign of x."""
    if abs(x) > FAR:
        return Decimal(1 if x > 0 else 0)
    term = total = x
    odd = 1
    while abs(term) > abs(total) * RELATIVE:
        odd += 2
        term = term * x * x / odd
        total += term
    return Decimal("0.5") + (-x * x / 2).exp() / (2 * _pi()).sqrt() * total


@lru_cache(maxsize=1)
def _pi() -> Decimal:
    """Return pi by Machin's formula, 16 arctan(1/5) - 4 arctan(1/239), to well over 100 digits."""
    with localcontext(_exact()) as context:
        context.prec += 20
        return 16 * _arctan_of_one_over(5) - 4 * _arctan_of_one_over(239)


def _arctan_of_one_over(n: int) -> Decimal:
    power, total, odd = Decimal(1) / n, Decimal(0), 1
    while power > Decimal("1e-125"):
        total += power / (odd if odd % 4 == 1 else -odd)
        power, odd = power / (n * n), odd + 2
    return total


def _exact() -> Context:
    return Context(prec=100, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)


def _decimal(x: Fraction) -> Decimal:
    with localcontext(_exact()):
        return Decimal(x.numerator) / x.denominator
