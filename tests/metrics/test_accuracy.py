"""Figures from noisy hold-outs: their expectation exactly, by enumeration, and their standard error."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noisy_hold_outs import K, every_outcome, one_hot, released, with_reports
from sklearn.metrics import accuracy_score

import labeldp as ldp
from labeldp.metrics import accuracy, log_likelihood

EPSILONS = st.sampled_from(["0.01", "0.5", "1", "4", "12"])


@given(epsilon=EPSILONS, pairs=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4))
def test_the_mean_of_the_estimate_is_the_accuracy(epsilon, pairs):
    labels, predictions = (np.array(each) for each in zip(*pairs, strict=True))
    mean = math.fsum(
        chance * accuracy(release, one_hot(predictions)).value for release, chance in every_outcome(labels, epsilon)
    )
    assert mean == pytest.approx((labels == predictions).mean(), abs=1e-9)


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
@pytest.mark.parametrize("right", [0.2, 0.9])
def test_the_squared_standard_error_averages_to_the_variance(epsilon, right):
    """For rows drawn independently, each predicted rightly with the given chance; all outcomes of three rows."""
    predictions = np.zeros(3, dtype=int)
    values, squares, chances = [], [], []
    for labels in itertools.product(range(2), repeat=3):
        drawn = math.prod(right if label == 0 else 1 - right for label in labels)
        for release, chance in every_outcome(np.array(labels), epsilon, classes=2):
            found = accuracy(release, one_hot(predictions, 2))
            values.append(found.value)
            squares.append(found.standard_error**2)
            chances.append(drawn * chance)
    mean = math.fsum(c * v for c, v in zip(chances, values, strict=True))
    variance = math.fsum(c * (v - mean) ** 2 for c, v in zip(chances, values, strict=True))
    assert math.fsum(chances) == pytest.approx(1) and mean == pytest.approx(right)
    assert math.fsum(c * s for c, s in zip(chances, squares, strict=True)) == pytest.approx(variance)


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_the_estimate_lies_within_its_error(epsilon):
    """6.5 standard errors of 20,000 rows: false alarms below 1e-9, because a fixed set of labels varies less."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=20_000)
    predictions = np.where(rng.random(20_000) < 0.7, labels, rng.integers(10, size=20_000))
    found = accuracy(released(labels, epsilon, classes=10), one_hot(predictions, 10))
    truth = (labels == predictions).mean()
    assert abs(found.value - truth) < 6.5 * found.standard_error
    assert found.standard_error < 0.1 and found.rows == 20_000


def test_probabilities_count_by_their_largest():
    labels = np.array([0, 1, 2, 1])
    release = released(labels, "1")
    soft = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.34, 0.33, 0.33]])
    assert accuracy(release, soft) == accuracy(release, one_hot([0, 1, 2, 0]))
    assert accuracy(release, soft.astype(np.float32)) == accuracy(release, soft)


def test_one_row_has_an_estimate_and_no_error():
    found = accuracy(released(np.array([1])), one_hot([1]))
    assert np.isfinite(found.value) and np.isnan(found.standard_error) and found.rows == 1


def test_without_noise_it_is_scikit_learns():
    rng = np.random.default_rng(3)
    release = released(rng.integers(K, size=200), "20")
    predicted = rng.dirichlet(np.ones(K), size=200)
    expected = accuracy_score(release.label_numbers, predicted.argmax(axis=1))
    assert accuracy(release, predicted).value == pytest.approx(expected, abs=1e-7)


@given(epsilon=EPSILONS, agree=st.integers(0, 30), confidence=st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_is_wilsons_on_the_share_of_reports_that_agree(epsilon, agree, confidence):
    """Where the estimate can be an accuracy; elsewhere it is the one of the nearest share that can be."""
    from scipy.stats import binomtest

    release = with_reports(released(np.zeros(30, dtype=int), epsilon), [0] * agree + [1] * (30 - agree))
    found = accuracy(release, one_hot([0] * 30))
    p, q = release.likelihood(rows=[0])[0].max(), release.likelihood(rows=[0])[0].min()
    low, high = found.interval(confidence)
    if 0 <= found.value <= 1:
        wilson = binomtest(agree, 30).proportion_ci(confidence, method="wilson")
        ends = np.clip([(wilson.low - q) / (p - q), (wilson.high - q) / (p - q)], 0, 1)
        assert (low, high) == pytest.approx(tuple(ends), abs=1e-6)
    else:
        assert low == 0 or high == 1
    assert 0 <= low < high <= 1


def test_where_all_reports_agree_the_interval_is_not_a_point():
    """100 of 100 right: an accuracy of 97 % shows this once in 20 times."""
    low, high = accuracy(
        with_reports(released(np.zeros(100, dtype=int), "12"), [0] * 100), one_hot([0] * 100)
    ).interval()
    assert high == 1 and 0.95 < low < 0.97


def test_the_log_likelihood_is_its_formula_row_by_row():
    labels = np.random.default_rng(1).integers(K, size=50)
    release = released(labels)
    predicted = np.random.default_rng(2).dirichlet(np.ones(K), size=50)
    logs = [
        math.log(
            sum(predicted[row, y] * float(release.channel.law(row, y)[release.label_numbers[row]]) for y in range(K))
        )
        for row in range(50)
    ]
    found = log_likelihood(release, predicted)
    assert found.value == pytest.approx(np.mean(logs)) and found.rows == 50
    assert found.standard_error == pytest.approx(np.std(logs, ddof=1) / math.sqrt(50))


def test_a_model_that_is_sure_and_wrong_is_still_graded():
    release = released(np.array([0, 1, 2]), "20")
    assert np.isfinite(log_likelihood(release, one_hot([1, 2, 0])).value)


def test_the_log_likelihood_is_highest_for_the_truth():
    """In the mean over reports, by enumeration: no other prediction of the row beats its own distribution."""
    truth = np.array([0.6, 0.3, 0.1])

    def mean_of(prediction):
        return sum(
            truth[label] * chance * log_likelihood(release, prediction[None]).value
            for label in range(K)
            for release, chance in every_outcome(np.array([label]), "1")
        )

    best = mean_of(truth)
    for other in np.random.default_rng(0).dirichlet(np.ones(K), size=20):
        assert mean_of(other) < best


@pytest.mark.parametrize("figure", [accuracy, log_likelihood])
def test_only_plain_randomized_response_grades_models(figure):
    labels = np.arange(20) % K
    predicted = one_hot(labels)
    vault = ldp.LabelVault(labels, classes=K, budget="20", trust="curator")
    others = [
        vault.release(ldp.RRWithPrior("1")),
        vault.release(ldp.RRTopK("1", k=2), priors=[0.5, 0.3, 0.2]),
        vault.release(ldp.GroupedResponse("1")),
        vault.histogram(np.zeros(20, dtype=int), "1"),
        ldp.LabelVault.unprotected(labels, classes=K),
        labels,
        None,
    ]
    for other in others:
        with pytest.raises(ldp.InvalidArgument, match="released by RandomizedResponse"):
            figure(other, predicted)


@pytest.mark.parametrize("figure", [accuracy, log_likelihood])
@pytest.mark.parametrize(
    "wrong", [np.ones((19, K)) / K, np.ones((20, K + 1)) / 4, np.ones((20, K)), np.full((20, K), np.nan)]
)
def test_what_is_graded_is_one_row_of_probabilities_per_row(figure, wrong):
    with pytest.raises(ldp.InvalidArgument, match="probabilities must"):
        figure(released(np.arange(20) % K), wrong)


def test_an_epsilon_of_almost_nothing_grades_nobody():
    with pytest.raises(ldp.InvalidArgument, match="say nothing"):
        accuracy(released(np.arange(20) % K, "1e-12"), one_hot(np.arange(20) % K))
