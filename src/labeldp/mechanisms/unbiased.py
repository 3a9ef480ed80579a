"""UnbiasedResponse: numeric labels whose reports are right on average, with the least noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from labeldp import checks
from labeldp.budget.epsilon import Epsilon, EpsilonLike, Odds, exact_number
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.channel import Report, Table
from labeldp.mechanisms.local import LocalMechanism
from labeldp.mechanisms.unbiased_table import UnbiasedTable, unbiased_table

LARGEST_GRID = 101


@dataclass(frozen=True)
class UnbiasedResponse(LocalMechanism):
    """Report a value whose mean is the label exactly, with the smallest variance averaged over the labels.

    The labels are low, low + step, .. high. The table of odds is the optimum of a convex program, rounded to integers;
    the values that the reports stand for are re-solved in fractions, so that the mean is the label without any error.

    Privacy
    -------
    epsilon-label-DP per row; neighbours differ in one label. Public: low, high, step, epsilon. Secret: label.
    Proof: docs/proofs/response.md; the vault checks the table's columns against the odds before it draws.

    >>> stars = UnbiasedResponse(epsilon="1", low=1, high=5)
    >>> law = stars.law(3)  # the label number 3, a rating of 4
    >>> sum(chance * stars.outputs[report] for report, chance in law.items())
    Fraction(4, 1)
    """

    epsilon: EpsilonLike
    low: Any
    high: Any
    step: Any = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("low", "high", "step"):
            object.__setattr__(self, name, exact_number(getattr(self, name), name=name))
        if self.step <= 0 or self.high <= self.low or (self.high - self.low) % self.step:
            raise InvalidArgument(
                "low < high must differ by a whole number of steps, and step must be > 0; "
                f"got low={self.low}, high={self.high}, step={self.step}."
            )
        checks.integer(at_least=2, at_most=LARGEST_GRID, **{"the number of grid values": self._count})

    @property
    def values(self) -> tuple[Fraction, ...]:
        """The labels' values, in the order of the classes."""
        return tuple(self.low + i * self.step for i in range(self._count))

    @property
    def _count(self) -> int:
        return int((self.high - self.low) / self.step) + 1

    @property
    def outputs(self) -> tuple[Fraction, ...]:
        """The value that each report stands for."""
        return self._table.outputs

    @property
    def _table(self) -> UnbiasedTable:
        return unbiased_table(self.values, Odds.within(Epsilon.of(self.epsilon)))

    def channel(self, n_rows: int) -> Table:
        """Return the table as a channel for any number of rows."""
        return Table(self._table.integers, Odds.within(Epsilon.of(self.epsilon)), n_rows)

    def law(self, label: int, prior: Any = None, *, dealing: int = 0) -> dict[Report, Fraction]:  # noqa: ARG002
        checks.integer(label=label, at_least=0, at_most=len(self.values) - 1)
        return self.channel(1).law(0, label)
