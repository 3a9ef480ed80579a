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
from labeldp.randomness import Bits, Reserved, discrete_laplace
from labeldp.randomness.discrete import LARGEST_LAPLACE_SCALE

Index = NDArray[np.int64]

CLAMP = 2**61
AT_ONCE = 4_096
"""Numbers whose noise is drawn at once."""


def words_reserved(count: int) -> int:
    """Return how many random words are read for the noise of so many numbers, whatever it comes out as.

    They suffice but with probability 2^-88 (docs/proofs/histogram.md): their number tells nothing of the noise.
    """
    return 80 * count + 2_048


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
        sizes = [min(AT_ONCE, exact.size - at) for at in range(0, exact.size, AT_ONCE)]
        parts = [discrete_laplace(self.scale, n, Reserved(bits, words_reserved(n))) for n in sizes]
        noise = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return np.clip(exact + noise.reshape(exact.shape), -CLAMP, CLAMP)
