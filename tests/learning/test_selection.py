"""Choosing on noisy hold-outs: the better one, for free, and never on rows that were trained on."""

from __future__ import annotations

import numpy as np
import pytest

import labeldp as ldp
from labeldp.learning import Filtered, select
from labeldp.metrics import accuracy, log_likelihood

N, K = 2_000, 3
LABELS = np.random.default_rng(0).integers(K, size=N)
X = np.eye(K)[LABELS]
TRAINED, HELD = np.arange(0, 1_000), np.arange(1_000, N)


class Fixed:
    """Predicts the right class with a given chance, whatever it is fitted to."""

    learns_from = "labels"

    def __init__(self, chance):
        self.chance = chance
        self.given = None

    def fit(self, X, releases, **_):
        self.given = releases
        return self

    def predict_proba(self, X):
        return X * self.chance + (1 - X) * (1 - self.chance) / (K - 1)


def vault_and_releases(mechanism=None):
    vault = ldp.LabelVault(LABELS, classes=K, budget="4", trust="curator")
    hold_out = vault.release(ldp.RandomizedResponse("1"), HELD)
    return vault, vault.release(mechanism or ldp.RRWithPrior("1"), TRAINED), hold_out


def test_the_better_learner_is_chosen_and_nothing_is_spent():
    """The two differ by 0.2 nats a row, ten standard errors and more of the mean of 1,000 rows."""
    vault, release, hold_out = vault_and_releases()
    before = vault.spent(), len(vault.certificate()["queries"])
    candidates = {"bad": Fixed(0.1), "good": Fixed(0.9), "middling": Fixed(0.5)}
    choice = select(candidates, X, release, hold_out)
    assert choice.name == "good" and choice.learner is candidates["good"]
    assert (vault.spent(), len(vault.certificate()["queries"])) == before
    for name, learner in candidates.items():
        assert learner.given == [release]
        predicted = learner.predict_proba(X[HELD])
        assert choice.accuracy[name] == accuracy(hold_out, predicted)
        assert choice.log_likelihood[name] == log_likelihood(hold_out, predicted)
    assert choice.log_likelihood["good"].value > choice.log_likelihood["middling"].value


def test_several_releases_are_all_learned_from():
    _, release, hold_out = vault_and_releases()
    candidates = {"only": Fixed(0.9)}
    choice = select(candidates, X, [release, release], hold_out)
    assert choice.name == "only" and candidates["only"].given == [release, release]


def test_rows_that_were_trained_on_grade_nobody():
    vault, release, hold_out = vault_and_releases()
    overlapping = vault.release(ldp.RRWithPrior("1"), np.arange(999, 1_001))
    counted = vault.histogram(np.zeros(2, dtype=int), "1", rows=[0, 1_500])
    for given in (
        overlapping,
        [release, overlapping],
        Filtered(overlapping, np.zeros(2, dtype=bool)),
        counted,
        hold_out,
    ):
        candidates = {"a": Fixed(0.9)}
        with pytest.raises(ldp.InvalidArgument, match="in none of the releases"):
            select(candidates, X, given, hold_out)
        assert candidates["a"].given is None


@pytest.mark.parametrize("mechanism", [ldp.RRWithPrior("1"), ldp.GroupedResponse("1"), ldp.RRTopK("1", k=2)])
def test_hold_outs_are_plain_randomized_response(mechanism):
    vault, release, _ = vault_and_releases()
    hold_out = vault.release(mechanism, HELD, priors=[0.5, 0.3, 0.2])
    with pytest.raises(ldp.InvalidArgument, match="released by RandomizedResponse"):
        select({"a": Fixed(0.9)}, X, release, hold_out)


def test_labels_are_no_hold_out_and_nobody_is_no_candidate():
    _, release, hold_out = vault_and_releases()
    with pytest.raises(ldp.InvalidArgument, match="released by RandomizedResponse"):
        select({"a": Fixed(0.9)}, X, release, LABELS[HELD])
    with pytest.raises(ldp.InvalidArgument, match="at least one learner"):
        select({}, X, release, hold_out)
