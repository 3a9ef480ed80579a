"""The area under the ROC curve: a slow naive oracle, scikit-learn's where nothing is noise, and what cannot be told."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noisy_hold_outs import K, every_outcome, one_hot, released, with_reports
from sklearn.metrics import roc_auc_score

import labeldp as ldp
from labeldp.metrics import auc

EPSILONS = st.sampled_from(["1", "2", "4", "12"])
SEEDS = st.integers(0, 2**32)


def pairs(inside, scores):
    """Return the weight of well ranked pairs and of all pairs, of different rows: one by one."""
    ranked = total = 0.0
    for i in range(len(scores)):
        for j in range(len(scores)):
            if i != j:
                weight = inside[i] * (1 - inside[j])
                ranked += weight * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
                total += weight
    return ranked, total


def naive(release, scores):
    """Return the average of the classes' areas, and its influences: by how much it changes as a row counts a little more."""
    weights = release.debiased_weights()
    columns = [1] if weights.shape[1] == 2 else range(weights.shape[1])
    sums = [pairs(weights[:, k], scores[:, k]) for k in columns]
    influences = np.zeros(len(scores))
    for k, (ranked, total) in zip(columns, sums, strict=True):
        w, s = weights[:, k], scores[:, k]
        for i in range(len(scores)):
            rest = np.delete(np.arange(len(s)), i)
            without, pairs_without = pairs(w[rest], s[rest])
            influences[i] += len(s) * ((ranked - without) - ranked / total * (total - pairs_without)) / total
    return np.mean([ranked / total for ranked, total in sums]), influences / len(sums)


def tied_scores(rng, n_rows, n_classes):
    """Return probabilities of few different values, so that many are equal."""
    counts = rng.multinomial(5, np.full(n_classes, 1 / n_classes), size=n_rows)
    return counts / 5


@given(epsilon=EPSILONS, seed=SEEDS, n_classes=st.sampled_from([2, 3]), n_rows=st.integers(5, 16))
def test_the_estimate_and_its_error_are_those_of_all_pairs_one_by_one(epsilon, seed, n_classes, n_rows):
    rng = np.random.default_rng(seed)
    release = released(rng.integers(n_classes, size=n_rows), epsilon, n_classes)
    scores = tied_scores(rng, n_rows, n_classes)
    counts = release.debiased_weights().sum(axis=0)
    if (counts <= 1e-9).any() or (counts >= n_rows - 1e-9).any():
        return
    found = auc(release, scores)
    value, influences = naive(release, scores)
    assert found.value == pytest.approx(value, abs=1e-7)
    shown = influences.std(ddof=1) / math.sqrt(n_rows)
    of_noise = math.sqrt(found.spread.noise_variance)
    assert found.standard_error == pytest.approx(max(shown, of_noise), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_the_weights_of_well_ranked_pairs_and_of_all_pairs_are_unbiased(epsilon):
    """Of the oracle, by enumeration; the estimate is the ratio of the two."""
    labels, scores = np.array([0, 1, 1, 0, 1]), np.array([0.1, 0.3, 0.3, 0.3, 0.9])
    ranked = total = 0.0
    for release, chance in every_outcome(labels, epsilon, classes=2):
        sums = pairs(release.debiased_weights()[:, 1], scores)
        ranked, total = ranked + chance * sums[0], total + chance * sums[1]
    assert (ranked, total) == pytest.approx((5.0, 6.0))


@pytest.mark.parametrize("ties", [False, True])
def test_without_noise_it_is_scikit_learns(ties):
    rng = np.random.default_rng(0)
    release = released(rng.integers(2, size=300), "20", 2)
    scores = rng.normal(size=300) + release.label_numbers
    scores = np.round(scores) if ties else scores
    expected = roc_auc_score(release.label_numbers, scores)
    assert auc(release, scores).value == pytest.approx(expected, abs=1e-6)
    chances = 1 / (1 + np.exp(-scores))
    assert auc(release, np.stack([1 - chances, chances], axis=1)).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("ties", [False, True])
def test_without_noise_many_classes_are_scikit_learns_macro_average_of_each_against_the_rest(ties):
    rng = np.random.default_rng(1)
    release = released(rng.integers(4, size=300), "20", 4)
    predicted = tied_scores(rng, 300, 4) if ties else rng.dirichlet(np.ones(4), size=300)
    expected = roc_auc_score(release.label_numbers, predicted, multi_class="ovr", average="macro")
    assert auc(release, predicted).value == pytest.approx(expected, abs=1e-6)


@given(epsilon=EPSILONS, seed=SEEDS)
def test_only_the_order_of_the_scores_counts(epsilon, seed):
    rng = np.random.default_rng(seed)
    release = with_reports(released(np.arange(60) % 2, epsilon, 2), np.arange(60) % 2)
    scores = rng.integers(-5, 6, size=60)
    found = auc(release, scores)
    assert found == auc(release, np.exp(scores / 3)) == auc(release, scores.astype(np.float32) * 1e30)
    turned = auc(release, -scores)
    assert turned.value == pytest.approx(1 - found.value) and turned.standard_error == pytest.approx(
        found.standard_error
    )
    low, high = found.interval()
    assert turned.interval() == pytest.approx((1 - high, 1 - low), abs=1e-6)


def test_scores_that_are_all_equal_rank_nothing():
    found = auc(released(np.arange(100) % 2, "4", 2), np.zeros(100))
    assert found.value == pytest.approx(0.5) and found.standard_error == pytest.approx(0, abs=1e-9)


def test_where_all_is_well_ranked_the_interval_is_not_a_point():
    """50 rows of each class: with an AUC of 95 % all would hardly be well ranked, with one of 99 % they may well be."""
    labels = np.repeat([0, 1], 50)
    found = auc(with_reports(released(labels, "12", 2), labels), np.arange(100))
    low, high = found.interval()
    assert found.value == pytest.approx(1, abs=1e-4) and high == 1 and 0.93 < low < 0.99


def test_where_the_number_of_pairs_is_uncertain_the_interval_says_so():
    """The debiased count of the class is 3 ± 19 rows of 300: the pairs say nothing, and the interval spans nearly all."""
    release = released(np.zeros(300, dtype=int), "1", 2)
    reports = np.arange(300) >= 300 - 82
    found = auc(with_reports(release, reports), np.arange(300))
    low, high = found.interval()
    assert 0 < found.spread.counts[0][0] < 10
    assert high - low > 0.9


def test_a_class_that_noise_hides_cannot_be_ranked():
    release = with_reports(released(np.zeros(50, dtype=int), "1", 2), [0] * 50)
    for reports in ([0] * 50, [1] * 50):
        with pytest.raises(ldp.NotIdentifiable, match=r"1 of the 1 classes.*Hold out more rows"):
            auc(with_reports(release, reports), np.arange(50))
    many = with_reports(released(np.zeros(60, dtype=int), "1", 4), [0, 1, 2] * 20)
    with pytest.raises(ldp.NotIdentifiable, match="1 of the 4 classes"):
        auc(many, one_hot(np.arange(60) % 4, 4))


def test_one_row_is_no_pair():
    with pytest.raises(ldp.NotIdentifiable):
        auc(released([1], "1", 2), [0.5])


def test_many_rows_take_seconds():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=300_000)
    release = released(labels, "1", 2)
    start = time.perf_counter()
    found = auc(release, rng.normal(size=300_000) + labels)
    assert time.perf_counter() - start < 20  # a table of pairs would take 700 gigabytes
    assert abs(found.value - 0.7602) < 6.5 * found.standard_error < 0.03


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros(19), "one number per row"),
        (np.full(20, np.nan), "must be finite"),
        (np.full(20, np.inf), "must be finite"),
        (["a"] * 20, "must be numbers"),
        (np.zeros((20, 3)), "probabilities must have shape"),
        (np.zeros((20, 2)), "must be finite and sum to 1"),
        (np.full((20, 2), np.nan), "must be finite"),
    ],
)
def test_what_is_graded_is_one_score_or_one_row_of_probabilities_per_row(wrong, message):
    with pytest.raises(ldp.InvalidArgument, match=message):
        auc(released(np.arange(20) % 2, "1", 2), wrong)


def test_one_score_per_row_ranks_two_classes_only():
    with pytest.raises(ldp.InvalidArgument, match="ranks two classes, but this hold-out has 3"):
        auc(released(np.arange(20) % K), np.zeros(20))


def test_only_plain_randomized_response_grades_models():
    labels = np.arange(20) % 2
    vault = ldp.LabelVault(labels, classes=2, budget="20")
    others = [vault.release(ldp.RRWithPrior("1")), ldp.LabelVault.unprotected(labels, classes=2), labels, None]
    for other in others:
        with pytest.raises(ldp.InvalidArgument, match="released by RandomizedResponse"):
            auc(other, one_hot(labels, 2))


def test_an_epsilon_of_almost_nothing_grades_nobody():
    with pytest.raises(ldp.InvalidArgument, match="say nothing"):
        auc(released(np.arange(20) % 2, "1e-12", 2), np.zeros(20))
