"""Features that a user has already."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument

BYTES_AT_ONCE = 1 << 24


def given(features: Any, *, rows: int) -> NDArray[Any]:
    """Return a user's own features, read-only, one row of numbers per row of the data: (rows, d).

    Parameters
    ----------
    features : the path of a `.npy` file, which is memory-mapped, or an array in memory, which is not copied. What has more
        than two axes is flattened, row by row; a single axis is one feature.
    rows : how many rows the data has. Row i of the features must belong to row i of the data; only the count can be checked.

    Privacy
    -------
    Features must be public: made without the secret labels, for instance by a network trained on other data. Nothing here can
    check that.

    >>> given(np.zeros((4, 2, 3)), rows=4).shape
    (4, 6)
    """
    n_rows = checks.integer(rows=rows, at_least=1)
    if isinstance(features, (str, os.PathLike)):
        name, found = f"features in {Path(features)}", _opened(Path(features))
    else:
        name, found = "features", checks.array(features=features)
    if found.dtype.kind not in "fiub":
        raise InvalidArgument(f"{name} must be real numbers, got dtype {found.dtype}.")
    if found.ndim == 0 or len(found) != n_rows:
        got = "a single number" if found.ndim == 0 else f"{len(found)} rows (shape {found.shape})"
        raise InvalidArgument(
            f"{name} must have one row per row of the data, {n_rows}, in its order; got {got}. "
            "Features of other rows, or of a part of them, would be taken for those of these."
        )
    if found.size == 0:
        raise InvalidArgument(f"{name} must have at least one number per row, got shape {found.shape}.")
    flat = found.reshape(n_rows, -1)
    _check_finite(name, flat)
    flat = flat.view()  # the caller's own array stays writeable
    flat.flags.writeable = False
    return flat


def _opened(path: Path) -> NDArray[Any]:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InvalidArgument(f"there is no file {path}.") from None
    except (OSError, ValueError, EOFError) as error:
        raise InvalidArgument(
            f"{path} must be a whole .npy file of numbers, as numpy.save writes it ({type(error).__name__})."
        ) from None
    if not isinstance(found, np.ndarray):
        found.close()
        raise InvalidArgument(f"{path} must hold one array, as numpy.save writes it; it is an archive of several.")
    return found


def _check_finite(name: str, features: NDArray[Any]) -> None:
    if features.dtype.kind != "f":
        return
    at_once = max(1, BYTES_AT_ONCE // features[:1].nbytes)
    starts = range(0, len(features), at_once)
    wrong = sum(int((~np.isfinite(features[at : at + at_once]).all(axis=1)).sum()) for at in starts)
    if wrong:
        raise InvalidArgument(
            f"{name} must be finite; {wrong} of {len(features)} rows hold NaN or infinity. Replace them first."
        )
