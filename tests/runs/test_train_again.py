"""Training again on what a run released: any model, any training, free."""

from __future__ import annotations

import json
import shutil

import pytest

from labeldp import runs
from labeldp.datasets import dataset
from labeldp.errors import InvalidArgument
from labeldp.runs import RunFolder, training


@pytest.fixture
def no_vault(monkeypatch):
    """From here on nobody opens a vault."""

    class NoVault:
        def __init__(self, *_, **__):
            raise AssertionError("a vault was opened")

    monkeypatch.setattr(dataset, "LabelVault", NoVault)
    monkeypatch.setattr(training, "LabelVault", NoVault)


def everything_in(folder):
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_another_model_is_trained_on_the_same_releases_for_free(finished, no_vault, keys, tmp_path):
    before = everything_in(finished.path.parent)  # the ledger, its spool and the run
    changes = {"model": "tiny-conv", "training.epochs": 3, "training.averaging": 0.9, "seed": 7, "about": "a try"}
    again = runs.train_again(finished.recipe().changed(changes), finished.path, tmp_path / "again")
    assert everything_in(finished.path.parent) == before
    names = {file.name for file in finished.path.iterdir()}
    assert {file.name for file in again.path.iterdir()} == names and "ledger" not in names
    assert again.recipe() == finished.recipe().changed(changes) and len(keys(again)) == 12
    for ours, theirs in zip(again.releases(), finished.releases(), strict=True):
        assert ours.receipt == theirs.receipt and ours.reports.tolist() == theirs.reports.tolist()
    assert again.hold_out().reports.tolist() == finished.hold_out().reports.tolist()
    assert runs.load(again.path).recipe.model == "tiny-conv"


def test_its_certificate_is_that_of_the_releases(finished, no_vault, tmp_path):
    again = runs.train_again(finished.recipe(), finished.path, tmp_path / "again")
    certificate = again.certificate()
    assert certificate.pop("trained again") == f"on the releases of {finished.path}; nothing was asked"
    covers = certificate.pop("covers")
    assert covers.startswith(
        "the releases that this model learned from (ledger entries 3, 4, 5): all that its ledger had"
    )
    earlier = finished.certificate()
    assert earlier.pop("covers") == covers.replace(
        "the releases that this model learned from", "the releases of this run"
    )
    assert certificate == earlier
    assert again.facts()["from"] == str(finished.path)


def test_what_was_trained_again_can_be_trained_again(finished, no_vault, tmp_path):
    recipe = finished.recipe().changed({"model": "mlp"})
    first = runs.train_again(recipe, finished.path, tmp_path / "first")
    shutil.copytree(first.path, tmp_path / "copy")
    shutil.rmtree(first.path)  # a run needs nothing but its own folder
    second = runs.train_again(recipe, tmp_path / "copy", tmp_path / "second")
    assert second.model_file.read_bytes() == RunFolder(tmp_path / "copy").model_file.read_bytes()
    assert second.certificate()["queries"] == finished.certificate()["queries"]


def test_a_loss_on_labels_takes_releases_of_labels(recipe, tmp_path, request):
    labels = {"release.mechanism": "RRWithPrior", "training.loss": "noisy-label"}
    first = runs.train(recipe.changed(labels), tmp_path / "first")
    request.getfixturevalue("no_vault")
    for loss in ("likelihood", "debiased"):
        again = runs.train_again(first.recipe().changed({"training.loss": loss}), first.path, tmp_path / loss)
        assert again.model_file.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": "1"},
        {"rows": 199},
        {"data": "mnist"},
        {"release.stages": 1},
        {"release.mechanism": "RRWithPrior"},
        {"release.hold_out": 0.0},
        {"release.temperature": 0.5},
        {"release.split": [0.6, 0.4]},
    ],
    ids=str,
)
def test_what_defines_the_releases_cannot_be_changed(finished, no_vault, tmp_path, changes):
    with pytest.raises(InvalidArgument) as refused:
        runs.train_again(finished.recipe().changed(changes), finished.path, tmp_path / "again")
    (changed,) = changes
    assert f"{changed} cannot be changed" in str(refused.value) and "model, seed and [training] can" in str(
        refused.value
    )
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.loss": "noisy-label"}, "no one noisy label per row"),
        ({"training.loss": "debiased"}, "no one noisy label per row"),
        ({"training.loss": "likely"}, "loss must be one of"),
        ({"model": "tinyconv"}, "model must be one of"),
        ({"model": "ncf"}, "ncf takes inputs"),
        ({"training.batch_size": 0}, "batch_size must be at least 1"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_leaves_no_folder_behind(finished, no_vault, tmp_path, changes, words):
    with pytest.raises(InvalidArgument) as refused:
        runs.train_again(finished.recipe().changed(changes), finished.path, tmp_path / "again")
    assert words in str(refused.value) and not (tmp_path / "again").exists()


def test_a_folder_that_is_no_run_is_no_source(recipe, no_vault, tmp_path):
    with pytest.raises(InvalidArgument, match=r"nowhere is not a run folder"):
        runs.train_again(recipe, tmp_path / "nowhere", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_release_that_was_altered_is_refused(finished, no_vault, tmp_path):
    shutil.copytree(finished.path, tmp_path / "copy")
    file = tmp_path / "copy" / "release-1.npz"
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(InvalidArgument, match=r"release-1\.npz is missing or is not the file"):
        runs.train_again(finished.recipe(), tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_run_that_is_there_keeps_its_recipe(finished, no_vault, tmp_path):
    again = runs.train_again(finished.recipe(), finished.path, tmp_path / "again")
    with pytest.raises(InvalidArgument, match="holds a run of another recipe"):
        runs.train_again(finished.recipe().changed({"seed": 3}), finished.path, again.path)
    with pytest.raises(InvalidArgument, match="holds a run of another recipe"):
        runs.train_again(finished.recipe().changed({"seed": 3}), finished.path, finished.path)


def test_metrics_say_what_they_said_of_the_first_run(finished, no_vault, tmp_path):
    again = runs.train_again(finished.recipe(), finished.path, tmp_path / "again")
    told = [
        [json.dumps({key: value for key, value in record.items() if key != "seconds"}) for record in run.records()]
        for run in (finished, again)
    ]
    assert told[0] == told[1]
