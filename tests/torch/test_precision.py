"""What networks are computed in: bfloat16 where the processor has instructions for it, which are made up here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from learner_contract import features, release_of

import labeldp as ldp
from labeldp.torch import TorchLearner, models, precision
from labeldp.torch.precision import INSTRUCTIONS, computed_in, subnormal_as_zero

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(params=[(), *((name,) for name in INSTRUCTIONS)], ids=lambda names: " ".join(names) or "none")
def processor(request, monkeypatch):
    """A processor with one of the instructions, or with none of them."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {name: name in request.param for name in INSTRUCTIONS})
    return request.param


def test_bfloat16_is_computed_in_where_there_are_instructions_for_it(processor):
    assert computed_in("bfloat16", CPU) == ("bfloat16" if processor else "float32")
    assert computed_in("float32", CPU) == "float32"
    assert computed_in("bfloat16", GPU) == "bfloat16"  # a processor's instructions say nothing of other devices


def test_a_processor_that_torch_knows_nothing_of_computes_in_float32(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "unknown"})
    assert computed_in("bfloat16", CPU) == "float32"


def test_training_in_bfloat16_is_near_training_in_float32_and_leaves_weights_and_predictions_in_it(processor):
    X, seen = features(), []
    release = release_of(X, ldp.RandomizedResponse("1"))
    exact, quick = (fitted(X, release, asked, seen.append) for asked in ("float32", "bfloat16"))
    difference = np.abs(exact.predict_proba(X) - quick.predict_proba(X)).max()
    assert 0 < difference < 0.05 if processor else difference == 0
    assert all(value.dtype == torch.float32 for value in quick.module_.state_dict().values())
    used = "bfloat16" if processor else "float32"
    assert [epoch["precision"] for epoch in seen] == ["float32", "float32", used, used]


def fitted(X, release, asked, watch):
    module = models.build("mlp", {"kind": "vector", "size": X.shape[1]}, len(release.classes), seed=0)
    learner = TorchLearner(module, epochs=2, batch_size=16, learning_rate=0.05, precision=asked)
    return learner.fit(X, release, watch=watch)


def test_a_training_is_gone_on_with_on_another_processor(monkeypatch, tmp_path):
    X, release = features(), release_of(features(), ldp.RandomizedResponse("1"))
    module, file = (
        models.build("mlp", {"kind": "vector", "size": X.shape[1]}, len(release.classes), seed=0),
        tmp_path / "c",
    )

    def stopped(epoch):
        if epoch["epoch"] == 2:
            raise KeyboardInterrupt

    seen = []
    for able, watch in ((True, stopped), (False, seen.append)):
        monkeypatch.setattr(precision, "has_instructions", lambda _, able=able: able)
        learner = TorchLearner(module, epochs=3, batch_size=16, precision="bfloat16")
        try:
            learner.fit(X, release, checkpoint=file, watch=watch)
        except KeyboardInterrupt:
            continue
    assert [(epoch["epoch"], epoch["precision"]) for epoch in seen] == [(2, "float32"), (3, "float32")]


def keeps_subnormals():
    return bool(torch.tensor(1e-40) * 1 > 0)


@pytest.fixture
def flushing():
    yield torch.set_flush_denormal
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("before", [False, True])
def test_subnormal_numbers_are_zero_within_alone(flushing, before):
    def stopped():
        with subnormal_as_zero():
            assert not keeps_subnormals()
            raise KeyboardInterrupt

    flushing(before)
    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert keeps_subnormals() is not before


def test_an_epoch_is_trained_without_subnormal_numbers_and_watched_with_them():
    inside, outside = [], []

    class Told(torch.nn.Linear):
        def forward(self, x):
            if self.training and torch.is_grad_enabled():
                inside.append(keeps_subnormals())
            return super().forward(x)

    X = features()
    release = release_of(X, ldp.RandomizedResponse("1"))
    learner = TorchLearner(Told(X.shape[1], len(release.classes)), epochs=1, batch_size=240)
    learner.fit(X, release, watch=lambda _: outside.append(keeps_subnormals()))
    assert inside[-1] is False and outside == [True]
