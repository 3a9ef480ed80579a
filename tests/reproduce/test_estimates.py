"""An estimate times an epoch, asks nothing, and counts the epochs of every stage."""

from __future__ import annotations

import pytest

from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument
from labeldp.reproduce import Estimate, estimated, find
from labeldp.reproduce.estimate import measured


def test_an_estimate_reads_no_label(write, monkeypatch):
    def never(*_, **__):
        raise AssertionError

    for name in ("vault", "unprotected", "_held"):
        monkeypatch.setattr(Dataset, name, never)
    entry = write()
    found = measured(entry.at("1"))
    assert found.seconds_per_epoch > 0 and (found.timed_rows, found.threads) == (200, 1)  # the recipe's
    assert 0 < found.processor_share < 2
    record = estimated(entry, "1", found, "labeldp reproduce ..")
    assert record["kind"] == "estimate" and record["hours"] >= 0 and record["trust"] == "local"
    assert record["recipe_hash"] and "student_timed_rows" not in record


def test_a_student_is_timed_too(write, tmp_path):
    entry = write(
        'data = "digits"\nmodel = "linear"\nepsilons = ["1"]\nfeatures = "patches:patch=3,centroids=4,pool=2,sample=500"\n'
        '[student]\nmodel = "tiny-conv"\nepochs = 7\nrounds = 2\n'
    )
    found = measured(entry.at("1"), cache=tmp_path)
    assert found.student_seconds_per_epoch > 0 and found.student_timed_rows == 1437


def test_an_estimate_of_seconds_is_recorded_as_more_than_no_hours(write):
    entry = write(
        'data = "digits"\nmodel = "linear"\nepsilons = ["1"]\n[release]\nhold_out = 0.0\n[training]\nepochs = 12\n'
    )
    found = Estimate(1.0, 100, 1.0, 1)
    seconds = 3600 * estimated(entry, "1", found, "labeldp reproduce ..")["hours"]
    assert seconds == pytest.approx(3600 * found.hours(entry.at("1")), abs=0.05) and seconds > 10


@pytest.mark.parametrize(
    ("lines", "epochs"),
    [
        ("stages = 1\nhold_out = 0.0\n", 10),
        ("stages = 1\nhold_out = 0.5\n", 5),
        ("stages = 2\nsplit = [0.4, 0.6]\nhold_out = 0.0\n", 14),
        ("stages = 4\nhold_out = 0.0\n", 25),
    ],
)
def test_a_stage_trains_on_all_that_was_released_by_then(write, lines, epochs):
    recipe = write(
        f'data = "digits"\nmodel = "linear"\nepsilons = ["1"]\n[release]\n{lines}[training]\nepochs = 10\n'
    ).at("1")
    assert Estimate(360.0, 100, 1.0, 1).hours(recipe) == pytest.approx(0.1 * epochs)


def test_rounds_on_counts_and_students_count(write):
    text = 'data = "digits"\nmodel = "linear"\nepsilons = ["1"]\nfeatures = "patches"\n[prior]\n[release]\nhold_out = 0.0\n'
    text += "[training]\nepochs = 10\nbag_rounds = 3\n"
    assert Estimate(360.0, 100, 1.0, 1).hours(write(text).at("1")) == pytest.approx(4)
    text += '[student]\nmodel = "tiny-conv"\nepochs = 5\nrounds = 2\n'
    assert Estimate(360.0, 100, 1.0, 1, 3600.0, 100).hours(write(text).at("1")) == pytest.approx(4 + 10)


def test_a_student_that_is_taught_between_stages_is_counted_by_the_rows_of_each_lesson(write):
    text = 'data = "digits"\nmodel = "linear"\nepsilons = ["1"]\nfeatures = "patches"\n[release]\nhold_out = 0.0\nstages = 3\n'
    text += "split = [0.25, 0.25, 0.5]\n[training]\nepochs = 1\n"
    text += '[student]\nmodel = "tiny-conv"\nepochs = 5\nrounds = 2\nfirst = 2\n'
    assert Estimate(0.0, 100, 1.0, 1, 3600.0, 100).hours(write(text).at("1")) == pytest.approx(10 * (0.5 + 1))


def test_models_without_epochs_are_not_timed(write):
    with pytest.raises(InvalidArgument, match="logistic has no epochs to time"):
        measured(write('data = "digits"\nmodel = "logistic"\nepsilons = ["1"]\n').at("1"))


def test_sums_are_not_timed_as_if_they_had_epochs():
    with pytest.raises(InvalidArgument, match=r"a recipe on \[sums\] has no epochs to time"):
        measured(find("movielens-1m", ["best-curator"])[0].at("1"))
