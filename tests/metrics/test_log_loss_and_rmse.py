"""Log loss and root mean squared error: their expectation exactly, by enumeration; scikit-learn's where nothing is noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from noisy_hold_outs import K, every_outcome, one_hot, released, with_reports

import labeldp as ldp
from labeldp.metrics import log_loss, rmse
from labeldp.metrics.hold_out import debiased, noise_variance

STARS = [1, 2.5, 7]
EPSILONS = st.sampled_from(["0.01", "0.5", "1", "4", "12"])
LABELS = st.lists(st.integers(0, 2), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32)


def stars_of(numbers):
    return np.array(STARS, dtype=float)[numbers]


def released_stars(numbers, epsilon="1"):
    return released(stars_of(numbers), epsilon, [float(star) for star in STARS])


@given(epsilon=EPSILONS, labels=LABELS, seed=SEEDS)
def test_the_mean_of_the_estimate_is_the_log_loss(epsilon, labels, seed):
    predicted = np.random.default_rng(seed).dirichlet(np.ones(K), size=len(labels))
    mean = math.fsum(chance * log_loss(release, predicted).value for release, chance in every_outcome(labels, epsilon))
    assert mean == pytest.approx(-np.log(predicted[np.arange(len(labels)), labels]).mean(), abs=1e-8)


@given(epsilon=EPSILONS, labels=LABELS, seed=SEEDS)
def test_the_mean_of_the_estimated_square_is_the_mean_squared_error(epsilon, labels, seed):
    predicted = np.random.default_rng(seed).normal(3, 2, size=len(labels))
    outcomes = every_outcome(labels, epsilon, [float(star) for star in STARS])
    mean = math.fsum(chance * rmse(release, predicted).spread.square.value for release, chance in outcomes)
    assert mean == pytest.approx(((stars_of(labels) - predicted) ** 2).mean(), abs=1e-7)


@given(epsilon=EPSILONS, seed=SEEDS, n_classes=st.integers(2, 4))
def test_a_debiased_term_is_the_weighted_sum_of_losses(epsilon, seed, n_classes):
    rng = np.random.default_rng(seed)
    release = released(rng.integers(n_classes, size=20), epsilon, n_classes)
    losses = rng.normal(size=(20, n_classes))
    expected = (release.debiased_weights() * losses).sum(axis=1)
    assert debiased(release, losses) == pytest.approx(expected, abs=1e-9 * np.abs(release.debiased_weights()).max())


@given(
    epsilon=st.sampled_from(["0.5", "1", "4"]), labels=st.lists(st.integers(0, 1), min_size=1, max_size=4), seed=SEEDS
)
def test_with_two_classes_the_variance_of_the_noise_is_known_whatever_was_reported(epsilon, labels, seed):
    losses = np.random.default_rng(seed).normal(size=(len(labels), 2))
    outcomes = [(release, chance) for release, chance in every_outcome(labels, epsilon, 2)]
    sums = [debiased(release, losses).sum() for release, _ in outcomes]
    mean = math.fsum(chance * total for (_, chance), total in zip(outcomes, sums, strict=True))
    variance = math.fsum(chance * (total - mean) ** 2 for (_, chance), total in zip(outcomes, sums, strict=True))
    for release, _ in outcomes:
        assert noise_variance(release, losses) == pytest.approx(variance / len(labels))


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_with_more_classes_the_variance_of_the_noise_is_estimated(epsilon):
    """Over 60,000 rows within 3 %: more than 9 standard deviations of what the reports make of it."""
    rng = np.random.default_rng(0)
    labels, losses = rng.integers(K, size=60_000), rng.random(size=(60_000, K))
    release = released(labels, epsilon)
    laws = np.array([[float(release.channel.law(0, label)[report]) for report in range(K)] for label in range(K)])
    terms = np.stack([debiased(with_reports(release, np.full(60_000, report)), losses) for report in range(K)], axis=1)
    chances = laws[labels]
    means = (chances * terms).sum(axis=1)
    assert means == pytest.approx(losses[np.arange(60_000), labels])
    variances = (chances * (terms - means[:, None]) ** 2).sum(axis=1)
    assert noise_variance(release, losses) == pytest.approx(variances.mean(), rel=0.03)


def test_an_error_is_never_below_that_of_the_noise():
    """100 reports that all agree with a sure model: at epsilon 4 luck, not proof."""
    release = with_reports(released(np.zeros(100, dtype=int), "4", 2), [0] * 100)
    found = log_loss(release, np.tile([0.99, 0.01], (100, 1)))
    p = float(release.likelihood(rows=[0]).max())
    of_noise = math.log(0.99 / 0.01) * math.sqrt(p * (1 - p)) / (2 * p - 1)
    assert found.standard_error == pytest.approx(of_noise / 10)
    assert found.interval()[1] > 0.1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_without_noise_the_log_loss_is_scikit_learns(n_classes, dtype):
    rng = np.random.default_rng(n_classes)
    release = released(rng.integers(n_classes, size=300), "20", n_classes)
    predicted = rng.dirichlet(np.ones(n_classes), size=300).astype(dtype)
    predicted[:100] = one_hot(rng.integers(n_classes, size=100), n_classes)  # sure, and often wrong: clipped
    expected = sklearn.metrics.log_loss(release.label_numbers, predicted, labels=np.arange(n_classes))
    assert log_loss(release, predicted).value == pytest.approx(expected, rel=1e-6)


def test_without_noise_the_rmse_is_scikit_learns():
    rng = np.random.default_rng(1)
    release = released_stars(rng.integers(3, size=300), "20")
    predicted = rng.normal(3, 2, size=300)
    expected = sklearn.metrics.root_mean_squared_error(release.labels, predicted)
    assert rmse(release, predicted).value == pytest.approx(expected, rel=1e-6)
    assert rmse(release, predicted.astype(np.float32)).value == pytest.approx(expected, rel=1e-6)
    assert rmse(release, predicted.astype(int)).value == rmse(release, np.trunc(predicted).tolist()).value


def test_a_rmse_that_noise_makes_the_root_of_a_negative_number_is_0():
    release = with_reports(released(np.zeros(50, dtype=int), "0.5", 2), [0] * 50)
    found = rmse(release, np.zeros(50))
    assert found.value == 0 and found.spread.square.value < 0 and math.isnan(found.standard_error)
    low, high = found.interval()
    assert low == 0 and 0 < high < 2


def test_the_error_of_the_root_is_that_of_the_square_by_its_slope():
    found = rmse(released_stars(np.arange(300) % 3, "4"), np.full(300, 3.0))
    assert found.standard_error == pytest.approx(found.spread.square.standard_error / (2 * found.value))
    assert found.interval(0.9) == pytest.approx(tuple(np.sqrt(found.spread.square.interval(0.9))))


def test_one_row_has_an_estimate_and_no_error():
    for found in (log_loss(released([1]), one_hot([1])), rmse(released([1]), [1.5])):
        assert np.isfinite(found.value) and math.isnan(found.standard_error) and found.rows == 1
        assert found.interval() == (0, math.inf)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros(19), "one number per row of the hold-out, 20"),
        (np.zeros((20, 1)), "one number per row"),
        (np.full(20, np.nan), "must be finite; 20 of 20"),
        (np.full(20, np.inf), "must be finite"),
        (["a"] * 20, "must be numbers"),
        ([None] * 20, "must be numbers"),
        ([[1], [1, 2]], "array or a list"),
        (np.full(20, 1e80), "must lie between"),
    ],
)
def test_what_is_graded_by_rmse_is_one_number_per_row(wrong, message):
    with pytest.raises(ldp.InvalidArgument, match=message):
        rmse(released(np.arange(20) % K), wrong)


@pytest.mark.parametrize("wrong", [np.ones((19, K)) / K, np.ones((20, K)), np.full((20, K), np.nan), np.zeros(20)])
def test_what_is_graded_by_log_loss_is_one_row_of_probabilities_per_row(wrong):
    with pytest.raises(ldp.InvalidArgument, match="probabilities must"):
        log_loss(released(np.arange(20) % K), wrong)


def test_words_have_no_squared_error():
    for names in (["no", "yes"], [False, True]):
        with pytest.raises(ldp.InvalidArgument, match="classes that are numbers"):
            rmse(released(np.array(names * 10), classes=names), np.zeros(20))
    with pytest.raises(ldp.InvalidArgument, match="needs classes between"):
        rmse(released([0, 10**400], classes=[0, 10**400]), np.zeros(2))


def test_a_release_of_unbiased_values_has_no_right_squares():
    vault = ldp.LabelVault(np.arange(20) % 5, classes=5, budget="2")
    release = vault.release(ldp.UnbiasedResponse("1", low=0, high=4))
    with pytest.raises(ldp.InvalidArgument, match=r"released by RandomizedResponse.*the variance of the noise"):
        rmse(release, np.zeros(20))


@pytest.mark.parametrize("figure", [log_loss, rmse])
def test_only_plain_randomized_response_grades_models(figure):
    labels = np.arange(20) % K
    predicted = one_hot(labels) if figure is log_loss else labels
    vault = ldp.LabelVault(labels, classes=K, budget="20")
    others = [vault.release(ldp.RRWithPrior("1")), ldp.LabelVault.unprotected(labels, classes=K), labels, None]
    for other in others:
        with pytest.raises(ldp.InvalidArgument, match="released by RandomizedResponse"):
            figure(other, predicted)


def test_an_epsilon_of_almost_nothing_grades_nobody():
    release = released(np.arange(20) % K, "1e-12")
    with pytest.raises(ldp.InvalidArgument, match="say nothing"):
        log_loss(release, one_hot(np.arange(20) % K))
    with pytest.raises(ldp.InvalidArgument, match="say nothing"):
        rmse(release, np.zeros(20))
