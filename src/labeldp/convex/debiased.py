"""The debiased loss of Appendix G on released reports, and the parameters that minimise it.

With k candidates and p = 1 / (e^epsilon + k - 1), a row with reported label r has the debiased loss
(l(w, (x, r)) - p sum over candidates y of l(w, (x, y))) / (1 - k p), whose mean over reports is l(w, (x, true label)) wherever
the true label is a candidate. Some losses enter with a minus sign: a debiased loss can be negative, and where the loss has
no upper limit it has no lower one. The parameter set limits both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp import checks
from labeldp.convex.estimator import of_release, weights
from labeldp.convex.given import as_features, member
from labeldp.convex.losses import Loss
from labeldp.convex.numbers import CELLS, Floats, positive, read_only
from labeldp.convex.sets import ParameterSet
from labeldp.convex.watched import check_rows
from labeldp.errors import InvalidArgument
from labeldp.vault import Release


class DebiasedRisk:
    """The mean debiased loss of released rows, as a function of the parameters.

    Parameters
    ----------
    X : public features, one row per row of the vault.
    release : by RandomizedResponse, RRTopK or RRWithPrior.
    loss : of this room; a `GivenLoss` needs its values.
    parameter_set : where the parameters lie, which limits the loss.

    >>> from labeldp import convex
    >>> vault = ldp.LabelVault([0, 1] * 50, classes=2, budget="1")
    >>> release = vault.release(ldp.RandomizedResponse("1"))
    >>> risk = convex.DebiasedRisk(np.ones((100, 1)), release, convex.Logistic(norm_bound=1.0), convex.Ball(radius=1.0))
    >>> round(risk.value(np.zeros(1)), 4), round(risk.lipschitz, 4)  # log 2, (e + 1) / (e - 1)
    (0.6931, 2.164)
    """

    def __init__(self, X: Any, release: Release, loss: Loss, parameter_set: ParameterSet) -> None:
        self._estimator = of_release(release)
        given = as_features(X)
        if not isinstance(loss, Loss) or loss.n_classes != len(release.classes):
            raise InvalidArgument(
                f"loss must be of labeldp.convex, for the {len(release.classes)} classes of the release."
            )
        if len(given) <= release.rows.max():
            raise InvalidArgument(
                f"X must have one row per row of the vault; it has {len(given)}, too few for the release."
            )
        self._X = read_only(given[release.rows].astype(np.float64, copy=False))
        self.loss, self.parameter_set, self.dimension = loss, parameter_set, loss.dimension(self._X)
        check_rows(loss, given, release.rows, read_only(parameter_set.middle(self.dimension)))
        self._weights = weights(release, None)

    def terms(self, w: Floats) -> Floats:
        """Return the debiased loss of every row of the release."""
        return np.concatenate([np.vecdot(c, self.loss.values(read_only(w), x)) for x, c in self._parts()])

    def value(self, w: Floats) -> float:
        return float(self.terms(w).mean())

    def gradient(self, w: Floats) -> Floats:
        sums = [len(x) * self.loss.gradient(read_only(w), x, c) for x, c in self._parts()]
        return np.sum(sums, axis=0) / len(self._X)

    @property
    def lipschitz(self) -> float:
        """The loss's constant times (e^epsilon + 2k - 3) / (e^epsilon - 1), which is (1 + (k - 2) p) / (1 - k p).

        Lemma 19 has 1 + k p in the numerator: valid, and larger.
        """
        return self._estimator.stretch * self.loss.lipschitz(self.parameter_set, self.dimension)

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value that any row's debiased loss can take on the set."""
        low, high = self.loss.range(self.parameter_set, self.dimension)
        beyond = float(self._estimator.own - 1) * (
            high - low
        )  # (k - 1) p / (1 - k p): what the others take away at most
        return low - beyond, high + beyond

    @property
    def is_convex(self) -> bool:
        """Whether the debiased risk is surely convex; its mean over reports always is."""
        return self.loss.label_is_linear or self._estimator.other == 0

    def _parts(self) -> list[tuple[Floats, Floats]]:
        step = max(1, CELLS // (self.loss.n_classes + math.prod(self._X.shape[1:])))
        cuts = range(0, len(self._X), step)
        return [(self._X[at : at + step], self._weights[at : at + step]) for at in cuts]


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best parameters found, their debiased risk, and how far they are from stationary.

    `residual` is the length of the projected gradient; `converged` says whether it came down to what was asked for. A
    risk that is not convex (hinge, absolute or given losses) was searched for `n_steps` steps and may have lower values.
    """

    weights: Floats
    risk: float
    residual: float
    n_steps: int
    converged: bool


def debiased_erm(
    X: Any,
    release: Release,
    loss: Loss,
    parameter_set: ParameterSet,
    *,
    start: Any = None,
    max_steps: int = 1000,
    tolerance: float = 1e-6,
) -> Minimum:
    """Minimise the debiased risk of released rows over the parameter set: the algorithm of Appendix G.

    Softmax, logistic and squared loss stay convex and smooth when debiased, because their label enters linearly: they are
    minimised by accelerated projected gradient steps. Hinge, absolute and given losses do not: they take projected subgradient
    steps, and the best point met is returned.

    Parameters
    ----------
    start : a member of the set; None means its middle.
    max_steps : when to stop at the latest.
    tolerance : stop where the projected gradient is this share of the debiased loss's Lipschitz constant.

    Privacy
    -------
    Reads a release, and costs nothing.
    """
    risk = DebiasedRisk(X, release, loss, parameter_set)
    first = parameter_set.middle(risk.dimension) if start is None else member(start, parameter_set, risk.dimension)
    checks.integer(max_steps=max_steps, at_least=1)
    small = positive(tolerance=tolerance) * risk.lipschitz
    search = _accelerated if loss.label_is_linear else _subgradient
    return search(risk, first, max_steps, small)


def _accelerated(risk: DebiasedRisk, w: Floats, max_steps: int, small: float) -> Minimum:
    """Nesterov's method with backtracking, begun anew whenever the risk rises (O'Donoghue and Candes 2015)."""
    size, momentum, z, best = 1.0, 1.0, w, risk.value(w)
    residual = math.inf
    for t in range(1, max_steps + 1):
        at_z, g = risk.value(z), risk.gradient(z)
        new, size = _descent(risk, z, at_z, g, size)
        value, residual = risk.value(new), float(np.linalg.norm(new - z)) / size
        if value > best and momentum > 1:
            z, momentum = w, 1.0
            continue
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        z, w, best, momentum = new + (momentum - 1) / following * (new - w), new, min(value, best), following
        size *= 1.25
        if residual <= small:
            return Minimum(w, value, residual, t, True)
    return Minimum(w, best, residual, max_steps, False)


def _descent(risk: DebiasedRisk, z: Floats, at_z: float, g: Floats, size: float) -> tuple[Floats, float]:
    """Return a projected step short enough that the risk lies below its quadratic model."""
    while True:
        new = risk.parameter_set.project(z - size * g)
        move = new - z
        model = at_z + g @ move + move @ move / (2 * size)
        if risk.value(new) <= model + 1e-12 * (1 + abs(at_z)):
            return new, size
        size /= 2


def _subgradient(risk: DebiasedRisk, w: Floats, max_steps: int, small: float) -> Minimum:
    scale = risk.parameter_set.diameter(risk.dimension) / risk.lipschitz
    best, found, residual = risk.value(w), w, math.inf
    for t in range(1, max_steps + 1):
        size = scale / math.sqrt(t)
        new = risk.parameter_set.project(w - size * risk.gradient(w))
        moved, w = float(np.linalg.norm(new - w)) / size, new
        value = risk.value(w)
        if value < best:
            best, found, residual = value, w, moved
        if moved <= small:
            return Minimum(found, best, moved, t, True)
    return Minimum(found, best, residual, max_steps, False)
