"""Where the noisy table is written: CSV or Parquet, with no word about the column that was dropped."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from labeldp.bulk import cells
from labeldp.bulk.arrow import pa, parquet, unquoted

ROWS_PER_GROUP = 1 << 20
BYTES_PER_GROUP = 64 << 20
EXTENSION = b"ARROW:extension:"


class Sink(ABC):
    """Takes batches of one schema and writes them to an open file; leaving it unfinished is quiet."""

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *exception: object) -> None:
        self.let_go()

    @abstractmethod
    def write(self, batch: Any) -> None:
        """Write a record batch, now or later."""

    @abstractmethod
    def let_go(self) -> None:
        """Hold the file no longer, finished or not."""

    @abstractmethod
    def finish(self, facts: dict[str, Any]) -> None:
        """Write what is left, and public facts about the file where it has room for them."""


class CsvSink(Sink):
    """UTF-8, commas, line feeds, a header line, quotes only where they are needed."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:
        cells.check_plain(schema)
        self._file = file
        file.write(cells.header(list(schema.names)))

    def write(self, batch: Any) -> None:
        if len(batch):
            self._file.write(cells.lines(batch.columns))

    def finish(self, facts: dict[str, Any]) -> None:
        """CSV has no room for facts."""

    def let_go(self) -> None:
        """Nothing is held back."""


class ParquetSink(Sink):
    """Row groups of at most 2^20 rows, or about 64 MiB; the facts become the metadata `labeldp`."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:
        self._schema = schema
        problem = "these columns cannot be written as Parquet: their types are not known to pyarrow's writer."
        self._writer = unquoted(lambda: parquet.ParquetWriter(file, schema), problem)
        self._waiting: list[Any] = []

    def write(self, batch: Any) -> None:
        self._waiting.append(batch)
        rows, size = (sum(measure(part) for part in self._waiting) for measure in (len, lambda part: part.nbytes))
        if rows >= ROWS_PER_GROUP or size >= BYTES_PER_GROUP:
            self._write_group()

    def finish(self, facts: dict[str, Any]) -> None:
        self._write_group()
        self._writer.add_key_value_metadata({"labeldp": json.dumps(facts)})
        self._writer.close()

    def let_go(self) -> None:
        if self._writer.is_open:  # something failed: the writer must not speak up when it is collected
            with suppress(Exception):
                self._writer.close()
            self._writer.is_open = False

    def _write_group(self) -> None:
        if self._waiting:
            group = pa.Table.from_batches(self._waiting, schema=self._schema).unify_dictionaries()
            self._waiting = []
            self._writer.write_table(group, row_group_size=ROWS_PER_GROUP)


KINDS: dict[str, Callable[[BinaryIO, Any], Sink]] = {".csv": CsvSink, ".parquet": ParquetSink}


def bare(field: Any) -> Any:
    """Return a field without its metadata, which could tell of other columns; only an extension type keeps its own."""
    kept = {key: value for key, value in (field.metadata or {}).items() if key.startswith(EXTENSION)}
    return pa.field(field.name, _bare_type(field.type), nullable=field.nullable, metadata=kept or None)


def _bare_type(kind: Any) -> Any:
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([bare(kind.field(place)) for place in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(bare(kind.key_field), bare(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(bare(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(bare(kind.value_field))
    return pa.list_(bare(kind.value_field)) if types.is_list(kind) else kind
