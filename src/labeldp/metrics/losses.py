"""Mean losses of the true labels, estimated without bias: log loss and root mean squared error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labeldp.errors import InvalidArgument
from labeldp.metrics.estimate import Estimate, Root, mean_of
from labeldp.metrics.hold_out import (
    Floats,
    check_column,
    check_hold_out,
    check_probabilities,
    debiased,
    noise_variance,
)
from labeldp.vault import Release

LARGEST = 1e70  # the fourth power is still a double


def log_loss(release: Release, probabilities: Any) -> Estimate:
    """Estimate the mean of -log p(true label), without bias.

    As in scikit-learn, probabilities are first clipped to [u, 1 - u], where u is the machine precision of their type: 2.2e-16
    for doubles, 1.2e-7 for single precision. Where a model is sure, undoing the noise multiplies losses of up to 36 per row:
    `log_likelihood` is the quieter figure to choose models by.

    Parameters
    ----------
    release : hold-out rows, released by RandomizedResponse.
    probabilities : one row of K probabilities per row of the release, of a model that was not trained on them.

    >>> vault = ldp.LabelVault(np.arange(500) % 2, classes=2, budget="1")
    >>> found = log_loss(vault.release(ldp.RandomizedResponse("1")), np.full((500, 2), 0.5))
    >>> f"{found.value:.6f}"  # a coin's loss, whatever the labels are
    '0.693147'
    """
    check_hold_out(release)
    table = check_probabilities(release, probabilities)
    smallest = np.finfo(table.dtype).eps
    return _mean_loss(release, -np.log(np.clip(table, smallest, 1 - smallest).astype(np.float64)))


def rmse(release: Release, predictions: Any) -> Estimate:
    """Estimate the root of the mean squared error of predicted numbers.

    The mean squared error is estimated without bias. Its root is taken as 0 where noise makes it negative, and has then no
    standard error, but the interval is right: the root of the interval of the mean squared error.

    Parameters
    ----------
    release : hold-out rows, released by RandomizedResponse; the declared classes are numbers, such as ratings.
    predictions : one number per row of the release, of a model that was not trained on them.

    >>> vault = ldp.LabelVault(1 + np.arange(500) % 5, classes=[1, 2, 3, 4, 5], budget="2")
    >>> hold_out = vault.release(ldp.RandomizedResponse("2"))
    >>> low, high = rmse(hold_out, np.full(500, 3.0)).interval()
    >>> 0 <= low < high
    True
    """
    if isinstance(release, Release) and release.outputs is not None:
        raise InvalidArgument(
            "rmse needs a hold-out released by RandomizedResponse. Reports of UnbiasedResponse have the right mean, but not "
            "the right square: it is too large by the variance of the noise, which depends on the label."
        )
    check_hold_out(release)
    values = _class_values(release)
    predicted = check_column(release, predictions=predictions).astype(np.float64)
    if np.abs(predicted).max() > LARGEST:
        raise InvalidArgument(f"predictions must lie between -{LARGEST:g} and {LARGEST:g}.")
    square = _mean_loss(release, (values - predicted[:, None]) ** 2)
    root = math.sqrt(max(square.value, 0.0))
    return Estimate(root, square.standard_error / (2 * root) if root > 0 else math.nan, square.rows, Root(square))


def _mean_loss(release: Release, losses: Floats) -> Estimate:
    least = noise_variance(release, losses)
    return mean_of(debiased(release, losses), low=0.0, high=math.inf, least_variance=least)


def _class_values(release: Release) -> Floats:
    if not {type(name) for name in release.classes} <= {int, float}:
        raise InvalidArgument("rmse needs classes that are numbers, such as classes=[1, 2, 3, 4, 5] for ratings.")
    if max(map(abs, release.classes)) > LARGEST:
        raise InvalidArgument(f"rmse needs classes between -{LARGEST:g} and {LARGEST:g}.")
    return np.array(release.classes, dtype=np.float64)
