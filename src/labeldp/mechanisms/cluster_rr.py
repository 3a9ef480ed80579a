"""ClusterRR (Esfandiari, Mirrokni, Syed, Vassilvitskii, 2022): the baseline of the paper's Figure 1(b)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.epsilon import Epsilon, EpsilonLike, Odds, exact_number
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.channel import Report
from labeldp.mechanisms.keep_or_draw import KeepOrDraw, equal_rows
from labeldp.mechanisms.local import LocalMechanism, Priors

Floats = NDArray[np.float64]

LEAST_TAU = Fraction(1, 10**6)
"""A smaller floor would be rounded too coarsely to spend all of epsilon."""

MOST_BITS = 52
"""Weights sum to about 2^52, no finer than the floats that priors are given in, or to less where epsilon is above 6."""


@dataclass(frozen=True)
class ClusterRR(LocalMechanism):
    """Keep the label with probability 1 - lambda, else draw one from the prior, floored at tau.

    The prior of a row is the noisy histogram of its cluster, which was released, and charged, before. The floored prior is
    q_j = max(s p_j, tau), with the one s that makes q sum to 1: what the rare classes gain is taken from the others in
    proportion, and a prior without a class below tau stays as it is. Then lambda = 1 / (1 + (e^epsilon - 1) min q).

    Parameters
    ----------
    epsilon : the privacy cost of a report, not counting that of the histogram.
    tau : the smallest probability of a class in a blind draw, from 0.000001 to 1 / classes. The larger it is, the more often
        the label is kept, and the less the blind draws look like the cluster.

    Privacy
    -------
    epsilon-label-DP per row; neighbours differ in one label. Public: prior, tau, epsilon. Secret: label.
    Proof: docs/proofs/cluster-rr.md; the weights depend on the prior, tau and epsilon alone.

    >>> law = ClusterRR(epsilon="1", tau="0.1").law(2, [0.6, 0.3, 0.1, 0])
    >>> {report: round(float(chance), 3) for report, chance in law.items()}
    {0: 0.455, 1: 0.228, 2: 0.232, 3: 0.085}
    """

    epsilon: EpsilonLike
    tau: Any = "0.01"

    needs_priors = True

    def __post_init__(self) -> None:
        super().__post_init__()
        tau = exact_number(self.tau, name="tau")
        if not LEAST_TAU <= tau <= Fraction(1, 2):
            raise InvalidArgument(f"tau must be between {float(LEAST_TAU):f} and 1 / classes, got {self.tau}.")
        object.__setattr__(self, "tau", tau)

    def channel(self, priors: Priors, odds: Odds) -> KeepOrDraw:
        """Return the channel of rows with these priors, at given odds."""
        n_classes = priors.shape[1]
        if self.tau * n_classes > 1:
            raise InvalidArgument(
                f"tau must be at most 1 / classes, which is 1/{n_classes} here; got {self.tau}. Give a smaller tau."
            )
        table = np.ascontiguousarray(priors, dtype=np.float64)
        first, which = equal_rows(table)
        return KeepOrDraw(whole_weights(table[first], self.tau, odds), which, odds)

    def law(self, label: int, prior: Any, *, dealing: int = 0) -> dict[Report, Fraction]:  # noqa: ARG002 - none is dealt
        channel = self._one_row(prior)
        checks.integer(label=label, at_least=0, at_most=channel.n_classes - 1)
        return channel.law(0, label)

    def keep_probability(self, prior: Any) -> Fraction:
        """Return 1 - lambda for a row with this prior, exactly as it is drawn with.

        >>> [round(float(ClusterRR("1").keep_probability(p)), 3) for p in ([0.25, 0.25, 0.25, 0.25], [0.9, 0.1, 0, 0])]
        [0.3, 0.017]
        """
        channel = self._one_row(prior)
        return Fraction(int(channel.kept[0]), int(channel.totals[0]))

    def _one_row(self, prior: Any) -> KeepOrDraw:
        row = checks.array(prior=prior)
        if row.ndim != 1:
            raise InvalidArgument(f"prior must be one row of probabilities, got shape {row.shape}.")
        n_classes = checks.integer(at_least=2, at_most=checks.MAX_CLASSES, **{"the length of prior": len(row)})
        return self.channel(checks.probabilities(row[None], 1, n_classes), Odds.within(Epsilon.of(self.epsilon)))


def floored(priors: Floats, tau: float) -> Floats:
    """Return q_j = max(s p_j, tau), with the one s for each row that makes it sum to 1.

    With the m heaviest classes above the floor, s = (1 - (K - m) tau) / (their mass). As m grows, s p of the m-th heaviest
    falls below tau once, and stays there.
    """
    p = priors / priors.sum(axis=1, keepdims=True)
    heaviest_first = np.sort(p, axis=1)[:, ::-1]
    mass = np.cumsum(heaviest_first, axis=1)
    left = 1 - tau * np.arange(p.shape[1] - 1, -1, -1)
    above = np.maximum((heaviest_first * left > tau * mass).sum(axis=1), 1)
    scale = left[above - 1] / mass[np.arange(len(p)), above - 1]
    return np.maximum(p * scale[:, None], tau)


def whole_weights(priors: Floats, tau: Fraction, odds: Odds) -> NDArray[np.int64]:
    """Return the floored priors as whole numbers, with the floor kept exactly: every weight is at least tau x their sum.

    Every class gets the floor, and the rest of the sum is cut at the cumulative excess of the floored priors over tau: no
    weight is off by more than one, and the sum is the same for all rows.
    """
    floor, total = floor_and_total(tau, odds)
    excess = floored(priors, float(tau)) - float(tau)
    excess[excess.sum(axis=1) == 0] = 1  # tau = 1 / classes: no class stands out
    ends = np.cumsum(excess, axis=1)
    ends /= ends[:, -1:].copy()
    cuts = (ends * (total - priors.shape[1] * floor)).astype(np.int64)
    return floor + np.diff(cuts, axis=1, prepend=0)


def floor_and_total(tau: Fraction, odds: Odds) -> tuple[int, int]:
    """Return a whole number and the largest sum of weights of which it is at least the share tau.

    The sum is at most 2^52, and small enough for a weight of half of it, times keep/other, to lie below 2^61.
    """
    bits = min(MOST_BITS, 94 - odds.keep.bit_length())
    floor = int(tau * 2**bits)
    return floor, int(floor / tau)
