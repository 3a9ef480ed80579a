"""A small table of people, as files: numbers and categories with gaps, and a label that they tell something of."""

from __future__ import annotations

import csv

import numpy as np

N_ROWS = 200
CLASSES = ("low", "high")
CHOSEN = {"label": "income", "classes": list(CLASSES)}


def labels(n_rows=N_ROWS, seed=5):
    return np.random.default_rng(seed).integers(0, 2, n_rows)


def columns(n_rows=N_ROWS, seed=5, *, truth=None):
    """Return the columns of a table as lists of text, None where a cell is empty."""
    truth, rng = labels(n_rows, seed) if truth is None else np.asarray(truth), np.random.default_rng([seed, 1])
    about = labels(n_rows, seed)  # features depend on the first labels, whatever others stand beside them
    gaps = rng.random((2, n_rows)) < 0.1
    ages = [
        None if gap else str(age) for gap, age in zip(gaps[0], rng.integers(20, 50, n_rows) + 15 * about, strict=True)
    ]
    jobs = [None if gap else ("cook", "nurse")[kind] for gap, kind in zip(gaps[1], about, strict=True)]
    return {
        "who": [f"p{number}" for number in range(n_rows)],
        "age": ages,
        "job": jobs,
        "empty": [None] * n_rows,
        "income": [CLASSES[number] for number in truth],
    }


def write(path, table):
    """Write a table as the file's ending says."""
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(
                zip(*(["" if cell is None else cell for cell in column] for column in table.values()), strict=True)
            )
        return path
    import pyarrow as pa
    from pyarrow import parquet

    typed = table | {"age": [None if cell is None else float(cell) for cell in table["age"]]}
    parquet.write_table(pa.table(typed), path)
    return path
