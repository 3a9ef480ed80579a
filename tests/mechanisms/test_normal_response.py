"""NormalResponse: the label's vector plus exact noise, on tables that were checked in whole numbers."""

import sys
from fractions import Fraction
from itertools import product
from math import exp, isqrt, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import labeldp as ldp
from labeldp.mechanisms import NormalResponse, normal
from labeldp.mechanisms.normal import CLAMP, LARGEST_DIMENSION, LARGEST_ENTRY, largest_squared_distance
from labeldp.randomness import SYSTEM, InsecureBits
from labeldp.randomness.tabulated import LARGEST_TABULATED_VARIANCE

TABLE = np.array([[[0, 0], [3, 4], [-1, 1]], [[2, 2], [2, 2], [2, 2]]])  # two rows, three classes, two coordinates


def response(**changes):
    given = {"epsilon": "1", "delta": "1e-6", "dimension": 2, "squared_sensitivity": 25} | changes
    return NormalResponse(**given)


# ---------------------------------------------------------------- the law


@pytest.mark.parametrize("dimension", [1, 2])
def test_an_answer_is_the_vector_of_the_label_plus_the_noise_and_nothing_else(dimension):
    table = np.array([[-3], [0], [4]]) if dimension == 1 else TABLE[0]
    for label in range(3):
        for noise in product(range(-4, 5), repeat=dimension):
            answer = NormalResponse.answer(np.array([label]), table[None], np.array([noise]))
            assert (answer[0] - table[label]).tolist() == list(noise)


@pytest.mark.parametrize("dimension", [1, 2])
def test_the_loss_is_the_log_ratio_of_two_labels_laws_exactly(dimension):
    mechanism = response(dimension=dimension, squared_sensitivity=49)
    table = np.array([[-3], [0], [4]]) if dimension == 1 else TABLE[0]
    reach = 12 * isqrt(mechanism.variance)
    weights = {x: exp(-x * x / (2 * mechanism.variance)) for x in range(-reach, reach + 1)}
    total = sum(weights.values())
    for one, other in product(range(3), repeat=2):
        for answer in product((-7, 0, 1, 20), repeat=dimension):
            exponents = [
                sum(
                    Fraction(-((x - int(v)) ** 2), 2 * mechanism.variance)
                    for x, v in zip(answer, table[y], strict=True)
                )
                for y in (one, other)
            ]
            loss = mechanism.loss(answer, table[one], table[other])
            assert loss == exponents[0] - exponents[1]
            chances = [
                np.prod([weights[x - int(v)] / total for x, v in zip(answer, table[y], strict=True)])
                for y in (one, other)
            ]
            assert float(loss) == pytest.approx(log(chances[0] / chances[1]), abs=1e-9)


def test_noise_has_the_declared_variance_whichever_sampler_draws_it():
    """The mean of 20,000 squares strays by more than 7 % with probability below 1e-10."""
    for squared in (100, 2**33):
        mechanism = response(squared_sensitivity=squared)
        assert (mechanism.variance > LARGEST_TABULATED_VARIANCE) == (squared > 100)
        noise = mechanism.noise(20_000, SYSTEM).astype(float)
        assert abs((noise**2).mean() / mechanism.variance - 1) < 0.07


def test_few_numbers_are_drawn_without_a_table_and_have_the_law_of_many(monkeypatch):
    """Fifty cells of equal chance under the tabulated law, whose own draws are the ruler; false alarm 1e-9."""
    mechanism = response(squared_sensitivity=2**22)
    assert 2**25 < mechanism.variance < LARGEST_TABULATED_VARIANCE
    many = mechanism.noise(1_000_000, SYSTEM)
    monkeypatch.setattr(normal, "tabulated_gaussian", None)
    few = np.concatenate([mechanism.noise(2_000, SYSTEM) for _ in range(10)])
    edges = np.quantile(many, np.linspace(0, 1, 51)[1:-1])
    seen, expected = (np.bincount(np.searchsorted(edges, draws), minlength=50) for draws in (few, many))
    both = np.array([seen, expected])
    pooled = both.sum(axis=0) * both.sum(axis=1, keepdims=True) / both.sum()
    assert chisquare(both.ravel(), pooled.ravel(), ddof=50).pvalue > 1e-9


def test_the_number_of_words_depends_on_neither_label_nor_table():
    mechanism = response()
    left = []
    for label in range(3):
        bits = InsecureBits(seed=4)
        NormalResponse.answer(np.array([label, label]), TABLE, mechanism.noise(4, bits).reshape(2, 2))
        left.append(bits.words(1)[0])
    assert left[0] == left[1] == left[2]


def test_an_answer_beyond_what_integers_hold_is_clamped():
    noise = np.array([[2**62, -(2**62)]])
    assert NormalResponse.answer(np.array([1]), TABLE[:1], noise).tolist() == [[CLAMP, -CLAMP]]


# ---------------------------------------------------------------- what it promises


def test_what_it_promises_is_exact_and_printed_next_to_the_analytic_gaussian():
    mechanism = response(squared_sensitivity=1_000**2, grid="0.001")
    assert mechanism.guarantee == ldp.Guarantee.of("1", delta="1e-6")
    assert mechanism.sigma == pytest.approx(mechanism.variance**0.5)
    assert 1 < mechanism.sigma_ratio < 1 + 1e-6
    assert 0.999999 < mechanism.realised_epsilon <= 1
    assert mechanism.parameters() == {
        "epsilon": "1",
        "delta": "0.000001",
        "dimension": 2,
        "squared_sensitivity": 10**6,
        "grid": "1/1000",
        "variance": mechanism.variance,
        "analytic_variance": mechanism.analytic_sigma**2,
    }


def test_a_coarse_lattice_costs_noise_and_says_so():
    assert response(squared_sensitivity=1, epsilon="8").sigma_ratio > 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"delta": 0}, "delta must be > 0"),
        ({"delta": "1e-19"}, "multiple of 1e-18"),
        ({"delta": 1}, "below 1"),
        ({"delta": -1e-6}, "at least 0"),
        ({"delta": float("nan")}, "finite"),
        ({"epsilon": 0}, "epsilon must be > 0"),
        ({"epsilon": 21}, "at most 20"),
        ({"dimension": 0}, "dimension must be between 1"),
        ({"dimension": LARGEST_DIMENSION + 1}, "dimension must be between"),
        ({"dimension": 2.0}, "dimension must be an integer"),
        ({"squared_sensitivity": 0}, "squared_sensitivity must be between 1"),
        ({"squared_sensitivity": -25}, "squared_sensitivity must be between 1"),
        ({"squared_sensitivity": 25.0}, "must be an integer"),
        ({"squared_sensitivity": 2**62}, "squared_sensitivity must be between"),
        ({"grid": 0}, "grid must be > 0"),
        ({"grid": "nan"}, "grid must be a finite number"),
        ({"epsilon": "1e-12", "delta": "1e-18", "squared_sensitivity": 2**50}, "at most 2\\^54"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(changes, says):
    with pytest.raises(ldp.InvalidArgument, match=says):
        response(**changes)


# ---------------------------------------------------------------- the table


def test_vectors_that_are_apart_as_declared_pass_and_one_unit_more_is_refused():
    mechanism = response()
    assert mechanism.checked(TABLE, n_rows=2, n_classes=3).tolist() == TABLE.tolist()
    for row, label, coordinate, step in product(range(2), range(3), range(2), (-1, 1)):
        moved = TABLE.copy()
        moved[row, label, coordinate] += step
        if largest_squared_distance(moved) <= 25:
            mechanism.checked(moved, n_rows=2, n_classes=3)
        else:
            with pytest.raises(ldp.InvalidArgument, match="apart"):
                mechanism.checked(moved, n_rows=2, n_classes=3)
    with pytest.raises(ldp.InvalidArgument, match=r"sqrt\(26\)"):
        mechanism.checked([[[0, 0], [5, 1], [0, 0]]], n_rows=1, n_classes=3)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 2**32))
def test_the_largest_distance_is_that_of_all_pairs(n_classes, dimension, seed):
    generator = np.random.default_rng(seed)
    table = generator.integers(-LARGEST_ENTRY, LARGEST_ENTRY + 1, size=(3, n_classes, dimension))
    slow = max(
        sum((int(a) - int(b)) ** 2 for a, b in zip(row[y], row[z], strict=True))
        for row in table
        for y, z in product(range(n_classes), repeat=2)
    )
    assert largest_squared_distance(table) == slow


def test_the_largest_table_overflows_nothing():
    table = np.full((1, 2, LARGEST_DIMENSION), LARGEST_ENTRY)
    table[0, 1] *= -1
    assert largest_squared_distance(table) == LARGEST_DIMENSION * (2 * LARGEST_ENTRY) ** 2


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (TABLE.astype(float), "must hold integers"),
        (np.where(TABLE == 3, np.nan, TABLE), "must hold integers"),
        (TABLE.astype(bool), "must hold integers"),
        (TABLE.astype(object), "must hold integers"),
        (TABLE[:1], "must have shape"),
        (TABLE[:, :2], "must have shape"),
        (TABLE[..., :1], "must have shape"),
        (TABLE[0], "must have shape"),
        (TABLE + LARGEST_ENTRY, "at most"),
        (TABLE + np.int64(2**62), "at most"),
        (np.full(TABLE.shape, 2**64 - 1, dtype=np.uint64), "at most"),
        (np.full(TABLE.shape, -(2**63)), "at most"),
        ([[[1], [2, 3]]], "array or a list of plain values"),
        (None, "must hold integers"),
    ],
)
def test_a_table_that_is_none_is_refused(table, says):
    with pytest.raises(ldp.InvalidArgument, match=says):
        response().checked(table, n_rows=2, n_classes=3)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.uint64])
def test_integers_of_any_width_are_the_same_table(dtype):
    table = np.abs(TABLE).astype(dtype)
    checked = response().checked(table, n_rows=2, n_classes=3)
    assert checked.dtype == np.int64 and (checked == np.abs(TABLE)).all()


def test_the_checked_table_is_a_copy_that_nobody_else_holds():
    given = TABLE.copy()
    checked = response().checked(given, n_rows=2, n_classes=3)
    given[:] = 100
    assert (checked == TABLE).all()


def at_line(number, change):
    """Do something at the n-th line that `checked` and what it calls there come to, as another thread could."""
    left = iter(range(number))

    def line(_frame, event, _):
        if event == "line" and next(left, None) is None:
            sys.settrace(None)
            change()
        return line

    def call(frame, *_):
        return line if frame.f_code.co_name in ("checked", "_own", "array") else None

    sys.settrace(call)


def nan_bits():
    """A table whose last class is NaN when it is taken for floats."""
    floats = np.zeros((2, 3, 2))
    floats[:, 2] = np.nan
    return floats.view(np.int64)


OTHERWISE = {
    "other numbers": (nan_bits, "dtype", np.float64),
    "other classes": (TABLE.copy, "shape", (2, 6, 1)),
    "other rows": (TABLE.copy, "strides", (0, 16, 8)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # numpy's, of setting strides
@pytest.mark.parametrize("way", OTHERWISE)
def test_a_table_that_another_thread_takes_for_another_is_refused_or_answered_from_as_checked(way):
    make, attribute, value = OTHERWISE[way]
    before, outcomes = sys.gettrace(), []
    for number in range(40):
        given = make()
        at_line(number, lambda given=given: setattr(given, attribute, value))
        try:
            checked = response().checked(given, n_rows=2, n_classes=3)
        except ldp.InvalidArgument:
            outcomes.append("refused")
        else:
            assert checked.shape == (2, 3, 2) and checked.dtype == np.int64
            assert largest_squared_distance(checked) <= 25
            outcomes.append("checked")
        finally:
            sys.settrace(before)
    assert outcomes[0] == ("checked" if attribute == "strides" else "refused"), "changed before anything was read"
    assert outcomes[-1] == ("refused" if attribute == "dtype" else "checked"), "changed after all was done, if at all"


def test_one_table_for_all_rows_is_checked_and_copied_once(monkeypatch):
    seen = []

    def noted(table):
        seen.append(table.shape)
        return largest_squared_distance(table)

    monkeypatch.setattr(normal, "largest_squared_distance", noted)
    one = TABLE[0].copy()
    checked = response().checked(np.broadcast_to(one, (1_000, 3, 2)), n_rows=1_000, n_classes=3)
    assert seen == [(1, 3, 2)] and checked.shape == (1_000, 3, 2)
    one[:] = 100
    assert (checked == TABLE[0]).all()
    labels, noise = np.arange(1_000) % 3, np.zeros((1_000, 2), dtype=np.int64)
    assert (NormalResponse.answer(labels, checked, noise) == TABLE[0][labels]).all()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (np.broadcast_to(TABLE[0], (3, 3, 2)), "must have shape"),
        (np.broadcast_to(TABLE[0, :1], (2, 1, 2)), "must have shape"),
        (np.broadcast_to(TABLE[0] * 2, (2, 3, 2)), "apart"),
        (np.broadcast_to(TABLE[0] * 1.0, (2, 3, 2)), "must hold integers"),
        (np.broadcast_to(3, ()), "must have shape"),
    ],
)
def test_a_wrong_table_for_all_rows_is_refused(table, says):
    with pytest.raises(ldp.InvalidArgument, match=says):
        response().checked(table, n_rows=2, n_classes=3)


# ---------------------------------------------------------------- real numbers


@settings(max_examples=50, deadline=None)
@given(
    sensitivity=st.floats(1e-3, 1e3).map(lambda x: float(f"{x:.6g}")),
    dimension=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    epsilon=st.sampled_from(["0.1", "1", "8"]),
)
def test_vectors_within_the_sensitivity_stay_within_it_on_the_lattice(sensitivity, dimension, seed, epsilon):
    mechanism = NormalResponse.covering(sensitivity, epsilon=epsilon, delta="1e-6", dimension=dimension)
    vectors = np.random.default_rng(seed).normal(size=(4, 3, dimension))
    vectors *= sensitivity / 2 / np.linalg.norm(vectors, axis=2, keepdims=True)
    vectors[0, 1] = -vectors[0, 0]  # as far apart as declared
    table = mechanism.quantised(vectors)
    assert (mechanism.checked(table, n_rows=4, n_classes=3) == table).all()
    assert np.abs(table * float(mechanism.grid) - vectors).max() <= 0.5001 * float(mechanism.grid)
    in_their_units = mechanism.analytic_sigma * float(mechanism.grid) / sensitivity
    alone = NormalResponse(epsilon, "1e-6", dimension, squared_sensitivity=1).analytic_sigma
    assert 1 < in_their_units / alone < 1 + (dimension**0.5 + 0.02) / 300  # what rounding costs


@pytest.mark.parametrize("vectors", [[[np.nan]], [[np.inf]], [[1e300]], [["1"]], [[None]], [[True]], [[1], [2, 3]]])
def test_vectors_that_are_no_numbers_of_the_lattice_are_refused(vectors):
    with pytest.raises(ldp.InvalidArgument, match="vectors must be"):
        response().quantised(vectors)


@pytest.mark.parametrize("sensitivity", [0, -1, float("nan"), "x"])
def test_a_sensitivity_that_is_none_is_refused(sensitivity):
    with pytest.raises(ldp.InvalidArgument, match="sensitivity must be"):
        NormalResponse.covering(sensitivity, epsilon="1", delta="1e-6", dimension=2)
