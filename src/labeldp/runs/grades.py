"""How a model does: on public test data as it is, on held-out rows by what was noisily released of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labeldp import metrics
from labeldp.datasets import Dataset
from labeldp.errors import NotIdentifiable
from labeldp.learning import Learner
from labeldp.vault import Release

Record = dict[str, Any]

CONFIDENCE = 0.95


def tested_on(data: Dataset) -> Callable[[Learner], Record] | None:
    """Return how a model does on public test rows: accuracy, or the error of the expected rating. None where there are none."""
    if data.public_test is None:
        return None

    def test(model: Learner) -> Record:
        predicted, truth = model.predict_proba(data.X_test), data.test_labels
        if data.inputs["kind"] == "ids":
            values = np.array(data.classes, dtype=np.float64)
            error = predicted.astype(np.float64) @ values - values[truth]
            return {"rows": len(truth), "rmse": float(np.sqrt(np.mean(error**2)))}
        confusion = np.zeros((len(data.classes),) * 2, dtype=np.int64)
        np.add.at(confusion, (truth, predicted.argmax(axis=1)), 1)
        return {
            "rows": len(truth),
            "accuracy": float(np.trace(confusion) / len(truth)),
            "confusion": confusion.tolist(),
        }

    return test


def held_out(release: Release, model: Learner, X: Any) -> Record:
    """Return the figures of a model on rows that were only released to grade models on, each with its interval.

    Privacy
    -------
    Free: it reads a release. What noise leaves untold is left out, such as an AUC where a class may not occur.
    """
    probabilities = model.predict_proba(X[release.rows])
    figures = {"accuracy": metrics.accuracy, "log_loss": metrics.log_loss}
    if len(release.classes) == 2:
        figures["auc"] = metrics.auc
    record: Record = {"kind": "hold-out", "rows": len(release), "confidence": CONFIDENCE}
    for name, estimate in figures.items():
        try:
            record[name] = _plain(estimate(release, probabilities))
        except NotIdentifiable:
            record[name] = None
    return record


def _plain(found: metrics.Estimate) -> Record:
    low, high = found.interval(CONFIDENCE)
    numbers = {"value": found.value, "standard_error": found.standard_error, "low": low, "high": high}
    return {name: float(number) if math.isfinite(number) else None for name, number in numbers.items()}
