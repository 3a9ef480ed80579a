"""What releases say about rows, as arrays: the evidence that learners read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.learning.learner import Beliefs, Examples, Filtered
from labeldp.priors import shares
from labeldp.vault import HistogramRelease, Release

Numbers = NDArray[np.int64]


def checked(releases: Any) -> list[Release | Filtered | Beliefs]:
    """Return a list of evidence about the same classes, from one or several releases.

    A histogram is taken as what it makes one believe of its rows. Anything else, above all labels, is refused.
    """
    given = list(releases) if isinstance(releases, Sequence) else [releases]
    if not given or not all(isinstance(each, Examples) for each in given):
        raise InvalidArgument("releases must be one or more releases of a vault; a learner takes no labels.")
    if len({classes_of(each) for each in given}) > 1:
        raise InvalidArgument("releases must all have the same classes.")
    return [beliefs_of(each) if isinstance(each, HistogramRelease) else each for each in given]


def classes_of(each: Examples) -> tuple[Any, ...]:
    return each.release.classes if isinstance(each, Filtered) else each.classes


def beliefs_of(histogram: HistogramRelease) -> Beliefs:
    """Return the shares of the classes in each row's group, projected on the group's public size."""
    return Beliefs(histogram.rows, shares.projected(histogram)[histogram.groups], histogram)


def apart(given: Sequence[Release | Filtered | Beliefs]) -> tuple[list[Release | Filtered], list[Beliefs]]:
    """Return reports on rows, and beliefs about rows."""
    local = [each for each in given if not isinstance(each, Beliefs)]
    return local, [each for each in given if isinstance(each, Beliefs)]


def check_rows(rows: Numbers, n_rows: int) -> None:
    if rows.max(initial=0) >= n_rows:
        raise InvalidArgument(f"X must have one row per row of the vault; it has {n_rows}, too few for the releases.")


def log_likelihoods(releases: Sequence[Release | Filtered]) -> tuple[Numbers, NDArray[np.float64]]:
    """Return the rows that local releases speak of, and log P(its reports | label) for every label of every row.

    Reports on the same row were drawn independently: their logarithms add up.
    """
    if any(isinstance(each, Filtered) for each in releases):
        raise InvalidArgument(
            "rows were dropped by looking at their reports, which biases the likelihood: train on all, or on noisy labels."
        )
    local = [each for each in releases if isinstance(each, Release)]
    rows, place = np.unique(np.concatenate([each.rows for each in local]), return_inverse=True)
    logs = np.zeros((len(rows), len(local[0].classes)))
    with np.errstate(divide="ignore"):  # true labels, the baseline, have likelihood 0 elsewhere
        np.add.at(logs, place, np.concatenate([np.log(each.likelihood()) for each in local]))
    return rows, logs


def posterior(local: Sequence[Release | Filtered], beliefs: Sequence[Beliefs]) -> Beliefs:
    """Return prior times likelihood, normalised: the prior is what is believed, uniform where nothing is.

    Several beliefs about a row are multiplied, which holds if they were come by independently. A row counts as much as the
    weightiest thing that is known of it; a report, which speaks of its row alone, counts 1. Where all of it together is
    impossible, nothing is believed.
    """
    with np.errstate(divide="ignore"):
        parts = [(each.rows, np.log(each.shares), each.weights) for each in beliefs]
    if local:
        parts.append((*log_likelihoods(local), None))
    rows = np.unique(np.concatenate([spoken_of for spoken_of, _, _ in parts]))
    classes = classes_of([*local, *beliefs][0])
    logs, weights = np.zeros((len(rows), len(classes))), np.zeros(len(rows))
    for spoken_of, part, weight in parts:
        place = np.searchsorted(rows, spoken_of)
        logs[place] += part
        weights[place] = np.maximum(weights[place], 1.0 if weight is None else weight)
    logs[np.isneginf(logs).all(axis=1)] = 0.0
    joint = np.exp(logs - logs.max(axis=1, keepdims=True))
    behind: list[Any] = [each.release if isinstance(each, Filtered) else each for each in local]
    behind += [release for each in beliefs for release in each.releases]  # type: ignore[union-attr]
    return Beliefs(rows, joint / joint.sum(axis=1, keepdims=True), behind, weights)


def noisy_labels(releases: Sequence[Release | Filtered]) -> tuple[Numbers, Numbers]:
    """Return rows and one noisy label number for each, without those that were dropped."""
    rows, labels = [], []
    for each in releases:
        release, kept = (each.release, each.kept) if isinstance(each, Filtered) else (each, slice(None))
        rows.append(release.rows[kept])
        labels.append(release.label_numbers[kept])
    return np.concatenate(rows), np.concatenate(labels)
