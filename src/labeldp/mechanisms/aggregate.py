"""The curator's mechanisms: exact discrete Laplace noise on counts and sums per public group.

Each label sits in one group, so thousands of groups cost what one costs. A final subclass is a frozen dataclass that says
what is asked and how much noise that takes; its `answer` is called inside the vault.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.epsilon import Epsilon, EpsilonLike
from labeldp.errors import InvalidArgument
from labeldp.randomness import Bits, discrete_laplace
from labeldp.randomness.discrete import LARGEST_LAPLACE_SCALE

Index = NDArray[np.int64]

CLAMP = 2**61


class Aggregate(ABC):
    """A sum over public groups of rows, whose sensitivity to one label is known exactly."""

    name: ClassVar[str]
    epsilon: EpsilonLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", Epsilon.of(self.epsilon))
        if self.scale.numerator > LARGEST_LAPLACE_SCALE or self.scale.denominator > LARGEST_LAPLACE_SCALE:
            raise InvalidArgument(
                f"the noise scale {float(self.scale):.3g} = sensitivity {self.sensitivity} / epsilon {self.epsilon} is too "
                "fine a fraction to draw exactly: use an epsilon with fewer digits, or narrower bounds."
            )

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """The largest change, summed over all cells, when one label changes."""

    @property
    def scale(self) -> Fraction:
        """The scale of the discrete Laplace noise: P(x) is proportional to exp(-|x| / scale)."""
        return self.sensitivity / Epsilon.of(self.epsilon).exact

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": str(self.epsilon)}

    def noisy(self, exact: Index, bits: Bits) -> Index:
        """Add noise to exact counts or sums below 2^60, and clamp to 2^61: what is released is a function of their sum."""
        noise = discrete_laplace(self.scale, exact.size, bits).reshape(exact.shape)
        return np.clip(exact + noise, -CLAMP, CLAMP)
