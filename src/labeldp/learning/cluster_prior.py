"""Algorithm 4 of the paper: private histograms of public clusters are the prior of the labels in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument, TrustError
from labeldp.learning.learner import Beliefs
from labeldp.learning.partition import Rows
from labeldp.mechanisms import Histogram
from labeldp.priors import Clusters, normalised, projected, smoothed
from labeldp.priors.shares import noise_variance
from labeldp.vault import HistogramRelease, LabelHolder
from labeldp.vault.aggregates import MOST_CELLS

SHARES = ("smoothed", "normalised")


@dataclass(frozen=True, eq=False)
class ClusterPrior:
    """Spend part of epsilon on counts of the classes in each cluster, before anything else is asked.

    Parameters
    ----------
    clusters : public clusters of all rows of the vault.
    epsilon : the counts' part. What is left of a run's epsilon goes to the local responses of its stages, whose first prior
        is the shares of each row's cluster. None for all of it: then there are no stages, and models learn from counts alone.
    shares : how that prior is made of counts: "smoothed", small clusters leaning on their neighbours, or "normalised", as in
        the paper; see `labeldp.priors`.

    Privacy
    -------
    The counts cost `epsilon` for every label and need a curator; with the stages that follow on the same labels they add up
    to the run's epsilon (sequential composition).
    """

    clusters: Clusters
    epsilon: Any = None
    shares: str = "smoothed"

    def __post_init__(self) -> None:
        checks.one_of(SHARES, shares=self.shares)
        if not isinstance(self.clusters, Clusters):
            raise InvalidArgument(f"clusters must be labeldp.priors.Clusters, got {type(self.clusters).__name__}.")
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", Epsilon.of(self.epsilon, name="the epsilon of clusters"))

    def split(self, epsilon: Any, stages: int) -> tuple[Epsilon, Epsilon | None]:
        """Return the parts of epsilon: of the counts, and of each label's local response, None where there are no stages."""
        total = Epsilon.of(epsilon)
        counts = total if self.epsilon is None else self.epsilon
        if stages and counts < total:
            return counts, Epsilon(total.units - counts.units)
        if stages or counts != total:
            raise InvalidArgument(
                f"with {stages} stages after them, the counts of clusters must take "
                f"{'less than' if stages else 'all of'} epsilon ({total}), and they take {counts}: change stages, or the "
                "epsilon of clusters."
            )
        return counts, None

    def check(self, n_rows: int, n_classes: int, epsilon: Epsilon) -> None:
        """Raise whatever can be known to stop the counting, before anything is spent."""
        if len(self.clusters.numbers) != n_rows:
            raise InvalidArgument(
                f"clusters must be of all rows of the vault ({n_rows}); they are of {len(self.clusters.numbers)}."
            )
        checks.integer(at_least=1, at_most=MOST_CELLS // n_classes, **{"the number of clusters": self.clusters.count})
        Histogram(epsilon)  # which refuses what its noise cannot be drawn for exactly

    @staticmethod
    def check_trust(vault: LabelHolder) -> None:
        if vault.trust != "curator":
            raise TrustError(
                "counts of clusters aggregate labels before adding noise, which a local vault never does. If the label holder "
                "is trusted with that, open it with trust='curator'."
            )

    def ask(self, vault: LabelHolder, rows: Rows, epsilon: Epsilon, name: str | None) -> HistogramRelease:
        return vault.histogram(
            self.clusters.numbers[rows],
            epsilon,
            rows=rows,
            n_groups=self.clusters.count,
            source=self.clusters.source(),
            name=name,
        )

    def is_answer(self, release: HistogramRelease, rows: Rows, epsilon: Epsilon, classes: tuple[Any, ...]) -> bool:
        """Return whether a release, which may come from a file, answers this question."""
        groups = self.clusters.numbers[rows]
        totals = np.bincount(groups, minlength=self.clusters.count)
        asked, given = (rows, groups, totals), (release.rows, release.groups, release.totals)
        same_groups = all(np.array_equal(a, b) for a, b in zip(asked, given, strict=True))
        same_cost = release.receipt.epsilon == str(epsilon) and release.receipt.query == "histogram"
        return same_groups and same_cost and release.classes == tuple(classes)

    def prior(self, counts: HistogramRelease, rows: Rows) -> NDArray[np.float64]:
        """Return the prior of rows: the shares in their cluster."""
        shares = normalised(counts) if self.shares == "normalised" else smoothed(counts, self.clusters)
        return shares[self.clusters.numbers[rows]]

    def beliefs(self, counts: HistogramRelease) -> Beliefs:
        """Return the counts as targets beside reports: the prior, weighing as many labels as the counts are worth."""
        weights = labels_worth(counts)[counts.groups]
        return Beliefs(counts.rows, self.prior(counts, counts.rows), counts, weights)


def labels_worth(counts: HistogramRelease) -> NDArray[np.float64]:
    """Return, for each cluster, how many known labels per row its noisy counts are worth.

    The share s of a class among n rows is known up to the variance v / n of drawing n labels and the noise's t / n^2; m labels
    would tell it up to v / m. They tell the same if m / n = n v / (n v + t), with v = s (1 - s) averaged over all rows. As one
    label more of any class might turn up, s is (n s + 1 / K) / (n + 1): no cluster is believed to be pure for certain.
    """
    totals, n_classes = counts.totals.astype(np.float64), len(counts.classes)
    shares = (totals[:, None] * projected(counts) + 1 / n_classes) / (totals[:, None] + 1)
    spread = float(np.average((shares * (1 - shares)).mean(axis=1), weights=totals))
    return totals * spread / (totals * spread + noise_variance(counts))
