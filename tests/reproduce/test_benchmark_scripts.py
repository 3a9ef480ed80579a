"""Studies that take hours end by a message, not a traceback, where their code is not what is wrong."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from labeldp import datasets

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch, tmp_path, capsys):
    """Run a script of benchmarks/ where there are no data; return what it exits with, and stderr."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.delenv("LABELDP_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(name):
        monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path / "records.json")])
        with pytest.raises((SystemExit, KeyboardInterrupt)) as end:
            runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
        return getattr(end.value, "code", "a traceback"), capsys.readouterr().err

    return run


@pytest.mark.parametrize(("name", "data"), [("frontier.py", "fashion-mnist"), ("ratings.py", "movielens-1m")])
def test_missing_files_are_told_by_a_message_alone(script, name, data):
    message, _ = script(name)  # an exit by a message prints it, with code 1
    assert message.startswith(f"Error: The files of {data} were not found.")


@pytest.mark.parametrize(("name", "says"), [("frontier.py", "the same command resumes"), ("ratings.py", "by --draw")])
def test_a_stopped_study_says_how_to_go_on(script, monkeypatch, name, says):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "load", stop)
    code, said = script(name)
    assert code == 130 and said.startswith("Stopped") and says in said
