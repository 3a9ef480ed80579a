"""The unbiased estimator of equation (eq:def-hatgt): which weights undo randomized response, and how large that makes things.

With k possible labels and p = 1 / (e^epsilon + k - 1), the reported label counts (1 - p) / (1 - k p) and every other one
-p / (1 - k p). The weights sum to 1, and the mean over reports of the weighted gradients (or losses) is that of the true
label. They are made from the integer odds that the vault draws with, so that this holds exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from labeldp.budget import Epsilon, Odds
from labeldp.convex.numbers import Floats
from labeldp.errors import InvalidArgument, NotIdentifiable
from labeldp.mechanisms.channel import Response, Truth
from labeldp.vault import Release


@dataclass(frozen=True)
class Unbiased:
    """The weights for k possible labels, as exact fractions, and the sizes that follow from them.

    >>> Unbiased.at("1", 2).own + Unbiased.at("1", 2).other
    Fraction(1, 1)
    """

    own: Fraction
    other: Fraction
    k: int

    @classmethod
    def of(cls, odds: Odds, k: int) -> Unbiased:
        if odds.excess == 0:
            raise NotIdentifiable("at an epsilon this small the reports say nothing: there is nothing to debias.")
        total = odds.excess + k * odds.other
        return cls(Fraction(total - odds.other, odds.excess), Fraction(-odds.other, odds.excess), k)

    @classmethod
    def at(cls, epsilon: Any, k: int) -> Unbiased:
        """Return the weights for reports at this epsilon."""
        return cls.of(Odds.within(Epsilon.of(epsilon)), k)

    @classmethod
    def none(cls) -> Unbiased:
        """Return the weights for true labels, the baseline without privacy."""
        return cls(Fraction(1), Fraction(0), 1)

    @property
    def epsilon(self) -> float:
        """The epsilon of the odds that are drawn with: at most the one asked for, by less than 1e-9."""
        return math.log1p(-1 / self.other) if self.other else math.inf

    @property
    def stretch(self) -> float:
        """How much longer than the longest gradient an estimate can be: (e^epsilon + 2k - 3) / (e^epsilon - 1).

        The debiased loss's Lipschitz constant and the width of its range grow by the same factor.
        """
        return float(self.own + (self.k - 1) * abs(self.other))

    def moment(self, lipschitz: float) -> float:
        """Return G with E|estimate|^2 <= G^2 over the reports, where no class has a gradient longer than L.

        An estimate is the true gradient + c (g - E g), where g is that of the reported label and c = (e^epsilon + k - 1) /
        (e^epsilon - 1). So E|estimate|^2 = |true|^2 + c^2 (E|g|^2 - |E g|^2): at most L^2 (1 + c^2 (1 - m^2)), where m L is
        the shortest mean that k vectors of length L can have with weights e^epsilon p, p, .. p: nothing, unless the first
        outweighs the others. Where there are two dimensions or more, some gradients attain it.
        """
        c = self.own - self.other
        shortest = max(Fraction(0), (1 + (self.k - 2) * self.other) / c)  # p (e^epsilon - k + 1)
        return lipschitz * math.sqrt(float(1 + c**2 * (1 - shortest**2)))


def theorem_moment(estimator: Unbiased, lipschitz: float) -> float:
    """Return the G of the paper's theorem: 6 k L / epsilon up to epsilon = 1; above, where that can fail, the exact moment."""
    if estimator.k < 2 or estimator.epsilon > 1:
        return estimator.moment(lipschitz)
    return 6 * estimator.k * lipschitz / estimator.epsilon


def of_release(release: Release) -> Unbiased:
    """Return the estimator of a release of single labels: of its row with the most candidates, whose noise is largest."""
    if isinstance(release, Release) and isinstance(release.channel, Truth):
        return Unbiased.none()
    if (
        not isinstance(release, Release)
        or not isinstance(release.channel, Response)
        or not release.channel.groups.single_labels
    ):
        raise InvalidArgument(
            "release must be noisy labels by RandomizedResponse, RRTopK or RRWithPrior, or the unprotected baseline."
        )
    return Unbiased.of(release.channel.odds, int(release.sizes.max()))


def weights(release: Release, positions: Any) -> Floats:
    """Return how much every label counts at positions of a release, shape (positions, K)."""
    if isinstance(release.channel, Truth):
        return release.likelihood(positions)
    return np.asarray(release.debiased_weights(positions))
