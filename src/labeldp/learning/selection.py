"""Choosing between learners on noisy hold-outs: free, because nothing more is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp.errors import InvalidArgument
from labeldp.learning.learner import Examples, Filtered, Learner
from labeldp.metrics.accuracy import Estimate, accuracy, check_hold_out, log_likelihood
from labeldp.vault import Release


@dataclass(frozen=True)
class Choice:
    """The chosen learner, fitted, and every candidate's figures on the hold-out."""

    name: str
    learner: Learner
    accuracy: dict[str, Estimate]
    log_likelihood: dict[str, Estimate]


def select(
    candidates: Mapping[str, Learner], X: Any, releases: Examples | Sequence[Examples], hold_out: Release
) -> Choice:
    """Fit every candidate to the releases and return the one under which the hold-out's reports are most likely.

    Privacy
    -------
    Free: only what was released is read. The hold-out must be plain randomized response on rows that no release covers.
    """
    check_hold_out(hold_out)
    given = [releases] if isinstance(releases, Examples) else list(releases)
    for each in given:
        rows = each.release.rows if isinstance(each, Filtered) else each.rows
        if np.isin(hold_out.rows, rows).any():
            raise InvalidArgument(
                "the hold-out's rows must be in none of the releases that the candidates are trained on."
            )
    if not candidates:
        raise InvalidArgument("candidates must name at least one learner.")
    likelihoods, accuracies = {}, {}
    for name, learner in candidates.items():
        predicted = learner.fit(X, given).predict_proba(X[hold_out.rows])
        likelihoods[name] = log_likelihood(hold_out, predicted)
        accuracies[name] = accuracy(hold_out, predicted)
    best = max(likelihoods, key=lambda name: likelihoods[name].value)
    return Choice(best, candidates[best], accuracies, likelihoods)
