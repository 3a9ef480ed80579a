"""Exact epsilon: whole numbers of 1e-12, and the integer odds that never exceed e^epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from labeldp.errors import InvalidArgument

UNITS_PER_ONE = 10**12
LARGEST = 20
MOST_DIGITS = 80
OTHER = 2**32
"""The odds of a report that is not the row's own; `keep` is e^epsilon times this, rounded down."""

EpsilonLike = Any  # int, float, str, Decimal, Fraction or Epsilon


@dataclass(frozen=True, slots=True, order=True)
class Epsilon:
    """A privacy cost, held as a whole number of 1e-12, so that sums are exact.

    >>> Epsilon.of("0.1") + Epsilon.of(0.2)
    Epsilon('0.3')
    >>> Epsilon.of(0)
    Traceback (most recent call last):
    labeldp.errors.InvalidArgument: epsilon must be > 0 and at most 20, got 0.
    """

    units: int

    @classmethod
    def of(cls, value: EpsilonLike, *, name: str = "epsilon") -> Epsilon:
        """Read an epsilon exactly; anything finer than 1e-12, above 20 or not above 0 is refused."""
        exact = value.exact if isinstance(value, Epsilon) else exact_number(value, name=name)
        if not 0 < exact <= LARGEST:
            raise InvalidArgument(f"{name} must be > 0 and at most {LARGEST}, got {value}.")
        return cls(whole_units(exact, UNITS_PER_ONE, name=name, finest="1e-12"))

    @property
    def exact(self) -> Fraction:
        return Fraction(self.units, UNITS_PER_ONE)

    def __float__(self) -> float:
        return float(self.exact)

    def __add__(self, other: Epsilon) -> Epsilon:
        return Epsilon(self.units + other.units)

    def __str__(self) -> str:
        return decimal_text(self.units, 12)

    def __repr__(self) -> str:
        return f"Epsilon('{self}')"


@dataclass(frozen=True, slots=True)
class Odds:
    """The integer odds `keep : other` of randomized response, with 1 <= keep/other <= e^epsilon exactly."""

    keep: int
    other: int = OTHER

    @classmethod
    def within(cls, epsilon: Epsilon) -> Odds:
        """Return the largest odds over 2^32 that epsilon allows.

        >>> Odds.within(Epsilon.of(1)).keep == 11674931554
        True
        """
        return cls(exp_floor(epsilon.units, UNITS_PER_ONE, OTHER))

    @property
    def excess(self) -> int:
        """The odds of answering truthfully rather than blindly: total = excess + groups x other."""
        return self.keep - self.other

    @property
    def realised_epsilon(self) -> float:
        """ln(keep/other), rounded up to 12 places, which never exceeds the epsilon of the odds."""
        with localcontext(Context(prec=40)):
            units = ceil((Decimal(self.keep) / self.other).ln() * UNITS_PER_ONE)
        return units / UNITS_PER_ONE


@lru_cache(maxsize=256)
def exp_floor(numerator: int, denominator: int, scale: int) -> int:
    """Return floor(scale * e^(numerator/denominator)), proven by integer bounds on both sides.

    Taylor's terms are added in fixed point, once all rounded down and once all rounded up; the tail after the last term
    is below that term, because its ratio to the next is then at least 2. A positive rational power of e is irrational,
    so the two bounds agree at some precision.
    """
    precision = 128
    while True:
        one = scale << precision
        low_term = high_term = low = high = one
        k = 0
        while high_term > 1 or k * denominator < 2 * numerator:
            k += 1
            low_term = low_term * numerator // (denominator * k)
            high_term = -(-high_term * numerator // (denominator * k))
            low += low_term
            high += high_term
        high += high_term
        if low >> precision == high >> precision:
            return low >> precision
        precision *= 2


def exact_number(value: Any, *, name: str) -> Fraction:
    """Read an int, float (by its shortest decimal form), str, Decimal or Fraction without rounding."""
    known = (int, np.integer, Fraction, float, np.floating, str, Decimal)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, known):
        raise InvalidArgument(f"{name} must be a number or its decimal text, got {type(value).__name__}.")
    if isinstance(value, (int, np.integer, Fraction)):
        exact = value if isinstance(value, Fraction) else Fraction(int(value))
        if max(abs(exact.numerator), exact.denominator) >= 10**MOST_DIGITS:
            raise InvalidArgument(f"{name} must have at most {MOST_DIGITS} digits.")
        return exact
    text = str(value).strip()
    if len(text) > MOST_DIGITS:
        raise InvalidArgument(f"{name} must have at most {MOST_DIGITS} digits.")
    try:
        number = Decimal("NaN" if "_" in text else text)  # a Decimal would read 1_5 as 15
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise InvalidArgument(f"{name} must be a finite number, got {text}.")
    if number and not -40 <= number.adjusted() <= 40:  # keeps 1e999999999 from filling the memory
        raise InvalidArgument(f"{name} must be between 1e-40 and 1e40 in size, got {text}.")
    return Fraction(number)


def whole_units(exact: Fraction, per_one: int, *, name: str, finest: str) -> int:
    """Return exact * per_one, which must be whole."""
    units = exact * per_one
    if units.denominator != 1:
        raise InvalidArgument(
            f"{name} must be a multiple of {finest}, got {float(exact)!r}. Round it, or write it as text."
        )
    return int(units)


def decimal_text(units: int, places: int) -> str:
    """Write units of 10^-places as the shortest plain decimal.

    >>> decimal_text(1_500_000_000_000, 12), decimal_text(0, 12)
    ('1.5', '0')
    """
    whole, part = divmod(units, 10**places)
    return f"{whole}.{part:0{places}d}".rstrip("0").rstrip(".")
