"""From noisy counts to the shares of the classes in each group: three ways, all of them free."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.priors.clusters import Clusters
from labeldp.vault import HistogramRelease
from labeldp.vault.aggregates import project_on_totals

Floats = NDArray[np.float64]

NEIGHBOURS = 3


def normalised(histogram: HistogramRelease) -> Floats:
    """Return max(H, 0) over its sum, as in Algorithm 4 of the paper; equal shares where no count is positive.

    >>> paper_shares(np.array([[3, -1, 1], [-2, 0, -1]])).tolist()
    [[0.75, 0.0, 0.25], [0.3333333333333333, 0.3333333333333333, 0.3333333333333333]]
    """
    return paper_shares(histogram.counts)


def projected(histogram: HistogramRelease) -> Floats:
    """Return the nearest counts that add up to each group's public size, over that size; equal shares in an empty group."""
    return over_sum(histogram.projected())


def smoothed(histogram: HistogramRelease, clusters: Clusters, *, neighbours: int = NEIGHBOURS) -> Floats:
    """Return shares to which each cluster's neighbours add as many rows as the noise of one count is worth.

    A cluster of public size n keeps n / (n + s) of its own say, s the noise's standard deviation; the rest is its nearest
    neighbours' common share. So small clusters lean on them, an empty one has nothing else, and large ones hardly move.
    """
    if len(histogram.totals) != clusters.count:
        raise InvalidArgument(
            f"the histogram must be of these clusters ({clusters.count}); it is of {len(histogram.totals)} groups."
        )
    near = clusters.neighbours(neighbours)
    if near.shape[1] == 0:
        return projected(histogram)
    counts, totals = histogram.counts.astype(np.float64), histogram.totals.astype(np.float64)
    around = over_sum(project_on_totals(counts[near].sum(axis=1), totals[near].sum(axis=1)))
    return over_sum(histogram.projected() + np.sqrt(noise_variance(histogram)) * around)


def noise_variance(histogram: HistogramRelease) -> float:
    """Return the variance of the noise of one count: 2 a / (1 - a)^2 with a = exp(-epsilon / 2).

    For small epsilon that is 8 / epsilon^2.
    """
    half = float(histogram.receipt.epsilon) / 2
    return float(0.5 / np.sinh(half / 2) ** 2)


def paper_shares(counts: NDArray[np.int64]) -> Floats:
    return over_sum(np.maximum(counts, 0).astype(np.float64))


def over_sum(counts: Floats) -> Floats:
    """Return each row over its sum; equal shares where that is 0."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, 1 / counts.shape[1]), where=totals > 0)
