"""Features of any kind that scikit-learn takes, by row number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples


class Rows:
    """X, so that X[rows] are rows, also of a DataFrame, a list or a sparse matrix: what learning asks of features."""

    def __init__(self, X: Any) -> None:
        self.X = X.tocsr() if issparse(X) else X if hasattr(X, "__getitem__") else np.asarray(X)
        self.n_rows = int(_num_samples(X))

    def __len__(self) -> int:
        return self.n_rows

    @property
    def is_column(self) -> bool:
        """Whether X is a single column, as texts may be, and labels are; also where it is not known to be anything else."""
        shape = getattr(self.X, "shape", None) or _as_table(self.X).shape
        return len(shape) < 2 or shape == (0, 0) or (len(shape) == 2 and shape[1] == 1)

    def __getitem__(self, rows: NDArray[Any]) -> Any:
        return _safe_indexing(self.X, rows)


def taken(values: Any, rows: NDArray[np.int64], n_rows: int) -> Any:
    """Return the entries of these rows, where something has one entry per row; otherwise the thing itself."""
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != n_rows:
        return values
    return _safe_indexing(values, rows)


def telling(X: Rows, at_most: int) -> NDArray[np.int64]:
    """Return rows to try something on: spread over X, and those where something is missing, infinite, least or greatest."""
    spread = np.linspace(0, len(X) - 1, min(len(X), at_most)).astype(np.int64)
    return np.unique(np.concatenate([spread, *map(np.atleast_1d, _odd_rows(X.X))])).astype(np.int64)


def _odd_rows(X: Any) -> Iterator[Any]:
    """Yield, for each column (or each of 100 sets of columns of an array), the rows that an estimator might stumble on."""
    if issparse(X):
        table = X.tocoo()
        yield table.row[_odd(table.data)]
    elif hasattr(X, "isna") and getattr(X, "ndim", 0) == 2:
        for number in range(X.shape[1]):
            column = X.iloc[:, number]
            missing = np.asarray(column.isna())
            yield np.flatnonzero(missing)[:1]
            known = np.flatnonzero(~missing)
            yield known[_odd(np.asarray(column.iloc[known]))]
    else:
        table = _as_table(X)
        for columns in np.array_split(np.arange(table.shape[1]), min(100, table.shape[1]) or 1):
            yield _odd(table[:, columns].ravel()) // max(1, len(columns))


def _as_table(X: Any) -> NDArray[Any]:
    try:
        table = np.asarray(X)
    except Exception:  # such as rows of different lengths, of which the estimator says what it thinks
        return np.empty((0, 0))
    return table if table.ndim == 2 else np.empty((0, 0))


def _odd(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of a missing value and of the least and the greatest, infinite where any is; or of one of each type."""
    if values.dtype.kind == "O":
        kinds = [_kind(value) for value in values.tolist()]
        return np.array([kinds.index(kind) for kind in set(kinds)], dtype=np.int64)
    if values.dtype.kind not in "iuf" or not len(values):
        return np.empty(0, dtype=np.int64)
    missing = np.isnan(values)
    least, greatest = np.where(missing, np.inf, values).argmin(), np.where(missing, -np.inf, values).argmax()
    return np.array([least, greatest, *np.flatnonzero(missing)[:1]])


def _kind(value: Any) -> Any:
    """Tell apart what an estimator may read otherwise: types, missing values, and texts that are numbers."""
    if value != value:
        return None
    if not isinstance(value, str):
        return type(value)
    try:
        float(value)
        return "a number"
    except ValueError:
        return str
