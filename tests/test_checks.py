"""The checks say what must hold, whatever they are given."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labeldp import checks
from labeldp.errors import InvalidArgument, LabelDPError

INT64 = st.integers(-(2**63), 2**63 - 1)
INTEGER_DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">u8"]


# ---------------------------------------------------------------- integer, one_of, text


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(2), np.array([2], dtype=">i4")[0]])
def test_an_integer_of_any_width_comes_back_as_an_int(value):
    assert type(checks.integer(k=value, at_least=1)) is int
    assert checks.integer(k=value, at_least=1, at_most=2) == 2


@pytest.mark.parametrize("value", [True, np.True_, 2.0, np.float64(2), "2", None, [2], np.array([2]), 2 + 0j])
def test_what_is_not_an_integer_is_refused_by_its_type(value):
    with pytest.raises(InvalidArgument, match=rf"^k must be an integer, got {type(value).__name__}\.$"):
        checks.integer(k=value, at_least=0)


def test_an_integer_out_of_range_is_refused_with_the_range():
    with pytest.raises(InvalidArgument, match=r"^k must be at least 1, got 0\.$"):
        checks.integer(k=0, at_least=1)
    with pytest.raises(InvalidArgument, match=r"^k must be between 1 and 3, got 4\.$"):
        checks.integer(k=np.uint64(4), at_least=1, at_most=3)


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["above", "below"])
def test_an_integer_too_long_to_print_is_refused_all_the_same(value):
    with pytest.raises(InvalidArgument, match=r"^k must be between 1 and 3, got one of more than 40 digits\.$"):
        checks.integer(k=value, at_least=1, at_most=3)


def test_a_word_must_be_one_of_those_allowed():
    assert checks.one_of(("local", "curator"), trust="local") == "local"
    with pytest.raises(InvalidArgument, match=r"^trust must be one of 'local', 'curator', got 'nobody'\.$"):
        checks.one_of(("local", "curator"), trust="nobody")


@pytest.mark.parametrize("value", [None, 1, b"local", ["local"], np.array(["local"])])
def test_a_word_that_is_not_text_is_refused_by_its_type(value):
    with pytest.raises(InvalidArgument, match=rf"^trust must be one of 'local', got {type(value).__name__}\.$"):
        checks.one_of(("local",), trust=value)


@pytest.mark.parametrize("value", ["x", "a b", "é", "x" * 200])
def test_short_printable_text_passes_unchanged(value):
    assert checks.text(note=value) == value


@pytest.mark.parametrize("value", ["", "x" * 201, "a\nb", "\x00", "\x1b[0m", "\ud800", None, 3, b"x"])
def test_text_that_is_empty_long_or_unprintable_is_refused(value):
    with pytest.raises(InvalidArgument, match=r"^note must be 1 to 200 printable characters\.$"):
        checks.text(note=value)


# ---------------------------------------------------------------- array


def test_an_array_passes_as_itself_and_a_list_becomes_one():
    given_array = np.array([1, 2])
    assert checks.array(ids=given_array) is given_array
    assert checks.array(ids=["a", "b"]).tolist() == ["a", "b"]


class Stubborn:
    def __init__(self, error):
        self.error = error

    def __str__(self):
        return self.error.__name__

    def __array__(self, dtype=None, copy=None):
        raise self.error("secret")


@pytest.mark.parametrize("value", [[[1], [2, 3]], *map(Stubborn, [ValueError, TypeError, OverflowError])], ids=str)
def test_what_makes_no_array_is_refused_without_repeating_numpys_words(value):
    with pytest.raises(InvalidArgument, match=r"^ids must be an array or a list of plain values\.$") as refusal:
        checks.array(ids=value)
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__


# ---------------------------------------------------------------- rows


def naive_rows(values, n_rows):
    """Read the law word for word: at least one, strictly increasing, none below 0 or beyond the last row."""
    increasing = all(a < b for a, b in pairwise(values))
    return values if values and increasing and all(0 <= v < n_rows for v in values) else None


def same_as_naive(given_rows, values, n_rows):
    wanted = naive_rows(values, n_rows)
    if wanted is None:
        with pytest.raises(InvalidArgument, match=r"^rows must "):
            checks.rows(given_rows, n_rows)
    else:
        got = checks.rows(given_rows, n_rows)
        assert got.dtype == np.int64 and got.tolist() == wanted


@given(values=st.lists(st.integers(-2, 9), max_size=6), n_rows=st.integers(1, 8))
def test_a_list_of_rows_passes_if_and_only_if_it_increases_within_range(values, n_rows):
    same_as_naive(values, values, n_rows)


@given(values=st.sets(st.integers(0, 9), max_size=6), n_rows=st.integers(1, 12), dtype=st.sampled_from(INTEGER_DTYPES))
def test_rows_of_any_integer_dtype_are_read_alike(values, n_rows, dtype):
    same_as_naive(np.array(sorted(values), dtype=dtype), sorted(values), n_rows)


extremes = st.sampled_from([-(2**63), -(2**63) + 5, -(2**62), -1, 0, 1, 5, 7, 2**62, 2**63 - 1])


@given(values=st.lists(extremes | INT64, min_size=1, max_size=5), n_rows=st.sampled_from([1, 8, 2**63 - 1]))
def test_extreme_rows_do_not_wrap_around_the_check(values, n_rows):
    same_as_naive(np.array(values, dtype=np.int64), values, n_rows)


def test_a_fall_that_overflows_is_still_a_fall():
    with pytest.raises(InvalidArgument, match="strictly increasing"):
        checks.rows(np.array([5, -(2**63), -1, 7]), 10)


@given(values=st.lists(st.integers(0, 9) | st.integers(2**63 - 1, 2**64 - 1), min_size=1, max_size=4))
def test_huge_unsigned_rows_do_not_turn_negative(values):
    same_as_naive(np.array(values, dtype=np.uint64), values, 8)


@given(mask=st.lists(st.booleans(), min_size=1, max_size=20))
def test_a_mask_is_the_rows_it_marks(mask):
    same_as_naive(mask, [i for i, marked in enumerate(mask) if marked], len(mask))
    same_as_naive(np.array(mask), [i for i, marked in enumerate(mask) if marked], len(mask))


def test_no_rows_given_means_all_rows():
    assert checks.rows(None, 3).tolist() == [0, 1, 2]
    assert checks.rows(None, 3).dtype == np.int64


@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_a_mask_must_have_one_entry_per_row(length):
    with pytest.raises(InvalidArgument, match=rf"^rows as a mask must have one entry per row \(3\), got {length}\.$"):
        checks.rows(np.ones(length, dtype=bool), 3)


@pytest.mark.parametrize("nothing", [[], (), np.array([], dtype=np.int64), np.array([]), np.zeros(3, dtype=bool)])
def test_no_row_at_all_is_refused(nothing):
    with pytest.raises(InvalidArgument, match=r"^rows must name at least one row, got none\.$"):
        checks.rows(nothing, 3)


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [0, 2, 1], [-1], [-1, 0], [3], [0, 3]])
def test_repeated_unsorted_or_outside_rows_are_refused_with_advice(rows):
    wanted = "^rows must be strictly increasing integers from 0 to 2: sort them and name each row once"
    with pytest.raises(InvalidArgument, match=wanted):
        checks.rows(rows, 3)


@pytest.mark.parametrize(
    "rows",
    [
        [0.0, 1.0],
        ["0"],
        [None],
        [0, None],
        [2**70],
        [-1, 2**63],
        [True, 2.5],
        np.array([0, 1], dtype=object),
        np.array([0j]),
        np.array(["2020-01-01"], dtype="M8[D]"),
    ],
    ids=repr,
)
def test_rows_of_other_kinds_are_refused(rows):
    with pytest.raises(InvalidArgument, match=r"^rows must be a boolean mask or integers"):
        checks.rows(rows, 3)


@pytest.mark.parametrize("rows", [[[0], [1, 2]], [[[]], [1]], [0, [1]]])
def test_ragged_rows_are_refused(rows):
    with pytest.raises(InvalidArgument, match=r"^rows must be an array or a list of plain values\.$"):
        checks.rows(rows, 3)


@pytest.mark.parametrize("rows", [0, True, "abc", [[0, 1]], np.ones((3, 1), dtype=bool), {0, 1}, object], ids=repr)
def test_rows_must_have_one_dimension(rows):
    with pytest.raises(InvalidArgument, match=r"^rows must have one dimension, got shape \("):
        checks.rows(rows, 3)


def test_rows_are_a_copy_that_the_caller_cannot_change_afterwards():
    mine = np.array([0, 2])
    checked = checks.rows(mine, 3)
    mine[:] = 99
    assert checked.tolist() == [0, 2]


# ---------------------------------------------------------------- probabilities


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("g", "f8"), (">f4", "f8"), (">f8", "f8"), ("i1", "f8"), ("u8", "f8")],
)
def test_priors_of_any_number_dtype_become_float32_or_float64(dtype, kept):
    checked = checks.probabilities(np.eye(3, dtype=dtype), 3, 3)
    assert checked.dtype == np.dtype(kept) and (checked == np.eye(3)).all()


def test_zeros_ones_and_nested_lists_are_priors():
    assert checks.probabilities([[0, 1], [0.25, 0.75]], 2, 2).tolist() == [[0.0, 1.0], [0.25, 0.75]]
    assert checks.probabilities([[-0.0, 1.0]], 1, 2).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("order", ["C", "F"])
def test_priors_pass_unchanged_in_either_memory_order(order):
    priors = np.asarray(np.random.default_rng(0).dirichlet(np.ones(4), size=5), order=order)
    assert (checks.probabilities(priors, 5, 4) == priors).all()
    assert (checks.probabilities(priors[::2], 3, 4) == priors[::2]).all()


weights = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.floats(0.001, 1))


@given(weights=weights, dtype=st.sampled_from(["f2", "f4", "f8"]))
def test_a_distribution_rounded_to_any_float_is_accepted(weights, dtype):
    priors = (weights / weights.sum(axis=1, keepdims=True)).astype(dtype)
    assert (checks.probabilities(priors, *priors.shape) == priors).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_largest_number_of_classes_still_sums_to_one(dtype):
    shape = (2, checks.MAX_CLASSES)
    assert checks.probabilities(np.full(shape, 1 / checks.MAX_CLASSES, dtype=dtype), *shape).shape == shape


def test_no_rows_of_priors_are_fair_without_further_ado():
    assert checks.probabilities(np.zeros((0, 3)), 0, 3).shape == (0, 3)


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 4), (1, 2, 3), (3, 2, 1), ()])
def test_priors_of_the_wrong_shape_are_refused_with_both_shapes(shape):
    with pytest.raises(InvalidArgument, match=r"^priors must have shape \(2, 3\), got \("):
        checks.probabilities(np.ones(shape), 2, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 0.6, 0.4, -0.5, 1e308, -1e308, 5e-324])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g"])
def test_a_row_that_is_not_finite_or_does_not_sum_to_one_is_counted_and_refused(bad, dtype):
    with np.errstate(over="ignore"):
        priors = np.array([[0.5, 0.5], [0.5, bad], [0.0, 1.0]]).astype(dtype)
    wanted = r"^each row of priors must be finite and sum to 1 \(within 0.001\); 1 of 3 rows are not\.$"
    with pytest.raises(InvalidArgument, match=wanted):
        checks.probabilities(priors, 3, 2)


def test_a_prior_too_large_for_a_float64_is_refused_without_a_warning():
    with pytest.raises(InvalidArgument, match="must be finite"):
        checks.probabilities(np.array([[np.longdouble("1e400"), 0]]), 1, 2)


@pytest.mark.parametrize("row", [[np.inf, -np.inf], [np.nan, np.nan], [np.inf, np.nan], [3e38, 3e38], [np.inf, 1]])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_infinities_and_nans_do_not_cancel(row, dtype):
    with pytest.raises(InvalidArgument, match="must be finite and sum to 1"):
        checks.probabilities(np.array([row], dtype=dtype), 1, 2)


@pytest.mark.parametrize("row", [[1.5, -0.5], [1 + 1e-9, -1e-9], [2, -1], [1e3 + 1, -1e3]])
def test_a_negative_prior_is_refused_even_where_the_row_sums_to_one(row):
    with pytest.raises(InvalidArgument, match=r"^priors must not be negative\.$"):
        checks.probabilities([[0.5, 0.5], row], 2, 2)


@given(excess=st.floats(-0.1, 0.1))
def test_the_sum_may_be_off_by_the_tolerance_and_no_more(excess):
    off = abs((0.5 + (0.5 + excess)) - 1)
    if off <= checks.PRIOR_SUM_TOLERANCE:
        checks.probabilities([[0.5, 0.5 + excess]], 1, 2)
    else:
        with pytest.raises(InvalidArgument, match="sum to 1"):
            checks.probabilities([[0.5, 0.5 + excess]], 1, 2)


@pytest.mark.parametrize(
    "priors",
    [
        None,
        "half",
        [["0.5", "0.5"]],
        [[True, False]],
        [[0.5, None]],
        [[1, 10**400]],
        np.array([[0.5, 0.5]], dtype=object),
        np.array([[0.5, 0.5j]]),
        np.array([[b"a", b"b"]]),
        np.array([[1, 0]], dtype="m8[s]"),
        {"a": 1},
    ],
    ids=repr,
)
def test_priors_that_are_not_numbers_are_refused_by_their_dtype(priors):
    with pytest.raises(InvalidArgument, match=r"^priors must be numbers, got dtype "):
        checks.probabilities(priors, 1, 2)


def test_ragged_priors_are_refused():
    with pytest.raises(InvalidArgument, match=r"^priors must be an array or a list of plain values\.$"):
        checks.probabilities([[0.5, 0.5], [1.0]], 2, 2)


def test_every_refusal_is_a_value_error_of_this_library():
    assert issubclass(InvalidArgument, LabelDPError) and issubclass(InvalidArgument, ValueError)
