from fractions import Fraction
from itertools import permutations
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from labeldp.budget.epsilon import Epsilon, Odds
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.unbiased_table import unbiased_table

epsilons = st.integers(50, 8000).map(lambda thousandths: Epsilon.of(Fraction(thousandths, 1000)))
steps = st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(1, 100), Fraction(7, 3)])


@st.composite
def labels(draw, most=8):
    """Ratings, integers with holes, or reals on a grid, anywhere."""
    places = draw(st.sets(st.integers(0, 40), min_size=2, max_size=most))
    low, step = draw(st.integers(-1000, 1000)), draw(steps)
    return tuple(low + step * place for place in sorted(places))


def table_of(values, epsilon):
    return unbiased_table(tuple(map(Fraction, values)), Odds.within(Epsilon.of(epsilon)))


def average_variance(table):
    return float(sum(table.variances) / len(table.variances))


def randomized_response_variance(values, epsilon):
    """Debias by hand: a label that keeps with chance p, and moves to each other with q, stands for mean + gap / (p - q)."""
    v, weight = np.array(values, dtype=float), np.exp(float(epsilon))
    p, q = weight / (weight + len(v) - 1), 1 / (weight + len(v) - 1)
    worth = v.mean() + (v - v.mean()) / (p - q)
    law = np.full((len(v), len(v)), q) + (p - q) * np.eye(len(v))
    assert law @ worth == pytest.approx(v, abs=1e-6)
    return (law * (worth - v[:, None]) ** 2).sum() / len(v)


def two_point_variance(values, epsilon):
    """Duchi, Jordan, Wainwright 2018: one of two values, further out than every label."""
    v = np.array(values, dtype=float)
    middle, reach = (v[0] + v[-1]) / 2, (v[-1] - v[0]) / 2
    return ((reach / np.tanh(float(epsilon) / 2)) ** 2 - (v - middle) ** 2).mean()


def least_variance_of_all_randomizers(values, odds, worth):
    """Solve for any law at all over reports of the given worth: no patterns, only the inequalities that define epsilon-DP."""
    n_labels, n_reports, ratio = len(values), len(worth), odds.keep / odds.other
    cost = (worth - values[:, None]) ** 2 / n_labels
    each = np.eye(n_labels)
    equal = np.vstack([np.kron(each, np.ones(n_reports)), np.kron(each, worth)])
    pairs = [each[a] - ratio * each[b] for a, b in permutations(range(n_labels), 2)]
    solved = linprog(
        cost.ravel() / cost.mean(),
        A_eq=equal,
        b_eq=np.concatenate([np.ones(n_labels), values]),
        A_ub=np.kron(np.array(pairs), np.eye(n_reports)),
        b_ub=np.zeros(len(pairs) * n_reports),
    )
    assert solved.success
    return solved.fun * cost.mean()


@given(values=labels(), epsilon=epsilons)
def test_the_table_is_private_and_unbiased_and_spends_all_of_epsilon_in_exact_arithmetic(values, epsilon):
    odds = Odds.within(epsilon)
    table = unbiased_table(values, odds)
    rows = table.integers.tolist()
    assert {sum(row) for row in rows} == {table.total} and table.total < 2**63
    columns = [(max(column), min(column)) for column in zip(*rows, strict=True)]
    assert all(least >= 1 and most * odds.other <= odds.keep * least for most, least in columns)
    assert float(epsilon) - 1e-9 < max(log(Fraction(most, least)) for most, least in columns) <= float(epsilon) + 1e-14
    for value, row in zip(values, rows, strict=True):
        assert sum(weight * output for weight, output in zip(row, table.outputs, strict=True)) == table.total * value


@given(values=labels(), epsilon=epsilons)
def test_the_noise_is_never_above_that_of_randomized_response_or_of_two_points(values, epsilon):
    variance = average_variance(unbiased_table(values, Odds.within(epsilon)))
    assert variance <= (1 + 1e-5) * randomized_response_variance(values, epsilon)
    assert variance <= (1 + 1e-5) * two_point_variance(values, epsilon)


@settings(max_examples=25)
@given(values=labels(most=5), epsilon=st.integers(50, 6000).map(lambda thousandths: thousandths / 1000))
def test_no_randomizer_at_all_has_less_noise(values, epsilon):
    odds = Odds.within(Epsilon.of(epsilon))
    table = unbiased_table(values, odds)
    middle, reach = (values[0] + values[-1]) / 2, (values[-1] - values[0]) / 2 / np.tanh(epsilon / 2)
    centred = np.array([float((value - middle) / reach) for value in values])
    own = [float((output - middle) / reach) for output in table.outputs]
    worth = np.concatenate([own, np.linspace(-1.5, 1.5, 41), centred])
    oracle = least_variance_of_all_randomizers(centred, odds, worth)
    assert average_variance(table) / reach**2 == pytest.approx(oracle, rel=1e-4, abs=1e-7)


def test_star_ratings_at_epsilon_one_need_56_percent_of_the_noise_of_randomized_response():
    stars = range(1, 6)
    ratio = average_variance(table_of(stars, 1)) / randomized_response_variance(stars, 1)
    assert 0.55 < ratio < 0.57


def test_two_labels_are_randomized_response():
    table = table_of([0, 1], 1)
    assert average_variance(table) == pytest.approx(randomized_response_variance([0, 1], 1), rel=1e-5)


@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "1", "5", "20"])
@pytest.mark.parametrize("n_labels", [2, 5, 11])
def test_any_epsilon_from_a_hundredth_to_twenty_gets_a_small_table_with_reports_in_order(epsilon, n_labels):
    values = range(n_labels)
    table = table_of(values, epsilon)
    assert table.integers.shape == (n_labels, len(table.outputs)) and len(table.outputs) <= 3 * n_labels + 2
    assert list(table.outputs) == sorted(table.outputs)
    assert max(output.denominator.bit_length() for output in table.outputs) < 256
    assert average_variance(table) <= (1 + 1e-5) * randomized_response_variance(values, epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1, 4])
def test_symmetric_labels_get_symmetric_noise(epsilon):
    variances = np.array(table_of(range(1, 8), epsilon).variances, dtype=float)
    assert variances == pytest.approx(variances[::-1], rel=1e-4)


@given(values=labels(most=5), epsilon=epsilons, shift=st.integers(-50, 50), scale=steps)
def test_a_change_of_units_changes_the_outputs_and_nothing_else(values, epsilon, shift, scale):
    odds = Odds.within(epsilon)
    table, changed = (unbiased_table(v, odds) for v in (values, tuple(shift + scale * value for value in values)))
    assert (table.integers == changed.integers).all()
    assert changed.outputs == tuple(shift + scale * output for output in table.outputs)


def test_fifty_labels_are_solved_too():
    values = range(50)
    variance = average_variance(table_of(values, 2))
    assert variance < 0.03 * randomized_response_variance(values, 2)
    assert variance < 0.57 * two_point_variance(values, 2)


def test_a_table_is_solved_once_and_cannot_be_written():
    table = table_of(range(3), 1)
    assert table_of(range(3), 1) is table
    with pytest.raises(ValueError, match="read-only"):
        table.integers[0, 0] = 1


@pytest.mark.parametrize("values", [[1], [2, 1], [1, 1], [1, 2, 2], [0, Fraction(1, 10**7), 1], range(129)])
def test_labels_must_be_few_increasing_and_apart(values):
    with pytest.raises(InvalidArgument, match="values must"):
        table_of(values, 1)


def test_an_epsilon_that_tells_nothing_is_refused():
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        table_of([0, 1], "0.00001")
