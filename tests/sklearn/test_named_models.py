"""Scikit-learn's models by name: they learn from tables with gaps and categories, and from images, and come back from files."""

from __future__ import annotations

import json

import numpy as np
import pytest

import labeldp as ldp
from labeldp import datasets
from labeldp.errors import InvalidArgument
from labeldp.runs import families
from labeldp.runs.plans import Training
from labeldp.sklearn import SklearnLearner, named

pd = pytest.importorskip("pandas")

N_ROWS = 240
FRAME = {
    "kind": "frame",
    "columns": [
        {"name": "age", "kind": "number"},
        {"name": "seldom", "kind": "number"},
        {"name": "job", "kind": "category", "categories": ["cook", "nurse", "(other)"]},
        {"name": "town", "kind": "category", "categories": ["here"]},
        {"name": "empty", "kind": "category", "categories": []},
    ],
}


def people(n_rows=N_ROWS, seed=0):
    """A frame with gaps: `seldom` and `town` say something in one row only. The label is written all over `age` and `job`."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n_rows)
    age = np.where(rng.random(n_rows) < 0.1, np.nan, 40 + 10 * truth + rng.normal(0, 3, n_rows))
    job = np.where(rng.random(n_rows) < 0.1, -1, truth)
    once = np.arange(n_rows) == 7

    def categories(codes, column):
        return pd.Categorical.from_codes(codes, categories=FRAME["columns"][column]["categories"])

    X = pd.DataFrame({
        "age": age,
        "seldom": np.where(once, 1.0, np.nan),
        "job": categories(job, 2),
        "town": categories(np.where(once, 0, -1), 3),
        "empty": categories(np.full(n_rows, -1), 4),
    })  # fmt: skip
    return X, truth


def numbers(n_rows=N_ROWS, seed=0):
    """A table of floats, one column of which holds codes."""
    X, truth = people(n_rows, seed)
    codes = X["job"].cat.codes.to_numpy().astype(float)
    return np.column_stack([X["age"], X["seldom"], np.where(codes < 0, np.nan, codes)]), truth


TABLE = {"kind": "table", "columns": ["age", "seldom", "job"], "categorical": ["job"]}


def fitted(name, inputs, X, truth):
    vault = ldp.LabelVault(truth, classes=int(truth.max()) + 1, budget="6", bits=ldp.InsecureBits(3))
    estimator = named.build(name, inputs, int(truth.max()) + 1, seed=1)
    learner = SklearnLearner(estimator, rounds=1, folds=2)
    rows = named.readable(X, inputs)
    learner.check(rows, len(vault.classes))
    return learner.fit(rows, vault.release(ldp.RandomizedResponse("6")))


@pytest.fixture(params=named.names())
def name(request):
    return request.param


@pytest.mark.parametrize(("inputs", "make"), [(FRAME, people), (TABLE, numbers)], ids=["frame", "table"])
def test_a_model_learns_from_a_table_with_gaps_and_comes_back_from_its_file(tmp_path, name, inputs, make):
    X, truth = make()
    learner = fitted(name, inputs, X, truth)
    new, new_truth = make(seed=9)
    predicted = learner.predict_proba(named.readable(new, inputs))
    assert (predicted.argmax(axis=1) == new_truth).mean() > 0.85
    learner.save(tmp_path / "model.skops")
    again = SklearnLearner(named.build(name, json.loads(json.dumps(inputs)), 2)).load(tmp_path / "model.skops")
    assert again.predict_proba(named.readable(new, inputs)).tobytes() == predicted.tobytes()


def test_new_rows_may_say_what_no_row_said_and_leave_out_what_all_did(name):
    X, truth = people()
    learner = fitted(name, FRAME, X, truth)
    strange = X.iloc[:4].copy()
    strange["job"] = pd.Categorical.from_codes([2, -1, 2, 0], categories=FRAME["columns"][2]["categories"])
    strange["age"] = np.nan
    assert np.allclose(learner.predict_proba(strange).sum(axis=1), 1)


def test_a_model_learns_from_images(name, tmp_path):
    digits = datasets.load("digits")
    X, truth = digits.X_test[:, :, 2:6, 2:6], digits.test_labels % 2
    inputs = {"kind": "image", "shape": [1, 4, 4]}
    learner = fitted(name, inputs, X, truth)
    predicted = learner.predict_proba(named.readable(X, inputs))
    assert (predicted.argmax(axis=1) == truth).mean() > 0.75
    learner.save(tmp_path / "model")
    assert SklearnLearner(named.build(name, inputs, 2)).load(tmp_path / "model").model_ is not None


def test_a_later_stage_may_start_from_a_model_that_saw_other_categories(name):
    X, truth = people()
    vault = ldp.LabelVault(truth, classes=2, budget="6", bits=ldp.InsecureBits(3))
    first = SklearnLearner(named.build(name, FRAME, 2), rounds=1, folds=2)
    early = np.arange(8, N_ROWS)  # neither `seldom` nor `town` says anything here
    rows = named.readable(X, FRAME)
    one = vault.release(ldp.RandomizedResponse("6"), rows=early)
    two = vault.release(ldp.RandomizedResponse("6"), rows=np.arange(8))
    first.fit(rows, one)
    second = SklearnLearner(named.build(name, FRAME, 2), rounds=1, folds=2).fit(rows, [one, two], start=first)
    assert second.predict_proba(rows).shape == (N_ROWS, 2)


def test_the_seed_decides_the_forest():
    X, truth = people()
    a, b = (named.build("forest", FRAME, 2, seed=seed).fit(X, truth).predict_proba(X) for seed in (1, 2))
    assert a.tobytes() != b.tobytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bosting", FRAME, 2), "name must be one of 'boosting', 'forest', 'logistic', got 'bosting'"),
        (("forest", {"kind": "ids", "sizes": [3, 4]}, 2), "read tables and images, not inputs of kind 'ids'"),
        (("forest", FRAME, 1), "n_classes must be between 2 and"),
        (("forest", {"kind": "frame", "columns": FRAME["columns"][-1:]}, 2), "a column that says something"),
    ],
)
def test_what_cannot_be_built_is_said(arguments, words):
    with pytest.raises(InvalidArgument) as refused:
        named.build(*arguments)
    assert words in str(refused.value)


def test_recipes_know_the_same_models_and_settings_without_scikit_learn():
    assert named.names() == families.SKLEARN_MODELS
    learner = SklearnLearner(named.build("forest", TABLE, 2))
    assert (Training().rounds, Training().folds) == (learner.rounds, learner.folds)
