"""A finished run as an object."""

from __future__ import annotations

import numpy as np
import pytest

import labeldp as ldp
from labeldp import datasets, runs
from labeldp.errors import InvalidArgument
from labeldp.runs import RunFolder, training

X = datasets.load("digits").X_test


def test_a_loaded_model_predicts_what_the_trained_one_did(recipe, tmp_path, monkeypatch):
    made = []
    stages_of = training.stages_of
    monkeypatch.setattr(training, "stages_of", lambda *given: made.append(stages_of(*given)) or made[0])
    runs.train(recipe.changed({"model": "tiny-conv", "training.averaging": 0.5}), tmp_path)
    loaded = ldp.load(str(tmp_path))
    predicted = loaded.predict_proba(X)
    assert predicted.tobytes() == made[0].model_.predict_proba(X).tobytes()
    assert predicted.shape == (360, 10) and np.allclose(predicted.sum(axis=1), 1)
    assert loaded.predict(X).tolist() == predicted.argmax(axis=1).tolist()


def test_it_says_what_it_is(finished):
    run = ldp.load(finished.path)
    assert repr(run) == f"<Run {finished.path}: linear on digits, epsilon 2>"
    assert run.certificate == finished.certificate() and run.classes == tuple(range(10)) and run.recipe.rows == 200


def test_loading_needs_neither_data_nor_ledger(finished, tmp_path, monkeypatch):
    import shutil

    monkeypatch.setattr(datasets, "load", None)
    for name in ("model.safetensors", "run.json", "recipe.toml"):
        shutil.copy(finished.path / name, tmp_path / name)
    assert ldp.load(tmp_path).predict_proba(X).tobytes() == ldp.load(finished.path).predict_proba(X).tobytes()


def test_an_unfinished_run_says_how_to_go_on(recipe, tmp_path):
    RunFolder(tmp_path / "my run").create(recipe, {"classes": [0, 1], "inputs": {}})
    with pytest.raises(
        InvalidArgument, match=r"has no model yet\. Go on with it: labeldp train --resume --out '.*my run'"
    ):
        ldp.load(tmp_path / "my run")


def test_no_run_is_no_run(tmp_path):
    with pytest.raises(InvalidArgument, match="is not a run folder"):
        ldp.load(tmp_path)


def test_a_model_of_other_layers_is_refused(finished, recipe, tmp_path):
    run = RunFolder(tmp_path)
    run.create(recipe.changed({"model": "mlp"}), {"classes": list(range(10)), "inputs": finished.facts()["inputs"]})
    run.model_file.write_bytes(finished.model_file.read_bytes())
    with pytest.raises(InvalidArgument, match="does not hold this module's weights"):
        ldp.load(tmp_path)
    run.model_file.write_bytes(b"\x80\x04 a pickle")
    with pytest.raises(InvalidArgument, match="does not hold this module's weights"):
        ldp.load(tmp_path)


@pytest.mark.parametrize(
    "wrong", [X[:, :, :7], X[:, 0, 0, 0], np.array(["a"] * 3), np.zeros((2, 1, 8, 8), object), X * 1.0]
)
def test_rows_of_another_shape_are_refused(finished, wrong):
    with pytest.raises(InvalidArgument, match="X must be images as the run was trained on"):
        ldp.load(finished.path).predict_proba(wrong)


@pytest.mark.parametrize("n_rows", [0, 1, 1001])
def test_any_number_of_rows_is_predicted(finished, n_rows):
    many = np.concatenate([X, X, X])[:n_rows]
    assert ldp.load(finished.path).predict_proba(many).shape == (n_rows, 10)
