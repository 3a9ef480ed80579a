"""What neither convex algorithm takes: sizes beyond double precision, losses that do not keep their word. None is charged."""

from __future__ import annotations

import math

import numpy as np
import pytest

import labeldp as ldp
from labeldp import convex
from labeldp.budget import Guarantee
from labeldp.convex import Absolute, Ball, Box, GivenLoss, Hinge, Logistic, Loss, Simplex, Softmax, Squared, bounds
from labeldp.convex.watched import KNOWN, Watched, watched
from labeldp.errors import InvalidArgument

N, K = 40, 3
X = np.eye(K)[np.arange(N) % K]
LABELS = np.arange(N) // 5 % K


def vault_of():
    return ldp.LabelVault(LABELS, classes=K, budget="4", delta="1e-3")


def lp_rr_sgd(vault, loss, space, **options):
    return convex.lp_rr_sgd(options.pop("X", X), vault, loss, space, "1", **options)


def lp_normal_sgd(vault, loss, space, **options):
    return convex.lp_normal_sgd(options.pop("X", X), vault, loss, space, "1", "1e-6", **options)


both = pytest.mark.parametrize("algorithm", [lp_rr_sgd, lp_normal_sgd])


def flat(L):
    return GivenLoss(lambda _, x: np.zeros((len(x), K, 2)), 2, K, L)


class Says(Softmax):
    """Softmax that says another Lipschitz constant."""

    def __init__(self, said):
        super().__init__(K, 1.0)
        object.__setattr__(self, "said", said)

    def lipschitz(self, parameter_set, dimension):
        return self.said() if callable(self.said) else self.said


class SaysOfHinge(Hinge):
    def lipschitz(self, parameter_set, dimension):
        return 1e-3


class Own(Loss):
    """A loss by its slopes: that of class y is `slopes(w)[y]` in every row."""

    n_classes = K

    def __init__(self, slopes, L=1.0):
        self.slopes, self.L, self.n_asked = slopes, L, 0

    def dimension(self, X):
        return 2

    def lipschitz(self, parameter_set, dimension):
        return self.L

    def range(self, parameter_set, dimension):
        return 0.0, 1.0

    def check(self, X, w):
        pass

    def values(self, w, X):
        raise AssertionError("nobody asked for values")

    def gradients(self, w, X):
        self.n_asked += len(X)
        return np.broadcast_to(self.slopes(w), (len(X), K, 2))


class OneTooMany(Own):
    def gradients(self, w, X):
        return np.zeros((len(X), K, 3))


def fixed(size):
    return lambda _: np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]]) * size


SOFTMAX, BALL = Softmax(K, 1.0), Ball(1.0)
SIZES = {
    "values of 1e160": (lambda: (Squared([0, 1, 1e160], 1.0), BALL), "lipschitz must be between"),
    "values of 1e300, squared": (lambda: (Squared([0, 1, 1e300], 1e10), BALL), "lipschitz must be finite"),
    "a constant of 1e200": (lambda: (flat(1e200), BALL), "lipschitz must be between"),
    "a constant of 1e-200": (lambda: (flat(1e-200), BALL), "lipschitz must be between"),
    "tiny rows": (lambda: (Softmax(K, 1e-200), BALL), "lipschitz must be between"),
    "a ball of 1e308": (lambda: (SOFTMAX, Ball(1e308)), "diameter must be finite"),
    "a ball of 1e200": (lambda: (SOFTMAX, Ball(1e200)), "must be between"),
    "a ball of 5e-324": (lambda: (SOFTMAX, Ball(5e-324)), "must be between"),
    "a ball far away": (lambda: (SOFTMAX, Ball(1.0, centre=1e300)), "largest_norm must be"),
    "a box of 1e308": (lambda: (SOFTMAX, Box(-1e308, 1e308)), "must be finite"),
    "a box far away": (lambda: (SOFTMAX, Box(1e308, 1.5e308)), "must be"),
    "a simplex of 1e200": (lambda: (SOFTMAX, Simplex(1e200)), "must be between"),
    "says nan": (lambda: (Says(math.nan), BALL), "lipschitz must be finite"),
    "says infinity": (lambda: (Says(math.inf), BALL), "lipschitz must be finite"),
    "says 0": (lambda: (Says(0.0), BALL), "lipschitz must be > 0"),
    "says text": (lambda: (Says("1"), BALL), "lipschitz must be a number"),
    "overflows": (lambda: (Says(lambda: 1e200**2), BALL), "numbers of double precision"),
    "divides by 0": (lambda: (Says(lambda: 1 / 0.0), BALL), "numbers of double precision"),
    "lies": (lambda: (Says(1e-3), BALL), r"at most lipschitz\(\)=0.001 long"),
    "lies of hinge": (lambda: (SaysOfHinge(K, 1.0), BALL), r"at most lipschitz\(\)=0.001 long, got 1.41421"),
    "own, too long": (lambda: (Own(fixed(1.001)), BALL), r"at most lipschitz\(\)=1 long, got 1.001"),
    "own, nan": (lambda: (Own(fixed(math.nan)), BALL), "gradients must return finite numbers"),
    "own, other shape": (
        lambda: (OneTooMany(fixed(1.0)), BALL),
        r"gradients must return numbers of shape \(40, 3, 2\)",
    ),
}


@both
@pytest.mark.parametrize("problem", SIZES)
def test_what_leaves_double_precision_or_does_not_keep_its_word_is_refused_before_the_charge(problem, algorithm):
    make, said = SIZES[problem]
    loss, space = make()
    rows = X * min(1.0, getattr(loss, "norm_bound", 1.0))
    vault = vault_of()
    with pytest.raises(InvalidArgument, match=said):
        algorithm(vault, loss, space, X=rows)
    assert vault.spent() == Guarantee(0)


@both
def test_the_error_of_a_callers_own_loss_is_the_callers_and_comes_before_the_charge(algorithm):
    def fail():
        raise LookupError("mine")

    vault = vault_of()
    with pytest.raises(LookupError, match="mine"):
        algorithm(vault, Says(fail), BALL)
    assert vault.spent() == Guarantee(0)


@both
@pytest.mark.parametrize(("scale", "radius"), [(1e-30, 1.0), (1e30, 1.0), (1.0, 1e-60), (1.0, 1e60), (1e30, 1e60)])
def test_large_and_small_problems_within_double_precision_are_solved_and_have_a_bound(scale, radius, algorithm):
    fit = algorithm(vault_of(), Softmax(K, scale), Ball(radius), X=X * scale)
    assert np.isfinite(fit.weights).all() and 0 < fit.bound() < math.inf
    assert fit.bound() == pytest.approx(algorithm(vault_of(), SOFTMAX, BALL).bound() * scale * radius, rel=1e-6)


def test_class_values_that_are_all_equal_leave_nothing_to_ask():
    vault = vault_of()
    with pytest.raises(InvalidArgument, match="all class values are equal"):
        lp_normal_sgd(vault, Squared([1, 1, 1], 1.0), BALL)
    assert vault.spent() == Guarantee(0)


# ---- own losses ------------------------------------------------------------------------------------------------------


@both
def test_an_own_loss_that_keeps_its_word_is_the_given_loss_of_the_same_gradients(algorithm):
    def slopes(w):
        return fixed(0.9)(w) * np.cos(w)

    own = Own(slopes)
    given = GivenLoss(lambda w, x: np.broadcast_to(slopes(w), (len(x), K, 2)), 2, K, 1.0)
    fits = [
        algorithm(
            ldp.LabelVault(LABELS, classes=K, budget="4", delta="1e-3", bits=ldp.InsecureBits(seed=5)), loss, BALL
        )
        for loss in (own, given)
    ]
    assert (fits[0].weights == fits[1].weights).all() and fits[0].bound() == fits[1].bound()
    assert own.n_asked == 2 * N, "once at the starting point, once in the pass"


@both
def test_an_own_loss_that_breaks_its_word_during_the_pass_stops_it(algorithm):
    vault = vault_of()
    with pytest.raises(InvalidArgument, match=r"at most lipschitz\(\)=1 long, got 7"):
        algorithm(vault, Own(lambda w: fixed(7.0 if w.any() else 1.0)(w)), BALL)
    assert str(vault.spent()).startswith("epsilon 1"), "the rows were charged before"


@both
def test_a_subclass_that_keeps_its_word_finds_what_its_parent_finds_up_to_its_larger_noise(algorithm):
    fit = algorithm(vault_of(), Says(math.sqrt(2)), BALL)
    assert fit.lipschitz == math.sqrt(2) and fit.bound() >= algorithm(vault_of(), SOFTMAX, BALL).bound() * (1 - 1e-9)


def test_only_losses_whose_constants_are_known_are_not_watched():
    losses = [SOFTMAX, Hinge(K, 1.0), Logistic(1.0), Squared([0, 1], 1.0), Absolute([0, 1], 1.0), flat(1.0)]
    assert {type(loss) for loss in losses} == set(KNOWN)
    assert all(watched(loss, 1.0) is loss for loss in losses)
    for loss in (Says(1.0), SaysOfHinge(K, 1.0), Own(fixed(1.0))):
        assert isinstance(watched(loss, 1.0), Watched)


def test_a_long_batch_of_gradients_is_summed_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    loss = GivenLoss(lambda _, x: np.tile(x[:, None, :2], (1, K, 1)), 2, K, 1.0)
    weights = rng.normal(size=(N, K))
    whole = loss.gradient(np.zeros(2), X, weights)
    monkeypatch.setattr("labeldp.convex.losses.CELLS", 30)
    assert loss.gradient(np.zeros(2), X, weights) == pytest.approx(whole, abs=1e-12)


# ---- arguments -------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("average", ["no", 0, None, [True]])
def test_average_is_true_or_false(average, algorithm):
    vault = vault_of()
    with pytest.raises(InvalidArgument, match="average must be True or False"):
        algorithm(vault, SOFTMAX, BALL, average=average)
    assert vault.spent() == Guarantee(0)


@both
def test_masked_features_are_refused(algorithm):
    vault = vault_of()
    with pytest.raises(InvalidArgument, match="must not be a masked array"):
        algorithm(vault, SOFTMAX, BALL, X=np.ma.array(X, mask=X > 0.5))
    assert vault.spent() == Guarantee(0)


def test_a_sensitivity_beyond_twice_the_lipschitz_constant_is_no_sensitivity():
    sizes = {"diameter": 2.0, "lipschitz": 0.1}
    assert bounds.lp_normal_sgd(100, K, "1", "1e-6", sensitivity=0.2, **sizes) > 0
    with pytest.raises(InvalidArgument, match=r"at most 2 lipschitz = 0\.2, got 0\.3"):
        bounds.lp_normal_sgd(100, K, "1", "1e-6", sensitivity=0.3, **sizes)


@pytest.mark.parametrize("sizes", [{"diameter": 1e200, "moment": 1.0}, {"diameter": 1.0, "moment": 1e-200}])
def test_a_bound_beyond_double_precision_is_refused(sizes):
    for bound in (bounds.last_iterate, bounds.average_iterate):
        with pytest.raises(InvalidArgument, match="must be between"):
            bound(10, **sizes)
