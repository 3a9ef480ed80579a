"""A student learns what its teacher and the releases say together, and asks nothing."""

from __future__ import annotations

import numpy as np
import pytest
from doubles import Scripted, softmax

import labeldp as ldp
from labeldp.errors import InvalidArgument
from labeldp.learning import Lesson, together
from labeldp.priors import bag_posterior

N, K = 40, 3
LABELS = np.arange(N) % K
LOGITS = np.random.default_rng(0).normal(size=(N, K))
ROWS = np.arange(5, 35)
TAUGHT = softmax(LOGITS[ROWS])


def vault():
    return ldp.LabelVault(LABELS, classes=K, budget="2", trust="curator")


@pytest.fixture(scope="module")
def reports():
    return vault().release(ldp.GroupedResponse("1"), ROWS)


@pytest.fixture(scope="module")
def counts():
    return vault().histogram(np.arange(len(ROWS)) % 4, "1", rows=ROWS)


def test_the_targets_are_the_teachers_word_times_the_likelihood_of_each_report(reports):
    targets = Lesson(TAUGHT, [reports]).targets(TAUGHT)
    joint = TAUGHT * reports.likelihood()
    np.testing.assert_allclose(targets.shares, joint / joint.sum(axis=1, keepdims=True), rtol=1e-12)
    assert targets.rows.tolist() == ROWS.tolist()
    assert all(each is reports for each in targets.releases)


def test_targets_add_up_to_the_counts_where_there_are_counts(counts):
    targets = Lesson(TAUGHT, counts=counts).targets(TAUGHT)
    np.testing.assert_allclose(targets.shares, bag_posterior(TAUGHT, counts), rtol=1e-12)


def test_after_a_round_teacher_and_student_together_take_the_teachers_place(reports):
    student, X = Scripted(), 3 * LOGITS
    lesson = Lesson(TAUGHT, [reports], rounds=3)
    lesson.teach(student, X)
    first, second, third = (fit["releases"][0].shares for fit in student.journal)
    np.testing.assert_allclose(first, lesson.targets(TAUGHT).shares)
    np.testing.assert_allclose(second, lesson.targets(together(TAUGHT, softmax(X[ROWS]))).shares)
    np.testing.assert_allclose(third, lesson.targets(together(TAUGHT, softmax(2 * X[ROWS]))).shares)


def test_with_no_share_the_teacher_speaks_in_the_first_round_alone(reports):
    student, X = Scripted(), 3 * LOGITS
    lesson = Lesson(TAUGHT, [reports], rounds=2, share=0.0)
    lesson.teach(student, X)
    first, second = (fit["releases"][0].shares for fit in student.journal)
    np.testing.assert_allclose(first, lesson.targets(TAUGHT).shares)
    np.testing.assert_allclose(second, lesson.targets(softmax(X[ROWS])).shares)


def test_each_round_starts_from_the_last_and_counts_its_epochs_on(reports):
    student, seen = Scripted(), []
    lesson = Lesson(TAUGHT, [reports], rounds=2)
    taught = lesson.teach(student, LOGITS, watch=lambda _, epoch: seen.append((epoch["epoch"], epoch["epochs"])))
    assert [fit["start"] is None for fit in student.journal] == [True, False]
    assert seen == [(1, 2), (2, 2)]
    assert taught.stage == 2 and student.stage == 0  # a copy learned


def test_two_models_together_are_their_geometric_mean_of_which_the_teacher_has_a_quarter():
    teacher, student = np.array([[16 / 18, 1 / 18, 1 / 18]]), np.array([[1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(together(teacher, student), [[0.5, 0.25, 0.25]])
    np.testing.assert_allclose(together(student, teacher), [[8 / 10, 1 / 10, 1 / 10]])


def test_one_model_alone_rules_nothing_out():
    found = together(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]))
    assert 0 < found[0, 1] < found[0, 0] < 1


def test_a_lesson_without_releases_or_with_other_rows_is_refused(reports):
    with pytest.raises(InvalidArgument, match="must be of releases"):
        Lesson(TAUGHT)
    with pytest.raises(InvalidArgument):
        Lesson(TAUGHT[1:], [reports])
    with pytest.raises(InvalidArgument, match="rounds"):
        Lesson(TAUGHT, [reports], rounds=0)
    with pytest.raises(InvalidArgument, match="share must be between 0 and 1, got 2"):
        Lesson(TAUGHT, [reports], share=2)


def test_labels_and_releases_of_other_classes_are_no_lesson(reports):
    with pytest.raises(InvalidArgument, match="releases of a vault"):
        Lesson(TAUGHT, [LABELS[ROWS]])
    other = ldp.LabelVault(np.array(list("abc"))[LABELS], classes=list("abc"), budget="1").release(
        ldp.GroupedResponse("1"), ROWS
    )
    with pytest.raises(InvalidArgument, match="same classes"):
        Lesson(TAUGHT, [reports, other])


def test_a_lesson_shows_how_much_it_is_about_and_whether_it_is_private(reports):
    assert repr(Lesson(TAUGHT, [reports])) == "<Lesson about 30 rows, 3 classes>"
    replayed = ldp.LabelVault(LABELS, classes=K, budget="1", bits=ldp.InsecureBits(0)).release(
        ldp.GroupedResponse("1"), ROWS
    )
    assert "NOT PRIVATE" in repr(Lesson(TAUGHT, [replayed]))
