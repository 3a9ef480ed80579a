"""What a caller gives beside the labels: features, a starting point, an order. All public, all checked before a charge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex.numbers import Floats, finite
from labeldp.convex.sets import ParameterSet
from labeldp.errors import InvalidArgument


def as_features(X: Any) -> NDArray[Any]:
    """Return X as an array of numbers, one row of features per label."""
    if isinstance(X, np.ma.MaskedArray):
        raise InvalidArgument(
            "X must not be a masked array, whose mask would be ignored: fill it, such as X.filled(0)."
        )
    given = checks.array(X=X)
    if given.ndim < 2 or given.dtype.kind not in "fiu" or not given.size:
        raise InvalidArgument(
            f"X must be numbers, one row of features per label; got {given.dtype} of shape {given.shape}."
        )
    return given


def member(start: Any, parameter_set: ParameterSet, dimension: int) -> Floats:
    """Return a starting point, which must lie in the parameter set."""
    first = finite(start=start)
    if first.shape != (dimension,):
        raise InvalidArgument(f"start must have one entry per parameter, shape ({dimension},), got {first.shape}.")
    if not parameter_set.contains(first):
        raise InvalidArgument("start must lie in the parameter set: give parameter_set.project(start).")
    return first


def permutation(order: Any, n_rows: int) -> NDArray[np.int64]:
    """Return an order of rows in which each occurs once; None means as they stand."""
    if order is None:
        return np.arange(n_rows)
    given = checks.array(order=order)
    if given.shape != (n_rows,) or given.dtype.kind not in "iu" or not _each_once(given):
        raise InvalidArgument(
            f"order must name each of the positions 0 .. {n_rows - 1} once: a row that is used twice voids the theorem."
        )
    return given.astype(np.int64)


def flag(**named: Any) -> bool:
    """Return the one named value, which must be True or False."""
    ((name, value),) = named.items()
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidArgument(f"{name} must be True or False, got {type(value).__name__}.")
    return bool(value)


def _each_once(given: NDArray[Any]) -> bool:
    return given.min() >= 0 and given.max() < len(given) and bool((np.bincount(given, minlength=len(given)) == 1).all())
