"""Features that a user has already: opened, checked, and left as they are."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from labeldp.errors import InvalidArgument
from labeldp.features import given
from labeldp.features.given import _check_finite

TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def saved(tmp_path):
    def save(array, name="features.npy"):
        np.save(tmp_path / name, array)
        return tmp_path / name

    return save


def test_a_file_is_mapped_and_not_read_into_memory(saved):
    path = saved(TABLE)
    for place in (path, str(path)):
        found = given(place, rows=4)
        assert isinstance(found, np.memmap) and not found.flags.writeable
        np.testing.assert_array_equal(found, TABLE)


def test_an_array_is_not_copied_and_stays_writeable_for_its_owner():
    own = TABLE.copy()
    found = given(own, rows=4)
    assert np.shares_memory(found, own) and own.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", "i1", "u2", "?"])
def test_all_kinds_of_real_numbers_are_taken_as_they_are(dtype, saved):
    array = (TABLE % 2).astype(dtype)
    for source in (array, saved(array)):
        found = given(source, rows=4)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_maps_are_flattened_row_by_row_and_a_single_axis_is_one_feature(saved):
    maps = TABLE.reshape(4, 2, 3)
    for source in (maps, saved(maps)):
        np.testing.assert_array_equal(given(source, rows=4), TABLE)
    assert given([1.0, 2.0], rows=2).shape == (2, 1)


@pytest.mark.parametrize(
    ("features", "says"),
    [
        (TABLE[:3], "one row per row of the data, 4, in its order; got 3 rows (shape (3, 6))"),
        (TABLE.T, "got 6 rows"),
        (np.float64(3), "got a single number"),
        (TABLE[:, :0], "at least one number per row, got shape (4, 0)"),
        (TABLE.astype(complex), "real numbers, got dtype complex128"),
        (TABLE.astype(str), "real numbers, got dtype <U"),
        (TABLE.astype(object), "real numbers, got dtype object"),
        (TABLE.astype("M8[s]"), "real numbers, got dtype datetime64"),
        ([[1, 2], [3]], "array or a list of plain values"),
    ],
    ids=["fewer", "turned", "no rows", "no columns", "complex", "text", "objects", "dates", "ragged"],
)
def test_what_is_no_table_of_the_datas_rows_is_refused(features, says):
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        given(features, rows=4)


def test_numbers_that_are_not_finite_are_counted_and_refused(saved):
    array = TABLE.copy()
    array[1, 2], array[3, 0], array[3, 1] = np.nan, np.inf, -np.inf
    with pytest.raises(InvalidArgument, match="features must be finite; 2 of 4 rows"):
        given(array, rows=4)
    path = saved(array)
    with pytest.raises(InvalidArgument, match=re.escape(f"features in {path} must be finite; 2 of 4 rows")):
        given(path, rows=4)


def test_every_piece_is_looked_at(monkeypatch):
    monkeypatch.setitem(_check_finite.__globals__, "BYTES_AT_ONCE", 50)  # two rows
    for row in range(4):
        array = TABLE.copy()
        array[row, 5] = np.nan
        with pytest.raises(InvalidArgument, match="1 of 4 rows"):
            given(array, rows=4)
    given(TABLE, rows=4)


def test_files_that_hold_no_whole_array_are_refused(saved, tmp_path):
    with pytest.raises(InvalidArgument, match="there is no file"):
        given(tmp_path / "none.npy", rows=4)
    cut = saved(TABLE)
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(InvalidArgument, match=r"must be a whole \.npy file"):
        given(cut, rows=4)
    empty = tmp_path / "empty.npy"
    empty.touch()
    with pytest.raises(InvalidArgument, match=r"must be a whole \.npy file"):
        given(empty, rows=4)
    np.savez(tmp_path / "several.npz", a=TABLE, b=TABLE)
    with pytest.raises(InvalidArgument, match="archive of several"):
        given(tmp_path / "several.npz", rows=4)


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_pickled_objects_in_a_file_are_not_executed(saved, tmp_path):
    plain = tmp_path / "plain.npy"
    plain.write_bytes(pickle.dumps(Trap()))
    for trap in (plain, saved(np.array([Trap()], dtype=object))):
        with pytest.raises(InvalidArgument, match=r"must be a whole \.npy file of numbers"):
            given(trap, rows=1)


@pytest.mark.parametrize("rows", [0, -1, 2.5, None, True])
def test_rows_is_a_count(rows):
    with pytest.raises(InvalidArgument, match="rows must be"):
        given(TABLE, rows=rows)
