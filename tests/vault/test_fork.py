"""A vault stays in the process that opened it: a fork closes its copy, and nothing copies or pickles true labels."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import labeldp as ldp
from labeldp.budget import Guarantee, Ledger, create_ledger
from labeldp.errors import LabelDPError, LedgerError, VaultClosed
from labeldp.randomness import SYSTEM

LABELS = np.arange(64) % 2


def in_memory(_):
    return ldp.LabelVault(LABELS, classes=2, budget="20", trust="curator")


def durable(folder):
    path = folder / "ads.ledger"
    if not path.exists():
        create_ledger(path, budget="20")
    return ldp.LabelVault(LABELS, classes=2, ledger=path, trust="curator")


vaults = pytest.mark.parametrize("make", [in_memory, durable])


def ask(vault):
    return vault.release(ldp.RandomizedResponse(epsilon="0.5")).reports.tolist()


def error_of(act, *errors):
    """Return the name of the error that something raises."""
    try:
        act()
    except errors as error:
        return type(error).__name__
    return None


# ---------------------------------------------------------------- forks


QUERIES = {
    "release": ask,
    "histogram": lambda vault: vault.histogram(np.zeros(64, dtype=int), "0.5"),
    "sums": lambda vault: vault.sums(np.zeros(64, dtype=int), low=0, high=1, epsilon="0.5"),
    "agreement": lambda vault: vault.agreement(np.zeros(64, dtype=int), "0.5"),
}


@vaults
@pytest.mark.parametrize("query", QUERIES)
def test_the_copy_of_a_vault_in_a_forked_child_is_closed(make, query, memory_folder, fork):
    vault = make(memory_folder)
    child = fork(lambda: error_of(lambda: QUERIES[query](vault), VaultClosed))
    assert child.join() == "VaultClosed"
    assert vault.spent() == Guarantee(0)
    QUERIES[query](vault)  # the parent's own is as open as before


@vaults
def test_the_labels_are_gone_from_the_child_and_not_only_locked_away(make, memory_folder, fork):
    vault = make(memory_folder)
    assert fork(lambda: vault._labels._numbers is None).join()
    assert fork(lambda: error_of(lambda: vault._labels.open(np.arange(64)), VaultClosed)).join() == "VaultClosed"
    assert vault._labels._numbers is not None


@vaults
def test_a_grandchild_finds_the_vault_closed_too(make, memory_folder, fork):
    vault = make(memory_folder)
    from_grandchild = fork(lambda: fork(lambda: error_of(lambda: ask(vault), VaultClosed)).join())
    assert from_grandchild.join() == "VaultClosed"


def test_a_child_may_open_a_vault_of_its_own_by_its_ledger(memory_folder, fork):
    parent = durable(memory_folder)
    ask(parent)
    assert len(fork(lambda: ask(durable(memory_folder))).join()) == 64
    assert parent.spent() == Guarantee.of("1")


def test_what_is_public_about_a_vault_stays_readable_in_a_child(memory_folder, fork):
    vault = durable(memory_folder)
    ask(vault)
    public = fork(lambda: [len(vault), list(vault.classes), vault.trust, str(vault.spent())])
    assert public.join() == [64, [0, 1], "curator", "epsilon 0.5"]


def test_the_copy_of_a_ledger_in_memory_is_closed_in_a_child(fork):
    vault = in_memory(None)
    ask(vault)
    assert fork(lambda: error_of(vault.spent, LedgerError)).join() == "LedgerError"
    assert vault.spent() == Guarantee.of("0.5")


@vaults
def test_a_child_forked_while_another_thread_holds_the_vault_does_not_hang(make, memory_folder, fork):
    vault = make(memory_folder)
    held, let_go = threading.Event(), threading.Event()

    def hold():
        with vault._lock, vault._ledger._thread_lock:
            held.set()
            let_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        child = fork(lambda: [error_of(act, VaultClosed, LedgerError) for act in (lambda: ask(vault), vault.spent)])
        closed, spent = child.join()
    finally:
        let_go.set()
        holder.join()
    assert closed == "VaultClosed"
    assert spent == ("LedgerError" if make is in_memory else None)


def test_children_and_parent_never_share_noise(memory_folder, fork):
    vault = durable(memory_folder)
    ask(vault)
    draws = [fork(lambda: [SYSTEM.words(4).tolist(), ask(durable(memory_folder))]).join() for _ in range(5)]
    draws.append([SYSTEM.words(4).tolist(), ask(vault)])
    words, reports = zip(*draws, strict=True)
    assert len({str(drawn) for drawn in words}) == 6
    assert len({str(drawn) for drawn in reports}) == 6  # 64 reports agree by chance with less than 1e-15


def test_children_and_parent_never_share_a_dealing_key(memory_folder, fork):
    durable(memory_folder)

    def key():
        return durable(memory_folder).release(ldp.GroupedResponse(epsilon="0.5")).receipt.dealing

    assert len({key(), *(fork(key).join() for _ in range(5))}) == 6


# ---------------------------------------------------------------- copies


@vaults
def test_a_copy_of_a_vault_is_the_vault_itself(make, memory_folder):
    vault = make(memory_folder)
    assert copy.copy(vault) is vault
    assert copy.deepcopy(vault) is vault
    assert copy.deepcopy({"estimator": [vault]})["estimator"][0] is vault
    assert copy.deepcopy(vault._labels) is copy.copy(vault._labels) is vault._labels


@vaults
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_that_holds_a_label_or_the_books_is_pickled(make, memory_folder, protocol):
    vault = make(memory_folder)
    for secret in (vault, vault._labels, vault._ledger, SYSTEM):
        with pytest.raises(LabelDPError):
            pickle.dumps(secret, protocol=protocol)
        with pytest.raises(LabelDPError):
            pickle.dumps({"deep": [secret]}, protocol=protocol)


@vaults
def test_a_closed_vault_answers_nothing_and_keeps_no_label(make, memory_folder):
    with make(memory_folder) as vault:
        ask(vault)
    with pytest.raises(VaultClosed):
        ask(vault)
    assert vault._labels._numbers is None
    assert vault.spent() == Guarantee.of("0.5")


def test_a_ledger_opened_twice_in_one_process_is_one_ledger(memory_folder):
    one, other = durable(memory_folder), durable(memory_folder)
    ask(one)
    ask(other)
    assert one.spent() == other.spent() == Ledger(memory_folder / "ads.ledger").spent() == Guarantee.of("1")
