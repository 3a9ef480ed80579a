"""Features and priors in the shell: `labeldp features`, and what `train` and `predict` say and take of them."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from labeldp import datasets, report
from labeldp.cli import progress
from labeldp.runs import Recipe, RunFolder

PATCHES = "patches:patch=3,centroids=8,pool=2,sample=500"
QUICK = f"train --data digits --features {PATCHES} --model linear --epsilon 1 --rows 200 --epochs 1 --threads 1"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def shell(tmp_path, cache, monkeypatch, command):
    """Run `labeldp ...` in an empty folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABELDP_CACHE", str(cache))
    monkeypatch.setattr(report, "write_run", lambda *_, **__: None)
    threads = torch.get_num_threads()

    yield lambda text: command(*shlex.split(text))
    torch.set_num_threads(threads)


# ---------------------------------------------------------------- labeldp features


def test_features_are_computed_and_then_found(shell, cache):
    code, out, err = shell(f"features --data digits --features {PATCHES}")
    learned, computed, training, test = err.splitlines()
    assert (code, out) == (0, "")
    assert learned == "Features: PatchFeatures learns from 1,437 inputs, without labels."
    assert computed == f"Features: 1,797 rows of 32 numbers by {PATCHES}, computed and kept in {cache}."
    assert re.fullmatch(rf"Training: {cache}/\w+\.npy, 1437 x 32\.", training)
    assert re.fullmatch(rf"Test: {cache}/\w+\.npy, 360 x 32\.", test)
    code, _, again = shell(f"features --data digits --features {PATCHES}")
    assert (code, again.splitlines()[1:]) == (0, [training, test])
    assert again.splitlines()[0] == f"Features: 1,797 rows of 32 numbers by {PATCHES}, found in {cache}."


def test_features_as_json(shell, tmp_path):
    code, out, _ = shell(f"features --data digits --features {PATCHES} --cache here --json")
    told = json.loads(out)
    assert code == 0 and set(told) == {"training", "test", "extractor", "seconds"}
    assert (told["training"]["shape"], told["test"]["shape"]) == ([1437, 32], [360, 32])
    assert told["extractor"]["extractor"].startswith("labeldp-patches-") and told["extractor"]["centroids"] == 8
    stored = np.load(told["training"]["file"])
    assert stored.shape == (1437, 32) and Path(told["training"]["file"]).parent == tmp_path / "here"


def test_features_of_a_file_of_images(shell):
    np.save("images.npy", datasets.load("digits").X_test)
    code, out, err = shell(f"features --data images.npy --features {PATCHES} --json")
    told = json.loads(out)
    assert code == 0 and told["training"]["shape"] == [360, 32] and told["test"] is None, err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--data digits --features patch", 2, "Did you mean 'patches'?"),
        ("--data digits --features arrays:a.npy", 2, "arrays are features already"),
        ("--data digits --features patches:patch=30", 1, "images must be at least"),
        ("--data breast-cancer", 1, "features are computed of images, and breast-cancer holds rows of kind 'table'."),
        ("--data digit", 1, "Did you mean 'digits'?"),
        ("--data no.npy", 1, "there is no file no.npy."),
        ("--data flat.npy", 1, "flat.npy must hold images as numpy.save writes them"),
        ("", 2, "Missing option '--data'"),
    ],
)
def test_what_cannot_be_computed_is_said(shell, words, code, says):
    np.save("flat.npy", np.zeros((3, 4), np.uint8))
    failed, out, err = shell(f"features {words}")
    assert (failed, out) == (code, "") and says in err.replace("\n", " ")


def test_its_help_has_examples(shell):
    code, out, _ = shell("features --help")
    assert code == 0 and out.count("labeldp features --data") == 2


# ---------------------------------------------------------------- train


def test_a_run_on_counts_says_what_was_counted_and_who_is_trusted(shell, cache):
    code, out, err = shell(f"{QUICK} --prior clusters:count=20 --out run")
    assert (code, out) == (0, "")
    features, looked_for, counted, figure, promise, trust, *_ = err.splitlines()
    assert features.startswith("Features: 1,797 rows of 32 numbers by patches") and str(cache) in features
    told, _, trusted = looked_for.partition(" Next, ")
    assert told == "Clusters: 20 are looked for among 1,437 rows, without labels."
    assert trusted == "the label holder counts labels in them, with noise: it is trusted as a curator."
    assert counted == "Clusters: 196 labels counted in 20 clusters at epsilon 1."
    assert re.fullmatch(r"\d+\.\d\d% right on 360 rows of public test data\.", figure)
    assert promise.endswith(
        "each label was entrusted to its owner and the label holder, who aggregated before adding noise."
    )
    assert trust == "Trust model: curator." and err.count("curator") == 2
    recipe = RunFolder("run").recipe()
    assert (recipe.features, recipe.release.stages, recipe.prior.count) == (PATCHES, 0, 20)
    resumed = shell("train --resume --out run")
    assert resumed[0] == 0 and "Clusters: 196 labels counted earlier in 20 clusters at epsilon 1." in resumed[2]
    again = shell("train --from run --model logistic --json --out again")
    assert again[0] == 0 and json.loads(again[1])["trust"] == "curator", again[2]


def test_a_prior_may_name_its_part_and_its_own_features(shell, cache):
    spec = PATCHES.replace("=8", "=4")
    code, _, err = shell(f"{QUICK} --prior clusters:epsilon=0.25,features={spec},count=9,components=7 --out run")
    assert code == 0, err
    recipe = RunFolder("run").recipe()
    assert (recipe.prior.epsilon, recipe.prior.features) == ("0.25", spec)
    assert (recipe.prior.count, recipe.prior.components, recipe.release.stages) == (9, 7, 1)
    assert "Clusters: 196 labels counted in 9 clusters at epsilon 0.25." in err
    assert "Stage 1: 196 labels released by GroupedResponse at epsilon 0.75;" in err
    assert len(RunFolder("run").clusters().mean) == 16  # its own features, not the model's


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--prior cluster", "--prior must be clusters"),
        (
            "--prior clusters:eps=1",
            "--prior clusters knows no 'eps=1'. It knows: epsilon, count, features, components, shares.",
        ),
        ("--prior clusters:count=many", "--prior: count must be a whole number, got 'many'."),
        ("--prior clusters:epsilon=2", "prior.epsilon must be at most the run's epsilon (1)"),
        ("--prior clusters --stages 1", "release.stages must be 0 where [prior] takes all of epsilon"),
        ("--features patches:size=3", "patches knows no setting 'size=3'"),
    ],
)
def test_a_wrong_prior_is_a_wrong_command(shell, words, says):
    code, out, err = shell(f"{QUICK} {words} --out run")
    assert (code, out) == (2, "") and says in err and not Path("run").exists()


def test_files_of_features_are_found_from_anywhere(shell, monkeypatch):
    Path("there").mkdir()
    data = datasets.load("digits").only_public()
    np.save("a.npy", data.X.reshape(len(data.X), -1)[:, ::2])
    np.save("b.npy", data.X_test.reshape(len(data.X_test), -1)[:, ::2])
    assert shell(f"{QUICK} --features arrays:a.npy,b.npy --out run")[0] == 0
    monkeypatch.chdir("there")
    RunFolder("../run").model_file.unlink()
    code, _, err = shell("train --resume --out ../run")
    assert code == 0, err
    assert shell("predict ../run --out p.csv")[0] == 0  # the run's own features of test rows
    assert len(Path("p.csv").read_text().splitlines()) == 361
    assert shell("predict ../run --data ../b.npy --out q.csv")[0] == 0
    assert Path("p.csv").read_text() == Path("q.csv").read_text()
    np.save("floats.npy", np.load("../b.npy").astype(np.float32))  # levels of pixels are numbers like others here
    assert shell("predict ../run --data floats.npy --out s.csv")[0] == 0
    assert Path("p.csv").read_text() == Path("s.csv").read_text()
    code, _, err = shell("predict ../run --data digits --out r.csv")
    assert code == 2 and "this run's model reads features that you compute" in err


def test_predict_takes_images_of_a_run_on_features(shell, tmp_path, monkeypatch):
    assert shell(f"{QUICK} --out run")[0] == 0
    monkeypatch.setenv("LABELDP_CACHE", str(tmp_path / "nowhere"))
    np.save("images.npy", datasets.load("digits").X_test)
    assert shell("predict run --out p.csv")[0] == 0
    assert shell("predict run --data images.npy --out q.csv")[0] == 0
    assert Path("p.csv").read_text() == Path("q.csv").read_text() and not (tmp_path / "nowhere").exists()


# ---------------------------------------------------------------- how it looks


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_sees_features_and_counts_in_lines_that_fit(monkeypatch, width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None, highlight=False)
    monkeypatch.setattr(progress, "words", console)
    recipe = Recipe.of({"data": "digits", "model": "linear", "epsilon": "1", "prior": {}})
    with progress.TrainingProgress(recipe) as watch:
        for done in (0, 2_048):
            watch({"kind": "features", "part": "training", "done": done, "rows": 60_000})
            watch._progress.refresh()
        ready = {"spec": "patches", "rows": 70_000, "size": 2_700, "computed": True, "folder": "cache"}
        watch({"kind": "features", "part": None, **ready})
        counts = {"rows": 58_800, "clusters": 2_940, "epsilon": "1", "mean_groups": None, "filtered": None}
        watch({"kind": "stage", "stage": 0, **counts})
        grade = {"accuracy": 1.0, "standard_error": 0.239}
        watch({"kind": "epoch", "stage": 0, "epoch": 3, "epochs": 15, "loss": 0.48, "hold_out": grade})
        watch._progress.refresh()
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n").splitlines()
    bars = [line.rstrip() for line in lines if line.startswith(("features", "clusters"))]
    assert bars and all(len(bar) <= width and "…" not in bar for bar in bars)
    assert any(bar.startswith("features, training") and "rows  2048/60000" in bar for bar in bars)
    assert any(bar.startswith("clusters") and "3/15" in bar and "loss 0.480" in bar for bar in bars)
    assert "stage 0" not in screen.getvalue() and "None" not in screen.getvalue()


def test_counts_that_a_stage_follows_have_no_bar_of_their_own(monkeypatch):
    recipe = Recipe.of({"data": "digits", "model": "linear", "epsilon": "1", "prior": {"epsilon": "0.5"}})
    watch = progress.TrainingProgress(recipe)
    monkeypatch.setattr(progress, "words", Console(file=io.StringIO()))
    watch({"kind": "stage", "stage": 0, "rows": 10, "clusters": 2, "epsilon": "0.5", "filtered": None})
    assert not watch._progress.tasks
