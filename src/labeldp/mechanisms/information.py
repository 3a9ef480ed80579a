"""How much a report tells: its mutual information with the label, and the most that any epsilon-DP report could carry.

All figures are in nats, under the prior that the label is believed to follow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.mechanisms.channel import Response
from labeldp.mechanisms.groups import NO_GROUP, rows_per_chunk

Floats = NDArray[np.float64]

LARGEST_PROGRAM = 12
"""The linear program has 2^K columns; beyond this many classes only a uniform prior has a (closed) answer here."""


def report_information(response: Response, priors: NDArray[Any]) -> Floats:
    """Return the mutual information between label and report for each row of priors."""
    information = np.empty(response.n_rows)
    step = rows_per_chunk(response.n_classes)
    for start in range(0, response.n_rows, step):
        index = np.arange(start, min(start + step, response.n_rows))
        information[index] = _information(response, index, np.asarray(priors[index], dtype=np.float64))
    return information


def _information(response: Response, index: NDArray[np.int64], priors: Floats) -> Floats:
    sizes = response.groups.sizes[index].astype(np.float64)
    groups = response.groups.assignment(index)
    masses = _group_masses(groups, priors / priors.sum(axis=1, keepdims=True), int(sizes.max()))
    left_out = np.maximum(1 - masses.sum(axis=1), 0.0)
    total = response.odds.excess + sizes * response.odds.other
    tells, blind = response.odds.excess / total, response.odds.other / total
    reported = masses * tells[:, None] + ((1 - left_out) * blind + left_out / sizes)[:, None]
    reported[np.arange(masses.shape[1]) >= sizes[:, None]] = 0.0
    keeps = tells + blind
    given_label = -_plogp(keeps) - (sizes - 1) * _plogp(blind)
    return -_plogp(reported).sum(axis=1) - (1 - left_out) * given_label - left_out * np.log(sizes)


def _group_masses(groups: NDArray[Any], priors: Floats, most: int) -> Floats:
    masses = np.zeros((len(groups), most))
    row, label = np.nonzero(groups != NO_GROUP)
    np.add.at(masses, (row, groups[row, label]), priors[row, label])
    return masses


def chance_of_true_label(response: Response, priors: NDArray[Any]) -> Floats:
    """Return, for each row of priors, how likely the report is the true label (or a group that holds it)."""
    weight = np.zeros(response.n_rows)
    step = rows_per_chunk(response.n_classes)
    for start in range(0, response.n_rows, step):
        index = np.arange(start, min(start + step, response.n_rows))
        inside = response.groups.assignment(index) != NO_GROUP
        weight[index] = (priors[index] * inside).sum(axis=1) / priors[index].sum(axis=1)
    total = response.odds.excess + response.groups.sizes.astype(np.float64) * response.odds.other
    return weight * response.odds.keep / total


def information_limit(prior: Any, epsilon: float) -> float:
    """Return the most mutual information that any epsilon-DP report of a label with this prior can carry.

    Every epsilon-DP channel is a mixture of staircase patterns, in which an output multiplies the labels of some subset by
    e^epsilon (Kairouz, Oh, Viswanath 2016); information is linear in the mixture, so the best one is a linear program over
    subsets. A uniform prior leaves only the size of the subset to choose.
    """
    p = np.asarray(prior, dtype=np.float64)
    if np.allclose(p, p[0]):
        return uniform_limit(len(p), epsilon)
    if len(p) > LARGEST_PROGRAM:
        raise InvalidArgument(f"the limit for more than {LARGEST_PROGRAM} classes is known for a uniform prior only.")
    return _program_limit(p / p.sum(), epsilon)


def uniform_limit(n_classes: int, epsilon: float) -> float:
    """Return the limit for a uniform prior: report a random subset of the best size."""
    ratio = math.exp(epsilon)
    sizes = np.arange(1, n_classes, dtype=np.float64)
    total = sizes * ratio + n_classes - sizes
    inside = sizes * ratio / total
    return float((inside * np.log(ratio * n_classes / total) + (1 - inside) * np.log(n_classes / total)).max())


def _program_limit(p: Floats, epsilon: float) -> float:
    from scipy.optimize import linprog

    n_classes = len(p)
    subsets = (np.arange(1, 2**n_classes - 1)[:, None] >> np.arange(n_classes)) & 1
    patterns = np.where(subsets == 1, math.exp(epsilon), 1.0)
    mean = patterns @ p
    gains = _plogp(patterns) @ p - _plogp(mean)
    scale = gains.max()  # the solver's tolerance is absolute
    if scale <= 0:  # the label is known
        return 0.0
    solution = linprog(-gains / scale, A_eq=patterns.T / math.exp(epsilon), b_eq=np.full(n_classes, math.exp(-epsilon)))
    if solution.status != 0:
        raise ArithmeticError("the linear program of the information limit was not solved")
    return float(-solution.fun * scale)


def _plogp(p: Any) -> Any:
    return p * np.log(np.where(p > 0, p, 1.0))
