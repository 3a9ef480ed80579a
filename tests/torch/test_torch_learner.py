"""TorchLearner: the contract of all learners, a training written out by hand, and what is torch's own."""

from __future__ import annotations

import copy
import math

import numpy as np
import pandas as pd
import pytest
import torch
from learner_contract import N_CLASSES, N_FEATURES, LearnerContract, Stop, features, release_of, true_labels
from torch import nn
from torch.nn import functional

import labeldp as ldp
from labeldp import checks
from labeldp.errors import InvalidArgument, LabelDPError
from labeldp.torch import Augmentation, TorchLearner, models
from labeldp.torch.averaging import WeightAverage
from labeldp.torch.batches import Batches
from labeldp.torch.schedules import SCHEDULES


def network(n_features=N_FEATURES, n_classes=N_CLASSES, *, dropout=0.0, norm=False):
    torch.manual_seed(3)
    layers = [nn.Linear(n_features, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(8, n_classes))


def weights(learner):
    return {name: value.clone() for name, value in learner.module_.state_dict().items()}


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


class TestOnNoisyLabels(LearnerContract):
    def make(self):
        return self.make_for(N_FEATURES, N_CLASSES)

    def make_for(self, n_features, n_classes):
        return TorchLearner(network(n_features, n_classes), epochs=12, batch_size=32, learning_rate=0.2)


class TestOnTheLikelihoodWithEverything(LearnerContract):
    """Dropout, batch statistics, mixup, AdamW and averaged weights at once."""

    def make(self):
        return self.make_for(N_FEATURES, N_CLASSES)

    def make_for(self, n_features, n_classes):
        return TorchLearner(
            network(n_features, n_classes, dropout=0.2, norm=True),
            loss="likelihood",
            epochs=12,
            batch_size=32,
            optimizer="adamw",
            learning_rate=0.05,
            mixup=0.3,
            averaging=0.9,
            seed=4,
        )


class TestDebiased(LearnerContract):
    def make(self):
        return self.make_for(N_FEATURES, N_CLASSES)

    def make_for(self, n_features, n_classes):
        return TorchLearner(network(n_features, n_classes), loss="debiased", epochs=12, batch_size=32)

    def test_it_learns(self):
        """True labels were drawn at no epsilon, so there is nothing to debias; at epsilon 4 there is hardly any."""
        X = features()
        assert (self.make().fit(X, release_of(X)).predict_proba(X).argmax(axis=1) == true_labels(X)).mean() > 0.6
        with pytest.raises(ldp.InvalidArgument, match="debiased"):
            self.make().fit(X, ldp.LabelVault.unprotected(true_labels(X), classes=N_CLASSES))


# ---------------------------------------------------------------- a training, written out


def naive_training(learner, X, release, loss_of_row):
    """SGD with Nesterov momentum, row by row, in float64; return the weights and their moving average."""
    module = copy.deepcopy(learner.module).double()
    average = copy.deepcopy(module)
    batches = Batches.of(len(release), learner.batch_size)
    velocity = [torch.zeros_like(p) for p in module.parameters()]
    step = 0
    for epoch in range(1, learner.epochs + 1):
        mixing = batches.mixing(learner.seed, epoch, learner.mixup) if learner.mixup else np.ones(batches.steps)
        for lam, chosen in zip(mixing, batches.epoch(learner.seed, epoch), strict=True):
            rate = learner.learning_rate * SCHEDULES[learner.schedule](step / (learner.epochs * batches.steps))
            total = 0.0
            for here, there in zip(chosen, reversed(chosen), strict=True):
                a, b = (torch.from_numpy(X[release.rows[place]]).double() for place in (here, there))
                logits = module(lam * a + (1 - lam) * b)
                total = total + lam * loss_of_row(logits, here) + (1 - lam) * loss_of_row(logits, there)
                weight = learner.consistency * step / (learner.epochs * batches.steps)
                total = total - weight * (average(a).softmax(0).detach() * logits.log_softmax(0)).sum()
            module.zero_grad()
            (total / len(chosen)).backward()
            decay = min(learner.averaging or 0.0, (1 + step) / (10 + step))
            with torch.no_grad():
                for p, v, mean in zip(module.parameters(), velocity, average.parameters(), strict=True):
                    gradient = p.grad + learner.weight_decay * p
                    v.copy_(learner.momentum * v + gradient if step else gradient)
                    p -= rate * (gradient + learner.momentum * v)
                    mean.copy_(decay * mean + (1 - decay) * p)
            step += 1
    return module, average


@pytest.mark.parametrize("loss", ["noisy-label", "debiased", "likelihood"])
@pytest.mark.parametrize(("mixup", "averaging", "consistency"), [(0, None, 0), (0.5, 0.9, 0), (0, 0.9, 2)])
def test_training_is_what_the_formulas_say(loss, mixup, averaging, consistency):
    X = features()
    release = release_of(X, ldp.RandomizedResponse("1"), rows=np.arange(0, 240, 3))
    extra = {"mixup": mixup, "averaging": averaging, "consistency": consistency}
    learner = TorchLearner(network(), loss=loss, epochs=3, batch_size=16, learning_rate=0.05, seed=2, **extra)
    learner.fit(X, release)
    reported, likelihood, debiased = release.label_numbers, release.likelihood(), release.debiased_weights()

    def loss_of_row(logits, place):
        chances = torch.softmax(logits, 0)
        if loss == "noisy-label":
            return -torch.log(chances[reported[place]])
        if loss == "debiased":
            return sum(-float(c) * torch.log(p) for c, p in zip(debiased[place], chances, strict=True))
        return -torch.log(sum(float(w) * p for w, p in zip(likelihood[place], chances, strict=True)))

    module, average = naive_training(learner, X, release, loss_of_row)
    expected = average if averaging else module
    start = dict(learner.module.named_parameters())
    for name, value in expected.state_dict().items():
        assert torch.allclose(learner.module_.state_dict()[name].double(), value, atol=2e-6, rtol=1e-4)
        assert (value - start[name]).abs().max() > 1e-3  # something was learned


def test_the_reported_loss_is_the_mean_of_the_batches():
    X = features()
    release = release_of(X)
    seen = []
    learner = TorchLearner(network(), epochs=1, batch_size=240, learning_rate=1e-9, schedule="constant")
    learner.fit(X, release, watch=seen.append)
    logits = learner.module(torch.from_numpy(X))
    expected = functional.cross_entropy(logits, torch.from_numpy(release.label_numbers))
    assert seen[0]["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert seen[0]["learning_rate"] == 1e-9


# ---------------------------------------------------------------- what decides the result, and what does not


def test_training_leaves_the_callers_generators_where_they_were():
    X = features()
    torch.manual_seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    TorchLearner(network_that_draws_nothing(), epochs=2, batch_size=32, mixup=1.0).fit(X, release_of(X))
    assert torch.equal(torch.get_rng_state(), before[0]) and (np.random.get_state()[1] == before[1]).all()


def network_that_draws_nothing():
    module = nn.Sequential(nn.Linear(N_FEATURES, N_CLASSES), nn.Dropout(0.5))
    torch.manual_seed(1)
    return module


def test_the_callers_generator_decides_nothing():
    X = features()
    release = release_of(X)
    learner = TorchLearner(network(dropout=0.5), epochs=3, batch_size=32, seed=6)
    torch.manual_seed(1)
    first = weights(copy.deepcopy(learner).fit(X, release))
    torch.manual_seed(2)
    assert same(weights(copy.deepcopy(learner).fit(X, release)), first)
    other = TorchLearner(network(dropout=0.5), epochs=3, batch_size=32, seed=7).fit(X, release)
    assert not same(weights(other), first)


def test_the_callers_module_is_not_trained():
    X = features()
    module = network(norm=True)
    before = copy.deepcopy(module.state_dict())
    TorchLearner(module, epochs=2).fit(X, release_of(X))
    assert same(before, module.state_dict())


class Late(nn.Module):
    """Its second layer has no part in the first batch, and so no gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.calls = network(), network(), 0

    def forward(self, x):
        self.calls += 1
        return self.first(x) + self.second(x) if self.calls > 1 else self.first(x)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, N_CLASSES, sparse=True)

    def forward(self, x):
        return self.table((x[:, 0].abs() * 3).long().clamp(max=9))


class Turning(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = nn.Parameter(torch.randn(N_FEATURES, N_CLASSES, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.turn).real


@pytest.mark.parametrize("module", [Late, Sparse, Turning])
def test_modules_whose_steps_cannot_be_fused_are_trained_too(module):
    made = module()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    X = features()
    learner = TorchLearner(made, epochs=2, batch_size=32, weight_decay=0.0).fit(X, release_of(X))
    assert all(not torch.equal(value, before[name]) for name, value in weights(learner).items())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_fused_step_is_the_usual_one_up_to_rounding(optimizer, monkeypatch):
    X = features()
    release = release_of(X)

    def trained():
        how = {"epochs": 3, "batch_size": 32, "optimizer": optimizer, "learning_rate": 0.01}
        return weights(TorchLearner(network(), **how).fit(X, release))

    fused = trained()
    monkeypatch.setattr("labeldp.torch.learner.can_be_fused", lambda _: False)
    for name, value in trained().items():
        torch.testing.assert_close(fused[name], value, rtol=1e-4, atol=1e-5)


def test_frozen_layers_stay_as_they_are():
    X = features()
    module = network()
    module[0].requires_grad_(False)
    learner = TorchLearner(module, epochs=3, batch_size=32).fit(X, release_of(X))
    again = TorchLearner(module, epochs=3, batch_size=32, averaging=0.9).fit(X, release_of(X), start=learner)
    for fitted in (learner, again):
        assert torch.equal(fitted.module_[0].weight, module[0].weight)
        assert not torch.equal(fitted.module_[4].weight, module[4].weight)


def test_what_is_averaged_can_be_trained_on_from():
    X = features()
    start = TorchLearner(network(), epochs=2, averaging=0.5).fit(X, release_of(X))
    learner = TorchLearner(network(), epochs=2).fit(X, release_of(X), start=start)
    assert not same(weights(learner), weights(start))


def test_a_start_is_weights_alone_and_the_module_is_the_learners_own():
    X = features()
    start = TorchLearner(network(dropout=0.5), epochs=2).fit(X, release_of(X))
    learner = TorchLearner(network(dropout=0.1), epochs=2).fit(X, release_of(X), start=start)
    assert learner.module_[3].p == 0.1
    with pytest.raises(ldp.InvalidArgument, match="same layers"):
        TorchLearner(nn.Linear(N_FEATURES, N_CLASSES)).fit(X, release_of(X), start=start)


@pytest.mark.parametrize("kind", ["float64", "tensor", "memory map", "fortran"])
def test_the_same_numbers_in_any_container_give_the_same_model(kind, tmp_path):
    X = features()
    release = release_of(X)
    np.save(tmp_path / "X.npy", X)
    given = {
        "float64": lambda: X.astype(np.float64),
        "tensor": lambda: torch.from_numpy(X),
        "memory map": lambda: np.load(tmp_path / "X.npy", mmap_mode="r"),
        "fortran": lambda: np.asfortranarray(X),
    }[kind]()
    learner = TorchLearner(network(), epochs=2, batch_size=32)
    expected = copy.deepcopy(learner).fit(X, release).predict_proba(X)
    assert (learner.fit(given, release).predict_proba(given) == expected).all()


def test_bytes_are_pixels_and_whole_numbers_are_ids():
    images = np.random.default_rng(0).integers(0, 256, size=(60, 1, 4, 4), dtype=np.uint8)
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    release = ldp.LabelVault(np.arange(60) % 2, classes=2, budget="1").release(ldp.RandomizedResponse("1"))
    one = TorchLearner(module, epochs=2, batch_size=16).fit(images, release).predict_proba(images)
    other = TorchLearner(module, epochs=2, batch_size=16).fit(images / np.float32(255), release)
    assert one == pytest.approx(other.predict_proba(images / np.float32(255)), abs=1e-6)
    ids = np.arange(60).reshape(60, 1) % 7
    embedded = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(3, 2))
    assert TorchLearner(embedded, epochs=1).fit(ids, release).predict_proba(ids).shape == (60, 2)


# ---------------------------------------------------------------- refused before anything is spent


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": "cross-entropy"},
        {"epochs": 0},
        {"batch_size": 0},
        {"optimizer": "lbfgs"},
        {"schedule": "cosine"},
        {"seed": -1},
        {"seed": 2**64},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"momentum": 1.0},
        {"weight_decay": -1e-4},
        {"mixup": -0.1},
        {"mixup": math.nan},
        {"averaging": 1.0},
        {"averaging": math.nan},
        {"shift": -1},
        {"smoothing": 1.0},
        {"smoothing": math.nan},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ldp.InvalidArgument):
        TorchLearner(network(), **wrong)


def test_a_module_is_needed():
    with pytest.raises(ldp.InvalidArgument, match=r"torch\.nn\.Module, got function"):
        TorchLearner(network)


def test_the_check_finds_what_would_fail_in_training():
    X = features()
    ids = np.zeros((240, 1), dtype=np.int64)
    embedded = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(3, N_CLASSES))
    TorchLearner(embedded).check(ids, N_CLASSES)
    with pytest.raises(ldp.InvalidArgument, match="mixup"):
        TorchLearner(embedded, mixup=0.2).check(ids, N_CLASSES)
    with pytest.raises(ldp.InvalidArgument, match="augmentation is for images"):
        TorchLearner(network(), augmentation=Augmentation(flip=True)).check(X, N_CLASSES)
    with pytest.raises(ldp.InvalidArgument, match="so are mirror and shift"):
        TorchLearner(network(), shift=1).check(X, N_CLASSES)
    with pytest.raises(ldp.InvalidArgument, match=r"shift must be less than the images' sides, \(2, 2\); got 2"):
        TorchLearner(nn.Sequential(nn.Flatten(), network()), shift=2).check(X.reshape(240, 1, 2, 2), N_CLASSES)
    with pytest.raises(ldp.InvalidArgument, match="finite"):
        TorchLearner(network()).check(np.full_like(X, np.nan), N_CLASSES)
    with pytest.raises(ldp.InvalidArgument, match=r"returned shape \(2, 3, 1\)"):
        TorchLearner(nn.Sequential(network(), nn.Unflatten(1, (3, 1)))).check(X, N_CLASSES)


class Scaled(nn.Module):
    """Keeps a tensor of the first rows that it reads, and multiplies all later ones by it."""

    def __init__(self):
        super().__init__()
        self.net, self.scale = network(), None

    def forward(self, x):
        self.scale = x.abs().mean() if self.scale is None else self.scale
        return self.net(x * self.scale)


class Steep(nn.Module):
    """Keeps something that was computed from its weights, so that a second step goes back through the first."""

    def __init__(self):
        super().__init__()
        self.net, self.kept = network(), None

    def forward(self, x):
        self.kept = self.net[0].weight.square().sum() if self.kept is None else self.kept
        return self.net(x) * self.kept


def test_a_module_that_cannot_take_a_second_step_is_found_before_labels_are_asked():
    with pytest.raises(ldp.InvalidArgument, match="the module cannot learn from X"):
        TorchLearner(Steep()).check(features(), N_CLASSES)


def test_a_module_that_cannot_learn_from_one_row_reads_one():
    X = features()
    learner = TorchLearner(nn.Sequential(nn.BatchNorm1d(X.shape[1]), network()))
    assert learner.check_reads(X[:1], N_CLASSES).tolist() == X[:1].tolist()
    with pytest.raises(ldp.InvalidArgument, match="the module cannot learn from X"):
        learner.check(X[:1], N_CLASSES)


def test_a_module_may_keep_what_it_has_read():
    X = features()
    TorchLearner(Scaled(), epochs=1).fit(X, release_of(X))


def test_settings_may_be_numpys_numbers(tmp_path):
    X = features()
    numbers = {"learning_rate": np.float32(0.1), "weight_decay": np.float32(1e-4), "averaging": np.float32(0.5)}
    TorchLearner(network(), epochs=np.int64(2), **numbers).fit(X, release_of(X), checkpoint=tmp_path / "c")


@pytest.mark.parametrize("loss", ["noisy-label", "debiased", "likelihood"])
def test_a_loss_that_is_no_number_ends_training_with_a_clear_error(loss, tmp_path):
    X = features()
    learner = TorchLearner(network(), loss=loss, epochs=5, batch_size=16, learning_rate=1e30, schedule="constant")
    with pytest.raises(LabelDPError, match=r"the training loss became (nan|inf|-inf) in epoch .*lower learning_rate"):
        learner.fit(X, release_of(X), checkpoint=tmp_path / "c")


# ---------------------------------------------------------------- checkpoints and models on disk


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.2},
        {"epochs": 7},
        {"batch_size": 64},
        {"mixup": 0.1},
        {"seed": 1},
        {"averaging": 0.9},
        {"schedule": "constant"},
        {"optimizer": "adamw"},
        {"momentum": 0.8},
        {"weight_decay": 0.0},
        {"loss": "likelihood"},
        {"module": "other weights"},
        {"start": "other weights"},
    ],
    ids=str,
)
def test_a_checkpoint_of_other_settings_is_refused(change, tmp_path):
    X = features()
    release = release_of(X)
    settings = {"epochs": 2, "batch_size": 32}
    TorchLearner(network(), **settings).fit(X, release, checkpoint=tmp_path / "c")
    module, start = network(), None
    if change.pop("module", None):
        module[0].weight.data[0, 0] += 1e-6
    if change.pop("start", None):
        start = TorchLearner(network(), epochs=1, schedule="constant").fit(X, release)
    learner = TorchLearner(module, **settings | change)
    with pytest.raises(ldp.InvalidArgument, match="trained on anew, and nothing is asked again"):
        learner.fit(X, release, start=start, checkpoint=tmp_path / "c")


def test_how_images_are_looked_at_when_predicting_is_no_part_of_training(tmp_path):
    """So that it can be changed between a stop and a resume, and older checkpoints are as good as ever."""
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4), dtype=np.uint8)
    release = ldp.LabelVault(np.arange(20) % 2, classes=2, budget="1").release(ldp.RandomizedResponse("1"))
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    plain = TorchLearner(module, epochs=1).fit(images, release, checkpoint=tmp_path / "c")
    shifted = TorchLearner(module, epochs=1, shift=1).fit(images, release, checkpoint=tmp_path / "c")
    assert same(weights(plain), weights(shifted))
    assert not np.allclose(plain.predict_proba(images), shifted.predict_proba(images))


def test_with_label_smoothing_no_class_is_believed_in_without_end():
    """What is least in smoothed cross entropy on one label of four has 0.7 + 0.3 / 4 there."""
    X, release = np.ones((40, 2), dtype=np.float32), ldp.LabelVault([3] * 40, classes=4, budget="20")
    release = release.release(ldp.RandomizedResponse("20"))
    learner = TorchLearner(nn.Linear(2, 4), smoothing=0.3, epochs=200, schedule="constant", weight_decay=0.0)
    assert learner.fit(X, release).predict_proba(X[:1])[0] == pytest.approx([0.075, 0.075, 0.075, 0.775], abs=1e-3)


def test_smoothing_is_one_of_the_settings_where_there_is_any(tmp_path):
    X, release = np.eye(20, dtype=np.float32), ldp.LabelVault(np.arange(20) % 2, classes=2, budget="1")
    release = release.release(ldp.RandomizedResponse("1"))
    module = nn.Linear(20, 2)
    plain = TorchLearner(module, epochs=1)
    assert "smoothing" not in plain._settings()  # nor in checkpoints of versions that had none
    plain.fit(X, release, checkpoint=tmp_path / "c")
    with pytest.raises(ldp.InvalidArgument, match="trained on anew, and nothing is asked again"):
        TorchLearner(module, epochs=1, smoothing=0.1).fit(X, release, checkpoint=tmp_path / "c")


def test_augmentation_is_one_of_the_settings(tmp_path):
    images = np.zeros((20, 1, 4, 4), dtype=np.uint8)
    release = ldp.LabelVault(np.arange(20) % 2, classes=2, budget="1").release(ldp.RandomizedResponse("1"))
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    TorchLearner(module, epochs=1).fit(images, release, checkpoint=tmp_path / "c")
    with pytest.raises(ldp.InvalidArgument, match="trained on anew, and nothing is asked again"):
        TorchLearner(module, epochs=1, augmentation=Augmentation(crop=1)).fit(
            images, release, checkpoint=tmp_path / "c"
        )


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_training_stopped_at_any_epoch_ends_bit_for_bit_the_same(at, tmp_path):
    """Momentum, dropout, mixup, batch statistics and the average all go on from where they were."""
    X = features()
    release = release_of(X)
    learner = TorchLearner(
        network(dropout=0.3, norm=True), epochs=5, batch_size=32, mixup=0.4, averaging=0.8, learning_rate=0.3
    )

    def stop(record):
        if record["epoch"] == at:
            raise Stop

    with pytest.raises(Stop):
        copy.deepcopy(learner).fit(X, release, checkpoint=tmp_path / "c", watch=stop)
    resumed = copy.deepcopy(learner).fit(X, release, checkpoint=tmp_path / "c")
    assert same(weights(resumed), weights(learner.fit(X, release)))


def test_tied_weights_can_be_saved(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(N_FEATURES, N_FEATURES)
            self.again = self.inner
            self.outer = nn.Linear(N_FEATURES, N_CLASSES)

        def forward(self, x):
            return self.outer(self.again(self.inner(x)))

    X = features()
    learner = TorchLearner(Tied(), epochs=1).fit(X, release_of(X))
    learner.save(tmp_path / "tied")
    again = TorchLearner(Tied()).load(tmp_path / "tied")
    assert (again.predict_proba(X) == learner.predict_proba(X)).all()


def test_batch_statistics_are_saved(tmp_path):
    X = features()
    learner = TorchLearner(network(norm=True), epochs=2, batch_size=32).fit(X, release_of(X))
    learner.save(tmp_path / "m")
    again = TorchLearner(network(norm=True)).load(tmp_path / "m")
    assert same(weights(again), weights(learner)) and int(again.module_[1].num_batches_tracked) == 14


def test_consistency_compares_an_augmented_image_with_the_image_as_it_is(monkeypatch):
    images = np.random.default_rng(0).random((32, 1, 8, 8), np.float32)
    seen = []
    monkeypatch.setattr(WeightAverage, "tells", lambda self, plain: seen.append(plain) or self.module(plain).softmax(1))
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    learner = TorchLearner(
        module, epochs=1, batch_size=32, averaging=0.9, consistency=1.0, augmentation=Augmentation(crop=3, flip=True)
    )
    learner.fit(images, release_of(features(), rows=np.arange(32)))
    (plain,) = seen
    assert sorted(plain.flatten(1).sum(1).tolist()) == pytest.approx(sorted(images.reshape(32, -1).sum(1).tolist()))


@pytest.mark.parametrize("wrong", [{"consistency": 1.0}, {"consistency": 1.0, "averaging": 0.9, "mixup": 1.0}])
def test_consistency_needs_averaged_weights_and_no_mixup(wrong):
    with pytest.raises(InvalidArgument, match="give averaging, and leave out mixup"):
        TorchLearner(network(), **wrong)


def test_an_unknown_precision_is_refused():
    with pytest.raises(InvalidArgument, match="precision must be one of 'float32', 'bfloat16'"):
        TorchLearner(network(), precision="float16")


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("shift", [0, 1])
def test_what_is_predicted_is_the_mean_over_the_images_variants(mirror, shift):
    X = np.random.default_rng(0).integers(0, 256, (9, 1, 5, 4), dtype=np.uint8)
    learner = TorchLearner(nn.Sequential(nn.Flatten(), network(20)), mirror=mirror, shift=shift)
    learner.module_ = learner.module
    padded = np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)], mode="reflect")
    seen = [X, padded[:, :, 2:, 2:], padded[:, :, :-2, :-2]] if shift else [X]
    seen += [each[..., ::-1].copy() for each in seen] if mirror else []
    plain = TorchLearner(learner.module)
    plain.module_ = plain.module
    expected = np.mean([plain.predict_proba(each) for each in seen], axis=0)
    np.testing.assert_allclose(learner.predict_proba(X), expected, rtol=1e-5)
    assert len({each.tobytes() for each in seen}) == (1 + 2 * shift) * (1 + mirror), "all differ"


@pytest.mark.parametrize("how", [{"crop": 8}, {"cutout": 9}, {"cutout": 100}])
def test_augmentation_must_leave_some_of_each_image(how):
    net = models.build("linear", {"kind": "image", "shape": [1, 8, 8]}, 3)
    learner = TorchLearner(net, augmentation=Augmentation(**how))
    with pytest.raises(
        ldp.InvalidArgument, match=r"crop must be less than the images' sides, \(8, 8\), and cutout no more"
    ):
        learner.check(np.zeros((4, 1, 8, 8), np.uint8), 3)


@pytest.mark.parametrize("place", [0, 9_999])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
def test_a_number_that_is_none_is_found_wherever_it_is_before_anything_is_asked(place, number):
    X = np.zeros((10_000, 4))
    X[place, 2] = number
    vault = ldp.LabelVault(np.arange(10_000) % 2, classes=2, budget="1")
    learner = TorchLearner(models.build("linear", {"kind": "vector", "size": 4}, 2), epochs=1)
    with pytest.raises(ldp.InvalidArgument, match="finite"):
        ldp.MultiStage(learner, stages=1).fit(X, vault, "1")
    assert str(vault.spent()) == "epsilon 0"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, torch.float16, torch.bfloat16, torch.float64])
def test_numbers_of_any_precision_are_looked_at(dtype):
    X = torch.zeros(3, 2, dtype=dtype) if isinstance(dtype, torch.dtype) else np.zeros((3, 2), dtype)
    checks.finite_rows(X, np.arange(3))
    X[1, 1] = float("inf")
    checks.finite_rows(X, np.array([0, 2]))
    with pytest.raises(InvalidArgument, match="X must be finite"):
        checks.finite_rows(X, np.arange(3))


class TwoHeads(nn.Module):
    """Returns what its users want, and more of it while it trains."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(N_FEATURES, N_CLASSES)

    def forward(self, x):
        return (self.linear(x), x) if self.training else self.linear(x)


def frozen():
    return network().requires_grad_(False)


@pytest.mark.parametrize(
    ("module", "batch_size"), [(frozen(), 8), (network(norm=True), 1), (TwoHeads(), 8)], ids=["frozen", "norm", "pair"]
)
def test_a_module_that_cannot_learn_is_found_before_anything_is_asked(module, batch_size):
    vault = ldp.LabelVault(true_labels(features()[:40]), classes=N_CLASSES, budget="1")
    with pytest.raises(InvalidArgument, match=f"cannot learn from X in batches of {batch_size}"):
        ldp.MultiStage(TorchLearner(module, batch_size=batch_size), stages=1).fit(features()[:40], vault, "1")
    assert vault.spent().epsilon == "0"


def test_the_step_that_is_tried_changes_neither_the_module_nor_torchs_generator():
    learner = TorchLearner(network(dropout=0.5, norm=True))
    before, state = copy.deepcopy(learner.module.state_dict()), torch.random.get_rng_state()
    learner.check(features()[:8], N_CLASSES)
    assert same(learner.module.state_dict(), before) and torch.equal(torch.random.get_rng_state(), state)


def test_bytes_are_pixels_of_images_and_a_table_of_bytes_is_refused():
    table = np.random.default_rng(0).integers(0, 2, size=(9, N_FEATURES), dtype=np.uint8)
    with pytest.raises(InvalidArgument, match=r"X of bytes must be images .*astype\(np.float32\)"):
        TorchLearner(network()).check(table, N_CLASSES)
    with pytest.raises(InvalidArgument, match=r"whole numbers are taken for ids: give X.astype\(np.float32\)"):
        TorchLearner(network()).check(table.astype(np.int64), N_CLASSES)
    with pytest.raises(InvalidArgument, match=r"got a DataFrame: give X.to_numpy\(np.float32\)"):
        TorchLearner(network()).check(pd.DataFrame(table), N_CLASSES)
