"""Many processes and threads at one ledger: what they get together never passes the budget, and nobody waits in vain."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

import labeldp as ldp
from labeldp.budget import Guarantee, Ledger, create_ledger, storage
from labeldp.errors import BudgetExhausted

CROWD = 8
LABELS = np.arange(80) % 2


def open_vault(path):
    return ldp.LabelVault(LABELS, classes=2, ledger=path)


def ask(vault, **options):
    """Ask for epsilon 0.5; return the ledger entry and the reports, or None if the budget is exhausted."""
    try:
        release = vault.release(ldp.RandomizedResponse(epsilon="0.5"), **options)
    except BudgetExhausted:
        return None
    return [release.receipt.ledger["entry"], release.reports.tolist()]


def charges(path):
    return [entry.number for entry in Ledger(path).entries() if entry.body["kind"] == "charge"]


@pytest.fixture
def path(memory_folder):
    """The path of a ledger with budget for three of the crowd's questions, bound to its dataset."""
    path = memory_folder / "ads.ledger"
    create_ledger(path, budget="1.5")
    open_vault(path)
    return path


@pytest.fixture
def all_at_once(fork):
    """Let children act at the same moment; return what each returned."""

    def run(acts):
        wait, go = os.pipe()

        def when_told(act):
            os.close(go)
            os.read(wait, 1)  # returns once the parent has closed its end
            return act()

        children = [fork(lambda act=act: when_told(act)) for act in acts]
        os.close(go)
        os.close(wait)
        return [child.join() for child in children]

    return run


# ---------------------------------------------------------------- processes


def test_of_eight_processes_with_budget_for_three_exactly_three_are_answered(path, all_at_once):
    answers = all_at_once([lambda: ask(open_vault(path))] * CROWD)
    answered = [answer for answer in answers if answer is not None]
    assert len(answered) == 3
    assert sorted(entry for entry, _ in answered) == charges(path)
    assert len({str(reports) for _, reports in answered}) == 3, "each drew its own noise"
    ledger = Ledger(path)
    assert ledger.spent() == ledger.budget()
    ledger.verify()


def test_eight_processes_on_disjoint_rows_are_all_answered_and_compose_in_parallel(path, all_at_once):
    shares = np.split(np.arange(len(LABELS)), CROWD)
    answers = all_at_once([lambda rows=rows: ask(open_vault(path), rows=rows) for rows in shares])
    assert None not in answers
    assert len(charges(path)) == CROWD
    assert Ledger(path).spent() == Guarantee.of("0.5")
    assert (Ledger(path).spending_by_row(np.arange(80))[0] == 5 * 10**11).all()
    Ledger(path).verify()


def test_eight_processes_that_bind_at_once_bind_once(memory_folder, all_at_once):
    path = memory_folder / "unbound.ledger"
    create_ledger(path, budget="1.5")
    ids = [f"row {number}" for number in range(80)]

    def bind(order):
        return len(ldp.LabelVault(LABELS[order], classes=2, ids=[ids[row] for row in order], ledger=path))

    orders = [np.random.default_rng(seed).permutation(80) for seed in range(CROWD)]
    assert all_at_once([lambda order=order: bind(order) for order in orders]) == [80] * CROWD
    assert [entry.body["kind"] for entry in Ledger(path).entries()] == ["create", "ids"]
    Ledger(path).verify()


def test_of_eight_processes_that_make_one_ledger_exactly_one_does(memory_folder, all_at_once):
    def make(number):
        try:
            return create_ledger(memory_folder / "one.ledger", budget="2", n_rows=number + 1).id
        except ldp.LedgerError:
            return None

    made = [ledger for ledger in all_at_once([lambda number=number: make(number) for number in range(CROWD)]) if ledger]
    assert made == [Ledger(memory_folder / "one.ledger").id]
    assert sorted(file.name for file in memory_folder.iterdir()) == ["one.ledger"]


@pytest.mark.parametrize("crowd", [2, CROWD])
def test_processes_with_the_same_name_get_the_same_reports_and_one_charge(path, all_at_once, crowd):
    answers = all_at_once([lambda: ask(open_vault(path), name="stage 1")] * crowd)
    assert answers == [answers[0]] * crowd
    assert charges(path) == [answers[0][0]]
    assert Ledger(path).spent() == Guarantee.of("0.5")


def test_a_process_that_holds_the_ledger_for_long_is_waited_for(path, fork):
    storage.LOCK_STEP_SECONDS, step = 0.02, storage.LOCK_STEP_SECONDS
    ready, told = os.pipe()

    def hold():
        with Ledger(path).exclusive():
            os.write(told, b"!")
            time.sleep(0.5)
        return "let go"

    try:
        holder = fork(hold)
        os.read(ready, 1)
        started = time.monotonic()
        assert ask(open_vault(path)) is not None
        assert time.monotonic() - started > 0.4
        assert holder.join() == "let go"
    finally:
        storage.LOCK_STEP_SECONDS = step
        os.close(ready)
        os.close(told)


def test_a_question_asked_elsewhere_is_not_mistaken_for_an_interrupted_one(path, fork):
    """A slow query is charged but not handed over; the same request from another process must wait, then pay for itself."""
    ready, told = os.pipe()

    def slow():
        vault = open_vault(path)
        charge = vault._ledger.charge

        def charge_and_dawdle(*args):
            entry = charge(*args)
            os.write(told, b"!")
            time.sleep(0.3)
            return entry

        vault._ledger.charge = charge_and_dawdle
        return ask(vault)

    child = fork(slow)
    os.read(ready, 1)
    mine, theirs = ask(open_vault(path)), child.join()
    os.close(ready)
    os.close(told)
    assert mine[0] != theirs[0]
    assert charges(path) == sorted([mine[0], theirs[0]])
    assert Ledger(path).spent() == Guarantee.of("1")


# ---------------------------------------------------------------- threads


def in_threads(acts):
    """Let threads act at the same moment; return what each returned."""
    barrier, answers = threading.Barrier(len(acts)), [None] * len(acts)

    def run(place, act):
        barrier.wait()
        answers[place] = act()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.fixture(params=["in memory", "durable, one vault", "durable, a vault each"])
def vaults(request, path):
    """One vault per thread, which may be the same one, on one ledger with budget for three."""
    if request.param == "in memory":
        return [ldp.LabelVault(LABELS, classes=2, budget="1.5")] * CROWD
    if request.param == "durable, one vault":
        return [open_vault(path)] * CROWD
    return [open_vault(path) for _ in range(CROWD)]


def test_of_eight_threads_with_budget_for_three_exactly_three_are_answered(vaults):
    answers = in_threads([lambda vault=vault: ask(vault) for vault in vaults])
    answered = [answer for answer in answers if answer is not None]
    assert len(answered) == 3
    assert len({entry for entry, _ in answered}) == 3
    assert len({str(reports) for _, reports in answered}) == 3, "each drew its own noise"
    assert vaults[0].spent() == Guarantee.of("1.5")


def test_eight_threads_on_disjoint_rows_are_all_answered(vaults):
    shares = np.split(np.arange(len(LABELS)), CROWD)
    pairs = zip(vaults, shares, strict=True)
    assert None not in in_threads([lambda vault=vault, rows=rows: ask(vault, rows=rows) for vault, rows in pairs])
    assert vaults[0].spent() == Guarantee.of("0.5")


def test_threads_with_the_same_name_get_the_same_reports_and_one_charge(vaults):
    answers = in_threads([lambda vault=vault: ask(vault, name="stage 1") for vault in vaults])
    assert answers == [answers[0]] * CROWD
    assert vaults[0].spent() == Guarantee.of("0.5")
