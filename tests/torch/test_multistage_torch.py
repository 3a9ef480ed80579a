"""Multi-stage training with networks: what one stage hands to the next, and what nobody is handed."""

from __future__ import annotations

import copy
import gc
import pickle
import types

import numpy as np
import pytest
import torch
from torch import nn

import labeldp as ldp
from labeldp.errors import LabelDPError
from labeldp.learning import MultiStage
from labeldp.torch import TorchLearner
from labeldp.vault.labels import SealedLabels

N, K, WIDTH = 240, 3, 4
X = np.random.default_rng(0).normal(size=(N, WIDTH)).astype(np.float32)
LABELS = (X[:, 0] > 0.5).astype(int) + (X[:, 0] > -0.5)


def network(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, K))


def learner(**settings):
    return TorchLearner(network(), **{"epochs": 4, "batch_size": 32, "learning_rate": 0.1} | settings)


def open_vault(labels=LABELS, **settings):
    return ldp.LabelVault(labels, classes=K, **{"budget": "4"} | settings)


@pytest.fixture
def starts(monkeypatch):
    """The state of the module at the start of every training."""
    seen = []
    original = TorchLearner._epoch

    def noting(self, epoch, X, data, batches, module, optimizer, average):
        if epoch == 1:
            seen.append(copy.deepcopy(module.module.state_dict()))
        return original(self, epoch, X, data, batches, module, optimizer, average)

    monkeypatch.setattr(TorchLearner, "_epoch", noting)
    return seen


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("averaging", [None, 0.9])
def test_a_warm_start_begins_with_the_weights_and_statistics_of_the_model_before(starts, averaging):
    multi = MultiStage(learner(averaging=averaging), stages=3).fit(X, open_vault(), "4")
    pristine = network().state_dict()
    assert same(starts[0], pristine)
    for start, model in zip(starts[1:], multi.models_, strict=False):
        assert same(start, model.module_.state_dict())
        assert int(start["1.num_batches_tracked"]) > 0 and not torch.equal(start["1.running_mean"], torch.zeros(8))


def test_a_cold_start_begins_afresh(starts):
    MultiStage(learner(), stages=3, warm_start=False).fit(X, open_vault(), "4")
    assert all(same(start, network().state_dict()) for start in starts)


def test_a_warm_start_with_no_learning_predicts_as_before():
    """A tiny learning rate moves nothing but the batch statistics, and those start where they ended."""
    stages = [learner(), TorchLearner(network(), epochs=1, batch_size=32, learning_rate=1e-12, weight_decay=0)]
    multi = MultiStage(stages, stages=2).fit(X, open_vault(), "4")
    one, two = (model.module_.state_dict() for model in multi.models_)
    assert torch.allclose(one["0.weight"], two["0.weight"], atol=1e-9)
    tracked = [int(state["1.num_batches_tracked"]) for state in (one, two)]
    assert tracked == [4 * 3, 4 * 3 + 7]


def test_stages_may_mix_up_differently():
    def made(second):
        return [learner(mixup=0.5), learner(mixup=second)]

    first = MultiStage(made(0.5), stages=2).fit(X, open_vault(), "4")
    again = [MultiStage(made(second), stages=2).refit(X, first.releases_) for second in (0.5, 0.0)]
    assert (again[0].predict_proba(X) == first.predict_proba(X)).all()
    assert (again[1].models_[0].predict_proba(X) == first.models_[0].predict_proba(X)).all()
    assert (again[1].predict_proba(X) != first.predict_proba(X)).any()


@pytest.mark.parametrize("loss", ["noisy-label", "debiased", "likelihood"])
@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse, ldp.RRWithPrior, ldp.GroupedResponse])
def test_every_loss_learns_in_stages_from_every_mechanism_it_can_read(loss, mechanism):
    vault = open_vault()
    multi = MultiStage(learner(loss=loss, epochs=8), stages=2, mechanism=mechanism, hold_out=0.1)
    if loss != "likelihood" and mechanism is ldp.GroupedResponse:
        with pytest.raises(ldp.InvalidArgument, match="reports groups of labels"):
            multi.fit(X, vault, "4")
        assert vault.spent().epsilon == "0"
        return
    multi.fit(X, vault, "4")
    assert vault.spent().epsilon == "4"
    assert (multi.predict_proba(X).argmax(axis=1) == LABELS).mean() > 0.6


def test_the_filter_works_with_networks():
    records = []
    multi = MultiStage(learner(), stages=3, filter="floor").fit(X, open_vault(), "2", watch=records.append)
    stages = [record for record in records if record["kind"] == "stage"]
    epochs = [record for record in records if record["kind"] == "epoch"]
    for number in (2, 3):
        expected = stages[number - 1]["filtered"]["kept"] + len(multi.releases_[number - 1])
        assert {record["rows"] for record in epochs if record["stage"] == number} == {expected}


@pytest.mark.parametrize(
    ("module", "features"),
    [
        (nn.Linear(WIDTH, K + 1), X),
        (nn.Linear(WIDTH, K - 1), X),
        (nn.Linear(WIDTH + 1, K), X),
        (nn.Sequential(nn.Linear(WIDTH, K), nn.Unflatten(1, (K, 1))), X),
        (nn.Linear(WIDTH, K), X[:-1]),
        (nn.Linear(WIDTH, K), X.tolist()),
        (nn.Linear(WIDTH, K), np.full_like(X, np.inf)),
    ],
)
def test_a_network_that_does_not_fit_costs_nothing(module, features):
    vault = open_vault()
    with pytest.raises(ldp.InvalidArgument):
        MultiStage(TorchLearner(module), hold_out=0.1).fit(features, vault, "1")
    assert vault.spent().epsilon == "0"


def test_a_loss_that_is_no_number_says_what_to_do_and_costs_no_more(tmp_path):
    vault = open_vault()
    wild = learner(learning_rate=1e30, schedule="constant")
    with pytest.raises(LabelDPError, match=r"became nan in epoch .*can be trained on again at no cost"):
        MultiStage(wild, stages=2).fit(X, vault, "4", folder=tmp_path)
    assert len(vault.certificate()["queries"]) == 1
    first = ldp.Release.load(tmp_path / "release-1")
    MultiStage(learner(), stages=1).refit(X, [first])


# ---------------------------------------------------------------- no label within reach


def reachable(start):
    """Yield every object that can be reached from one, closures included, but not through modules and classes."""
    seen, left = set(), [start]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType)):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, types.FunctionType):
            left += [*(thing.__closure__ or ()), thing.__defaults__, thing.__kwdefaults__]
        elif isinstance(thing, types.CellType):
            left.append(thing.cell_contents)
        else:
            left += gc.get_referents(thing)


def test_neither_vault_nor_labels_can_be_reached_from_what_was_fitted():
    """With noise at epsilon 0.001 reports hardly depend on labels, so a long run of true labels could only be a leak."""
    secret = np.full(2_000, 7)
    features = np.random.default_rng(0).normal(size=(2_000, 2)).astype(np.float32)
    vault = ldp.LabelVault(secret, classes=200, budget="1")
    multi = MultiStage(TorchLearner(nn.Linear(2, 200), epochs=1), stages=2, hold_out=0.1)
    multi.fit(features, vault, "0.001", watch=lambda _: None, test=lambda _: {})
    forms = [secret[:32].astype(kind).tobytes() for kind in ("u1", "<u2", "<i4", "<i8", "<f4", "<f8")]
    for fitted in (multi, multi.model_):
        shown = (
            repr(fitted)
            + str(vars(fitted))
            + str({name: vars(each) for name, each in vars(fitted).items() if hasattr(each, "__dict__")})
        )
        assert "7, 7, 7" not in shown and "7 7 7" not in shown and "LabelVault" not in shown
        pickled = pickle.dumps(fitted)
        assert b"LabelVault" not in pickled and b"Sealed" not in pickled
        assert not any(form in pickled for form in forms)
        for thing in reachable(fitted):
            assert not isinstance(thing, (ldp.LabelVault, SealedLabels))
            if isinstance(thing, np.ndarray) and thing.shape == secret.shape:
                assert not (thing == secret).all()
