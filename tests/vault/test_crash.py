"""Killed anywhere between the question and the answer, a vault never shows a label that was not charged.

Children of a parent that has drawn from the system's entropy open a vault on a durable ledger and are killed (SIGKILL, no
clean-up of any kind) at a chosen step or at a random moment. Whatever a query returned is noted outside the vault at once.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import labeldp as ldp
from labeldp.budget import Entry, Guarantee, Ledger, create_ledger
from labeldp.budget import ledger as ledger_module
from labeldp.errors import LabelDPError, LedgerError
from labeldp.mechanisms.channel import Response
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.histogram import Histogram
from labeldp.vault import files
from labeldp.vault.spool import Spool

HITS = 20

LABELS = np.arange(30) % 4
ROWS = np.flatnonzero(np.arange(30) % 3)
PRIORS = np.random.default_rng(0).dirichlet(np.ones(4), len(ROWS))
GROUPS = np.arange(30) % 2
GROUPED = ldp.GroupedResponse(epsilon="0.1")


def randomized_response(vault, name):
    return vault.release(ldp.RandomizedResponse(epsilon="0.1"), name=name)


def grouped_response(vault, name):
    return vault.release(GROUPED, rows=ROWS, priors=PRIORS, name=name)


def histogram(vault, name):
    return vault.histogram(GROUPS, "0.1", name=name)


QUESTIONS = [randomized_response, grouped_response, histogram]


def open_vault(path):
    return ldp.LabelVault(LABELS, classes=4, ledger=path, trust="curator")


def answer_of(release):
    return (release.reports if isinstance(release, ldp.Release) else release.counts).tolist()


def charges(ledger):
    return [entry for entry in ledger.entries() if entry.body["kind"] == "charge"]


def spooled(ledger, entry):
    """Return what the spool holds for an entry, as the ledger knows it."""
    return answer_of(Spool(ledger.path).read(entry, ledger.progress(entry)[1]))


def check_what_is_outside(ledger, outside):
    """Every label seen outside is charged, and no charge has shown two answers."""
    paid = {(entry.number, entry.hash): entry for entry in charges(ledger)}
    for place, answers in outside.seen().items():
        assert place in paid, "a release was seen that no charge paid for"
        assert len(answers) == 1, "one charge showed two answers"


def check_the_books(ledger, outside):
    """The ledger is whole and within budget; what was seen outside is what it says was handed over."""
    ledger.verify()
    check_what_is_outside(ledger, outside)
    seen, spent = outside.seen(), np.zeros(30, dtype=np.int64)
    for entry in charges(ledger):
        spent[entry.runs.rows()] += Guarantee.of(entry.body["cost"]["epsilon"]).epsilon_units
        answers = seen.get((entry.number, entry.hash))
        if answers is not None:
            assert ledger.progress(entry)[0] == "handed over"
            assert answers == {str(spooled(ledger, entry))}
    assert ledger.spending_by_row(np.arange(30))[0].tolist() == spent.tolist()
    assert spent.max() <= ledger.budget().epsilon_units


# ---------------------------------------------------------------- killed at a chosen step


@dataclass(frozen=True)
class Step:
    """A call, before or after which a child kills itself."""

    where: Any
    call: str
    when: str

    def arm(self):
        original = getattr(self.where, self.call)

        def deadly(*args, **kwargs):
            if self.when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(self.where, self.call, deadly)


PHASES = {
    "before the charge": [
        Step(Ledger, "charge", "before"),
        Step(Ledger, "_append", "after"),  # written, but not committed
    ],
    "charged": [
        Step(Ledger, "charge", "after"),
        Step((Response, Histogram), "draw", "before"),
    ],
    "drawn": [
        Step((Response, Histogram), "draw", "after"),
        Step(Spool, "write", "before"),
        Step(files, "file_digest", "before"),  # one of two files is in the spool
    ],
    "spooled": [
        Step(Spool, "write", "after"),  # in the spool, but the ledger does not say so
        Step(Ledger, "mark_spooled", "after"),
        Step(Ledger, "mark_handed_over", "before"),
    ],
    "handed out": [
        Step(Ledger, "mark_handed_over", "after"),
        Step("outside", "see", "after"),
    ],
}


def aimed(step, question, outside):
    """Return a step at what this question calls."""
    if step.where == "outside":
        return Step(outside, step.call, step.when)
    if step.call == "draw":
        return Step(Histogram, "answer", step.when) if question is histogram else Step(Response, "draw", step.when)
    return step


@pytest.mark.parametrize("phase", PHASES)
def test_a_query_killed_in_any_phase_is_finished_under_its_charge_and_never_answered_twice(
    phase, memory_folder, outside, fork
):
    path = memory_folder / "ads.ledger"
    create_ledger(path, budget="20")
    open_vault(path)  # binds
    hits = 0
    while hits < HITS:
        for step in PHASES[phase]:
            for question in QUESTIONS:
                for name in (None, f"query {hits}"):
                    kill_and_ask_again(phase, step, question, name, path=path, outside=outside, fork=fork)
                    hits += 1
    assert hits >= HITS
    check_the_books(Ledger(path), outside)


def kill_and_ask_again(phase, step, question, name, *, path, outside, fork):
    before = len(charges(Ledger(path)))

    def killed():
        vault = open_vault(path)
        aimed(step, question, outside).arm()
        outside.see(question(vault, name))

    assert fork(killed).end()[1] == -signal.SIGKILL
    ledger = Ledger(path)
    check_what_is_outside(ledger, outside)
    paid = charges(ledger)[before:]
    assert len(paid) == (phase != "before the charge")
    left = [spooled(ledger, entry) for entry in paid if ledger.progress(entry)[1] is not None]

    again = question(open_vault(path), name)
    outside.see(again)
    check_what_is_outside(ledger, outside)
    after = charges(ledger)[before:]
    answered_anew = phase == "before the charge" or (phase == "handed out" and name is None)
    assert len(after) == len(paid) + answered_anew, "an interrupted query is finished without a second charge"
    assert again.receipt.ledger["entry"] == after[-1].number
    assert answered_anew or left in ([], [answer_of(again)]), "what was spooled is handed out as it is"
    check_dealing(again, after[-1])


def check_dealing(release, entry: Entry):
    """The groups are the ones dealt with the key that was charged for, whoever finished the query."""
    assert release.receipt.dealing == entry.body["dealing"]
    if release.receipt.mechanism["name"] == "GroupedResponse":
        dealt = GROUPED.deal(PRIORS, Dealing(entry.body["dealing"], ROWS))
        every = np.arange(len(ROWS))
        assert release.groups.assignment(every).tolist() == dealt.assignment(every).tolist()


@pytest.fixture
def new_ledger(memory_folder):
    """Make a ledger of a budget that knows the dataset; return its path."""

    def made(budget):
        path = memory_folder / "ads.ledger"
        create_ledger(path, budget=budget)
        open_vault(path)
        return path

    return made


@pytest.fixture
def killed(fork):
    """Let a child ask a question, and kill itself at a step."""

    def asked(step, path, question, name):
        def act():
            vault = open_vault(path)
            step.arm()
            question(vault, name)

        assert fork(act).end()[1] == -signal.SIGKILL

    return asked


def test_a_release_left_in_the_spool_unnoted_is_handed_out_as_it_is(new_ledger, killed):
    path = new_ledger("20")
    for _ in range(5):  # 30 reports among 4 classes are never the same by chance (below 1e-15)
        killed(Step(Spool, "write", "after"), path, randomized_response, None)
        entry = charges(Ledger(path))[-1]
        assert Ledger(path).progress(entry) == ("charged", None)
        left = np.load(path.with_name(path.name + ".spool") / f"{entry.number:06d}.npz")["reports"].tolist()
        assert answer_of(randomized_response(open_vault(path), None)) == left


def test_what_a_killed_process_left_half_written_is_cleared_away(new_ledger, killed):
    path = new_ledger("20")
    killed(Step(os, "replace", "before"), path, randomized_response, "a name")
    spool = path.with_name(path.name + ".spool")
    assert [file.suffix for file in spool.iterdir()] == [".new"]
    randomized_response(open_vault(path), "a name")
    assert sorted(file.suffix for file in spool.iterdir()) == [".json", ".npz"]


def test_a_query_interrupted_in_an_exhausted_ledger_is_still_finished(new_ledger, killed):
    path = new_ledger("0.1")
    killed(Step(Ledger, "charge", "after"), path, randomized_response, None)
    assert len(randomized_response(open_vault(path), None)) == 30
    with pytest.raises(ldp.BudgetExhausted):
        randomized_response(open_vault(path), None)


def test_an_interrupted_query_waits_while_others_are_answered(new_ledger, killed):
    path = new_ledger("20")
    killed(Step(Ledger, "charge", "after"), path, grouped_response, None)
    waiting = charges(Ledger(path))[-1]
    vault = open_vault(path)
    assert histogram(vault, None).receipt.ledger["entry"] > waiting.number
    assert vault.release(GROUPED, rows=ROWS, priors=PRIORS[::-1]).receipt.ledger["entry"] > waiting.number
    assert grouped_response(vault, "a name").receipt.ledger["entry"] > waiting.number
    finished = grouped_response(vault, None)
    assert finished.receipt.ledger["entry"] == waiting.number
    check_dealing(finished, waiting)


# ---------------------------------------------------------------- killed at any moment


def test_a_kill_at_a_random_moment_leaves_nothing_seen_uncharged(tmp_path, outside, fork):
    path = tmp_path / "ads.ledger"  # on a disk, with its syncs
    create_ledger(path, budget="20")
    open_vault(path)
    kills, waits = 24, random.Random(5)

    def ask_on_and_on(kill):
        vault = open_vault(path)
        for number in range(10_000):
            question = QUESTIONS[number % 3]
            outside.see(question(vault, f"query {kill}.{number}" if number % 2 else None))

    for kill in range(kills):
        child = fork(lambda kill=kill: ask_on_and_on(kill))
        known = len(outside.seen())
        while len(outside.seen()) == known:  # until it is at work
            time.sleep(0.001)
        time.sleep(waits.uniform(0, 0.06))
        os.kill(child.pid, signal.SIGKILL)
        assert child.end()[1] == -signal.SIGKILL
        check_what_is_outside(Ledger(path), outside)
    ledger = Ledger(path)
    check_the_books(ledger, outside)
    assert len(charges(ledger)) - len(outside.seen()) <= kills, "a kill costs at most one charge that nobody saw"
    assert len(outside.seen()) >= kills


# ---------------------------------------------------------------- interrupted, not killed


@pytest.mark.parametrize("place", [None, "ledger"], ids=["in memory", "durable"])
@pytest.mark.parametrize("name", [None, "a name"])
@pytest.mark.parametrize(
    ("where", "call"),
    [(Response, "draw"), (Spool, "write"), (Ledger, "mark_spooled"), (Ledger, "mark_handed_over")],
)
def test_a_query_stopped_by_the_keyboard_is_finished_when_it_is_asked_again(
    monkeypatch, memory_folder, place, name, where, call
):
    if place is None:
        vault = ldp.LabelVault(LABELS, classes=4, budget="0.1")
    else:
        create_ledger(memory_folder / place, budget="0.1")
        vault = open_vault(memory_folder / place)

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, call, stop)
        with pytest.raises(KeyboardInterrupt):
            randomized_response(vault, name)
    assert vault.spent() == Guarantee.of("0.1")
    release = randomized_response(vault, name)
    assert len(release) == 30
    assert vault.spent() == Guarantee.of("0.1")
    if name is None:
        with pytest.raises(ldp.BudgetExhausted):
            randomized_response(vault, name)
    else:
        assert answer_of(randomized_response(vault, name)) == answer_of(release)


def test_a_draw_that_fails_says_nothing_of_labels_and_is_finished_under_its_charge(monkeypatch):
    vault = ldp.LabelVault(LABELS, classes=4, budget="0.1")

    def fail(self, true_labels, bits):
        raise ValueError(f"the labels are {true_labels}")

    with monkeypatch.context() as patch:
        patch.setattr(Response, "draw", fail)
        with pytest.raises(LabelDPError, match="failed inside the vault") as failure:
            randomized_response(vault, None)
    assert "labels are" not in str(failure.value)
    assert failure.value.__cause__ is None and failure.value.__context__ is None
    assert len(randomized_response(vault, None)) == 30


def test_an_unnamed_release_in_memory_is_let_go_once_it_is_handed_over():
    vault = ldp.LabelVault(LABELS, classes=4, budget="20")
    for _ in range(5):
        randomized_response(vault, None)
    kept = randomized_response(vault, "a name")
    (spooled,) = vault._spool._kept.values()
    assert spooled.reports is kept.reports


# ---------------------------------------------------------------- what makes two requests the same


def test_a_name_is_refused_to_a_request_that_differs_in_anything_public(memory_folder):
    path = memory_folder / "ads.ledger"
    create_ledger(path, budget="20")
    vault = open_vault(path)
    vault.histogram(GROUPS, "0.1", n_groups=2, name="counts")
    vault.release(GROUPED, rows=ROWS, priors=PRIORS, name="reports")
    before = Ledger(path).head()
    for other in (
        lambda: vault.histogram(GROUPS, "0.1", n_groups=3, name="counts"),
        lambda: vault.histogram(1 - GROUPS, "0.1", n_groups=2, name="counts"),
        lambda: vault.histogram(GROUPS, "0.2", n_groups=2, name="counts"),
        lambda: vault.histogram(GROUPS[1:], "0.1", rows=np.arange(1, 30), n_groups=2, name="counts"),
        lambda: vault.release(GROUPED, rows=ROWS, priors=PRIORS, name="counts"),
        lambda: vault.release(GROUPED, rows=ROWS, priors=PRIORS[::-1], name="reports"),
        lambda: vault.release(GROUPED, rows=ROWS, priors=PRIORS[0], name="reports"),
        lambda: vault.release(ldp.RRWithPrior("0.1"), rows=ROWS, priors=PRIORS, name="reports"),
    ):
        with pytest.raises(ldp.InvalidArgument, match="belongs to another request"):
            other()
    assert Ledger(path).head() == before


def test_a_charge_that_does_not_cover_the_groups_dealt_now_is_not_used_for_them(memory_folder, monkeypatch):
    """Another machine may round a prior otherwise and deal other groups: then it pays again, once, and not every time."""
    path = memory_folder / "ads.ledger"
    create_ledger(path, budget="20")
    vault = open_vault(path)

    def stop(*args):
        raise KeyboardInterrupt

    reveals = Response.reveals
    with monkeypatch.context() as patch:
        patch.setattr(Response, "draw", stop)
        with pytest.raises(KeyboardInterrupt):
            grouped_response(vault, "a name")
    fewer = property(lambda channel: reveals.__get__(channel) & (np.arange(channel.n_rows) > 3))
    monkeypatch.setattr(Response, "reveals", fewer)
    answers = [grouped_response(vault, "a name") for _ in range(3)]
    assert [len(entry.runs) for entry in charges(Ledger(path))] == [20, 16]
    assert len({str(answer_of(answer)) for answer in answers}) == 1
    assert {answer.receipt.ledger["entry"] for answer in answers} == {charges(Ledger(path))[-1].number}


# ---------------------------------------------------------------- the spool


@pytest.fixture
def answered(memory_folder):
    """A ledger's path, its spool and a named release that lies in it."""
    path = memory_folder / "ads.ledger"
    create_ledger(path, budget="20")
    return path, path.with_name(path.name + ".spool"), randomized_response(open_vault(path), "a name")


@pytest.mark.parametrize(
    "damage",
    [
        lambda spool: (spool / "000003.json").unlink(),
        lambda spool: (spool / "000003.npz").unlink(),
        lambda spool: (spool / "000003.npz").write_bytes(b"PK"),
        lambda spool: (spool / "000003.json").write_text("{}"),
        lambda spool: (spool / "000003.json").write_text((spool / "000003.json").read_text().replace("keep", "kept")),
        lambda spool: (spool / "000003.json").write_text((spool / "000003.json").read_text() + " "),
    ],
    ids=["no json", "no arrays", "cut arrays", "another json", "altered json", "one byte more"],
)
def test_a_spooled_release_that_is_gone_or_altered_is_refused_and_not_drawn_again(answered, damage):
    path, spool, _ = answered
    damage(spool)
    before = Ledger(path).head()
    with pytest.raises(LedgerError, match="spooled release of entry 3"):
        randomized_response(open_vault(path), "a name")
    assert Ledger(path).head() == before


def test_the_spool_is_for_its_owner_alone(answered):
    assert answered[1].stat().st_mode & 0o077 == 0


def test_a_named_release_comes_back_as_it_was(answered):
    path, _, release = answered
    again = randomized_response(open_vault(path), "a name")
    assert again.receipt == release.receipt
    assert answer_of(again) == answer_of(release)
    assert again.classes == release.classes
    assert again.likelihood().tolist() == release.likelihood().tolist()


# ---------------------------------------------------------------- a lock that does not hold


@pytest.mark.parametrize("name", [None, "a name"])
@pytest.mark.parametrize("left_by", ["nobody", "a killed process"])
def test_without_the_lock_two_draws_for_one_charge_are_still_one_answer(
    memory_folder, new_ledger, outside, fork, killed, left_by, name
):
    path = new_ledger("0.1")
    if left_by == "a killed process":
        killed(Step(Ledger, "charge", "after"), path, randomized_response, name)
    drawn, go_on = memory_folder / "drawn", memory_folder / "go on"

    def slow():
        vault, draw = open_vault(path), Response.draw

        def draw_slowly(*args):
            drawn.touch()
            while not go_on.exists():
                time.sleep(0.001)
            return draw(*args)

        Response.draw = draw_slowly
        outside.see(randomized_response(vault, name))

    child = fork(slow)
    while not drawn.exists():
        time.sleep(0.001)
    path.with_name(f"{path.name}-lock").unlink()
    outside.see(randomized_response(open_vault(path), name))
    go_on.touch()
    said, status = child.end()
    assert status == 1 and "TakenOver: Another process went on with entry" in said
    if name is not None:  # what was handed over is still there
        outside.see(randomized_response(open_vault(path), name))
    check_what_is_outside(Ledger(path), outside)
    assert len(outside.seen()) == len(charges(Ledger(path))) == 1


@pytest.mark.parametrize("statement", ["BEGIN", "BEGIN IMMEDIATE", "COMMIT"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_vault_in_memory_goes_on_after_an_interrupt_of_any_transaction(monkeypatch, statement, when):
    vault = ldp.LabelVault(LABELS, classes=4, budget="1")
    patiently = ledger_module.patiently

    def interrupted(db, asked, path):
        if asked == statement and when == "before":
            raise KeyboardInterrupt
        cursor = patiently(db, asked, path)
        if asked == statement:
            raise KeyboardInterrupt
        return cursor

    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "patiently", interrupted)
        with pytest.raises(KeyboardInterrupt):
            randomized_response(vault, None)
    assert len(randomized_response(vault, None)) == 30
