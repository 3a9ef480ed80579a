"""Runs of the latest hash are pooled: all of them, and nothing else."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from made_up_records import run

from labeldp.reproduce import pooled


def test_a_cell_is_the_mean_of_its_runs_and_never_the_best():
    (cell,) = pooled([run(97.0), run(99.0), run(98.0)])
    assert (cell.mean, cell.spread, cell.runs, cell.hashes) == (98.0, 1.0, 3, 1)
    assert cell.values == (97.0, 99.0, 98.0) and cell.mean_seconds == 10.0


def test_one_run_has_no_spread():
    (cell,) = pooled([run(97.0, seconds=None)])
    assert (cell.spread, cell.runs, cell.mean_seconds) == (None, 1, None)


def test_a_new_hash_is_a_new_attempt_and_is_shown_even_if_it_is_worse():
    later = {"recipe_hash": "b", "time": "2026-01-02T00:00:00Z"}
    for records in itertools.permutations([run(99.0), run(98.9), run(90.0, **later)]):
        (cell,) = pooled(records)
        assert (cell.mean, cell.runs, cell.recipe_hash, cell.hashes) == (90.0, 1, "b", 2)


def test_going_back_to_an_earlier_hash_pools_all_of_its_runs():
    (cell,) = pooled(
        [
            run(80.0),
            run(99.0, recipe_hash="b", time="2026-01-02T00:00:00Z"),
            run(82.0, time="2026-01-03T00:00:00Z"),
        ]
    )
    assert (cell.values, cell.hashes) == ((80.0, 82.0), 2)


@pytest.mark.parametrize(
    "other",
    [
        {"rows": 2000},
        {"trust": "curator"},
        {"recipe": "paper-2st"},
        {"recipe": "own:best-local"},
        {"epsilon": "2"},
        {"dataset": "kmnist"},
        {"data": "d2"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_is_not_alike_is_not_pooled(other):
    cells = pooled([run(97.0), run(99.0, **other)])
    assert [cell.values for cell in cells] == [(97.0,), (99.0,)]


def test_of_cells_on_different_data_the_latest_is_last_and_each_says_that_there_are_others():
    later = {"time": "2026-01-02T00:00:00Z"}
    cells = pooled([run(90.0, data="d2", **later), run(97.0), run(80.0, epsilon="2")])
    assert [(cell.data, cell.data_versions, cell.mean) for cell in cells] == [
        ("d1", 2, 97.0),
        ("d2", 2, 90.0),
        ("d1", 1, 80.0),
    ]


def test_a_cell_counts_the_commits_of_its_runs_and_of_no_other_hash():
    older = run(80.0, recipe_hash="b", commit="beef", time="2025-01-01T00:00:00Z")
    runs = [run(97.0), run(98.0), run(99.0, commit="d00d", commits=["c0ffee", "c0ffee+changes", "d00d"])]
    assert pooled([older, *runs[:2]])[0].commits == 1
    (cell,) = pooled([older, *runs])
    assert cell.commits == 3 and cell.plain()["commits"] == 3


def test_estimates_are_no_runs():
    assert pooled([{"kind": "estimate", "hours": 41}]) == []


def test_a_cell_is_plain_json():
    (cell,) = pooled([run(97.0), run(98.0)])
    plain = json.loads(json.dumps(cell.plain()))
    assert plain["mean"] == 97.5 and plain["runs"] == 2 and plain["values"] == [97.0, 98.0]


def test_the_standard_error_of_test_rows_is_that_of_chance_and_runs_do_not_shrink_it():
    (one,) = pooled([run(90.0, test_rows=10_000)])
    (three,) = pooled([run(value, test_rows=10_000) for value in (89.0, 90.0, 91.0)])
    assert one.test_error == three.test_error == pytest.approx(0.3)
    (of_errors,) = pooled([run(0.9, metric="rmse", test_rows=10_000)])
    errors = np.random.default_rng(0).normal(scale=0.9, size=(400, 10_000))
    assert of_errors.test_error == pytest.approx(np.sqrt((errors**2).mean(axis=1)).std(), rel=0.15)
    (unknown,) = pooled([run(0.9, metric="rmse", test_rows=None)])
    assert unknown.test_error is None


def look(recipe_hash, **other):
    return {"recipe": "best-local", "epsilon": "1", "rows": "", "hash": recipe_hash} | other


def test_a_recipe_that_was_looked_at_and_gave_no_record_has_been_an_attempt_too():
    looks = [
        look("b" * 16),
        look("c" * 16),
        look("c" * 16),
        look(""),
        look("d" * 16, epsilon="2"),
        look("e" * 16, rows="500"),
    ]
    (cell,) = pooled([run(97.0, recipe_hash="b" * 64)], looks)
    assert cell.hashes == 2  # the recorded one, which was looked at as well, and another
