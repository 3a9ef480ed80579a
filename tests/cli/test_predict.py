"""`labeldp predict` in the shell: a finished run's model on new rows, as CSV."""

from __future__ import annotations

import csv
import os
import pickle
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp import datasets, report, runs
from labeldp.runs import RunFolder

X = datasets.load("digits").X_test


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recipe = runs.Recipe(data="digits", model="linear", epsilon="2", rows=200).changed({"training.epochs": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write_run", lambda *_, **__: None)
        folder = runs.train(recipe, tmp_path_factory.mktemp("run"))
    yield folder.path
    torch.set_num_threads(threads)


@pytest.fixture
def shell(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    return partial(command, "predict")


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return header, rows


def test_the_csv_holds_the_models_probabilities(shell, run):
    code, out, err = shell(run, "--out", "p.csv")
    assert (code, out) == (0, "") and err == "360 rows predicted by linear (epsilon 2): p.csv\n"
    header, rows = read("p.csv")
    assert header == ["row", "predicted", *(f"p({digit})" for digit in range(10))]
    loaded = ldp.load(run)
    assert [int(row[0]) for row in rows] == list(range(360))
    assert [int(row[1]) for row in rows] == loaded.predict(X).tolist()
    np.testing.assert_allclose([[float(p) for p in row[2:]] for row in rows], loaded.predict_proba(X), rtol=1e-5)


def test_rows_come_from_a_file_of_numbers(shell, run):
    np.save("rows.npy", X[:7])
    assert shell(run, "--data", "rows.npy", "--out", "a.csv")[0] == 0
    assert shell(run, "--data", "digits", "--out", "b.csv")[0] == 0
    assert read("a.csv")[1] == read("b.csv")[1][:7]
    np.save("none.npy", X[:0])
    assert shell(run, "--data", "none.npy", "--out", "c.csv")[0] == 0
    assert read("c.csv") == (read("a.csv")[0], [])


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


def test_a_pickle_is_refused_and_not_run(shell, run):
    np.save("objects.npy", np.array([Trap(), 1], dtype=object), allow_pickle=True)
    Path("bare.npy").write_bytes(pickle.dumps(Trap()))
    for name in ("objects.npy", "bare.npy"):
        code, _, err = shell(run, "--data", name, "--out", "p.csv")
        assert code == 1 and f"{name} must be an array of numbers" in err
    assert not Path("sprung").exists() and not Path("p.csv").exists()


def test_files_that_are_no_rows_are_refused(shell, run, tmp_path):
    Path("empty.npy").write_bytes(b"")
    np.save("number.npy", np.array(3))
    with open("zip.npy", "wb") as file:
        np.savez(file, X=X)
    for name in ("empty.npy", "number.npy", "zip.npy"):
        code, _, err = shell(run, "--data", name, "--out", "p.csv")
        assert code == 1 and f"{name} must be an array of numbers, one row each, written by numpy.save." in err
    np.save("flat.npy", X.reshape(len(X), -1)[:, :5])
    np.save("words.npy", np.array(["a", "b"]))
    for name in ("flat.npy", "words.npy"):
        code, _, err = shell(run, "--data", name, "--out", "p.csv")
        assert code == 1 and "X must be images as the run was trained on" in err
    assert not Path("p.csv").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("nowhere --out p.csv", 1, "nowhere is not a run folder"),
        ("{run} --data none.npy --out p.csv", 1, "No such file or directory: none.npy"),
        ("{run} --data digit --out p.csv", 1, "Did you mean 'digits'?"),
        ("{run} --data mnist --data-dir here --out p.csv", 1, "Put that folder into here"),
        ("{run} --out no/p.csv", 2, "--out: there is no folder no."),
        ("{run}", 2, "Missing option '--out'"),
        ("--out p.csv", 2, "Missing argument 'RUN'"),
    ],
)
def test_failures_say_what_must_hold(shell, run, words, code, says):
    found, out, err = shell(*shlex.split(words.format(run=run)))
    assert (found, out) == (code, "") and says in " ".join(err.split()) and "Traceback" not in err
    assert not os.listdir()


def test_an_unfinished_run_says_how_to_go_on(shell, run):
    RunFolder("half done").create(RunFolder(run).recipe(), {"classes": [0, 1], "inputs": {}})
    code, _, err = shell("half done", "--out", "p.csv")
    assert code == 1 and "labeldp train --resume --out 'half done'" in err and not Path("p.csv").exists()


def test_classes_keep_their_names_whatever_is_in_them(shell, run):
    names = ["a,b", 'c"d', "e\nf", *map(str, range(7))]
    facts = RunFolder(run).facts()
    named = RunFolder("named")
    named.create(RunFolder(run).recipe(), {"classes": names, "inputs": facts["inputs"]})
    named.model_file.write_bytes(RunFolder(run).model_file.read_bytes())
    np.save("rows.npy", X)
    assert shell("named", "--data", "rows.npy", "--out", "p.csv")[0] == 0
    header, rows = read("p.csv")
    assert header[2:] == [f"p({name})" for name in names]
    assert {row[1] for row in rows} == set(ldp.load("named").predict(X)) <= set(names)


def test_its_help_loads_no_torch():
    script = (
        "import sys; from labeldp.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'scipy', 'sklearn'} & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script, "predict", "--help"], capture_output=True, text=True, timeout=60
    )
    assert shown.stdout.splitlines()[-1] == "[]" and "--data-dir" in shown.stdout


@pytest.mark.parametrize("file", ["people.csv", "people.csv.ledger", "model.safetensors"])
def test_no_file_is_written_over(shell, run, file):
    Path(file).write_text("it may be a table, a ledger or a model")
    code, _, err = shell(run, "--out", file)
    assert code == 2 and ("exists; remove it" in err or "must be a file that ends in" in err)
    assert Path(file).read_text() == "it may be a table, a ledger or a model"


def test_a_prediction_that_fails_leaves_no_file(shell, run):
    np.save("large.npy", np.zeros((3, 1, 9, 9), np.uint8))
    np.save("floats.npy", X[:3] * 1.0)
    for file in ("large.npy", "floats.npy"):
        code, _, err = shell(run, "--data", file, "--out", "p.csv")
        assert code == 1 and "images as the run was trained on, bytes (uint8) of shape ('n', 1, 8, 8)" in err
    assert not Path("p.csv").exists()


def test_a_parquet_file_holds_the_same(shell, run):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert shell(run, "--out", "p.csv")[0] == shell(run, "--out", "p.parquet")[0] == 0
    columns = parquet.read_table("p.parquet").to_pydict()
    header, rows = read("p.csv")
    assert list(columns) == header
    assert columns["predicted"] == [int(row[1]) for row in rows]
    np.testing.assert_allclose(columns["p(3)"], [float(row[5]) for row in rows], rtol=1e-5)
