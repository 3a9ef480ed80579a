"""What README and plots show is what is recorded: nothing newer, nothing older, nothing left out."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from labeldp.reproduce import figure_of, figures, find, recipes_of, sheets_of, tables
from labeldp.reproduce.cookbook import hash_of
from labeldp.reproduce.drawings import panels
from labeldp.reproduce.plot import write_panels, write_svg
from labeldp.reproduce.results import Results

PROJECT = Path(__file__).parents[2]
RESULTS = Results(PROJECT / "benchmarks" / "results")


@pytest.fixture
def benchmark(monkeypatch):
    """Scripts of benchmarks/, by name."""
    monkeypatch.syspath_prepend(PROJECT / "benchmarks")
    for name in ("summary", "frontier", "ratings"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module


def test_the_readmes_summary_is_of_all_that_is_recorded(benchmark):
    summary = benchmark("summary").summary(RESULTS)
    assert summary in (PROJECT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_ideas_is_of_all_that_is_recorded(benchmark):
    frontier = benchmark("frontier")
    records, page = frontier.read(frontier.RESULTS), frontier.PAGE.read_text(encoding="utf-8")
    for shown in (frontier.table(records), frontier.spent(records)):
        assert f"\n{shown}\n" in page, "python benchmarks/frontier.py --page"


def test_the_table_of_ratings_is_of_all_that_is_recorded(benchmark):
    ratings = benchmark("ratings")
    records, page = ratings.read(ratings.RESULTS), ratings.PAGE.read_text(encoding="utf-8")
    for shown in (ratings.table(records), ratings.spent(records)):
        assert f"\n{shown}\n" in page, "python benchmarks/ratings.py --page"


@pytest.mark.parametrize("table", tables())
def test_a_tables_plot_is_of_all_that_is_recorded(tmp_path, table):
    drawn = write_svg(tmp_path / "plot.svg", sheets_of(RESULTS.records(table), recipes_of(table)))
    assert drawn.read_text() == RESULTS.folder.joinpath(f"{table}.svg").read_text(), f"labeldp reproduce {table} --show"


@pytest.mark.parametrize("name", figures())
def test_a_figure_is_of_all_that_is_recorded(tmp_path, name):
    drawn = write_panels(tmp_path / "plot.svg", panels(figure_of(name, find(name), RESULTS)))
    assert drawn.read_text() == RESULTS.folder.joinpath(f"{name}.svg").read_text(), f"labeldp reproduce {name} --show"


@pytest.mark.parametrize("name", ["best-local", "best-curator"])
def test_hashes_of_recipes_that_have_not_changed_are_those_of_their_records(name):
    (entry,) = find("movielens-1m", [name])
    recorded = {each["recipe_hash"] for each in RESULTS.records("movielens-1m") if each["recipe"] == name}
    assert {hash_of(entry.at(epsilon)) for epsilon in entry.epsilons} <= recorded
