"""What is told while stages are asked and trained: public figures alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from labeldp.learning.learner import Examples, Filtered, Learner
from labeldp.metrics.accuracy import accuracy
from labeldp.vault import HistogramRelease, Release

Record = dict[str, Any]
Watch = Callable[[Record], None]


def nobody(record: Record) -> None:
    """Watch, and tell nobody."""


def of_stage(number: int, stages: int, release: Release, temperature: float | None, filtered: Record | None) -> Record:
    """Return the record of a stage whose labels have answered one by one."""
    sizes, counts = np.unique(release.sizes, return_counts=True)
    return {
        "kind": "stage",
        "stage": number,
        "stages": stages,
        "rows": len(release),
        "charged": release.receipt.labels_charged,
        "mechanism": release.receipt.mechanism["name"],
        "epsilon": release.receipt.epsilon,
        "temperature": temperature,
        "groups": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
        "mean_groups": float(release.sizes.mean()),
        "filtered": filtered,
        "private": release.private,
    }


def of_counts(counts: HistogramRelease, stages: int) -> Record:
    """Return the record of stage 0: counts of clusters."""
    return {
        "kind": "stage",
        "stage": 0,
        "stages": stages,
        "rows": len(counts.rows),
        "charged": counts.receipt.labels_charged,
        "mechanism": counts.receipt.mechanism["name"],
        "epsilon": counts.receipt.epsilon,
        "temperature": None,
        "groups": {},
        "mean_groups": None,
        "clusters": len(counts.totals),
        "filtered": None,
        "private": counts.private,
    }


def of_filter(earlier: Sequence[Examples], k: int) -> Record:
    """Return how many rows of earlier stages were kept, because their report is among the last model's k likeliest."""
    kept = [each.kept for each in earlier if isinstance(each, Filtered)]
    return {"rows": sum(map(len, kept)), "kept": int(sum(mask.sum() for mask in kept)), "k": k}


def grade(model: Learner, X: Any, hold_out: Release | None) -> Record | None:
    """Return how a model that reads X does on the hold-out's noisy answers, if there are any."""
    if hold_out is None:
        return None
    found = accuracy(hold_out, model.predict_proba(X[hold_out.rows]))
    return {"accuracy": found.value, "standard_error": found.standard_error, "rows": found.rows}
