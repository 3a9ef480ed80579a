"""The run folder: records that are noted twice stand once, and files are whole or not there."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.errors import InvalidArgument
from labeldp.runs import Recipe, RunFolder, folder
from labeldp.runs.folder import folder_named, write_whole

RECIPE = Recipe(data="digits", model="linear", epsilon="2")


def record(kind, stage=None, epoch=None, **figures):
    key = {"kind": kind, "stage": stage, "epoch": epoch}
    return {name: value for name, value in key.items() if value is not None} | figures


STORY = [
    *(record("stage", 1), record("epoch", 1, 1), record("epoch", 1, 2), record("test", 1)),
    *(record("stage", 2), record("epoch", 2, 1), record("epoch", 2, 2), record("test", 2)),
    record("done"),
]


def test_records_are_kept_in_order(tmp_path):
    run = RunFolder(tmp_path)
    assert run.records() == []
    for each in STORY:
        run.note(each)
    assert run.records() == STORY and run.metrics_file.read_text().endswith("}\n")


@settings(max_examples=12)  # each syncs many files
@given(st.lists(st.integers(0, len(STORY)), max_size=3))
def test_whatever_is_told_again_stands_once_in_its_place_and_as_it_was_told_last(tmp_path_factory, stops):
    """A resumed run tells every stage again, but no epoch that has a checkpoint."""
    run, told = RunFolder(tmp_path_factory.mktemp("run")), 0
    for life, stop in enumerate([*sorted(stops), len(STORY)]):
        for each in [one for one in STORY[:told] if one["kind"] != "epoch"] + STORY[max(0, told - 1) : stop]:
            run.note(each | {"life": life})
        told = max(told, stop)
    assert [{key: value for key, value in each.items() if key != "life"} for each in run.records()] == STORY


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "metrics.jsonl"
    write_whole(file, "first")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, "second")
    assert file.read_text() == "first"


def test_a_run_exists_once_its_facts_are_written(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "deep" / "run")
    written = []
    monkeypatch.setattr(folder, "write_whole", lambda path, text: (written.append(path.name), write_whole(path, text)))
    assert not run.exists
    facts = run.create(RECIPE, {"classes": [1, 2]})
    assert run.exists and written == ["recipe.toml", "run.json"] and run.recipe() == RECIPE
    assert {key: run.facts()[key] for key in facts} == facts and facts["classes"] == [1, 2]


def test_two_runs_never_share_a_name(tmp_path):
    first = RunFolder(tmp_path).create(RECIPE, {})["name"]
    with pytest.raises(InvalidArgument, match="another run has just begun"):
        RunFolder(tmp_path).create(RECIPE, {})
    RunFolder(tmp_path).facts_file.unlink()
    second = RunFolder(tmp_path).create(RECIPE, {})["name"]
    assert first != second and folder_named(first) == folder_named(f"{second}: release-1") == tmp_path


@pytest.mark.parametrize("path", ["x" * 150, "a\tb", "a\x7f"])
def test_a_folder_that_no_ledger_could_name_is_named_by_its_run(tmp_path, monkeypatch, path):
    """The ledger's names are printable and have at most 200 characters."""
    monkeypatch.chdir(tmp_path)
    path = os.path.join(path, "y" * 100) if path.startswith("x") else path
    facts = RunFolder(path).create(RECIPE, {})
    assert facts["name"] == f"run {facts['id']}" and folder_named(facts["name"]) is None


def test_a_folder_may_have_the_form_of_a_name(tmp_path):
    path = tmp_path / "mine (run 3)"
    assert folder_named(RunFolder(path).create(RECIPE, {})["name"] + ": release-2") == path
    assert folder_named(None) is None and folder_named("2024's release") is None


@pytest.mark.parametrize("ask", [RunFolder.recipe, RunFolder.facts, RunFolder.releases])
def test_what_is_no_run_says_so(tmp_path, ask):
    with pytest.raises(InvalidArgument, match=r"is not a run folder: it has no run\.json"):
        ask(RunFolder(tmp_path / "nothing"))


def test_what_is_missing_from_a_run_is_named(tmp_path):
    run = RunFolder(tmp_path)
    run.create(RECIPE, {})
    with pytest.raises(InvalidArgument, match="lacks the release of stage 1: resume that run first"):
        run.releases()
    with pytest.raises(InvalidArgument, match="has no certificate yet"):
        run.certificate()
    assert run.hold_out() is None


def test_the_facts_are_plain_json(finished):
    facts = json.loads(finished.facts_file.read_text())
    assert facts["classes"] == list(range(10)) and facts["inputs"] == {"kind": "image", "shape": [1, 8, 8]}
    assert facts["threads"] == facts["processes"] == 1 and facts["data_dir"] is None


def test_a_damaged_run_says_so(tmp_path):
    (tmp_path / "run.json").write_text('{"id": ')
    with pytest.raises(InvalidArgument, match=r"run\.json is damaged: restore it from a copy"):
        RunFolder(tmp_path).facts()
