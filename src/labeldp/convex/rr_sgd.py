"""LP-RR-SGD, Algorithm 5 of the paper: one pass of SGD on labels from randomized response, with unbiased gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex import bounds
from labeldp.convex.estimator import Unbiased, of_release
from labeldp.convex.given import as_features
from labeldp.convex.losses import Loss
from labeldp.convex.numbers import in_double_precision, share
from labeldp.convex.one_pass import Found, Plan, Promise, paid
from labeldp.convex.sets import ParameterSet
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import RandomizedResponse, RRTopK
from labeldp.vault import LabelHolder, Release


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Found):
    """What one pass of SGD found, and what the theorem promises for it.

    Attributes
    ----------
    release : the reports it was made from, with their receipt. For the others see `Found`.
    """

    release: Release

    def bound(self, *, missed: float = 0.0) -> float:
        """Return the most that the excess population risk is, in the mean over rows and noise.

        Theorem 9 and Corollary 10, for rows drawn independently and used in an order that does not depend on labels.

        Parameters
        ----------
        missed : with top-k priors, the chance that the true label is no candidate; it costs 2 D L per unit.
        """
        return self.of_the_pass() + 2 * self.diameter * self.lipschitz * share(missed=missed)

    def __repr__(self) -> str:
        most = f"{self.bound():.4g}"
        if (self.release.sizes < len(self.release.classes)).any():
            most += f" plus {2 * self.diameter * self.lipschitz:.4g} times the chance that a label is no candidate"
        return f"<Fit: {self.kind} of {self.n_steps} steps, excess risk at most {most}; {self.release.receipt}>"


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
    `GivenLoss`, or of a loss of your own class, are checked there at the starting point, and then at every step: should one
    fail only during the pass, the release is paid for, and asking again under the same name returns it.

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
    options = {"order": order, "start": start, "batch_size": batch_size, "average": average}
    plan = Plan.checked(given, asked, len(vault.classes), loss, parameter_set, **options)
    promise = _promise(plan, estimator, steps)
    release = vault.release(mechanism, rows, priors=priors, source=source, name=name)
    with paid(_what_now(name)):
        return _one_pass(given, release, plan, promise)


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
    options = {"order": order, "start": start, "batch_size": batch_size, "average": average}
    plan = Plan.checked(given, release.rows, len(release.classes), loss, parameter_set, **options)
    return _one_pass(given, release, plan, _promise(plan, estimator, steps))


def _promise(plan: Plan, estimator: Unbiased, steps: str) -> Promise:
    with in_double_precision():
        moment = estimator.moment(plan.lipschitz)
        step_moment = bounds.step_moment(estimator, plan.lipschitz, steps)
    return plan.promise(moment, step_moment=step_moment)


def _what_now(name: str | None) -> str:
    if name is not None:
        return f"The labels were charged before the pass; asking again with name={name!r} returns the same release at no cost."
    return (
        "The labels were charged before the pass, and its release had no name: asking again is charged again. With name=.. it "
        "is kept; or release first, by vault.release, and run sgd_on_release on that as often as needed."
    )


def _one_pass(X: NDArray[Any], release: Release, plan: Plan, promise: Promise) -> Fit:
    w, passed = plan.start, np.zeros_like(plan.start)
    for t, (x, c) in enumerate(plan.batches(X, release), start=1):
        passed += w
        g = plan.loss.gradient(w, x, c)  # (eq:def-hatgt): the sum over labels y of c_y grad l(w, (x, y))
        w = plan.parameter_set.project(w - promise.scale / math.sqrt(t) * g)
    return Fit(weights=passed / plan.n_steps if plan.average else w, release=release, **vars(promise))
