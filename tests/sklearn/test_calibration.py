"""How sure a model may be of itself: the cost's slope by finite differences, and a sharpness that is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import log_softmax, softmax

import labeldp as ldp
from labeldp.randomness import InsecureBits
from labeldp.sklearn import calibration
from labeldp.sklearn.calibration import calibrated


def simulated(*, n=4000, n_classes=3, epsilon="3", seed=0):
    """Return true probabilities, labels drawn from them, and the likelihood of reports on the labels."""
    rng = np.random.default_rng(seed)
    probabilities = softmax(2 * rng.normal(size=(n, n_classes)), axis=1)
    labels = (probabilities.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    vault = ldp.LabelVault(labels, classes=n_classes, budget=epsilon, bits=InsecureBits(seed))
    return probabilities, labels, vault.release(ldp.RandomizedResponse(epsilon)).likelihood()


def cost_of(monkeypatch, *given):
    """Return the function that is minimised."""
    costs = []

    def remember(cost, start, **_):
        costs.append(cost)
        return type("Result", (), {"x": start})

    monkeypatch.setattr(calibration, "minimize", remember)
    calibrated(*given)
    return costs[0]


def test_the_slope_of_the_cost_is_that_of_finite_differences(monkeypatch):
    probabilities, _, likelihood = simulated(n=50)
    weights = np.random.default_rng(1).random(50)
    cost = cost_of(monkeypatch, probabilities, likelihood, weights)
    for seed in range(5):
        z = np.random.default_rng(seed).normal(size=4)
        assert check_grad(lambda z: cost(z)[0], lambda z: cost(z)[1], z) < 1e-5


def test_the_cost_is_what_reports_and_priors_say_when_written_out(monkeypatch):
    probabilities, _, likelihood = simulated(n=30)
    weights = np.random.default_rng(1).random(30)
    z = np.array([0.3, -0.2, 0.1, 0.4])
    total = z[0] ** 2 / (2 * 4.0) + sum(offset**2 / (2 * 0.1) for offset in z[1:])
    for row, chances, weight in zip(probabilities, likelihood, weights, strict=True):
        powers = [p ** np.exp(z[0]) * np.exp(offset) for p, offset in zip(row, z[1:], strict=True)]
        total -= weight * np.log(sum(p / sum(powers) * chance for p, chance in zip(powers, chances, strict=True)))
    assert cost_of(monkeypatch, probabilities, likelihood, weights)(z)[0] == pytest.approx(total / 30)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_a_model_that_is_too_shy_or_too_sure_is_mended(sharpness):
    """All seeds are fixed. The mended probabilities are the true ones, about, whatever was done to them."""
    probabilities, _, likelihood = simulated()
    told = softmax(sharpness * np.log(probabilities), axis=1)
    mended = calibrated(told, likelihood, np.ones(len(told)))
    found = slope_between(np.log(told), np.log(mended))
    assert found == pytest.approx(1 / sharpness, rel=0.1)
    assert np.abs(mended - probabilities).mean() < 0.02


def slope_between(before, after):
    """The a of after = a before + b + what normalises rows."""
    x, y = (each - each.mean(axis=1, keepdims=True) for each in (before, after))
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    return (x * y).sum() / (x * x).sum()


def test_a_class_that_is_told_too_often_is_mended():
    probabilities, labels, likelihood = simulated()
    told = softmax(np.log(probabilities) + np.array([1.0, 0, 0]), axis=1)
    mended = calibrated(told, likelihood, np.ones(len(told)))
    assert np.abs(told.mean(axis=0) - np.bincount(labels) / len(labels)).max() > 0.1
    assert mended.mean(axis=0) == pytest.approx(np.bincount(labels) / len(labels), abs=0.03)


def test_reports_that_say_nothing_change_nothing():
    probabilities, _, _ = simulated(n=200)
    assert calibrated(probabilities, np.full((200, 3), 0.5), np.ones(200)) == pytest.approx(probabilities, abs=1e-6)


def test_rows_without_weight_have_no_say():
    probabilities, _, likelihood = simulated(n=400)
    weights = (np.arange(400) < 200).astype(float)
    other = likelihood.copy()
    other[200:] = other[200:][:, ::-1]
    pair = [calibrated(probabilities, each, weights) for each in (likelihood, other)]
    assert pair[0] == pytest.approx(pair[1])


def test_a_report_that_rules_a_label_out_is_no_obstacle():
    probabilities, labels, _ = simulated(n=500)
    mended = calibrated(probabilities, np.eye(3)[labels], np.ones(500))
    assert np.isfinite(mended).all() and mended.sum(axis=1) == pytest.approx(np.ones(500))
    assert np.allclose(np.log(mended), log_softmax(np.log(mended), axis=1))
