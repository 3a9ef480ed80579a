"""A run is gone on with where it stopped and recorded once; every look at test data is logged before it is taken."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import labeldp
from labeldp.budget import Ledger
from labeldp.errors import InvalidArgument
from labeldp.reproduce import Job, performed, running
from labeldp.reproduce.clock import Clock

KEYS = {
    *(
        "dataset",
        "trust",
        "recipe",
        "recipe_hash",
        "commit",
        "time",
        "epsilon",
        "metric",
        "value",
        "seconds",
        "command",
    ),
    *("kind", "table", "rows", "threads", "version", "draw", "seed", "run", "guarantee", "test_rows", "data"),
    *("unprotected", "precisions"),
}


def test_a_run_is_recorded_with_what_it_takes_to_trust_it(job, results, tmp_path):
    record = performed(job, results, out=tmp_path / "runs")
    assert results.records("mnist") == [record] and set(record) == KEYS
    assert (record["dataset"], record["trust"], record["recipe"], record["epsilon"]) == (
        "digits",
        "local",
        "own:quick",
        "2",
    )
    assert record["precisions"] == ["float32"]
    assert (record["metric"], record["rows"], record["test_rows"], record["threads"]) == ("accuracy", 200, 360, 1)
    tests = [each for each in job.folder(tmp_path / "runs").records() if each["kind"] == "test"]
    assert len(tests) == 2 and record["value"] == round(100 * tests[-1]["accuracy"], 4)  # the last stage's, in percent
    assert record["seconds"] >= 0 and record["recipe_hash"] == job.hash
    assert record["command"].endswith("quick.toml --epsilon 2") and "labeldp reproduce mnist" in record["command"]
    assert (record["version"], record["commit"]) == (labeldp.__version__, "c0ffee+changes")


def test_the_trust_model_is_the_certificates(write, results, tmp_path):
    entry = write(
        'data = "digits"\nmodel = "linear"\nepsilons = ["2"]\nrows = 200\n'
        'features = "patches:patch=3,centroids=8,pool=2,sample=500"\n[prior]\ncount = 5\n'
        "[training]\nbag_rounds = 0\nepochs = 1\n"
    )
    record = performed(Job(entry, "2"), results, out=tmp_path / "runs", cache=tmp_path / "cache")
    assert record["trust"] == "curator" and record["computed_features"] is True


def test_the_look_is_logged_before_training_begins(job, results, looks, tmp_path, monkeypatch):
    train, seen = running.train, []

    def watched(*given, **named):
        seen.extend(looks())
        return train(*given, **named)

    monkeypatch.setattr(running, "train", watched)
    performed(job, results, out=tmp_path / "runs")
    ((_, *look),) = seen
    assert look == ["mnist", "own:quick", job.hash[:16], "2", "1", "200", "c0ffee+changes", "begun"]


def test_the_look_is_logged_even_if_training_fails(job, results, looks, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise InvalidArgument("The net came to nothing.")

    monkeypatch.setattr(running, "train", fails)
    with pytest.raises(InvalidArgument):
        performed(job, results, out=tmp_path / "runs")
    assert len(looks()) == 1 and results.records("mnist") == []


def test_what_is_recorded_is_neither_run_nor_looked_at_again(job, results, looks, tmp_path):
    first = performed(job, results, out=tmp_path / "runs")
    assert performed(job, results, out=tmp_path / "runs") == first
    assert len(results.records("mnist")) == len(looks()) == 1


def test_a_stopped_run_goes_on_and_its_time_is_that_of_all_sessions(job, results, looks, tmp_path):
    def stop(record):
        if record["kind"] == "epoch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        performed(job, results, out=tmp_path / "runs", watch=stop)
    assert results.records("mnist") == []
    record = performed(job, results, out=tmp_path / "runs")
    assert record["sessions"] == 2 and "up to its last record" in record["seconds_are"]
    assert [look[-1] for look in looks()] == ["begun", "resumed"] and len(results.records("mnist")) == 1


def test_draws_have_noise_and_seeds_of_their_own_and_one_hash(write, results, tmp_path):
    records = [performed(Job(write(), "2", draw), results, out=tmp_path / "runs") for draw in (1, 2)]
    assert len({record["run"] for record in records}) == 2 and len({record["recipe_hash"] for record in records}) == 1
    assert [record["seed"] for record in records] == [0, running.SEEDS_APART]
    folders = [Job(write(), "2", draw).folder(tmp_path / "runs") for draw in (1, 2)]
    assert folders[0].releases()[0].receipt.ledger["id"] != folders[1].releases()[0].receipt.ledger["id"]


def test_a_run_that_was_removed_and_done_again_has_its_own_time(job, results, tmp_path):
    performed(job, results, out=tmp_path / "runs")
    folder = job.folder(tmp_path / "runs")
    shutil.rmtree(folder.path)
    record = performed(job, results, out=tmp_path / "runs")
    noted = json.loads(Clock(folder).file.read_text())
    assert len(noted) == 2 and [each["run"] for each in noted] == [each["run"] for each in results.records("mnist")]
    assert "sessions" not in record and record["seconds"] == noted[1]["seconds"]


DIE = """
import os, signal, sys
from pathlib import Path
from labeldp import report
from labeldp.reproduce import Job, Results, performed
from labeldp.reproduce.cookbook import read
report.write_run = lambda *_, **__: None
rename = os.replace
place, file, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def until(source, target):
    global times
    times -= os.path.basename(target) == file
    if not times:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)

os.replace = until
performed(Job(read(place / "quick.toml", "mnist"), "2"), Results(place / "results"), out=place / "runs")
"""


def killed_at(place, file, times=1):
    words = [sys.executable, "-c", DIE, str(place), file, str(times)]
    killed = subprocess.run(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("file", "times", "sessions"),
    [("run.json", 1, 1), ("draw-1.clock.json", 2, 2)],
    ids=["its ledger is there", "its run is there, and its clock does not say so"],
)
def test_killed_at_its_beginning_it_goes_on(job, results, tmp_path, file, times, sessions):
    killed_at(tmp_path, file, times)
    folder = job.folder(tmp_path / "runs")
    ledger = Ledger(folder.ledger_file).id
    assert folder.exists == (sessions == 2)
    record = performed(job, results, out=tmp_path / "runs")
    assert record.get("sessions", 1) == sessions and Ledger(folder.ledger_file).id == ledger


def test_killed_between_run_and_record_it_gets_exactly_one_record(job, results, looks, tmp_path):
    killed_at(tmp_path, "mnist.json")
    folder = job.folder(tmp_path / "runs")
    model = folder.model_file.stat().st_mtime_ns
    assert results.records("mnist") == [] and len(looks()) == 1
    record = performed(job, results, out=tmp_path / "runs")
    assert results.records("mnist") == [record] and record["run"] == folder.facts()["id"]
    assert folder.model_file.stat().st_mtime_ns == model and [look[-1] for look in looks()] == ["begun", "read back"]
    assert "sessions" not in record  # it was trained in one
    assert performed(job, results, out=tmp_path / "runs") == record and len(results.records("mnist")) == 1
