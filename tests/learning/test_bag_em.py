"""EM on the counts of groups, with any learner."""

from __future__ import annotations

import numpy as np
import pytest
from doubles import Scripted, softmax
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.learning import Beliefs, Filtered, evidence, fit_bags
from labeldp.priors import bag_posterior, projected
from labeldp.priors.shares import noise_variance
from labeldp.sklearn import SklearnLearner

N, K, GROUPS = 1200, 2, 40
EPSILON = "2"


class OneThing(Scripted):
    """Takes one piece of evidence at a time, and notes it as it is."""

    def fit(self, X, releases, **how):
        return super().fit(X, [releases], **how)


def mixed():
    """Groups that mix two classes, in shares of their own; within a group the first feature tells them apart."""
    rng = np.random.default_rng(0)
    groups = np.arange(N) % GROUPS
    labels = (rng.random(N) < np.linspace(0.15, 0.85, GROUPS)[groups]).astype(int)
    X = np.c_[3 * (2 * labels - 1) + rng.normal(size=N), rng.normal(size=N)].astype(np.float32)
    return X, labels, groups


def curator(labels, **settings):
    return ldp.LabelVault(labels, classes=K, budget="20", trust="curator", **settings)


@pytest.fixture(scope="module")
def counted():
    X, labels, groups = mixed()
    return X, labels, curator(labels, bits=ldp.InsecureBits(0)).histogram(groups, EPSILON)


def log_likelihood(model, X, counts):
    """Of the counts, up to a constant: the sum of a group's labels and the noise, as normal laws."""
    predicted = model.predict_proba(X[counts.rows])
    total = 0.0
    for group, row in enumerate(counts.counts):
        own = predicted[counts.groups == group]
        variance = (own * (1 - own)).sum(axis=0) + noise_variance(counts)
        total -= (((row - own.sum(axis=0)) ** 2) / variance + np.log(variance)).sum() / 2
    return total


# ---------------------------------------------------------------- what the learner is given


def test_without_rounds_it_is_training_on_the_shares(counted):
    X, _, counts = counted
    learner = OneThing()
    model = fit_bags(learner, X, counts, rounds=0)
    ((given,),) = [entry["releases"] for entry in learner.journal]
    assert (given.rows == counts.rows).all() and given.shares == pytest.approx(projected(counts)[counts.groups])
    assert model.stage == 1 and learner.stage == 0, "what was given is copied, and never fitted"
    assert learner.journal[0]["start"] is None


def test_each_round_learns_what_the_model_before_and_the_counts_say(counted):
    X, _, counts = counted
    learner = OneThing()
    fit_bags(learner, X, counts, rounds=3)
    assert len(learner.journal) == 4
    for number in (1, 2, 3):
        (given,) = learner.journal[number]["releases"]
        expected = bag_posterior(softmax(number * X.astype(np.float64)), counts)
        assert isinstance(given, Beliefs) and given.shares == pytest.approx(expected, abs=1e-9)
        assert given.weights is None and learner.journal[number]["start"].stage == number


def test_reports_are_multiplied_in_from_the_first_model_on(counted):
    X, labels, counts = counted
    vault = curator(labels)
    reports = [vault.release(ldp.RandomizedResponse("1"), rows) for rows in (np.arange(0, 500), np.arange(300, 700))]
    likelihood = np.ones((N, K))
    for release in reports:
        likelihood[release.rows] *= release.likelihood()
    learner = OneThing()
    fit_bags(learner, X, counts, reports, rounds=1)
    first, second = (entry["releases"][0] for entry in learner.journal)
    joint = projected(counts)[counts.groups] * likelihood
    assert first.shares == pytest.approx(joint / joint.sum(axis=1, keepdims=True))
    assert second.shares == pytest.approx(bag_posterior(softmax(X.astype(float)) * likelihood, counts), abs=1e-9)
    alone = OneThing()
    fit_bags(alone, X, counts, reports[0], rounds=0)
    assert (
        alone.journal[0]["releases"][0].shares == evidence.posterior(reports[:1], evidence.checked(counts)).shares
    ).all()


def test_counts_of_some_rows_speak_of_these_rows(counted):
    X, labels, _ = counted
    rows = np.arange(5, N, 3)
    counts = curator(labels).histogram(rows % 7, "1", rows=rows)
    learner = OneThing()
    fit_bags(learner, X, counts, curator(labels).release(ldp.RandomizedResponse("1"), rows[10:20]), rounds=1)
    assert all((entry["releases"][0].rows == rows).all() for entry in learner.journal)


# ---------------------------------------------------------------- it helps


def test_rounds_make_the_counts_likelier_and_rows_within_a_group_told_apart(counted):
    """Seeded noise. On shares alone a model cannot be surer than a group's share; EM finds what tells its rows apart."""
    X, labels, counts = counted
    learner = SklearnLearner(LogisticRegression())
    models = [fit_bags(learner, X, counts, rounds=rounds) for rounds in (0, 1, 4)]
    likelier = [log_likelihood(model, X, counts) for model in models]
    assert likelier[0] + 5 < likelier[1] < likelier[2]
    of_true_label = [model.predict_proba(X)[np.arange(N), labels].mean() for model in models]
    assert of_true_label[2] > of_true_label[1] > of_true_label[0] and of_true_label[2] > of_true_label[0] + 0.1


def test_any_torch_module_learns_so(counted):
    import torch
    from torch import nn

    from labeldp.torch import TorchLearner

    X, labels, counts = counted
    torch.manual_seed(0)
    learner = TorchLearner(nn.Linear(2, K), epochs=4, batch_size=128, learning_rate=0.3)
    before, after = (fit_bags(learner, X, counts, rounds=rounds).predict_proba(X) for rounds in (0, 3))
    place = np.arange(N), labels
    assert after[place].mean() > before[place].mean() + 0.05
    assert learner.module_ is None


# ---------------------------------------------------------------- what is refused


def test_reports_on_rows_that_were_not_counted_are_refused(counted):
    X, labels, _ = counted
    counts = curator(labels).histogram(np.zeros(N // 2, int), "1", rows=np.arange(N // 2))
    learner = OneThing()
    with pytest.raises(ldp.InvalidArgument, match="on rows that were counted"):
        fit_bags(learner, X, counts, curator(labels).release(ldp.RandomizedResponse("1")))
    assert not learner.journal


def test_only_releases_are_learned_from(counted):
    X, labels, counts = counted
    release = curator(labels).release(ldp.RandomizedResponse("1"))
    learner = OneThing()
    made_up = Beliefs(np.arange(N), np.eye(K)[labels], release)
    for wrong in (labels, [labels], counts, made_up, [made_up], [Filtered(release, np.ones(N, bool))], None):
        with pytest.raises(ldp.InvalidArgument, match="a learner takes no labels"):
            fit_bags(learner, X, counts, wrong)
    for wrong in (labels, release, made_up, None):
        with pytest.raises(ldp.InvalidArgument, match="counts must be a histogram of a vault"):
            fit_bags(learner, X, wrong)
    with pytest.raises(ldp.InvalidArgument, match="rounds must be"):
        fit_bags(learner, X, counts, rounds=-1)
    assert not learner.journal
