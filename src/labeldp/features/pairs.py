"""Coordinates of users and items from who rated what: public pairs, of which no rating is read.

Which films somebody chose tells a good deal of which ones he will like, and with label differential privacy it costs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

Floats = NDArray[np.float32]

DAMPING = 10.0
"""Added to how often a user or an item occurs, so that those of few pairs do not stand out."""
SPARE = 16
"""Directions that are followed besides those that are wanted: they make the wanted ones exact sooner."""
ROUNDS = 12


def pair_coordinates(pairs: NDArray[np.int64], sizes: tuple[int, int], dimensions: int) -> tuple[Floats, Floats]:
    """Return one row of numbers for each user and each item: `dimensions` coordinates, then log count and its square.

    The coordinates are the leading singular vectors of the matrix of pairs, each entry over the roots of its user's and its
    item's count, times the roots of the singular values; a row has mean square 1 on average. Where there are fewer users or
    items than dimensions, the last coordinates are 0.

    Parameters
    ----------
    pairs : (n, 2) numbers of users and items, from 0. A pair that occurs twice counts twice.
    sizes : how many users and items there are.

    >>> users, items = pair_coordinates(np.array([[0, 0], [0, 1], [1, 1]]), (2, 3), dimensions=4)
    >>> users.shape, items.shape
    ((2, 6), (3, 6))
    """
    counts = [np.bincount(pairs[:, side], minlength=sizes[side]) for side in (0, 1)]
    weights = [1 / np.sqrt(count + DAMPING) for count in counts]
    values = weights[0][pairs[:, 0]] * weights[1][pairs[:, 1]]
    left, strengths, right = _leading(csr_matrix((values, (pairs[:, 0], pairs[:, 1])), shape=sizes), dimensions)
    found = (left * np.sqrt(strengths), right * np.sqrt(strengths))
    users, items = (_described(side, count, dimensions) for side, count in zip(found, counts, strict=True))
    return users, items


def _leading(matrix: csr_matrix, wanted: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the leading singular vectors and values, by subspace iteration from a fixed start."""
    count = min(wanted + SPARE, *matrix.shape)
    basis = np.random.default_rng(0).standard_normal((matrix.shape[1], count))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(matrix.T @ (matrix @ basis))[0]
    left, strengths, turn = np.linalg.svd(matrix @ basis, full_matrices=False)
    return left[:, :wanted], strengths[:wanted], (basis @ turn.T)[:, :wanted]


def _described(found: NDArray[np.float64], counts: NDArray[np.int64], dimensions: int) -> Floats:
    """Return coordinates on one scale, with as many columns as are wanted, and what the counts tell."""
    seen = counts > 0
    length = np.linalg.norm(found[seen], axis=1).mean() if seen.any() else 0.0
    logs = np.log1p(counts)
    logs = (logs - logs[seen].mean()) / max(logs[seen].std(), 1e-6) if seen.any() else np.zeros(len(counts))
    described = np.zeros((len(counts), dimensions + 2), dtype=np.float32)
    described[:, : found.shape[1]] = found * (np.sqrt(dimensions) / max(length, 1e-12))
    described[:, -2], described[:, -1] = logs, logs**2 - 1
    return described
