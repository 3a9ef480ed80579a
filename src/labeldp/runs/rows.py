"""New rows for a scikit-learn model, checked against the public description of those it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from labeldp.errors import InvalidArgument

Inputs = dict[str, Any]


def read(path: Path, inputs: Inputs) -> Any:
    """Read new rows from a .csv or .parquet file. Other columns, such as the label's, are not looked at."""
    from labeldp.datasets import table

    if inputs["kind"] == "frame":
        return table.read_features(path, inputs)
    if inputs["kind"] != "table":
        raise InvalidArgument(
            f"{path} is a table, and this run's model reads rows of kind {inputs['kind']!r}: give a .npy file."
        )
    numbers = {"kind": "frame", "columns": [{"name": name, "kind": "number"} for name in inputs["columns"]]}
    return table.read_features(path, numbers).to_numpy()


def column(path: Path, name: str | None) -> dict[str, list[Any]]:
    """Return a column of public ids by its name; nothing if there is none."""
    from labeldp.bulk.tables import open_table

    table = open_table(path)
    if name is None or name not in table.names:
        return {}
    return {name: [cell for batch in table.batches([name]) for cell in batch.column(0).to_pylist()]}


def check_images(X: Any, inputs: Inputs) -> None:
    """Raise unless X holds images as a run was trained on: of the same shape, bytes or, as floats, between 0 and 1."""
    if inputs["kind"] != "image":
        return
    shape, kind = tuple(inputs["shape"]), str(getattr(X, "dtype", type(X).__name__)).removeprefix("torch.")
    fits = tuple(getattr(X, "shape", ()))[1:] == shape
    if not fits or not (kind == "uint8" or (kind in ("float32", "float64") and bool(((X >= 0) & (X <= 1)).all()))):
        got = f"{kind} of shape {tuple(X.shape)}" if hasattr(X, "shape") else kind
        raise InvalidArgument(
            f"X must be images as the run was trained on, bytes (uint8) of shape {('n', *shape)}, or floats between 0 and 1; "
            f"got {got}."
        )


def readable(X: Any, inputs: Inputs) -> Any:
    """Return rows as scikit-learn's models read them, or say what they must be."""
    from labeldp.sklearn import named

    if inputs["kind"] == "frame":
        return named.readable(_frame(X, inputs), inputs)
    shape = _shape(inputs)
    if not isinstance(X, np.ndarray) or X.shape[1:] != shape or X.dtype.kind not in "fiu":
        got = f"{X.dtype} of shape {X.shape}" if isinstance(X, np.ndarray) else type(X).__name__
        raise InvalidArgument(f"X must be an array of numbers, ({', '.join(('n', *map(str, shape)))}); got {got}.")
    return named.readable(X, inputs)


def _shape(inputs: Inputs) -> tuple[int, ...]:
    if inputs["kind"] == "image":
        return tuple(inputs["shape"])
    return (inputs["size"] if inputs["kind"] == "vector" else len(inputs["columns"]),)


def _frame(X: Any, inputs: Inputs) -> Any:
    """Return the columns of a frame as those of the table were read."""
    from labeldp.datasets import columns

    names = [column["name"] for column in inputs["columns"]]
    if not isinstance(X, columns.pd.DataFrame):
        raise InvalidArgument(f"X must be a DataFrame with the table's columns, got {type(X).__name__}.")
    lacking = [name for name in names if name not in X.columns]
    if lacking:
        raise InvalidArgument(
            f"X must have the columns of the training table; it lacks {', '.join(map(repr, lacking))}."
        )
    read = {}
    for column in inputs["columns"]:
        try:
            cells = columns.pa.chunked_array([columns.pa.Array.from_pandas(X[column["name"]])])
        except (columns.pa.ArrowInvalid, columns.pa.ArrowTypeError):
            raise InvalidArgument(f"X: column {column['name']!r} must hold numbers, text, booleans or dates.") from None
        read[column["name"]] = columns.read(cells, column, source="X")
    return columns.pd.DataFrame(read)
