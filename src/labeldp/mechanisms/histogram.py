"""Private label counts per public group (discrete Laplace, the paper's priors of Section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.epsilon import EpsilonLike
from labeldp.mechanisms.aggregate import Aggregate, Index
from labeldp.randomness import Bits


@dataclass(frozen=True)
class Histogram(Aggregate):
    """Count the labels of each class in each group.

    Privacy
    -------
    epsilon-label-DP for all groups together: changing one label moves 1 from one cell of its group to another, so the cells
    change by 2 in all; the noise has scale 2/epsilon. Public: groups, class list, epsilon. Proof: docs/proofs/histogram.md.

    >>> Histogram(epsilon="0.1").scale
    Fraction(20, 1)
    """

    epsilon: EpsilonLike

    name: ClassVar[str] = "histogram"

    @property
    def sensitivity(self) -> int:
        return 2

    def answer(self, true_labels: NDArray[Any], groups: Index, *, n_groups: int, n_classes: int, bits: Bits) -> Index:
        cells = np.bincount(groups * n_classes + true_labels, minlength=n_groups * n_classes)
        return self.noisy(cells.reshape(n_groups, n_classes), bits)
