"""What the numbers of a convex problem must be: finite, and of the right size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.epsilon import exact_number
from labeldp.errors import InvalidArgument

Floats = NDArray[np.float64]

SMALLEST, LARGEST = 1e-100, 1e100
"""Within these, squares, products and quotients of two sizes are numbers of double precision."""

SMALLEST_DELTA = "1e-18"
"""A guarantee counts delta in whole units of it."""

CELLS = 2**20  # numbers to hold at once
ROUNDING = 1e-6  # relative: rows scaled to their bound in single precision stay within it

RESCALE = "scale the rows, the class values or the parameter set"


def number(**named: Any) -> float:
    """Return the one named value as a finite float."""
    ((name, value),) = named.items()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidArgument(f"{name} must be a number, got {type(value).__name__}.")
    if not math.isfinite(value):
        raise InvalidArgument(f"{name} must be finite, got {value}.")
    return float(value)


def positive(**named: Any) -> float:
    """Return the one named value as a finite float above 0."""
    ((name, value),) = named.items()
    if not number(**named) > 0:
        raise InvalidArgument(f"{name} must be > 0, got {value}.")
    return float(value)


def size(**named: Any) -> float:
    """Return the one named value, a length or a ratio of lengths, as a float from 1e-100 to 1e100."""
    ((name, value),) = named.items()
    if not SMALLEST <= positive(**named) <= LARGEST:
        raise InvalidArgument(f"{name} must be between {SMALLEST:g} and {LARGEST:g}, got {value:.6g}: {RESCALE}.")
    return float(value)


@contextmanager
def in_double_precision() -> Iterator[None]:
    """Refuse what leaves double precision on the way: a number beyond it is left for the check of the result."""
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            yield
    except (OverflowError, ZeroDivisionError):
        raise InvalidArgument(f"the sizes of this problem must be numbers of double precision: {RESCALE}.") from None


def share(**named: Any) -> float:
    """Return the one named value as a float from 0 to 1."""
    ((name, value),) = named.items()
    if not 0 <= number(**named) <= 1:
        raise InvalidArgument(f"{name} must be between 0 and 1, got {value}.")
    return float(value)


def some_delta(delta: Any) -> Any:
    """Return a delta as it was given, which must be one that a Gaussian guarantee can have."""
    if not Fraction(SMALLEST_DELTA) <= exact_number(delta, name="delta") < 1:
        raise InvalidArgument(f"delta must be from {SMALLEST_DELTA} to below 1, got {delta}.")
    return delta


def finite(**named: Any) -> Floats:
    """Return the one named value as an array of finite floats, which nobody else can write to."""
    ((name, _),) = named.items()
    array = checks.array(**named)
    if array.dtype.kind not in "fiu":
        raise InvalidArgument(f"{name} must be numbers, got dtype {array.dtype}.")
    copy: Floats = array.astype(np.float64)
    if not np.isfinite(copy).all():
        raise InvalidArgument(
            f"{name} must be finite; {int((~np.isfinite(copy)).sum())} of {copy.size} entries are not."
        )
    copy.flags.writeable = False
    return copy


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that a caller's function can read, and not write to by mistake."""
    view = array.view()
    view.flags.writeable = False
    return view
