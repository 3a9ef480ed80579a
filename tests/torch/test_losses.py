"""Each loss against a slow oracle that reads the exact law, row by row."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import labeldp as ldp
from labeldp.learning import Beliefs, Filtered
from labeldp.torch import TorchLearner
from labeldp.torch.losses import (
    LOSSES,
    TrainingSet,
    on_labels,
    on_likelihood,
    on_likelihood_and_beliefs,
    on_weights,
    smoothed,
)

N, K = 60, 5
SINGLE = [
    ldp.RandomizedResponse("1"),
    ldp.RRTopK("1", k=2),
    ldp.RRTopK("0.3", k=1),
    ldp.RRWithPrior("1"),
    ldp.RRWithPrior("8"),
]
EVERY = [*SINGLE, ldp.GroupedResponse("1"), ldp.GroupedResponse("0.1")]
MECHANISMS = {f"{type(m).__name__} {m.epsilon}": m for m in EVERY}


def labels():
    return np.random.default_rng(1).integers(K, size=N)


def released(mechanism, rows=None):
    """With priors that are often wrong, so that many true labels are no candidates."""
    vault = ldp.LabelVault(labels(), classes=K, budget="20", trust="curator")
    rows = np.arange(N) if rows is None else rows
    priors = np.random.default_rng(2).dirichlet(np.full(K, 0.4), size=N)[rows]
    return vault.release(mechanism, rows, priors=priors)


def counted(epsilon="2"):
    vault = ldp.LabelVault(labels(), classes=K, budget="20", trust="curator")
    return vault.histogram(np.arange(N) % 4, epsilon)


def random_logits(n=N, scale=3.0):
    return np.random.default_rng(3).normal(scale=scale, size=(n, K))


def log_softmax(row):
    top = max(row)
    total = math.log(math.fsum(math.exp(value - top) for value in row))
    return [value - top - total for value in row]


def chance_of_report(release, place, label):
    """P(report | label) from the exact law; groups left empty share one report of the law."""
    law = release.channel.law(place, label)
    groups = release.groups.assignment(np.array([place]))[0]
    members = np.flatnonzero(groups == release.reports[place]).tolist()
    if release.groups.single_labels:
        return float(law[members[0]])
    empty = int(release.groups.sizes[place]) - len(set(groups.tolist())) if not members else 1
    return float(law[frozenset(members)] / empty)


def naive(loss, row, release, place):
    logs = log_softmax(row)
    if loss == "likelihood":
        return -math.log(math.fsum(math.exp(logs[y]) * chance_of_report(release, place, y) for y in range(K)))
    reported = release.label_numbers[place]
    if loss == "noisy-label":
        return -logs[reported]
    return math.fsum(-c * log for c, log in zip(naive_debiased(release, place), logs, strict=True))


def naive_debiased(release, place):
    """Appendix G: p = 1 / (e^epsilon + k - 1), and (loss(reported) - p sum over candidates) / (1 - k p)."""
    odds, size = release.channel.odds, int(release.groups.sizes[place])
    p = 1 / (odds.keep / odds.other + size - 1)
    candidates = np.flatnonzero(release.groups.assignment(np.array([place]))[0] >= 0).tolist()
    own = int(release.label_numbers[place])
    return [((y == own) - p) / (1 - size * p) if y in candidates else 0.0 for y in range(K)]


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_its_formula_row_by_row(name, loss):
    release = released(MECHANISMS[name])
    if loss != "likelihood" and not release.groups.single_labels:
        with pytest.raises(ldp.InvalidArgument, match=r"group|debias"):
            TrainingSet.of([release], loss)
        return
    data = TrainingSet.of([release], loss)
    assert (data.rows == release.rows).all() and data.n_classes == K and len(data) == N
    logits = random_logits()
    found = data.loss(torch.from_numpy(logits), data.targets)
    expected = [naive(loss, logits[place].tolist(), release, place) for place in range(N)]
    assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)  # the targets are float32


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_likelihood_loss_is_exact_in_double_precision(name):
    release = released(MECHANISMS[name])
    logits = random_logits()
    found = on_likelihood(torch.from_numpy(logits), torch.from_numpy(np.log(release.likelihood())))
    expected = [naive("likelihood", logits[place].tolist(), release, place) for place in range(N)]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_with_true_labels_the_likelihood_loss_is_cross_entropy():
    release = ldp.LabelVault.unprotected(labels(), classes=K)
    data = TrainingSet.of([release], "likelihood")
    for scale in (1.0, 1e4):
        logits = torch.tensor(random_logits(scale=scale), dtype=torch.float32, requires_grad=True)
        ours, theirs = data.loss(logits, data.targets), on_labels(logits, torch.from_numpy(labels()))
        assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6)
        for loss in (ours, theirs):
            (gradient,) = torch.autograd.grad(loss.sum(), logits, retain_graph=True)
            assert torch.isfinite(gradient).all()
        assert torch.allclose(*(torch.autograd.grad(loss.sum(), logits)[0] for loss in (ours, theirs)), atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("with_histogram", [False, True])
@pytest.mark.parametrize("size", [1e4, 80.0, 0.0])
def test_loss_and_gradient_are_finite_however_sure_a_model_is(loss, with_histogram, size):
    """In float32, with logits of +-1e4, for labels that it holds possible and for ones that it does not."""
    rng = np.random.default_rng(4)
    for mechanism in EVERY if loss == "likelihood" else SINGLE:
        data = TrainingSet.of([released(mechanism), *([counted()] if with_histogram else [])], loss)
        for _ in range(3):
            values = rng.choice([-size, 0.0, size], size=(len(data), K))
            logits = torch.tensor(values, dtype=torch.float32, requires_grad=True)
            losses = data.loss(logits, data.targets)
            (gradient,) = torch.autograd.grad(losses.sum(), logits)
            assert torch.isfinite(losses).all() and torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_gradient_of_the_likelihood_is_the_finite_difference(name):
    release = released(MECHANISMS[name])
    logs = torch.from_numpy(np.log(release.likelihood()))[:8]
    logits = torch.from_numpy(random_logits(8)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: on_likelihood(x, logs), (logits,), eps=1e-6, atol=1e-7, rtol=1e-5)


def test_the_gradient_with_a_histogram_beside_is_the_finite_difference():
    data = TrainingSet.of([released(ldp.RRWithPrior("1")), counted()], "likelihood")
    assert data.loss is on_likelihood_and_beliefs
    chosen = torch.tensor([0, 5, N - 2, N - 1])
    targets = data.targets[chosen].double()
    logits = torch.from_numpy(random_logits(4)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: on_likelihood_and_beliefs(x, targets), (logits,), atol=1e-7, rtol=1e-5)


# ---------------------------------------------------------------- several releases


def test_two_reports_on_the_same_row_add_their_log_likelihoods():
    vault = ldp.LabelVault(labels(), classes=K, budget="20")
    priors = np.random.default_rng(7).dirichlet(np.ones(K), size=40)
    one = vault.release(ldp.GroupedResponse("1"), np.arange(40), priors=priors)
    two = vault.release(ldp.RandomizedResponse("2"), np.arange(20, 60))
    data = TrainingSet.of([one, two], "likelihood")
    assert sorted(data.rows.tolist()) == list(range(60))
    for row, logs in zip(data.rows.tolist(), data.targets.tolist(), strict=True):
        expected = np.zeros(K)
        for release in (one, two):
            for place in np.flatnonzero(release.rows == row):
                expected += [math.log(chance_of_report(release, int(place), y)) for y in range(K)]
        assert logs == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("loss", ["noisy-label", "debiased"])
def test_two_noisy_labels_of_the_same_row_are_two_examples(loss):
    vault = ldp.LabelVault(labels(), classes=K, budget="20")
    one, two = vault.release(ldp.RandomizedResponse("1")), vault.release(ldp.RandomizedResponse("2"))
    data = TrainingSet.of([one, two], loss)
    assert data.rows.tolist() == [*range(N), *range(N)]
    if loss == "noisy-label":
        assert data.targets.tolist() == [*one.label_numbers, *two.label_numbers]


@pytest.mark.parametrize("loss", ["noisy-label", "debiased"])
def test_filtered_rows_are_left_out(loss):
    release = released(ldp.RRWithPrior("1"))
    kept = np.random.default_rng(8).random(N) < 0.5
    some, all_of_it = TrainingSet.of([Filtered(release, kept)], loss), TrainingSet.of([release], loss)
    assert (some.rows == release.rows[kept]).all()
    assert torch.equal(some.targets, all_of_it.targets[torch.from_numpy(kept)])


def test_the_likelihood_of_filtered_rows_is_refused():
    filtered = Filtered(released(ldp.RRWithPrior("1")), np.ones(N, dtype=bool))
    with pytest.raises(ldp.InvalidArgument, match="biases the likelihood"):
        TrainingSet.of([filtered], "likelihood")
    with pytest.raises(ldp.InvalidArgument, match="biases the likelihood"):
        TorchLearner(nn.Linear(2, K), loss="likelihood").fit(np.zeros((N, 2), np.float32), filtered)


@pytest.mark.parametrize("kept", [np.ones(N), np.ones(N - 1, dtype=bool), np.ones((N, 1), dtype=bool)])
def test_what_is_kept_is_a_mask_over_the_release(kept):
    with pytest.raises(ldp.InvalidArgument, match="kept must be a mask"):
        Filtered(released(ldp.RRWithPrior("1")), kept)


def test_groups_that_happen_to_be_reported_singly_still_cannot_be_debiased():
    """Whether a loss is unbiased must not depend on what was reported."""
    priors = np.tile([0.5, 0.2, 0.1, 0.1, 0.1], (N, 1))
    vault = ldp.LabelVault(np.zeros(N, dtype=int), classes=K, budget="20")
    release = vault.release(ldp.GroupedResponse("0.5"), priors=priors)
    members = release.groups.assignment(np.arange(N)) == release.reports[:, None]
    alone = np.flatnonzero(members.sum(axis=1) == 1)
    assert 0 < len(alone) < N
    groups = type(release.groups)(release.groups.groups[alone], release.groups.counts[alone])
    lucky = dataclasses.replace(
        release,
        reports=release.reports[alone].copy(),
        rows=release.rows[alone].copy(),
        channel=type(release.channel)(groups, release.channel.odds),
    )
    with pytest.raises(ldp.InvalidArgument, match="cannot be debiased"):
        lucky.debiased_weights()


# ---------------------------------------------------------------- histograms


@pytest.mark.parametrize("loss", LOSSES)
def test_a_histogram_is_learned_from_as_the_shares_of_each_group(loss):
    histogram = counted()
    data = TrainingSet.of([histogram], loss)
    counts = histogram.projected()
    logits = random_logits()
    expected = []
    for row in range(N):
        shares = counts[histogram.groups[row]] / counts[histogram.groups[row]].sum()
        expected.append(-sum(w * log for w, log in zip(shares, log_softmax(logits[row].tolist()), strict=True)))
    assert data.loss(torch.from_numpy(logits), data.targets).tolist() == pytest.approx(expected, rel=1e-6)
    assert (data.rows == histogram.rows).all()


@pytest.mark.parametrize("loss", ["noisy-label", "debiased"])
def test_noisy_labels_and_histograms_are_learned_from_side_by_side(loss):
    release, histogram = released(ldp.RRWithPrior("1")), counted()
    both = TrainingSet.of([release, histogram], loss)
    logits = torch.from_numpy(random_logits(2 * N))
    apart = [TrainingSet.of([each], loss) for each in (release, histogram)]
    expected = torch.cat([apart[0].loss(logits[:N], apart[0].targets), apart[1].loss(logits[N:], apart[1].targets)])
    assert torch.allclose(both.loss(logits, both.targets), expected, rtol=1e-6, atol=1e-6)
    assert both.rows.tolist() == [*release.rows, *histogram.rows]


def test_a_row_s_likelihood_and_what_is_believed_of_it_add_up():
    some, histogram = released(ldp.RRWithPrior("1"), np.arange(0, N, 2)), counted()
    both = TrainingSet.of([some, histogram], "likelihood")
    logits = torch.from_numpy(random_logits())
    reports, counts = (TrainingSet.of([each], "likelihood") for each in (some, histogram))
    expected = counts.loss(logits, counts.targets)
    expected[::2] += reports.loss(logits[::2], reports.targets)
    assert torch.allclose(both.loss(logits, both.targets), expected, rtol=1e-6, atol=1e-6)
    assert both.rows.tolist() == list(range(N))


@pytest.mark.parametrize("loss", LOSSES)
def test_beliefs_count_by_their_weight(loss):
    shares = np.random.default_rng(5).dirichlet(np.ones(K), size=3)
    logits = torch.from_numpy(random_logits(3))
    rows, made_from = np.array([4, 2, 7]), counted()
    plain = TrainingSet.of(Beliefs(rows, shares, made_from), loss)
    weighted = TrainingSet.of(Beliefs(rows, shares, made_from, np.array([1.0, 0.0, 0.5])), loss)
    expected = plain.loss(logits, plain.targets) * torch.tensor([1.0, 0.0, 0.5])
    assert torch.allclose(weighted.loss(logits, weighted.targets), expected)
    assert plain.rows.tolist() == weighted.rows.tolist() == [4, 2, 7]


@pytest.mark.parametrize("loss", LOSSES)
def test_histograms_teach_a_model_what_the_groups_have_in_common(loss):
    vault = ldp.LabelVault(np.repeat(np.arange(4), 50), classes=4, budget="8", trust="curator")
    X = np.eye(4, dtype=np.float32)[np.repeat(np.arange(4), 50)]
    histogram = vault.histogram(np.repeat(np.arange(4), 50), "8")
    learner = TorchLearner(nn.Linear(4, 4), loss=loss, epochs=10, batch_size=50, learning_rate=0.5)
    learner.fit(X, histogram)
    assert (learner.predict_proba(np.eye(4, dtype=np.float32)).argmax(axis=1) == np.arange(4)).all()


def test_a_histograms_rows_are_the_vaults():
    vault = ldp.LabelVault(labels(), classes=K, budget="8", trust="curator")
    histogram = vault.histogram(np.zeros(10, dtype=int), "8", rows=np.arange(0, 20, 2), n_groups=3)
    data = TrainingSet.of([histogram], "noisy-label")
    assert data.rows.tolist() == list(range(0, 20, 2)) and torch.isfinite(data.targets).all()


@pytest.mark.parametrize("loss", ["noisy-label", "debiased"])
def test_a_release_without_labels_is_refused(loss):
    vault = ldp.LabelVault([0, 1, 2], classes=[0, 1, 2], budget="1")
    release = vault.release(ldp.UnbiasedResponse("1", low=0, high=2, step=1))
    with pytest.raises(ldp.InvalidArgument):
        TrainingSet.of([release], loss)
    assert TrainingSet.of([release], "likelihood").targets.shape == (3, 3)


def test_soft_targets_may_be_negative():
    logits, weights = random_logits(2), np.array([[1.5, -0.5, 0, 0, 0], [0, 0, 1, 0, 0]])
    expected = [-np.dot(each, log_softmax(row)) for each, row in zip(weights, logits, strict=True)]
    assert on_weights(torch.from_numpy(logits), torch.from_numpy(weights)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_smoothing_is_torchs_own(share):
    logits, labels = torch.randn(30, 5, dtype=torch.float64), torch.arange(30) % 5
    expected = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=share)
    assert torch.allclose(on_labels(logits, labels, smoothing=share), expected)
    one_hot = torch.from_numpy(smoothed(np.eye(5)[labels], share))
    assert torch.allclose(on_weights(logits, one_hot), expected)


@pytest.mark.parametrize("loss", LOSSES)
def test_smoothed_beliefs_count_by_their_weight_too(loss):
    """As cross entropy on the smoothed shares, times the weight: a row that counts for nothing is not pulled anywhere."""
    shares, weights = np.random.default_rng(5).dirichlet(np.ones(K), size=3), np.array([1.0, 0.0, 0.5])
    logits = torch.from_numpy(random_logits(3))
    data = TrainingSet.of(Beliefs(np.arange(3), shares, counted(), weights), loss, smoothing=0.2)
    aims = torch.from_numpy(0.8 * shares + 0.2 / K)
    expected = torch.from_numpy(weights) * functional.cross_entropy(logits, aims, reduction="none")
    assert torch.allclose(data.loss(logits, data.targets.double()), expected, atol=1e-6)


def test_the_likelihood_of_reports_is_not_smoothed_and_beliefs_beside_it_are():
    release = ldp.LabelVault(labels(), classes=K, budget="1").release(ldp.RandomizedResponse("1"))
    shares = np.random.default_rng(5).dirichlet(np.ones(K), size=3)
    believed, logits = Beliefs(np.arange(3), shares, counted()), torch.from_numpy(random_logits(len(release.rows)))
    plain, smooth = (TrainingSet.of([release], "likelihood", smoothing=share) for share in (0.0, 0.2))
    assert torch.equal(plain.loss(logits, plain.targets), smooth.loss(logits, smooth.targets))
    both = TrainingSet.of([release, believed], "likelihood", smoothing=0.2)
    expected = plain.loss(logits, plain.targets)
    aims = torch.from_numpy(0.8 * shares + 0.2 / K)
    expected[:3] += functional.cross_entropy(logits[:3], aims, reduction="none")
    assert torch.allclose(both.loss(logits, both.targets), expected, atol=1e-5)


def test_debiased_targets_are_smoothed():
    release = ldp.LabelVault(labels(), classes=K, budget="1").release(ldp.RandomizedResponse("1"))
    plain, smooth = (TrainingSet.of([release], "debiased", smoothing=share).targets for share in (0.0, 0.2))
    assert torch.allclose(smooth, 0.8 * plain + 0.2 / K, atol=1e-6)
