"""What releases say about rows, as arrays: the evidence that learners read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.learning.learner import Examples, Filtered
from labeldp.vault import Release

Numbers = NDArray[np.int64]


def checked(releases: Any) -> list[Examples]:
    """Return a list of releases of the same classes, from one or several; anything else, above all labels, is refused."""
    given = list(releases) if isinstance(releases, Sequence) else [releases]
    if not given or not all(isinstance(each, Examples) for each in given):
        raise InvalidArgument("releases must be one or more releases of a vault; a learner takes no labels.")
    if len({classes_of(each) for each in given}) > 1:
        raise InvalidArgument("releases must all have the same classes.")
    return given


def classes_of(each: Examples) -> tuple[Any, ...]:
    return each.release.classes if isinstance(each, Filtered) else each.classes


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


def noisy_labels(releases: Sequence[Release | Filtered]) -> tuple[Numbers, Numbers]:
    """Return rows and one noisy label number for each, without those that were dropped."""
    rows, labels = [], []
    for each in releases:
        release, kept = (each.release, each.kept) if isinstance(each, Filtered) else (each, slice(None))
        rows.append(release.rows[kept])
        labels.append(release.label_numbers[kept])
    return np.concatenate(rows), np.concatenate(labels)
