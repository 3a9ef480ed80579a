"""The study of rates: its risks are what it says, its baseline is as noisy as full DP needs, its fits find exponents."""

import importlib
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from labeldp import convex

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("convex_rates")


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("convex_problems")


def population(problem):
    """Return all rows of a small linear problem, equally likely, and the law of the label in each."""
    signs = np.array(list(product([-1, 1], repeat=problem.n_features - 1)))
    sides = np.repeat([0, 1], len(signs))
    return problem.rows(sides, np.tile(signs, (2, 1))), np.array([problem.chances(side) for side in sides])


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_linear_problems_excess_risk_is_that_of_its_whole_population(problems, n_classes):
    problem = problems.Linear(n_classes, 4, informative=0.6)
    X, law = population(problem)

    def risk(w):
        return float((problem.loss.values(w, X) * law).sum(axis=1).mean())

    best = np.zeros((n_classes - 1, 4))
    best[:, 0] = problem.mean / np.linalg.norm(problem.mean)
    for w in problems.BALL.project(np.random.default_rng(0).normal(size=(5, problem.p))):
        assert problem.excess(w) == pytest.approx(risk(w) - risk(best.ravel()), abs=1e-9)
        assert problem.excess(w) >= 0
    assert problem.excess(best.ravel()) == pytest.approx(0, abs=1e-12)


def test_the_kinked_problems_excess_risk_is_that_of_its_whole_population(problems):
    problem = problems.Kinked(9)
    law = np.stack([1 - problem.chances, problem.chances], axis=1)

    def risk(w):
        return float((problem.loss.values(w, problem.directions) * law).sum(axis=1).mean())

    best = problem.directions.T @ np.array([0.5, 0.5, 0.5, -0.2], dtype=np.float64)  # the last is in the flat part
    assert np.linalg.norm(best) < problems.BALL.radius
    for w in np.random.default_rng(0).normal(size=(5, 9)):
        assert problem.excess(w) == pytest.approx(risk(w) - risk(best), abs=1e-6)
    assert problem.excess(best) == pytest.approx(0, abs=1e-6)


def test_rows_and_labels_are_drawn_from_the_laws_that_the_risks_assume(problems):
    linear = problems.Linear(3, 5, informative=0.6)
    X, labels = linear.draw(40_000, np.random.default_rng(0))
    gradients = linear.loss.gradient(np.zeros(10), X, np.eye(3)[labels]).reshape(2, 5)
    expected = np.zeros((2, 5))
    expected[:, 0] = -linear.mean
    assert np.abs(gradients - expected).max() < 7 / math.sqrt(len(X))  # entries at most 1 long: false alarms below 1e-9
    kinked = problems.Kinked(6)
    X, labels = kinked.draw(40_000, np.random.default_rng(1))
    for row, chance in zip(kinked.directions, kinked.chances, strict=True):
        here = labels[(row == X).all(axis=1)]
        assert 9_000 < len(here) < 11_000 and abs(here.mean() - chance) < 7 * 0.5 / math.sqrt(len(here))


@pytest.mark.parametrize("n_classes", [2, 7])
def test_every_gradient_of_the_linear_problem_has_the_declared_length(problems, n_classes):
    problem = problems.Linear(n_classes, 6)
    X, _ = problem.draw(10, np.random.default_rng(0))
    problem.loss.check(X, np.zeros(problem.p))
    gradients = problem.loss.gradients(np.zeros(problem.p), X)
    assert np.linalg.norm(gradients, axis=-1) == pytest.approx(problems.LIPSCHITZ)
    assert gradients.sum(axis=1) == pytest.approx(0, abs=1e-6)
    assert problems.BALL.diameter(problem.p) == problems.DIAMETER


def test_full_dp_noise_has_the_analytic_deviation_in_all_p_coordinates(problems):
    """One step on a batch of all rows moves by scale x (mean gradient + noise), which is read back before projection bites."""
    cell = problems.Cell(problems.Linear(2, 4_000), 64, "1", 64)
    X, labels = cell.problem.draw(64, np.random.default_rng(0))
    free = problems.full_dp_sgd(cell, X, labels, 64, np.random.default_rng(1))
    sigma = problems.full_dp_sigma("1") / 64
    assert problems.full_dp_sigma("1") == pytest.approx(2 * 4.2247, rel=1e-3)  # Balle and Wang at epsilon 1, delta 1e-6
    assert free.n_steps == 1 and free.moment == pytest.approx(math.sqrt(1 + 4_000 * sigma**2))
    noise = np.random.default_rng(1).standard_normal(4_000, dtype=np.float32)
    step = cell.problem.loss.gradient(np.zeros(4_000), X, np.eye(2)[labels]) + sigma * noise
    assert free.weights == pytest.approx(convex.Ball(radius=1.0).project(-free.scale * step))


def test_its_own_batch_has_the_least_bound_for_full_dp(problems):
    cell = problems.Cell(problems.Linear(2, 100), 2**14, "1", 16)
    own = problems.own_batch(cell)

    def bound(batch):
        moment = math.sqrt(1 + 100 * (problems.full_dp_sigma("1") / batch) ** 2)
        return moment * math.sqrt(batch / cell.n_rows)  # D G / sqrt(T), over D

    assert bound(own) <= min(bound(own // 2), bound(2 * own), bound(16))


def points(study, exponent, noise, seed=0):
    rng = np.random.default_rng(seed)
    for x in (10, 100, 1_000, 10_000):
        excess = (0.1 * x**exponent * rng.lognormal(sigma=noise, size=20)).tolist()
        axis = {
            "study": "linear p",
            "axis": "p",
            "x": x,
            "method": study.RR,
            "at_start": 1.0,
            "bound": 1.0,
            "rate": 1.0,
        }
        yield {**axis, **study.summary(excess)}


def test_a_fit_finds_the_exponent_of_points_without_noise(study):
    (fit,) = study.fits_of(list(points(study, -0.5, 1e-12)), "linear p")
    assert fit["exponent"] == pytest.approx(-0.5) and fit["low"] == pytest.approx(fit["high"])
    assert fit["bound"] == pytest.approx(0)


def test_the_interval_of_an_exponent_covers_the_truth_about_as_often_as_it_says(study):
    fits = [study.fits_of(list(points(study, -0.5, 0.5, seed)), "linear p")[0] for seed in range(400)]
    covered = sum(fit["low"] < -0.5 < fit["high"] for fit in fits)
    assert 360 <= covered <= 396  # of 95 %, 380 are expected; the seeds are fixed


def test_points_at_which_little_was_learned_are_left_out_of_a_fit(study):
    some = list(points(study, 0.2, 1e-12))
    some[-1]["at_start"] = 1.9 * some[-1]["mean"]
    (fit,) = study.fits_of(some, "linear p")
    assert fit["points"] == 3 and fit["of"] == 4


def test_a_point_of_a_study_is_measured_with_both_algorithms(study):
    cell = study.Cell(study.Linear(3, 4), 64, "2", 4)
    small = study.Study("linear n", "n", {64: cell}, (study.RR, study.NORMAL, study.FULL), repeats=2)
    found = {point["method"]: point for point in study.measured(small, 64)}
    assert set(found) == set(small.methods)
    for point in found.values():
        assert point["repeats"] == len(point["excess"]) == 2 and point["steps"] == 16
        assert all(0 <= excess <= 2 * point["at_start"] for excess in point["excess"])
        assert point["mean"] < point["bound"]
