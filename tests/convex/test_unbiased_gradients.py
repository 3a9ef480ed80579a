"""Equation (eq:def-hatgt) by enumeration: its mean is the true gradient exactly, its second moment what is said."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Epsilon, Odds
from labeldp.convex.estimator import Unbiased, of_release, theorem_moment, weights
from labeldp.errors import InvalidArgument, NotIdentifiable
from labeldp.randomness import InsecureBits

EPSILONS = st.sampled_from(["0.000001", "0.1", "0.5", "1", "3", "8", "20"])
whole = st.integers(-1000, 1000)


def mean_estimate(law, estimator, gradients):
    """The mean over reports of own g_report + other (sum of the other candidates' g), in fractions."""
    return sum(
        chance * (estimator.own * gradients[report] + estimator.other * sum(gradients[y] for y in law if y != report))
        for report, chance in law.items()
    )


@given(epsilon=EPSILONS, data=st.data(), n_classes=st.integers(2, 6))
def test_the_mean_over_reports_is_the_true_gradient_for_every_label(epsilon, data, n_classes):
    gradients = data.draw(st.lists(whole, min_size=n_classes, max_size=n_classes))
    estimator = Unbiased.at(epsilon, n_classes)
    for label in range(n_classes):
        law = ldp.RandomizedResponse(epsilon).law(label, [1 / n_classes] * n_classes)
        assert mean_estimate(law, estimator, gradients) == gradients[label]


@given(epsilon=EPSILONS, data=st.data(), n_classes=st.integers(2, 6))
def test_with_top_k_it_is_that_of_a_candidate_and_the_candidates_mean_for_other_labels(epsilon, data, n_classes):
    k = data.draw(st.integers(1, n_classes))
    prior = np.array(data.draw(st.lists(st.integers(1, 100), min_size=n_classes, max_size=n_classes)), dtype=float)
    gradients = data.draw(st.lists(whole, min_size=n_classes, max_size=n_classes))
    for label in range(n_classes):
        law = ldp.RRTopK(epsilon, k).law(label, prior / prior.sum())
        mean = mean_estimate(law, Unbiased.at(epsilon, k), gradients)
        assert mean == (gradients[label] if label in law else Fraction(sum(gradients[y] for y in law), k))


@given(epsilon=EPSILONS, k=st.integers(1, 50))
def test_the_weights_are_those_of_the_paper(epsilon, k):
    estimator, e = Unbiased.at(epsilon, k), Fraction(Odds.within(Epsilon.of(epsilon)).keep, 2**32)
    p = 1 / (e + k - 1)
    assert estimator.own == (e + k - 1) / (e - 1) * (1 - p) == (1 - p) / (1 - k * p)
    assert estimator.other == -(e + k - 1) / (e - 1) * p
    assert estimator.own + (k - 1) * estimator.other == 1
    assert estimator.epsilon == pytest.approx(float(epsilon), rel=1e-3 if epsilon == "0.000001" else 1e-8)


@pytest.mark.parametrize("k", [None, 1, 2, 3])
def test_a_releases_weights_are_these_fractions(k):
    rng = np.random.default_rng(0)
    vault = ldp.LabelVault(rng.integers(4, size=50), classes=4, budget="1", bits=InsecureBits(1))
    priors = None if k is None else rng.dirichlet(np.ones(4), size=50)
    mechanism = ldp.RandomizedResponse("1") if k is None else ldp.RRTopK("1", k)
    release = vault.release(mechanism, priors=priors)
    estimator = of_release(release)
    table = weights(release, np.arange(50))
    assert estimator == Unbiased.at("1", k or 4)
    for row, reported in zip(table, release.label_numbers, strict=True):
        assert row[reported] == pytest.approx(float(estimator.own), rel=1e-12)
        others = np.delete(row, reported)
        assert sorted(others)[: estimator.k - 1] == pytest.approx(
            [float(estimator.other)] * (estimator.k - 1), rel=1e-12
        )
        assert (others == 0).sum() == 4 - estimator.k


def second_moment(epsilon, gradients, label):
    """The mean over reports of the squared length of the estimate, by enumeration."""
    k = len(gradients)
    law, estimator = ldp.RandomizedResponse(epsilon).law(label, [1 / k] * k), Unbiased.at(epsilon, k)
    whole_sum = gradients.sum(axis=0)
    estimates = [
        float(estimator.own - estimator.other) * gradients[report] + float(estimator.other) * whole_sum
        for report in law
    ]
    return sum(float(chance) * e @ e for chance, e in zip(law.values(), estimates, strict=True))


@given(
    epsilon=st.sampled_from(["0.1", "1", "2", "5"]),
    k=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
    dim=st.integers(1, 4),
)
def test_no_gradients_have_a_larger_second_moment(epsilon, k, seed, dim):
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(k, dim))
    gradients /= np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), rng.choice([1e-9, 2.0]))
    for label in range(k):
        assert second_moment(epsilon, gradients, label) <= Unbiased.at(epsilon, k).moment(1.0) ** 2 * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "k"), list(itertools.product(["0.1", "1", "2", "5"], [2, 3, 4, 10])))
def test_some_gradients_have_that_second_moment(epsilon, k):
    e = float(Fraction(Odds.within(Epsilon.of(epsilon)).keep, 2**32))
    if e >= k - 1:  # the others oppose the true one
        gradients = np.array([[1.0, 0.0]] + [[-1.0, 0.0]] * (k - 1))
    elif k % 2:  # the others, in two halves, balance the true one
        lean = math.acos(e / (k - 1))
        halves = [[-math.cos(lean), math.sin(lean)], [-math.cos(lean), -math.sin(lean)]]
        gradients = np.array([[1.0, 0.0]] + halves * ((k - 1) // 2))
    else:  # an odd number of others: one against the true one, the rest in two halves
        lean = math.acos((e - 1) / (k - 2))
        halves = [[-math.cos(lean), math.sin(lean)], [-math.cos(lean), -math.sin(lean)]]
        gradients = np.array([[1.0, 0.0], [-1.0, 0.0]] + halves * ((k - 2) // 2))
    assert second_moment(epsilon, gradients, 0) == pytest.approx(Unbiased.at(epsilon, k).moment(1.0) ** 2, rel=1e-9)


@given(epsilon=st.floats(0.001, 12).map(lambda e: round(e, 6)), k=st.integers(2, 1000))
def test_the_moment_lies_between_the_gradients_and_the_longest_estimate(epsilon, k):
    estimator = Unbiased.at(epsilon, k)
    assert 1 <= estimator.moment(1.0) <= estimator.stretch * (1 + 1e-12)
    assert estimator.moment(1.0) <= Unbiased.at(epsilon, k + 1).moment(1.0)
    assert Unbiased.at(round(epsilon + 0.1, 6), k).moment(1.0) <= estimator.moment(1.0)


@given(epsilon=st.floats(0.001, 1).map(lambda e: round(e, 6)), k=st.integers(2, 1000), L=st.floats(0.1, 10))
def test_the_papers_moment_is_valid_up_to_epsilon_1(epsilon, k, L):
    estimator = Unbiased.at(epsilon, k)
    assert theorem_moment(estimator, L) == pytest.approx(6 * k * L / epsilon, rel=1e-6)
    assert 5 * estimator.moment(L) <= theorem_moment(estimator, L)


def test_above_epsilon_1_the_moment_is_the_exact_one():
    assert theorem_moment(Unbiased.at("1.5", 10), 2.0) == Unbiased.at("1.5", 10).moment(2.0)
    assert Unbiased.at("13", 2).moment(1.0) > 6 * 2 / 13  # where the paper's would be too small
    assert Unbiased.at("20", 10).moment(2.0) == pytest.approx(2.0, rel=1e-6)
    assert Unbiased.at("0.1", 1).moment(2.0) == 2.0  # one candidate: nothing is randomized
    assert Unbiased.none().moment(2.0) == Unbiased.none().stretch * 2 == 2.0


def test_an_epsilon_that_says_nothing_is_refused():
    with pytest.raises(NotIdentifiable, match="the reports say nothing"):
        Unbiased.at("0.000000000001", 2)


def test_releases_that_are_not_of_single_labels_are_refused():
    vault = ldp.LabelVault([0, 1, 2, 1], classes=3, budget="4", bits=InsecureBits(1))
    grouped = vault.release(ldp.GroupedResponse("1"), priors=[0.5, 0.3, 0.2])
    for other in (grouped, [0, 1, 2, 1], None):
        with pytest.raises(InvalidArgument, match="noisy labels by RandomizedResponse, RRTopK or RRWithPrior"):
            of_release(other)
    assert of_release(ldp.LabelVault.unprotected([0, 1], classes=2)) == Unbiased.none()
