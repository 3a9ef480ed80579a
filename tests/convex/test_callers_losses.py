"""A loss that the caller wrote: it cannot write to what it reads, and when it fails, the error says what was paid."""

from __future__ import annotations

import math

import numpy as np
import pytest

import labeldp as ldp
from labeldp import convex
from labeldp.budget import Guarantee
from labeldp.convex import Ball, DebiasedRisk, GivenLoss, Logistic, Loss, Softmax, debiased_erm, sgd_on_release
from labeldp.convex.watched import LINEAR
from labeldp.errors import InvalidArgument

N, K, BALL = 40, 2, Ball(2.0)
LABELS = np.arange(N) % K


def features():
    X = np.random.default_rng(0).normal(size=(N, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def vault_of():
    return ldp.LabelVault(LABELS, classes=K, budget="4", delta="1e-3")


def lp_rr_sgd(vault, X, loss, **options):
    return convex.lp_rr_sgd(X, vault, loss, BALL, "1", **options)


def lp_normal_sgd(vault, X, loss, **options):
    return convex.lp_normal_sgd(X, vault, loss, BALL, "1", "1e-6", **options)


both = pytest.mark.parametrize("algorithm", [lp_rr_sgd, lp_normal_sgd])


def gradients(w, X):
    return Logistic(1.0).gradients(w, X)


def values(w, X):
    return Logistic(1.0).values(w, X)


def given_loss(class_gradients=gradients, class_values=values, **limits):
    return GivenLoss(class_gradients, 3, K, 1.0, class_values=class_values, **limits)


class Own(Loss):
    """Logistic loss of a caller's own class, with something done to w and rows first."""

    n_classes = K

    def __init__(self, before):
        self.before = before

    def dimension(self, X):
        return X.shape[1]

    def lipschitz(self, parameter_set, dimension):
        return 1.0

    def range(self, parameter_set, dimension):
        return 0.0, 3.0

    def check(self, X, w):
        pass

    def values(self, w, X):
        self.before(w, X)
        return values(w, X)

    def gradients(self, w, X):
        self.before(w, X)
        return gradients(w, X)


class ChecksBy(Own):
    def check(self, X, w):
        self.before(w, X)

    def gradients(self, w, X):
        return gradients(w, X)


def made_given(before):
    def first(what):
        def function(w, X):
            before(w, X)
            return what(w, X)

        return function

    return given_loss(first(gradients), first(values))


def write_to_w(w, X):
    w[:] = 100.0


def write_to_rows(w, X):
    X *= 0.5


writing = pytest.mark.parametrize("before", [write_to_w, write_to_rows])
own_loss = pytest.mark.parametrize("make", [made_given, Own])

# ---- it reads --------------------------------------------------------------------------------------------------------


@both
@writing
@pytest.mark.parametrize("make", [made_given, Own, ChecksBy])
@pytest.mark.parametrize("rows", [None, [1, 2, 5]])
def test_a_loss_that_writes_to_what_it_is_given_is_stopped_before_the_charge(algorithm, before, make, rows):
    X, vault = features(), vault_of()
    with pytest.raises(ValueError, match="read-only"):
        algorithm(vault, X, make(before), average=True, rows=rows)
    assert vault.spent() == Guarantee(0) and (features() == X).all() and X.flags.writeable


@both
@own_loss
def test_a_loss_that_writes_only_later_changes_nothing_but_its_own_pass(algorithm, make):
    def later(w, X):
        if w.any():
            write_to_rows(w, X)

    X = features()
    order = np.random.default_rng(1).permutation(N)
    with pytest.raises(ValueError, match="read-only"):
        algorithm(vault_of(), X, make(later), order=order, start=None)
    assert (features() == X).all()


@writing
@own_loss
def test_the_debiased_risk_is_not_written_to_either(before, make):
    release = vault_of().release(ldp.RandomizedResponse("1"))
    X, w = features(), np.zeros(3)
    with pytest.raises(ValueError, match="read-only"):
        DebiasedRisk(X, release, make(before), BALL).value(w)
    with pytest.raises(ValueError, match="read-only"):
        debiased_erm(X, release, make(before), BALL)
    assert (features() == X).all() and not w.any()


def test_the_debiased_risk_keeps_the_rows_it_was_given():
    X, release = features(), vault_of().release(ldp.RandomizedResponse("1"))
    risk = DebiasedRisk(X, release, Logistic(1.0), BALL)
    before = risk.value(np.ones(3))
    X[:] = 0.0
    assert risk.value(np.ones(3)) == before


# ---- rows ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("loss", [given_loss(lambda w, X: gradients(w, np.nan_to_num(X, posinf=0.0))), Logistic(1.0)])
def test_rows_that_are_not_finite_are_refused_before_the_charge_whatever_the_loss(algorithm, bad, loss):
    X, vault = features(), vault_of()
    X[3, 2] = X[7, 0] = bad
    with pytest.raises(InvalidArgument, match=r"X must be finite; 2 of its 40 rows are not \(first: row 3\)"):
        algorithm(vault, X, loss)
    with pytest.raises(InvalidArgument, match=r"X must be finite; 1 of its 3 rows are not \(first: row 7\)"):
        algorithm(vault, X, loss, rows=[4, 7, 9])
    assert vault.spent() == Guarantee(0)
    algorithm(vault, X, loss, rows=np.arange(8, N))


@both
@pytest.mark.parametrize("kind", [Logistic, type("OfMine", (Logistic,), {})])
def test_the_first_row_that_is_too_long_is_named_by_its_number_in_x(algorithm, kind):
    X, vault = features(), vault_of()
    X[[7, 11]] *= 1.5
    with pytest.raises(InvalidArgument, match=r"2 of 37 are longer \(first: row 7\), up to 1\.5"):
        algorithm(vault, X, kind(1.0), rows=np.arange(3, N))
    assert vault.spent() == Guarantee(0)


def test_rows_are_checked_in_parts(monkeypatch):
    monkeypatch.setattr("labeldp.convex.given.CELLS", 12)
    X = features()
    X[30, 1] = math.nan
    for loss in (given_loss(), Logistic(1.0)):
        with pytest.raises(InvalidArgument, match=r"1 of its 40 rows are not \(first: row 30\)"):
            lp_rr_sgd(vault_of(), X, loss)


def test_the_debiased_risk_checks_rows_by_the_same_rule():
    X, release = features(), vault_of().release(ldp.RandomizedResponse("1"), rows=[2, 5, 9])
    X[0], X[5] = math.nan, math.inf
    for loss in (given_loss(), Logistic(1.0)):
        with pytest.raises(InvalidArgument, match=r"1 of its 3 rows are not \(first: row 5\)"):
            DebiasedRisk(X, release, loss, BALL)


def test_a_subclass_of_a_known_loss_is_asked_for_its_own_check():
    class Picky(Softmax):
        def check(self, X, w):
            raise LookupError("mine")

    release = vault_of().release(ldp.RandomizedResponse("1"))
    assert Picky not in LINEAR
    with pytest.raises(LookupError, match="mine"):
        DebiasedRisk(features(), release, Picky(K, 1.0), BALL)


@both
def test_sparse_features_are_to_be_made_dense(algorithm):
    sparse = pytest.importorskip("scipy.sparse")
    vault = vault_of()
    with pytest.raises(InvalidArgument, match=r"scipy sparse matrix: give X\.toarray\(\)"):
        algorithm(vault, sparse.csr_matrix(features()), Logistic(1.0))
    assert vault.spent() == Guarantee(0)


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"lowest": 0.0, "highest": 0.5}, {"lowest": 0.7, "highest": 9.0}, {"highest": 0.5}])
def test_values_beyond_the_declared_limits_are_refused_where_they_are_looked_at(limits):
    release = vault_of().release(ldp.RandomizedResponse("1"))
    loss = given_loss(**limits)
    with pytest.raises(
        InvalidArgument, match=r"class_values must be from lowest=.*got 0\.693147 to 0\.693147\. Declare"
    ):
        DebiasedRisk(features(), release, loss, BALL).value(np.zeros(3))
    with pytest.raises(InvalidArgument, match="class_values must be from lowest="):
        debiased_erm(features(), release, loss, BALL)


def test_values_at_their_limits_are_within_them_and_half_a_limit_is_one():
    for limits in ({"lowest": math.log(2), "highest": 9.0}, {"lowest": 0, "highest": math.log(2)}, {"lowest": 0}):
        loss = given_loss(**limits)
        assert (loss.values(np.zeros(3), features()) == math.log(2)).all()


# ---- failures in the middle ------------------------------------------------------------------------------------------


def long_later(w, X):
    return gradients(w, X) * (7 if w.any() else 1)


def fail_later(w, X):
    if w.any():
        raise LookupError("mine")
    return gradients(w, X)


def interrupt_later(w, X):
    if w.any():
        raise KeyboardInterrupt
    return gradients(w, X)


def said(algorithm, class_gradients, **options):
    vault = vault_of()
    with pytest.raises((InvalidArgument, LookupError, KeyboardInterrupt)) as failed:
        algorithm(vault, features(), given_loss(class_gradients), **options)
    assert str(vault.spent()).startswith("epsilon 1"), "the rows were charged before"
    return failed.type, " ".join([str(failed.value), *getattr(failed.value, "__notes__", [])])


@both
@pytest.mark.parametrize(
    ("fails", "kind", "own_words"),
    [
        (long_later, InvalidArgument, "class_gradients must be at most lipschitz_constant=1 long, got"),
        (fail_later, LookupError, "mine"),
        (interrupt_later, KeyboardInterrupt, ""),
    ],
)
def test_a_pass_that_fails_says_that_its_labels_were_charged(algorithm, fails, kind, own_words):
    found, words = said(algorithm, fails)
    assert found is kind and words.startswith(own_words) and "The labels were charged before the pass" in words
    assert words.count("charged before the pass") == 1


def test_a_named_release_is_had_again_without_paying():
    assert "name='mine' returns the same release" in said(lp_rr_sgd, long_later, name="mine")[1]
    vault = vault_of()
    with pytest.raises(InvalidArgument):
        lp_rr_sgd(vault, features(), given_loss(long_later), name="mine")
    lp_rr_sgd(vault, features(), given_loss(), name="mine")
    assert str(vault.spent()) == "epsilon 1"


def test_without_a_name_it_says_how_to_keep_the_next_one():
    words = said(lp_rr_sgd, long_later)[1]
    assert "asking again is charged again" in words and "sgd_on_release" in words
    assert "another pass over these rows is another charge" in said(lp_normal_sgd, long_later)[1]


def test_a_pass_on_a_release_has_nothing_to_say_of_charges():
    release = vault_of().release(ldp.RandomizedResponse("1"))
    with pytest.raises(InvalidArgument) as failed:
        sgd_on_release(features(), release, given_loss(long_later), BALL)
    assert "charged" not in str(failed.value)
