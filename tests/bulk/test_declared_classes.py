"""Which cells belong to which declared class, whatever the column's type."""

from __future__ import annotations

from decimal import Decimal

import pytest

from labeldp.bulk.declared import MISSING, STRANGER, DeclaredClasses
from labeldp.errors import InvalidArgument


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (3, (0, 1, 2)),
        (["no", "yes"], ("no", "yes")),
        (["3", "-1", "0"], (3, -1, 0)),
        (["01", "02"], ("01", "02")),  # not how one writes integers: text
        (["1", "x"], ("1", "x")),
        (["1", "9999999999999999999"], ("1", "9999999999999999999")),  # past 64 bits
    ],
)
def test_classes_are_integers_or_text(classes, names):
    assert DeclaredClasses.of(classes).names == names


@pytest.mark.parametrize("classes", [1, 0, -3, 100_001, ["a"], ["a", "a"], ["a", ""], []])
def test_bad_class_lists_are_refused(classes):
    with pytest.raises(InvalidArgument):
        DeclaredClasses.of(classes)


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        *[(2, 0), ("2", 0), (" 2 ", 0), ("+2", 0), ("002", 0), ("2.", 0), ("2.00", 0), (2.0, 0), (Decimal("2"), 0)],
        *[(-7, 1), ("-7", 1), (0, 2), (False, 2), ("0", 2), ("-0", 2)],
        *[(3, STRANGER), ("3", STRANGER), ("2.5", STRANGER), (2.5, STRANGER), ("x", STRANGER), (True, STRANGER)],
        *[("2e0", STRANGER), ("٢", STRANGER), ("9" * 5000, STRANGER), (1e300, STRANGER), (float("inf"), STRANGER)],
        *[(None, MISSING), ("", MISSING), (float("nan"), MISSING), (b"2", STRANGER)],
    ],
)
def test_integer_classes_match_integers_however_they_are_stored(cell, number):
    assert DeclaredClasses.of(["2", "-7", "0"]).number_of(cell) == number


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        *[(True, 0), ("true", 0), ("TRUE", 0), ("True", 0), (1, 0), ("1", 0), (1.0, 0)],
        *[(False, 1), ("FALSE", 1), (0, 1), ("0", 1)],
        *[("yes", STRANGER), (2, STRANGER), ("t", STRANGER), (None, MISSING), ("", MISSING)],
    ],
)
def test_true_and_false_match_booleans_however_they_are_stored(cell, number):
    assert DeclaredClasses.of(["True", "False"]).number_of(cell) == number


@pytest.mark.parametrize(
    ("cell", "number"),
    [("no", 0), ("1", 1), ("No", STRANGER), (" no", STRANGER), (1, STRANGER), (True, STRANGER), (None, MISSING)],
)
def test_text_classes_match_the_same_text_only(cell, number):
    assert DeclaredClasses.of(["no", "1"]).number_of(cell) == number
