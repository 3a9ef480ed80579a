"""Bounded numeric targets on their way to UnbiasedResponse: moved to its grid at random, and right on average."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument, InvalidLabels
from labeldp.mechanisms.unbiased import UnbiasedResponse
from labeldp.randomness import Bits, below, known_bits
from labeldp.vault.frames import guarded
from labeldp.vault.labels import NumberedLabels, Unsealed

PARTS = 2**53
"""A chance of rounding up is a whole number of these parts. A power of two: each draw takes one word, whatever the targets."""

NOT_NUMBERS = "targets must be a column of finite numbers, integers or floats, at least one and none missing."

Floats = NDArray[np.float64]


def grid(low: Any, high: Any, step: Any) -> tuple[int, ...] | tuple[float, ...]:
    """Return low, low + step, .. high as classes of a vault: exactly the values of UnbiasedResponse(epsilon, low, high, step).

    >>> grid(1, 5, 1), grid(0, 1, "0.25")
    ((1, 2, 3, 4, 5), (0.0, 0.25, 0.5, 0.75, 1.0))
    """
    any_epsilon = 1  # the mechanism says what its grid is, and checks it; epsilon has no part in that
    exact = UnbiasedResponse(any_epsilon, low, high, step).values
    if all(value.denominator == 1 for value in exact):
        whole = tuple(map(int, exact))
        if max(map(abs, whole)) < 2**53:
            return whole
    else:
        decimal = tuple(map(float, exact))
        if tuple(Fraction(repr(value)) for value in decimal) == exact:
            return decimal
    raise InvalidArgument(
        "every grid value (low, low + step, .. high) must be a whole number below 2^53 in size or a decimal that a float can "
        f"hold (at most 15 digits, so no thirds); got low={low}, high={high}, step={step}."
    )


def on_grid(
    targets: Any, *, low: Any, high: Any, step: Any, clip: bool = False, bits: Bits | None = None
) -> NumberedLabels:
    """Move each target to one of the two grid values around it, at random, so that its mean is the target.

    Parameters
    ----------
    targets : a column of integers or floats: an array, a list or a pandas Series; none may be missing.
    low, high, step : the public grid, as UnbiasedResponse takes it. Declared, never learned from targets.
    clip : move targets beyond low or high to the nearer of them, instead of refusing the column.
    bits : None for operating-system entropy. `InsecureBits(seed)` is for tests.

    Returns
    -------
    labels for LabelVault(labels, classes=grid(low, high, step), ...).

    A target goes up with a chance equal to its place between the two values, to within 2^-53 of a step and the rounding of a
    float; one that is a grid value stays. The variance of this rounding is at most step^2 / 4.

    Privacy
    -------
    Costs none. Given any outcome of the rounding, a target is one grid value, and the response's law for one grid value is
    within e^epsilon of its law for any other. A target's own law is a mean of such laws, so that it keeps to the same bound;
    it would even for somebody who knew the coins. The rounding is drawn before the charge, but nothing of it leaves: what is
    returned are true labels, for the vault to seal. A refused column says only that some target lies outside, or is no number.

    >>> labels = on_grid([0.5, 2.25, 4], low=0, high=4, step=1)
    >>> vault = ldp.LabelVault(labels, classes=grid(0, 4, 1), budget="2")
    >>> len(vault.release(ldp.UnbiasedResponse(epsilon="2", low=0, high=4)).values)
    3
    """
    targets = Unsealed(targets)
    points, source = grid(low, high, step), known_bits(bits)
    rounded, problem = guarded(lambda: _try_to_round(targets, points, clip, source), "Targets were not rounded ({}).")
    if rounded is None:
        raise InvalidLabels(problem)
    return rounded


def _try_to_round(
    targets: Unsealed, classes: tuple[float, ...], clip: bool, bits: Bits
) -> tuple[NumberedLabels | None, str]:
    try:
        column = _finite_numbers(targets.labels)
        if column is None:
            return None, NOT_NUMBERS
        points = np.array(classes, dtype=np.float64)
        values = _read_as_grid_values(column, points)
        inside = np.clip(values, points[0], points[-1])
        if not clip and (inside != values).any():
            return None, (
                f"targets must all lie between low={classes[0]} and high={classes[-1]}; some do not (say clip=True to move "
                "them to the nearer bound)."
            )
        lower, parts_up = _chances(inside, points)
        goes_up = below(PARTS, len(values), bits) < parts_up
        return NumberedLabels((lower + goes_up).astype(np.int16)), ""
    except Exception:  # whatever numpy or pandas says could quote a target
        return None, NOT_NUMBERS


def _finite_numbers(targets: Any) -> NDArray[Any] | None:
    """Return a column of finite floats, of their own precision; None for anything else."""
    if isinstance(targets, np.ma.MaskedArray) and np.ma.getmaskarray(targets).any():
        return None
    if hasattr(targets, "isna") and hasattr(targets, "to_numpy"):  # pandas, not imported here
        targets = None if np.any(targets.isna()) else targets.to_numpy()
    if not isinstance(targets, (np.ndarray, list, tuple)):
        return None
    if not isinstance(targets, np.ndarray) or targets.dtype.kind == "O":
        targets = _of_one_dtype(list(targets))
    if targets is None or targets.ndim != 1 or len(targets) == 0 or targets.dtype.kind not in "iuf":
        return None
    fine = targets.dtype in (np.float16, np.float32, np.float64)
    values = np.asarray(targets) if fine else np.asarray(targets).astype(np.float64)
    return values if np.isfinite(values).all() else None


def _of_one_dtype(items: list[Any]) -> NDArray[Any] | None:
    kinds = set(map(type, items))
    if bool in kinds or not all(issubclass(kind, (int, float, np.integer, np.floating)) for kind in kinds):
        return None
    values = np.array(items)
    return values if values.dtype.kind in "iuf" else np.array(items, dtype=np.float64)  # integers of more than 64 bits


def _read_as_grid_values(column: NDArray[Any], points: Floats) -> Floats:
    """Return the targets as float64, where a grid value written at a lower precision (float32's 0.1) is that grid value."""
    values = column.astype(np.float64)
    nearest = np.searchsorted((points[1:] + points[:-1]) / 2, values)
    with np.errstate(over="ignore"):
        written = points.astype(column.dtype)[nearest]
    return np.where(written == column, points[nearest], values)


def _chances(values: Floats, points: Floats) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the grid number below each target, and in how many of PARTS it goes to the next one."""
    lower = np.minimum(np.searchsorted(points, values, side="right") - 1, len(points) - 2)
    share = (values - points[lower]) / (points[lower + 1] - points[lower])  # 0 on a grid value, 1 on the last, exactly
    return lower, np.rint(share * PARTS).astype(np.uint64)
