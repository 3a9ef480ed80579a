"""Appendix B of the paper: how well private histograms of clusters label rows that were clustered along with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.priors.clusters import Clusters
from labeldp.vault import LabelHolder


def joint_accuracy(
    clusters: Clusters, vault: LabelHolder, epsilon: Any, test_labels: Any, *, name: str | None = None
) -> float:
    """Return the share of test rows whose label is the noisy majority of the training labels in their cluster.

    Parameters
    ----------
    clusters : of training and test features together: first the vault's rows, then the test rows.
    vault : holds the training labels; needs trust="curator".
    epsilon : of the histogram.
    test_labels : public, as class numbers.

    Privacy
    -------
    Charges every training label epsilon, for one histogram. Test labels are public and not protected. Where no count of a
    cluster stands out, the first of the largest is taken.
    """
    n_training, labels = len(vault), checks.array(test_labels=test_labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < len(vault.classes))).all():
        raise InvalidArgument(
            f"test_labels must be class numbers from 0 to {len(vault.classes) - 1}, one per test row."
        )
    if len(clusters.numbers) != n_training + len(labels) or len(labels) == 0:
        raise InvalidArgument(
            f"clusters must be of the {n_training} training rows and then at least one test row, one per test label "
            f"({len(labels)}); they are of {len(clusters.numbers)} rows."
        )
    groups = clusters.numbers[:n_training]
    counts = vault.histogram(groups, epsilon, n_groups=clusters.count, source=clusters.source(), name=name).counts
    return float(np.mean(counts.argmax(axis=1)[clusters.numbers[n_training:]] == labels))
