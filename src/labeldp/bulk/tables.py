"""Files that are read as a stream of batches: CSV, whose cells are text, and Parquet."""

from __future__ import annotations

import difflib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from labeldp.bulk.arrow import csv, pa, parquet, unquoted
from labeldp.errors import InvalidArgument

CSV_BLOCK_BYTES = 2 << 20  # the longest line that can be read
ROWS_PER_BATCH = 1 << 16
CELLS_PER_BATCH = 1 << 21
CLOSE = 0.8
"""How alike a column's name must be to one that was asked for, to be told: see difflib."""


class Table(ABC):
    """A file of named columns, read as often as needed, a batch of rows at a time."""

    problem: str
    schema: Any
    n_rows: int | None = None
    """The number of rows, if the file says so before it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:  # where this fails, the operating system says why
            status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InvalidArgument(f"{path} must be a regular file: it is read twice.")
        self.mtime_ns = status.st_mtime_ns
        self._status = _identity(status)
        self.schema = unquoted(self._read_schema, self.problem)
        if len(set(self.names)) != len(self.names):
            raise InvalidArgument(
                f"the columns of {path} must have different names. The file needs a header line with them."
            )

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def check_has(self, columns: Sequence[str], *, never_told: Collection[str] = ()) -> None:
        """Raise if a column is lacking.

        Without a header line the names of the columns are the first row's cells, so none is told but one that is almost what
        was asked for. `never_told` are cells that a label may have.
        """
        lacking = [name for name in columns if name not in self.names]
        if not lacking:
            return
        among = "beside its only one" if len(self.names) == 1 else f"among its {len(self.names)} columns"
        close = _close_names(lacking, self.names, never_told)
        meant = f" Did you mean {', '.join(map(repr, close))}?" if close else ""
        parted = " Cells are separated by commas, not by semicolons or tabs." if len(self.names) == 1 else ""
        raise InvalidArgument(
            f"{self.path} has no column {', '.join(map(repr, lacking))} {among}.{meant} The file "
            f"needs a header line with the names of its columns.{parted}"
        )

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of some of the columns, at least one, in the file's order of rows."""
        assert columns
        stream = unquoted(lambda: self._stream(list(columns)), self.problem)
        while (batch := unquoted(lambda: next(stream, None), self.problem)) is not None:
            yield batch.select(list(columns))

    def check_unchanged(self) -> None:
        """Refuse to go on if the file was written since it was opened."""
        if _identity(self.path.stat()) != self._status:
            raise InvalidArgument(f"{self.path} changed while it was read. Run again when nothing writes to it.")

    @abstractmethod
    def to_check(self, columns: list[str]) -> list[str]:
        """Return the columns to read, beside the given ones, to be sure that the whole file can be read."""

    @abstractmethod
    def _read_schema(self) -> Any:
        """Return the names and types of the columns."""

    @abstractmethod
    def _stream(self, columns: list[str]) -> Iterator[Any]:
        """Return an iterator over batches that hold these columns, and perhaps more."""


class CsvTable(Table):
    """Comma-separated UTF-8 text with a header line. An empty cell is null; an empty cell in quotes is empty text."""

    def __init__(self, path: Path) -> None:
        self.problem = (
            f"{path} cannot be read as CSV: it must be UTF-8 text, have a header line, the same number of cells in every line, "
            f"and no line longer than {CSV_BLOCK_BYTES >> 20} MiB."
        )
        self._one_column = False
        super().__init__(path)

    def to_check(self, columns: list[str]) -> list[str]:  # noqa: ARG002
        return self.names  # the text of every cell is checked, or a bad one would be found only after the charge

    def _read_schema(self) -> Any:
        names = self._open(csv.ConvertOptions()).schema.names
        self._one_column = len(names) == 1
        return pa.schema([pa.field(name, pa.string()) for name in names])

    def _stream(self, columns: list[str]) -> Iterator[Any]:
        return iter(
            self._open(
                csv.ConvertOptions(
                    include_columns=columns,
                    column_types=self.schema,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                )
            )
        )

    def _open(self, conversion: Any) -> Any:
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not self._one_column),
            convert_options=conversion,
        )


class ParquetTable(Table):
    """A Parquet file, with the types it has."""

    def __init__(self, path: Path) -> None:
        self.problem = f"{path} cannot be read as Parquet: it is damaged, or of a kind that pyarrow does not know."
        super().__init__(path)

    def to_check(self, columns: list[str]) -> list[str]:
        return columns

    def _read_schema(self) -> Any:
        with parquet.ParquetFile(self.path) as file:
            self.n_rows = file.metadata.num_rows
            return file.schema_arrow

    def _stream(self, columns: list[str]) -> Iterator[Any]:
        rows = max(1, min(ROWS_PER_BATCH, CELLS_PER_BATCH // len(columns)))
        with parquet.ParquetFile(self.path, buffer_size=1 << 20) as file:
            yield from file.iter_batches(batch_size=rows, columns=columns)


KINDS: dict[str, type[Table]] = {".csv": CsvTable, ".parquet": ParquetTable}


def ending(path: Path) -> str:
    """Return a file's ending, which must be one that is known."""
    if path.suffix.lower() not in KINDS:
        raise InvalidArgument(f"{path} must end in one of {', '.join(KINDS)}.")
    return path.suffix.lower()


def open_table(path: Path) -> Table:
    """Open a file by its ending."""
    return KINDS[ending(path)](path)


def _close_names(wanted: Sequence[str], names: Sequence[str], never_told: Collection[str]) -> list[str]:
    """Return the names that are almost wanted ones and no labels."""
    labels = {label.strip().casefold() for label in never_told}
    tellable = [name for name in names if name.strip().casefold() not in labels]
    close = [match for name in wanted for match in difflib.get_close_matches(name, tellable, n=1, cutoff=CLOSE)]
    return list(dict.fromkeys(close))


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
