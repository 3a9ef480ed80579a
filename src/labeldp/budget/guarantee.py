"""What a release promises: (epsilon, delta) per label, added exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from labeldp.budget.epsilon import UNITS_PER_ONE, Epsilon, EpsilonLike, decimal_text, exact_number, whole_units
from labeldp.errors import InvalidArgument

DELTA_UNITS_PER_ONE = 10**18


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta) in whole units of 1e-12 and 1e-18; delta 0 is the pure guarantee.

    A number stands for a pure epsilon in comparisons; of two guarantees neither may be within the other.

    >>> print(Guarantee.of("1.5"), "|", Guarantee.of(1, delta="1e-6"))
    epsilon 1.5 | epsilon 1, delta 0.000001
    >>> Guarantee.of("0.3") <= "0.3", Guarantee.of(1, delta="1e-6") <= 2
    (True, False)
    """

    epsilon_units: int
    delta_units: int = 0

    @classmethod
    def of(cls, epsilon: EpsilonLike, *, delta: Any = 0, name: str = "epsilon") -> Guarantee:
        exact = exact_number(delta, name="delta")
        if not 0 <= exact < 1:
            raise InvalidArgument(f"delta must be at least 0 and below 1, got {delta}.")
        return cls(
            Epsilon.of(epsilon, name=name).units,
            whole_units(exact, DELTA_UNITS_PER_ONE, name="delta", finest="1e-18"),
        )

    @property
    def epsilon(self) -> str:
        return decimal_text(self.epsilon_units, 12)

    @property
    def delta(self) -> str:
        return decimal_text(self.delta_units, 18)

    def __le__(self, other: Any) -> bool:
        epsilon, delta = _exact(other)
        mine, my_delta = _exact(self)
        return mine <= epsilon and my_delta <= delta

    def __ge__(self, other: Any) -> bool:
        epsilon, delta = _exact(other)
        mine, my_delta = _exact(self)
        return mine >= epsilon and my_delta >= delta

    def __str__(self) -> str:
        return f"epsilon {self.epsilon}" + (f", delta {self.delta}" if self.delta_units else "")


def _exact(value: Any) -> tuple[Fraction, Fraction]:
    """Return epsilon and delta of a guarantee, or of a number, whose delta is 0."""
    if isinstance(value, Guarantee):
        return Fraction(value.epsilon_units, UNITS_PER_ONE), Fraction(value.delta_units, DELTA_UNITS_PER_ONE)
    if isinstance(value, Epsilon):
        return value.exact, Fraction(0)
    return exact_number(value, name="epsilon"), Fraction(0)
