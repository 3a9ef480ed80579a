"""Where the parameters may lie: convex sets with their Euclidean projection, diameter and largest norm.

Parameters are flat vectors. A set works on the last axis of an array, so that many vectors are projected at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp.convex.numbers import Floats, finite, positive
from labeldp.errors import InvalidArgument

TOLERANCE = 1e-9  # relative: a projection ends within a few roundings of its set


class ParameterSet(ABC):
    """A closed, bounded, convex set W of parameter vectors."""

    @abstractmethod
    def check(self, dimension: int) -> None:
        """Raise unless the set has members of this dimension."""

    @abstractmethod
    def project(self, points: Floats) -> Floats:
        """Return the nearest member of the set to each point, along the last axis."""

    @abstractmethod
    def diameter(self, dimension: int) -> float:
        """Return D, the largest distance between two members."""

    @abstractmethod
    def largest_norm(self, dimension: int) -> float:
        """Return the largest norm of a member."""

    @abstractmethod
    def middle(self, dimension: int) -> Floats:
        """Return the member to start from."""

    def contains(self, points: Any) -> Any:
        """Return whether each point lies in the set, up to rounding."""
        given = finite(points=points)
        self.check(given.shape[-1])
        outside = self.project(given) - given
        return np.sqrt(np.vecdot(outside, outside)) <= TOLERANCE * (1.0 + self.largest_norm(given.shape[-1]))


@dataclass(frozen=True, eq=False)
class Ball(ParameterSet):
    """All vectors within a radius of a centre: one number for all coordinates, or a vector.

    >>> Ball(radius=1.0).project(np.array([3.0, 4.0])).round(3).tolist(), Ball(radius=1.0).diameter(2)
    ([0.6, 0.8], 2.0)
    """

    radius: float
    centre: Any = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive(radius=self.radius))
        object.__setattr__(self, "centre", _vector(centre=self.centre))

    def check(self, dimension: int) -> None:
        _fits(dimension, centre=self.centre)

    def project(self, points: Floats) -> Floats:
        offset = points - self.centre
        norm = np.sqrt(np.vecdot(offset, offset))[..., None]
        inside = norm <= self.radius
        if inside.all():
            return points
        return np.where(inside, points, self.centre + offset * (self.radius / np.where(inside, 1.0, norm)))

    def diameter(self, dimension: int) -> float:
        self.check(dimension)
        return 2 * self.radius

    def largest_norm(self, dimension: int) -> float:
        return float(np.linalg.norm(self.middle(dimension))) + self.radius

    def middle(self, dimension: int) -> Floats:
        self.check(dimension)
        return np.broadcast_to(self.centre, dimension).copy()


@dataclass(frozen=True, eq=False)
class Box(ParameterSet):
    """All vectors between two limits, each one number for all coordinates or a vector.

    >>> Box(low=0, high=1).project(np.array([-2.0, 0.5])).tolist(), Box(low=0, high=1).diameter(4)
    ([0.0, 0.5], 2.0)
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", _vector(low=self.low))
        object.__setattr__(self, "high", _vector(high=self.high))
        if self.low.ndim and self.high.ndim and self.low.shape != self.high.shape:
            raise InvalidArgument(f"low and high must have one length, got {len(self.low)} and {len(self.high)}.")
        if (self.low > self.high).any() or (self.low == self.high).all():
            raise InvalidArgument("low must be at most high everywhere, and below it somewhere.")

    def check(self, dimension: int) -> None:
        _fits(dimension, low=self.low, high=self.high)

    def project(self, points: Floats) -> Floats:
        return np.clip(points, self.low, self.high)

    def diameter(self, dimension: int) -> float:
        self.check(dimension)
        return float(np.linalg.norm(np.broadcast_to(self.high - self.low, dimension)))

    def largest_norm(self, dimension: int) -> float:
        self.check(dimension)
        return float(np.linalg.norm(np.broadcast_to(np.maximum(np.abs(self.low), np.abs(self.high)), dimension)))

    def middle(self, dimension: int) -> Floats:
        self.check(dimension)
        return np.broadcast_to(self.low / 2 + self.high / 2, dimension).copy()


@dataclass(frozen=True, eq=False)
class Simplex(ParameterSet):
    """All vectors without negative coordinates whose sum is the total.

    >>> Simplex().project(np.array([1.0, 0.5, -3.0])).tolist()
    [0.75, 0.25, 0.0]
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", positive(total=self.total))

    def check(self, dimension: int) -> None:
        if dimension < 2:
            raise InvalidArgument(f"a simplex needs at least 2 coordinates, got {dimension}.")

    def project(self, points: Floats) -> Floats:
        """Subtract one number from all coordinates and cut off at 0, such that the sum is right.

        Of the sorted coordinates the largest few stay above 0; how many is where subtracting their excess leaves the last of
        them positive (Held, Wolfe and Crowder 1974; Duchi et al. 2008).
        """
        lowered = points - points.max(axis=-1, keepdims=True)  # the same projection, without cancellation
        descending = -np.sort(-lowered, axis=-1)
        counts = np.arange(1, points.shape[-1] + 1)
        shift = (np.cumsum(descending, axis=-1) - self.total) / counts
        stay = (descending > shift).sum(axis=-1, keepdims=True)
        return np.maximum(lowered - np.take_along_axis(shift, stay - 1, axis=-1), 0.0)

    def diameter(self, dimension: int) -> float:
        self.check(dimension)
        return math.sqrt(2) * self.total

    def largest_norm(self, dimension: int) -> float:
        self.check(dimension)
        return self.total

    def middle(self, dimension: int) -> Floats:
        self.check(dimension)
        return np.full(dimension, self.total / dimension)


def _vector(**named: Any) -> Floats:
    ((name, _),) = named.items()
    array = finite(**named)
    if array.ndim > 1:
        raise InvalidArgument(f"{name} must be one number or a vector, got shape {array.shape}.")
    return array


def _fits(dimension: int, **named: Floats) -> None:
    for name, array in named.items():
        if array.ndim and len(array) != dimension:
            raise InvalidArgument(f"{name} must have one entry per parameter ({dimension}), got {len(array)}.")
