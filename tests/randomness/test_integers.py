"""Bounded integers are exactly uniform: the accepted words are whole blocks of `bound` words, the rest is redrawn."""

from math import log

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from labeldp.randomness import SYSTEM, below, below_each
from labeldp.randomness.integers import LARGEST_BOUND

WORDS = 2**64
LARGEST = LARGEST_BOUND - 1

bounds = (
    st.integers(1, LARGEST)
    | st.integers(1, 300)
    | st.integers(0, 62).map(lambda power: 2**power)
    | st.integers(LARGEST - 300, LARGEST)
    | st.integers(2**62 - 300, 2**62 + 300)  # just above 2^62 nearly every fourth word is refused
)


class ScriptedWords:
    """Bits that hand out the words of a script, then zeros (which every bound accepts), and note every request."""

    def __init__(self, script):
        self.script, self.requests = list(script), []

    def words(self, count):
        self.requests.append(count)
        taken, self.script = self.script[:count], self.script[count:]
        return np.array(taken + [0] * (count - len(taken)), dtype=np.uint64)


def naive_below_each(bounds, bits):
    """Go through the places one by one: a word counts if its whole block of `bound` words fits below 2^64."""
    drawn = [None] * len(bounds)
    empty = list(range(len(bounds)))
    words = bits.words(len(bounds)).tolist()
    while empty:
        refused = []
        for place, word in zip(empty, words, strict=True):
            block = word // bounds[place]
            if (block + 1) * bounds[place] <= WORDS:
                drawn[place] = word - block * bounds[place]
            else:
                refused.append(place)
        empty = refused
        words = bits.words(len(empty)).tolist() if empty else []
    return drawn


@st.composite
def bounds_and_script(draw, n_bounds):
    """Draw bounds, and a script in which words next to a bound's limit are common."""
    chosen = draw(st.lists(bounds, min_size=1, max_size=n_bounds))
    limits = [WORDS - WORDS % bound for bound in chosen]
    near = [word for limit in limits for word in range(limit - 2, limit + 2) if word < WORDS]
    words = st.integers(0, WORDS - 1) | st.sampled_from(near) | st.integers(WORDS - 5, WORDS - 1)
    return chosen, draw(st.lists(words, max_size=12))


# ---------------------------------------------------------------- the exact law


@given(bound=bounds)
@example(bound=1)
@example(bound=3)
@example(bound=2**62 + 1)
@example(bound=LARGEST)
def test_the_accepted_words_are_the_largest_whole_number_of_blocks(bound):
    limit = WORDS - WORDS % bound  # a multiple of the bound, less than one bound below 2^64
    assert limit % bound == 0 and limit <= WORDS < limit + bound
    for draw in (lambda bits: below(bound, 1, bits), lambda bits: below_each(np.array([bound], dtype=np.uint64), bits)):
        last_fair = ScriptedWords([limit - 1])
        assert draw(last_fair).tolist() == [bound - 1] and last_fair.requests == [1]
        for unfair in {limit, WORDS - 1} if limit < WORDS else ():
            refused = ScriptedWords([unfair, limit - 1])
            assert draw(refused).tolist() == [bound - 1] and refused.requests == [1, 1]


@given(bound=bounds, block=st.integers(0, 2**63))
def test_within_an_accepted_block_every_value_has_one_word(bound, block):
    block %= WORDS // bound
    for value in {0, bound // 3, bound // 2, bound - 1}:
        assert below(bound, 1, ScriptedWords([block * bound + value])).tolist() == [value]


@given(case=bounds_and_script(n_bounds=1), count=st.integers(0, 6))
def test_below_agrees_with_the_naive_oracle_value_by_value_and_word_by_word(case, count):
    (bound,), script = case
    fast, naive = ScriptedWords(script), ScriptedWords(script)
    assert below(bound, count, fast).tolist() == naive_below_each([bound] * count, naive)
    assert fast.requests == naive.requests


@given(case=bounds_and_script(n_bounds=6))
def test_below_each_agrees_with_the_naive_oracle_value_by_value_and_word_by_word(case):
    chosen, script = case
    fast, naive = ScriptedWords(script), ScriptedWords(script)
    drawn = below_each(np.array(chosen, dtype=np.uint64), fast)
    assert drawn.tolist() == naive_below_each(chosen, naive)
    assert fast.requests == naive.requests


@given(case=bounds_and_script(n_bounds=1), count=st.integers(1, 6))
def test_below_each_of_equal_bounds_is_below(case, count):
    (bound,), script = case
    one, each = ScriptedWords(script), ScriptedWords(script)
    assert (below(bound, count, one) == below_each(np.full(count, bound, dtype=np.uint64), each)).all()
    assert one.requests == each.requests


@pytest.mark.parametrize("power", range(63))
def test_a_power_of_two_refuses_no_word(power):
    bits = ScriptedWords([WORDS - 1, 0, 2**power])
    assert below(2**power, 3, bits).tolist() == [2**power - 1, 0, 0]
    assert bits.requests == [3]


def test_a_bound_of_one_draws_its_words_all_the_same():
    bits = ScriptedWords([WORDS - 1, 5])
    assert below(1, 2, bits).tolist() == [0, 0] and bits.requests == [2]


def test_the_largest_bound_has_two_blocks():
    script = [LARGEST - 1, LARGEST, 2 * LARGEST - 1, 2 * LARGEST, WORDS - 1]
    bits = ScriptedWords([*script, 7, 8])
    assert below(LARGEST, 5, bits).tolist() == [LARGEST - 1, 0, LARGEST - 1, 7, 8]
    assert bits.requests == [5, 2]


@given(bounds=st.lists(bounds, min_size=1, max_size=5))
def test_the_bounds_are_not_changed(bounds):
    array = np.array(bounds, dtype=np.uint64)
    below_each(array, SYSTEM)
    assert array.tolist() == bounds


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("bound", [0, -1, LARGEST_BOUND, WORDS - 1, WORDS, -(2**70)])
def test_a_bound_out_of_range_is_refused_before_a_word_is_drawn(bound):
    bits = ScriptedWords([])
    with pytest.raises(AssertionError, match="at least 1 and below 2"):
        below(bound, 3, bits)
    assert bits.requests == []


@pytest.mark.parametrize("bad", [0, LARGEST_BOUND, WORDS - 1])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bound_out_of_range_among_many_is_refused_before_a_word_is_drawn(bad, place):
    bits, array = ScriptedWords([]), np.array([3, 4, 5], dtype=np.uint64)
    array[place] = bad
    with pytest.raises(AssertionError, match="at least 1 and below 2"):
        below_each(array, bits)
    assert bits.requests == []


@pytest.mark.parametrize("dtype", ["u4", "i8", "i4", "f8", "O"])
def test_bounds_of_another_width_are_refused_since_their_arithmetic_would_wrap_elsewhere(dtype):
    bits = ScriptedWords([])
    with pytest.raises(AssertionError, match="uint64"):
        below_each(np.array([3, 4, 5], dtype=dtype), bits)
    assert bits.requests == []


def test_nothing_asked_is_nothing_drawn():
    assert below(5, 0, SYSTEM).shape == below_each(np.array([], dtype=np.uint64), SYSTEM).shape == (0,)


# ---------------------------------------------------------------- statistics, on the operating system's entropy


def uniform(values, n_values, false_alarm=1e-9):
    """Likelihood-ratio (G) test of uniformity, with a false-alarm rate that holds for every sample size.

    For n draws over k values, P(n KL(seen || true) >= t) <= e^-t (e t / (k - 1))^(k - 1), t >= k - 1 (Agrawal 2020,
    arXiv:1904.02291), where the chi-square law would only hold in the limit.
    """
    seen = np.bincount(values.astype(np.int64), minlength=n_values)
    assert len(seen) == n_values
    t = sum(count * log(count * n_values / len(values)) for count in seen.tolist() if count)
    degrees = n_values - 1
    return t <= degrees or degrees * (1 + log(t / degrees)) - t > log(false_alarm)


def test_the_test_of_uniformity_has_teeth():
    skewed = np.arange(100_000) % 10
    assert uniform(skewed, 10)
    skewed[np.flatnonzero(skewed == 9)[:800]] = 0  # one value in twelve of the nines has gone to the zeros
    assert not uniform(skewed, 10)


@pytest.mark.parametrize("bound", [2, 3, 7, 10, 100])
def test_small_bounds_are_uniform(bound):
    assert uniform(below(bound, 200_000, SYSTEM), bound)


@pytest.mark.parametrize("bound", [3 * 2**61, 2**62 + 1, LARGEST])
def test_large_bounds_are_uniform_over_ranges_and_over_remainders(bound):
    # taking remainders without refusing any word would give the low third of 3 * 2^61 half as much again
    draws = below(bound, 200_000, SYSTEM)
    assert draws.max() < bound
    assert uniform(np.minimum(draws // np.uint64(-(-bound // 16)), np.uint64(15)), 16)
    assert uniform(draws % np.uint64(2), 2)


def test_each_of_mixed_bounds_is_uniform():
    mixed = np.array([2, 3, 10, 3 * 2**61] * 50_000, dtype=np.uint64)
    draws = below_each(mixed, SYSTEM)
    assert (draws < mixed).all()
    for place, bound in enumerate([2, 3, 10]):
        assert uniform(draws[place::4], bound)
    assert uniform(draws[3::4] // np.uint64(2**61), 3)
