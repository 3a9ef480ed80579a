"""Ids that were charged and are not given any more: labels that went by them would get a fresh budget under others."""

from __future__ import annotations

import labeldp as ldp
from labeldp.budget import Ledger, Runs


def charged(path, ids, rows=None):
    with ldp.LabelVault([0] * len(ids), classes=2, ids=ids, ledger=path) as vault:
        vault.release(ldp.RandomizedResponse(epsilon="1"), rows=rows)


def test_a_charged_id_that_is_not_given_is_noticed_and_one_that_was_only_bound_is_not(tmp_path):
    path = tmp_path / "ledger"
    ldp.create_ledger(path, budget="1")
    assert not Ledger(path).has_charged_others([])
    charged(path, ["a", "b", "c"], rows=[0, 1])
    assert not Ledger(path).has_charged_others(["b", "a"]) and not Ledger(path).has_charged_others(["new", "a", "b"])
    assert Ledger(path).has_charged_others(["a", "c"]) and Ledger(path).has_charged_others([])


def test_only_the_asked_rows_are_looked_for(tmp_path):
    path = tmp_path / "ledger"
    ldp.create_ledger(path, budget="1")
    for ids in (["a", "b"], ["c", "d"]):
        charged(path, ids)
    first = Runs.of_rows(Ledger(path).bind(n_rows=2, ids=["a", "b"]))
    assert not Ledger(path).has_charged_others(["a", "b"], among=first)
    assert Ledger(path).has_charged_others(["a", "c", "d"], among=first)
    assert Ledger(path).has_charged_others(["a", "b"])
