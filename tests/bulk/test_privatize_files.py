"""Files in, files out: nothing but the label column changes, and nothing of that column is left."""

from __future__ import annotations

import csv
import json
import math
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom

import labeldp as ldp
from labeldp.budget import Epsilon
from labeldp.bulk import DeclaredClasses, Order, noisy, privatize, sinks, tables
from labeldp.errors import BudgetExhausted, InvalidArgument, InvalidLabels, LedgerError

FALSE_ALARM = 1e-9


@pytest.fixture
def folder(tmp_path):
    ldp.create_ledger(tmp_path / "ads.ledger", budget="1")
    return tmp_path


def order(folder, *, data="in.parquet", out="out.parquet", label="clicked", classes=("no", "yes"), epsilon=1, **more):
    return Order(
        data=folder / data,
        out=folder / out,
        label=label,
        classes=DeclaredClasses.of(classes),
        epsilon=Epsilon.of(epsilon),
        ledger=folder / "ads.ledger",
        noisy_column=more.pop("noisy_column", f"noisy_{label}"),
        **more,
    )


def charges(folder):
    return [entry for entry in ldp.Ledger(folder / "ads.ledger").entries() if entry.body["kind"] == "charge"]


def columns_of(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    return {name: list(column) for name, *column in zip(*rows, strict=True)}


PUBLIC = {
    "row id": [str(i) for i in range(8)],
    'aw"ful, name': ['q"q', "a,b", "two\nlines", "cr\r\nlf", "é中😀", " padded ", "007", "NA"],
}
LABELS = ["no", "yes", "yes", "no", "no", "yes", "no", "no"]


def write_input(folder, name):
    table = pa.table(PUBLIC | {"clicked": LABELS, "last": ["x"] * 8})
    if name.endswith(".parquet"):
        pq.write_table(table, folder / name)
    else:
        with (folder / name).open("w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file).writerows(zip(*([key, *column] for key, column in table.to_pydict().items()), strict=True))


@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
@pytest.mark.parametrize("data", ["in.csv", "in.parquet"])
def test_public_columns_pass_and_the_label_becomes_noise(folder, data, out):
    write_input(folder, data)
    outcome = privatize(order(folder, data=data, out=out))
    found = columns_of(folder / out)
    assert list(found) == [*PUBLIC, "last", "noisy_clicked"]
    assert {name: found[name] for name in PUBLIC} == PUBLIC and found["last"] == ["x"] * 8
    assert set(found["noisy_clicked"]) <= {"no", "yes"}
    assert (outcome.rows, outcome.left.epsilon, outcome.budget.epsilon) == (8, "0", "1")
    assert outcome.receipt.private and outcome.receipt.trust == "local"
    assert sorted(file.name for file in folder.iterdir() if file.name.startswith("out")) == [out]
    assert not list(folder.glob(".*"))
    ldp.Ledger(folder / "ads.ledger").verify(outcome.receipt.to_json())


def test_nulls_and_empty_text_stay_apart_in_csv(folder):
    (folder / "in.csv").write_bytes(b'a,clicked,b\n,no,\n"",yes,x\n')
    privatize(order(folder, data="in.csv", out="out.csv"))
    header, first, second = (folder / "out.csv").read_text().splitlines()
    assert header == "a,b,noisy_clicked" and first.startswith(",,") and second.startswith('"",x,')


def test_parquet_types_pass_unchanged(folder, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_PER_BATCH", 3)
    monkeypatch.setattr(sinks, "ROWS_PER_GROUP", 5)
    n = 14
    public = pa.table(
        {
            "small": pa.array(range(n), pa.int8()),
            "time": pa.array(range(n), pa.timestamp("ns", tz="Europe/Paris")),
            "list": pa.array([[i, None] for i in range(n)], pa.list_(pa.float32())),
            "struct": pa.array([{"a": i, "b": {"c": str(i)}} for i in range(n)]),
            "map": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int16())),
            "category": pa.array(["x", "y", None, "z", "w", "x", "x"] * 2).dictionary_encode(),
            "large": pa.array(["t"] * n, pa.large_string()),
            "decimal": pa.array(["1.50"] * n).cast(pa.decimal128(9, 2)),
            "bytes": pa.array([b"\x00\xff"] * n),
            "nothing": pa.nulls(n),
        }
    )
    labelled = public.append_column("clicked", pa.array(["no", "yes"] * (n // 2)))
    pq.write_table(labelled, folder / "in.parquet", row_group_size=4)
    privatize(order(folder))
    found = pq.read_table(folder / "out.parquet")
    assert found.drop_columns(["noisy_clicked"]).equals(public)
    assert found.schema.field("noisy_clicked").type == pa.string()


def test_nothing_of_the_label_column_is_left(folder):
    """The label column's name, cells (spelled as no class is), dictionary, statistics and metadata are all gone."""
    frame = pd.DataFrame({"age": range(1000), "Zebra": pd.Categorical(["TrUe", "FaLsE"] * 500)})
    table = pa.Table.from_pandas(frame)
    field = table.schema.field("age").with_metadata({"note": "mean Zebra by age"})
    schema = pa.schema([field, table.schema.field("Zebra")], metadata={**table.schema.metadata, b"x": b"Zebra"})
    pq.write_table(table.cast(schema), folder / "in.parquet", write_page_index=True)
    before = (folder / "in.parquet").read_bytes()
    assert all(mark in before for mark in (b"Zebra", b"TrUe", b"FaLsE", b"pandas"))
    privatize(order(folder, label="Zebra", classes=["false", "true"], noisy_column="answer"))
    after = (folder / "out.parquet").read_bytes()
    assert not any(mark in after for mark in (b"Zebra", b"TrUe", b"FaLsE", b"pandas"))
    metadata = pq.read_metadata(folder / "out.parquet")
    assert [metadata.schema.column(place).name for place in range(metadata.num_columns)] == ["age", "answer"]
    assert set(metadata.metadata) == {b"ARROW:schema", b"labeldp"}
    assert pq.read_schema(folder / "out.parquet").field("age").metadata is None


def test_a_parquet_output_carries_its_receipt(folder):
    write_input(folder, "in.parquet")
    outcome = privatize(order(folder))
    facts = json.loads(pq.read_metadata(folder / "out.parquet").metadata[b"labeldp"])
    assert facts["receipt"] == outcome.receipt.to_json() | {"source": "labeldp privatize"}  # no paths of this machine
    assert facts["classes"] == ["no", "yes"] and facts["noisy_column"] == "noisy_clicked"


@pytest.mark.parametrize(
    ("column", "classes"),
    [
        (pa.array([1, 2, 3, 1]), ["1", "2", "3"]),
        (pa.array([1, 2, 3, 1], pa.uint8()), ["3", "2", "1"]),
        (pa.array([1.0, 2.0, 3.0, 1.0]), ["1", "2", "3"]),
        (pa.array(["1", "2", "3", "1"]), ["1", "2", "3"]),
        (pa.array([0, 1, 2, 0]).dictionary_encode(), 3),
        (pa.array([True, False, False, True]), 2),
    ],
)
def test_integer_classes_are_written_as_integers(folder, column, classes):
    pq.write_table(pa.table({"clicked": column}), folder / "in.parquet")
    privatize(order(folder, classes=classes))
    found = pq.read_table(folder / "out.parquet")
    assert found.schema.names == ["noisy_clicked"] and found.schema.field(0).type == pa.int64()
    assert set(found["noisy_clicked"].to_pylist()) <= set(DeclaredClasses.of(classes).names)


@pytest.mark.parametrize("column", [pa.array([True, False]), pa.array(["True", "FALSE"]), pa.array([1, 0])])
def test_booleans_are_written_as_the_declared_names(folder, column):
    pq.write_table(pa.table({"clicked": column}), folder / "in.parquet")
    privatize(order(folder, classes=["false", "true"]))
    assert set(pq.read_table(folder / "out.parquet")["noisy_clicked"].to_pylist()) <= {"false", "true"}


@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_missing_labels_stay_missing(folder, out):
    (folder / "in.csv").write_text('n,clicked\n0,no\n1,\n2,yes\n3,""\n')
    outcome = privatize(order(folder, data="in.csv", out=out, missing="public"))
    found = columns_of(folder / out)["noisy_clicked"]
    assert outcome.rows == 2 and outcome.receipt.labels_charged == 2
    assert [bool(cell) for cell in found] == [True, False, True, False]
    assert privatize(order(folder, data="in.csv", out=out, missing="public")).already_done


def test_missing_labels_alone_in_their_line_keep_their_line(folder):
    (folder / "in.csv").write_text("clicked\nno\n\nyes\n")
    privatize(order(folder, data="in.csv", out="out.csv", missing="public"))
    lines = (folder / "out.csv").read_text().split("\n")
    assert len(lines) == 5 and lines[2] == '""' and lines[0] == "noisy_clicked"
    assert privatize(order(folder, data="in.csv", out="out.csv", missing="public")).already_done


def test_the_keep_rate_is_the_mechanisms(folder):
    n, n_classes = 60_000, 4
    labels = np.arange(n) % n_classes
    pq.write_table(pa.table({"clicked": labels}), folder / "in.parquet")
    privatize(order(folder, classes=n_classes))
    found = pq.read_table(folder / "out.parquet")["noisy_clicked"].to_numpy()
    keep = math.e / (math.e + n_classes - 1)
    for label in range(n_classes):  # 16 two-sided tests share the false-alarm rate
        counts = np.bincount(found[labels == label], minlength=n_classes)
        for report, count in enumerate(counts):
            chance = keep if report == label else (1 - keep) / (n_classes - 1)
            tail = FALSE_ALARM / 32
            assert binom.ppf(tail, n // n_classes, chance) <= count <= binom.isf(tail, n // n_classes, chance)


def test_ids_name_the_rows_of_the_ledger(folder):
    pq.write_table(pa.table({"id": [7, 8, 9], "clicked": ["no", "yes", "no"]}), folder / "in.parquet")
    privatize(order(folder, id_column="id"))
    (folder / "more.csv").write_text("clicked,id\nyes,10\nno,11\n")
    outcome = privatize(order(folder, data="more.csv", out="more.parquet", id_column="id"))
    assert outcome.left.epsilon == "0" and pq.read_table(folder / "more.parquet")["id"].to_pylist() == ["10", "11"]
    (folder / "again.csv").write_text("clicked,id\nyes,12\nno,8\n")
    with pytest.raises(BudgetExhausted):
        privatize(order(folder, data="again.csv", out="again.parquet", id_column="id"))
    assert not (folder / "again.parquet").exists()
    with pytest.raises(LedgerError, match="ids"):
        privatize(order(folder, data="again.csv", out="again.parquet"))


@pytest.mark.parametrize("ids", [["a", "a"], ["a", None], [1.5, 2.5]])
def test_bad_ids_are_refused_before_any_charge(folder, ids):
    pq.write_table(pa.table({"id": ids, "clicked": ["no", "yes"]}), folder / "in.parquet")
    with pytest.raises(InvalidArgument, match="ids must be"):
        privatize(order(folder, id_column="id"))
    assert not charges(folder) and not list(folder.glob("*out.parquet*"))


BAD_LABELS = [
    (pa.array(["no", "zebra"]), "among the declared classes"),
    (pa.array(["no", "No"]), "among the declared classes"),
    (pa.array(["no", None]), "say --missing public"),
    (pa.array([None, None], pa.string()), "not all be missing"),
    (pa.nulls(2), "not all be missing"),
    (pa.array([0, 1]), "must be text.*int64"),
    (pa.array([[0], [1]]), "must be text.*list"),
    (pa.array([b"no", b"yes"]), "must be text.*binary"),
    (pa.array([], pa.string()), "has no rows"),
]


@pytest.mark.parametrize(("column", "problem"), BAD_LABELS)
def test_bad_labels_are_refused_before_any_charge_and_never_quoted(folder, column, problem):
    pq.write_table(pa.table({"clicked": column}), folder / "in.parquet")
    with pytest.raises(InvalidArgument, match=problem) as caught:
        privatize(order(folder))
    assert "zebra" not in str(caught.value) and caught.value.__context__ is None
    assert not charges(folder) and not list(folder.glob("*out.parquet*"))


def test_a_bad_label_is_told_only_after_the_whole_column_was_read(folder, monkeypatch):
    """Otherwise the place where the reading stops would point at the row."""
    monkeypatch.setattr(tables, "ROWS_PER_BATCH", 2)
    pq.write_table(pa.table({"clicked": ["zebra"] + ["no"] * 9}), folder / "in.parquet")
    seen = []
    with pytest.raises(InvalidLabels):
        privatize(order(folder), progress=lambda *_: seen.append)
    assert sum(seen) == 10


def test_of_a_files_columns_only_one_that_is_almost_the_lacking_one_is_named(folder):
    (folder / "in.csv").write_text("age,city,click\n1,Rome,yes\n")
    with pytest.raises(
        InvalidArgument, match=r"no column 'clicked' among its 3 columns\. Did you mean 'click'\?"
    ) as caught:
        privatize(order(folder, data="in.csv"))
    assert "city" not in str(caught.value)
    for first_line in ("x,Rome,yes", "1,Rome,zebra", "a,Rome,-2.5e-3", "x,Rome,Clicked "):
        (folder / "in.csv").write_text(f"{first_line}\nx,Oslo,no\n")
        with pytest.raises(InvalidArgument, match="needs a header line with the names of its columns") as caught:
            privatize(order(folder, data="in.csv", classes=["no", "yes", "clicked"]))
        assert not any(cell in str(caught.value) for cell in ("Rome", "yes", "zebra", "2.5", "Clicked"))


def test_impossible_orders_are_refused(folder):
    write_input(folder, "in.parquet")
    with pytest.raises(InvalidArgument, match="no column 'nobody'"):
        privatize(order(folder, id_column="nobody"))
    with pytest.raises(InvalidArgument, match="has a column 'last' already"):
        privatize(order(folder, noisy_column="last"))
    with pytest.raises(InvalidArgument, match="must not be the label column"):
        order(folder, id_column="clicked")
    with pytest.raises(InvalidArgument, match="must end in"):
        order(folder, out="out.xlsx")
    (folder / "ads.ledger").rename(folder / "elsewhere.ledger")
    with pytest.raises(LedgerError, match="no ledger"):
        privatize(order(folder))


def test_the_noisy_column_may_take_the_true_ones_name(folder):
    write_input(folder, "in.parquet")
    privatize(order(folder, noisy_column="clicked"))
    assert pq.read_schema(folder / "out.parquet").names == [*PUBLIC, "last", "clicked"]


def test_what_cannot_be_written_fails_before_the_charge(folder):
    pq.write_table(pa.table({"clicked": ["no"], "list": [[1]]}), folder / "in.parquet")
    with pytest.raises(InvalidArgument, match=r"'list'.*cannot be written as CSV"):
        privatize(order(folder, out="out.csv"))
    with pytest.raises(FileNotFoundError):
        privatize(order(folder, out="nowhere/out.parquet"))
    (folder / "in.csv").write_bytes(b"clicked,city\nno,Z\xfcrich\n")
    with pytest.raises(InvalidArgument, match="UTF-8"):
        privatize(order(folder, data="in.csv"))
    assert not charges(folder) and not list(folder.glob("*out.*"))


@pytest.mark.parametrize("content", ["clicked,n\nno,1\n", "clicked,n\nno,1\nyes,2\nno,3\n", "clicked,n\nno,1\nyes,3\n"])
def test_a_file_that_changes_between_the_passes_gives_no_output(folder, monkeypatch, content):
    (folder / "in.csv").write_text("clicked,n\nno,1\nyes,2\n")
    os.utime(folder / "in.csv", ns=(1, 1))
    drawn = noisy.draw

    def change_and_draw(*arguments, **more):
        (folder / "in.csv").write_text(content)
        return drawn(*arguments, **more)

    monkeypatch.setattr("labeldp.bulk.job.draw", change_and_draw)
    with pytest.raises(InvalidArgument, match="changed while it was read"):
        privatize(order(folder, data="in.csv"))
    assert not list(folder.glob("*out.*")) and not list(folder.glob(".*"))


def test_an_existing_file_is_refused_unless_it_is_this_orders_output(folder):
    write_input(folder, "in.parquet")
    (folder / "out.parquet").write_bytes(b"precious")
    with pytest.raises(InvalidArgument, match="exists; remove it or choose another --out"):
        privatize(order(folder))
    assert not charges(folder) and (folder / "out.parquet").read_bytes() == b"precious"
    (folder / "out.parquet").unlink()
    first = privatize(order(folder))
    written = (folder / "out.parquet").read_bytes()
    again = privatize(order(folder))
    assert again.already_done and again.receipt == first.receipt and len(charges(folder)) == 1
    assert (folder / "out.parquet").read_bytes() == written
    table = pq.read_table(folder / "out.parquet")
    flipped = ["no" if label == "yes" else "yes" for label in table["noisy_clicked"].to_pylist()]
    pq.write_table(table.set_column(3, "noisy_clicked", pa.array(flipped)), folder / "out.parquet")
    for foreign in ((folder / "out.parquet").read_bytes(), b"precious"):
        (folder / "out.parquet").write_bytes(foreign)
        with pytest.raises(InvalidArgument, match="exists; remove it"):
            privatize(order(folder))
        assert (folder / "out.parquet").read_bytes() == foreign
    (folder / "out.parquet").unlink()
    privatize(order(folder))
    assert (folder / "out.parquet").read_bytes() == written and len(charges(folder)) == 1


def test_another_order_or_another_file_is_another_query(folder):
    write_input(folder, "in.parquet")
    privatize(order(folder, epsilon="0.25"))
    for change in ({"out": "b.parquet"}, {"out": "c.parquet", "noisy_column": "n"}):
        privatize(order(folder, epsilon="0.25", **change))
    privatize(order(folder, epsilon="0.25", out="e.parquet"))
    assert len(charges(folder)) == 4
    with pytest.raises(BudgetExhausted, match="Released before: labeldp privatize"):
        privatize(order(folder, epsilon="0.25", out="d.parquet"))
    assert not (folder / "d.parquet").exists() and not list(folder.glob(".*"))


def test_a_touched_input_never_costs_a_second_epsilon_unasked(folder):
    write_input(folder, "in.parquet")
    privatize(order(folder, epsilon="0.25"))
    before = columns_of(folder / "out.parquet")
    os.utime(folder / "in.parquet")
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="add --unchanged"):
            privatize(order(folder, epsilon="0.25"))
        (folder / "out.parquet").unlink(missing_ok=True)
    privatize(order(folder, epsilon="0.25", unchanged=True))
    assert len(charges(folder)) == 1 and columns_of(folder / "out.parquet") == before


def test_a_column_that_tells_the_label_can_be_dropped(folder):
    write_input(folder, "in.parquet")
    names = pq.read_schema(folder / "in.parquet").names
    privatize(order(folder, drop=("row id",)))
    assert "row id" in names and "row id" not in pq.read_schema(folder / "out.parquet").names
    with pytest.raises(InvalidArgument, match="has no column 'nothing'"):
        privatize(order(folder, drop=("nothing",), out="b.parquet"))


def test_the_spooled_release_names_the_classes(folder):
    write_input(folder, "in.parquet")
    done = privatize(order(folder))
    assert ldp.Release.load(done.release).classes == done.order.classes.names
