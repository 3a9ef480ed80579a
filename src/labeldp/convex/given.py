"""What a caller gives beside the labels: features, a starting point, an order. All public, all checked before a charge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex.numbers import CELLS, ROUNDING, Floats, finite, read_only
from labeldp.convex.sets import ParameterSet
from labeldp.errors import InvalidArgument

Rows = NDArray[np.int64]


def as_features(X: Any) -> NDArray[Any]:
    """Return X as an array of numbers, one row of features per label, that nobody writes to."""
    if hasattr(X, "toarray"):
        raise InvalidArgument("X must be a dense array, and it is a scipy sparse matrix: give X.toarray().")
    if isinstance(X, np.ma.MaskedArray):
        raise InvalidArgument(
            "X must not be a masked array, whose mask would be ignored: fill it, such as X.filled(0)."
        )
    given = checks.array(X=X)
    if given.ndim < 2 or given.dtype.kind not in "fiu" or not given.size:
        raise InvalidArgument(
            f"X must be numbers, one row of features per label; got {given.dtype} of shape {given.shape}."
        )
    return read_only(given)


def check_finite(X: NDArray[Any], rows: Rows) -> None:
    """Raise where a row that is used has a number that is none."""
    step = max(1, CELLS // math.prod(X.shape[1:]))
    used = (X[rows[at : at + step]].reshape(len(rows[at : at + step]), -1) for at in range(0, len(rows), step))
    refuse_infinite(np.concatenate([~np.isfinite(part).all(axis=1) for part in used]), rows)


def check_norms(X: NDArray[Any], rows: Rows, norm_bound: float) -> None:
    """Raise where a row that is used is longer than was declared, or not finite."""
    if X.ndim != 2:
        raise InvalidArgument(f"X must have two dimensions, rows and features; got shape {X.shape}.")
    step = max(1, CELLS // X.shape[1])
    used = (taken(X, rows[at : at + step]) for at in range(0, len(rows), step))
    squares = np.concatenate([np.einsum("ij,ij->i", part, part) for part in used])
    refuse_infinite(~np.isfinite(squares), rows)
    most = norm_bound * (1 + ROUNDING)
    longest = math.sqrt(float(squares.max()))
    if longest > most:
        longer = squares > most**2
        raise InvalidArgument(
            f"rows of X must have norm at most norm_bound={norm_bound:g}; {int(longer.sum())} of {len(rows)} are longer "
            f"(first: row {rows[longer.argmax()]}), up to {longest:.6g}. Scale the rows down, or declare a larger bound."
        )


def refuse_infinite(bad: NDArray[np.bool_], rows: Rows) -> None:
    if bad.any():
        raise InvalidArgument(
            f"X must be finite; {int(bad.sum())} of its {len(rows)} rows are not (first: row {rows[bad.argmax()]})."
        )


def taken(X: NDArray[Any], rows: Rows) -> Floats:
    """Return rows of X as numbers to read, without a copy where they stand together."""
    consecutive = bool((np.diff(rows) == 1).all())
    x = X[rows[0] : rows[-1] + 1] if consecutive else X[rows]
    return read_only(x.astype(np.float64, copy=False))


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
