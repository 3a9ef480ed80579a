"""CSV out and in again: every cell comes back as it was, for us and for Python's own reader."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.bulk import cells
from labeldp.bulk.tables import open_table
from labeldp.errors import InvalidArgument

AWKWARD = [
    "",
    " ",
    '"',
    '""',
    ",",
    "a,b",
    "\n",
    "\r",
    "\r\n",
    "é",
    "中文",
    "😀",
    "\ufeff",
    "NA",
    "null",
    "007",
    "1e5",
    "\t",
    "#",
]

texts = st.one_of(st.none(), st.sampled_from(AWKWARD), st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(texts, min_size=width, max_size=width), min_size=1))


def written(rows):
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return bytes(cells.header([f"c{place}" for place in range(len(columns))])) + bytes(cells.lines(columns))


@given(rows=tables)
def test_cells_come_back_as_they_were(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "table.csv"
    path.write_bytes(written(rows))
    table = open_table(path)
    found = [list(row.values()) for batch in table.batches(table.names) for row in batch.to_pylist()]
    if len(rows[0]) == 1:  # a null alone in its line is written as empty text, or there would be no line
        rows = [[row[0] or ""] for row in rows]
    assert found == rows


@given(rows=tables)
def test_pythons_reader_agrees(rows):
    text = written(rows).decode()
    found = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert found == [["" if cell is None else cell for cell in row] for row in rows]


def test_quotes_are_written_only_where_needed():
    columns = [pa.array(["a", None, "", "x,y", 'q"']), pa.array([1, 2, None, 4, 5]), pa.array(["é"] * 5)]
    assert bytes(cells.lines(columns)).decode() == 'a,1,é\n,2,é\n"",,é\n"x,y",4,é\n"q""",5,é\n'


def test_slices_and_large_text_are_written_like_any_other():
    column = pa.array(["skipped", "a", "b,c", "d"])
    columns = [column.slice(1, 2), column.cast(pa.large_string()).slice(1, 2), column.dictionary_encode().slice(1, 2)]
    assert bytes(cells.lines(columns)) == b'a,a,a\n"b,c","b,c","b,c"\n'


def test_other_types_are_written_as_text():
    columns = [
        pa.array([True, None]),
        pa.array([0.1, 1e-300]),
        pa.array([0, 86_400_000_000], pa.timestamp("us")),
        pa.array([0, 1], pa.date32()),
        pa.array([None, None], pa.null()),
        pa.array(["1.50", "2"]).cast(pa.decimal128(5, 2)),
    ]
    first, second = bytes(cells.lines(columns)).decode().splitlines()
    assert first == "true,0.1,1970-01-01 00:00:00.000000,1970-01-01,,1.50"
    assert second == ",1e-300,1970-01-02 00:00:00.000000,1970-01-02,,2.00"


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.binary()])
def test_columns_that_csv_cannot_hold_are_refused(kind):
    with pytest.raises(InvalidArgument, match=r"'x'.*cannot be written as CSV"):
        cells.check_plain(pa.schema([("fine", pa.int8()), ("x", kind)]))
