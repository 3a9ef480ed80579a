"""LP-RR-SGD, Algorithm 5 of the paper: one pass of SGD on labels from randomized response, with unbiased gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex import bounds
from labeldp.convex.estimator import Unbiased, of_release, weights
from labeldp.convex.given import as_features, member, permutation
from labeldp.convex.losses import CELLS, Loss
from labeldp.convex.numbers import Floats, share
from labeldp.convex.sets import ParameterSet
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import RandomizedResponse, RRTopK
from labeldp.vault import LabelHolder, Release

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Fit:
    """What one pass of SGD found, and what the theorem promises for it.

    Attributes
    ----------
    weights : the parameters: the last iterate, or the mean of all if that was asked for.
    release : the reports it was made from, with their receipt.
    n_steps, scale : the step sizes are scale / sqrt(t) for t = 1 .. n_steps.
    diameter, lipschitz : D of the set and L of the loss.
    moment : G, with E|gradient estimate|^2 <= G^2 in every step.
    """

    weights: Floats
    release: Release
    n_steps: int
    scale: float
    diameter: float
    lipschitz: float
    moment: float
    averaged: bool

    @property
    def step_sizes(self) -> Floats:
        return self.scale / np.sqrt(np.arange(1, self.n_steps + 1))

    def bound(self, *, missed: float = 0.0) -> float:
        """Return the most that the excess population risk is, in the mean over rows and noise.

        Theorem 9 and Corollary 10, for rows drawn independently and used in an order that does not depend on labels.

        Parameters
        ----------
        missed : with top-k priors, the chance that the true label is no candidate; it costs 2 D L per unit.
        """
        iterate = bounds.average_iterate if self.averaged else bounds.last_iterate
        noise = iterate(self.n_steps, diameter=self.diameter, moment=self.moment, scale=self.scale)
        return noise + 2 * self.diameter * self.lipschitz * share(missed=missed)

    def __repr__(self) -> str:
        kind = "mean of the iterates" if self.averaged else "last iterate"
        return f"<Fit: {kind} of {self.n_steps} steps, excess risk at most {self.bound():.4g}; {self.release.receipt}>"


def lp_rr_sgd(
    X: Any,
    vault: LabelHolder,
    loss: Loss,
    parameter_set: ParameterSet,
    epsilon: Any,
    *,
    k: int | None = None,
    priors: Any = None,
    rows: Any = None,
    order: Any = None,
    start: Any = None,
    batch_size: int = 1,
    steps: str = "theorem",
    average: bool = False,
    source: Any = None,
    name: str | None = None,
) -> Fit:
    """Run LP-RR-SGD (Algorithm 5): each row once, its label by randomized response, an unbiased gradient, a projected step.

    The reports do not depend on the parameters, so they are asked for at once, and the pass is plain SGD on them.

    Parameters
    ----------
    X : public features, one row per row of the vault.
    loss, parameter_set : what to minimise, and where.
    k, priors : for Corollary 10, the label is randomized over the k most likely ones by its prior, and a label that is not
        among them answers uniformly; k then takes the place of K. Priors are what `vault.release` takes.
    rows : as in `vault.release`; None means all rows that have a label.
    order : a public order of those rows, as positions from 0 among them, each once; None means as they stand. The theorem
        is for independent rows: where they are sorted by something, shuffle them.
    start : the first iterate, a member of the set; None means its middle.
    batch_size : how many rows a step averages; 1 is the algorithm.
    steps : "theorem" or "exact", see `bounds.lp_rr_sgd`.
    average : return the mean of the iterates rather than the last one.
    source, name : as in `vault.release`.

    Privacy
    -------
    epsilon-label-DP per row, that of the release: all rows are charged once, before the first draw, and what follows only
    reads the reports. Public: X, loss, set, order, priors. What can be refused is refused before the charge. Gradients of a
    `GivenLoss` are checked there at the starting point, and then at every step: should one fail only during the pass, the
    release is paid for, and asking again under the same name returns it.

    >>> from labeldp import convex
    >>> X = np.tile([[0.6, 0.8], [0.8, -0.6]], (100, 1))
    >>> vault = ldp.LabelVault([0, 1] * 100, classes=2, budget="2")
    >>> fit = convex.lp_rr_sgd(X, vault, convex.Logistic(norm_bound=1.0), convex.Ball(radius=1.0), "2")
    >>> fit.weights.shape, str(vault.spent()), round(fit.bound(), 3)
    ((2,), 'epsilon 2', 1.911)
    """
    if not isinstance(vault, LabelHolder):
        raise InvalidArgument(f"vault must be a LabelVault, which holds the labels; got {type(vault).__name__}.")
    if (k is None) != (priors is None):
        raise InvalidArgument("k and priors must be given together: the k most likely labels of each row's prior.")
    mechanism = RandomizedResponse(epsilon) if k is None else RRTopK(epsilon, k)
    estimator = Unbiased.at(epsilon, len(vault.classes) if k is None else k)
    asked = np.flatnonzero(vault.labelled) if rows is None else checks.rows(rows, len(vault))
    given = as_features(X)
    if len(given) != len(vault):
        raise InvalidArgument(f"X must have one row per row of the vault ({len(vault)}), got {len(given)}.")
    plan = _Pass.checked(given, asked, len(vault.classes), loss, parameter_set, order, start, batch_size, steps)
    release = vault.release(mechanism, rows, priors=priors, source=source, name=name)
    return _one_pass(given, release, estimator, loss, parameter_set, plan, average=average)


def sgd_on_release(
    X: Any,
    release: Release,
    loss: Loss,
    parameter_set: ParameterSet,
    *,
    order: Any = None,
    start: Any = None,
    batch_size: int = 1,
    steps: str = "theorem",
    average: bool = False,
) -> Fit:
    """Run the same pass on reports that were released before: it costs nothing, however often.

    Parameters
    ----------
    release : by RandomizedResponse, RRTopK or RRWithPrior (whose bound is that of its largest k); or, for the baseline
        without privacy, `LabelVault.unprotected`, on which this is plain SGD.

    The others are those of `lp_rr_sgd`. The bound is for one pass that was fixed beforehand: the best of several, chosen by
    the same reports, has no such bound.
    """
    estimator = of_release(release)
    given = as_features(X)
    if len(given) <= release.rows.max():
        raise InvalidArgument(
            f"X must have one row per row of the vault; it has {len(given)}, too few for the release."
        )
    plan = _Pass.checked(
        given, release.rows, len(release.classes), loss, parameter_set, order, start, batch_size, steps
    )
    return _one_pass(given, release, estimator, loss, parameter_set, plan, average=average)


def _one_pass(
    X: NDArray[Any],
    release: Release,
    estimator: Unbiased,
    loss: Loss,
    parameter_set: ParameterSet,
    plan: _Pass,
    *,
    average: bool,
) -> Fit:
    diameter = parameter_set.diameter(len(plan.start))
    lipschitz = loss.lipschitz(parameter_set, len(plan.start))
    scale = diameter / plan.batched(bounds.step_moment(estimator, lipschitz, plan.steps), lipschitz)

    w, passed = plan.start, np.zeros_like(plan.start)
    for t, (x, c) in enumerate(plan.batches(X, release), start=1):
        passed += w
        g = loss.gradient(w, x, c)  # (eq:def-hatgt): the sum over labels y of c_y grad l(w, (x, y))
        w = parameter_set.project(w - scale / math.sqrt(t) * g)

    return Fit(
        weights=passed / plan.n_steps if average else w,
        release=release,
        n_steps=plan.n_steps,
        scale=scale,
        diameter=diameter,
        lipschitz=lipschitz,
        moment=plan.batched(estimator.moment(lipschitz), lipschitz),
        averaged=average,
    )


@dataclass(frozen=True, eq=False)
class _Pass:
    """What a pass will do, checked: in which order it takes positions of the release, cut into steps, and where it starts."""

    order: Rows
    cuts: Rows
    start: Floats
    steps: str

    @classmethod
    def checked(
        cls,
        X: NDArray[Any],
        rows: Rows,
        n_classes: int,
        loss: Loss,
        parameter_set: ParameterSet,
        order: Any,
        start: Any,
        batch_size: int,
        steps: str,
    ) -> _Pass:
        if not isinstance(loss, Loss) or not isinstance(parameter_set, ParameterSet):
            raise InvalidArgument(
                "loss and parameter_set must be of labeldp.convex, such as Logistic(norm_bound=1) and Ball(radius=1)."
            )
        if loss.n_classes != n_classes:
            raise InvalidArgument(
                f"loss must have the classes of the labels ({n_classes}), got one for {loss.n_classes}."
            )
        dimension = loss.dimension(X)
        parameter_set.check(dimension)
        first = parameter_set.middle(dimension) if start is None else member(start, parameter_set, dimension)
        loss.check(X if len(rows) == len(X) else X[rows], first)
        n_steps = -(-len(rows) // checks.integer(batch_size=batch_size, at_least=1))
        cuts = np.arange(n_steps + 1) * len(rows) // n_steps  # steps of nearly equal size
        return cls(permutation(order, len(rows)), cuts, first, checks.one_of(bounds.STEPS, steps=steps))

    @property
    def n_steps(self) -> int:
        return len(self.cuts) - 1

    def batched(self, moment: float, lipschitz: float) -> float:
        """Return G for the mean of a batch: the noise is averaged, the risk's own gradient, at most L long, is not."""
        smallest = int(np.diff(self.cuts).min())
        return math.sqrt(lipschitz**2 + (moment**2 - lipschitz**2) / smallest)

    def batches(self, X: NDArray[Any], release: Release) -> Iterator[tuple[NDArray[Any], Floats]]:
        """Yield the rows of each step and how much every label counts in them; gathered many steps at a time."""
        size = int(np.diff(self.cuts).max()) * (len(release.classes) + math.prod(X.shape[1:]))
        together = max(1, CELLS // size)
        for first in range(0, self.n_steps, together):
            cuts = self.cuts[first : first + together + 1]
            positions = self.order[cuts[0] : cuts[-1]]
            x, c = _taken(X, release.rows[positions]), weights(release, positions)
            for begin, end in pairwise((cuts - cuts[0]).tolist()):
                yield x[begin:end], c[begin:end]


def _taken(X: NDArray[Any], rows: Rows) -> NDArray[Any]:
    consecutive = bool((np.diff(rows) == 1).all())
    x = X[rows[0] : rows[-1] + 1] if consecutive else X[rows]
    return x.astype(np.float64, copy=False)
