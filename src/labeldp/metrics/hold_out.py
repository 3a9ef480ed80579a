"""What every figure asks of a hold-out, and how the noise of its reports is undone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.vault import Release

Floats = NDArray[np.float64]


def check_hold_out(release: Any) -> None:
    """Raise unless a release is fit to grade models: by plain randomized response, whose map depends on no model."""
    if not isinstance(release, Release) or release.receipt.mechanism.get("name") != "RandomizedResponse":
        raise InvalidArgument(
            "a hold-out must be released by RandomizedResponse: reports drawn with a model's prior let that model grade itself."
        )


def check_probabilities(release: Release, probabilities: Any) -> NDArray[np.floating[Any]]:
    """Return predictions as an array with one row of class probabilities per row of the release."""
    try:
        return checks.probabilities(probabilities, len(release), len(release.classes))
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("priors", "probabilities")) from None


def check_column(release: Release, **named: Any) -> NDArray[Any]:
    """Return the one named value as an array with one finite number per row of the release."""
    (name,) = named
    column = checks.array(**named)
    if column.dtype.kind not in "fiu":
        raise InvalidArgument(f"{name} must be numbers, got dtype {column.dtype}.")
    if column.shape != (len(release),):
        raise InvalidArgument(
            f"{name} must have one number per row of the hold-out, {len(release)}; got {column.shape}."
        )
    if not np.isfinite(column).all():
        raise InvalidArgument(f"{name} must be finite; {int((~np.isfinite(column)).sum())} of {len(column)} are not.")
    return column


def weights(release: Release) -> tuple[float, float]:
    """Return how much the reported label of a row counts, and how much every other one, where the noise is undone."""
    first = release.debiased_weights(rows=[0])[0]
    return float(first.max()), float(first.min())


def debiased(release: Release, losses: Floats) -> Floats:
    """Return one term per row whose mean over the noise is the loss of the row's true label.

    Parameters
    ----------
    losses : of each row, what it would be under each label; shape (rows, K).
    """
    own, other = weights(release)
    reported = np.take_along_axis(losses, release.label_numbers[:, None], axis=1)[:, 0]
    return (own - other) * reported + other * losses.sum(axis=1)


def noise_variance(release: Release, losses: Floats) -> float:
    """Return the variance that the noise alone gives to a row's debiased term, averaged over the rows.

    A term's square has mean (loss of the true label)^2 + variance of the noise, and the first of these can be debiased too.
    With two classes what remains does not depend on the reports: it is known, even where by luck no report was noise.
    """
    return max(float((debiased(release, losses) ** 2 - debiased(release, losses**2)).mean()), 0.0)
