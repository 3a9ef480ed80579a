"""How often the most likely class is the true one, and how likely a model makes the hold-out's reports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labeldp.metrics.estimate import Estimate, TwoValued, error_and_skewness, mean_of
from labeldp.metrics.hold_out import check_hold_out, check_probabilities, weights
from labeldp.vault import Release


def accuracy(release: Release, probabilities: Any) -> Estimate:
    """Estimate how often the most likely class is the true one, without bias.

    Under randomized response a right prediction is reported with chance p and a wrong one with chance q, whatever the label,
    so (1[report = prediction] - q) / (p - q) has the chance of being right as its mean. The interval is Wilson's, on the
    share of reports that agree with the prediction: it stays honest where all of them do.

    Parameters
    ----------
    release : hold-out rows, released by RandomizedResponse.
    probabilities : one row of K probabilities per row of the release, of a model that was not trained on them.

    >>> vault = ldp.LabelVault(np.arange(500) % 2, classes=2, budget="1")
    >>> hold_out = vault.release(ldp.RandomizedResponse("1"))
    >>> low, high = accuracy(hold_out, np.full((500, 2), 0.5)).interval()
    >>> 0 <= low < high <= 1
    True
    """
    check_hold_out(release)
    table = check_probabilities(release, probabilities)
    yes, no = weights(release)
    terms = np.where(release.label_numbers == table.argmax(axis=1), yes, no)
    standard_error, _ = error_and_skewness(terms)
    return Estimate(float(terms.mean()), standard_error, len(terms), TwoValued(no, yes))


def log_likelihood(release: Release, probabilities: Any) -> Estimate:
    """Return the mean log probability that the model gives to the hold-out's reports: the quieter figure to choose by."""
    check_hold_out(release)
    table = check_probabilities(release, probabilities)
    return mean_of(np.log((table * release.likelihood()).sum(axis=1)), low=-math.inf, high=0.0)
