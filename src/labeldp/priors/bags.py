"""The bag likelihood: what noisy counts of a group say about each of its rows, given what a model predicts for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.priors.shares import noise_variance, over_sum
from labeldp.vault import HistogramRelease
from labeldp.vault.aggregates import project_on_totals

Floats = NDArray[np.float64]

FITTING_ROUNDS = 10
LEAST = 1e-12


def bag_posterior(predicted: NDArray[np.floating], histogram: HistogramRelease) -> Floats:
    """Return the beliefs about each of the histogram's rows, given its predicted probabilities and the noisy counts.

    A model that predicts p_i for the rows of a group expects sum p_i of each class in it, give or take a variance of
    sum p_i (1 - p_i). The counts say something else, give or take the noise. The expected counts given both are between the
    two, in proportion to the variances; the beliefs are the predictions, times one factor per group and class, that add up
    to these counts (iterative proportional fitting). That is close to the E-step of EM on the likelihood of the counts where
    groups are large, with normal laws for the sum of labels and for the noise; of two rows it is a rough one.

    Parameters
    ----------
    predicted : (n, K) probabilities, one row per row of the histogram; likelihoods of reports on the rows may be multiplied
        into them first. A row of zeros says nothing.
    """
    beliefs = checks.array(predicted=predicted)
    counts, groups = histogram.counts, histogram.groups
    if beliefs.shape != (len(groups), counts.shape[1]):
        raise InvalidArgument(
            f"predicted must have shape ({len(groups)}, {counts.shape[1]}), one row per row of the histogram; "
            f"got {beliefs.shape}."
        )
    if beliefs.dtype.kind not in "fiu" or not np.isfinite(beliefs).all() or beliefs.min(initial=0) < 0:
        raise InvalidArgument("predicted must be finite numbers, and none of them negative.")
    beliefs = over_sum(beliefs.astype(np.float64))
    add_up = _Sums(groups, len(counts))
    expected, variance = add_up(beliefs), add_up(beliefs * (1 - beliefs))
    noise = noise_variance(histogram) * (1 - 1 / counts.shape[1])  # what is left of it once counts add up as they must
    trust = variance / (variance + noise)
    counts_given_both = project_on_totals(expected + trust * (counts - expected), histogram.totals)
    for _ in range(FITTING_ROUNDS):
        factors = counts_given_both / np.maximum(add_up(beliefs), LEAST)
        beliefs = over_sum(np.maximum(beliefs * factors[groups], LEAST))
    return beliefs


class _Sums:
    """Adds up rows of one group, for all groups at once."""

    def __init__(self, groups: NDArray[np.int64], n_groups: int) -> None:
        self.order = np.argsort(groups, kind="stable")
        ordered = groups[self.order]
        self.starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(groups) else np.empty(0, np.int64)
        self.present, self.n_groups = ordered[self.starts], n_groups

    def __call__(self, table: Floats) -> Floats:
        sums = np.zeros((self.n_groups, table.shape[1]))
        if len(self.starts):
            sums[self.present] = np.add.reduceat(table[self.order], self.starts, axis=0)
        return sums
