"""How a model does: on public test data as it is, on held-out rows by what was noisily released of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import metrics
from labeldp.datasets import Dataset
from labeldp.errors import NotIdentifiable
from labeldp.learning import Learner
from labeldp.learning.records import Record
from labeldp.vault import Release

Probabilities = NDArray[np.floating[Any]]

CONFIDENCE = 0.95


def tested_on(data: Dataset) -> Callable[[Learner], Record] | None:
    """Return how a model does on public test rows; None where there are none."""
    if data.public_test is None:
        return None
    return lambda model: tested(data, model.predict_proba(data.X_test))


def tested(data: Dataset, predicted: Probabilities) -> Record:
    """Return how probabilities of the public test rows do: accuracy, or the error of the expected rating."""
    truth = data.test_labels
    if data.inputs["kind"] == "ids":
        values = np.array(data.classes, dtype=np.float64)
        error = predicted.astype(np.float64) @ values - values[truth]
        return {"rows": len(truth), "rmse": float(np.sqrt(np.mean(error**2)))}
    confusion = np.zeros((len(data.classes),) * 2, dtype=np.int64)
    np.add.at(confusion, (truth, predicted.argmax(axis=1)), 1)
    return {
        "rows": len(truth),
        "accuracy": float(np.trace(confusion) / len(truth)),
        "top_k": top_k(truth, predicted),
        "confusion": confusion.tolist(),
    }


def top_k(truth: NDArray[np.int64], predicted: Probabilities) -> list[float]:
    """Return, for k = 1 .. K, the share of rows whose class is among the k most likely ones; of equals, the first is.

    >>> top_k(np.array([0, 2]), np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]]))
    [0.5, 0.5, 1.0]
    """
    order = np.argsort(-predicted, axis=1, kind="stable")
    places = np.argmax(order == truth[:, None], axis=1)
    found = np.bincount(places, minlength=predicted.shape[1]).cumsum() / len(truth)
    return [float(share) for share in found]


def held_out(release: Release, probabilities: Probabilities) -> Record:
    """Return the figures of a model for rows that were only released to grade models on, each with its interval.

    Privacy
    -------
    Free: it reads a release. What noise leaves untold is left out, such as an AUC where a class may not occur.
    """
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
