"""NormalResponse: the label's vector, of K public ones, with exact discrete Gaussian noise (the paper's Algorithm 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.epsilon import UNITS_PER_ONE, Epsilon, EpsilonLike, exact_number
from labeldp.budget.guarantee import DELTA_UNITS_PER_ONE, Guarantee
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.normal_privacy import continuous_variance, smallest_epsilon, smallest_variance
from labeldp.randomness import Bits, discrete_gaussian
from labeldp.randomness.discrete import LARGEST_LAPLACE_SCALE
from labeldp.randomness.tabulated import tabulated_gaussian, worth_a_table

Integers = NDArray[np.int64]

LARGEST_ENTRY = 2**24
LARGEST_DIMENSION = 2**12
"""Squared distances of two vectors then lie below 2^(2 x 25 + 12) = 2^62, and no sum overflows."""

CLAMP = 2**61

FINEST_RESOLUTION, COARSEST_RESOLUTION = 2**11, 2**6
LARGEST_TARGET = 2**15
"""The deviation, in lattice units, up to which a lattice is made finer: rounding then costs little, and draws stay quick."""


@dataclass(frozen=True, slots=True)
class NormalResponse:
    """Answer with the label's vector, of K public ones, plus discrete Gaussian noise in every coordinate.

    Parameters
    ----------
    epsilon, delta : the guarantee for one answer about one label; delta must be above 0.
    dimension : the number r of coordinates.
    squared_sensitivity : the largest squared distance of two classes' vectors, a whole number, in lattice units. A table
        of vectors that are further apart is refused.
    grid : what one lattice unit stands for in the caller's units; for the certificate and `quantised`, nothing else.

    Privacy
    -------
    (epsilon, delta)-label-DP for one answer per row; neighbours differ in one label. Public: the vectors, all parameters.
    Secret: label. The noise has the smallest whole variance that the proof allows: docs/proofs/normal.md.

    >>> response = NormalResponse(epsilon="1", delta="1e-6", dimension=9, squared_sensitivity=1000**2)
    >>> response.variance, round(response.sigma), round(response.analytic_sigma), f"{response.sigma_ratio:.6f}"
    (17847914, 4225, 4225, '1.000000')
    """

    epsilon: EpsilonLike
    delta: Any
    dimension: int
    squared_sensitivity: int
    grid: Any = 1

    def __post_init__(self) -> None:
        epsilon, delta = Epsilon.of(self.epsilon), exact_number(self.delta, name="delta")
        if not Guarantee.of(epsilon, delta=delta).delta_units:
            raise InvalidArgument(
                "delta must be > 0: Gaussian noise has no pure guarantee. Give both the response and the budget a delta."
            )
        grid = exact_number(self.grid, name="grid")
        if grid <= 0:
            raise InvalidArgument(f"grid must be > 0, got {self.grid}.")
        dimension = checks.integer(dimension=self.dimension, at_least=1, at_most=LARGEST_DIMENSION)
        furthest = dimension * (2 * LARGEST_ENTRY) ** 2
        squared = checks.integer(squared_sensitivity=self.squared_sensitivity, at_least=1, at_most=furthest)
        for name, value in (
            ("epsilon", epsilon),
            ("delta", delta),
            ("dimension", dimension),
            ("squared_sensitivity", squared),
            ("grid", grid),
        ):
            object.__setattr__(self, name, value)
        if self.variance >= LARGEST_LAPLACE_SCALE**2:
            raise InvalidArgument(
                f"the noise deviation must be at most 2^54 lattice units, but these parameters need {self.sigma:.3g}: use a "
                "coarser grid, or a larger epsilon or delta."
            )

    @classmethod
    def covering(cls, sensitivity: Any, *, epsilon: EpsilonLike, delta: Any, dimension: int) -> Self:
        """Return a response for vectors of real numbers whose distances are at most `sensitivity`, on a lattice that suits it.

        Rounding may move two vectors apart by the root of the dimension, in lattice units; the response allows for it.

        >>> response = NormalResponse.covering(2.0, epsilon="1", delta="1e-6", dimension=9)
        >>> float(response.grid), response.squared_sensitivity, response.quantised([[0.0, 0.5]]).tolist()
        (0.0009765625, 4206643, [[0, 512]])
        """
        exact = exact_number(sensitivity, name="sensitivity")
        if exact <= 0:
            raise InvalidArgument(f"sensitivity must be > 0, got {sensitivity}.")
        checks.integer(dimension=dimension, at_least=1, at_most=LARGEST_DIMENSION)
        multiplier = cls(epsilon, delta, dimension, 1).analytic_sigma
        resolution = max(COARSEST_RESOLUTION, min(FINEST_RESOLUTION, int(LARGEST_TARGET / multiplier)))
        reach = resolution + sqrt(dimension) + 0.01
        return cls(epsilon, delta, dimension, squared_sensitivity=ceil(reach * reach), grid=exact / resolution)

    # ---- what it promises --------------------------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.of(self.epsilon, delta=self.delta)

    @property
    def variance(self) -> int:
        """The parameter of the noise, P(x) proportional to exp(-x^2 / (2 variance)), in squared lattice units."""
        return smallest_variance(
            Epsilon.of(self.epsilon).exact,
            self._delta,
            squared_sensitivity=self.squared_sensitivity,
            dimension=self.dimension,
        )

    @property
    def sigma(self) -> float:
        """The root of the variance, in lattice units."""
        return sqrt(self.variance)

    @property
    def analytic_sigma(self) -> float:
        """What continuous Gaussian noise would need on real numbers (Balle and Wang 2018), in lattice units."""
        return sqrt(
            continuous_variance(
                Epsilon.of(self.epsilon).exact, self._delta, squared_sensitivity=self.squared_sensitivity
            )
        )

    @property
    def sigma_ratio(self) -> float:
        """How much more noise than the analytic Gaussian's: 1 on a fine lattice."""
        return self.sigma / self.analytic_sigma

    @property
    def realised_epsilon(self) -> float:
        """The smallest epsilon that is proven at this delta and variance, rounded up to 12 places."""
        units = smallest_epsilon(
            self._delta,
            variance=self.variance,
            squared_sensitivity=self.squared_sensitivity,
            dimension=self.dimension,
            units_per_one=UNITS_PER_ONE,
        )
        return units / UNITS_PER_ONE

    @property
    def _delta(self) -> Fraction:
        return Fraction(self.guarantee.delta_units, DELTA_UNITS_PER_ONE)

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters as JSON values, for receipts and certificates."""
        return {
            "epsilon": str(self.epsilon),
            "delta": self.guarantee.delta,
            "dimension": self.dimension,
            "squared_sensitivity": self.squared_sensitivity,
            "grid": str(self.grid),
            "variance": self.variance,
            "analytic_variance": self.analytic_sigma**2,
        }

    def loss(self, answer: Sequence[int], vector: Sequence[int], other: Sequence[int]) -> Fraction:
        """Return ln(P(answer | vector) / P(answer | other)) exactly: the law without its irrational normalizer.

        >>> NormalResponse("1", "1e-6", dimension=1, squared_sensitivity=9).loss([5], [3], [0])
        Fraction(21, 326)
        """
        pairs = list(zip(answer, vector, other, strict=True))
        squares = sum((int(x) - int(b)) ** 2 - (int(x) - int(a)) ** 2 for x, a, b in pairs)
        return Fraction(squares, 2 * self.variance)

    # ---- what is public ----------------------------------------------------------------------------------------------

    def quantised(self, vectors: Any) -> Integers:
        """Return vectors of real numbers, in the caller's units, as the nearest points of the lattice."""
        array = checks.array(vectors=vectors)
        if array.dtype.kind not in "fiu":
            raise InvalidArgument(f"vectors must be numbers, got dtype {array.dtype}.")
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = array / float(self.grid)
            within = np.abs(scaled) <= LARGEST_ENTRY  # NaN and infinity fail this comparison
        if not within.all():
            raise InvalidArgument(
                f"vectors must be finite, and at most {LARGEST_ENTRY} times the grid ({float(self.grid):.3g}) in size; "
                f"{int((~within).sum())} of {within.size} numbers are not. Centre them, or use a coarser grid."
            )
        return np.rint(scaled).astype(np.int64)

    def checked(self, table: Any, *, n_rows: int, n_classes: int) -> Integers:
        """Return an own copy of a table of whole vectors, (rows, classes, dimension), none further apart than declared.

        One table for all rows, made with np.broadcast_to, is copied and checked once.
        """
        own, given = _own(checks.array(table=table))  # what is checked is what is answered from
        shape = (n_rows, n_classes, self.dimension)
        if own.dtype.kind not in "iu":
            raise InvalidArgument(f"table must hold integers (see NormalResponse.quantised), got dtype {own.dtype}.")
        if given != shape:
            raise InvalidArgument(f"table must have shape (rows, classes, dimension) = {shape}, got {given}.")
        if own.min() < -LARGEST_ENTRY or own.max() > LARGEST_ENTRY:
            raise InvalidArgument(
                f"table's entries must be at most {LARGEST_ENTRY} in size: centre the vectors, or use a coarser grid."
            )
        own = own.astype(np.int64, copy=False)
        furthest = largest_squared_distance(own)
        if furthest > self.squared_sensitivity:
            raise InvalidArgument(
                f"the vectors of two classes must be at most sqrt({self.squared_sensitivity}) apart in every row, as "
                f"squared_sensitivity declares, but in some row they are sqrt({furthest}) apart. Scale them down."
            )
        return np.broadcast_to(own, shape) if len(own) < n_rows else own

    # ---- inside the vault --------------------------------------------------------------------------------------------

    def noise(self, count: int, bits: Bits) -> Integers:
        """Draw noise, which depends on the variance alone: it may be drawn before a label or a table is known."""
        if worth_a_table(self.variance, count):
            return tabulated_gaussian(self.variance, count, bits)
        return discrete_gaussian(Fraction(self.variance), count, bits)

    @staticmethod
    def answer(true_labels: NDArray[Any], table: Integers, noise: Integers) -> Integers:
        """Return each label's vector plus noise; beyond 2^61, which nobody will see, the sum is clamped."""
        return np.clip(table[np.arange(len(table)), true_labels] + noise, -CLAMP, CLAMP)


def _own(array: NDArray[Any]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return a copy, of one row alone where all are the same memory, and the shape of the whole.

    Another thread may set the array's dtype, shape and strides at any time, so they are read from a view that is ours.
    """
    view = array.view()
    return (view[:1] if view.ndim and view.strides[0] == 0 else view).copy(), view.shape


def largest_squared_distance(table: Integers) -> int:
    """Return the largest squared distance of two classes' vectors in any row, of a table (rows, classes, dimension).

    >>> largest_squared_distance(np.array([[[0, 0], [3, 4]], [[1, 1], [1, 2]]]))
    25
    """
    largest = 0
    for apart in range(1, table.shape[1]):
        difference = table[:, apart:] - table[:, :-apart]
        largest = max(largest, int(np.einsum("ikr,ikr->ik", difference, difference).max()))
    return largest
