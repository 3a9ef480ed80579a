"""Sets of rows and what they spend, against a naive oracle: a Python set, and one integer per row."""

import time
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.budget.runs import Runs, Spending
from labeldp.errors import LedgerError

MOST_ROWS = 300

scattered = st.sets(st.integers(0, MOST_ROWS - 1))
ranges = st.lists(st.tuples(st.integers(0, MOST_ROWS), st.integers(0, MOST_ROWS)), max_size=4).map(
    lambda pairs: {row for pair in pairs for row in range(*sorted(pair))}
)
combs = st.tuples(st.integers(0, 20), st.integers(2, 7)).map(lambda comb: set(range(comb[0], MOST_ROWS, comb[1])))
row_sets = scattered | ranges | combs
charges = st.lists(
    st.tuples(row_sets, st.integers(1, 20 * 10**12), st.integers(0, 10**17)),
    max_size=8,
)


def runs_of(rows):
    return Runs.of_rows(np.array(sorted(rows), dtype=np.int64))


def one_run(start, stop):
    return Runs(np.array([start]), np.array([stop]))


# ---------------------------------------------------------------- sets of rows


@given(row_sets)
def test_runs_hold_exactly_the_rows_they_were_made_of(rows):
    runs = runs_of(rows)
    assert runs.rows().tolist() == sorted(rows)
    assert len(runs) == len(rows)
    assert [runs.holds(row) for row in range(-2, MOST_ROWS + 2)] == [row in rows for row in range(-2, MOST_ROWS + 2)]


@given(row_sets)
def test_runs_ascend_and_never_touch(rows):
    runs = runs_of(rows)
    assert (runs.starts < runs.stops).all()
    assert (runs.stops[:-1] < runs.starts[1:]).all()


@given(row_sets)
def test_stored_rows_are_read_back_as_they_were(rows):
    runs = runs_of(rows)
    back = Runs.decode(runs.encode())
    assert back.starts.tolist() == runs.starts.tolist()
    assert back.stops.tolist() == runs.stops.tolist()
    assert back.starts.dtype == back.stops.dtype == np.int64
    assert back.encode() == runs.encode()


@given(row_sets, row_sets)
def test_two_sets_of_rows_have_the_same_digest_only_if_they_are_the_same(one, other):
    assert (runs_of(one).digest() == runs_of(other).digest()) == (one == other)


@pytest.mark.parametrize(
    ("rows", "form"), [((), b"R"), (range(1000), b"R"), ((5, 900), b"R"), (range(0, 1000, 2), b"B"), ((0, 2), b"B")]
)
def test_rows_are_stored_as_runs_or_as_a_bitmap_whichever_is_smaller(rows, form):
    stored = runs_of(rows).encode()
    assert stored[:1] == form
    assert Runs.decode(stored).rows().tolist() == list(rows)


def test_a_bitmap_is_never_larger_than_a_bit_per_row():
    rows = np.flatnonzero(np.random.default_rng(1).random(100_000) < 0.5)
    assert len(Runs.of_rows(rows).encode()) < 100_000 / 8 + 100


@pytest.mark.parametrize("level", [0, 1, 9])
def test_the_digest_of_rows_does_not_depend_on_how_zlib_compresses_them(monkeypatch, level):
    runs = runs_of(range(0, 1000, 2))
    digest, stored = runs.digest(), runs.encode()
    compress = zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data: compress(data, level))
    assert runs.encode() != stored, "this level must differ for the test to say anything"
    assert runs.digest() == digest
    assert Runs.decode(runs.encode()).digest() == digest


@pytest.mark.parametrize(
    "stored",
    [b"", b"X", b"Rnot zlib", b"Bnot zlib", b"R" + zlib.compress(b"odd"), b"R" + zlib.compress(bytes(24))],
    ids=["nothing", "unknown form", "runs", "bitmap", "odd length", "odd number of ends"],
)
def test_rows_that_cannot_be_read_are_a_ledger_error(stored):
    with pytest.raises(LedgerError, match="ledger holds rows"):
        Runs.decode(stored)


# ---------------------------------------------------------------- what they spend


@given(charges, row_sets)
def test_spending_is_what_adding_row_by_row_gives(charged, asked):
    spending, oracle = Spending(), np.zeros((2, MOST_ROWS), dtype=object)
    for rows, epsilon, delta in charged:
        spending.add(runs_of(rows), epsilon, delta)
        for row in rows:
            oracle[:, row] += (epsilon, delta)
    every = np.arange(MOST_ROWS)
    assert spending.of_rows(every).tolist() == oracle.tolist()
    assert spending.largest() == tuple(oracle.max(axis=1))
    assert spending.largest(runs_of(asked)) == tuple(oracle[:, sorted(asked)].max(axis=1, initial=0))
    assert spending.most_charged_row() == int(np.argmax(oracle[0]))


@given(charges, st.randoms(use_true_random=False))
def test_the_order_of_charges_does_not_matter(charged, random):
    one, other = Spending(), Spending()
    for rows, epsilon, delta in charged:
        one.add(runs_of(rows), epsilon, delta)
    for rows, epsilon, delta in random.sample(charged, len(charged)):
        other.add(runs_of(rows), epsilon, delta)
    every = np.arange(MOST_ROWS)
    assert one.of_rows(every).tolist() == other.of_rows(every).tolist()


@given(charges)
def test_looking_changes_nothing(charged):
    spending = Spending()
    for rows, epsilon, delta in charged:
        spending.add(runs_of(rows), epsilon, delta)
    before = spending.of_rows(np.arange(MOST_ROWS)).tolist()
    for rows, _, _ in charged:
        spending.largest(runs_of(rows))
    assert spending.of_rows(np.arange(MOST_ROWS)).tolist() == before


def test_no_row_and_no_charge_spend_nothing():
    spending = Spending()
    assert spending.largest() == (0, 0)
    spending.add(runs_of([]), 5, 7)
    assert spending.largest() == (0, 0)
    assert spending.largest(runs_of([])) == (0, 0)
    assert spending.most_charged_row() == 0


def test_the_dearest_epsilon_and_the_dearest_delta_may_be_of_different_rows():
    spending = Spending()
    spending.add(one_run(0, 10), 5, 0)
    spending.add(one_run(20, 30), 1, 9)
    assert spending.largest() == (5, 9)
    assert spending.largest(one_run(15, 25)) == (1, 9)


def test_a_billion_rows_in_one_run_are_instant_and_small():
    billion = one_run(0, 10**9)
    started = time.perf_counter()
    spending = Spending()
    for _ in range(100):
        spending.add(billion, 10**9, 0)
    spending.add(one_run(10**9 - 1, 10**9), 1, 0)
    assert len(billion) == 10**9
    assert len(billion.encode()) < 50
    assert Runs.decode(billion.encode()).holds(10**9 - 1)
    assert not billion.holds(10**9)
    assert spending.largest() == (100 * 10**9 + 1, 0)
    assert spending.largest(one_run(0, 10**9 - 1)) == (100 * 10**9, 0)
    assert spending.most_charged_row() == 10**9 - 1
    assert time.perf_counter() - started < 1.0


def test_adjoining_charges_of_the_same_cost_take_no_more_room_than_one():
    spending = Spending()
    for start in range(0, 10_000, 10):
        spending.add(one_run(start, start + 10), 3, 0)
    assert len(spending._bounds) == 2


def test_of_rows_with_the_same_sum_the_one_charged_most_often_is_named():
    spending = Spending()
    spending.add(Runs.of_rows(np.arange(0, 10)), 4, 0)
    spending.add(Runs.of_rows(np.arange(10, 20)), 1, 0)
    spending.add(Runs.of_rows(np.arange(10, 20)), 3, 0)
    assert spending.most_charged_row() == 10 and spending.largest() == (4, 0)
    assert spending.of_rows(np.array([0, 15])).tolist() == [[4, 4], [0, 0]]
