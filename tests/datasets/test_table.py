"""A table of one's own: features as pandas columns, a label column that is sealed as it is read."""

import copy
import datetime
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import everything_said

import labeldp as ldp
from labeldp import datasets
from labeldp.bulk.book import Columns, open_book
from labeldp.datasets.dataset import Dataset

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

table = datasets.table
MARKER = "zebra-label"
PEOPLE = "row,age,job,smokes,income\na,31,nurse,True,low\nb,,cook,false,high\nc,4.5e1,,,low\nd,-2,cook,TRUE,low\n"


def written(folder, content, name="people.csv"):
    path = folder / name
    path.write_text(content)
    return path


def people(folder, **options):
    options = {"label": "income", "classes": ["low", "high"], "id_column": "row"} | options
    return table.load(written(folder, PEOPLE), **options)


def one_column(folder, column, **options):
    """Load a file whose one feature is a column of Arrow's."""
    path = folder / "one.parquet"
    labels = (["no", "yes"] * len(column))[: len(column)]
    pq.write_table(pa.table({"x": column, "label": labels}), path, row_group_size=2)
    return table.load(path, label="label", classes=["no", "yes"], **options)


def cells(column):
    """The cells of a pandas column, None where one is missing."""
    return [None if pd.isna(cell) else cell for cell in column]


# ---- features ----------------------------------------------------------------------------------------------------------------


def test_numbers_are_floats_and_text_is_categories_and_empty_cells_are_missing(tmp_path):
    data = people(tmp_path)
    assert list(data.X.columns) == ["age", "job", "smokes"] and data.X["age"].dtype == np.float64
    assert cells(data.X["age"]) == [31, None, 45, -2]
    assert cells(data.X["job"]) == ["nurse", "cook", None, "cook"]
    assert cells(data.X["smokes"]) == ["true", "false", None, "true"]  # however they are spelled
    assert isinstance(data.X["job"].dtype, pd.CategoricalDtype)
    assert data.inputs == {
        "kind": "frame",
        "columns": [
            {"name": "age", "kind": "number"},
            {"name": "job", "kind": "category", "categories": ["cook", "nurse"]},
            {"name": "smokes", "kind": "category", "categories": ["false", "true"]},
        ],
    }
    assert json.loads(json.dumps(data.inputs)) == data.inputs


@pytest.mark.parametrize("cell", ["x", "nan", "inf", "1e999", "1,5", "NA", "1_000", "0x10"])
def test_one_cell_that_is_no_finite_number_makes_a_column_text(tmp_path, cell):
    many = "\n".join(f"{number},no" for number in range(200))
    path = written(tmp_path, f'x,y\n1,no\n{many}\n"{cell}",yes\n')
    (column,) = table.load(path, label="y", classes=["no", "yes"]).inputs["columns"]
    assert column["kind"] == "category" and cell in column["categories"]


@pytest.mark.parametrize("cell", ["7", "+7", " 7.0 ", "70e-1", "007"])
def test_a_number_may_be_spelled_in_many_ways(tmp_path, cell):
    data = table.load(written(tmp_path, f"x,y\n{cell},no\n,yes\n  ,yes\n"), label="y", classes=["no", "yes"])
    assert cells(data.X["x"]) == [7, None, None]


def test_a_column_may_be_constant_or_have_no_name(tmp_path):
    data = table.load(written(tmp_path, "c,,y\nk,1,0\nk,2,1\nk,3,0\n"), label="y", classes=2)
    assert cells(data.X["c"]) == ["k"] * 3 and cells(data.X[""]) == [1, 2, 3]


SAYS_NOTHING = {
    "nulls": pa.nulls(3),
    "missing numbers": pa.array([None, float("nan"), None], pa.float64()),
    "blank text": pa.array([None, "", " "]),
    "missing truths": pa.array([None] * 3, pa.bool_()),
    "no category at all": pa.array([None] * 3, pa.string()).dictionary_encode(),
}


@pytest.mark.parametrize("kind", SAYS_NOTHING)
def test_a_column_that_says_nothing_says_nothing_in_a_later_file_either(tmp_path, kind):
    data = one_column(tmp_path, SAYS_NOTHING[kind])
    assert data.inputs["columns"] == [{"name": "x", "kind": "category", "categories": []}]
    assert cells(data.X["x"]) == [None] * 3
    X = table.read_features(written(tmp_path, "x,z\n7,\ntext,\n"), data.inputs)
    assert cells(X["x"]) == [None] * 2 and X["x"].dtype == data.X["x"].dtype


PARQUET_NUMBERS = {
    "integers": (pa.array([1, None, -3], pa.int8()), [1, None, -3]),
    "beyond a float's precision": (pa.array([2**63 - 1, 0, None]), [2.0**63, 0, None]),
    "halves": (pa.array([1.5, float("inf"), float("nan")]).cast(pa.float16()), [1.5, None, None]),
    "decimals": (pa.array(["1.50", None, "2.25"]).cast(pa.decimal128(9, 2)), [1.5, None, 2.25]),
    "dates": (pa.array([datetime.date(1970, 1, 2), None, datetime.date(1969, 12, 31)]), [86400, None, -86400]),
    "moments": (pa.array([1_500_000_000, None, 0], pa.timestamp("ns", tz="Europe/Paris")), [1.5, None, 0]),
    "text": (pa.array(["1", " 2 ", None], pa.large_string()), [1, 2, None]),
}


@pytest.mark.parametrize("kind", PARQUET_NUMBERS)
def test_numbers_of_parquet_are_floats(tmp_path, kind):
    column, expected = PARQUET_NUMBERS[kind]
    data = one_column(tmp_path, column)
    assert data.X["x"].dtype == np.float64 and cells(data.X["x"]) == expected
    assert data.inputs["columns"] == [{"name": "x", "kind": "number"}]


PARQUET_CATEGORIES = {
    "text": (pa.array(["b", None, "a"]), ["b", None, "a"]),
    "empty text": (pa.array(["b", "", " "]), ["b", None, None]),
    "views": (pa.array(["b", None, "a"]).cast(pa.string_view()), ["b", None, "a"]),
    "booleans": (pa.array([True, None, False]), ["true", None, "false"]),
    "dictionaries, even of digits": (pa.array(["10", "9", "10"]).dictionary_encode(), ["10", "9", "10"]),
}


@pytest.mark.parametrize("kind", PARQUET_CATEGORIES)
def test_text_and_truths_of_parquet_are_categories(tmp_path, kind):
    column, expected = PARQUET_CATEGORIES[kind]
    data = one_column(tmp_path, column)
    assert isinstance(data.X["x"].dtype, pd.CategoricalDtype) and cells(data.X["x"]) == expected
    assert data.inputs["columns"][0]["categories"] == sorted({cell for cell in expected if cell})


@pytest.mark.parametrize(
    "column",
    [pa.array([[1], [2]]), pa.array([{"a": 1}, None]), pa.array([b"a", b"b"]), pa.array([1, 2], pa.duration("s"))],
)
def test_what_is_no_feature_is_refused_until_it_is_dropped(tmp_path, column):
    with pytest.raises(ldp.InvalidArgument, match=r"column 'x' \(.*\) must be numbers, text.*drop"):
        one_column(tmp_path, column)
    with pytest.raises(ldp.InvalidArgument, match="at least one column to be a feature"):
        one_column(tmp_path, column, drop=["x"])


def test_of_too_many_categories_the_most_frequent_are_kept(tmp_path):
    names = [f"n{number:03d}" for number in range(300)]
    data = one_column(tmp_path, pa.array([*names, *names[100:], "n299", None]))
    categories = data.inputs["columns"][0]["categories"]
    assert len(categories) == 255 and categories == sorted({"(other)", *names[100:], *names[:54]})  # ties by name
    assert cells(data.X["x"])[:300] == [*names[:54], *["(other)"] * 46, *names[100:]]
    assert cells(data.X["x"])[-1] is None
    exactly = one_column(tmp_path, pa.array(names[:255]))
    assert exactly.inputs["columns"][0]["categories"] == names[:255]


# ---- later files -------------------------------------------------------------------------------------------------------------


def test_a_later_file_is_read_by_name_and_other_columns_are_not_looked_at(tmp_path):
    inputs = people(tmp_path).inputs
    later = written(tmp_path, "income,smokes,job,age\nwhatever,TRUE,pilot,1\n,,nurse,\n", "later.csv")
    X = table.read_features(later, json.loads(json.dumps(inputs)))
    assert list(X.columns) == ["age", "job", "smokes"]
    assert cells(X["age"]) == [1, None] and cells(X["job"]) == [None, "nurse"] and cells(X["smokes"]) == ["true", None]
    assert X["job"].dtype.categories.tolist() == ["cook", "nurse"]


def test_a_column_of_one_kind_of_file_is_read_from_the_other(tmp_path):
    path = tmp_path / "later.parquet"
    pq.write_table(
        pa.table({"age": ["7", None], "job": ["cook", None], "smokes": [True, None], "label": [[1], [2]]}), path
    )
    X = table.read_features(path, people(tmp_path).inputs)
    assert [cells(X[name]) for name in X] == [[7, None], ["cook", None], ["true", None]]
    codes = {"kind": "frame", "columns": [{"name": "x", "kind": "category", "categories": ["1", "2"]}]}
    pq.write_table(pa.table({"x": [2.0, None, 1.0, 3.0]}), path)  # integers, stored as floats because one is missing
    assert cells(table.read_features(path, codes)["x"]) == ["2", None, "1", None]
    truths = {"kind": "frame", "columns": [{"name": "x", "kind": "number"}]}
    pq.write_table(pa.table({"x": [True, None, False]}), path)
    assert cells(table.read_features(path, truths)["x"]) == [1, None, 0]


def test_a_stranger_is_among_the_others_where_there_are_any(tmp_path):
    inputs = one_column(tmp_path, pa.array([f"n{number}" for number in range(300)])).inputs
    X = table.read_features(written(tmp_path, "x,z\nstranger,\nn0,\n,\n"), inputs)
    assert cells(X["x"]) == ["(other)", "n0", None]


def test_a_later_file_must_have_the_columns_and_hold_numbers_where_they_were(tmp_path):
    inputs = people(tmp_path).inputs
    for content, problem in (
        (f"age,{MARKER}\n1,{MARKER}\n", "has no column 'job', 'smokes' among its 2 columns"),
        (f"age,job,smokes,income\nold,cook,true,{MARKER}\n", "column 'age' must hold numbers only"),
        ("age,job,smokes\n", "has no rows"),
    ):
        with pytest.raises(ldp.InvalidArgument, match=problem) as caught:
            table.read_features(written(tmp_path, content, "later.csv"), inputs)
        assert MARKER not in everything_said(caught.value)
    with pytest.raises(ldp.InvalidArgument, match="inputs must be those of a table"):
        table.read_features(tmp_path / "later.csv", {"kind": "table", "columns": ["age"]})


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@given(
    columns=st.lists(st.lists(st.one_of(TEXT, st.floats().map(repr)), min_size=3, max_size=3), min_size=1, max_size=3)
)
def test_a_table_is_read_again_as_it_was_loaded(tmp_path_factory, columns):
    path = tmp_path_factory.mktemp("again") / "any.parquet"
    pq.write_table(pa.table({str(place): cells for place, cells in enumerate(columns)} | {"label": [0, 1, 0]}), path)
    data = table.load(path, label="label", classes=2)
    pd.testing.assert_frame_equal(table.read_features(path, json.loads(json.dumps(data.inputs))), data.X)
    for name, given_cells in zip(data.X, columns, strict=False):
        if isinstance(data.X[name].dtype, pd.CategoricalDtype):
            kept = [cell if cell.strip() else None for cell in given_cells]
            assert cells(data.X[name]) in (kept, [cell and cell.lower() for cell in kept])  # truths in lower case


# ---- labels ------------------------------------------------------------------------------------------------------------------


def test_labels_are_numbered_in_the_declared_order(tmp_path):
    data = people(tmp_path)
    assert data.classes == ("low", "high") and data.unprotected().label_numbers.tolist() == [0, 1, 0, 0]
    assert people(tmp_path, classes=["high", "low"]).unprotected().label_numbers.tolist() == [1, 0, 1, 1]
    assert repr(data) == "<Dataset people.csv: 4 rows, 2 classes, labels sealed>"


@pytest.mark.parametrize("classes", [["1", "2", "3"], [1, 2, 3], np.array([1, 2, 3])])
def test_integer_classes_match_numbers_in_either_kind_of_file(tmp_path, classes):
    path = tmp_path / "numbers.parquet"
    for name, content in (("y", pa.array([3.0, 1.0])), ("y", pa.array(["3", "1"]))):
        pq.write_table(pa.table({"x": [0, 1], name: content}), path)
        data = table.load(path, label="y", classes=classes)
        assert data.classes == (1, 2, 3) and data.unprotected().labels.tolist() == [3, 1]


def test_rows_are_known_to_a_ledger_by_their_ids(tmp_path):
    ledger = tmp_path / "people.ledger"
    ldp.create_ledger(ledger, budget="2")
    data = people(tmp_path)
    assert data.ids == ["a", "b", "c", "d"] and data.subset(2).ids == ["a", "b"]
    data.subset(2).vault(ledger=ledger).release(ldp.RandomizedResponse(epsilon="1.5"))
    backwards = written(tmp_path, "\n".join([PEOPLE.split()[0], *reversed(PEOPLE.split()[1:])]) + "\n", "backwards.csv")
    vault = table.load(backwards, label="income", classes=["low", "high"], id_column="row").vault(ledger=ledger)
    assert [vault.remaining([row]).epsilon for row in range(4)] == ["2", "2", "0.5", "0.5"]


def test_without_ids_rows_are_known_by_position_and_the_id_column_is_a_feature(tmp_path):
    data = people(tmp_path, id_column=None)
    assert data.ids is None and "row" in data.X and len(data.vault(budget="1")) == 4
    assert "row" not in people(tmp_path, id_column=None, drop=["row", "age"]).X


@pytest.mark.parametrize("ids", ["a,a", "a,"])
def test_ids_must_be_there_and_unique(tmp_path, ids):
    first, second = ids.split(",")
    with pytest.raises(ldp.InvalidArgument, match="ids must be"):
        table.load(written(tmp_path, f"i,x,y\n{first},1,0\n{second},2,1\n"), label="y", classes=2, id_column="i")


def test_missing_labels_must_be_said_to_be_public(tmp_path):
    path = written(tmp_path, "x,y\n1,no\n2,\n3,yes\n")
    with pytest.raises(ldp.InvalidLabels, match="must not be missing"):
        table.load(path, label="y", classes=["no", "yes"])
    data = table.load(path, label="y", classes=["no", "yes"], missing="public")
    assert data.vault(budget="1").labelled.tolist() == [True, False, True] and data.missing == "public"
    assert data.unprotected().rows.tolist() == [0, 2] and data.unprotected().label_numbers.tolist() == [0, 1]
    with pytest.raises(ldp.InvalidArgument, match="rows must all have a label"):
        data.unprotected(rows=[0, 1])
    assert pickle.loads(pickle.dumps(data.only_public())).missing == "public"


def test_all_rows_are_training_rows_unless_a_public_test_is_given(tmp_path):
    alone = people(tmp_path)
    assert alone.public_test is None and len(alone.X_test) == len(alone.test_labels) == 0
    assert list(alone.X_test.columns) == list(alone.X.columns)
    test = written(tmp_path, "income,smokes,age,job\nhigh,true,5,pilot\nlow,,,cook\n", "test.csv")
    data = people(tmp_path, public_test=test)
    assert data.public_test == str(test) and data.n_rows == 4
    assert data.test_labels.tolist() == [1, 0] and data.test_labels.dtype == np.int64
    assert cells(data.X_test["age"]) == [5, None] and cells(data.X_test["job"]) == [None, "cook"]
    assert data.only_public().public_test == data.subset(2).public_test == str(test)


def test_a_public_test_is_another_file_whose_labels_are_all_there(tmp_path):
    os.link(written(tmp_path, PEOPLE), tmp_path / "link.csv")
    for same in ("people.csv", "link.csv"):
        with pytest.raises(ldp.InvalidArgument, match="public_test must be another file"):
            people(tmp_path, public_test=tmp_path / same)
    for content, problem in (
        ("age,job,smokes,income\n1,cook,true,\n2,cook,true,low\n", "test.csv: the labels of a public test"),
        ("age,job,smokes,income\n1,cook,true,middle\n", r"test\.csv: labels must all be among the declared"),
        ("age,job,smokes\n1,cook,true\n", "has no column 'income'"),
        ("age,smokes,income\n1,true,low\n", "has no column 'job'"),
    ):
        with pytest.raises(ldp.InvalidArgument, match=problem):
            people(tmp_path, public_test=written(tmp_path, content, "test.csv"))


def many(folder, numbers, name):
    """Write rows with an id, two features and a label; the row of a number is the same in every file."""
    rows = [f"r{number},{number % 7}.5,{'abc'[number % 3]},{('low', 'high')[number % 2]}" for number in numbers]
    return written(folder, "\n".join(["row,size,kind,income", *rows]) + "\n", name)


def with_test(folder, test, *, ids=None, drop=()):
    file = many(folder, range(100), "many.csv")
    options = {"label": "income", "classes": ["low", "high"], "id_column": ids, "drop": drop}
    return table.load(file, public_test=test, **options)


@pytest.mark.parametrize("numbers", [range(100), range(60, 100), [7], [*range(51), *range(1000, 1050)]], ids=len)
def test_training_rows_are_no_public_test(tmp_path, numbers):
    test = many(tmp_path, numbers, "test.csv")
    with pytest.raises(ldp.InvalidArgument, match=r"equal training rows in all features: .*If they are not, give --id"):
        with_test(tmp_path, test)
    with pytest.raises(ldp.InvalidArgument, match="has rows with ids of training rows, whose labels are secret"):
        with_test(tmp_path, test, ids="row")
    without_ids = written(tmp_path, test.read_text().replace("row,", "name,", 1), "unnamed.csv")
    with pytest.raises(ldp.InvalidArgument, match="these look like training rows"):
        with_test(tmp_path, without_ids, ids="row")


def test_rows_that_equal_training_rows_by_chance_are_told_apart_by_ids(tmp_path):
    test = many(tmp_path, range(1000, 1040), "test.csv")
    with pytest.raises(ldp.InvalidArgument, match="these look like training rows"):
        with_test(tmp_path, test, drop=["row"])
    assert len(with_test(tmp_path, test, ids="row").test_labels) == 40
    few = many(tmp_path, [*range(50), *range(1000, 1050)], "few.csv")  # no more than half of them
    assert len(with_test(tmp_path, few).test_labels) == 100


def test_missing_cells_and_zeros_of_either_sign_are_equal_to_themselves(tmp_path):
    file = written(tmp_path, "a,b,income\n,x,low\n0,,high\n5,y,low\n", "gaps.csv")
    test = written(tmp_path, "b,a,income\nx,,high\n,-0.0,low\nz,6,low\n", "test.csv")
    with pytest.raises(ldp.InvalidArgument, match="these look like training rows"):
        table.load(file, label="income", classes=["low", "high"], public_test=test)


@pytest.mark.parametrize("has", ["a ledger beside it", "a book"])
def test_a_file_whose_labels_were_charged_is_no_public_test(tmp_path, has):
    test = many(tmp_path, range(1000, 1040), "test.csv")
    (tmp_path / "link.csv").symlink_to(test)
    ledger = tmp_path / ("test.csv.ledger" if has == "a ledger beside it" else "other.ledger")
    ldp.create_ledger(ledger, budget="1")
    if has == "a book":
        with open_book(test) as book:
            book.note(Columns(label="income", features=["size", "kind"], id_column=None), ledger, None)
    for path in (test, tmp_path / "link.csv"):
        with pytest.raises(ldp.InvalidArgument, match=rf"{ledger.name}\), so they are not public"):
            with_test(tmp_path, path, ids="row")


def test_reading_a_public_test_writes_nothing_beside_it(tmp_path):
    test = many(tmp_path, range(1000, 1040), "test.csv")
    assert len(with_test(tmp_path, test, ids="row").test_labels) == 40
    assert not list(tmp_path.glob("test.csv.*"))


def test_ids_of_a_public_test_must_be_ids(tmp_path):
    test = written(tmp_path, "row,size,kind,income\nz,1,a,low\nz,2,b,high\n", "test.csv")
    with pytest.raises(ldp.InvalidArgument, match=r"test\.csv: ids must be unique"):
        with_test(tmp_path, test, ids="row")


def test_a_frame_is_cut_and_travels_like_any_dataset(tmp_path):
    data = people(tmp_path)
    few = data.subset(3)
    pd.testing.assert_frame_equal(few.X, data.X.iloc[:3])
    assert few.unprotected().label_numbers.tolist() == [0, 1, 0]
    for again in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        arrived = again(data.only_public())
        pd.testing.assert_frame_equal(arrived.X, data.X)
        assert (arrived.ids, arrived.inputs, arrived.classes) == (data.ids, data.inputs, data.classes)
        with pytest.raises(ldp.VaultClosed, match=r"people\.csv as it was loaded"):
            arrived.vault(budget="1")


# ---- wrong arguments and silence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classes": "low,high"}, "classes must be a count or a list"),
        ({"classes": [0.5, 1.5]}, "classes must be a count, text or integers"),
        ({"classes": [False, True]}, r"such as classes=\['false', 'true'\]"),
        ({"classes": ["low", "low"]}, "name each class once"),
        ({"classes": 1}, "classes must be between 2"),
        ({"missing": "secret"}, "missing must be one of 'public'"),
        ({"drop": "age"}, "drop must be a list of column names"),
        ({"drop": ["age", "size"]}, "has no column 'size' among its 5 columns\\. The file needs a header line"),
        ({"id_column": "income"}, "the id column must not be the label column"),
        ({"id_column": "name"}, "has no column 'name'"),
        ({"drop": ["jobs"]}, r"has no column 'jobs' among its 5 columns\. Did you mean 'job'\? The file"),
        ({"label": "salary"}, "has no column 'salary' among its 5 columns"),
        ({"drop": ["row", "age", "job", "smokes"]}, "at least one column to be a feature"),
    ],
)
def test_wrong_arguments_are_told_apart(tmp_path, options, problem):
    with pytest.raises(ldp.InvalidArgument, match=problem):
        people(tmp_path, **options)


def test_the_catalogue_says_how_to_read_a_file():
    with pytest.raises(
        ldp.InvalidArgument, match=r"got 'people\.csv'\. A file of your own is read by datasets\.table\.load"
    ):
        datasets.load("people.csv")


BAD_FILES = {
    "a stranger among the labels": f"x,y\n1,no\n2,{MARKER}\n",
    "other classes altogether": f"x,y\n1,{MARKER}\n2,{MARKER}\n",
    "a missing label": f"x,y\n1,\n2,{MARKER}\n",
    "no header line": f"1,{MARKER}\n2,no\n3,no\n",  # and a stranger in the first row
    "a cell too many": f"x,y\n1,no\n2,{MARKER},3\n",
    "an open quote": f'x,y\n1,no\n2,"{MARKER}\n',
    "another label column": f"x,z\n1,{MARKER}\n",
    "no other column": f"y\n{MARKER}\n",
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_no_error_shows_a_label(tmp_path, kind):
    with pytest.raises(ldp.InvalidArgument) as caught:
        table.load(written(tmp_path, BAD_FILES[kind]), label="y", classes=["no", "yes"])
    said = everything_said(caught.value)
    assert "people.csv" in said  # locals were looked at
    assert MARKER not in said


@pytest.mark.parametrize("first", [f"red,{MARKER}", "red,yes", "7,blue", "red,YES "])
def test_a_first_row_that_stands_where_the_names_should_is_not_quoted(tmp_path, first):
    with pytest.raises(ldp.InvalidArgument, match=r"has no column 'y' .*needs a header line") as caught:
        table.load(written(tmp_path, f"{first}\nred,{MARKER}\n"), label="y", classes=["no", "yes", MARKER])
    assert not any(cell in str(caught.value) for cell in first.split(",") if len(cell) > 1)


@pytest.mark.parametrize("column", [[[MARKER], ["no"]], [MARKER.encode(), b"no"], [datetime.date(1986, 7, 5), None]])
def test_no_error_shows_a_label_of_another_type(tmp_path, column):
    path = tmp_path / "typed.parquet"
    pq.write_table(pa.table({"x": [1, 2], "y": column}), path)
    with pytest.raises(ldp.InvalidLabels if not isinstance(column[0], list) else ldp.InvalidArgument) as caught:
        table.load(path, label="y", classes=["no", "yes"], missing="public")
    said = everything_said(caught.value)
    assert MARKER not in said and "1986" not in said


def test_a_file_that_changes_is_refused_without_a_label(tmp_path, monkeypatch):
    path = written(tmp_path, f"x,y\n1,{MARKER}\n2,no\n")
    read = table.read_labels

    def read_then_write(*given, **named):
        column = read(*given, **named)
        path.write_text(f"x,y\n1,{MARKER}\n2,no\n3,{MARKER}\n")
        return column

    monkeypatch.setattr(table, "read_labels", read_then_write)
    with pytest.raises(ldp.InvalidArgument, match="changed while it was read") as caught:
        table.load(path, label="y", classes=["no", MARKER])
    assert MARKER not in everything_said(caught.value).replace(f"'no', '{MARKER}'", "")


def test_an_error_after_the_labels_were_read_shows_none(tmp_path, monkeypatch):
    rows = "\n".join(f"{row},{MARKER}" for row in range(50))
    path = written(tmp_path, f"x,y\n{rows}\n")
    monkeypatch.setattr(table.columns, "describe", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        table.load(path, label="y", classes=["no", MARKER])
    said = everything_said(caught.value)
    assert "declared" in said and "LabelColumn()" in said  # locals were looked at
    assert MARKER not in said.replace(f"'no', '{MARKER}'", "") and "1, 1, 1" not in said and "1 1 1" not in said


def test_nothing_of_a_loaded_table_shows_or_stores_a_label(tmp_path):
    """The marker is a declared class: the class list may name it, once, and nothing else does."""
    rows = "\n".join(f"{row},b,{MARKER}" for row in range(40))
    data = table.load(written(tmp_path, f"x,c,y\n{rows}\n"), label="y", classes=["no", MARKER])
    held = {slot: getattr(data, slot) for slot in Dataset.__slots__}
    assert repr(held).count(MARKER) == 1 and repr([data, str(data)]).count(MARKER) == 0
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, lambda each: pickle.dumps(each.__getstate__())):
        with pytest.raises(ldp.LabelDPError) as caught:
            attempt(data)
        assert MARKER not in everything_said(caught.value)
    content = pickle.dumps(data.only_public())
    assert content.count(MARKER.encode()) == 1
    assert not any(np.ones(40, kind).tobytes() in content for kind in ("i1", "i2", "i4", "i8", "f4", "f8"))


def test_pandas_is_loaded_when_a_table_is_asked_for_and_not_before():
    code = (
        "from labeldp import datasets; import sys; before = 'pandas' in sys.modules\n"
        "datasets.table; print(before, 'pandas' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        == "False True\n"
    )


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_without_its_packages_a_table_says_what_to_install(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from labeldp import MissingExtra, datasets\n"
        "try: datasets.table\n"
        "except MissingExtra as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "pip install 'labeldp[table]'" in said
