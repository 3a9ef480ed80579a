"""The area under the ROC curve, from noisy reports: how well scores rank the rows of a class above the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument, NotIdentifiable
from labeldp.metrics.estimate import Estimate, error_and_skewness, score_interval
from labeldp.metrics.hold_out import (
    Floats,
    check_column,
    check_hold_out,
    check_probabilities,
    debiased,
    noise_variance,
    weights,
)
from labeldp.vault import Release


def auc(release: Release, probabilities: Any) -> Estimate:
    """Estimate the chance that a row of a class scores higher than a row of another one; equal scores count half.

    With two classes the score is the probability of the second declared one; with more, the figure is the plain average over
    classes of each against the rest. Every pair of different rows counts by the product of its debiased weights, so that the
    sum over pairs and the number of pairs are both unbiased; their ratio is nearly so. Sorts, and forms no table of pairs.

    Parameters
    ----------
    release : hold-out rows, released by RandomizedResponse.
    probabilities : one row of K probabilities per row of the release, of a model that was not trained on them. With two
        classes also one score per row, which need not be a probability.

    >>> vault = ldp.LabelVault(np.arange(500) % 2, classes=2, budget="4")
    >>> low, high = auc(vault.release(ldp.RandomizedResponse("4")), np.zeros(500)).interval()
    >>> low < 0.5 < high
    True
    """
    check_hold_out(release)
    scores = _scores(release, probabilities)
    numbers = [1] if len(release.classes) == 2 else range(len(release.classes))
    own, other = weights(release)
    ranked = [_Ranked.of(scores[:, k], np.where(release.label_numbers == k, own, other)) for k in numbers]
    missing = sum(not one.is_identified for one in ranked)
    if missing:
        raise NotIdentifiable(
            f"the noise hides whether {missing} of the {len(ranked)} classes ranked for the AUC, or the rest, occur in the "
            "hold-out at all: a debiased count is not positive. Hold out more rows, release them at a larger epsilon, or use "
            "log_loss or accuracy, which need no count of a class."
        )
    return _average(release, ranked)


@dataclass(frozen=True, slots=True)
class RankSpread:
    """How an AUC misses the truth. Its standard error at a figure is the largest of three.

    * The one that the rows show.
    * That of the ratio if the figure were the truth (Fieller): it grows where the number of pairs is itself uncertain.
    * That of the noise and of Hanley and McNeil's (1982) ranking with this figure, which is not 0 where all is well ranked.
      Classes count as independent here.

    Attributes
    ----------
    skewness : of one row's influence.
    noise_variance : of the AUC, by the noise alone.
    covariance, variance : of the number of pairs, as a share of it, with the AUC and with itself.
    counts : for each class ranked, how many rows it has, and the rest.
    """

    skewness: float
    noise_variance: float
    covariance: float
    variance: float
    counts: tuple[tuple[float, float], ...]

    percent: ClassVar[bool] = True

    def interval(self, estimate: Estimate, z: float) -> tuple[float, float]:
        def error_at(figure: float) -> float:
            shown = estimate.standard_error**2
            off = figure - estimate.value
            ratio = shown - 2 * off * self.covariance + off**2 * self.variance
            ranking = sum(_ranking_variance(figure, *pair) for pair in self.counts) / len(self.counts) ** 2
            return math.sqrt(max(shown, ratio, self.noise_variance + ranking))

        return score_interval(estimate, z, error_at, low=0.0, high=1.0, skewness=self.skewness)


@dataclass(frozen=True, eq=False, slots=True)
class _Ranked:
    """One class against the rest: sums over pairs of different rows, one of the class (weight w) and one not (1 - w)."""

    inside: Floats
    wins: Floats
    """Of each row, if it is of the class: the weight of the others that it beats."""
    losses: Floats
    """Of each row, if it is not: the weight of those of the class that beat it."""

    @classmethod
    def of(cls, scores: NDArray[Any], inside: Floats) -> _Ranked:
        _, place = np.unique(scores, return_inverse=True)
        outside = 1 - inside
        wins = _weight_below(place, outside) - outside / 2  # a row ties with itself, and is no pair with itself
        losses = inside.sum() - _weight_below(place, inside) - inside / 2
        return cls(inside, wins, losses)

    @property
    def count(self) -> float:
        return float(self.inside.sum())

    @property
    def rest(self) -> float:
        return len(self.inside) - self.count

    @property
    def is_identified(self) -> bool:
        return self.count > 0 and self.rest > 0

    @property
    def pairs(self) -> float:
        """More than count x rest, because a row's weights have different signs: positive where both are."""
        return self.count * self.rest - float((self.inside * (1 - self.inside)).sum())

    @property
    def area(self) -> float:
        return float((self.inside * self.wins).sum()) / self.pairs

    @property
    def partners(self) -> tuple[Floats, Floats]:
        """Of each row, how many others it makes a pair with: if it is of the class, and if it is not."""
        return self.rest - (1 - self.inside), self.count - self.inside

    def influences(self) -> tuple[Floats, Floats]:
        """Return by how much each row moves the area: if it is of the class, and if it is not."""
        of_class, of_rest = self.partners
        share = len(self.inside) / self.pairs
        return (self.wins - self.area * of_class) * share, (self.losses - self.area * of_rest) * share

    def pair_influences(self) -> Floats:
        """Return by how much each row moves the number of pairs, as a share of it."""
        of_class, of_rest = self.partners
        return (self.inside * of_class + (1 - self.inside) * of_rest) * (len(self.inside) / self.pairs)


def _average(release: Release, ranked: list[_Ranked]) -> Estimate:
    """Return the average of the areas, with the errors of the averaged influences."""
    n = len(release)
    table = _influence_table(ranked)
    rows = debiased(release, table)
    noise = noise_variance(release, table)
    pairs = np.mean([one.pair_influences() for one in ranked], axis=0)
    standard_error, skewness = error_and_skewness(rows, noise)
    joint = np.cov(rows, pairs) / n
    counts = tuple((one.count, one.rest) for one in ranked)
    spread = RankSpread(skewness, noise / n, float(joint[0, 1]), float(joint[1, 1]), counts)
    return Estimate(float(np.mean([one.area for one in ranked])), standard_error, n, spread)


def _influence_table(ranked: list[_Ranked]) -> Floats:
    """Return the influence that each row has on the average under each label; shape (rows, K)."""
    of_class, of_rest = (np.stack(each, axis=1) for each in zip(*(one.influences() for one in ranked), strict=True))
    if len(ranked) == 1:
        return np.concatenate([of_rest, of_class], axis=1)
    return (of_rest.sum(axis=1, keepdims=True) - of_rest + of_class) / len(ranked)


def _scores(release: Release, probabilities: Any) -> NDArray[Any]:
    """Return one column of scores per class; with two classes and one score per row, twice the same column."""
    given = checks.array(probabilities=probabilities)
    if given.ndim != 1:
        return check_probabilities(release, given)
    if len(release.classes) > 2:
        raise InvalidArgument(
            f"one score per row ranks two classes, but this hold-out has {len(release.classes)}: give a row of probabilities "
            "per row."
        )
    column = check_column(release, probabilities=given)
    return np.stack([column, column], axis=1)


def _weight_below(place: NDArray[np.int64], weight: Floats) -> Floats:
    """Return, for each row, the weight of the rows with smaller scores, and half that of the rows with the same."""
    at = np.bincount(place, weight)
    return (np.cumsum(at) - at / 2)[place]


def _ranking_variance(area: float, count: float, rest: float) -> float:
    """Return the variance that Hanley and McNeil give an AUC, were there no noise."""
    count, rest = max(count, 1.0), max(rest, 1.0)
    both_beaten, both_beat = area / (2 - area), 2 * area**2 / (1 + area)
    own = area * (1 - area)
    return (own + (count - 1) * (both_beaten - area**2) + (rest - 1) * (both_beat - area**2)) / (count * rest)
