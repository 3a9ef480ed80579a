"""A linear model of ratings with Gaussian priors, told of sums of ratings alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

Floats = NDArray[np.floating[Any]]
Index = NDArray[np.int64]

VARIANCES = {
    "mean": 1.0,
    "bias": 0.1,
    "shared": 5e-4,
    "cross": 2.5e-6,
    "slope of users": 0.002,
    "slope of items": 0.001,
}
"""Of the numbers' priors, in squared stars."""
SLOPES = 8
STEPS = 120
CLOSE = 1e-6


class Numbers(NamedTuple):
    """What is learned. A row with user u and item i has the expected rating

        mean + bias_u + bias_i + shared . z_u + shared' . z_i + z_u cross z_i + slope_u . z_i + slope_i . z_u,

    where slopes go with the first coordinates alone. Pairs hold the users' and the items'.
    """

    mean: Floats
    bias: tuple[Floats, Floats]
    shared: tuple[Floats, Floats]
    cross: Floats
    slope: tuple[Floats, Floats]

    def flat(self) -> Floats:
        return np.concatenate([part.ravel() for part in _parts(self)])

    def like(self, flat: Floats) -> Numbers:
        """Return a vector in this one's shape."""
        ends = np.cumsum([part.size for part in _parts(self)])
        mean, *rest = (
            part.reshape(own.shape) for part, own in zip(np.split(flat, ends[:-1]), _parts(self), strict=True)
        )
        return Numbers(mean, (rest[0], rest[1]), (rest[2], rest[3]), rest[4], (rest[5], rest[6]))


@dataclass(frozen=True)
class Pieces:
    """The pieces of one round, as a linear map from numbers to their sums.

    `owners` and `members` say which things of either side are in a piece, and how often; `own` are the owner's coordinates,
    `others` the members', added up.
    """

    side: int
    owners: csr_matrix
    members: csr_matrix
    sizes: Floats
    own: Floats
    others: Floats

    @classmethod
    def of(cls, groups: Index, pairs: Index, side: int, coordinates: tuple[Floats, Floats]) -> Pieces:
        count, other = int(groups.max()) + 1, 1 - side
        first = np.zeros(count, dtype=np.int64)
        first[groups] = pairs[:, side]
        shapes = [(count, len(each)) for each in coordinates]
        owners = csr_matrix((np.ones(count), (np.arange(count), first)), shape=shapes[side])
        members = csr_matrix((np.ones(len(groups)), (groups, pairs[:, other])), shape=shapes[other])
        sizes = np.bincount(groups).astype(np.float64)
        return cls(side, owners, members, sizes, coordinates[side][first], members @ coordinates[other])

    def squared(self) -> Pieces:
        """Return the map whose entries are this one's, squared."""
        squares = self.sizes**2, self.own**2, self.others**2
        return Pieces(self.side, self.owners, self.members.power(2), *squares)

    def sums(self, numbers: Numbers) -> Floats:
        side, other = self.side, 1 - self.side
        cross = numbers.cross if side == 0 else numbers.cross.T
        slope, turned = numbers.slope[side], numbers.slope[other]
        level = numbers.mean[0] + self.owners @ numbers.bias[side] + self.own @ numbers.shared[side]
        found = self.sizes * level + self.members @ numbers.bias[other] + self.others @ numbers.shared[other]
        found += ((self.own @ cross) * self.others).sum(axis=1)
        found += ((self.owners @ slope) * self.others[:, : slope.shape[1]]).sum(axis=1)
        return found + ((self.members @ turned) * self.own[:, : turned.shape[1]]).sum(axis=1)  # type: ignore[no-any-return]

    def spread(self, weights: Floats) -> Numbers:
        """Return the transpose's image of one weight per piece."""
        weighted, k = weights * self.sizes, SLOPES
        bias = self.owners.T @ weighted, self.members.T @ weights
        shared = self.own.T @ weighted, self.others.T @ weights
        cross = self.own.T @ (weights[:, None] * self.others)
        slope = (
            self.owners.T @ (weights[:, None] * self.others[:, :k]),
            self.members.T @ (weights[:, None] * self.own[:, :k]),
        )
        if self.side == 1:
            bias, shared, slope, cross = bias[::-1], shared[::-1], slope[::-1], cross.T
        return Numbers(np.array([weighted.sum()]), bias, shared, cross, slope)


def explained(
    pieces: Sequence[Pieces], sums: Sequence[Floats], variances: Sequence[Floats], coordinates: tuple[Floats, Floats]
) -> Numbers:
    """Return the numbers that are likeliest under the priors, given noisy sums over pieces and the variances of those.

    Unknowns are in units of their prior's standard deviation, so that the prior's part of the system is the identity.
    """
    layout = _deviations(coordinates)
    units = layout.flat()

    def transposed(maps: Sequence[Pieces], weights: Sequence[Floats]) -> Floats:
        return np.sum([each.spread(weight).flat() for each, weight in zip(maps, weights, strict=True)], axis=0)  # type: ignore[no-any-return]

    def system(unknown: Floats) -> Floats:
        numbers = layout.like(units * unknown)
        told = [each.sums(numbers) / variance for each, variance in zip(pieces, variances, strict=True)]
        return unknown + units * transposed(pieces, told)

    diagonal = 1 + units**2 * transposed([each.squared() for each in pieces], [1 / each for each in variances])
    wanted = units * transposed(pieces, [told / variance for told, variance in zip(sums, variances, strict=True)])
    return layout.like(units * _solved(system, wanted, diagonal))


def _deviations(coordinates: tuple[Floats, Floats]) -> Numbers:
    """Return the standard deviation of every number's prior."""
    (n_users, width), n_items = coordinates[0].shape, len(coordinates[1])
    of = {name: np.sqrt(variance) for name, variance in VARIANCES.items()}
    return Numbers(
        np.full(1, of["mean"]),
        (np.full(n_users, of["bias"]), np.full(n_items, of["bias"])),
        (np.full(width, of["shared"]), np.full(width, of["shared"])),
        np.full((width, width), of["cross"]),
        (np.full((n_users, SLOPES), of["slope of users"]), np.full((n_items, SLOPES), of["slope of items"])),
    )


def _solved(system: Callable[[Floats], Floats], wanted: Floats, diagonal: Floats) -> Floats:
    """Solve a symmetric positive system by conjugate gradients, with its diagonal for a guide."""
    found, left = np.zeros_like(wanted), wanted.copy()
    step = left / diagonal
    size = first = left @ step
    for _ in range(STEPS):
        if size <= CLOSE**2 * first:
            break
        image = system(step)
        length = size / (step @ image)
        found, left = found + length * step, left - length * image
        guided = left / diagonal
        before, size = size, left @ guided
        step = guided + size / before * step
    return found


def _parts(numbers: Numbers) -> list[Floats]:
    return [numbers.mean, *numbers.bias, *numbers.shared, numbers.cross, *numbers.slope]
