import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp import Guarantee

UNITS = st.integers(0, 20 * 10**12)


@given(a=UNITS, b=UNITS, c=st.integers(0, 10**6), d=st.integers(0, 10**6))
def test_a_guarantee_is_within_another_if_both_its_parts_are(a, b, c, d):
    first, second = Guarantee(a, c), Guarantee(b, d)
    assert (first <= second) == (a <= b and c <= d) == (second >= first)


def test_a_number_is_a_pure_epsilon():
    spent = Guarantee.of("0.3")
    assert spent <= 0.3 and spent >= "0.3" and spent <= ldp.Epsilon.of("0.3") and not spent <= "0.299999999999"
    assert spent <= 1 and not spent >= 1
    assert not Guarantee.of("0.1", delta="1e-9") <= 1


def test_what_a_vault_has_spent_compares_with_what_it_may_spend():
    vault = ldp.LabelVault(np.zeros(5, dtype=int), classes=2, budget="2")
    assert vault.spent() <= 0
    vault.release(ldp.RandomizedResponse("1.5"))
    assert vault.spent() <= 2 and vault.remaining() >= "0.5" and not vault.spent() <= 1


@pytest.mark.parametrize("wrong", [None, "much", [1], float("nan")])
def test_what_is_no_number_is_refused(wrong):
    with pytest.raises(ldp.InvalidArgument):
        _ = Guarantee.of(1) <= wrong
