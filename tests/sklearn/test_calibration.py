"""How far a model is to be believed: known distortions are undone, by reports alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

import labeldp as ldp
from labeldp.randomness import InsecureBits
from labeldp.sklearn.calibration import Stretch, Temper, stretch_of, temper_of


def simulated(*, n=6000, n_classes=3, epsilon="2", seed=0):
    """Return true probabilities, labels drawn from them, and the likelihood of reports on the labels."""
    rng = np.random.default_rng(seed)
    probabilities = softmax(rng.normal(size=(n, n_classes)), axis=1)
    labels = (probabilities.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    vault = ldp.LabelVault(labels, classes=n_classes, budget=epsilon, bits=InsecureBits(seed))
    return probabilities, labels, vault.release(ldp.RandomizedResponse(epsilon))


def test_a_stretch_undoes_what_randomized_response_does_to_a_model_of_its_reports():
    """A perfect model of reports predicts q + (p - q) f where the truth is f: its stretch is 1 / (p - q)."""
    probabilities, _, release = simulated()
    law = release.likelihood(rows=[0])[0]
    p, q = law.max(), law.min()
    of_reports = q + (p - q) * probabilities
    found = stretch_of(of_reports, release.likelihood(), np.ones(len(of_reports)))
    assert found.times == pytest.approx(1 / (p - q), rel=0.1)
    assert np.abs(found(of_reports) - probabilities).mean() < 0.02


@pytest.mark.parametrize("sureness", [1.0, 2.0, 5.0])
def test_a_model_that_is_too_sure_is_tempered(sureness):
    probabilities, _, release = simulated()
    told = softmax(sureness * np.log(probabilities), axis=1)
    found = temper_of(told, release.likelihood(), np.ones(len(told)))
    assert found.power == pytest.approx(1 / sureness, rel=0.1)


def test_a_model_of_beliefs_is_never_made_surer():
    probabilities, _, release = simulated()
    shy = softmax(0.3 * np.log(probabilities), axis=1)
    assert temper_of(shy, release.likelihood(), np.ones(len(shy))).power == 1


def test_a_model_that_has_learned_nothing_is_not_believed():
    rng = np.random.default_rng(1)
    _, labels, release = simulated()
    noise = rng.dirichlet(np.ones(3), size=len(labels))
    assert stretch_of(noise, release.likelihood(), np.ones(len(noise))).times < 0.3
    assert temper_of(noise, release.likelihood(), np.ones(len(noise))).power < 0.3


def test_reports_that_say_nothing_change_nothing():
    probabilities, _, _ = simulated(n=200)
    nothing = np.full((200, 3), 0.5)
    assert stretch_of(probabilities, nothing, np.ones(200)).times == pytest.approx(1, abs=1e-2)
    assert temper_of(probabilities, nothing, np.ones(200)).power == 1


@pytest.mark.parametrize("find", [stretch_of, temper_of])
def test_rows_without_weight_have_no_say(find):
    probabilities, _, release = simulated(n=400)
    weights = (np.arange(400) < 200).astype(float)
    other = release.likelihood().copy()
    other[200:] = other[200:][:, ::-1]
    assert find(probabilities, release.likelihood(), weights) == find(probabilities, other, weights)


@given(
    trust=st.one_of(st.builds(Stretch, st.floats(0.05, 1000)), st.builds(Temper, st.floats(0.02, 1))),
    seed=st.integers(0, 1000),
    n_classes=st.integers(2, 6),
)
def test_what_comes_out_are_probabilities_and_keep_their_order(trust, seed, n_classes):
    given = np.random.default_rng(seed).dirichlet(np.ones(n_classes), size=20)
    found = trust(given)
    assert found.sum(axis=1) == pytest.approx(np.ones(20)) and (found > 0).all()
    assert (np.diff(np.take_along_axis(found, given.argsort(axis=1), axis=1), axis=1) >= -1e-12).all()
