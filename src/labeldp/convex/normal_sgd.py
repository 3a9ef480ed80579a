"""LP-Normal-SGD, Algorithm 6 of the paper: one pass of SGD with Gaussian noise inside the span of the class gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex.given import Rows, as_features, taken
from labeldp.convex.losses import Loss
from labeldp.convex.numbers import CELLS, in_double_precision, some_delta
from labeldp.convex.one_pass import Found, Plan, paid
from labeldp.convex.sets import ParameterSet
from labeldp.convex.spans import Group, span_of
from labeldp.errors import BudgetExhausted, InvalidArgument
from labeldp.mechanisms import NormalResponse
from labeldp.vault import LabelHolder, Receipt

CHARGED = "The labels were charged before the pass and stay charged: another pass over these rows is another charge."


@dataclass(frozen=True, eq=False, repr=False)
class NormalFit(Found):
    """What one pass of LP-Normal-SGD found, and what the proposition promises for it.

    Attributes
    ----------
    response : the noise; its deviation in units of the gradient is `sigma`, for a row where the label matters most.
    receipt : what the pass cost. For the others see `Found`.
    """

    response: NormalResponse
    receipt: Receipt

    @property
    def sigma(self) -> float:
        """The noise deviation in each coordinate, in units of the gradient."""
        return self.response.sigma * float(self.response.grid)

    @property
    def analytic_sigma(self) -> float:
        """What continuous Gaussian noise would need, in units of the gradient."""
        return self.response.analytic_sigma * float(self.response.grid)

    def bound(self) -> float:
        """Return the most that the excess population risk is, in the mean over rows, noise and offsets.

        For rows drawn independently and used in an order that does not depend on labels.
        """
        return self.of_the_pass()

    def __repr__(self) -> str:
        return (
            f"<NormalFit: {self.kind} of {self.n_steps} steps, excess risk at most {self.bound():.4g}; noise sigma "
            f"{self.sigma:.6g} (analytic Gaussian {self.analytic_sigma:.6g}); {self.receipt}>"
        )


def lp_normal_sgd(
    X: Any,
    vault: LabelHolder,
    loss: Loss,
    parameter_set: ParameterSet,
    epsilon: Any,
    delta: Any,
    *,
    rows: Any = None,
    order: Any = None,
    start: Any = None,
    batch_size: int = 1,
    average: bool = False,
    seed: int = 0,
    source: Any = None,
) -> NormalFit:
    """Run LP-Normal-SGD (Algorithm 6): each row once, its gradient with noise in the span of the class gradients, a step.

    The vault is sent the coordinates of the centred class gradients, rounded to a lattice, and returns those of the true
    class plus exact discrete Gaussian noise. What no label changes, it neither sees nor adds noise to.

    Parameters
    ----------
    X : public features, one row per row of the vault.
    loss, parameter_set : what to minimise, and where.
    rows : as in `vault.normal_pass`; None means all rows that have a label.
    order : a public order of those rows, as positions from 0 among them, each once; None means as they stand. The theorem
        is for independent rows: where they are sorted by something, shuffle them.
    start : the first iterate, a member of the set; None means its middle.
    batch_size : how many rows a step averages; 1 is the algorithm.
    average : return the mean of the iterates rather than the last one.
    seed : of public offsets that keep rounding from biasing; the noise has no seed. Softmax and logistic need none.
    source : as in `vault.normal_pass`.

    Privacy
    -------
    (epsilon, delta)-label-DP per row: all rows are charged once, before the first draw, and each is answered once. Public:
    X, loss, set, order, seed, and the tables, which follow from these and earlier answers. Proof: docs/proofs/normal.md.
    What can be refused is refused before the charge. Gradients of a `GivenLoss`, or of a loss of your own class, are checked
    there at the starting point, and then at every step: should one fail only during the pass, the rows stay charged.

    >>> from labeldp import convex
    >>> X = np.tile([[0.6, 0.8], [0.8, -0.6]], (100, 1))
    >>> vault = ldp.LabelVault([0, 1] * 100, classes=2, budget="2", delta="1e-6")
    >>> fit = convex.lp_normal_sgd(X, vault, convex.Logistic(norm_bound=1.0), convex.Ball(radius=1.0), "2", "1e-6")
    >>> fit.weights.shape, str(vault.spent()), round(fit.sigma, 3), round(fit.bound(), 3)
    ((2,), 'epsilon 2, delta 0.000001', 2.23, 3.558)
    """
    if not isinstance(vault, LabelHolder):
        raise InvalidArgument(f"vault must be a LabelVault, which holds the labels; got {type(vault).__name__}.")
    asked = np.flatnonzero(vault.labelled) if rows is None else checks.rows(rows, len(vault))
    given = as_features(X)
    if len(given) != len(vault):
        raise InvalidArgument(f"X must have one row per row of the vault ({len(vault)}), got {len(given)}.")
    options = {"order": order, "start": start, "batch_size": batch_size, "average": average}
    plan = Plan.checked(given, asked, len(vault.classes), loss, parameter_set, **options)
    some_delta(delta)
    offsets = checks.integer(seed=seed, at_least=0)
    with in_double_precision():
        span = span_of(plan.loss, 2 * plan.lipschitz, len(plan.start), epsilon=epsilon, delta=delta, seed=offsets)
        moment = math.sqrt(plan.lipschitz**2 + span.noise)
    promise = plan.promise(moment, step_moment=moment)
    _check_budget(vault, rows)

    w, passed = plan.start, np.zeros_like(plan.start)
    with vault.normal_pass(span.response, rows, source=source) as opened, paid(CHARGED):
        for t, estimate in enumerate(span.estimates(opened, _groups(plan, given, asked)), start=1):
            passed += w
            w = parameter_set.project(w - promise.scale / math.sqrt(t) * estimate(w))

    found = passed / plan.n_steps if plan.average else w
    return NormalFit(weights=found, response=span.response, receipt=opened.receipt, **vars(promise))


def _check_budget(vault: LabelHolder, rows: Any) -> None:
    if not vault.remaining(rows).delta_units and not vault.spent(rows).delta_units:
        raise BudgetExhausted(
            "this budget has no delta, and LP-Normal-SGD spends some: LabelVault(..., delta='1e-6'). Nothing was charged."
        )


def _groups(plan: Plan, X: NDArray[Any], asked: Rows) -> Iterator[Group]:
    """Yield the rows of many steps at a time, with where each step begins."""
    together = max(1, CELLS // (int(np.diff(plan.cuts).max()) * math.prod(X.shape[1:])))
    for first in range(0, plan.n_steps, together):
        cuts = plan.cuts[first : first + together + 1]
        rows = asked[plan.order[cuts[0] : cuts[-1]]]
        yield rows, taken(X, rows), (cuts - cuts[0]).tolist()
