"""The paper's guarantees as functions with explicit constants; where the paper has a rate only, the name says so.

In all of them D is the diameter of the parameter set, L the Lipschitz constant of the loss, and rows are drawn independently
from one distribution. "Excess risk" is the mean, over rows and noise, of risk(output) - min over the set of risk. It never
exceeds D L, whatever an algorithm does: a bound above that says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import digamma

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.convex.estimator import Unbiased, theorem_moment
from labeldp.convex.numbers import number, positive, share, size, some_delta
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import NormalResponse

STEPS = ("theorem", "exact")
MOST_GROUPINGS = 2**16  # that the lower bound tries: every one gives a bound, the best is near


def last_iterate(n_steps: int, *, diameter: float, moment: float, scale: float | None = None) -> float:
    """Bound the excess risk of w_(n+1) after n steps w <- project(w - c / sqrt(t) g), where E|g|^2 <= G^2.

    (D^2 / 2c + c G^2) (1 + H_n) / sqrt(n + 1) with H_n = 1 + 1/2 + .. + 1/n: the rate of Theorem 2 of Shamir and Zhang (2013).
    docs/convex.md derives it with this constant, which owes nothing to theirs. Needs convex risk and unbiased g; neither
    smoothness nor strong convexity. It falls from n = 2 on.

    Parameters
    ----------
    diameter, moment : D and G.
    scale : c; by default D / G, the theorem's.
    """
    n = checks.integer(n_steps=n_steps, at_least=1)
    return _spread(diameter, moment, scale) * (1 + _harmonic(n)) / math.sqrt(n + 1)


def average_iterate(n_steps: int, *, diameter: float, moment: float, scale: float | None = None) -> float:
    """Bound the excess risk of the mean of w_1 .. w_n under the same steps: (D^2 / 2c + c G^2) / sqrt(n), and no logarithm.

    The classical regret bound of projected gradient steps (Zinkevich 2003), with the sum of 1 / sqrt(t) at most 2 sqrt(n).
    """
    n = checks.integer(n_steps=n_steps, at_least=1)
    return _spread(diameter, moment, scale) / math.sqrt(n)


def of_iterate(average: bool) -> Callable[..., float]:
    """Return the bound of what a pass returns: the mean of the iterates, or the last one."""
    return average_iterate if average else last_iterate


def lp_rr_sgd(
    n_rows: int,
    n_classes: int,
    epsilon: Any,
    *,
    diameter: float,
    lipschitz: float,
    steps: str = "theorem",
    average: bool = False,
) -> float:
    """Bound the excess population risk of LP-RR-SGD: Theorem 9, O(D L K log n / (epsilon sqrt(n))).

    The last iterate's bound above, with the step sizes' G and the exact second moment of the gradients. The paper's theorem
    is for epsilon below 1 with G = 6 K L / epsilon; above, the exact moment takes its place (2 K / epsilon need not bound
    (e^epsilon + K - 1) / (e^epsilon - 1) there). The dimension does not occur.

    Parameters
    ----------
    steps : "theorem" for the paper's step sizes; "exact" for those of the exact moment at every epsilon: up to
        epsilon 1 they are at least five times larger, with a smaller bound.
    average : for the mean of the iterates rather than the last one: smaller, as it has no logarithm.
    """
    estimator = Unbiased.at(epsilon, checks.integer(n_classes=n_classes, at_least=1, at_most=checks.MAX_CLASSES))
    moment = estimator.moment(positive(lipschitz=lipschitz))
    scale = positive(diameter=diameter) / step_moment(estimator, lipschitz, steps)
    return of_iterate(average)(n_rows, diameter=diameter, moment=moment, scale=scale)


def lp_rr_sgd_top_k(
    n_rows: int,
    k: int,
    epsilon: Any,
    *,
    missed: float,
    diameter: float,
    lipschitz: float,
    steps: str = "theorem",
    average: bool = False,
) -> float:
    """Bound the excess population risk of LP-RR-SGD with top-k priors: Corollary 10.

    The bound above with k in place of K, and 2 D L times the chance that the true label is not among the k candidates.

    Parameters
    ----------
    missed : Pr[y is no candidate of x]. A property of the population: it is assumed here, not estimated.
    """
    bias = 2 * positive(diameter=diameter) * positive(lipschitz=lipschitz) * share(missed=missed)
    within = lp_rr_sgd(n_rows, k, epsilon, diameter=diameter, lipschitz=lipschitz, steps=steps, average=average)
    return within + bias


def step_moment(estimator: Unbiased, lipschitz: float, steps: str) -> float:
    """Return the G that sets the step sizes D / (G sqrt(t))."""
    if checks.one_of(STEPS, steps=steps) == "exact":
        return estimator.moment(lipschitz)
    return theorem_moment(estimator, lipschitz)


def lp_normal_sgd(
    n_rows: int,
    n_classes: int,
    epsilon: Any,
    delta: Any,
    *,
    diameter: float,
    lipschitz: float,
    sensitivity: float | None = None,
    average: bool = False,
) -> float:
    """Bound the excess population risk of LP-Normal-SGD, O(D L sqrt(K log(1 / delta)) log n / (epsilon sqrt(n))).

    The last iterate's bound with G^2 = L^2 + (K - 1) (v + 1 / 12) grid^2, where v is the variance of the noise on the lattice
    and 1 / 12 that of rounding to it. The paper's G^2 = L^2 + K sigma^2 has a constant in sigma that it does not write out;
    here sigma is what the proof of docs/proofs/normal.md needs, at any epsilon. The dimension p does not occur.

    Parameters
    ----------
    sensitivity : the largest distance of two classes' gradients, at most 2 L, which is the default. For softmax and logistic
        it is L.
    average : for the mean of the iterates rather than the last one.
    """
    r = checks.integer(n_classes=n_classes, at_least=2, at_most=checks.MAX_CLASSES) - 1
    L = positive(lipschitz=lipschitz)
    apart = 2 * L if sensitivity is None else positive(sensitivity=sensitivity)
    if apart > 2 * L:
        raise InvalidArgument(
            f"sensitivity must be at most 2 lipschitz = {2 * L:g}, got {sensitivity}: no gradient is longer."
        )
    response = NormalResponse.covering(apart, epsilon=epsilon, delta=some_delta(delta), dimension=r)
    return of_iterate(average)(n_rows, diameter=diameter, moment=math.sqrt(L**2 + normal_noise(response)))


def normal_noise(response: NormalResponse) -> float:
    """Return E|noise|^2 of an answer, rounding included, in the caller's units: the noise of a row that is not stretched."""
    return response.dimension * (response.variance + 1 / 12) * float(response.grid) ** 2


def without_privacy(n_rows: int, *, diameter: float, lipschitz: float, average: bool = False) -> float:
    """Bound the excess population risk of the same algorithm on true labels: the iterate's bound with G = L."""
    return of_iterate(average)(n_rows, diameter=diameter, moment=lipschitz)


def full_dp_rate(
    n_rows: int, epsilon: Any, *, delta: float, dimension: int, diameter: float, lipschitz: float
) -> float:
    """Return the rate at which (epsilon, delta)-DP of rows and labels can learn (Bassily et al. 2019, Theorem 4.4).

    D L (sqrt(p log(1 / delta)) / (n epsilon) + 1 / sqrt(n)); a rate: it holds up to a constant, which is not known here.
    The part with the dimension p cannot be avoided up to logarithms, which is what label DP is spared.
    """
    n, p = checks.integer(n_rows=n_rows, at_least=1), checks.integer(dimension=dimension, at_least=1)
    if not 0 < number(delta=delta) < 1:
        raise InvalidArgument(f"delta must be above 0 and below 1, got {delta}.")
    noise = math.sqrt(p * math.log(1 / delta)) / (n * float(Epsilon.of(epsilon)))
    return positive(diameter=diameter) * positive(lipschitz=lipschitz) * (noise + 1 / math.sqrt(n))


def erm_lower(
    n_rows: int, epsilon: Any, *, diameter: float, lipschitz: float, delta: float = 0.0, dimension: int | None = None
) -> float:
    """Return an excess empirical risk that every (epsilon, delta)-label-DP algorithm has on some loss and some n rows.

    D L / 2 sqrt(sum of k_i^2) / n (1 - sqrt((e^(k epsilon) + delta_k) / (e^(k epsilon) + 1))), at the best k, for rows in
    groups of k_i = k copies of each other (and one of what remains); delta_k = delta (e^(k epsilon) - 1) / (e^epsilon - 1).
    With k = 1 it is the proof of Proposition 13, D L / (2 sqrt(n)) (1 - sqrt((e^epsilon + delta) / (e^epsilon + 1))); with
    k = floor(1 / epsilon) that of Lemma 15, which is of the order of D L / sqrt(epsilon n). Copies flip together, so the group
    is protected by k epsilon; unequal groups change the norms of the proof from sqrt(n) to sqrt(sum of k_i^2) and no more.

    Parameters
    ----------
    dimension : p, at least the number of groups n / k, each of which needs a direction of its own. None: large enough.
    """
    n, exact = checks.integer(n_rows=n_rows, at_least=1), float(Epsilon.of(epsilon))
    fewest = 1 if dimension is None else -(-n // checks.integer(dimension=dimension, at_least=1))
    most = max(fewest, min(n, math.ceil(2 / exact)))
    k = np.arange(fewest, most + 1, 1 + (most - fewest) // MOST_GROUPINGS, dtype=np.float64)
    squares = (n // k) * k**2 + (n % k) ** 2
    together = np.minimum(k * exact, 700.0)  # beyond that the share is 1
    group_delta = share(delta=delta) * np.expm1(together) / math.expm1(exact)
    kept = np.minimum((np.exp(together) + group_delta) / (np.exp(together) + 1), 1.0)
    best = float((np.sqrt(squares) / n * (1 - np.sqrt(kept))).max())
    return positive(diameter=diameter) * positive(lipschitz=lipschitz) / 2 * best


def population_lower_rate(n_rows: int, epsilon: Any, *, diameter: float, lipschitz: float) -> float:
    """Return the rate below which no label-DP algorithm learns (Proposition 12): D L / sqrt(epsilon n) for epsilon <= 1.

    A rate: up to a constant and a factor logarithmic in 1 / epsilon, for n large and delta small enough for this epsilon, and
    in dimension p >= n: in fewer dimensions a smaller excess risk is possible. Above epsilon = 1 it is D L / sqrt(n), which is
    known without privacy.
    """
    n = checks.integer(n_rows=n_rows, at_least=1)
    return (
        positive(diameter=diameter)
        * positive(lipschitz=lipschitz)
        / math.sqrt(min(float(Epsilon.of(epsilon)), 1.0) * n)
    )


def generalization(
    n_rows: int,
    k: int,
    epsilon: Any,
    *,
    lipschitz: float,
    complexity: float,
    beta: float,
    width: float = 1.0,
    missed: float = 0.0,
) -> float:
    """Bound |debiased risk on the reports - population risk| for all functions of a class at once: Theorem 17, corrected.

    2 s L R + s (b - a) sqrt(log(2 / beta) / 2n) + (b - a) Pr[y is no candidate], with probability 1 - beta, where s =
    (e^epsilon + 2k - 3) / (e^epsilon - 1) is by how much debiasing stretches Lipschitz constant and range.

    Erratum: the paper prints the middle term without s, as for a loss in [0, 1]; but the debiased loss has a range of width s.
    With two classes at epsilon 0.1 and 10,000 rows the printed bound fails in about nine runs of ten. The paper's Lipschitz
    factor, (1 + k p) / (1 - k p) with p = 1 / (e^epsilon + k - 1), is valid and larger than s = (1 + (k - 2) p) / (1 - k p).

    Parameters
    ----------
    lipschitz : L, of the loss in the function's value (one number per row), not in its parameters.
    complexity : R, the Rademacher complexity of the class at n rows; see `linear_complexity`.
    beta : how often the bound may fail.
    width : b - a, of the range [a, b] of the loss; 1 in the paper.
    missed : Pr[y is no candidate of x].
    """
    n = checks.integer(n_rows=n_rows, at_least=1)
    if not 0 < number(beta=beta) < 1:
        raise InvalidArgument(f"beta must be above 0 and below 1, got {beta}.")
    if number(complexity=complexity) < 0:
        raise InvalidArgument(f"complexity must be at least 0, got {complexity}.")
    stretch = Unbiased.at(epsilon, checks.integer(k=k, at_least=1, at_most=checks.MAX_CLASSES)).stretch
    deviation = positive(width=width) * math.sqrt(math.log(2 / beta) / (2 * n))
    return stretch * (2 * positive(lipschitz=lipschitz) * complexity + deviation) + width * share(missed=missed)


def linear_complexity(n_rows: int, *, largest_norm: float, norm_bound: float) -> float:
    """Bound the Rademacher complexity of x -> <w, x> with |w| and |x| bounded: the product over sqrt(n)."""
    n = checks.integer(n_rows=n_rows, at_least=1)
    return positive(largest_norm=largest_norm) * positive(norm_bound=norm_bound) / math.sqrt(n)


def _spread(diameter: float, moment: float, scale: float | None) -> float:
    D, G = size(diameter=diameter), size(moment=moment)
    c = D / G if scale is None else positive(scale=scale)
    return D**2 / (2 * c) + c * G**2


def _harmonic(n: int) -> float:
    return float(digamma(float(n + 1)) + np.euler_gamma)
