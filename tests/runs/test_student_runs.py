"""Runs with a student: taught for free by the last stage's model, with which it predicts together."""

from __future__ import annotations

import numpy as np
import pytest

import labeldp as ldp
from labeldp import datasets, runs
from labeldp.errors import InvalidArgument
from labeldp.learning import Lesson, together
from labeldp.runs import Recipe

DIGITS = datasets.load("digits")
STUDENT = {"student.model": "tiny-conv", "student.rounds": 2, "student.epochs": 1, "student.batch_size": 32}


@pytest.fixture(scope="module")
def with_student(on_patches):
    return on_patches.changed(STUDENT)


@pytest.fixture(scope="module")
def run(with_student, cache, one_thread, tmp_path_factory):
    """A finished run with a student. Nobody changes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labeldp.report.write_run", lambda *_, **__: None)
        return runs.train(with_student, tmp_path_factory.mktemp("runs") / "run", cache=cache)


def last(records, kind):
    return [record for record in records if record["kind"] == kind][-1]


def test_a_student_is_tested_together_with_its_teacher_after_the_last_stage(run):
    records = run.records()
    assert [record["stage"] for record in records if record["kind"] == "test"] == [1, 2, 3]
    assert last(records, "student")["rows"] == 196  # all but the hold-out
    assert last(records, "epoch")["epoch"] == 2
    right = ldp.load(run.path).predict(DIGITS.X_test) == np.array(DIGITS.classes)[DIGITS.test_labels]
    assert last(records, "test")["accuracy"] == pytest.approx(right.mean())


def test_the_loaded_run_predicts_what_both_models_say_together(run):
    loaded = ldp.load(run.path)
    images = DIGITS.X_test[:50]
    both = together(loaded._taught(images), loaded._student.predict_proba(images))
    np.testing.assert_allclose(loaded.predict_proba(images), both)
    assert not np.allclose(both, loaded._taught(images))


def test_a_teacher_without_a_share_has_no_part_in_what_is_predicted(run, with_student, cache, tmp_path):
    quick = with_student.changed({"student.share": 0.0, "student.precision": "bfloat16"})
    alone = runs.train_again(quick, run.path, tmp_path / "alone", cache=cache)
    loaded = ldp.load(alone.path)
    told = loaded._student.predict_proba(DIGITS.X_test)
    np.testing.assert_allclose(loaded.predict_proba(DIGITS.X_test), told, rtol=1e-5, atol=1e-7)
    assert last(alone.records(), "test")["accuracy"] == pytest.approx((told.argmax(1) == DIGITS.test_labels).mean())


def test_a_student_by_the_likelihood_learns_nothing_of_its_teacher(run, with_student, cache, one_thread, tmp_path):
    own = with_student.changed({"student.loss": "likelihood", "student.share": 0.0})
    other = own.changed({"training.epochs": 3})
    one, two = (
        runs.train_again(each, run.path, tmp_path / name, cache=cache) for name, each in (("a", own), ("b", other))
    )
    assert one.student_file.read_bytes() == two.student_file.read_bytes()
    assert one.model_file.read_bytes() != two.model_file.read_bytes()


def test_settings_reach_the_lesson_and_its_student(run, with_student, cache, tmp_path, monkeypatch):
    told = []

    def teach(lesson, student, X, **_):
        told.append((lesson.share, student.precision, student.shift, student.smoothing))
        raise KeyboardInterrupt

    monkeypatch.setattr(Lesson, "teach", teach)
    quick = {"student.share": 0.1, "student.precision": "bfloat16", "student.shift": 1, "student.smoothing": 0.2}
    for number, changes in enumerate(({}, quick)):
        with pytest.raises(KeyboardInterrupt):
            runs.train_again(with_student.changed(changes), run.path, tmp_path / f"{number}", cache=cache)
    assert told == [(0.25, "float32", 0, 0.0), (0.1, "bfloat16", 1, 0.2)]


def test_a_loaded_student_predicts_as_the_trained_one_did(run, with_student, cache, tmp_path):
    changes = {"student.flip": True, "student.shift": 1, "student.share": 0.0}
    again = runs.train_again(with_student.changed(changes), run.path, tmp_path / "run", cache=cache)
    student = ldp.load(again.path)._student
    assert (student.mirror, student.shift) == (True, 1)
    right = student.predict_proba(DIGITS.X_test).argmax(axis=1) == DIGITS.test_labels
    assert last(again.records(), "test")["accuracy"] == pytest.approx(right.mean())


def test_settings_that_a_recipe_leaves_out_are_not_in_its_hash(with_student):
    assert not {"share", "precision", "loss", "first", "shift", "smoothing"} & set(
        with_student.toml().partition("[student]")[2].replace("=", " ").split()
    )


def test_a_student_between_stages_helps_to_ask_at_no_cost(with_student, run, cache, one_thread, tmp_path):
    helped = runs.train(with_student.changed({"student.first": 1}), tmp_path / "run", cache=cache)
    epochs = [(each["stage"], each["epoch"]) for each in helped.records() if each["kind"] == "epoch"]
    assert epochs == [(1, 1), (1.5, 1), (1.5, 2), (2, 1), (3, 1), (3, 2)]
    students = [(each["stage"], each["rows"]) for each in helped.records() if each["kind"] == "student"]
    assert students == [(1.5, 98), (3, 196)]
    costs = [[query["epsilon"] for query in each.certificate()["queries"]] for each in (helped, run)]
    assert costs[0] == costs[1]


def test_a_student_costs_nothing(run, recipe):
    assert run.certificate()["guarantee"].startswith("Label differential privacy with epsilon 2 ")
    assert [query["labels charged"] for query in run.certificate()["queries"]] == [4, 98, 98]


def test_a_run_gets_a_student_later_for_free(run, with_student, cache, tmp_path):
    other = with_student.changed({"student.rounds": 1, "student.flip": True})
    again = runs.train_again(other, run.path, tmp_path / "again", cache=cache)
    assert again.certificate()["queries"] == run.certificate()["queries"]
    assert last(again.records(), "epoch")["epochs"] == 1
    assert ldp.load(again.path).recipe.student.flip


def test_a_recipe_with_a_student_survives_its_toml(with_student):
    assert Recipe.parse(with_student.toml()) == with_student


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"student.model": "logistic"}, "one of torch's networks"),
        ({"student.rounds": 0}, "student.rounds"),
        ({"student.precision": "float16"}, "student.precision must be one of 'float32', 'bfloat16'"),
        ({"student.share": 1.5}, "student.share must be between 0 and 1"),
        ({"student.shift": -1}, "student.shift"),
        ({"student.smoothing": 1.0}, r"student.smoothing must lie in \[0, 1\), got 1.0"),
        ({"student.smoothing": 0.2, "student.loss": "likelihood"}, "no targets to smooth: leave out student.smoothing"),
        ({"student.loss": "debiased"}, "student.loss must be one of 'posterior', 'likelihood'"),
        ({"student.loss": "likelihood", "prior.epsilon": "0.1"}, "student.loss must be 'posterior' where models learn"),
        ({"student.first": 2}, "student.first must be a stage before the last, .* got 2 of 2"),
        ({"student.first": 0}, "student.first must be a stage before the last"),
        ({"student.colour": 1}, "knows no 'colour'"),
        ({"features": "arrays:a.npy,b.npy"}, "not for a file or arrays"),
    ],
)
def test_a_student_that_cannot_be_is_refused_by_the_recipe(with_student, change, says):
    with pytest.raises(InvalidArgument, match=says):
        with_student.changed(change)


def test_a_student_that_cannot_read_the_inputs_is_refused_before_anything_is_asked(with_student, cache, tmp_path):
    with pytest.raises(InvalidArgument, match="takes inputs"):
        runs.train(with_student.changed({"student.model": "ncf"}), tmp_path / "run", cache=cache)
    assert not (tmp_path / "run" / "ledger").exists()
