"""One phrasing for all validation: what must hold, what was given.

Everything checked here is public (counts, bounds, rows, priors); labels are checked in `vault.labels`, which says less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument

ROWS_AT_ONCE = 4_096
MAX_CLASSES = 100_000
PRIOR_SUM_TOLERANCE = 1e-3


def integer(*, at_least: int, at_most: int | None = None, **named: Any) -> int:
    """Return the one named value as an int in the given range."""
    ((name, value),) = named.items()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidArgument(f"{name} must be an integer, got {type(value).__name__}.")
    if value < at_least or (at_most is not None and value > at_most):
        limits = f"at least {at_least}" if at_most is None else f"between {at_least} and {at_most}"
        got = value if -(10**40) < value < 10**40 else "one of more than 40 digits"
        raise InvalidArgument(f"{name} must be {limits}, got {got}.")
    return int(value)


def one_of(allowed: tuple[str, ...], **named: Any) -> str:
    """Return the one named value, which must be one of the allowed words."""
    ((name, value),) = named.items()
    if not isinstance(value, str) or value not in allowed:
        shown = repr(value) if isinstance(value, str) else type(value).__name__
        raise InvalidArgument(f"{name} must be one of {', '.join(map(repr, allowed))}, got {shown}.")
    return value


def share(*, below_one: bool = False, **named: Any) -> float:
    """Return the one named value, a number in [0, 1], or below 1."""
    ((name, value),) = named.items()
    if not isinstance(value, (int, float, np.number)) or not 0 <= value <= 1 or (below_one and value == 1):
        got = value if isinstance(value, (int, float)) else type(value).__name__
        raise InvalidArgument(f"{name} must {'lie in [0, 1)' if below_one else 'be between 0 and 1'}, got {got}.")
    return float(value)


def text(*, at_most: int = 200, **named: Any) -> str:
    """Return the one named value, a short piece of printable text."""
    ((name, value),) = named.items()
    if not isinstance(value, str) or not 0 < len(value) <= at_most or not value.isprintable():
        raise InvalidArgument(f"{name} must be 1 to {at_most} printable characters.")
    return value


def array(**named: Any) -> NDArray[Any]:
    """Return the one named public value as an array."""
    ((name, value),) = named.items()
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgument(f"{name} must be an array or a list of plain values.") from None


def rows(rows: Any, n_rows: int) -> NDArray[np.int64]:
    """Return row numbers from a boolean mask, strictly increasing integers, or None for all rows."""
    if rows is None:
        return np.arange(n_rows, dtype=np.int64)
    chosen = array(rows=rows)
    if chosen.ndim != 1:
        raise InvalidArgument(f"rows must have one dimension, got shape {chosen.shape}.")
    if chosen.dtype == np.bool_:
        if len(chosen) != n_rows:
            raise InvalidArgument(f"rows as a mask must have one entry per row ({n_rows}), got {len(chosen)}.")
        chosen = np.flatnonzero(chosen)
    elif len(chosen) and chosen.dtype.kind not in "iu":
        raise InvalidArgument(f"rows must be a boolean mask or integers, got dtype {chosen.dtype}.")
    if len(chosen) == 0:
        raise InvalidArgument("rows must name at least one row, got none.")
    if chosen.dtype.kind == "u" and chosen.max() >= np.uint64(2**63):
        raise InvalidArgument(f"rows must lie below the row count {n_rows}.")
    chosen = chosen.astype(np.int64)
    if chosen[0] < 0 or chosen[-1] >= n_rows or (chosen[1:] <= chosen[:-1]).any():
        raise InvalidArgument(
            f"rows must be strictly increasing integers from 0 to {n_rows - 1}: sort them and name each row once."
        )
    return chosen


def finite_rows(X: Any, rows: NDArray[np.int64]) -> None:
    """Raise unless all numbers in these rows of X are finite, as float32 too. Some rows at a time: X may lie on a disk."""
    if np.dtype(str(getattr(X, "dtype", "O")).removeprefix("torch.").replace("bfloat16", "float32")).kind != "f":
        return
    for at in range(0, len(rows), ROWS_AT_ONCE):
        part = X[rows[at : at + ROWS_AT_ONCE]]
        with np.errstate(over="ignore"):
            part = part.float().numpy(force=True) if hasattr(part, "float") else np.asarray(part, np.float32)
        if not np.isfinite(part).all():
            raise InvalidArgument(
                "X must be finite: some of its numbers are missing (NaN), infinite or too large for float32."
            )


def probabilities(priors: Any, n_rows: int, n_classes: int) -> NDArray[np.floating[Any]]:
    """Return prior probabilities as a float32 or float64 array of shape (n_rows, n_classes)."""
    table = array(priors=priors)
    if table.dtype.kind not in "fiu":
        raise InvalidArgument(f"priors must be numbers, got dtype {table.dtype}.")
    if table.shape != (n_rows, n_classes):
        raise InvalidArgument(f"priors must have shape ({n_rows}, {n_classes}), got {table.shape}.")
    with np.errstate(invalid="ignore", over="ignore"):
        if table.dtype not in (np.float32, np.float64):
            table = table.astype(np.float32 if table.dtype == np.float16 else np.float64)
        sums = np.einsum("ij->i", table)  # quicker than sum(axis=1) on short rows, and starts no threads
        fair = np.abs(sums - 1) <= PRIOR_SUM_TOLERANCE  # NaN and infinity fail this comparison
        if not fair.all():
            raise InvalidArgument(
                "each row of priors must be finite and sum to 1 "
                f"(within {PRIOR_SUM_TOLERANCE}); {int((~fair).sum())} of {n_rows} rows are not."
            )
        if table.min(initial=0) < 0:
            raise InvalidArgument("priors must not be negative.")
    return table
