"""Epsilon is read exactly, added exactly, and its integer odds are proven in Fractions to keep below e^epsilon."""

import copy
import pickle
import time
from decimal import ROUND_FLOOR, ROUND_UP, Context, Decimal, FloatOperation, Inexact, Rounded, localcontext
from fractions import Fraction
from functools import reduce
from math import floor
from operator import add

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from labeldp.budget.epsilon import (
    LARGEST,
    MOST_DIGITS,
    OTHER,
    UNITS_PER_ONE,
    Epsilon,
    Odds,
    decimal_text,
    exp_floor,
)
from labeldp.budget.guarantee import Guarantee
from labeldp.errors import InvalidArgument

MOST_UNITS = LARGEST * UNITS_PER_ONE

small_units = st.integers(1, 1000)
any_units = st.integers(1, MOST_UNITS)
round_units = st.integers(1, 2000).map(lambda hundredths: hundredths * 10**10)
units = any_units | round_units | small_units | st.integers(MOST_UNITS - 1000, MOST_UNITS)
epsilons = units.map(Epsilon)

contexts = pytest.mark.parametrize(
    "context",
    [
        Context(prec=3),
        Context(prec=1, rounding=ROUND_UP),
        Context(prec=3, traps=[]),
        Context(prec=9, traps=[Inexact, Rounded, FloatOperation]),
        Context(prec=2, Emin=-1, Emax=1, capitals=0, clamp=1),
    ],
    ids=["3 digits", "1 digit up", "no traps", "more traps", "narrow exponents"],
)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (20, "20"),
        (0.1, "0.1"),
        (20.0, "20"),
        (1e-12, "0.000000000001"),
        ("1", "1"),
        (" 1.50\n", "1.5"),
        ("1e-12", "0.000000000001"),
        ("+2E+0", "2"),
        ("0.100000000000000000000", "0.1"),
        ("0" * 60 + "3", "3"),
        (Decimal("0.3"), "0.3"),
        (Decimal("2E1"), "20"),
        (Fraction(1, 8), "0.125"),
        (Fraction(20), "20"),
        (np.int8(3), "3"),
        (np.uint64(3), "3"),
        (np.float16(0.1), "0.1"),
        (np.float32(0.1), "0.1"),
        (np.float64(0.1), "0.1"),
        (np.longdouble("0.1"), "0.1"),
        (np.str_("2.5"), "2.5"),
        (Epsilon.of(3), "3"),
    ],
)
def test_every_kind_of_number_is_read_by_its_decimal_form(value, text):
    epsilon = Epsilon.of(value)
    assert (str(epsilon), epsilon.exact) == (text, Fraction(text))
    assert type(epsilon.units) is int


@given(units=units)
def test_text_decimal_fraction_and_shortest_float_name_the_same_epsilon(units):
    exact = Fraction(units, UNITS_PER_ONE)
    spellings = [exact, decimal_text(units, 12), Decimal(units).scaleb(-12), units / UNITS_PER_ONE, Epsilon(units)]
    assert {Epsilon.of(spelling).units for spelling in spellings} == {units}


@given(units=units)
def test_an_epsilon_prints_as_what_it_is_read_from(units):
    epsilon = Epsilon(units)
    assert Fraction(str(epsilon)) == epsilon.exact
    assert eval(repr(epsilon), {"Epsilon": Epsilon.of}) == epsilon
    assert float(epsilon) == units / UNITS_PER_ONE


not_above_zero_or_too_large = [
    (0, "0"),
    (-1, "-1"),
    ("-0.5", "-0.5"),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    ("0e999999999", "0e999999999"),
    (Decimal("-1e-12"), "-1E-12"),
    (Fraction(-1, 3), "-1/3"),
    (20.000000000001, "20.000000000001"),
    ("20.0000000000001", "20.0000000000001"),
    (21, "21"),
    (np.int64(-3), "-3"),
    (10**50, "1" + "0" * 50),
    (Epsilon(0), "0"),
    (Epsilon(MOST_UNITS + 1), "20.000000000001"),
]


@pytest.mark.parametrize(("value", "shown"), not_above_zero_or_too_large)
def test_an_epsilon_not_above_zero_or_above_twenty_is_refused(value, shown):
    with pytest.raises(InvalidArgument) as refusal:
        Epsilon.of(value)
    assert str(refusal.value) == f"epsilon must be > 0 and at most 20, got {shown}."


def test_a_sum_of_epsilons_may_pass_twenty_but_is_no_epsilon_to_release_with():
    total = Epsilon.of(20) + Epsilon.of(20)
    assert str(total) == "40"
    with pytest.raises(InvalidArgument, match="at most 20, got 40"):
        Epsilon.of(total)


@pytest.mark.parametrize("value", [1e-13, "1e-13", "1.0000000000001", Fraction(1, 3), 1 / 3, Decimal("1e-40"), 5e-13])
def test_an_epsilon_finer_than_a_trillionth_is_refused_not_rounded(value):
    with pytest.raises(InvalidArgument, match=r"^epsilon must be a multiple of 1e-12, got .*Round it"):
        Epsilon.of(value)


no_numbers = [
    "",
    " ",
    "abc",
    "1,5",
    "1/2",
    "0x1",
    "nan",
    "-nan",
    "inf",
    "-Infinity",
    "1e",
    "1_5",
    "--1",
    "1 2",
    "1\0",
    "sNaN1",
]
no_numbers += [float("nan"), float("inf"), -float("inf"), np.float32("nan"), np.float64("inf"), Decimal("sNaN")]


@pytest.mark.parametrize("value", no_numbers, ids=repr)
def test_what_names_no_finite_number_is_refused(value):
    with pytest.raises(InvalidArgument, match=r"^epsilon must be a finite number, got "):
        Epsilon.of(value)


@pytest.mark.parametrize(
    "value", [None, True, np.True_, [1], (1,), b"1", 1 + 0j, np.array(1.0), np.array([1]), object, {}], ids=repr
)
def test_what_is_not_a_number_is_refused_by_its_type(value):
    with pytest.raises(InvalidArgument) as refusal:
        Epsilon.of(value)
    assert str(refusal.value) == f"epsilon must be a number or its decimal text, got {type(value).__name__}."


@pytest.mark.parametrize(
    "value",
    [
        "1e999999999",
        "-1e999999999",
        "1e-999999999",
        "1e99999999999999999999999",
        Decimal("1e999999999"),
        Decimal("1e-999999999"),
        1e300,
        5e-324,
        "9" * 10**6,
        "0." + "1" * 10**6,
        "1." + "0" * 10**6,
        Decimal("0." + "1" * 10**5),
        10**5000,
        -(10**5000),
        Fraction(1, 10**5000),
        Fraction(10**5000 + 1, 10**5000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_number_of_absurd_length_or_size_is_refused_at_once_and_briefly(value):
    started = time.process_time()
    with pytest.raises(InvalidArgument, match=r"^epsilon must ") as refusal:
        Epsilon.of(value)
    assert time.process_time() - started < 1 and len(str(refusal.value)) < 200


def test_the_refusal_names_the_argument():
    with pytest.raises(InvalidArgument, match=r"^budget must be > 0"):
        Epsilon.of(0, name="budget")


anything = (
    st.text(alphabet="0123456789.eE+-_ nafi", max_size=12)
    | st.text(max_size=5)
    | st.floats()
    | st.integers()
    | st.decimals()
    | st.fractions()
    | st.floats(width=16).map(np.float16)
    | st.none()
    | st.booleans()
    | st.binary(max_size=3)
)


@given(value=anything)
def test_anything_is_either_read_exactly_or_refused_as_an_invalid_argument(value):
    try:
        epsilon = Epsilon.of(value)
    except InvalidArgument:
        return
    assert 0 < epsilon.units <= MOST_UNITS
    assert epsilon.exact == Fraction(value if isinstance(value, Fraction) else str(value).strip())


@contexts
def test_no_decimal_context_changes_what_is_read(context):
    spellings = ["0.123456789012", 19.123456789012, Decimal("19.999999999999"), Fraction(1, 8), np.float32(0.1), "2e1"]
    wanted = [Epsilon.of(spelling) for spelling in spellings]
    with localcontext(context):
        assert [Epsilon.of(spelling) for spelling in spellings] == wanted
        assert [str(epsilon) for epsilon in wanted[:3]] == ["0.123456789012", "19.123456789012", "19.999999999999"]


@contexts
@pytest.mark.parametrize("value", ["abc", "", "nan", Decimal("sNaN"), "1e999999999", "20.0000000000001", "1e-13", 0])
def test_no_decimal_context_changes_what_is_refused(context, value):
    with localcontext(context), pytest.raises(InvalidArgument, match=r"^epsilon must "):
        Epsilon.of(value)


@contexts
def test_no_decimal_context_changes_odds_or_realised_epsilon(context):
    for text in ["1e-12", "0.1", "1", "2.718281828459", "20"]:
        odds = Odds.within(Epsilon.of(text))
        realised = odds.realised_epsilon
        with localcontext(context):
            assert exp_floor.__wrapped__(Epsilon.of(text).units, UNITS_PER_ONE, OTHER) == odds.keep
            assert odds.realised_epsilon == realised


# ---------------------------------------------------------------- a value that adds up


@given(parts=st.lists(epsilons, min_size=1, max_size=30))
def test_sums_are_exact_in_any_order(parts):
    total = reduce(add, parts)
    assert total.exact == sum(part.exact for part in parts)
    assert reduce(add, reversed(parts)) == total


@given(a=epsilons, b=epsilons)
def test_epsilons_are_ordered_hashed_and_equal_as_their_exact_values(a, b):
    assert (a < b, a <= b, a == b) == (a.exact < b.exact, a.exact <= b.exact, a.exact == b.exact)
    assert hash(a) == hash(Epsilon(a.units))
    assert pickle.loads(pickle.dumps(a)) == a == copy.deepcopy(a)


def test_an_epsilon_cannot_be_changed():
    with pytest.raises(AttributeError):
        Epsilon.of(1).units = 2


@given(units=st.integers(0, 10**30), places=st.integers(1, 20))
def test_decimal_text_is_plain_exact_and_shortest(units, places):
    text = decimal_text(units, places)
    assert Fraction(text) == Fraction(units, 10**places)
    assert set(text) <= set("0123456789.") and not ("." in text and text[-1] in "0.")


# ---------------------------------------------------------------- e^epsilon


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Prove low < e^x < high by Taylor's sum in Fractions; its tail is below the last term once that is halving."""
    term = total = Fraction(1)
    k = 0
    while k < 2 * x or term > Fraction(1, 10**24):
        k += 1
        term *= x / k
        total += term
    return total, total + term


def decimal_exp_floor(numerator: int, denominator: int, scale: int) -> int:
    """Use the standard library's correctly rounded exponential at 150 digits, an algorithm unrelated to ours."""
    with localcontext(Context(prec=150, rounding=ROUND_FLOOR)):
        value = (Decimal(numerator) / denominator).exp() * scale
        assert abs(value - value.to_integral_value()) > Decimal("1e-60")  # no integer so near that 150 digits could err
        return floor(value)


@given(units=units)
@example(units=1)
@example(units=MOST_UNITS)
def test_exp_floor_agrees_with_an_unrelated_exponential(units):
    assert exp_floor(units, UNITS_PER_ONE, OTHER) == decimal_exp_floor(units, UNITS_PER_ONE, OTHER)


@given(numerator=st.integers(1, 10**6), denominator=st.integers(1, 10**6), scale=st.integers(1, 2**70))
def test_exp_floor_holds_for_any_ratio_and_scale(numerator, denominator, scale):
    assume(numerator <= 30 * denominator)
    assert exp_floor(numerator, denominator, scale) == decimal_exp_floor(numerator, denominator, scale)


@pytest.mark.parametrize("scale", [1, 2**32, 10**40])
def test_exp_floor_of_zero_is_the_scale(scale):
    assert exp_floor(0, 1, scale) == scale


def test_exp_floor_knows_the_digits_of_e():
    assert exp_floor(1, 1, 10**50) == 271828182845904523536028747135266249775724709369995


def convergents_of_e(n):
    """Return the first fractions p/q of e's continued fraction [2; 1, 2, 1, 1, 4, 1, 1, 6, ..]: below e, above e, by turns."""
    terms = [2] + [2 * (i + 1) // 3 if i % 3 == 2 else 1 for i in range(1, n)]
    p, q, fractions = (1, terms[0]), (0, 1), []
    for term in terms[1:]:
        fractions.append((p[1], q[1]))
        p, q = (p[1], term * p[1] + p[0]), (q[1], term * q[1] + q[0])
    return fractions


@pytest.mark.parametrize("place", [*range(8), *range(100, 108), *range(300, 304)])
def test_exp_floor_takes_more_digits_where_the_product_all_but_meets_an_integer(place):
    p, q = convergents_of_e(320)[place]  # |q e - p| < 1/q, as small as 1e-280
    assert exp_floor(1, 1, q) == (p if place % 2 == 0 else p - 1)


@given(epsilon=epsilons)
@example(epsilon=Epsilon(1))
@example(epsilon=Epsilon(MOST_UNITS))
def test_odds_never_exceed_e_to_the_epsilon_and_are_the_largest_that_do_not(epsilon):
    odds = Odds.within(epsilon)
    low, high = exp_bounds(epsilon.exact)
    assert 1 <= Fraction(odds.keep, odds.other) <= low  # low < e^epsilon
    assert Fraction(odds.keep + 1, odds.other) > high  # high > e^epsilon
    assert odds.excess == odds.keep - odds.other >= 0


@given(epsilon=epsilons)
@example(epsilon=Epsilon(1))
@example(epsilon=Epsilon(MOST_UNITS))
def test_the_realised_epsilon_is_at_most_the_one_asked_for_and_less_than_a_billionth_below(epsilon):
    realised = Odds.within(epsilon).realised_epsilon
    assert 0 <= realised <= float(epsilon)
    assert epsilon.exact - Fraction(realised) < Fraction(1, 10**9)


@given(epsilon=epsilons)
def test_the_realised_epsilon_is_the_logarithm_of_the_odds_rounded_up(epsilon):
    odds = Odds.within(epsilon)
    realised = round(odds.realised_epsilon * UNITS_PER_ONE)
    assert odds.realised_epsilon == realised / UNITS_PER_ONE
    ratio = Fraction(odds.keep, odds.other)
    assert ratio <= exp_bounds(Fraction(realised, UNITS_PER_ONE))[1]
    assert realised == 0 or exp_bounds(Fraction(realised - 1, UNITS_PER_ONE))[0] < ratio


def test_twenty_leaves_room_for_two_groups_below_two_to_the_63():
    odds = Odds.within(Epsilon.of(LARGEST))
    assert odds.excess + 2 * odds.other < 2**63


# ---------------------------------------------------------------- guarantee


@pytest.mark.parametrize(
    ("epsilon", "delta", "text"),
    [
        (1, 0, "epsilon 1"),
        ("0.5", "0", "epsilon 0.5"),
        (0.1, 1e-6, "epsilon 0.1, delta 0.000001"),
        (Fraction(1, 4), Decimal("1e-18"), "epsilon 0.25, delta 0.000000000000000001"),
        (Epsilon.of(2), Fraction(1, 2), "epsilon 2, delta 0.5"),
        (20, "0.999999999999999999", "epsilon 20, delta 0.999999999999999999"),
    ],
)
def test_a_guarantee_is_read_and_written_exactly(epsilon, delta, text):
    guarantee = Guarantee.of(epsilon, delta=delta)
    assert str(guarantee) == text
    assert Fraction(guarantee.epsilon) == Fraction(guarantee.epsilon_units, 10**12) == Epsilon.of(epsilon).exact
    assert Fraction(guarantee.delta) == Fraction(guarantee.delta_units, 10**18) == Fraction(str(delta))


@pytest.mark.parametrize("delta", [-1e-9, "-1", 1, 1.0, "1.5", Fraction(1), 20])
def test_delta_must_be_at_least_zero_and_below_one(delta):
    with pytest.raises(InvalidArgument, match=r"^delta must be at least 0 and below 1, got "):
        Guarantee.of(1, delta=delta)


@pytest.mark.parametrize("delta", ["1e-19", Fraction(1, 3), 1e-30])
def test_delta_finer_than_its_unit_is_refused_not_rounded(delta):
    with pytest.raises(InvalidArgument, match=r"^delta must be a multiple of 1e-18, got "):
        Guarantee.of(1, delta=delta)


@pytest.mark.parametrize(
    "delta",
    [None, True, [0], b"0", "", "abc", float("nan"), "inf", "1e-999999999", 10**5000, "0." + "0" * 10**6],
    ids=lambda delta: type(delta).__name__,
)
def test_a_delta_that_is_no_sensible_number_is_refused(delta):
    with pytest.raises(InvalidArgument, match=r"^delta must "):
        Guarantee.of(1, delta=delta)


def test_a_guarantee_refuses_what_its_epsilon_refuses_under_the_name_given():
    with pytest.raises(InvalidArgument, match=r"^budget must be > 0"):
        Guarantee.of(0, name="budget")


def test_a_guarantee_is_a_value():
    guarantee = Guarantee.of(1, delta="1e-6")
    assert guarantee == Guarantee(10**12, 10**12) != Guarantee.of(1)
    assert hash(guarantee) == hash(pickle.loads(pickle.dumps(guarantee)))
    with pytest.raises(AttributeError):
        guarantee.delta_units = 0


@contexts
def test_no_decimal_context_changes_a_guarantee(context):
    wanted = Guarantee.of("0.123456789012", delta="0.123456789012345678")
    with localcontext(context):
        assert Guarantee.of("0.123456789012", delta=Decimal("0.123456789012345678")) == wanted
        assert str(wanted) == "epsilon 0.123456789012, delta 0.123456789012345678"


def test_the_longest_number_that_is_read_is_long_enough_for_every_unit():
    assert len("20.") + 18 < MOST_DIGITS
