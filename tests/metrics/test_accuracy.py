"""Figures from noisy hold-outs: their expectation exactly, by enumeration, and their standard error."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.metrics import Estimate, accuracy, log_likelihood

K = 3


def released(labels, epsilon="1", classes=K):
    return ldp.LabelVault(labels, classes=classes, budget="20").release(ldp.RandomizedResponse(epsilon))


def every_outcome(labels, epsilon, classes=K):
    """Yield each possible release of these labels and its chance."""
    release = released(labels, epsilon, classes)
    laws = [release.channel.law(row, int(label)) for row, label in enumerate(labels)]
    for reports in itertools.product(range(classes), repeat=len(labels)):
        chance = math.prod(float(law[report]) for law, report in zip(laws, reports, strict=True))
        yield dataclasses.replace(release, reports=np.array(reports, dtype=release.reports.dtype)), chance


def one_hot(predictions, classes=K):
    return np.eye(classes)[np.asarray(predictions)]


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


def test_an_estimate_reads_as_a_percentage():
    assert str(Estimate(0.8125, 0.0123, 100)) == "81.2% ± 1.2%"


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
    with pytest.raises(ldp.InvalidArgument):
        figure(released(np.arange(20) % K), wrong)


def test_an_epsilon_of_almost_nothing_grades_nobody():
    with pytest.raises(ldp.InvalidArgument, match="say nothing"):
        accuracy(released(np.arange(20) % K, "1e-12"), one_hot(np.arange(20) % K))
