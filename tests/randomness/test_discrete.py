"""The noise has the law it claims.

Three witnesses, in the order of trust: the exact law, added up over every path of the algorithm; a naive scalar oracle
that reads the same words and must give the same integers; statistics against the closed-form law and against OpenDP.
"""

from collections import defaultdict
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import count
from math import isqrt, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.randomness import (
    SYSTEM,
    InsecureBits,
    bernoulli,
    bernoulli_exp,
    discrete,
    discrete_gaussian,
    discrete_laplace,
)
from labeldp.randomness.discrete import LARGEST_LAPLACE_SCALE

SCALES = [Fraction(1, 50), Fraction(1, 3), Fraction(1), Fraction(3, 2), Fraction(355, 113), Fraction(10**6)]
VARIANCES = [Fraction(1, 50), Fraction(1, 3), Fraction(1), Fraction(9, 4), Fraction(355, 113), Fraction(10**6)]


def decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / x.denominator


@pytest.fixture
def fifty_digits():
    with localcontext(Context(prec=50)):
        yield


# ---------------------------------------------------------------- the exact law


class UnlikelyError(Exception):
    """This path's probability is below what we add up."""


class RefusedError(Exception):
    """The proposal was refused; the sampler would begin anew."""


def exact_law(run, *, negligible):
    """Follow every path of `run`, which gets a function `choose` in place of random bits.

    `choose(weights)` returns an index and stands for one random decision. Returns the probability of every outcome, and
    what was lost in paths less likely than `negligible`.
    """
    law, lost, open_paths = defaultdict(int), 0, [()]
    while open_paths:
        path, depth, weight = open_paths.pop(), 0, 1

        def choose(weights):
            nonlocal path, depth, weight
            if depth == len(path):
                open_paths.extend((*path, other) for other in range(1, len(weights)))
                path = (*path, 0)
            choice = path[depth]
            depth, weight = depth + 1, weight * weights[choice]
            if weight < negligible:
                raise UnlikelyError
            return choice

        try:
            outcome = run(choose)
        except UnlikelyError:
            lost += weight
        else:
            law[outcome] += weight
    return law, lost


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 7), Fraction(1, 2), Fraction(1), Fraction(9, 4), Fraction(3)])
def test_the_exponential_coin_made_of_exact_coins_has_probability_exp_minus_x(x, monkeypatch, fifty_digits):
    def exact_coin(numerators, denominator, choose):
        p = Fraction(int(numerators[0]), denominator)
        assert len(numerators) == 1 and 0 <= p <= 1
        return np.array([choose([p, 1 - p]) == 0])

    def run(choose):
        return bool(bernoulli_exp(np.array([x.numerator]), x.denominator, choose)[0])

    monkeypatch.setattr(discrete, "bernoulli", exact_coin)
    law, lost = exact_law(run, negligible=Fraction(1, 10**9))
    assert law[True] + law[False] + lost == 1 and lost < Fraction(1, 10**6)
    assert decimal(law[True]) <= (-decimal(x)).exp() <= decimal(law[True] + lost)


@pytest.mark.parametrize("scale", [Fraction(1, 4), Fraction(1), Fraction(3, 2), Fraction(5), Fraction(7, 3)])
def test_laplace_made_of_exponential_coins_has_exactly_its_law(scale, monkeypatch, fifty_digits):
    def exponential_coin(numerators, denominator, choose):
        p = (-decimal(Fraction(int(numerators[0]), denominator))).exp()
        return np.array([choose([p, 1 - p]) == 0])

    def uniform(bound, n, choose):
        assert n == 1
        return np.array([choose([Decimal(1) / bound] * bound)], dtype=np.uint64)

    def once(propose, n):
        values, accepted = propose(n)
        if not accepted.all():
            raise RefusedError
        return values

    def run(choose):
        try:
            return int(discrete_laplace(scale, 1, choose)[0])
        except RefusedError:
            return None

    monkeypatch.setattr(discrete, "_bernoulli_exp_fraction", exponential_coin)
    monkeypatch.setattr(discrete, "below", uniform)
    monkeypatch.setattr(discrete, "_until_accepted", once)
    law, lost = exact_law(run, negligible=Decimal("1e-30"))
    accepted = 1 - lost - law.pop(None)
    r = (-1 / decimal(scale)).exp()
    for x in range(-20, 21):
        assert abs(law[x] / accepted - (1 - r) / (1 + r) * r ** abs(x)) < Decimal("1e-26")


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(1), Fraction(9, 4), Fraction(4), Fraction(355, 113)])
def test_gaussian_made_of_laplace_and_exponential_coins_has_exactly_its_law(variance, monkeypatch, fifty_digits):
    def laplace(scale, n, choose):
        assert n == 1
        weights = [(-abs(x) / decimal(scale)).exp() for x in range(-15, 16)]
        return np.array([choose([weight / sum(weights) for weight in weights]) - 15])

    def exponential_coin(numerators, denominator, choose):
        p = (-decimal(Fraction(int(numerators[0]), denominator))).exp()
        return np.array([choose([p, 1 - p]) == 0])

    def once(propose, n):
        values, accepted = propose(n)
        return [(int(values[0]), bool(accepted[0]))]

    monkeypatch.setattr(discrete, "discrete_laplace", laplace)
    monkeypatch.setattr(discrete, "bernoulli_exp", exponential_coin)
    monkeypatch.setattr(discrete, "_until_accepted", once)
    law, _ = exact_law(lambda choose: discrete_gaussian(variance, 1, choose)[0], negligible=0)
    for x in range(-15, 16):
        ratio = law[x, True] / law[0, True]
        assert abs(ratio - (Decimal(-x * x) / 2 / decimal(variance)).exp()) < Decimal("1e-40")


def test_refused_places_are_redrawn_and_accepted_ones_kept():
    asked, fresh = [], count()

    def propose(n):
        asked.append(n)
        values = np.array([next(fresh) for _ in range(n)])
        return values, values % 3 == 0

    assert discrete._until_accepted(propose, 4).tolist() == [0, 6, 9, 3]
    # first 0..3: places 0 and 3 are filled; then 4, 5 for places 1 and 2: none; then 6, 7: place 1; then 8; then 9
    assert asked == [4, 2, 2, 1, 1]


# ---------------------------------------------------------------- the naive oracle, on the same words


class Naive:
    """Algorithms 1 to 3 of Canonne, Kamath and Steinke, one number at a time.

    Probabilities are Fractions; `over` is the number of equal parts that a coin is drawn from: it fixes the words read.
    """

    def __init__(self, bits):
        self.bits = bits

    def word(self):
        return int(self.bits.words(1)[0])

    def below(self, bound):
        while True:
            word = self.word()
            if word < 2**64 // bound * bound:
                return word % bound

    def bernoulli(self, probability, over):
        if over < 2**63:
            assert (probability * over).denominator == 1
            return self.below(over) < probability * over
        low, width = Fraction(0), Fraction(1)
        while True:  # a random real, known to lie between low and low + width
            width /= 2**64
            low += self.word() * width
            if low + width <= probability:
                return True
            if low > probability:
                return False

    def bernoulli_exp(self, gamma, over):
        fraction = gamma - gamma.numerator // gamma.denominator
        if not self.bernoulli_exp_fraction(fraction, over):
            return False
        return all(self.bernoulli_exp_fraction(Fraction(1), 1) for _ in range(gamma.numerator // gamma.denominator))

    def bernoulli_exp_fraction(self, gamma, over):
        k = 1
        while self.bernoulli(gamma / k, over * k):
            k += 1
        return k % 2 == 1

    def laplace(self, scale):
        t, s = scale.numerator, scale.denominator
        while True:
            u = self.below(t)
            accepted = self.bernoulli_exp(Fraction(u, t), over=t)
            v = 0
            while self.bernoulli_exp_fraction(Fraction(1), 1):
                v += 1
            y = (u + t * v) // s
            negative = self.below(2) == 1
            if accepted and not (negative and y == 0):
                return -y if negative else y

    def gaussian(self, variance):
        t = 1
        while t * t <= variance:
            t += 1
        while True:
            y = self.laplace(Fraction(t))
            gamma = (abs(y) - variance / t) ** 2 / (2 * variance)
            if self.bernoulli_exp(gamma, over=2 * variance.numerator * variance.denominator * t * t):
                return y


seeds = st.integers(0, 2**64)
ratios = st.builds(Fraction, st.integers(1, 60), st.integers(1, 60))
wide_ratios = st.builds(Fraction, st.integers(1, LARGEST_LAPLACE_SCALE), st.integers(1, LARGEST_LAPLACE_SCALE))
thorough = settings(max_examples=200, deadline=None)


@thorough
@given(scale=ratios | wide_ratios | st.integers(1, LARGEST_LAPLACE_SCALE).map(Fraction), seed=seeds)
def test_laplace_gives_the_integer_of_the_naive_oracle(scale, seed):
    fast, naive = InsecureBits(seed), InsecureBits(seed)
    assert discrete_laplace(scale, 1, fast).tolist() == [Naive(naive).laplace(scale)]
    assert fast.words(1) == naive.words(1)  # and has read as many words


@thorough
@given(variance=ratios | wide_ratios.filter(lambda v: v < 10**6), seed=seeds)
def test_gaussian_gives_the_integer_of_the_naive_oracle(variance, seed):
    fast, naive = InsecureBits(seed), InsecureBits(seed)
    assert discrete_gaussian(variance, 1, fast).tolist() == [Naive(naive).gaussian(variance)]
    assert fast.words(1) == naive.words(1)


@thorough
@given(numerator=st.integers(0, 10**40), denominator=st.integers(1, 2**54) | st.integers(2**54, 10**40), seed=seeds)
def test_the_exponential_coin_falls_as_that_of_the_naive_oracle(numerator, denominator, seed):
    numerator %= 4 * denominator
    fast, naive = InsecureBits(seed), InsecureBits(seed)
    flag = bernoulli_exp(np.array([numerator], dtype=object), denominator, fast)[0]
    assert flag == Naive(naive).bernoulli_exp(Fraction(numerator, denominator), over=denominator)
    assert fast.words(1) == naive.words(1)


class ScriptedWords:
    """Bits that hand out the words of a script, then of a seed; each word to one place, or to all places that ask."""

    def __init__(self, script, *, the_same_for_all=False):
        self.script, self.rest, self.read = list(script), InsecureBits(seed=0), 0
        self.the_same_for_all = the_same_for_all

    def words(self, n):
        fresh = min(n, 1) if self.the_same_for_all else n
        taken = [self.script.pop(0) if self.script else int(self.rest.words(1)[0]) for _ in range(fresh)]
        self.read += fresh
        return np.array(taken * n if self.the_same_for_all else taken, dtype=np.uint64)


@given(
    denominator=st.integers(2**63, 2**300) | st.integers(63, 300).map(lambda power: 2**power),
    share=st.fractions(0, 1),
    agreeing=st.integers(0, 4),
    last=st.integers(-1, 1),
    tail=st.lists(st.integers(0, 2**64 - 1), max_size=3),
)
def test_a_coin_beyond_two_to_the_63_compares_as_many_words_as_it_takes(denominator, share, agreeing, last, tail):
    numerator = share.numerator * denominator // share.denominator
    # a script that follows the digits of the probability for some words, then departs by one or not at all
    digits = [(numerator << 64 * k) // denominator % 2**64 for k in range(1, agreeing + 2)]
    script = [*digits[:-1], (digits[-1] + last) % 2**64, *tail]
    fast, naive = ScriptedWords(script), ScriptedWords(script)
    flags = bernoulli(np.array([numerator], dtype=object), denominator, fast)
    assert flags.tolist() == [Naive(naive).bernoulli(Fraction(numerator, denominator), over=denominator)]
    assert fast.read == naive.read


@given(
    numerators=st.lists(st.integers(0, 10**30), min_size=2, max_size=6),
    denominator=st.integers(1, 50) | st.integers(2**50, 2**54),
    wide=st.integers(2**63, 2**70),
    script=st.lists(st.integers(0, 2**64 - 1), max_size=20),
)
def test_in_an_array_every_place_goes_by_its_own_probability(numerators, denominator, wide, script):
    # all places are given the same words, so each must fall as it would alone
    tie = (numerators[-1] % wide << 64) // wide  # sends the last place on to a second word
    for flip, over, words in [
        (bernoulli, denominator, script),
        (bernoulli_exp, denominator, script),
        (bernoulli, wide, script),
        (bernoulli, wide, [tie, *script]),
    ]:

        def coins(chosen, flip=flip, over=over, words=words):
            bits = ScriptedWords(words, the_same_for_all=True)
            return flip(np.array([n % over for n in chosen], dtype=object), over, bits).tolist()

        assert coins(numerators) == [coins([numerator])[0] for numerator in numerators]


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize("denominator", [1, 7, 2**63 - 1, 2**63, 10**30])
def test_coins_of_probability_zero_and_one_never_miss(denominator):
    numerators = np.array([0, denominator] * 50, dtype=object)
    assert bernoulli(numerators, denominator, SYSTEM).tolist() == [False, True] * 50
    assert bernoulli_exp(np.zeros(50, dtype=object), denominator, SYSTEM).all()
    assert not bernoulli_exp(np.full(50, 100 * denominator, dtype=object), denominator, SYSTEM).any()  # e^-100 each


def test_the_numerators_are_not_changed():
    numerators = np.array([3, 0, 25])
    bernoulli(numerators, 30, SYSTEM)
    bernoulli_exp(numerators, 2, SYSTEM)
    assert numerators.tolist() == [3, 0, 25]


def test_nothing_asked_is_nothing_read():
    bits = ScriptedWords([])
    assert discrete_laplace(Fraction(3, 2), 0, bits).shape == discrete_gaussian(Fraction(3, 2), 0, bits).shape == (0,)
    assert bits.read == 0


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_noise_comes_as_int64(draw):
    assert draw(Fraction(3, 2), 5, SYSTEM).dtype == np.int64


@pytest.mark.parametrize(
    "scale", [Fraction(0), Fraction(-1, 2), Fraction(2**54 + 1), Fraction(1, 2**54 + 1), Fraction(2**54 + 1, 2**54)]
)
def test_a_laplace_scale_out_of_range_is_refused_before_a_word_is_read(scale):
    bits = ScriptedWords([])
    with pytest.raises(AssertionError, match="the scale's numerator and denominator must lie between 1 and"):
        discrete_laplace(scale, 1, bits)
    assert bits.read == 0


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1, 2), Fraction(-9), Fraction(2**108)])
def test_a_gaussian_variance_out_of_range_is_refused_before_a_word_is_read(variance):
    bits = ScriptedWords([])
    with pytest.raises(AssertionError, match="the variance must be positive"):
        discrete_gaussian(variance, 1, bits)
    assert bits.read == 0


def test_the_largest_and_the_finest_scales_are_drawn_without_overflow():
    widest = discrete_laplace(Fraction(LARGEST_LAPLACE_SCALE), 2000, SYSTEM)
    # |x| / scale is exponential with mean 1; the mean of 2000 leaves (0.7, 1.3) with probability < 2 exp(-2000 * 0.037)
    assert 0.7 < np.abs(widest / LARGEST_LAPLACE_SCALE).mean() < 1.3
    assert not discrete_laplace(Fraction(1, LARGEST_LAPLACE_SCALE), 2000, SYSTEM).any()
    assert not discrete_gaussian(Fraction(1, 2**200), 100, SYSTEM).any()
    largest = discrete_gaussian(Fraction((2**54 - 1) ** 2), 500, SYSTEM)
    assert np.abs(largest / 2**54).max() < 9  # a normal variable passes 9 deviations with probability 3e-19


# ---------------------------------------------------------------- statistics, on the operating system's entropy

FALSE_ALARM = 1e-9


def surprising(t: float, degrees: int) -> bool:
    """Whether a sum of n * KL(seen || true) over independent samples is too large to be chance.

    Its moment generating function is at most that of a gamma variable of shape `degrees`, one less than the number of
    cells for each sample (Agrawal 2020, arXiv:1904.02291), so chance passes t with probability at most
    e^-t (e t / degrees)^degrees: a likelihood-ratio test whose false-alarm rate holds at every sample size, where the
    chi-square law holds only in the limit.
    """
    return t > degrees and degrees * (1 + log(t / degrees)) - t < log(FALSE_ALARM)


def divergence(seen, true) -> float:
    """n * KL(seen || true)."""
    total = sum(seen)
    return sum(n * log(n / (total * p)) if p else np.inf for n, p in zip(seen, true, strict=True) if n)


def fits(seen, true) -> bool:
    return not surprising(divergence(seen, true), degrees=len(true) - 1)


def alike(seen, also_seen) -> bool:
    """Whether two samples may share a law: the pooled law is the one that is least surprised by both."""
    pooled = (seen + also_seen) / (seen.sum() + also_seen.sum())
    t = divergence(seen.tolist(), pooled.tolist()) + divergence(also_seen.tolist(), pooled.tolist())
    return not surprising(t, degrees=2 * (len(seen) - 1))


def laplace_below(scale):
    """P(x < edge) under the discrete Laplace law, at an array of integers."""

    def below(edge):
        tail = np.exp(-np.where(edge <= 0, 1 - edge, edge) / float(scale)) / (1 + np.exp(-1 / float(scale)))
        return np.where(edge <= 0, tail, 1 - tail)

    return below


def gaussian_below(variance):
    """P(x < edge) under the discrete Gaussian law, at an array of integers."""
    reach = 40 * (isqrt(int(variance)) + 1)
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * float(variance)))
    before = np.concatenate([[0], np.cumsum(weights)]) / weights.sum()
    return lambda edge: before[np.clip(edge + reach, 0, len(x))]


def edges_for(spread):
    """Edges of cells from -6 to 6 times the spread, single integers where the spread is small."""
    return np.unique(np.round(np.linspace(-6, 6, 30) * max(1, spread)).astype(np.int64))


def tally(draws, edges):
    return np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)


def cell_probabilities(below, edges):
    return np.diff(np.concatenate([[0], below(edges), [1]])).clip(0).tolist()


def test_the_closed_forms_are_laws():
    for scale in SCALES[1:5]:
        x = np.arange(-300, 301)
        pmf = np.exp(-np.abs(x) / float(scale))
        assert np.allclose(laplace_below(scale)(x + 1), np.cumsum(pmf / pmf.sum()), rtol=0, atol=1e-12)


def test_the_test_of_fit_has_teeth():
    # expected statistics are above 600 against thresholds below 100: chance hides them with probability below 1e-40
    edges = edges_for(1.5)
    draws = discrete_laplace(Fraction(3, 2), 100_000, SYSTEM)
    assert not fits(tally(draws, edges).tolist(), cell_probabilities(laplace_below(Fraction(7, 4)), edges))
    assert not fits(
        tally(draws + (draws == 0), edges).tolist(), cell_probabilities(laplace_below(Fraction(3, 2)), edges)
    )
    assert not alike(tally(draws, edges), tally(discrete_laplace(Fraction(7, 4), 100_000, SYSTEM), edges))


@pytest.mark.parametrize("scale", [*SCALES, Fraction(2**54 - 1, 2**50 + 1), Fraction(999_983, 7)], ids=str)
def test_laplace_draws_fit_their_law(scale):
    edges = edges_for(float(scale))
    draws = discrete_laplace(scale, 400_000, SYSTEM)
    assert fits(tally(draws, edges).tolist(), cell_probabilities(laplace_below(scale), edges))


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_gaussian_draws_fit_their_law(variance):
    edges = edges_for(float(variance) ** 0.5)
    draws = discrete_gaussian(variance, 200_000, SYSTEM)
    assert fits(tally(draws, edges).tolist(), cell_probabilities(gaussian_below(variance), edges))


@pytest.mark.parametrize("denominator", [60, 2**62, 2**63, 10**30], ids=str)
def test_coins_fall_with_their_own_probabilities(denominator):
    denominator -= denominator % 60
    shares = [Fraction(1, 60), Fraction(1, 3), Fraction(1, 2), Fraction(59, 60)]
    numerators = np.array([int(share * denominator) for share in shares] * 50_000, dtype=object)
    flags = bernoulli(numerators, denominator, SYSTEM).reshape(-1, len(shares))
    for share, heads in zip(shares, flags.sum(axis=0).tolist(), strict=True):
        assert fits([heads, len(flags) - heads], [float(share), float(1 - share)])


@pytest.mark.parametrize("denominator", [4, 2**54, 2**63, 10**30], ids=str)
def test_exponential_coins_fall_with_their_own_probabilities(denominator):
    exponents = [Fraction(1, 4), Fraction(1), Fraction(5, 2), Fraction(4)]
    numerators = np.array([int(x * denominator) for x in exponents] * 50_000, dtype=object)
    flags = bernoulli_exp(numerators, denominator, SYSTEM).reshape(-1, len(exponents))
    for x, heads in zip(exponents, flags.sum(axis=0).tolist(), strict=True):
        assert fits([heads, len(flags) - heads], [np.exp(-float(x)), -np.expm1(-float(x))])


# ---------------------------------------------------------------- OpenDP as a witness


@pytest.fixture(scope="module")
def dp():
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    return opendp


@pytest.mark.parametrize("scale", [0.5, 1.5, 40.0])
def test_laplace_is_like_that_of_opendp(dp, scale):
    theirs = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale=scale)
    edges, zeros = edges_for(scale), [0] * 50_000
    ours = discrete_laplace(Fraction(scale), 50_000, SYSTEM)
    assert alike(tally(ours, edges), tally(np.array(theirs(zeros)), edges))


@pytest.mark.parametrize("deviation", [0.5, 1.5, 40.0])
def test_gaussian_is_like_that_of_opendp(dp, deviation):
    theirs = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale=deviation)
    edges, zeros = edges_for(deviation), [0] * 40_000
    ours = discrete_gaussian(Fraction(deviation) ** 2, 40_000, SYSTEM)
    assert alike(tally(ours, edges), tally(np.array(theirs(zeros)), edges))
