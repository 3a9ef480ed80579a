"""Somebody else's accountant prices what the ledger has added: dp_accounting, for replace-one neighbours."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Guarantee, Ledger, Runs, dp_event
from labeldp.errors import LabelDPError, MissingExtra

dp_accounting = pytest.importorskip("dp_accounting")
pld = pytest.importorskip("dp_accounting.pld")

STEP = 1e-4
"""The accountant rounds every privacy loss up to a multiple of this."""

N_ROWS = 6

epsilons = st.integers(1, 3000).map(lambda thousandths: thousandths / 1000)
charges = st.lists(st.tuples(epsilons, st.sets(st.integers(0, N_ROWS - 1), min_size=1)), min_size=1, max_size=6)


def priced(event, delta):
    """Return the epsilon that the accountant gives a composed event at this delta."""
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE, value_discretization_interval=STEP)
    return accountant.compose(event).get_epsilon(delta)


def vault_after(charged):
    """Return a vault that has answered these queries, each an epsilon and the rows it was asked for."""
    vault = ldp.LabelVault(np.zeros(N_ROWS, dtype=int), classes=2, budget="20")
    for epsilon, rows in charged:
        vault.release(ldp.RandomizedResponse(epsilon), rows=sorted(rows))
    return vault


def exact(spent):
    return spent.epsilon_units / 10**12


@given(charges)
@settings(max_examples=40)
def test_without_delta_the_accountant_and_the_ledger_agree(charged):
    vault = vault_after(charged)
    spent, event = exact(vault.spent()), vault.dp_event()
    rounding = len(event.events) * STEP
    for delta in (0, 1e-15):
        assert spent - 1e-9 <= priced(event, delta) <= spent + rounding + 1e-9


@given(charges)
@settings(max_examples=40)
def test_with_a_delta_the_accountant_never_asks_for_more_than_the_ledger(charged):
    vault = vault_after(charged)
    event = vault.dp_event()
    assert priced(event, 1e-6) <= exact(vault.spent()) + len(event.events) * STEP + 1e-9


def test_many_small_queries_cost_less_than_their_sum_if_a_delta_is_allowed():
    vault = vault_after([(0.1, range(N_ROWS))] * 100)
    assert vault.spent() == Guarantee.of("10")
    assert priced(vault.dp_event(), 1e-6) < 6


@given(charges)
def test_the_event_holds_exactly_the_queries_of_the_most_charged_label(charged):
    vault = vault_after(charged)
    spent = np.zeros(N_ROWS)
    for epsilon, rows in charged:
        spent[sorted(rows)] += round(epsilon * 1000)
    noise = [event.noise_parameter for event in vault.dp_event().events]
    assert {event.num_buckets for event in vault.dp_event().events} <= {2}
    found = [math.log(2 / parameter - 1) for parameter in noise]
    most = np.flatnonzero(spent == spent.max())  # any of those that were charged as much
    wanted = [[epsilon for epsilon, rows in charged if row in rows] for row in most]
    assert any(found == pytest.approx(each, abs=1e-12) for each in wanted)


def test_of_labels_that_were_charged_as_much_any_one_is_the_most_charged():
    events = vault_after([(0.001, {2}), (0.001, {2}), (0.002, {0})]).dp_event().events
    assert len(events) in (1, 2)


def test_disjoint_labels_are_priced_in_parallel():
    vault = vault_after([(1, {0, 1}), (2, {2, 3}), (1.5, {4, 5})])
    assert priced(vault.dp_event(), 0) == pytest.approx(2, abs=STEP)


def test_a_ledger_without_queries_costs_nothing():
    vault = vault_after([])
    assert vault.dp_event().events == []
    assert priced(vault.dp_event(), 0) == 0


def test_curator_and_prior_queries_are_priced_by_their_epsilon():
    vault = ldp.LabelVault([0, 1, 2] * 4, classes=3, budget="20", trust="curator")
    vault.histogram([0, 1] * 6, "0.5")
    vault.release(ldp.GroupedResponse("1"), priors=[0.2, 0.3, 0.5])
    vault.release(ldp.RRTopK("0.25", k=2), priors=[0.2, 0.3, 0.5])
    assert vault.spent() == Guarantee.of("1.75")
    assert priced(vault.dp_event(), 0) == pytest.approx(1.75, abs=3 * STEP)


def test_binary_randomized_response_dominates_every_mechanism_of_its_epsilon():
    """Among K > 2 classes one pair of labels is told apart less well than between two, at any delta."""
    event = vault_after([(1, range(N_ROWS))] * 3).dp_event()
    among_ten = dp_accounting.ComposedDpEvent(
        [dp_accounting.RandomizedResponseDpEvent(noise_parameter=10 / (math.e + 9), num_buckets=10)] * 3
    )
    for delta in (1e-3, 1e-2, 1e-1):
        assert priced(among_ten, delta) <= priced(event, delta) + 3 * STEP


def test_queries_are_listed_one_by_one_since_the_accountant_ignores_how_often_a_repeated_one_is_asked():
    """dp_accounting 0.6 prices SelfComposedDpEvent(randomized response, n) as one response; ours never builds it."""
    event = vault_after([(0.5, range(N_ROWS))] * 4).dp_event()
    assert {type(part) for part in event.events} == {dp_accounting.RandomizedResponseDpEvent}
    assert len(event.events) == 4


def test_a_query_with_delta_is_not_exported_as_if_it_had_none():
    ledger = Ledger.in_memory(budget=Guarantee.of(2, delta="1e-6"), n_rows=3)
    request = {"name": None}
    ledger.charge(request, {}, Runs.of_rows(np.arange(3)), Guarantee.of(1, delta="1e-7"))
    with pytest.raises(LabelDPError, match="delta > 0"):
        dp_event(ledger)


def test_without_dp_accounting_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtra, match=r"pip install 'labeldp\[accounting\]'"):
        vault_after([]).dp_event()
