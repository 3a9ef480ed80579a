"""`labeldp predict`: a run's model on new rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import numpy as np

from labeldp.cli.options import check_new
from labeldp.errors import InvalidArgument
from labeldp.files import renamed_when_whole

if TYPE_CHECKING:
    from labeldp.runs import Run

TABLES = (".csv", ".parquet")
FLOATS = (np.float32, np.float64)
ROWS_AT_ONCE = 10_000


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--data",
    help="New rows: a .csv or .parquet file with the columns of the run's table, a .npy file, or a dataset's name (its public "
    "test rows); by default the run's own public test rows. Of features, the run itself makes them of images.",
)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets' files are.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The new .csv or .parquet file to write.")
def predict(run: Path, data: str | None, data_dir: Path | None, out: Path) -> None:
    """Predict with the model of a finished run: the most likely class of each row, and every class's probability."""
    from labeldp.runs import load

    if out.suffix.lower() not in TABLES:
        raise click.UsageError(f"--out must be a file that ends in {' or '.join(TABLES)}, got {out}.")
    check_new(out)
    loaded = load(run)
    X, ids = _rows(loaded, data, data_dir or loaded.data_dir)
    probabilities = loaded.predict_proba(X)
    chances = {f"p({name})": probabilities[:, number] for number, name in enumerate(loaded.classes)}
    predicted = np.array(loaded.classes)[probabilities.argmax(axis=1)]
    columns = {"row": np.arange(len(probabilities)), "predicted": predicted, **chances}
    ids = {f"id:{name}" if name in columns else name: cells for name, cells in ids.items()}
    columns = {"row": columns.pop("row"), **ids, **columns}
    with renamed_when_whole(out) as file:
        (_write_parquet if out.suffix.lower() == ".parquet" else _write_csv)(file, columns)
    student = f" and its student {loaded.recipe.student.model}" if loaded.recipe.student is not None else ""
    click.echo(
        f"{len(probabilities):,} rows predicted by {loaded.recipe.model}{student} (epsilon {loaded.recipe.epsilon}): {out}",
        err=True,
    )


def _write_csv(file: BinaryIO, columns: dict[str, Any]) -> None:
    text = io.TextIOWrapper(file, newline="", encoding="utf-8")
    writer = csv.writer(text)
    writer.writerow(columns)
    for at in range(0, len(columns["row"]), ROWS_AT_ONCE):
        cells = [column[at : at + ROWS_AT_ONCE] for column in columns.values()]
        shown = [[f"{x:.6g}" for x in each] if getattr(each, "dtype", None) in FLOATS else list(each) for each in cells]
        writer.writerows(zip(*shown, strict=True))
    text.detach()  # flushed, and the file left open


def _write_parquet(file: BinaryIO, columns: dict[str, Any]) -> None:
    from labeldp.bulk.arrow import pa, parquet

    parquet.write_table(pa.table({name: pa.array(cells) for name, cells in columns.items()}), file)


def _rows(loaded: Run, data: str | None, data_dir: Path | None) -> tuple[Any, dict[str, Any]]:
    """Return the rows to predict, and the column of their ids, if the run's table had one and so has this one."""
    if loaded.reads_arrays and (data is None or not data.endswith(".npy")):
        data = _own_features(loaded, data)
    if data is None:
        data = _own_test_rows(loaded)
    if data.lower().endswith(TABLES):
        from labeldp.runs import rows

        of = None if loaded.recipe.table is None else loaded.recipe.table.id
        return rows.read(Path(data), loaded.inputs), rows.column(Path(data), of)
    if data.endswith(".npy"):
        try:
            X = np.load(data, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            X = None
        if not isinstance(X, np.ndarray) or X.ndim == 0:
            raise InvalidArgument(f"{data} must be an array of numbers, one row each, written by numpy.save.")
        return X, {}
    from labeldp import datasets

    return datasets.load(data, data_dir=data_dir).X_test, {}


def _own_features(loaded: Run, data: str | None) -> str:
    """Return the user's own features of test rows, which a run on arrays may name."""
    from labeldp.runs import specs

    names = specs.parse(str(loaded.recipe.features)).names
    if data is not None or len(names) == 1:
        raise click.UsageError(
            "this run's model reads features that you compute: give those of the rows to predict, --data FILE.npy"
        )
    return names[1]


def _own_test_rows(loaded: Run) -> str:
    table = loaded.recipe.table
    if table is None:
        return loaded.recipe.data
    if table.public_test is None:
        raise click.UsageError(
            f"say which rows to predict: --data FILE, a table with the columns of {loaded.recipe.data}."
        )
    return str((loaded.data_dir or Path()) / table.public_test)
