"""How far a model is to be believed, read off the reports of rows that it was not trained on. One number each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import softmax

Table = NDArray[np.floating[Any]]

FLOOR = 1e-3
"""No label gets less from a stretch that overshoots."""
PRIOR_VARIANCE = 4.0
"""Of a Gaussian prior on the logarithm: it decides where the reports say next to nothing."""


@dataclass(frozen=True)
class Stretch:
    """Moves probabilities away from uniform: 1/K + times (p - 1/K), and not below a floor.

    What noise does to labels it does to a model that is fitted to them: it draws its predictions towards uniform, all by the
    same factor.
    """

    times: float

    def __call__(self, probabilities: Table) -> Table:
        uniform = 1 / probabilities.shape[1]
        moved = np.maximum(uniform + self.times * (probabilities - uniform), FLOOR)
        return moved / moved.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Temper:
    """Makes probabilities less sure of themselves: p^power, normalised, with a power of at most 1."""

    power: float

    def __call__(self, probabilities: Table) -> Table:
        return softmax(self.power * np.log(probabilities), axis=1)


Trust = Stretch | Temper


def stretch_of(probabilities: Table, likelihood: Table, weights: Table) -> Stretch:
    """Return the stretch under which the reports are most likely: for a model of the reports themselves."""
    return Stretch(_likeliest(Stretch, (-3.0, 7.0), probabilities, likelihood, weights))


def temper_of(probabilities: Table, likelihood: Table, weights: Table) -> Temper:
    """Return the temper under which the reports are most likely: for a model of beliefs, which have the reports in them.

    By way of the beliefs about other rows a row's own report is in what is predicted of it, a little: predictions may then be
    found too sure, as those of a model that counts correlated features twice, but never too shy.
    """
    return Temper(_likeliest(Temper, (-4.0, 0.0), probabilities, likelihood, weights))


def _likeliest(
    kind: Callable[[float], Trust],
    bounds: tuple[float, float],
    probabilities: Table,
    likelihood: Table,
    weights: Table,
) -> float:
    def cost(log: float) -> float:
        evidence = np.log((kind(float(np.exp(log)))(probabilities) * likelihood).sum(axis=1))
        return float(log**2 / PRIOR_VARIANCE / 2 - weights @ evidence) / len(evidence)

    found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x
    nearest = min((found, *bounds), key=cost)  # a bounded search stops just short of its bounds
    return float(np.exp(nearest))
