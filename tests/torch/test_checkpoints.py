"""Checkpoints: of one training only, whole or refused, and never executed."""

from __future__ import annotations

import os
import pickle

import pytest
import torch

import labeldp as ldp
from labeldp.torch import checkpoints
from labeldp.torch.checkpoints import fingerprint_of


def test_what_was_written_is_read_back(tmp_path):
    state = {"fingerprint": "f", "epoch": 3, "module": {"w": torch.randn(3)}, "average": None}
    checkpoints.write(tmp_path / "c.pt", state)
    again = checkpoints.read(tmp_path / "c.pt", "f")
    assert again["epoch"] == 3 and torch.equal(again["module"]["w"], state["module"]["w"])
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt"]


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoints.read(None, "f") is None and checkpoints.read(tmp_path / "c.pt", "f") is None


def test_a_write_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    checkpoints.write(tmp_path / "c.pt", {"fingerprint": "f", "epoch": 1})

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.write(tmp_path / "c.pt", {"fingerprint": "f", "epoch": 2})
    assert checkpoints.read(tmp_path / "c.pt", "f")["epoch"] == 1


def test_of_another_training_it_is_refused(tmp_path):
    checkpoints.write(tmp_path / "c.pt", {"fingerprint": "f"})
    with pytest.raises(ldp.InvalidArgument, match="other releases, settings or starting weights"):
        checkpoints.read(tmp_path / "c.pt", "g")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ldp.InvalidArgument, match="other releases"):
        checkpoints.read(tmp_path / "list.pt", "f")


@pytest.mark.parametrize("damage", [b"", b"PK", b"x" * 1000, "truncated"])
def test_a_damaged_one_is_a_clear_error(damage, tmp_path):
    checkpoints.write(tmp_path / "c.pt", {"fingerprint": "f", "module": {"w": torch.randn(100)}})
    content = (tmp_path / "c.pt").read_bytes()
    (tmp_path / "c.pt").write_bytes(content[:-50] if damage == "truncated" else damage)
    with pytest.raises(ldp.InvalidArgument, match="not a whole checkpoint"):
        checkpoints.read(tmp_path / "c.pt", "f")


class Hostile:
    def __reduce__(self):
        return os.mkdir, (os.environ["HOSTILE"],)


@pytest.mark.parametrize("save", [torch.save, lambda thing, path: path.write_bytes(pickle.dumps(thing))])
def test_a_strangers_pickle_is_not_executed(save, tmp_path, monkeypatch):
    monkeypatch.setenv("HOSTILE", str(tmp_path / "executed"))
    save({"fingerprint": "f", "epoch": Hostile()}, tmp_path / "c.pt")
    with pytest.raises(ldp.InvalidArgument, match="not a whole checkpoint"):
        checkpoints.read(tmp_path / "c.pt", "f")
    assert not (tmp_path / "executed").exists()


def test_the_fingerprint_tells_settings_types_shapes_and_values_apart():
    tensors = [torch.arange(6.0), torch.tensor(3), torch.tensor([True]), torch.empty(0), torch.randn(2).bfloat16()]
    first = fingerprint_of({"a": 1, "b": None}, tensors)
    assert first == fingerprint_of({"b": None, "a": 1}, [tensor.clone() for tensor in tensors])
    image = torch.randn(2, 3, 4, 4)
    assert fingerprint_of({}, [image]) == fingerprint_of({}, [image.to(memory_format=torch.channels_last)])
    others = [
        fingerprint_of({"a": 2, "b": None}, tensors),
        fingerprint_of({"a": 1}, tensors),
        fingerprint_of({"a": 1, "b": None}, tensors[:-1]),
        fingerprint_of({"a": 1, "b": None}, [tensors[1], tensors[0], *tensors[2:]]),
        fingerprint_of({"a": 1, "b": None}, [tensors[0].reshape(2, 3), *tensors[1:]]),
        fingerprint_of({"a": 1, "b": None}, [tensors[0].double(), *tensors[1:]]),
        fingerprint_of({"a": 1, "b": None}, [torch.nextafter(tensors[0], torch.tensor(9.0)), *tensors[1:]]),
    ]
    assert len({first, *others}) == len(others) + 1
