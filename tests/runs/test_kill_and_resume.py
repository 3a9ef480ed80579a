"""Killed anywhere, a run goes on to the model that it would have had, and no label is charged twice."""

from __future__ import annotations

import shlex
import shutil
import signal

import pytest
from lives import QUICK, assert_certified

import labeldp as ldp
from labeldp.runs import RunFolder

EVERYTHING = [
    *(("stage", 1, None), ("epoch", 1, 1), ("epoch", 1, 2), ("test", 1, None)),
    *(("stage", 2, None), ("epoch", 2, 1), ("epoch", 2, 2), ("test", 2, None)),
    ("hold-out", None, None),
    ("done", None, None),
]
QUERIES = ["release-hold-out", "release-1", "release-2"]


@pytest.fixture
def check(lives, charges, keys, tmp_path):
    """Check a finished run against one on the same releases that nobody stopped, and its ledger."""

    def finished(out, ledger=None):
        folder = RunFolder(out)
        assert keys(folder) == EVERYTHING
        names = [entry.body["request"]["name"] for entry in charges(ledger or folder.ledger_file)]
        assert [name.split(": ")[-1] for name in names] == QUERIES
        assert [query["name"] for query in folder.certificate()["queries"]] == names
        again = lives.run("train", "--from", out, "--out", "uninterrupted", "--threads", 1, cwd=tmp_path)
        assert again.code == 0, again.err
        whole = RunFolder(tmp_path / "uninterrupted")
        assert whole.model_file.read_bytes() == folder.model_file.read_bytes()
        timeless = [
            [{key: value for key, value in record.items() if key != "seconds"} for record in run.records()]
            for run in (whole, folder)
        ]
        assert timeless[0] == timeless[1]
        return folder

    return finished


MOMENTS = [
    ("run.json", 1, "before"),  # its ledger and recipe are there
    ("run.json", 1, "after"),  # before anything was asked
    ("000003.json", 1, "before"),  # charged, and not yet spooled
    ("release-1.npz", 1, "before"),  # answered, and not yet in the folder
    ("metrics.jsonl", 2, "after"),  # the first epoch is noted, and has no checkpoint
    ("checkpoint-1.pt", 1, "after"),
    ("release-2.priors.npz", 1, "after"),
    ("release-2.json", 1, "after"),  # certified before
    ("checkpoint-2.pt", 1, "after"),
    ("model.safetensors", 1, "before"),
]


@pytest.mark.parametrize(("file", "time", "when"), MOMENTS, ids=lambda value: str(value))
def test_a_killed_run_goes_on_as_if_nothing_had_happened(lives, check, tmp_path, file, time, when):
    killed = lives.run("train", *QUICK, "--out", "run", cwd=tmp_path, stop_at=(file, time), before=when == "before")
    assert killed.code == -signal.SIGKILL
    assert_certified(RunFolder(tmp_path / "run"))
    exists = RunFolder(tmp_path / "run").exists
    assert exists == ((file, when) != ("run.json", "before"))
    how = ("--resume",) if exists else QUICK
    ended = lives.run("train", *how, "--out", "run", cwd=tmp_path)
    assert ended.code == 0, ended.err
    check(tmp_path / "run")


def test_a_run_that_is_killed_again_and_again_comes_to_its_end(lives, check, charges, tmp_path):
    ldp.create_ledger(tmp_path / "owner.ledger", budget="2")
    ended = lives.run("train", *QUICK, "--ledger", "owner.ledger", "--out", "run", cwd=tmp_path, stop_at=3)
    deaths = 0
    while ended.code == -signal.SIGKILL:
        deaths += 1
        assert deaths < 20 and len(charges(tmp_path / "owner.ledger")) <= 3
        ended = lives.run(
            "train", "--resume", "--out", "run", cwd=tmp_path, stop_at=10 + deaths % 2, before=bool(deaths % 3)
        )
    assert ended.code == 0 and deaths >= 3, ended.err
    check(tmp_path / "run", tmp_path / "owner.ledger")


def test_a_run_with_momentum_averaging_mixup_and_augmentation_goes_on_alike(lives, tmp_path):
    how = ["training.averaging=0.9", "training.mixup=[4.0, 1.0]", "training.crop=1", "training.cutout=2"]
    settings = [word for setting in (*how, "training.optimizer=adamw") for word in ("--set", setting)]
    for stop_at in (("checkpoint-1.pt", 1), ("checkpoint-2.pt", 1)):
        how = ["--resume"] if (tmp_path / "run").exists() else [*QUICK, *settings]
        assert lives.run("train", *how, "--out", "run", cwd=tmp_path, stop_at=stop_at).code == -signal.SIGKILL
    assert lives.run("train", "--resume", "--out", "run", cwd=tmp_path).code == 0
    assert lives.run("train", "--from", "run", "--out", "again", "--threads", 1, cwd=tmp_path).code == 0
    first, second = (RunFolder(tmp_path / name).model_file.read_bytes() for name in ("run", "again"))
    assert first == second


def test_a_run_whose_student_helps_to_ask_goes_on_alike_and_asks_nothing_twice(lives, charges, tmp_path):
    how = [
        "student.model=tiny-conv",
        "student.rounds=2",
        "student.epochs=1",
        "student.first=1",
        "student.batch_size=32",
    ]
    settings = [word for setting in how for word in ("--set", setting)]
    moments = [
        (("checkpoint-student-1.5-0.pt", 1), False),  # taught for a round
        (("release-2.priors.npz", 1), False),  # what it said is noted, and not yet asked with
        (("000005.json", 1), True),  # charged, and not yet spooled
        (("release-2.npz", 1), True),  # answered, and not yet in the folder
        (("checkpoint-student-3-0.pt", 1), False),  # the last lesson has begun
    ]
    for stop_at, before in moments:
        how = ["--resume"] if (tmp_path / "run").exists() else [*QUICK, *settings]
        killed = lives.run("train", *how, "--out", "run", cwd=tmp_path, stop_at=stop_at, before=before)
        assert killed.code == -signal.SIGKILL, killed.err
    assert lives.run("train", "--resume", "--out", "run", cwd=tmp_path).code == 0
    assert lives.run("train", "--from", "run", "--out", "again", "--threads", 1, cwd=tmp_path).code == 0
    names = [entry.body["request"]["name"] for entry in charges(RunFolder(tmp_path / "run").ledger_file)]
    assert [name.split(": ")[-1] for name in names] == QUERIES
    first, second = (RunFolder(tmp_path / name).student_file.read_bytes() for name in ("run", "again"))
    assert first == second


def test_a_run_goes_on_from_anywhere_and_after_its_folder_was_moved(lives, check, tmp_path):
    """What was answered and not yet stored is asked again under the name of the first time."""
    killed = lives.run("train", *QUICK, "--out", "run", cwd=tmp_path, stop_at=("release-1.npz", 1), before=True)
    assert killed.code == -signal.SIGKILL
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "run", tmp_path / "moved")
    ended = lives.run("train", "--resume", "--out", "../moved", cwd=tmp_path / "elsewhere")
    assert ended.code == 0, ended.err
    folder = check(tmp_path / "moved")
    assert folder.certificate()["ledger file"].endswith("moved/ledger")


def test_ctrl_c_says_the_command_to_go_on_with(lives, check, tmp_path):
    where = ("checkpoint-1.pt", 1)
    stopped = lives.run("train", *QUICK, "--out", "my run", cwd=tmp_path, stop_at=where, by=signal.SIGINT)
    assert (stopped.code, stopped.out) == (130, "") and not {"Traceback", "Error:"} & set(stopped.err.split())
    command = stopped.err.partition("Nothing is lost: labeldp ")[2].partition(" goes on")[0]
    assert command == "train --resume --out 'my run'"
    ended = lives.run(*shlex.split(command), cwd=tmp_path)
    assert ended.code == 0 and "Stage 1: 98 labels released earlier by" in ended.err, ended.err
    assert "Stage 2: 98 labels released by" in ended.err
    check(tmp_path / "my run")


def test_ctrl_c_before_there_is_a_run_says_to_start_again(lives, check, tmp_path):
    command = ("train", *QUICK, "--out", "run")
    stopped = lives.run(*command, cwd=tmp_path, stop_at=("recipe.toml", 1), before=True, by=signal.SIGINT)
    assert stopped.code == 130 and "Stopped before anything was asked. Run the same command again" in stopped.err
    resumed = lives.run("train", "--resume", "--out", "run", cwd=tmp_path)
    assert resumed.code == 1 and "it has no run.json" in resumed.err and "is started again as before" in resumed.err
    assert lives.run(*command, cwd=tmp_path).code == 0
    check(tmp_path / "run")


def test_a_run_on_earlier_releases_goes_on_too(lives, keys, tmp_path):
    assert lives.run("train", *QUICK, "--out", "first", cwd=tmp_path).code == 0
    ledger = RunFolder(tmp_path / "first").ledger_file
    before = ledger.read_bytes()
    again = ("train", "--from", "first", "--model", "linear", "--threads", 1)
    for moment in (("recipe.toml", 1), ("checkpoint-1.pt", 1), ("checkpoint-2.pt", 1)):
        how = ("train", "--resume") if (tmp_path / "run" / "run.json").exists() else again
        assert lives.run(*how, "--out", "run", cwd=tmp_path, stop_at=moment).code == -signal.SIGKILL
    ended = lives.run("train", "--resume", "--out", "run", cwd=tmp_path)
    assert ended.code == 0 and "nothing was charged" in ended.err, ended.err
    assert lives.run(*again, "--out", "whole", cwd=tmp_path).code == 0
    run, whole = (RunFolder(tmp_path / name) for name in ("run", "whole"))
    assert keys(run) == EVERYTHING and run.model_file.read_bytes() == whole.model_file.read_bytes()
    assert ledger.read_bytes() == before


@pytest.mark.parametrize(("file", "when"), [("release-2.json", "before"), ("release-1.json", "after")])
def test_a_run_that_lacks_releases_is_no_source(lives, tmp_path, file, when):
    how = {"cwd": tmp_path, "stop_at": (file, 1), "before": when == "before"}
    assert lives.run("train", *QUICK, "--out", "run", **how).code == -signal.SIGKILL
    again = lives.run("train", "--from", "run", "--out", "again", cwd=tmp_path)
    assert again.code == 1 and "resume that run first" in again.err and not (tmp_path / "again").exists()


def test_a_run_whose_last_release_is_stored_is_a_source_with_its_whole_certificate(lives, tmp_path):
    moment = ("release-2.json", 1)
    assert lives.run("train", *QUICK, "--out", "run", cwd=tmp_path, stop_at=moment).code == -signal.SIGKILL
    assert (tmp_path / "run" / "release-2.priors.npz").exists()  # not cleaned up any more
    again = lives.run("train", "--from", "run", "--out", "again", cwd=tmp_path, stop_at=("run.json", 1), before=True)
    assert again.code == -signal.SIGKILL, again.err
    assert_certified(RunFolder(tmp_path / "again"))
    assert "(ledger entries 3, 4, 5):" in RunFolder(tmp_path / "again").certificate()["covers"]
