"""Estimates: how they read, and what their intervals promise whatever the figure."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from noisy_hold_outs import K, mean_class, released
from scipy.optimize import brentq
from scipy.stats import norm

import labeldp as ldp
from labeldp.metrics import Estimate, accuracy, auc, log_likelihood, log_loss, rmse
from labeldp.metrics.estimate import Even, Root, error_and_skewness

FIGURES = {
    "accuracy": (accuracy, 0, 1),
    "auc": (auc, 0, 1),
    "log_loss": (log_loss, 0, math.inf),
    "log_likelihood": (log_likelihood, -math.inf, 0),
    "rmse": (lambda release, predicted: rmse(release, mean_class(predicted)), 0, math.inf),
}


@st.composite
def estimates(draw):
    """Return an estimate of some figure, from reports that may have nothing to do with the predictions, and its range."""
    figure, low, high = FIGURES[draw(st.sampled_from(sorted(FIGURES)))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_classes, n_rows = draw(st.sampled_from([2, 3])), draw(st.integers(2, 40))
    release = released(rng.integers(n_classes, size=n_rows), draw(st.sampled_from(["0.1", "1", "4", "12"])), n_classes)
    predicted = rng.dirichlet(np.full(n_classes, draw(st.sampled_from([0.05, 1.0]))), size=n_rows)
    try:
        return figure(release, predicted), low, high
    except ldp.NotIdentifiable:
        return accuracy(release, predicted), 0, 1


@given(drawn=estimates(), confidence=st.floats(0.01, 0.9999))
def test_an_interval_lies_in_the_range_and_holds_the_possible_figure_nearest_to_the_estimate(drawn, confidence):
    found, least, most = drawn
    low, high = found.interval(confidence)
    assert least <= low <= high <= most
    if confidence > 0.5:  # the correction for skewness moves an interval's middle
        nearest = min(max(found.value, least), most)
        assert low <= nearest + 1e-12 and nearest - 1e-12 <= high


@given(drawn=estimates(), confidence=st.floats(0.5, 0.99))
def test_more_confidence_asks_for_a_wider_interval(drawn, confidence):
    found, _, _ = drawn
    low, high = found.interval(confidence)
    lower, higher = found.interval(confidence + 0.009)
    assert lower <= low + 1e-12 and high - 1e-12 <= higher


@given(value=st.floats(-3, 3), error=st.floats(1e-6, 3), skewness=st.floats(-5, 5), rows=st.integers(25, 1000))
def test_an_interval_ends_where_halls_transformation_of_the_studentized_mean_is_a_normal_quantile(
    value, error, skewness, rows
):
    found = Estimate(value, error, rows, Even(-math.inf, math.inf, percent=False, skewness=skewness))
    a, z = skewness / math.sqrt(rows), norm.ppf(0.95)

    def hall(t):
        return t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6

    ends = [value - error * brentq(lambda t, end=end: hall(t) - end, -200, 200) for end in (z, -z)]
    assert found.interval(0.9) == pytest.approx(tuple(ends), abs=1e-6 * error)


def test_a_mean_without_skewness_is_within_two_errors():
    low, high = Estimate(0.4, 0.1, 50, Even(0, math.inf, percent=False)).interval(0.95)
    assert (low, high) == pytest.approx((0.4 - 0.1959964, 0.4 + 0.1959964))


def test_a_skew_mean_reaches_further_to_the_long_side():
    low, high = Estimate(1.0, 0.1, 50, Even(0, math.inf, percent=False, skewness=3)).interval()
    assert high - 1 > 1.2 * (1 - low)


def test_a_share_beyond_100_percent_still_has_an_interval_within_and_with_a_width():
    low, high = Estimate(1.7, 0.1, 50).interval()
    assert high == 1 and low == pytest.approx(1 - 0.1959964)


def test_the_root_of_a_negative_square_has_an_interval_from_0():
    square = Estimate(-0.5, 0.2, 50, Even(0, math.inf, percent=False))
    assert Estimate(0.0, math.nan, 50, Root(square)).interval() == (0, pytest.approx(math.sqrt(0.3919928)))


def test_where_no_error_can_be_told_the_interval_is_all_there_is():
    assert Estimate(0.3, math.nan, 1).interval() == (0, 1)
    assert Estimate(0.3, math.nan, 1, Even(0, math.inf, percent=False)).interval() == (0, math.inf)


def test_without_any_spread_the_interval_is_the_value():
    assert Estimate(0.3, 0.0, 10).interval() == (0.3, 0.3)
    assert Estimate(0.3, 0.0, 10, Even(0, math.inf, percent=False)).interval() == (0.3, 0.3)


@given(terms=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
@example(terms=[0.0, 1e-120])  # whose cubes are below what a double can be
def test_no_mean_is_more_skew_than_one_row_against_the_others(terms):
    error, skewness = error_and_skewness(np.array(terms))
    assert error >= 0 and abs(skewness) <= math.sqrt(len(terms))


@pytest.mark.parametrize("wrong", [0, 1, 0.0, 1.0, -0.5, 95, math.nan, True, "0.95", None])
def test_a_confidence_lies_between_0_and_1(wrong):
    with pytest.raises(ldp.InvalidArgument, match="confidence must lie between 0 and 1"):
        Estimate(0.5, 0.1, 10).interval(wrong)


def test_an_interval_exists_up_to_the_confidence_next_to_1():
    low, high = Estimate(0.5, 0.01, 100).interval(np.nextafter(1.0, 0.0))
    assert 0.4 < low < 0.43 and 0.57 < high < 0.6


def test_an_estimate_reads_as_a_percentage():
    assert str(Estimate(0.8125, 0.0123, 100)) == "81.2% ± 1.2%"


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.91234, 0.0131, "0.912 ± 0.013"),
        (12345.6, 45.2, "12346 ± 45"),
        (3.0, 2.04, "3.0 ± 2.0"),
        (0.5, 0.0, "0.5 ± 0"),
        (0.123456, math.nan, "0.1235 ± nan"),
        (1.0, 1e-30, "1.000000000000 ± 0.000000000000"),
    ],
)
def test_a_loss_reads_as_a_number_with_two_digits_of_its_error(value, error, text):
    assert str(Estimate(value, error, 100, Even(0, math.inf, percent=False))) == text


@pytest.mark.parametrize(("name", "percent"), [(name, name in ("accuracy", "auc")) for name in FIGURES])
def test_shares_read_as_percentages_and_losses_as_numbers(name, percent):
    rng = np.random.default_rng(0)
    release = released(rng.integers(K, size=300), "4")
    assert ("%" in str(FIGURES[name][0](release, rng.dirichlet(np.ones(K), size=300)))) == percent


def test_estimates_are_equal_if_they_say_the_same():
    release = released(np.arange(300) % K, "4")
    predicted = np.random.default_rng(0).dirichlet(np.ones(K), size=300)
    for figure, _, _ in FIGURES.values():
        assert figure(release, predicted) == figure(release, predicted)
        assert len({figure(release, predicted), figure(release, predicted)}) == 1
