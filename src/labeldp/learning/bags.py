"""Learning from counts of groups by their likelihood, with any learner: EM, whose E-step
`labeldp.priors.bag_posterior` approximates.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.learning import evidence
from labeldp.learning.learner import Beliefs, Learner
from labeldp.priors import bag_posterior
from labeldp.vault import HistogramRelease, Release

L = TypeVar("L", bound=Learner)


def fit_bags(
    learner: L, X: Any, counts: HistogramRelease, reports: Release | Sequence[Release] = (), *, rounds: int = 3
) -> L:
    """Train on the likelihood of noisy counts, and of reports on the same rows, if there are any.

    The first model learns the shares of each group (times the likelihood of reports). In each round, what its predictions
    and the counts together say of each row is what the next model, which starts from it, learns.

    Parameters
    ----------
    learner : any; it is copied. The fitted copy is returned.
    rounds : of EM. None at all is training on the shares.

    Privacy
    -------
    Free: only what was released is read.
    """
    rounds = checks.integer(rounds=rounds, at_least=0)
    local = list(reports) if isinstance(reports, Sequence) else [reports]
    if not isinstance(counts, HistogramRelease) or not all(isinstance(each, Release) for each in local):
        raise InvalidArgument(
            "counts must be a histogram of a vault, and reports its releases; a learner takes no labels."
        )
    _likelihood(counts, local)  # which raises, before any training, where reports do not fit
    model = copy.deepcopy(learner).fit(X, evidence.posterior(local, [evidence.beliefs_of(counts)]))
    for _ in range(rounds):
        believed = bag_beliefs(model.predict_proba(X[counts.rows]), counts, local)
        model = copy.deepcopy(learner).fit(X, believed, start=model)
    return model


def bag_beliefs(predicted: NDArray[np.floating[Any]], counts: HistogramRelease, local: Sequence[Release]) -> Beliefs:
    """Return what predictions, noisy counts and reports say of each counted row, together."""
    shares = bag_posterior(predicted * _likelihood(counts, local), counts)
    return Beliefs(counts.rows, shares, [counts, *local])


def _likelihood(counts: HistogramRelease, local: Sequence[Release]) -> np.ndarray:
    """Return P(reports | label) up to a factor, for each row of the counts; 1 where nothing was reported."""
    likelihood = np.ones((len(counts.rows), len(counts.classes)))
    if local:
        rows, logs = evidence.log_likelihoods(local)
        if not np.isin(rows, counts.rows).all():
            raise InvalidArgument("reports must be on rows that were counted.")
        likelihood[np.searchsorted(counts.rows, rows)] = np.exp(logs - logs.max(axis=1, keepdims=True))
    return likelihood
