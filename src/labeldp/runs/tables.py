"""A file of one's own as the data of a run: where it is, what may be read of it, and the book and ledger beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labeldp.datasets import Dataset
from labeldp.runs.recipe import Recipe

if TYPE_CHECKING:
    from labeldp.bulk.book import Book, Columns

Facts = dict[str, Any]


def path_of(recipe: Recipe, data_dir: Path | None) -> Path:
    """Return where a recipe's file is; `data_dir` is where relative paths start."""
    return Path(data_dir or "") / recipe.data


def public_test_of(recipe: Recipe, data_dir: Path | None) -> Path | None:
    assert recipe.table is not None
    return None if recipe.table.public_test is None else Path(data_dir or "") / recipe.table.public_test


def load(recipe: Recipe, data_dir: Path | None) -> Dataset:
    """Read a recipe's file and seal its labels."""
    from labeldp.datasets import table

    given = recipe.table
    assert given is not None
    return table.load(
        path_of(recipe, data_dir),
        label=given.label,
        classes=given.classes,
        id_column=given.id,
        drop=given.drop,
        missing=given.missing,
        public_test=public_test_of(recipe, data_dir),
    )


def load_features(recipe: Recipe, data_dir: Path | None, known: Facts) -> Dataset:
    """Read the features of a recipe's file as an earlier run read them, whose facts are known.

    Privacy
    -------
    The label column is not looked at; but with a public test file, which is read by the table's own columns, the whole file is
    read, its labels are sealed, and they are forgotten at once.
    """
    from labeldp.datasets import table

    if public_test_of(recipe, data_dir) is not None:
        return load(recipe, data_dir).only_public()
    X = table.read_features(path_of(recipe, data_dir), known["inputs"])
    return Dataset(
        path_of(recipe, data_dir).name,
        X=X,
        labels=None,
        classes=tuple(known["classes"]),
        X_test=X.iloc[:0],
        test_labels=np.empty(0, dtype=np.int64),
        inputs=known["inputs"],
        public_test=None,
    )


@contextmanager
def open_book(recipe: Recipe, data_dir: Path | None) -> Iterator[Book | None]:
    """Yield the book beside a recipe's file, which no other process opens meanwhile; None where the data has a name."""
    if recipe.table is None:
        yield None
        return
    from labeldp.bulk import book

    with book.open_book(path_of(recipe, data_dir)) as opened:
        yield opened


def note_public_test(recipe: Recipe, data_dir: Path | None) -> None:
    """Write into the book of a public test that its labels are read as they are, before any figure tells of them."""
    if recipe.table is None or (path := public_test_of(recipe, data_dir)) is None:
        return
    from labeldp.bulk import book

    with book.open_book(path) as opened:
        opened.note_public(recipe.table.label)


def columns_of(recipe: Recipe, data: Dataset) -> Columns:
    """Return what a recipe makes of its file's columns."""
    from labeldp.bulk.book import Columns

    assert recipe.table is not None
    features = [column["name"] for column in data.inputs["columns"]]
    return Columns(label=recipe.table.label, features=features, id_column=recipe.table.id)


def ledger_beside(book: Book) -> Path:
    """Return where the ledger of a file lies that was given none."""
    from labeldp.bulk.book import ledger_beside

    return ledger_beside(book.data)


def digest(data: Dataset) -> str:
    """Return a digest of all features, by which rows that were changed or moved are noticed. No label has a part in it."""
    found = hashlib.sha256(json.dumps(data.inputs, sort_keys=True).encode())
    for column in data.inputs["columns"]:
        values = data.X[column["name"]]
        codes = values.cat.codes if column["kind"] == "category" else values
        found.update(codes.to_numpy().tobytes())
    return found.hexdigest()
