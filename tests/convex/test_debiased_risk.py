"""The debiased loss of Appendix G: its mean, constant and range by enumeration; its minimiser against a solver's."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

import labeldp as ldp
from labeldp import convex
from labeldp.convex import (
    Absolute,
    Ball,
    Box,
    DebiasedRisk,
    GivenLoss,
    Hinge,
    Logistic,
    Simplex,
    Softmax,
    Squared,
    debiased_erm,
)
from labeldp.errors import InvalidArgument
from labeldp.randomness import InsecureBits

K, SPACE = 3, Ball(1.5)
LOSSES = [Softmax(K, 1.0), Hinge(K, 1.0), Squared([1, 2, 4], 1.0), Absolute([1, 2, 4], 1.0)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def problem(n_rows, seed=0, epsilon="1", k=None, n_classes=K):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    labels = rng.integers(n_classes, size=n_rows)
    vault = ldp.LabelVault(labels, classes=n_classes, budget="20", bits=InsecureBits(seed))
    mechanism = ldp.RandomizedResponse(epsilon) if k is None else ldp.RRTopK(epsilon, k)
    priors = None if k is None else rng.dirichlet(np.ones(n_classes), size=n_rows)
    return X, labels, vault.release(mechanism, priors=priors), rng


@each_loss
@pytest.mark.parametrize("k", [None, 2])
def test_a_term_is_equation_ell_tilde(loss, k):
    X, _, release, rng = problem(30, epsilon="0.7", k=k)
    risk = DebiasedRisk(X, release, loss, SPACE)
    w = SPACE.project(rng.normal(size=risk.dimension))
    size = k or K
    p = 1 / (math.exp(0.7) + size - 1)
    inside = release.groups.assignment(np.arange(30)) >= 0
    values = loss.values(w, X)
    own = values[np.arange(30), release.label_numbers]
    expected = (own - p * (values * inside).sum(axis=1)) / (1 - size * p)
    assert risk.terms(w) == pytest.approx(expected, rel=1e-6)
    assert risk.value(w) == pytest.approx(expected.mean(), rel=1e-6)


@each_loss
def test_its_mean_over_all_reports_is_the_risk_of_the_true_labels(loss):
    """Two rows, all nine reports, with their exact chances."""
    X, labels, release, rng = problem(2, epsilon="0.5")
    w = SPACE.project(rng.normal(size=loss.dimension(X)))
    laws = [ldp.RandomizedResponse("0.5").law(int(label), [1 / 3] * 3) for label in labels]
    mean = gradient = 0.0
    for reports in itertools.product(range(K), repeat=2):
        chance = float(laws[0][reports[0]] * laws[1][reports[1]])
        outcome = type(release)(
            np.array(reports, dtype=np.uint8), release.rows, release.classes, release.channel, None, release.receipt
        )
        risk = DebiasedRisk(X, outcome, loss, SPACE)
        mean += chance * risk.value(w)
        gradient += chance * risk.gradient(w)
    assert mean == pytest.approx(loss.values(w, X)[[0, 1], labels].mean())
    assert gradient == pytest.approx(loss.gradients(w, X)[[0, 1], labels].mean(axis=0), abs=1e-9)


@each_loss
def test_its_gradient_is_its_slope(loss):
    X, _, release, rng = problem(40)
    risk = DebiasedRisk(X, release, loss, SPACE)
    w = SPACE.project(rng.normal(size=risk.dimension))
    slopes = [(risk.value(w + step) - risk.value(w - step)) / 2e-6 for step in np.eye(len(w)) * 1e-6]
    assert risk.gradient(w) == pytest.approx(slopes, abs=1e-5)


@each_loss
@pytest.mark.parametrize("k", [None, 2])
def test_its_terms_stay_in_their_range_and_within_their_lipschitz_constant(loss, k):
    X, _, release, rng = problem(200, epsilon="0.3", k=k)
    risk = DebiasedRisk(X, release, loss, SPACE)
    low, high = risk.range
    for _ in range(20):
        a, b = SPACE.project(rng.normal(size=(2, risk.dimension)) * 2)
        assert low <= risk.terms(a).min() and risk.terms(a).max() <= high
        change = np.abs(risk.terms(a) - risk.terms(b)).max()
        assert change <= risk.lipschitz * np.linalg.norm(a - b) * (1 + 1e-9)


@pytest.mark.parametrize("k", [None, 2])
def test_range_and_lipschitz_constant_are_attained(k):
    """Losses of 0 and 1, gradients of +1 and -1: the reported label against all other candidates, both ways."""
    X, _, release, _ = problem(50, k=k)
    e, size = math.e, k or K
    values = np.where(np.arange(K) == release.label_numbers[:, None], 1.0, 0.0)
    for own, expected in ((values, 1 + (size - 1) / (e - 1)), (1 - values, -(size - 1) / (e - 1))):
        signs = (2 * own - 1)[:, :, None]
        loss = GivenLoss(lambda w, x, s=signs: s, 1, K, 1.0, lambda w, x, o=own: o, 0.0, 1.0)  # noqa: ARG005 - of all rows
        risk = DebiasedRisk(X, release, loss, Ball(1.0))
        assert risk.terms(np.zeros(1)) == pytest.approx(np.full(50, expected))
        assert min(abs(limit - expected) for limit in risk.range) < 1e-8
        assert abs(risk.gradient(np.zeros(1))) == pytest.approx(risk.lipschitz)
        p = 1 / (e + size - 1)
        assert risk.lipschitz == pytest.approx((1 + (size - 2) * p) / (1 - size * p))
        assert risk.lipschitz < (1 + size * p) / (1 - size * p)  # the paper's


def test_without_a_bounded_set_it_has_no_lower_limit():
    X, _, release, _ = problem(1)
    w = np.zeros((K, 3))
    w[release.label_numbers[0]] = X[0]
    lows = [DebiasedRisk(X, release, Softmax(K, 1.0), Ball(r)).value(r * w.ravel()) for r in (1.0, 10.0, 100.0, 1000.0)]
    assert lows[3] < 9 * lows[2] < 0 and lows[0] > lows[1] > lows[2]


# ---- its minimiser ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Softmax(K, 1.0), Squared([1, 2, 4], 1.0)], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("space", [Box(-0.6, 0.8), Ball(1.5), Simplex(2.0)], ids=repr)
def test_convex_risks_are_minimised_as_a_solver_does(loss, space):
    X, _, release, _ = problem(300, epsilon="2")
    found = debiased_erm(X, release, loss, space, tolerance=1e-8)
    risk = DebiasedRisk(X, release, loss, space)
    start = space.middle(risk.dimension)
    limits, between = [], None
    if isinstance(space, Ball):
        limits = [{"type": "ineq", "fun": lambda w: space.radius**2 - w @ w}]
    elif isinstance(space, Simplex):
        limits, between = [{"type": "eq", "fun": lambda w: w.sum() - space.total}], [(0, None)] * len(start)
    else:
        between = [(float(space.low), float(space.high))] * len(start)
    options = {"ftol": 1e-13, "maxiter": 1000}
    theirs = minimize(
        risk.value, start, jac=risk.gradient, bounds=between, constraints=limits, method="SLSQP", options=options
    )
    assert risk.is_convex and found.converged and space.contains(found.weights)
    assert found.risk == pytest.approx(theirs.fun, abs=1e-8)
    assert found.risk == pytest.approx(risk.value(found.weights))


def test_squared_loss_within_a_large_ball_is_least_squares_on_debiased_values():
    X, _, release, _ = problem(500, epsilon="2")
    targets = release.debiased_weights() @ np.array([1, 2, 4.0])
    expected = np.linalg.lstsq(X, targets, rcond=None)[0]
    found = debiased_erm(X, release, Squared([1, 2, 4], 1.0), Ball(50.0), tolerance=1e-12)
    assert found.weights == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("loss", [Hinge(K, 1.0), Absolute([1, 2, 4], 1.0)], ids=lambda loss: type(loss).__name__)
def test_other_risks_are_searched_and_brought_down(loss):
    X, _, release, _ = problem(200, epsilon="2")
    risk = DebiasedRisk(X, release, loss, SPACE)
    found = debiased_erm(X, release, loss, SPACE, max_steps=300)
    rng = np.random.default_rng(1)
    tried = SPACE.project(rng.normal(size=(500, risk.dimension)))
    assert not risk.is_convex and SPACE.contains(found.weights)
    assert found.risk == pytest.approx(risk.value(found.weights))
    assert found.risk < min(risk.value(w) for w in tried)


def test_on_true_labels_it_is_plain_risk_minimisation():
    X, labels, _, _ = problem(200)
    release = ldp.LabelVault.unprotected(labels, classes=K)
    risk = DebiasedRisk(X, release, Hinge(K, 1.0), SPACE)
    assert risk.is_convex and risk.range == Hinge(K, 1.0).range(SPACE, 9) and risk.lipschitz == math.sqrt(2)
    assert risk.value(np.zeros(9)) == 1.0


def test_it_learns():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20_000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    truth = np.array([3.0, -2.0, 1.0])
    labels = (rng.random(20_000) < 1 / (1 + np.exp(-X @ truth))).astype(int)
    release = ldp.LabelVault(labels, classes=2, budget="2", bits=InsecureBits(1)).release(ldp.RandomizedResponse("2"))
    found = debiased_erm(X, release, Logistic(1.0), Ball(5.0))
    assert found.converged and found.weights == pytest.approx(truth, abs=0.4)


def test_a_run_that_is_cut_short_says_so():
    X, _, release, _ = problem(300, epsilon="2")
    found = debiased_erm(X, release, Softmax(K, 1.0), Ball(1.5), max_steps=2, tolerance=1e-12)
    assert not found.converged and found.n_steps == 2 and found.residual > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loss": Softmax(4, 1.0)}, "for the 3 classes of the release"),
        ({"loss": Softmax(3, 0.5)}, "at most norm_bound=0.5"),
        ({"X": np.ones((5, 3))}, "it has 5, too few for the release"),
        ({"X": [["a"]]}, "X must be numbers"),
        ({"release": [0, 1, 2]}, "release must be noisy labels"),
        ({"start": np.full(9, 9.0)}, "start must lie in the parameter set"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"tolerance": 0}, "tolerance must be > 0"),
        ({"parameter_set": Ball(1.0, centre=[0.0, 0.0])}, r"one entry per parameter \(9\)"),
    ],
)
def test_bad_input_is_refused(change, said):
    X, _, release, _ = problem(20)
    given = {"X": X, "release": release, "loss": Softmax(K, 1.0), "parameter_set": SPACE} | change
    with pytest.raises(InvalidArgument, match=said):
        convex.debiased_erm(**given)
