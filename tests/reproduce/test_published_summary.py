"""What README and plots show is what is recorded: nothing newer, nothing older, nothing left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from labeldp.reproduce import find, pooled, recipes_of, sheets_of, tables
from labeldp.reproduce.cookbook import hash_of
from labeldp.reproduce.plot import write_svg
from labeldp.reproduce.results import Results

PROJECT = Path(__file__).parents[2]
RESULTS = Results(PROJECT / "benchmarks" / "results")


def test_the_readmes_summary_is_of_all_that_is_recorded(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT / "benchmarks")
    monkeypatch.delitem(sys.modules, "summary", raising=False)
    from summary import summary

    assert summary(RESULTS) in (PROJECT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [table for table in tables() if pooled(RESULTS.records(table))])
def test_a_tables_plot_is_of_all_that_is_recorded(tmp_path, table):
    drawn = write_svg(tmp_path / "plot.svg", sheets_of(RESULTS.records(table), recipes_of(table)))
    assert drawn.read_text() == RESULTS.folder.joinpath(f"{table}.svg").read_text(), f"labeldp reproduce {table} --show"


@pytest.mark.parametrize("name", ["best-local", "best-curator"])
def test_hashes_of_recipes_that_have_not_changed_are_those_of_their_records(name):
    (entry,) = find("movielens-1m", [name])
    recorded = {each["recipe_hash"] for each in RESULTS.records("movielens-1m") if each["recipe"] == name}
    assert {hash_of(entry.at(epsilon)) for epsilon in entry.epsilons} <= recorded
