"""What the tests of runs share: small runs on the digits, in one thread, whose report nobody draws."""

from __future__ import annotations

import pytest
import torch
from lives import Lives

import labeldp as ldp
from labeldp import report, runs


@pytest.fixture(scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _quickly(one_thread, monkeypatch):
    monkeypatch.setattr(report, "write_run", lambda *_, **__: None)


@pytest.fixture(scope="session")
def recipe():
    quick = {"training.epochs": 2, "training.batch_size": 32}
    return runs.Recipe(data="digits", model="linear", epsilon="2", rows=200).changed(quick)


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="session")
def on_patches(recipe):
    return recipe.changed({"features": "patches:patch=3,centroids=8,pool=2,sample=500", "training.epochs": 1})


@pytest.fixture(scope="session")
def finished(recipe, one_thread, tmp_path_factory):
    """A finished run that charged the ledger beside it. Nobody changes it."""
    place = tmp_path_factory.mktemp("finished")
    ldp.create_ledger(place / "owner.ledger", budget="2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write_run", lambda *_, **__: None)
        return runs.train(recipe, place / "run", ledger=place / "owner.ledger")


@pytest.fixture(scope="session")
def lives():
    running = Lives()
    yield running
    running.close()


@pytest.fixture
def charges():
    """Return a ledger's charges."""
    return lambda path: [entry for entry in ldp.Ledger(path).entries() if entry.body["kind"] == "charge"]


@pytest.fixture
def keys():
    """Return what a folder's metrics tell of: kind, stage and epoch of each record."""
    return lambda folder: [(each["kind"], each.get("stage"), each.get("epoch")) for each in folder.records()]
