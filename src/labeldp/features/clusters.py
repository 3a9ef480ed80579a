"""k-means by Lloyd's rounds, on points that fit into memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labeldp.features.threads import in_threads

Floats = NDArray[np.float32]

AT_ONCE = 4_096
"""Points whose distances to all centroids are held at once."""


def k_means(points: Floats, *, clusters: int, rounds: int, seed: int | list[int]) -> Floats:
    """Return (clusters, d) centroids. They are seeded by k-means++; a cluster that loses its points gets one that lies far out.

    Where there are fewer different points than clusters, some centroids are equal.
    """
    centroids = spread_out(points, clusters, np.random.default_rng(seed))
    for _ in range(rounds):
        nearest, squares = assign(points, centroids)
        centroids = means(points, nearest, clusters)
        empty = np.flatnonzero(np.bincount(nearest, minlength=clusters) == 0)
        centroids[empty] = points[np.argsort(-squares, kind="stable")[: len(empty)]]
    return centroids


def spread_out(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return points drawn one after the other, each with odds of its squared distance to the nearest one drawn before."""
    drawn = [points[rng.integers(len(points))]]
    lengths = np.einsum("ij,ij->i", points, points)
    squares = np.full(len(points), np.inf, np.float32)
    for _ in range(count - 1):
        last = drawn[-1]
        np.minimum(squares, np.maximum(lengths - 2 * (points @ last) + last @ last, 0), out=squares)
        odds = np.cumsum(squares, dtype=np.float64)
        place = np.searchsorted(odds, rng.random() * odds[-1], side="right")
        drawn.append(points[min(place, len(points) - 1)])
    return np.stack(drawn)


def assign(points: Floats, centroids: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return each point's nearest centroid (of equals, the first), and the squared distance to it."""
    nearest = np.empty(len(points), np.int64)
    squares = np.empty(len(points), np.float32)
    half = np.einsum("ij,ij->i", centroids, centroids) / 2

    def fill(start: int) -> None:
        rows = slice(start, start + AT_ONCE)
        closeness = points[rows] @ centroids.T - half
        nearest[rows] = closeness.argmax(axis=1)
        away = points[rows] - centroids[nearest[rows]]
        squares[rows] = np.einsum("ij,ij->i", away, away)

    in_threads(fill, range(0, len(points), AT_ONCE))
    return nearest, squares


def means(points: Floats, nearest: NDArray[np.int64], clusters: int) -> Floats:
    """Return the mean of each cluster's points; zeros where it has none."""
    counts = np.bincount(nearest, minlength=clusters)
    sums = [np.bincount(nearest, weights=column, minlength=clusters) for column in points.T]
    return (np.stack(sums, axis=1) / np.maximum(counts, 1)[:, None]).astype(np.float32)
