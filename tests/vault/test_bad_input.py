"""Every wrong argument gets an error of ours and spends nothing."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeldp as ldp

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 1000),
    st.sampled_from([2**31, 2**62, 10**30, -(2**70)]),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.one_of(st.integers(-3, 8), st.floats(), st.text(max_size=2), st.none()), max_size=8),
    st.lists(st.lists(st.floats(), max_size=4), max_size=7),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.builds(object),
    st.just(np.array([[0.5, 0.5]])),
    st.just(np.array(["a"], dtype=object)),
    st.just(np.datetime64("2020-01-01")),
    st.just(ldp.RandomizedResponse),
    st.just(lambda *_: None),
)


def fresh_vault():
    return ldp.LabelVault([0, 1, 2, 0, 1, 2], classes=3, budget="1", trust="curator")


def check(ask, vault):
    """The call works and is charged, or fails with our error and is not."""
    try:
        ask()
    except ldp.LabelDPError:
        assert vault.spent().epsilon_units == 0
        assert len(vault.certificate()["queries"]) == 0
    else:
        assert len(vault.certificate()["queries"]) == 1


@settings(max_examples=150)
@given(rows=ANYTHING)
def test_any_rows(rows):
    vault = fresh_vault()
    check(lambda: vault.release(ldp.RandomizedResponse("1"), rows), vault)


@settings(max_examples=150)
@given(priors=ANYTHING)
def test_any_priors(priors):
    for mechanism in (
        ldp.RRTopK("1", k=2),
        ldp.RRWithPrior("1"),
        ldp.GroupedResponse("1"),
        ldp.RandomizedResponse("1"),
    ):
        vault = fresh_vault()
        check(lambda vault=vault, m=mechanism: vault.release(m, priors=priors), vault)


@settings(max_examples=150)
@given(thing=ANYTHING)
def test_any_mechanism_name_or_source(thing):
    vault = fresh_vault()
    check(lambda: vault.release(thing), vault)
    for option in ("name", "source"):
        vault = fresh_vault()
        check(lambda v=vault, o=option: v.release(ldp.RandomizedResponse("1"), **{o: thing}), vault)


@settings(max_examples=150)
@given(thing=ANYTHING)
def test_any_groups_bounds_epsilons_and_predictions(thing):
    groups = [0, 0, 0, 1, 1, 1]
    for ask in (
        lambda v: v.histogram(thing, epsilon="1"),
        lambda v: v.histogram(groups, epsilon=thing),
        lambda v: v.histogram(groups, epsilon="1", n_groups=thing),
        lambda v: v.sums(thing, low=0, high=2, epsilon="1"),
        lambda v: v.sums(groups, low=thing, high=2, epsilon="1"),
        lambda v: v.sums(groups, low=0, high=thing, epsilon="1"),
        lambda v: v.agreement(thing, epsilon="1"),
        lambda v: v.agreement([0] * 6, epsilon=thing),
    ):
        vault = fresh_vault()
        check(lambda ask=ask, vault=vault: ask(vault), vault)


@settings(max_examples=200)
@given(
    option=st.sampled_from(["classes", "budget", "delta", "ledger", "ids", "owners", "trust", "missing", "bits"]),
    thing=ANYTHING,
)
def test_any_argument_of_the_vault(option, thing):
    with suppress(ldp.LabelDPError):
        ldp.LabelVault([0, 1, 2], **{"classes": 3, "budget": "1", option: thing})


@settings(max_examples=200)
@given(thing=ANYTHING, name=st.sampled_from(["epsilon", "k", "low", "high", "step"]))
def test_any_argument_of_a_mechanism(thing, name):
    kind, arguments = {
        "epsilon": (ldp.RandomizedResponse, {}),
        "k": (ldp.RRTopK, {"epsilon": "1"}),
    }.get(name, (ldp.UnbiasedResponse, {"epsilon": "1", "low": 0, "high": 1}))
    with suppress(ldp.LabelDPError):
        kind(**arguments | {name: thing})


@settings(max_examples=150)
@given(labels=ANYTHING, classes=st.sampled_from([2, ["a", "b"], [1.5, 2.5], [False, True]]))
def test_any_labels(labels, classes):
    with suppress(ldp.InvalidLabels):
        ldp.LabelVault(labels, classes=classes, budget="1")


@pytest.mark.parametrize("path", ["", "missing/folder/x.ledger"])
def test_a_ledger_needs_a_place(path, tmp_path):
    with pytest.raises(ldp.LabelDPError):
        ldp.create_ledger(tmp_path / path, budget="1")
