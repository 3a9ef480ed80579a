"""How good predictions are, estimated from reports of plain randomized response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.vault import Release


@dataclass(frozen=True, slots=True)
class Estimate:
    """An unbiased estimate and its standard error."""

    value: float
    standard_error: float
    rows: int

    def __str__(self) -> str:
        return f"{self.value:.1%} ± {self.standard_error:.1%}"


def accuracy(release: Release, probabilities: Any) -> Estimate:
    """Estimate how often the most likely class is the true one, without bias.

    Under randomized response a right prediction is reported with chance p and a wrong one with chance q, whatever the label,
    so (1[report = prediction] - q) / (p - q) has the chance of being right as its mean.

    Parameters
    ----------
    release : hold-out rows, released by RandomizedResponse.
    probabilities : one row of K probabilities per row of the release, of a model that was not trained on them.
    """
    table = _checked(release, probabilities)
    first = release.likelihood(rows=[0])[0]
    p, q = float(first.max()), float(first.min())
    if not p > q:
        raise InvalidArgument("the hold-out's epsilon is 0: its reports say nothing.")
    right = (release.label_numbers == table.argmax(axis=1)).astype(np.float64)
    spread = float(right.std(ddof=1)) if len(right) > 1 else float("nan")
    return Estimate(float((right.mean() - q) / (p - q)), spread / len(right) ** 0.5 / (p - q), len(right))


def log_likelihood(release: Release, probabilities: Any) -> Estimate:
    """Return the mean log probability that the model gives to the hold-out's reports: the quieter figure to choose by."""
    table = _checked(release, probabilities)
    logs = np.log((table * release.likelihood()).sum(axis=1))
    spread = float(logs.std(ddof=1)) if len(logs) > 1 else float("nan")
    return Estimate(float(logs.mean()), spread / len(logs) ** 0.5, len(logs))


def check_hold_out(release: Any) -> None:
    """Raise unless a release is fit to grade models: by plain randomized response, whose map depends on no model."""
    if not isinstance(release, Release) or release.receipt.mechanism.get("name") != "RandomizedResponse":
        raise InvalidArgument(
            "a hold-out must be released by RandomizedResponse: reports drawn with a model's prior let that model grade itself."
        )


def _checked(release: Any, probabilities: Any) -> NDArray[np.floating[Any]]:
    check_hold_out(release)
    return checks.probabilities(probabilities, len(release), len(release.classes))
