"""Reading: streams of batches, awkward files, and failures that quote nothing."""

from __future__ import annotations

import os
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp.bulk import tables
from labeldp.bulk.draft import Draft
from labeldp.bulk.sinks import bare
from labeldp.bulk.tables import open_table
from labeldp.errors import InvalidArgument, LabelDPError

MARKER = "zebra-label"


def rows_of(table):
    return [row for batch in table.batches(table.names) for row in batch.to_pylist()]


def csv_file(folder, content):
    path = folder / "in.csv"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"\xef\xbb\xbfa,b\r\n1,\r\n", [{"a": "1", "b": None}]),
        (b'a,b\n"",x\n', [{"a": "", "b": "x"}]),
        (b'a,b\n"two\r\nlines","q""q"\n', [{"a": "two\r\nlines", "b": 'q"q'}]),
        (b"a,b\n1,2", [{"a": "1", "b": "2"}]),
        (b"a,b\n\n1,2\n\n", [{"a": "1", "b": "2"}]),
        (b"a,b\r1,2\r", [{"a": "1", "b": "2"}]),
        (b"a\nx\n\ny\n", [{"a": "x"}, {"a": None}, {"a": "y"}]),  # alone in its line, an empty cell is an empty line
        ("é,😀\n中,\u00a0\n".encode(), [{"é": "中", "😀": "\u00a0"}]),
        (b",b\n1,NA\n", [{"": "1", "b": "NA"}]),
    ],
)
def test_csv_cells_are_text_verbatim(tmp_path, content, rows):
    assert rows_of(open_table(csv_file(tmp_path, content))) == rows


@pytest.mark.parametrize(
    "content",
    [
        f"a,b\n1,{MARKER},3\n".encode(),
        f"a,b\n{MARKER}\n".encode(),
        f'a,b\n"{MARKER},2\n'.encode(),
        f"a,b\n{MARKER}\xff,2\n".encode("latin-1"),
        f"a,{MARKER}\xff\n1,2\n".encode("latin-1"),
        f"a,b\n{MARKER},2\n".encode("utf-16"),
        b"",
        b"\n",
        f"a,b\n1,{MARKER}\n{'x' * (tables.CSV_BLOCK_BYTES * 2)},2\n".encode(),
    ],
)
def test_what_is_not_csv_is_refused_without_a_quote(tmp_path, content):
    path = csv_file(tmp_path, content)
    with pytest.raises(InvalidArgument, match="cannot be read as CSV") as caught:
        rows_of(open_table(path))
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert MARKER not in "".join(traceback.format_exception(caught.value))


def test_what_is_not_parquet_is_refused(tmp_path):
    path = tmp_path / "in.parquet"
    path.write_bytes(b"PAR1" + MARKER.encode() * 100 + b"PAR1")
    with pytest.raises(InvalidArgument, match="cannot be read as Parquet") as caught:
        open_table(path)
    assert caught.value.__context__ is None


def test_a_damaged_page_is_refused(tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": [f"{MARKER}{i}" for i in range(1000)]}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[40:400] = bytes(360)
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match="cannot be read as Parquet") as caught:
        rows_of(open_table(path))
    assert caught.value.__context__ is None


def test_the_operating_systems_errors_pass(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError):
        open_table(tmp_path / "folder.csv")


@pytest.mark.parametrize("name", ["in", "in.txt", "in.csv.gz", "csv"])
def test_unknown_endings_are_refused(tmp_path, name):
    with pytest.raises(InvalidArgument, match=r"must end in one of \.csv, \.parquet"):
        open_table(tmp_path / name)


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="different names"):
        open_table(csv_file(tmp_path, b"a,a\n1,2\n"))


def test_parquet_is_read_in_batches_and_dots_in_names_mean_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_PER_BATCH", 7)
    path = tmp_path / "in.PARQUET"
    pq.write_table(pa.table({"a": range(20), "a.b": range(20, 40), "a.b.c": range(20)}), path)
    table = open_table(path)
    batches = list(table.batches(["a"]))
    assert table.n_rows == 20 and [len(batch) for batch in batches] == [7, 7, 6]
    assert {tuple(batch.schema.names) for batch in batches} == {("a",)}
    assert next(table.batches(["a.b", "a"])).schema.names == ["a.b", "a"]


def test_a_file_that_changes_is_noticed(tmp_path):
    path = csv_file(tmp_path, b"a\n1\n")
    table = open_table(path)
    table.check_unchanged()
    os.utime(path, ns=(1, 1))
    with pytest.raises(InvalidArgument, match="changed while it was read"):
        table.check_unchanged()


def test_fields_are_bared_of_metadata_at_any_depth():
    told = {b"note": b"clicked: 12% yes"}
    inner = pa.field("inner", pa.int8(), nullable=False, metadata=told)
    kinds = [
        pa.struct([inner]),
        pa.list_(inner),
        pa.large_list(inner),
        pa.list_(inner, 3),
        pa.map_(pa.string(), pa.field("value", pa.struct([inner]), metadata=told)),
        pa.list_(pa.field("item", pa.struct([inner]), metadata=told)),
        pa.dictionary(pa.int8(), pa.string(), ordered=True),
    ]
    for kind in kinds:
        told_field = pa.field("x", kind, nullable=False, metadata=told | {b"ARROW:extension:name": b"own"})
        field = bare(told_field)
        assert field.type == kind and not field.nullable  # this comparison ignores metadata
        assert field.metadata == {b"ARROW:extension:name": b"own"}
        assert b"clicked" not in pa.schema([field]).serialize().to_pybytes()
        assert b"clicked" in pa.schema([told_field]).serialize().to_pybytes()


def test_a_draft_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.csv"
    leftover = tmp_path / f".out.csv.{'0' * 12}.part"
    leftover.write_bytes(b"half")
    (tmp_path / ".out.csv.other.part").write_bytes(b"not ours")
    with Draft(path) as draft:
        assert not leftover.exists()
        draft.file.write(b"half")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".out.csv.other.part"]
    with Draft(path) as draft:
        draft.file.write(b"whole")
        assert not path.exists()
        draft.publish()
    assert path.read_bytes() == b"whole" and len(list(tmp_path.iterdir())) == 2


def test_a_draft_writes_over_nothing_and_gives_way_to_another_run(tmp_path):
    path = tmp_path / "out.csv"
    with Draft(path) as draft:
        path.write_bytes(b"somebody else's")
        with pytest.raises(InvalidArgument, match="exists; remove it or choose another"):
            draft.publish()
    assert path.read_bytes() == b"somebody else's"
    path.unlink()
    with Draft(path) as first, Draft(path) as second:
        with pytest.raises(LabelDPError, match="another run"):
            first.publish()
        second.publish()
    assert path.exists() and len(list(tmp_path.iterdir())) == 1
