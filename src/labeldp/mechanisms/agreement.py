"""How many labels equal a public prediction, with noise: accuracy that may be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.epsilon import EpsilonLike
from labeldp.mechanisms.aggregate import Aggregate, Index
from labeldp.randomness import Bits


@dataclass(frozen=True)
class Agreement(Aggregate):
    """Count the rows whose label equals a public prediction.

    Privacy
    -------
    epsilon-label-DP: changing one label changes the count by at most 1; the noise has scale 1/epsilon.
    Public: predictions, epsilon. Proof: docs/proofs/histogram.md.
    """

    epsilon: EpsilonLike

    name: ClassVar[str] = "agreement"

    @property
    def sensitivity(self) -> int:
        return 1

    def answer(self, true_labels: NDArray[Any], predictions: Index, *, bits: Bits) -> int:
        return int(self.noisy(np.array([(true_labels == predictions).sum()]), bits)[0])
