"""The ledger: made once, added to exactly, bound to its rows, chained by hashes, and never older than what it paid for."""

import json
import os
import pickle
import shutil
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Guarantee, Ledger, Runs, certificate, create_ledger, history, storage
from labeldp.budget.ledger import APPLICATION_ID, FORMAT
from labeldp.errors import BudgetExhausted, InvalidArgument, LedgerError

LABELS = np.arange(12) % 3


@pytest.fixture
def folder():
    """A folder in memory where there is one: these tests sync it thousands of times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        os.chmod(made, 0o755)
        yield Path(made)


@pytest.fixture
def path(folder):
    return folder / "ads.ledger"


@pytest.fixture
def ledger(path):
    return create_ledger(path, budget="2", n_rows=100)


def charge(ledger, rows, epsilon, *, delta=0, name=None):
    """Charge rows as a vault does."""
    request = {
        "query": "release",
        "mechanism": {"name": "RandomizedResponse", "epsilon": str(epsilon)},
        "rows": {"count": len(rows), "digest": "of rows"},
        "priors": None,
        "groups": None,
        "name": name,
        "private": True,
    }
    extra = {"trust": "local", "dealing": 0, "source": "none needed", "realised_epsilon": float(epsilon)}
    runs = Runs.of_rows(np.array(list(rows), dtype=np.int64))
    return ledger.charge(request, extra, runs, Guarantee.of(epsilon, delta=delta))


def open_vault(path, labels=LABELS, **options):
    return ldp.LabelVault(labels, classes=3, ledger=path, **options)


def ask(vault, epsilon="0.5", **options):
    return vault.release(ldp.RandomizedResponse(epsilon), **options)


def receipt_of(release):
    return release.receipt.to_json()


def edit(path, statement, values=()):
    """Alter a ledger's file behind its back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement, values)


def entries_in(path):
    columns = ", ".join(f"typeof({column}), hex({column})" for column in ("body", "rows", "hash"))
    with closing(sqlite3.connect(path)) as db:
        return list(db.execute(f"SELECT number, {columns} FROM entries"))


# ---------------------------------------------------------------- made once, on purpose


def test_a_missing_ledger_is_an_error_and_is_not_created(path):
    with pytest.raises(LedgerError, match=r"no ledger at .* never replaced by an empty one"):
        Ledger(path)
    with pytest.raises(LedgerError, match="no ledger at"):
        open_vault(path)
    assert list(path.parent.iterdir()) == []


def test_the_folder_of_a_ledger_is_told_from_a_ledger(tmp_path):
    create_ledger(tmp_path / "ledger", budget="1")
    with pytest.raises(LedgerError, match=f"{tmp_path} is a folder, .* {tmp_path / 'ledger'}: name that"):
        Ledger(tmp_path)


def test_a_ledger_that_vanishes_while_it_is_open_is_an_error_and_is_not_created(path):
    vault = open_vault(create_ledger(path, budget="2").path)
    path.unlink()
    with pytest.raises(LedgerError):
        ask(vault)
    assert not path.exists()


def test_a_ledger_is_never_overwritten(path, ledger):
    charge(ledger, [1], "1")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="never overwritten"):
        create_ledger(path, budget="20")
    assert path.read_bytes() == before


def test_a_ledger_is_never_made_beside_the_spool_or_the_journal_of_another(path):
    spool, journal = (path.with_name(path.name + ending) for ending in (".spool", "-journal"))
    spool.mkdir()
    with pytest.raises(LedgerError, match="spool"):
        create_ledger(path, budget="2")
    spool.rmdir()
    journal.write_bytes(b"hot")
    with pytest.raises(LedgerError, match="journal"):
        create_ledger(path, budget="2")
    assert not path.exists()


def test_making_a_ledger_leaves_nothing_but_the_ledger(path):
    create_ledger(path, budget="2")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_hold_a_ledger_is_refused(path):
    with pytest.raises(InvalidArgument, match="must exist"):
        create_ledger(path.parent / "missing" / "ads.ledger", budget="2")


@pytest.mark.parametrize(
    "content", [b"", b"label,conversion\n1,0\n" * 100, bytes(4096)], ids=["empty", "text", "zeros"]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="not a labeldp ledger"):
        Ledger(path)
    assert path.read_bytes() == content


def test_somebody_elses_database_is_refused_and_left_alone(path):
    edit(path, "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT, rows BLOB, hash TEXT)")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a labeldp ledger"):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_folder_is_not_a_ledger(folder):
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger(folder)


def test_another_format_version_is_refused_by_its_number(path, ledger):
    edit(path, f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(LedgerError, match=f"format {FORMAT + 1}; this version of labeldp reads format {FORMAT}"):
        Ledger(path)


def test_a_ledger_says_what_it_is_to_other_tools(path, ledger):
    assert path.read_bytes()[:15] == b"SQLite format 3"
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big") == b"LDLG"


def test_a_ledger_reached_through_a_link_has_the_same_lock_and_the_same_spool(path, ledger, folder):
    link = folder / "link.ledger"
    link.symlink_to(path)
    assert Ledger(link).path == ledger.path
    ask(open_vault(link, labels=np.zeros(100, dtype=int)))
    assert not link.with_name(link.name + ".spool").exists()
    assert path.with_name(path.name + ".spool").is_dir()


# ---------------------------------------------------------------- charging


def test_the_same_row_again_adds_up_and_disjoint_rows_compose_in_parallel(ledger):
    charge(ledger, range(50), "0.7")
    charge(ledger, range(50, 100), "0.9")
    assert ledger.spent() == Guarantee.of("0.9")
    charge(ledger, range(40, 60), "0.4")
    assert ledger.spent() == Guarantee.of("1.3")
    assert ledger.spent(Runs.of_rows(np.arange(0, 40))) == Guarantee.of("0.7")
    assert ledger.spent(Runs.of_rows(np.array([45]))) == Guarantee.of("1.1")
    assert ledger.spending_by_row(np.array([99, 0, 55]))[0].tolist() == [9 * 10**11, 7 * 10**11, 13 * 10**11]


@given(st.lists(st.tuples(st.sets(st.integers(0, 19), min_size=1), st.integers(1, 10**12)), min_size=1, max_size=12))
def test_no_row_ever_passes_the_budget_and_every_refusal_was_needed(wanted):
    budget = 2 * 10**12
    ledger = Ledger.in_memory(budget=Guarantee(budget), n_rows=20)
    spent = np.zeros(20, dtype=object)
    for rows, units in wanted:
        chosen = sorted(rows)
        if max(spent[chosen]) + units > budget:
            with pytest.raises(BudgetExhausted):
                charge(ledger, chosen, Guarantee(units).epsilon)
        else:
            charge(ledger, chosen, Guarantee(units).epsilon)
            spent[chosen] += units
    assert ledger.spending_by_row(np.arange(20))[0].tolist() == spent.tolist()
    assert ledger.spent().epsilon_units == max(spent)
    ledger.verify()


def test_the_budget_is_exact_to_the_last_unit(ledger):
    charge(ledger, [7], "1.999999999999")
    with pytest.raises(BudgetExhausted):
        charge(ledger, [7], "0.000000000002")
    charge(ledger, [7], "0.000000000001")
    assert ledger.spent() == ledger.budget()
    with pytest.raises(BudgetExhausted, match="0 of epsilon 2 is left"):
        charge(ledger, [7], "0.000000000001")
    charge(ledger, [8], "2")


def test_ten_tenths_are_one(path):
    ledger = create_ledger(path, budget="1")
    for _ in range(10):
        charge(ledger, [0], 0.1)
    assert ledger.spent() == Guarantee.of(1)
    with pytest.raises(BudgetExhausted):
        charge(ledger, [0], "1e-12")


def test_a_refused_charge_changes_nothing(path, ledger):
    charge(ledger, range(10), "1.5")
    before, content = ledger.head(), path.read_bytes()
    with pytest.raises(BudgetExhausted, match=r"needs epsilon 1, but epsilon 0.5 of epsilon 2 is left"):
        charge(ledger, range(5, 20), "1")
    assert ledger.head() == before
    assert path.read_bytes() == content
    assert ledger.spent(Runs.of_rows(np.arange(10, 20))) == Guarantee(0)


def test_one_exhausted_row_is_enough_to_refuse(ledger):
    charge(ledger, [50], "2")
    with pytest.raises(BudgetExhausted):
        charge(ledger, range(100), "1e-12")


def test_a_query_that_reveals_nothing_costs_no_row_anything(ledger):
    charge(ledger, [3], "2")
    charge(ledger, [], "1")
    assert ledger.spent() == Guarantee.of("2")
    assert ledger.spent(Runs.of_rows(np.array([4]))) == Guarantee(0)


def test_a_ledger_without_a_delta_budget_refuses_any_delta(ledger):
    with pytest.raises(BudgetExhausted, match=r"delta 0\.000000000000000001"):
        charge(ledger, [0], "0.1", delta="1e-18")
    assert ledger.spent() == Guarantee(0)


def test_delta_adds_up_exactly_within_its_own_budget(path):
    ledger = create_ledger(path, budget="5", delta="1e-6")
    charge(ledger, range(10), "1", delta="6e-7")
    charge(ledger, range(5, 15), "1", delta="4e-7")
    assert ledger.spent() == Guarantee.of("2", delta="1e-6")
    with pytest.raises(BudgetExhausted):
        charge(ledger, [7], "1", delta="1e-18")
    charge(ledger, [7], "1")
    charge(ledger, [0], "1", delta="4e-7")
    assert Ledger(path).spent() == Guarantee.of("3", delta="1e-6")


def test_spending_survives_the_process_and_is_seen_by_others_at_once(path, ledger):
    other = Ledger(path)
    charge(ledger, range(10), "1.5")
    assert other.spent() == Ledger(path).spent() == Guarantee.of("1.5")
    with pytest.raises(BudgetExhausted):
        charge(other, [9], "0.6")


@pytest.mark.parametrize("cost", [Guarantee(0), Guarantee(21 * 10**12), Guarantee(1, 10**18)])
def test_a_cost_that_could_not_be_read_back_is_not_written(ledger, cost):
    body = {"name": None}
    with pytest.raises(InvalidArgument):
        ledger.charge(body, {}, Runs.of_rows(np.arange(2)), cost)
    assert ledger.head()[0] == 1


# ---------------------------------------------------------------- raising


def test_raising_the_limit_is_logged_and_lets_more_be_spent(path, ledger):
    charge(ledger, [0], "2")
    ledger.raise_budget(Guarantee.of("3"), reason="a second campaign")
    charge(ledger, [0], "1")
    with pytest.raises(BudgetExhausted):
        charge(ledger, [0], "1e-12")
    assert Ledger(path).budget() == Guarantee.of("3")
    (act,) = certificate(ledger)["raises"]
    assert act["reason"] == "a second campaign"
    assert act["budget"] == {"epsilon": "3", "delta": "0"}
    assert act["time"]
    ledger.verify()


@pytest.mark.parametrize(
    "budget",
    [Guarantee.of("2"), Guarantee.of("1.999999999999"), Guarantee.of("1", delta="1e-6"), Guarantee.of("3")],
    ids=["the same", "a unit less", "less epsilon for more delta", "less delta"],
)
def test_a_raise_must_rise(path, budget):
    ledger = create_ledger(path, budget="2", delta="1e-9")
    with pytest.raises(InvalidArgument, match="above the present one"):
        ledger.raise_budget(budget if budget.delta_units else Guarantee(budget.epsilon_units), reason="why not")
    assert ledger.head()[0] == 1


def test_delta_can_be_raised_alone(ledger):
    ledger.raise_budget(Guarantee.of("2", delta="1e-6"), reason="LP-Normal-SGD")
    charge(ledger, [0], "1", delta="1e-6")


def test_a_raise_past_the_largest_epsilon_is_refused_before_it_spoils_the_ledger(path, ledger):
    with pytest.raises(InvalidArgument, match="at most 20"):
        ledger.raise_budget(Guarantee(21 * 10**12), reason="more")
    assert Ledger(path).budget() == Guarantee.of("2")


@pytest.mark.parametrize("reason", ["", "x" * 201, "two\nlines", None])
def test_a_raise_needs_a_reason_that_can_be_printed(ledger, reason):
    with pytest.raises(InvalidArgument, match="reason"):
        ledger.raise_budget(Guarantee.of("3"), reason=reason)


# ---------------------------------------------------------------- whose rows


def test_without_ids_a_ledger_binds_to_its_first_row_count_and_refuses_another(path):
    ledger = create_ledger(path, budget="2")
    assert ledger.n_rows() is None
    assert ledger.bind(n_rows=12, ids=None).tolist() == list(range(12))
    assert Ledger(path).n_rows() == 12
    assert Ledger(path).bind(n_rows=12, ids=None).tolist() == list(range(12))
    for other in (11, 13):
        with pytest.raises(LedgerError, match=f"for 12 rows, but the dataset has {other}. .* needs ids"):
            Ledger(path).bind(n_rows=other, ids=None)


def test_a_ledger_made_for_a_row_count_refuses_another_from_the_start(path):
    create_ledger(path, budget="2", n_rows=12)
    with pytest.raises(LedgerError, match="for 12 rows, but the dataset has 11"):
        open_vault(path, labels=LABELS[:11])
    open_vault(path)


def test_binding_the_same_dataset_again_writes_nothing(path):
    create_ledger(path, budget="2")
    open_vault(path)
    before = path.read_bytes()
    open_vault(path)
    assert path.read_bytes() == before


def test_rows_are_known_by_their_ids_in_whatever_order_they_come(path):
    create_ledger(path, budget="2")
    ids = [f"user {number}" for number in range(12)]
    ask(open_vault(path, ids=ids), "1.5", rows=[0, 1, 2])
    shuffled = np.random.default_rng(0).permutation(12)
    vault = open_vault(path, labels=LABELS[shuffled], ids=[ids[row] for row in shuffled])
    for place, row in enumerate(shuffled):
        assert vault.spent(rows=[place]) == (Guarantee.of("1.5") if row < 3 else Guarantee(0))
    with pytest.raises(BudgetExhausted):
        ask(vault, "1", rows=[int(np.flatnonzero(shuffled == 2)[0])])


def test_new_ids_are_appended_and_old_ones_keep_their_spending(path):
    create_ledger(path, budget="2")
    ask(open_vault(path, labels=LABELS[:4], ids=["a", "b", "c", "d"]), "2")
    vault = open_vault(path, labels=LABELS[:5], ids=["e", "d", "c", "b", "f"])
    assert [str(vault.remaining(rows=[row])) for row in range(5)] == ["epsilon 2", *["epsilon 0"] * 3, "epsilon 2"]
    assert Ledger(path).n_rows() == 6
    Ledger(path).verify()


def test_part_of_the_ids_is_a_dataset_too(path):
    create_ledger(path, budget="2")
    ask(open_vault(path, labels=LABELS[:4], ids=[10, 11, 12, 13]), "1")
    vault = open_vault(path, labels=LABELS[:2], ids=[13, 11])
    assert vault.spent() == Guarantee.of("1")
    ask(vault, "1")
    assert Ledger(path).spending_by_row(np.arange(4))[0].tolist() == [10**12, 2 * 10**12, 10**12, 2 * 10**12]


def test_a_ledger_made_for_a_row_count_takes_ids_of_that_length_and_then_grows(path):
    create_ledger(path, budget="2", n_rows=12)
    with pytest.raises(LedgerError, match="made for 12 rows, but the dataset has 11 ids"):
        open_vault(path, labels=LABELS[:11], ids=range(11))
    ask(open_vault(path, ids=range(12)), "1")
    grown = open_vault(path, labels=np.append(LABELS, 0), ids=range(13))
    assert grown.spent(rows=[12]) == Guarantee(0)
    assert grown.spent(rows=[11]) == Guarantee.of("1")


def test_a_ledger_is_bound_by_position_or_by_id_and_not_by_both(path, folder):
    by_id, by_position = (create_ledger(folder / name, budget="2").path for name in ("ids", "positions"))
    open_vault(by_id, ids=range(12))
    open_vault(by_position)
    with pytest.raises(LedgerError, match="names rows by id: open the dataset with ids"):
        open_vault(by_id)
    with pytest.raises(LedgerError, match="names rows by position: open the dataset without ids"):
        open_vault(by_position, ids=range(12))


def test_two_rows_with_one_id_are_refused_and_nothing_is_bound(path):
    create_ledger(path, budget="2")
    with pytest.raises(InvalidArgument, match="unique"):
        open_vault(path, ids=[*range(11), "10"])
    assert Ledger(path).head()[0] == 1


def test_an_id_that_changed_hands_is_noticed_before_anything_is_bound(path):
    create_ledger(path, budget="2")
    open_vault(path, ids=range(12))
    for statement in (
        "UPDATE ids SET row = CASE row WHEN 0 THEN 100 WHEN 1 THEN 0 ELSE row END",
        "INSERT INTO ids VALUES (12, 'stranger')",
        "DELETE FROM ids WHERE row = 11",
        "UPDATE ids SET id = 'somebody' WHERE row = 3",
    ):
        copy = shutil.copy(path, path.with_name("copy"))
        edit(copy, statement)
        with pytest.raises(LedgerError, match="row ids"):
            Ledger(copy).verify()
        with pytest.raises(LedgerError, match="row ids"):
            open_vault(copy, ids=range(12))


# ---------------------------------------------------------------- tamper evidence


@pytest.fixture
def busy(path):
    """The path of a ledger with an entry of every kind."""
    create_ledger(path, budget="2", n_rows=12)
    vault = open_vault(path, ids=range(12))
    ask(vault, "0.5", rows=[0, 2, 4])
    ask(vault, "0.5", name="stage 1")
    Ledger(path).raise_budget(Guarantee.of("3"), reason="a second campaign")
    ask(vault, "1")
    return path


ALTERATIONS = {
    "number": ["number + 100", "-number", "0"],
    "body": ["replace(body, '0.5', '0.4')", "body || ' '", "'{}'", "'not json'", "CAST(body AS BLOB)", "7"],
    "rows": ["x'52'", "rows || x'00'", "'R'", "x''", "7"],
    "hash": ["upper(hash)", "substr(hash, 2)", "zeroblob(32)", f"'{'0' * 64}'"],
}


@pytest.mark.parametrize(("column", "value"), [(c, v) for c, values in ALTERATIONS.items() for v in values])
def test_altering_any_column_of_any_entry_is_noticed_by_verifying_and_by_opening(busy, column, value):
    opened, last = Ledger(busy), Ledger(busy).head()[0]
    assert last == 6
    original, altered = busy.read_bytes(), 0
    for number in range(1, last + 1):
        busy.write_bytes(original)
        before = entries_in(busy)
        edit(busy, f"UPDATE entries SET {column} = {value} WHERE number = ?", (number,))
        if entries_in(busy) == before:
            continue  # such as 0.5 in an entry that does not say 0.5
        altered += 1
        with pytest.raises(LedgerError):
            opened.verify()
        with pytest.raises(LedgerError):
            opened.entries()
        with pytest.raises(LedgerError):
            Ledger(busy)
        with pytest.raises(LedgerError):
            open_vault(busy, ids=range(12))
    assert altered > 0


@pytest.mark.parametrize("number", range(1, 7))
def test_a_deleted_entry_is_noticed_wherever_it_stood(busy, number):
    opened = Ledger(busy)
    shutil.rmtree(busy.with_name(busy.name + ".spool"))
    edit(busy, "DELETE FROM entries WHERE number = ?", (number,))
    with pytest.raises(LedgerError):
        opened.verify()
    with pytest.raises(LedgerError):
        Ledger(busy)


def test_two_entries_that_changed_places_are_noticed(busy):
    edit(busy, "UPDATE entries SET number = CASE number WHEN 3 THEN 40 WHEN 4 THEN 30 ELSE number END WHERE number > 2")
    edit(busy, "UPDATE entries SET number = number / 10 WHERE number >= 30")
    with pytest.raises(LedgerError, match="chain is broken"):
        Ledger(busy)


def test_a_ledger_emptied_of_entries_is_refused(busy):
    shutil.rmtree(busy.with_name(busy.name + ".spool"))
    edit(busy, "DELETE FROM entries")
    edit(busy, "DELETE FROM progress")
    with pytest.raises(LedgerError, match="no entries"):
        Ledger(busy)


def test_a_charge_whose_progress_was_erased_is_noticed(busy):
    edit(busy, "DELETE FROM progress WHERE number = 3")
    with pytest.raises(LedgerError, match="progress"):
        Ledger(busy)


def test_a_forged_chain_that_spends_past_the_budget_is_noticed(busy):
    opened = Ledger(busy)
    previous = history.GENESIS
    for entry in opened.entries():
        if entry.body["kind"] == "charge":
            entry.body["cost"]["epsilon"] = "19"
        body = history.canonical(entry.body)
        previous = history.link(previous, body, entry.rows)
        edit(busy, "UPDATE entries SET body = ?, hash = ? WHERE number = ?", (body, previous, entry.number))
    with pytest.raises(LedgerError, match="Entry 3 spends past the budget in force"):
        Ledger(busy)
    with pytest.raises(LedgerError, match="altered, while it was open"):
        opened.verify()


def test_a_ledger_replaced_while_it_is_open_stops_every_query(path, folder):
    create_ledger(path, budget="2")
    vault = open_vault(path)
    old = shutil.copy(path, folder / "old")
    ask(vault, "2", rows=[0, 1, 2])
    shutil.copy(old, path)
    for question in (vault.spent, lambda: ask(vault, "1", rows=[0])):
        with pytest.raises(LedgerError, match="replaced by an older copy"):
            question()
    charge(Ledger(folder / "old"), [5], "0.1")  # the copy goes on by itself, and is as long again
    charge(Ledger(folder / "old"), [5], "0.1")
    shutil.copy(old, path)
    with pytest.raises(LedgerError, match="replaced by an older copy"):
        ask(vault, "1", rows=[0])


def test_a_receipt_newer_than_the_ledger_shows_that_it_is_an_old_copy(path, folder):
    create_ledger(path, budget="2")
    vault = open_vault(path)
    first = ask(vault)
    old = shutil.copy(path, folder / "old")
    second = ask(vault)
    Ledger(path).verify(receipt_of(first))
    Ledger(path).verify(receipt_of(second))
    Ledger(old).verify(receipt_of(first))
    with pytest.raises(LedgerError, match="older copy"):
        Ledger(old).verify(receipt_of(second))
    ask(open_vault(old), "0.1")
    with pytest.raises(LedgerError, match="Entry 4 is not the one of the receipt"):
        Ledger(old).verify(receipt_of(second))


def test_a_receipt_shows_a_copy_made_before_its_release_was_handed_over(path, folder, monkeypatch):
    create_ledger(path, budget="2")
    old = folder / "old"
    mark = Ledger.mark_spooled
    monkeypatch.setattr(Ledger, "mark_spooled", lambda *args: [mark(*args), shutil.copy(path, old)])
    release = ask(open_vault(path))
    Ledger(path).verify(receipt_of(release))
    with pytest.raises(LedgerError, match="was handed over, but the ledger says"):
        Ledger(old).verify(receipt_of(release))


def test_a_receipt_of_another_ledger_or_of_none_is_refused(busy, folder):
    create_ledger(folder / "other", budget="2")
    stranger = ask(open_vault(folder / "other"))
    with pytest.raises(LedgerError, match="another ledger"):
        Ledger(busy).verify(receipt_of(stranger))
    own = receipt_of(ask(open_vault(busy, ids=range(12)), "0.1"))
    bad = [{}, {"ledger": 3}, {"ledger": {"id": own["ledger"]["id"]}}, None]
    bad += [{"ledger": own["ledger"] | {"entry": number}} for number in (0, -1, "7", None, 1.0)]
    for receipt in bad[:3] + bad[4:]:
        with pytest.raises(InvalidArgument):
            Ledger(busy).verify(receipt)
    with pytest.raises(LedgerError):
        Ledger(busy).verify({"ledger": own["ledger"] | {"hash": "0" * 64}})
    with pytest.raises(LedgerError, match="another ledger"):
        Ledger(busy).verify(receipt_of(ldp.LabelVault.unprotected([0, 1], classes=2)))


def test_an_old_ledger_beside_a_newer_spool_is_refused_at_the_door(path, folder):
    create_ledger(path, budget="2")
    ask(open_vault(path))
    old = path.read_bytes()
    ask(open_vault(path))
    path.write_bytes(old)
    for opening in (lambda: Ledger(path), lambda: open_vault(path)):
        with pytest.raises(LedgerError, match="ends at entry 3, but release 4 lies in its spool: it is an older copy"):
            opening()


def test_an_old_ledger_never_gives_a_second_answer_to_what_its_spool_has_answered(path, monkeypatch):
    create_ledger(path, budget="2")
    copies = []
    real = Ledger.charge
    monkeypatch.setattr(Ledger, "charge", lambda *args: [real(*args), copies.append(path.read_bytes())][0])
    first = ask(open_vault(path))
    path.write_bytes(copies[0])  # charged, it says, and not yet drawn
    again = ask(open_vault(path))
    assert again.receipt == first.receipt
    assert again.reports.tolist() == first.reports.tolist()


def test_every_entry_names_the_hash_of_the_one_before(busy):
    previous = history.GENESIS
    with closing(sqlite3.connect(busy)) as db:
        for number, body, rows, digest in db.execute("SELECT * FROM entries ORDER BY number"):
            assert digest == history.link(previous, body, rows)
            assert digest != history.link(history.GENESIS, body, rows) or number == 1
            previous = digest
    assert Ledger(busy).head() == (6, previous)


# ---------------------------------------------------------------- what it never holds


def test_labels_never_reach_the_disk(path):
    marker = "SECRET-DIAGNOSIS"
    labels = [f"{marker}-{number % 2}" for number in range(40)]
    classes = [f"{marker}-{number}" for number in range(3)]
    create_ledger(path, budget="20")
    vault = ldp.LabelVault(labels, classes=classes, ledger=path, trust="curator")
    vault.release(ldp.RandomizedResponse("1"))
    vault.release(ldp.RRWithPrior("1"), priors=[0.4, 0.3, 0.3], name="stage 1", source="a sentence")
    vault.histogram(np.zeros(40, dtype=int), "1")
    vault.agreement([classes[0]] * 40, "1")
    assert marker.encode() not in path.read_bytes()
    numbers = np.array([labels.index(label) for label in labels], dtype=np.uint8)
    for file in path.parent.rglob("*"):
        if file.is_file():
            assert numbers.tobytes() not in file.read_bytes()
            assert numbers.astype("<i8").tobytes() not in file.read_bytes()


def test_two_datasets_with_other_labels_leave_the_same_ledger_but_for_ids_and_times(folder):
    def entries(labels, name):
        create_ledger(folder / name, budget="2")
        ask(open_vault(folder / name, labels=labels))
        bodies = [entry.body for entry in Ledger(folder / name).entries()]
        return [{key: body[key] for key in body if key not in ("time", "ledger")} for body in bodies]

    assert entries(np.zeros(12, dtype=int), "one") == entries(LABELS, "other")


def test_a_ledger_is_not_pickled(ledger):
    with pytest.raises(LedgerError, match="not pickled"):
        pickle.dumps(ledger)
    with pytest.raises(LedgerError, match="not pickled"):
        pickle.dumps(Ledger.in_memory(budget=Guarantee.of("1")))


# ---------------------------------------------------------------- what other processes and disks do


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(storage, "LOCK_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(storage, "LOCK_STEP_SECONDS", 0.01)


def in_use(path):
    """Another connection that holds the file for itself; SQLite cannot tell it from another process."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    return closing(db)


def test_a_ledger_that_another_process_does_not_let_go_of_is_a_ledger_error(path, impatient):
    create_ledger(path, budget="2")
    vault = open_vault(path)
    questions = (vault.spent, lambda: ask(vault), lambda: Ledger(path), lambda: open_vault(path))
    with in_use(path):
        for question in questions:
            with pytest.raises(LedgerError, match="in use by another process"):
                question()
    with in_use(f"{path}-lock"), pytest.raises(LedgerError, match="in use by another process"):
        ask(vault)
    assert vault.spent() == Guarantee(0)
    ask(vault)
    assert vault.spent() == Guarantee.of("0.5")


def test_a_charge_that_could_not_be_committed_is_not_counted(path, monkeypatch):
    create_ledger(path, budget="2")
    vault = open_vault(path)
    monkeypatch.setattr(storage, "LOCK_STEP_SECONDS", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchone()  # a reader that stays keeps a writer from committing
        monkeypatch.setattr(storage, "LOCK_PATIENCE_SECONDS", 0.05)
        with pytest.raises(LedgerError, match="in use by another process"):
            ask(vault)
    assert vault.spent() == Guarantee(0)
    assert Ledger(path).head()[0] == 2
    ask(vault, "2")


def test_a_ledger_in_use_for_longer_than_one_step_is_waited_for(path, monkeypatch):
    create_ledger(path, budget="2")
    vault = open_vault(path)
    monkeypatch.setattr(storage, "LOCK_STEP_SECONDS", 0.02)
    for busy in (path, f"{path}-lock"):
        holder = sqlite3.connect(busy, isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN EXCLUSIVE")
        release_soon = threading.Timer(0.3, holder.close)
        started = time.monotonic()
        release_soon.start()
        ask(vault)
        assert time.monotonic() - started > 0.25
        release_soon.join()
    assert vault.spent() == Guarantee.of("1")


def as_nobody(act):
    """Run something in a child without root's right to write anywhere; return what it said."""
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            said = act()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_ledger_that_may_only_be_read_answers_what_was_spent_and_refuses_a_query(path):
    create_ledger(path, budget="2")
    ask(open_vault(path))
    os.chmod(path, 0o444)
    os.chmod(path.parent, 0o555)
    try:
        assert as_nobody(lambda: str(Ledger(path).spent())) == "epsilon 0.5"
        assert as_nobody(lambda: str(Ledger(path).verify())) == "None"
        said = as_nobody(lambda: str(ask(open_vault(path))))
        assert said == f"LedgerError: {path}-lock must be writable: whoever may only read it is not kept out by it."
        os.chmod(f"{path}-lock", 0o666)
        said = as_nobody(lambda: str(ask(open_vault(path))))
        assert said.startswith("LedgerError: The ledger") and "readonly database" in said
        assert as_nobody(lambda: str(Ledger(path).head()[0])) == "3"
        said = as_nobody(lambda: str(create_ledger(path.with_name("new"), budget="1")))
        assert said.startswith("LedgerError: The ledger") and "cannot be made" in said
    finally:
        os.chmod(path.parent, 0o755)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_ledger_that_may_not_even_be_read_is_a_ledger_error(path):
    create_ledger(path, budget="2")
    os.chmod(path, 0)
    assert as_nobody(lambda: str(Ledger(path))).startswith("LedgerError: The ledger")


def test_a_damaged_page_is_a_ledger_error(busy):
    content = bytearray(busy.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    busy.write_bytes(content)
    with pytest.raises(LedgerError):
        Ledger(busy)


# ---------------------------------------------------------------- what is found again


def test_a_name_finds_its_newest_charge(ledger):
    assert ledger.named("stage 1") is None
    charge(ledger, [0], "0.1", name="stage 1")
    charge(ledger, [1], "0.1", name="stage 2")
    newest = charge(ledger, [2], "0.1", name="stage 1")
    assert ledger.named("stage 1").number == newest.number
    assert ledger.named("stage 3") is None


def test_a_query_is_interrupted_until_it_is_handed_over(ledger):
    entry = charge(ledger, [0], "0.1")
    request = entry.body["request"]
    assert ledger.interrupted(request).number == entry.number
    assert ledger.progress(entry) == ("charged", None)
    ledger.mark_spooled(entry, "digest")
    assert ledger.interrupted(request).number == entry.number
    assert ledger.progress(entry) == ("spooled", "digest")
    assert ledger.interrupted(request | {"name": "another"}) is None
    ledger.mark_handed_over(entry)
    assert ledger.interrupted(request) is None
    assert ledger.progress(entry) == ("handed over", "digest")
    with pytest.raises(LedgerError, match="not a query"):
        ledger.progress(ledger.entries()[0])


# ---------------------------------------------------------------- the certificate


def test_a_certificate_is_json_and_lists_every_query_with_its_cost(busy):
    made = json.loads(json.dumps(certificate(Ledger(busy))))
    assert [query["epsilon"] for query in made["queries"]] == ["0.5", "0.5", "1"]
    assert [query["labels charged"] for query in made["queries"]] == [3, 12, 12]
    assert [query["name"] for query in made["queries"]] == [None, "stage 1", None]
    assert made["spent"] == {"epsilon": "2", "delta": "0"}
    assert made["budget"] == {"epsilon": "3", "delta": "0"}
    assert made["ledger"]["entry"] == Ledger(busy).head()[0]
    assert made["ledger"]["hash"] == Ledger(busy).head()[1]
    assert made["trust"] == "local" and made["interaction"] == "sequentially interactive local"
    assert made["private"] is True and "stamp" not in made


def test_a_certificate_of_an_unused_ledger_says_that_nothing_was_released(ledger):
    made = certificate(ledger)
    assert made["guarantee"] == "Nothing that depends on a label has been released."
    assert made["queries"] == made["raises"] == []
