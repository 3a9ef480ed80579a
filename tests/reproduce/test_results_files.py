"""Records and looks are added by several processes at once, and none is lost; a run has one record."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from labeldp.errors import InvalidArgument
from labeldp.reproduce import Results, default_folder

ADD = """
import sys
from pathlib import Path
from labeldp.reproduce.results import Results
results = Results(Path(sys.argv[1]))
for number in range(30):
    results.append("mnist", {"kind": "run", "run": f"{sys.argv[2]}-{number}"})
    results.look(table="mnist", draw=f"{sys.argv[2]}-{number}")
"""


def test_two_processes_that_add_at_once_lose_nothing(results, looks):
    words = [sys.executable, "-c", ADD, str(results.folder)]
    children = [subprocess.Popen([*words, name]) for name in ("a", "b")]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    expected = {f"{name}-{number}" for name in "ab" for number in range(30)}
    assert {record["run"] for record in results.records("mnist")} == expected and len(results.records("mnist")) == 60
    assert sorted(look[5] for look in looks()) == sorted(expected)
    assert results.looks_file.read_text().count("# Looks at test sets") == 1
    assert sorted(file.name for file in results.folder.iterdir()) == ["mnist.json", "test-looks.md"]


def test_looks_are_read_back_by_table(results):
    facts = {
        "recipe": "best-local",
        "hash": "b" * 16,
        "epsilon": "1",
        "draw": 1,
        "commit": "c0ffee",
        "why": "begun | again",
    }
    results.look(table="mnist", **facts)
    results.look(table="kmnist", rows=500, **facts)
    (whole,), (part,) = results.looks("mnist"), results.looks("kmnist")
    assert (whole["recipe"], whole["hash"], whole["epsilon"], whole["rows"]) == ("best-local", "b" * 16, "1", "")
    assert (part["rows"], part["why"]) == ("500", "begun / again") and results.looks("cifar-10") == []


def test_a_run_is_recorded_once(results):
    assert results.append("mnist", {"kind": "run", "run": "x", "value": 1})
    assert not results.append("mnist", {"kind": "run", "run": "x", "value": 2})
    assert [record["value"] for record in results.records("mnist")] == [1]


def test_a_record_is_a_line_of_json(results):
    for number in range(3):
        results.append("mnist", {"kind": "run", "run": str(number)})
    text = results.file("mnist").read_text()
    assert len(text.splitlines()) == 5 and len(json.loads(text)["records"]) == 3


@pytest.mark.parametrize("text", ["", "[]", '{"records": [{"figure": "parts"}]}', '{"records": 3}'])
def test_a_file_of_something_else_is_left_alone(results, text):
    results.folder.mkdir()
    results.file("mnist").write_text(text)
    with pytest.raises(InvalidArgument, match="does not hold records of labeldp reproduce"):
        results.append("mnist", {"kind": "run", "run": "x"})
    assert results.file("mnist").read_text() == text


def test_results_go_to_the_projects_own_folder_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(default_folder()) == "results"
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    assert str(default_folder()) == "benchmarks/results"


def test_where_nothing_was_recorded_there_is_nothing(tmp_path):
    assert Results(tmp_path / "none").records("mnist") == [] and not (tmp_path / "none").exists()
