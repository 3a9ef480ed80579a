"""How sure a model may be of itself, read off the reports of rows that it was not trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

Table = NDArray[np.floating[Any]]

SHARPNESS_VARIANCE, OFFSET_VARIANCE = 4.0, 0.1
"""Of the Gaussian priors on log a and on b: they decide where the reports say next to nothing."""


def calibrated(probabilities: Table, likelihood: Table, weights: Table) -> Table:
    """Return softmax(a log p + b) for the a > 0 and b under which the reports are most likely, given Gaussian priors.

    A model that was fitted to noisy labels is about as much too shy as the noise is strong; one that has learned nothing is
    too sure. Both is mended by 1 + K numbers.
    """
    logs, log_likelihood = np.log(probabilities), np.log(np.maximum(likelihood, np.finfo(float).tiny))
    rows = len(logs)

    def cost(z: Table) -> tuple[float, Table]:
        sharpness = np.exp(z[0])
        scores = log_softmax(sharpness * logs + z[1:], axis=1)
        joint = scores + log_likelihood
        evidence = logsumexp(joint, axis=1)
        pull = (np.exp(scores) - np.exp(joint - evidence[:, None])) * weights[:, None]
        prior = z[0] ** 2 / SHARPNESS_VARIANCE + (z[1:] ** 2).sum() / OFFSET_VARIANCE
        slope = np.append((pull * logs).sum() * sharpness + z[0] / SHARPNESS_VARIANCE, pull.sum(axis=0))
        slope[1:] += z[1:] / OFFSET_VARIANCE
        return float(prior / 2 - weights @ evidence) / rows, slope / rows

    bounds = [(-4.0, 5.0)] + [(-8.0, 8.0)] * logs.shape[1]
    z = minimize(cost, np.zeros(1 + logs.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.exp(log_softmax(np.exp(z[0]) * logs + z[1:], axis=1))
