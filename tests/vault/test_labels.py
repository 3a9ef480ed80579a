import numpy as np
import pandas as pd
import pytest

import labeldp as ldp
from labeldp.vault.labels import Classes, Unsealed, seal


def numbers(labels, classes, missing=None):
    sealed = seal(Unsealed(labels), Classes.declared(classes), missing=missing)
    return sealed.open(np.arange(len(sealed))).tolist()


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ([0, 2, 1], 3, [0, 2, 1]),
        (np.array([0, 1], dtype=np.uint8), 2, [0, 1]),
        (np.array([True, False]), [False, True], [1, 0]),
        (np.array([True, False]), 2, [1, 0]),
        (np.array([1, 0]), [False, True], [1, 0]),
        (["yes", "no"], ["no", "yes"], [1, 0]),
        (np.array(["yes", "no"]), ["no", "yes"], [1, 0]),
        (np.array(["yes", "no"], dtype=object), ["no", "yes"], [1, 0]),
        ([5, 1, 3], [1, 3, 5], [2, 0, 1]),
        ([5, 1, 3], [5, 3, 1], [0, 2, 1]),
        (np.array([-1, 7]), [7, -1], [1, 0]),
        ([0.5, 1.0], [0.0, 0.5, 1.0], [1, 2]),
        (pd.Series(["b", "a"]), ["a", "b"], [1, 0]),
        (pd.Series(["b", "a"], dtype="category"), ["a", "b"], [1, 0]),
        (pd.Series([1, 0], dtype="Int64"), 2, [1, 0]),
        (pd.Series([True, False], dtype="boolean"), [False, True], [1, 0]),
        (pd.Series([1, 0], index=[7, 3]), 2, [1, 0]),
        (pd.array(["b", "a"], dtype="string"), ["a", "b"], [1, 0]),
        (range(3), 3, [0, 1, 2]),
        (list(np.array([1, 0])), 2, [1, 0]),
        (list(np.array(["b", "a"])), ["a", "b"], [1, 0]),
        (list(np.array([True, False])), [False, True], [1, 0]),
        ([0.5, 1.5, 1.0], [0.5, 1, 1.5], [0, 2, 1]),
        ([1.5, 1, 0.5], [0.5, 1, 1.5], [2, 1, 0]),
        (("a", "b"), ("a", "b"), [0, 1]),
    ],
)
def test_labels_come_as_integers_booleans_text_numbers_and_pandas(labels, classes, expected):
    assert numbers(labels, classes) == expected


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 3], 3),
        ([0, -1], 3),
        ([0.0, 1.0], 2),
        ([0, np.nan], 2),
        (np.array([0.0, np.nan]), 2),
        ([0, None], 2),
        (["0", "1"], 2),
        ([0, 1], ["0", "1"]),
        (["no", "maybe"], ["no", "yes"]),
        (["no", 1], ["no", "yes"]),
        (["no ", "yes"], ["no", "yes"]),
        (np.array([b"no", b"yes"]), ["no", "yes"]),
        ([], 2),
        ([[0, 1]], 2),
        (np.zeros((2, 2), dtype=int), 2),
        (np.array(0), 2),
        (5, 2),
        ("01", 2),
        (None, 2),
        ({"a": 1}, 2),
        ([[1], [1, 2]], 2),
        (np.array([1 + 0j]), 2),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), 2),
        (np.array([2**63], dtype=np.uint64), 2),
        ([10**30], 2),
        ([True, 5], 2),
        (pd.Series([1, None], dtype="Int64"), 2),
        (pd.DataFrame({"a": [0, 1]}), 2),
        (pd.Series([], dtype=int), 2),
    ],
)
def test_labels_that_are_not_the_declared_classes_are_refused(labels, classes):
    with pytest.raises(ldp.InvalidLabels) as caught:
        ldp.LabelVault(labels, classes=classes, budget="1")
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize(
    "classes",
    [1, 0, -2, 1.5, "ab", None, [], ["a"], ["a", "a"], ["a", 1], [0, False], [None, "a"], [1.0, np.inf], 100_001, True],
)
def test_classes_are_declared_properly(classes):
    with pytest.raises(ldp.InvalidArgument, match="classes"):
        ldp.LabelVault([0, 1], classes=classes, budget="1")


def test_missing_labels_may_be_public_and_are_then_never_released():
    for labels in ([0, None, 1], pd.Series([0, None, 1], dtype="Int64"), pd.Series([0.0, np.nan, 1.0]).astype("Int64")):
        vault = ldp.LabelVault(labels, classes=2, budget="1", missing="public")
        assert vault.labelled.tolist() == [True, False, True]
        release = vault.release(ldp.RandomizedResponse("1"))
        assert release.rows.tolist() == [0, 2]
        with pytest.raises(ldp.InvalidArgument, match="must all have a label"):
            vault.release(ldp.RandomizedResponse("1"), rows=[1])


def test_a_column_of_missing_labels_is_refused():
    with pytest.raises(ldp.InvalidLabels, match="all be missing"):
        ldp.LabelVault([None, None], classes=2, budget="1", missing="public")


def test_the_vault_keeps_its_own_copy():
    labels = np.zeros(1_000, dtype=np.uint8)
    vault = ldp.LabelVault(labels, classes=2, budget="20")
    labels[:] = 1
    assert (vault.release(ldp.RandomizedResponse("20")).labels == 0).mean() > 0.99


@pytest.mark.parametrize("ids", [["a", "a"], ["a"], [1.5, 2.5], [None, "b"], [["a"], ["b"]], "ab", [True, False]])
def test_ids_are_unique_text_or_integers(ids):
    with pytest.raises(ldp.InvalidArgument, match="ids"):
        ldp.LabelVault([0, 1], classes=2, budget="1", ids=ids)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"])
@pytest.mark.parametrize("classes", [2, [0, 1], [1, 0], [5, 6]])
@pytest.mark.parametrize("stranger", [2, 3, 7, 100, 127])
def test_a_stranger_is_refused_in_every_integer_type(dtype, classes, stranger):
    labels = np.array([0, 1, stranger], dtype=dtype) if classes != [5, 6] else np.array([5, 6, stranger], dtype=dtype)
    with pytest.raises(ldp.InvalidLabels, match="among the declared classes"):
        ldp.LabelVault(labels, classes=classes, budget="1")


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i2", "i4", "i8"])
def test_every_integer_type_holds_labels(dtype):
    assert numbers(np.array([0, 254, 3], dtype=dtype), 255) == [0, 254, 3]
    assert numbers(np.array([3, 200], dtype=dtype), [200, 3]) == [1, 0]


@pytest.mark.parametrize("dtype", ["u1", "u8", "i8"])
def test_the_largest_numbers_of_a_type_are_strangers_too(dtype):
    with pytest.raises(ldp.InvalidLabels):
        ldp.LabelVault(np.array([0, np.iinfo(dtype).max], dtype=dtype), classes=3, budget="1")


@pytest.mark.parametrize(
    ("labels", "stored"),
    [
        (np.array([0.0, 1.0]), "numbers with a decimal point"),
        (pd.Series([0.0, 1.0]), "numbers with a decimal point"),
        (["no", "yes"], "text"),
        ([None, "no", 1], "objects of several or other types"),
    ],
)
def test_labels_of_another_type_are_told_how_they_are_stored_and_what_to_do(labels, stored):
    with pytest.raises(ldp.InvalidLabels, match=rf"\(integers\); these are stored as {stored}.*astype\('Int64'\)"):
        numbers(labels, 2, missing="public")
