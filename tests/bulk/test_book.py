"""The book beside a file: its labels stay on one ledger, under one column of ids, and no column is both secret and public."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

import labeldp as ldp
from labeldp.budget import Epsilon
from labeldp.bulk import DeclaredClasses, Order, privatize
from labeldp.bulk.book import Columns, book_beside, open_book
from labeldp.errors import BudgetExhausted, InvalidArgument, LedgerError

ROWS = [("p1", "q1", "31", "dem", "low"), ("p2", "q2", "45", "rep", "high"), ("p3", "q3", "52", "dem", "high")]
CHOICES = {"income": ["low", "high"], "vote": ["dem", "rep"]}


def write(path, rows=ROWS):
    path.write_text("\n".join(map(",".join, [("id1", "id2", "age", "vote", "income"), *rows])) + "\n")


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "s.csv")
    for name in ("own.ledger", "other.ledger"):
        ldp.create_ledger(tmp_path / name, budget="3")
    return tmp_path


@pytest.fixture
def ask(folder):
    """Privatize a label of the file, each time to another output."""
    numbers = iter(range(100))

    def privatized(label="income", *, data="s.csv", ledger="own.ledger", id_column=None, drop=(), epsilon="1"):
        order = Order(
            data=folder / data,
            out=folder / f"out-{next(numbers)}.csv",
            label=label,
            classes=DeclaredClasses.of(CHOICES[label]),
            epsilon=Epsilon.of(epsilon),
            ledger=folder / ledger,
            noisy_column="noisy",
            id_column=id_column,
            drop=drop,
        )
        return privatize(order)

    return privatized


def book(folder, data="s.csv"):
    return json.loads((folder / f"{data}.labels.json").read_text())


def charges(folder, ledger="own.ledger"):
    return [entry for entry in ldp.Ledger(folder / ledger).entries() if entry.body["kind"] == "charge"]


def everything(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def refused(folder, ask, words, error=InvalidArgument, **how):
    """Ask, and be refused before anything is charged or written."""
    before = everything(folder)
    with pytest.raises(error, match=words) as caught:
        ask(**how)
    assert everything(folder) == before
    return str(caught.value)


def test_the_first_order_makes_it_and_it_holds_no_cell(folder, ask):
    ask(id_column="id1", drop=("vote",))
    assert book(folder) == {
        "format": "labeldp-book-1",
        "ledger": str(folder / "own.ledger"),
        "ledger id": ldp.Ledger(folder / "own.ledger").id,
        "id": "id1",
        "labels": ["income"],
        "features": ["id1", "id2", "age"],
        "rows": [[0, 3]],
    }


def test_another_ledger_is_refused_and_told_which_it_must_be(folder, ask):
    ask()
    said = refused(folder, ask, "so that all they spend adds up", ledger="other.ledger")
    assert f"say --ledger {folder / 'own.ledger'}" in said and not charges(folder, "other.ledger")
    ask()
    assert len(charges(folder)) == 2


def test_a_ledger_that_lies_beside_the_file_is_the_files_even_without_a_book(folder, ask):
    ldp.create_ledger(folder / "s.csv.ledger", budget="1")
    said = refused(folder, ask, "so that all they spend adds up")
    assert f"are charged to {folder / 's.csv.ledger'}, not to {folder / 'own.ledger'}" in said
    ask(ledger="s.csv.ledger")
    assert book(folder)["ledger"] == str(folder / "s.csv.ledger")


def test_a_moved_ledger_is_known_by_its_id(folder, ask):
    ask()
    (folder / "kept").mkdir()
    for name in ("own.ledger", "own.ledger.spool"):
        (folder / name).rename(folder / "kept" / name)
    refused(folder, ask, "There is no ledger at", LedgerError)
    ldp.create_ledger(folder / "own.ledger", budget="9")  # a new one under the old name
    refused(folder, ask, "so that all they spend adds up")
    ask(ledger="kept/own.ledger")
    assert len(charges(folder / "kept")) == 2 and book(folder)["ledger"] == str(folder / "kept" / "own.ledger")


@pytest.mark.parametrize(("first", "then"), [("id1", "id2"), ("id1", None), (None, "id1")])
def test_rows_go_by_the_same_ids_for_ever(folder, ask, first, then):
    ask(id_column=first)
    right = "leave --id out" if first is None else "say --id id1"
    refused(folder, ask, f"{right}, or their labels would be charged as if they were other rows'", id_column=then)


def test_rewritten_ids_are_refused_and_new_rows_are_not(folder, ask):
    ask(id_column="id1")
    write(folder / "s.csv", [("x1", *ROWS[0][1:]), *ROWS[1:]])
    said = refused(folder, ask, "ids that were charged are gone from .*: were they rewritten", id_column="id1")
    assert "Rows may be added, not renamed" in said
    write(folder / "s.csv", ROWS[1:])
    refused(folder, ask, "ids that were charged are gone", id_column="id1")
    write(folder / "s.csv", [("p4", "q4", "60", "rep", "low"), *ROWS[::-1]])
    assert ask(id_column="id1").rows == 4 and book(folder)["rows"] == [[0, 4]]


def test_rewritten_ids_are_noticed_beside_a_ledger_that_had_no_book_yet(folder, ask):
    ldp.create_ledger(folder / "s.csv.ledger", budget="3")
    ask(id_column="id1", ledger="s.csv.ledger")
    (folder / "s.csv.labels.json").unlink()
    refused(folder, ask, "ids that were charged are gone", id_column="id2", ledger="s.csv.ledger")


def test_files_with_different_ids_may_share_a_ledger(folder, ask):
    write(folder / "t.csv", [(f"t{row[0]}", *row[1:]) for row in ROWS])
    for data in ("s.csv", "t.csv", "s.csv", "t.csv"):
        ask(data=data, id_column="id1")
    assert book(folder)["rows"] == [[0, 3]] and book(folder, "t.csv")["rows"] == [[3, 6]]


def test_a_label_is_not_written_out_later(folder, ask):
    ask(drop=("vote",))
    said = refused(folder, ask, "'income' of .* was charged as a label in an earlier run", label="vote")
    assert "leave it out with --drop income" in said
    ask("vote", drop=("income",))
    assert book(folder)["labels"] == ["income", "vote"] and "vote" not in book(folder)["features"]


def test_what_was_written_out_is_not_a_label_later(folder, ask):
    ask()
    refused(folder, ask, "'vote' of .* cannot be a label: .* its values are public already", label="vote")
    refused(folder, ask, "'vote' of .* cannot be a label", label="vote", drop=("income",))


def test_an_order_past_the_budget_is_not_in_the_book(folder, ask):
    with pytest.raises(BudgetExhausted, match="is left for these rows"):
        ask(epsilon="4")
    assert not charges(folder) and not book_beside(folder / "s.csv").exists()


def test_it_lies_beside_the_file_itself_whatever_link_led_there(folder, ask):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "link.csv").symlink_to(folder / "s.csv")
    ask(data="elsewhere/link.csv")
    refused(folder, ask, "so that all they spend adds up", ledger="other.ledger")
    assert [file.name for file in (folder / "elsewhere").iterdir()] == ["link.csv"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "labeldp-book-2"}', '{"format": "labeldp-book-1"}'])
def test_a_damaged_book_is_refused(folder, ask, content):
    ask()
    (folder / "s.csv.labels.json").write_text(content)
    refused(folder, ask, r"s\.csv\.labels\.json is not a book .*: restore it", LedgerError)


def test_a_ledger_that_its_book_names_and_that_is_not_there_is_not_replaced(folder, ask):
    ask()
    (folder / "own.ledger").unlink()
    with open_book(folder / "s.csv") as opened, pytest.raises(LedgerError, match=r"own\.ledger, which is not there"):
        opened.ledger_for(None)


def test_a_book_that_says_so_already_is_not_written_again(folder, ask):
    ask(id_column="id1")
    before = (folder / "s.csv.labels.json").stat()
    ask(id_column="id1")
    assert (folder / "s.csv.labels.json").stat().st_ino == before.st_ino
    columns = Columns(label="income", features=["id1"], id_column="id1")
    with open_book(folder / "s.csv") as opened:
        opened.note(columns, folder / "own.ledger", [row[0] for row in ROWS])
    assert (folder / "s.csv.labels.json").stat().st_ino == before.st_ino


def test_it_is_open_in_one_place_at_a_time(folder):
    entered = threading.Event()

    def enter():
        with open_book(folder / "s.csv"):
            entered.set()

    second = threading.Thread(target=enter)
    with open_book(folder / "s.csv"):
        second.start()
        assert not entered.wait(0.2)
    assert entered.wait(30)
    second.join()


def test_of_two_first_orders_at_once_one_is_refused(folder):
    def begin(ledger):
        words = (
            f"privatize --data s.csv --label income --classes low,high --epsilon 1 --ledger {ledger} --out {ledger}.csv"
        )
        command = [sys.executable, "-c", "from labeldp.cli import main; main()", *words.split()]
        return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)

    orders = [begin(ledger) for ledger in ("own.ledger", "other.ledger")]
    told = [order.communicate(timeout=60)[1] for order in orders]
    assert sorted(order.returncode for order in orders) == [0, 1], told
    assert sum("so that all they spend adds up" in words for words in told) == 1
    assert len(charges(folder)) + len(charges(folder, "other.ledger")) == 1


def test_a_file_whose_ledger_others_have_spent_gets_its_book_before_it_is_charged(folder, ask):
    write(folder / "t.csv", [("p7", *rest) for _, *rest in ROWS[:1]])
    for data in ("s.csv", "t.csv"):
        ask(data=data, id_column="id1", epsilon="3")  # all of the budget, of each one's own rows
        assert book(folder, data)["labels"] == ["income"]
    refused(folder, ask, "charged to .*own.ledger", data="t.csv", ledger="other.ledger", id_column="id1")


def test_a_column_that_was_read_as_it_is_is_no_label_any_more(folder, ask):
    for _ in range(2):
        with open_book(folder / "s.csv") as opened:
            opened.note_public("income")
    assert book(folder)["features"] == ["income"]
    refused(folder, ask, "'income' of .* cannot be a label")
    ask("vote", drop=["income"])


def test_a_column_that_was_charged_is_not_public(folder, ask):
    ask()
    with open_book(folder / "s.csv") as opened, pytest.raises(InvalidArgument, match="so they are not public"):
        opened.note_public("income")


@pytest.mark.parametrize(("number", "fails"), [(errno.EACCES, False), (errno.EROFS, False), (errno.ENOSPC, True)])
def test_a_note_that_cannot_be_written_fails_unless_it_must_not_be(folder, monkeypatch, number, fails):
    def refuse(path):
        raise OSError(number, "no", str(path))

    monkeypatch.setattr("labeldp.bulk.book.renamed_when_whole", refuse)
    with open_book(folder / "s.csv") as opened, pytest.raises(OSError, match="no") if fails else nullcontext():
        opened.note_public("income")
