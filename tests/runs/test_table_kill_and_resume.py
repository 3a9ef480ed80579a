"""A killed run on a table of one's own goes on to the model that it would have had, and no label is charged twice."""

from __future__ import annotations

import shlex
import signal

import people
import pytest

import labeldp as ldp
from labeldp import datasets
from labeldp.runs import RunFolder

QUICK = shlex.split(
    "--data people.csv --label income --classes low,high --id who --epsilon 2 --model logistic --stages 2 "
    "--set training.rounds=2"
)
STAGES = [[("stage", n, None), ("epoch", n, 1), ("epoch", n, 2)] for n in (1, 2)]
EVERYTHING = [*STAGES[0], *STAGES[1], ("hold-out", None, None), ("done", None, None)]
MOMENTS = [
    ("people.csv.labels.json", "before"),  # the ledger beside the data is there
    ("people.csv.labels.json", "after"),
    ("run.json", "before"),  # the ledger and the book beside the data, and the recipe, are there
    ("000004.json", "before"),  # charged, and not yet spooled
    ("release-1.npz", "before"),  # answered, and not yet in the folder
    ("checkpoint-1.pt", "after"),
    ("release-2.json", "after"),  # not yet certified
    ("model.skops", "before"),
    ("model.skops", "after"),
]


@pytest.mark.parametrize(("file", "when"), MOMENTS, ids=str)
def test_a_killed_run_on_a_table_goes_on_as_if_nothing_had_happened(lives, keys, charges, tmp_path, file, when):
    table = people.write(tmp_path / "people.csv", people.columns())
    killed = lives.run("train", *QUICK, "--out", "run", cwd=tmp_path, stop_at=(file, 1), before=when == "before")
    assert killed.code == -signal.SIGKILL, killed.err
    how = ("--resume",) if RunFolder(tmp_path / "run").exists else QUICK
    ended = lives.run("train", *how, "--out", "run", cwd=tmp_path)
    assert ended.code == 0, ended.err
    run = RunFolder(tmp_path / "run")
    assert keys(run) == EVERYTHING
    names = [entry.body["request"]["name"].split(": ")[-1] for entry in charges(f"{table}.ledger")]
    assert names == ["release-hold-out", "release-1", "release-2"]
    assert lives.run("train", "--from", "run", "--out", "uninterrupted", cwd=tmp_path).code == 0
    X = datasets.table.read_features(table, run.facts()["inputs"])
    ours, whole = (ldp.load(tmp_path / name).predict_proba(X) for name in ("run", "uninterrupted"))
    assert ours.tobytes() == whole.tobytes()


def test_ctrl_c_says_how_to_go_on(lives, tmp_path):
    people.write(tmp_path / "people.csv", people.columns())
    where = ("checkpoint-1.pt", 1)
    stopped = lives.run("train", *QUICK, "--out", "run", cwd=tmp_path, stop_at=where, by=signal.SIGINT)
    assert stopped.code == 130 and "Nothing is lost: labeldp train --resume --out run goes on" in stopped.err
    assert lives.run("train", "--resume", "--out", "run", cwd=tmp_path).code == 0
