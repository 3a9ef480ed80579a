"""Runs keep to the book beside their table: one ledger, one column of ids, and no column both a label and a feature."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import people
import pytest

import labeldp as ldp
from labeldp import runs
from labeldp.errors import InvalidArgument, LedgerError

pytest.importorskip("pandas")


@pytest.fixture
def table(tmp_path):
    columns = people.columns()
    return people.write(tmp_path / "people.csv", columns | {"other": [f"o{name}" for name in columns["who"]]})


def recipe_for(path, **changes):
    values = {"data": str(path), "model": "logistic", "epsilon": "1", "table": people.CHOSEN}
    return runs.Recipe.of(values).changed({"training.rounds": 1} | changes)


def everything(folder):
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def refused(recipe, out, words, error=InvalidArgument, **how):
    """Begin a run, and be refused before anything is charged or written."""
    before = everything(out.parent)
    with pytest.raises(error, match=words):
        runs.train(recipe, out, **how)
    assert everything(out.parent) == before


def book(table):
    return json.loads(Path(f"{table}.labels.json").read_text())


def test_the_first_run_makes_a_book(table, tmp_path):
    runs.train(recipe_for(table, **{"table.id": "who", "table.drop": ["other"]}), tmp_path / "run")
    found = book(table)
    assert (found["id"], found["labels"], found["features"]) == ("who", ["income"], ["age", "job", "empty"])
    assert found["ledger"] == f"{table}.ledger" and found["ledger id"] == ldp.Ledger(f"{table}.ledger").id


def test_other_ids_buy_no_fresh_epsilon(table, tmp_path):
    runs.train(recipe_for(table, **{"table.id": "who", "table.drop": ["other"]}), tmp_path / "run")
    again = recipe_for(table, **{"table.id": "other", "table.drop": ["who"]})
    refused(again, tmp_path / "again", "by the column 'who': say --id who")
    people.write(table, people.columns() | {"who": [f"x{number}" for number in range(people.N_ROWS)]})
    refused(recipe_for(table, **{"table.id": "who"}), tmp_path / "again", "ids that were charged are gone from")


def test_a_run_goes_on_only_under_the_ids_that_it_was_charged_under(table, tmp_path):
    recipe = recipe_for(table, **{"table.id": "who"})
    run = runs.train(recipe, tmp_path / "run")
    shutil.copy(table, tmp_path / "kept.csv")
    columns = people.columns() | {"who": [f"x{number}" for number in range(people.N_ROWS)]}
    people.write(table, columns | {"other": [f"op{number}" for number in range(people.N_ROWS)]})
    refused(recipe, run.path, "ids that were charged are gone from")
    shutil.copy(tmp_path / "kept.csv", table)
    runs.train(recipe, run.path)


def test_every_run_on_a_file_charges_the_ledger_of_the_first(table, tmp_path, charges):
    for name in ("owner", "another"):
        ldp.create_ledger(tmp_path / name, budget="2")
    runs.train(recipe_for(table), tmp_path / "first", ledger=tmp_path / "owner")
    refused(recipe_for(table), tmp_path / "no", "say --ledger .*owner, so that all they", ledger=tmp_path / "another")
    runs.train(recipe_for(table), tmp_path / "second")
    assert len(charges(tmp_path / "owner")) == 4 and not Path(f"{table}.ledger").exists()
    (tmp_path / "moved").mkdir()
    for name in ("owner", "owner.spool"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    refused(recipe_for(table), tmp_path / "no", r"which is not there .* restore it, or say with --ledger", LedgerError)
    with pytest.raises(ldp.BudgetExhausted):
        runs.train(recipe_for(table), tmp_path / "no", ledger=tmp_path / "moved" / "owner")


def test_a_ledger_made_by_hand_beside_the_data_is_used_and_put_in_the_book(table, tmp_path, charges):
    ldp.create_ledger(f"{table}.ledger", budget="2")
    runs.train(recipe_for(table), tmp_path / "run")
    assert len(charges(f"{table}.ledger")) == 2 and book(table)["ledger"] == f"{table}.ledger"


def test_a_label_is_no_feature_later_and_a_feature_no_label(table, tmp_path):
    ldp.create_ledger(f"{table}.ledger", budget="2")
    runs.train(recipe_for(table, **{"table.drop": ["job"]}), tmp_path / "first")
    jobs = {"table.label": "job", "table.classes": ["cook", "nurse"], "table.missing": "public"}
    refused(recipe_for(table, **jobs), tmp_path / "no", "'income' of .* was charged as a label .* --drop income")
    runs.train(recipe_for(table, **jobs, **{"table.drop": ["income"]}), tmp_path / "second")
    ages = {"table.label": "age", "table.classes": 90, "table.missing": "public", "table.drop": ["income", "job"]}
    refused(recipe_for(table, **ages), tmp_path / "no", "'age' of .* cannot be a label: .* values are public already")
    assert book(table)["labels"] == ["income", "job"]


def test_a_run_past_the_budget_leaves_no_book(table, tmp_path):
    ldp.create_ledger(f"{table}.ledger", budget="0.5")
    with pytest.raises(ldp.BudgetExhausted):
        runs.train(recipe_for(table), tmp_path / "run")
    assert not Path(f"{table}.labels.json").exists()


def test_a_run_that_was_begun_without_a_book_gets_one_when_it_goes_on(table, tmp_path):
    run = runs.train(recipe_for(table), tmp_path / "run")
    before = book(table)
    Path(f"{table}.labels.json").unlink()
    runs.train(recipe_for(table), run.path)
    assert book(table) == before


def test_a_table_that_has_a_book_is_no_public_test(table, tmp_path):
    test = people.write(tmp_path / "test.csv", people.columns(60, seed=8) | {"other": ["o"] * 60})
    runs.train(recipe_for(test), tmp_path / "run")
    tested = recipe_for(table, **{"table.public_test": str(test)})
    refused(tested, tmp_path / "tested", r"labels of .*test\.csv are charged to a ledger .* so they are not public")


def test_labels_of_a_public_test_are_public_for_good_once_a_run_has_begun(table, tmp_path):
    test = people.write(tmp_path / "test.csv", people.columns(60, seed=8) | {"other": ["o"] * 60})
    tested = recipe_for(table, **{"table.public_test": str(test)})
    (tmp_path / "file").touch()
    refused(tested, tmp_path / "file", "a run needs a folder of its own")
    assert not Path(f"{test}.labels.json").exists()
    for _ in range(2):  # it may be resumed
        runs.train(tested, tmp_path / "tested")
    refused(recipe_for(test), tmp_path / "run", "'income' of .* cannot be a label")


def test_named_data_has_no_book(finished):
    assert not list(finished.path.parent.rglob("*.labels.json"))
    assert finished.certificate()["ledger place"] == "given by its owner"
