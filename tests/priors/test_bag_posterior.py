"""Beliefs about rows given counts of their groups: against loops, and against the exact posterior by enumeration."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from counted import made_up, seeded
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.priors import bag_posterior
from labeldp.priors.bags import FITTING_ROUNDS
from labeldp.priors.shares import noise_variance
from labeldp.vault.aggregates import project_on_totals

CERTAIN, HOPELESS = "20", "0.001"


def naive(predicted, histogram):
    """The documented steps, group by group and row by row."""
    found = np.array(predicted, dtype=float)
    n_classes = found.shape[1]
    noise = noise_variance(histogram) * (n_classes - 1) / n_classes
    for group in range(len(histogram.totals)):
        rows = [row for row, own in enumerate(histogram.groups) if own == group]
        if not rows:
            continue
        for row in rows:
            found[row] = found[row] / sum(found[row])
        wanted = []
        for label in range(n_classes):
            expected = sum(found[row][label] for row in rows)
            variance = sum(found[row][label] * (1 - found[row][label]) for row in rows)
            wanted.append(expected + variance / (variance + noise) * (histogram.counts[group][label] - expected))
        wanted = project_on_totals(np.array([wanted]), np.array([len(rows)]))[0]
        for _ in range(FITTING_ROUNDS):
            factors = wanted / np.maximum(sum(found[row] for row in rows), 1e-12)
            for row in rows:
                scaled = np.maximum(found[row] * factors, 1e-12)
                found[row] = scaled / sum(scaled)
    return found


def exact(predicted, counts, epsilon):
    """The posterior of the rows of one group: every assignment of labels, weighted by its prior and the law of the noise."""
    n_rows, n_classes = predicted.shape
    found = np.zeros((n_rows, n_classes))
    for labels in product(range(n_classes), repeat=n_rows):
        noise = counts - np.bincount(labels, minlength=n_classes)
        weight = np.prod(predicted[np.arange(n_rows), labels]) * np.exp(-float(epsilon) / 2 * np.abs(noise).sum())
        found[np.arange(n_rows), labels] += weight
    return found / found.sum(axis=1, keepdims=True)


def problem(seed=0, n=60, n_classes=3, n_groups=8, epsilon="1"):
    rng = np.random.default_rng(seed)
    predicted = rng.dirichlet(np.ones(n_classes), size=n)
    labels = np.array([rng.choice(n_classes, p=row) for row in predicted])
    return predicted, seeded(
        labels, rng.integers(n_groups, size=n), epsilon, classes=n_classes, n_groups=n_groups + 2, seed=seed
    )


# ---------------------------------------------------------------- the same as loops, and near the truth


@given(st.integers(0, 500), st.integers(1, 40), st.integers(2, 5), st.sampled_from(["0.1", "1", "5"]))
def test_it_is_what_loops_give(seed, n, n_classes, epsilon):
    predicted, histogram = problem(seed, n, n_classes, epsilon=epsilon)
    found = bag_posterior(predicted, histogram)
    assert found == pytest.approx(naive(predicted, histogram), abs=1e-9)
    assert (found >= 0).all() and found.sum(axis=1) == pytest.approx(np.ones(n))


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2"])
def test_two_classes_and_four_rows_come_near_the_exact_posterior(epsilon):
    """On 60 seeded problems, the mean error is at most 0.06, and at most two thirds of that of the predictions alone."""
    rng = np.random.default_rng(5)
    ours, nothing_learned = [], []
    for seed in range(60):
        predicted = rng.dirichlet([2, 2], size=4)
        labels = (rng.random(4) > predicted[:, 0]).astype(int)
        histogram = seeded(labels, np.zeros(4, int), epsilon, classes=2, seed=seed)
        truth = exact(predicted, histogram.counts[0], epsilon)
        ours.append(np.abs(bag_posterior(predicted, histogram) - truth).mean())
        nothing_learned.append(np.abs(predicted - truth).mean())
    assert np.mean(ours) < 0.06
    assert np.mean(ours) < 2 / 3 * np.mean(nothing_learned)


# ---------------------------------------------------------------- counts and predictions, in balance


def test_counts_without_noise_are_met():
    predicted, histogram = problem(n=400, epsilon=CERTAIN)
    found = bag_posterior(predicted, histogram)
    assert np.abs(histogram.counts.sum(axis=1) - histogram.totals).max() == 0, "hardly any noise, seeded"
    for group in range(len(histogram.totals)):
        assert found[histogram.groups == group].sum(axis=0) == pytest.approx(histogram.counts[group], abs=0.02)


@given(st.integers(0, 200))
def test_the_beliefs_of_a_group_add_up_to_the_counts_given_both(seed):
    """The classes of a group are met within a hundredth of its rows, whatever the noise."""
    predicted, histogram = problem(seed, n=120, epsilon="1")
    found = bag_posterior(predicted, histogram)
    noise = noise_variance(histogram) * 2 / 3
    for group, size in enumerate(histogram.totals):
        own = predicted[histogram.groups == group]
        variance = (own * (1 - own)).sum(axis=0)
        both = own.sum(axis=0) + variance / (variance + noise) * (histogram.counts[group] - own.sum(axis=0))
        wanted = project_on_totals(both[None], np.array([size]))[0]
        assert found[histogram.groups == group].sum(axis=0) == pytest.approx(wanted, abs=0.02 * size + 1e-9)


def test_counts_that_are_all_noise_leave_the_predictions_alone():
    predicted, histogram = problem(epsilon=HOPELESS)
    assert bag_posterior(predicted, histogram) == pytest.approx(predicted, abs=0.02)


def test_the_counts_weigh_more_the_more_epsilon_they_cost():
    predicted = np.full((40, 2), 0.5)
    shares = [
        bag_posterior(predicted, made_up([[35, 5]], [40], epsilon))[0, 0] for epsilon in ("0.01", "0.3", "1", "20")
    ]
    assert shares == sorted(shares) and 0.5 < shares[0] < 0.51 and shares[-1] == pytest.approx(35 / 40, abs=1e-3)


def test_rows_keep_their_order_within_a_group():
    predicted = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    found = bag_posterior(predicted, made_up([[3, 0]], [3], "2"))
    assert found[0, 0] > found[1, 0] > found[2, 0] and (found[:, 0] > predicted[:, 0]).all()


def test_a_group_of_one_row_is_told_by_its_own_count():
    found = bag_posterior(np.full((2, 2), 0.5), made_up([[1, 0], [0, 1]], [1, 1], CERTAIN))
    assert found == pytest.approx(np.eye(2), abs=0.01)


def test_a_prediction_without_doubt_is_not_moved():
    certain = np.eye(3)[[0, 1, 2, 0]]
    assert bag_posterior(certain, made_up([[0, 0, 4]], [4], CERTAIN)) == pytest.approx(certain, abs=1e-9)


def test_empty_groups_and_their_noise_are_nothing_to_anybody():
    predicted, histogram = problem()
    assert (histogram.totals == 0).sum() >= 2
    loud = np.array(histogram.counts)
    loud[histogram.totals == 0] = 10**6
    assert (bag_posterior(predicted, replace(histogram, counts=loud)) == bag_posterior(predicted, histogram)).all()


@given(st.integers(0, 100), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(seed, random):
    predicted, histogram = problem(seed)
    order = list(range(len(predicted)))
    random.shuffle(order)
    shuffled = replace(histogram, groups=histogram.groups[order], rows=histogram.rows[order])
    found = bag_posterior(predicted[order], shuffled)
    assert found == pytest.approx(bag_posterior(predicted, histogram)[order], abs=1e-9)


def test_groups_do_not_hear_each_other():
    predicted, histogram = problem()
    other = np.array(histogram.counts)
    other[0] = other[0][::-1] + 5
    changed = bag_posterior(predicted, replace(histogram, counts=other)) != bag_posterior(predicted, histogram)
    assert changed[histogram.groups == 0].any() and not changed[histogram.groups != 0].any()


# ---------------------------------------------------------------- what may be given


def test_predictions_need_not_be_normalised():
    predicted, histogram = problem()
    times = np.random.default_rng(0).uniform(0.01, 50, size=(len(predicted), 1))
    assert bag_posterior(predicted * times, histogram) == pytest.approx(bag_posterior(predicted, histogram), abs=1e-9)
    single = bag_posterior(predicted.astype(np.float32), histogram)
    assert single.dtype == np.float64 and single == pytest.approx(bag_posterior(predicted, histogram), abs=1e-5)


def test_a_row_of_zeros_says_nothing():
    """A prediction and a report that contradict each other."""
    predicted, histogram = problem()
    silent, uniform = predicted.copy(), predicted.copy()
    silent[7], uniform[7] = 0, 1 / 3
    assert (bag_posterior(silent, histogram) == bag_posterior(uniform, histogram)).all()


def test_what_is_given_is_not_changed():
    predicted, histogram = problem()
    before = predicted.copy()
    bag_posterior(predicted, histogram)
    assert (predicted == before).all()


@pytest.mark.parametrize("shape", [(59, 3), (61, 3), (60, 2), (60,), (60, 3, 1)])
def test_predictions_of_other_rows_or_classes_are_refused(shape):
    with pytest.raises(ldp.InvalidArgument, match=r"shape \(60, 3\), one row per row of the histogram; got"):
        bag_posterior(np.full(shape, 0.5), problem()[1])


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1])
def test_predictions_that_are_no_probabilities_are_refused(value):
    predicted, histogram = problem()
    predicted[3, 1] = value
    with pytest.raises(ldp.InvalidArgument, match="finite numbers, and none of them negative"):
        bag_posterior(predicted, histogram)
    with pytest.raises(ldp.InvalidArgument, match="finite numbers"):
        bag_posterior(np.full((60, 3), "much"), histogram)
