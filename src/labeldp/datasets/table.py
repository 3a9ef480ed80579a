"""A table of one's own, CSV or Parquet: one column is the label, which is sealed as it is read; the others are features."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.bulk.arrow import pa
from labeldp.bulk.book import open_book
from labeldp.bulk.declared import MISSING, DeclaredClasses
from labeldp.bulk.labels import LabelColumn, read_labels
from labeldp.bulk.tables import Table, open_table
from labeldp.datasets import columns
from labeldp.datasets.dataset import Dataset
from labeldp.errors import InvalidArgument, InvalidLabels
from labeldp.vault.labels import Classes, NumberedLabels, ids_as_text

if TYPE_CHECKING:
    from pandas import DataFrame

Place = str | os.PathLike[str]


def load(
    path: Place,
    *,
    label: str,
    classes: int | Sequence[str] | Sequence[int],
    id_column: str | None = None,
    drop: Sequence[str] = (),
    missing: str | None = None,
    public_test: Place | None = None,
) -> Dataset:
    r"""Read a table, seal its label column, and make features of the others.

    X is a pandas DataFrame. A column is float64 if it holds numbers: in CSV, if every cell that is not empty is a finite
    number ("NA" is text). Dates of Parquet are seconds since 1970; dates of CSV are text. Text and booleans are pandas
    categories, at most 255 in a column, where "(other)" stands for the rarest of more. Empty cells are missing in both; a
    column of nothing else has no categories. What was decided is `inputs`, by which `read_features` reads later files.

    Parameters
    ----------
    path : a file that ends in .csv or .parquet. All its rows are training rows: no split is made here.
    label : the column of true labels.
    classes : all that the labels may be: a count, or names. Given, never learned from the labels.
    id_column : a column of unique public ids, by which a ledger knows the rows; without one it knows them by position.
    drop : columns to leave out of X, such as one that tells the label.
    missing : "public" if which labels are missing may be known; their rows are never released. Otherwise none may be.
    public_test : another file with the same columns, whose true labels are public, to test on. Without one X_test is empty. It
        must hold no training row: of ids none may be the table's; where it has none, at most half of its rows may equal
        training rows in all features. A file whose labels were ever charged to a ledger is no public test.

    Privacy
    -------
    No label of `path` is in an error, a repr, a pickle or X. Public: the number and order of rows, the ids, every other column,
    and the labels of `public_test`. A column that tells the label (a copy of it, say) is a feature like any other: drop it.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("age,job,income\n31,nurse,low\n45,,high\n")
    >>> data = load(file, label="income", classes=["low", "high"])
    >>> data
    <Dataset people.csv: 2 rows, 2 classes, labels sealed>
    >>> data.inputs["columns"]
    [{'name': 'age', 'kind': 'number'}, {'name': 'job', 'kind': 'category', 'categories': ['nurse']}]
    """
    declared, dropped = _declared(classes), _dropped(drop)
    if missing is not None:
        checks.one_of(("public",), missing=missing)
    if id_column is not None and id_column == label:
        raise InvalidArgument("the id column must not be the label column: ids are public.")
    table = open_table(Path(path))
    if public_test is not None and os.path.samefile(path, public_test):
        raise InvalidArgument(
            "public_test must be another file: its labels are public, and those of the table are not."
        )
    table.check_has([label, *([] if id_column is None else [id_column]), *dropped], never_told=_texts(declared))
    features = [name for name in table.names if name not in (label, id_column, *dropped)]
    if not features:
        raise InvalidArgument(f"{table.path} must have at least one column to be a feature, beside the label.")
    column = _read_labels(table, label, id_column, declared, missing)
    arrow = _read_columns(table, features)
    inputs = {"kind": "frame", "columns": [columns.describe(name, arrow.column(name)) for name in features]}
    X = _frame(arrow, inputs, table)
    ids = None if column.ids is None else ids_as_text(column.ids, len(X))
    X_test, test_labels = X.iloc[:0], np.empty(0, dtype=np.int64)
    if public_test is not None:
        test = open_table(Path(public_test))
        with open_book(test.path) as book:
            book.check_public()
        X_test = _test_rows(test, inputs, X=X, id_column=id_column, ids=ids)
        test_labels = _public_labels(test, label, declared)
    return Dataset(
        table.path.name,
        X=X,
        labels=NumberedLabels(column.numbers),
        classes=declared.names,
        X_test=X_test,
        test_labels=test_labels,
        inputs=inputs,
        ids=ids,
        missing=missing,
        public_test=None if public_test is None else os.fspath(public_test),
    )


def read_features(path: Place, inputs: dict[str, Any]) -> DataFrame:
    """Read the features of another file as those of a loaded table were read.

    Parameters
    ----------
    path : a file that ends in .csv or .parquet and has all columns of `inputs`, in any order. Other columns are not looked at.
    inputs : `Dataset.inputs` of the loaded table.

    A category that the table did not have is "(other)" where the table had rare ones, and missing otherwise.
    """
    if not isinstance(inputs, dict) or inputs.get("kind") != "frame":
        raise InvalidArgument('inputs must be those of a table that was loaded: {"kind": "frame", "columns": [..]}.')
    table = open_table(Path(path))
    names = [description["name"] for description in inputs["columns"]]
    table.check_has(names)
    X = _frame(_read_columns(table, names), inputs, table)
    if not len(X):
        raise InvalidArgument(f"{table.path} has no rows.")
    return X


def _declared(classes: Any) -> DeclaredClasses:
    names = Classes.declared(classes).names
    if isinstance(names[0], str):
        return DeclaredClasses.of([str(name) for name in names])
    if not isinstance(names[0], int) or isinstance(names[0], bool):
        raise InvalidArgument("classes must be a count, text or integers, such as classes=['false', 'true'].")
    return DeclaredClasses(tuple(int(name) for name in names))


def _dropped(drop: Any) -> tuple[str, ...]:
    if isinstance(drop, str) or not all(isinstance(name, str) for name in drop):
        raise InvalidArgument("drop must be a list of column names.")
    return tuple(drop)


def _texts(classes: DeclaredClasses) -> list[str]:
    return [str(name) for name in classes.names]


def _read_labels(
    table: Table, label: str, id_column: str | None, classes: DeclaredClasses, missing: str | None
) -> LabelColumn:
    try:
        return read_labels(
            table, label=label, id_column=id_column, classes=classes, missing=missing, advance=lambda _: None
        )
    except InvalidLabels as error:
        problem = f"{table.path}: {error}"
    raise InvalidLabels(problem)


def _read_columns(table: Table, names: list[str]) -> Any:
    schema = pa.schema([table.schema.field(name) for name in names])
    arrow = pa.Table.from_batches(list(table.batches(names)), schema=schema)
    table.check_unchanged()
    return arrow


def _frame(arrow: Any, inputs: dict[str, Any], table: Table) -> DataFrame:
    described = {description["name"]: description for description in inputs["columns"]}
    return columns.pd.DataFrame(
        {name: columns.read(arrow.column(name), how, source=table.path) for name, how in described.items()}
    )


def _test_rows(
    table: Table, inputs: dict[str, Any], *, X: DataFrame, id_column: str | None, ids: list[str] | None
) -> DataFrame:
    """Return the features of a public test file, if they are not those of training rows, whose labels are secret."""
    path = table.path
    X_test = read_features(path, inputs)
    if ids is not None and id_column in table.names:
        if not _test_ids(table, id_column).isdisjoint(ids):
            raise InvalidArgument(
                f"{path} has rows with ids of training rows, whose labels are secret: a public test must have other rows."
            )
    elif 2 * _n_known(X_test, X) > len(X_test):
        raise InvalidArgument(
            f"most rows of {path} equal training rows in all features: these look like training rows, whose labels are secret. "
            "If they are not, give --id, a column of ids in both files, so that it can be told."
        )
    return X_test


def _test_ids(table: Table, id_column: str) -> set[str]:
    cells = _read_columns(table, [id_column]).column(id_column).to_pylist()
    try:
        return set(ids_as_text(cells, len(cells)))
    except InvalidArgument as error:
        raise InvalidArgument(f"{table.path}: {error}") from None


def _n_known(X_test: DataFrame, X: DataFrame) -> int:
    """Count the test rows that equal some training row in all features. Features are public, so this is free."""
    asked = Counter(_rows_as_bytes(X_test))
    return sum(asked[row] for row in {row for row in _rows_as_bytes(X) if row in asked})


def _rows_as_bytes(X: DataFrame) -> Iterator[bytes]:
    columns = [X[name].cat.codes if X[name].dtype == "category" else X[name] for name in X.columns]
    numbers = np.column_stack([column.to_numpy(dtype=np.float64) for column in columns]) + 0.0  # -0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan  # one of its many forms
    return (row.tobytes() for row in numbers)


def _public_labels(table: Table, label: str, classes: DeclaredClasses) -> NDArray[np.int64]:
    """Return the labels of a public test file, which must not have changed since it was opened."""
    table.check_has([label], never_told=_texts(classes))
    numbers = _read_labels(table, label, None, classes, "public").numbers.astype(np.int64)
    if (numbers == MISSING).any():
        raise InvalidLabels(f"{table.path}: the labels of a public test must not be missing.")
    table.check_unchanged()
    return numbers
