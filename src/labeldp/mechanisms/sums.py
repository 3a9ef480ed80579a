"""Private sums of integer labels per public group (discrete Laplace)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labeldp import checks
from labeldp.budget.epsilon import EpsilonLike
from labeldp.mechanisms.aggregate import Aggregate, Index
from labeldp.randomness import Bits


@dataclass(frozen=True)
class Sums(Aggregate):
    """Add the integer labels of each group.

    Privacy
    -------
    epsilon-label-DP for all groups together: changing one label changes one sum by at most high - low; the noise has scale
    (high - low)/epsilon. Public: groups, bounds, epsilon. Proof: docs/proofs/histogram.md.

    >>> Sums(epsilon="0.1", low=1, high=5).scale
    Fraction(40, 1)
    """

    epsilon: EpsilonLike
    low: int
    high: int

    name: ClassVar[str] = "sums"

    def __post_init__(self) -> None:
        checks.integer(low=self.low, at_least=-(2**30), at_most=2**30)
        checks.integer(high=self.high, at_least=int(self.low) + 1, at_most=2**30)
        super().__post_init__()

    @property
    def sensitivity(self) -> int:
        return int(self.high) - int(self.low)

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": str(self.epsilon), "low": int(self.low), "high": int(self.high)}

    def answer(self, true_values: Index, groups: Index, *, n_groups: int, bits: Bits) -> Index:
        sums = np.zeros(n_groups, dtype=np.int64)
        np.add.at(sums, groups, true_values)
        return self.noisy(sums, bits)
