"""Losses: gradients against differences of values, closed forms against tables, constants against what random points show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.convex import Absolute, Ball, Box, GivenLoss, Hinge, Logistic, Softmax, Squared
from labeldp.errors import InvalidArgument

BOUND = 1.5
LOSSES = [
    Softmax(n_classes=4, norm_bound=BOUND),
    Hinge(n_classes=4, norm_bound=BOUND),
    Hinge(n_classes=2, norm_bound=BOUND),
    Logistic(norm_bound=BOUND),
    Squared(class_values=[1, 2, 3, 4, 5], norm_bound=BOUND),
    Absolute(class_values=[1, 2, 3, 4, 5], norm_bound=BOUND),
]
SPACE = Ball(radius=2.0)
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{type(loss).__name__}{loss.n_classes}")


def problem(loss, seed, rows=7):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    X *= BOUND * rng.uniform(0.3, 1, size=(rows, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
    w = SPACE.project(rng.normal(size=loss.dimension(X)) * 2)
    return X, w, rng


@each_loss
def test_gradients_are_the_slopes_of_the_values(loss):
    X, w, _ = problem(loss, 1)
    table = loss.gradients(w, X)
    for j, step in enumerate(np.eye(len(w)) * 1e-6):
        slope = (loss.values(w + step, X) - loss.values(w - step, X)) / 2e-6
        assert table[..., j] == pytest.approx(slope, abs=1e-5)


@each_loss
@given(seed=st.integers(0, 2**32 - 1))
def test_the_closed_form_is_the_weighted_mean_of_the_table(loss, seed):
    """For weights of either sign that need not sum to 1."""
    X, w, rng = problem(loss, seed)
    weights = rng.normal(size=(len(X), loss.n_classes)) * 3
    naive = sum(weights[i] @ loss.gradients(w, X)[i] for i in range(len(X))) / len(X)
    assert loss.gradient(w, X, weights) == pytest.approx(naive, abs=1e-10)


@each_loss
@given(seed=st.integers(0, 2**32 - 1))
def test_no_gradient_is_longer_and_no_value_larger_than_the_loss_says(loss, seed):
    X, w, _ = problem(loss, seed)
    longest = np.linalg.norm(loss.gradients(w, X), axis=-1).max()
    assert longest <= loss.lipschitz(SPACE, len(w)) * (1 + 1e-12)
    low, high = loss.range(SPACE, len(w))
    assert low <= loss.values(w, X).min() and loss.values(w, X).max() <= high


@each_loss
@given(seed=st.integers(0, 2**32 - 1), t=st.floats(0, 1))
def test_every_class_has_a_convex_loss(loss, seed, t):
    X, a, rng = problem(loss, seed)
    b = SPACE.project(rng.normal(size=len(a)) * 2)
    between = t * loss.values(a, X) + (1 - t) * loss.values(b, X)
    assert (loss.values(t * a + (1 - t) * b, X) <= between + 1e-9).all()


@pytest.mark.parametrize(
    "loss", [loss for loss in LOSSES if loss.label_is_linear], ids=lambda loss: type(loss).__name__
)
@given(seed=st.integers(0, 2**32 - 1), t=st.floats(0, 1))
def test_a_loss_whose_label_is_linear_stays_convex_under_weights_that_sum_to_1(loss, seed, t):
    X, a, rng = problem(loss, seed)
    b = SPACE.project(rng.normal(size=len(a)) * 2)
    weights = rng.normal(size=(len(X), loss.n_classes)) * 5
    weights[:, 0] += 1 - weights.sum(axis=1)
    at_a, at_b, at_mean = ((weights * loss.values(w, X)).sum(axis=1) for w in (a, b, t * a + (1 - t) * b))
    assert (at_mean <= t * at_a + (1 - t) * at_b + 1e-8).all()


def test_the_constants_are_attained():
    x = np.array([[BOUND, 0.0]])
    sure = np.array([50.0, 0, 0, 0])  # class 0 scores far higher; class 1 is the truth
    assert np.linalg.norm(Softmax(2, BOUND).gradients(sure, x)[0, 1]) == pytest.approx(math.sqrt(2) * BOUND)
    assert np.linalg.norm(Hinge(2, BOUND).gradients(sure, x)[0, 1]) == pytest.approx(math.sqrt(2) * BOUND)
    assert np.linalg.norm(Logistic(BOUND).gradients(sure[:2], x)[0, 0]) == pytest.approx(BOUND)
    w = np.array([-2.0, 0.0])
    squared = Squared([1, 5], BOUND)
    assert np.linalg.norm(squared.gradients(w, x)[0, 1]) == pytest.approx(squared.lipschitz(SPACE, 2))
    assert squared.values(w, x)[0, 1] == pytest.approx(squared.range(SPACE, 2)[1])


def test_two_classes_of_the_softmax_are_the_logistic_loss_of_the_difference():
    X, w, _ = problem(Softmax(2, BOUND), 3)
    assert Softmax(2, BOUND).values(w, X) == pytest.approx(Logistic(BOUND).values(w[3:] - w[:3], X))


def test_two_classes_of_the_hinge_are_the_binary_hinge_of_the_difference():
    X, w, _ = problem(Hinge(2, BOUND), 3)
    margin = X @ (w[3:] - w[:3])
    assert Hinge(2, BOUND).values(w, X)[:, 1] == pytest.approx(np.maximum(0, 1 - margin))


def test_large_scores_overflow_nothing():
    w, X = np.array([1e6, 0.0, -1e6, 0.0]), np.array([[1.0, 0.0]])
    loss = Softmax(2, 1.0)
    assert loss.values(w, X) == pytest.approx(np.array([[0.0, 2e6]]))
    assert np.isfinite(loss.gradients(w, X)).all()
    assert Logistic(1.0).gradients(w[:2], X)[0, :, 0] == pytest.approx([1.0, 0.0])
    assert np.isfinite(Logistic(1.0).values(w[2:], X)).all()


@each_loss
def test_rows_beyond_the_declared_bound_are_refused(loss):
    X, w, _ = problem(loss, 1)
    loss.check(X, w)
    X[2] *= 1.01 * BOUND / np.linalg.norm(X[2])
    with pytest.raises(
        InvalidArgument, match=r"at most norm_bound=1.5; 1 of 7 are longer \(first: row 2\), up to 1.515\. Scale"
    ):
        loss.check(X, w)
    X[4, 1] = math.nan
    with pytest.raises(InvalidArgument, match=r"X must be finite; 1 of its 7 rows are not \(first: row 4\)"):
        loss.check(X, w)
    with pytest.raises(InvalidArgument, match="two dimensions"):
        loss.check(X[None], w)


def test_rows_scaled_to_the_bound_in_single_precision_pass():
    X = np.random.default_rng(0).normal(size=(1000, 50)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Logistic(norm_bound=1.0).check(X, np.zeros(50))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Softmax(n_classes=1, norm_bound=1), "n_classes must be between 2 and"),
        (lambda: Hinge(n_classes=3, norm_bound=0), "norm_bound must be > 0"),
        (lambda: Logistic(norm_bound=math.nan), "norm_bound must be finite"),
        (lambda: Squared(class_values=[1], norm_bound=1), "one number per class, at least 2"),
        (lambda: Absolute(class_values=[1, math.nan], norm_bound=1), "class_values must be finite"),
        (lambda: Squared(class_values=["a", "b"], norm_bound=1), "class_values must be numbers"),
        (lambda: GivenLoss(unused, 0, 2, 1.0), "n_parameters must be at least 1"),
        (lambda: GivenLoss(unused, 1, 2, -1.0), "lipschitz_constant must be > 0"),
        (lambda: GivenLoss(5, 1, 2, 1.0), r"class_gradients must be a function of \(w, rows of X\), got int"),
        (lambda: GivenLoss(unused, 1, 2, 1.0, class_values=[1.0]), "class_values must be a function"),
        (lambda: GivenLoss(unused, 1, 2, 1.0, lowest=1, highest=1), "lowest must be below highest, got 1 and 1"),
        (lambda: GivenLoss(unused, 1, 2, 1.0, lowest=6.0, highest=0.0), "lowest must be below highest"),
        (lambda: GivenLoss(unused, 1, 2, 1.0, lowest=math.nan), "lowest must be finite"),
        (lambda: GivenLoss(unused, 1, 2, 1.0, highest="1"), "highest must be a number"),
        (lambda: GivenLoss(unused, 1, 2, 1.0, lowest=0).range(SPACE, 1), "needs the loss's limits"),
        (lambda: GivenLoss(unused, 1, 2, 1.0).range(SPACE, 1), "needs the loss's limits"),
        (lambda: GivenLoss(unused, 1, 2, 1.0).values(np.zeros(1), np.ones((1, 1))), "needs the loss's values"),
    ],
)
def test_a_loss_that_is_none_is_refused(make, said):
    with pytest.raises(InvalidArgument, match=said):
        make()


def unused(w, X):
    raise AssertionError


def given_loss(table, lipschitz=2.0):
    return GivenLoss(
        lambda w, X: table(len(X)),  # noqa: ARG005 - a gradient is a function of both
        n_parameters=2,
        n_classes=3,
        lipschitz_constant=lipschitz,
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (lambda n: np.full((n, 3, 2), 1.5), r"at most lipschitz_constant=2 long, got 2.12132\. Declare"),
        (lambda n: np.full((n, 3, 2), math.nan), "finite numbers; 24 are not"),
        (lambda n: np.ones((n, 2, 2)), r"shape \(4, 3, 2\), got float64 of shape \(4, 2, 2\)"),
        (lambda n: np.full((n, 3, 2), "a"), "must return numbers"),
    ],
)
def test_a_given_table_must_be_what_was_declared(table, said):
    with pytest.raises(InvalidArgument, match=said):
        given_loss(table).check(np.ones((4, 1)), np.zeros(2))


def test_a_given_loss_is_used_as_it_is():
    X, w, rng = problem(Softmax(4, BOUND), 2)
    own = Softmax(4, BOUND)
    given_one = GivenLoss(own.gradients, 12, 4, math.sqrt(2) * BOUND, class_values=own.values, lowest=0, highest=5)
    weights = rng.normal(size=(len(X), 4))
    assert given_one.gradient(w, X, weights) == pytest.approx(own.gradient(w, X, weights))
    assert (given_one.values(w, X) == own.values(w, X)).all() and given_one.range(SPACE, 12) == (0, 5)
    assert given_one.lipschitz(Box(0, 1), 12) == own.lipschitz(Box(0, 1), 12)
