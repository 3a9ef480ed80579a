"""A student learns what its teacher and the releases say together, and asks nothing."""

from __future__ import annotations

import numpy as np
import pytest
from doubles import Scripted, WatchedVault, softmax

import labeldp as ldp
from labeldp.errors import InvalidArgument
from labeldp.learning import Lesson, MultiStage, Pupil, together
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


def test_a_student_that_has_learned_before_goes_on_and_speaks_in_the_first_round(reports):
    student, X = Scripted(), 3 * LOGITS
    start = Scripted(stage=2)
    lesson = Lesson(TAUGHT, [reports])
    lesson.teach(student, X, start=start)
    assert student.journal[0]["start"] is start
    expected = lesson.targets(together(TAUGHT, softmax(2 * X[ROWS]))).shares
    np.testing.assert_allclose(student.journal[0]["releases"][0].shares, expected)


def test_by_the_likelihood_a_student_learns_from_the_reports_themselves(reports):
    student = Scripted()
    Lesson(TAUGHT, [reports], loss="likelihood").teach(student, LOGITS)
    assert student.journal[0]["releases"] == [reports]


def test_counts_have_no_likelihood_row_by_row(reports, counts):
    with pytest.raises(InvalidArgument, match="where counts of groups are learned from, loss must be 'posterior'"):
        Lesson(TAUGHT, [reports], counts, loss="likelihood")
    with pytest.raises(InvalidArgument, match="loss must be one of 'posterior', 'likelihood', got 'debiased'"):
        Lesson(TAUGHT, [reports], loss="debiased")


def test_each_round_has_a_seed_of_its_own(reports):
    seeds = []

    class Seeded(Scripted):
        seed = 7

        def fit(self, *given, **how):
            seeds.append(self.seed)
            return super().fit(*given, **how)

    taught = Lesson(TAUGHT, [reports], rounds=2).teach(Seeded(), LOGITS)
    Lesson(TAUGHT, [reports], rounds=2).teach(Seeded(), LOGITS, start=taught)
    assert seeds == [7, 8, 9, 10] and Seeded.seed == 7


def between_stages(first, **settings):
    """Three stages of a scripted teacher, and what the vault was asked."""
    asked = WatchedVault(vault())
    pupil = Pupil(Scripted(), 3 * LOGITS, rounds=2, share=0.5, first=first)
    told = []
    stages = MultiStage(Scripted(), stages=3, mechanism=ldp.RRWithPrior, pupil=pupil, **settings)
    return stages.fit(LOGITS, asked, "1", watch=told.append), asked.asked, told


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"X": LOGITS[1:]}, "the pupil's X must have one row per label .40., got 39"),
        ({"X": np.vstack([LOGITS, LOGITS])}, "got 80"),
        ({"X": LOGITS[:, 1:]}, "one column per class"),
        ({"first": 3}, "first stage must come before the last, .* got 3 of 3"),
        ({"learner": Scripted(), "loss": "likelihood"}, "needs one noisy label per row, and groups"),
    ],
)
def test_a_pupil_that_cannot_be_taught_is_refused_before_anything_is_asked(changes, says):
    asked = WatchedVault(vault())
    pupil = Pupil(**{"learner": Scripted("likelihood"), "X": LOGITS, "first": 1} | changes)
    stages = MultiStage(Scripted("likelihood"), stages=3, mechanism=ldp.GroupedResponse, pupil=pupil)
    with pytest.raises(InvalidArgument, match=says):
        stages.fit(LOGITS, asked, "1")
    assert asked.asked == [] and asked.spent().epsilon == "0"


@pytest.mark.parametrize("changes", [{"rounds": 0}, {"share": 2}, {"loss": "likelyhood"}, {"first": 0}, {"first": "2"}])
def test_a_pupil_whose_settings_make_no_sense_is_refused_at_once(changes):
    with pytest.raises(InvalidArgument):
        Pupil(Scripted(), LOGITS, **changes)


def test_what_is_no_pupil_is_refused_at_once():
    with pytest.raises(InvalidArgument, match="pupil must be a Pupil, got Scripted"):
        MultiStage(Scripted(), pupil=Scripted())


def test_a_pupil_helps_to_ask_from_its_first_stage_on():
    stages, asked, _ = between_stages(first=2)
    assert asked[0]["priors"] is None
    np.testing.assert_allclose(asked[1]["priors"], softmax(LOGITS[asked[1]["rows"]]))
    teacher, student = (softmax(times * LOGITS[asked[2]["rows"]]) for times in (2, 2 * 3))  # each fitted twice by then
    np.testing.assert_allclose(asked[2]["priors"], together(teacher, student, share=0.5))
    assert asked[2]["source"] == stages.releases_[:2]


def test_a_pupil_learns_from_what_was_released_by_then_and_goes_on_from_itself():
    stages, asked, _ = between_stages(first=1)
    fits = stages.pupil.learner.journal
    first, second = len(asked[0]["rows"]), len(asked[0]["rows"]) + len(asked[1]["rows"])
    assert [len(fit["releases"][0].rows) for fit in fits] == [first, first, second, second, N, N]
    assert [fit["start"] is None for fit in fits] == [True, False, False, False, False, False]
    assert stages.student_.stage == 6
    assert set(fits[0]["releases"][0].rows) == set(asked[0]["rows"])


def test_a_pupil_without_a_first_stage_is_taught_after_the_last_alone():
    stages, asked, _ = between_stages(first=None)
    assert [len(fit["releases"][0].rows) for fit in stages.pupil.learner.journal] == [N, N]
    np.testing.assert_allclose(asked[2]["priors"], softmax(2 * LOGITS[asked[2]["rows"]]))


def test_a_pupils_epochs_are_told_between_those_of_stages_and_graded_on_the_hold_out():
    _, _, told = between_stages(first=1, hold_out=0.2)
    epochs = [(each["stage"], each["epoch"]) for each in told if each["kind"] == "epoch"]
    assert epochs == [(1, 1), (1.5, 1), (1.5, 2), (2, 1), (2.5, 1), (2.5, 2), (3, 1), (4, 1), (4, 2)]
    assert all(each["hold_out"]["rows"] == 8 for each in told if each["kind"] == "epoch")


def test_a_fit_begins_without_the_student_of_an_earlier_one():
    stages, _, _ = between_stages(first=1)
    again = stages.refit(LOGITS, stages.releases_)
    starts = [fit["start"] is None for fit in stages.pupil.learner.journal]
    assert starts == 2 * [True, False, False, False, False, False] and again.student_.stage == 12


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
