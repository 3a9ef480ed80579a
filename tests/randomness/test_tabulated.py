"""The tabulated noise has the law of the discrete Gaussian, to the last digit: its table, its doubts and its draws."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import chisquare

from labeldp.randomness import SYSTEM, InsecureBits, discrete_gaussian, tabulated
from labeldp.randomness.tabulated import (
    DIGITS,
    GUIDE_DIGITS,
    LARGEST_TABULATED_VARIANCE,
    UNSURE,
    _cumulative,
    _edges,
    _table,
    tabulated_gaussian,
    worth_a_table,
)

VARIANCES = [1, 2, 7, 100, 12_345]
FALSE_ALARM = 1e-9


def cumulative(variance, digits=160):
    """The C_k by mpmath, at many digits, up to where the rest is below 2^-400."""
    with mpmath.workdps(digits):
        weights = [mpmath.mpf(1)]
        while weights[-1] > mpmath.mpf(2) ** -400:
            weights.append(mpmath.exp(-mpmath.mpf(len(weights) ** 2) / (2 * variance)))
        sums = [weights[0]]
        for weight in weights[1:]:
            sums.append(sums[-1] + 2 * weight)
        return [total / sums[-1] for total in sums]


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_edges_are_the_cumulative_probabilities_rounded_down(variance):
    edges = _table(variance).edges.tolist()
    with mpmath.workdps(160):
        true = [chance * 2**DIGITS for chance in cumulative(variance)]
        assert all(edge <= chance <= edge + 2 for edge, chance in zip(edges, true, strict=False))
    assert edges == sorted(edges) and edges[-1] >= 2**DIGITS - 2


def test_every_table_reaches_the_last_digit():
    for variance in (*range(1, 60), 10**7):
        *_, last = _edges(variance)
        assert last >= 2**DIGITS - 2


def test_a_table_that_is_not_fine_enough_is_refused_whatever_python_does_with_assertions(monkeypatch):
    monkeypatch.setattr(tabulated, "_cumulative", lambda *_: iter([(0, 2), (5, 8)]))
    with pytest.raises(AssertionError, match="within two units"):
        list(_edges(1))


@pytest.mark.parametrize("precision", [63, 127, 191])
@pytest.mark.parametrize("variance", [1, 7, 100])
def test_the_bounds_hold_the_truth_between_them_at_every_precision(variance, precision):
    with mpmath.workdps(160):
        for (low, high), chance in zip(_cumulative(variance, precision), cumulative(variance), strict=False):
            scaled = chance * mpmath.mpf(2) ** precision
            assert low <= scaled <= high
            assert high - low <= 2


@pytest.mark.parametrize("variance", VARIANCES)
def test_what_the_first_digits_decide_alone_is_what_the_whole_table_says(variance):
    table = _table(variance)
    buckets = np.arange(2**GUIDE_DIGITS, dtype=np.uint64)
    width = np.uint64(2 ** (DIGITS - GUIDE_DIGITS))
    sure = table.guide != UNSURE
    for digits in (buckets * width, buckets * width + (width - np.uint64(1)), buckets * width + width // np.uint64(3)):
        assert (table.search(digits)[sure] == table.guide[sure]).all()
    assert sure.mean() > 0.98


@pytest.mark.parametrize("below", [0, 1, 2, 3])
def test_an_edge_just_below_a_bucket_leaves_it_unsure(below, monkeypatch):
    """An edge stands for a C_k of up to 2 units more, which may lie inside the next bucket."""
    width = 2 ** (DIGITS - GUIDE_DIGITS)
    monkeypatch.setattr(tabulated, "_edges", lambda _: iter([5 * width - below, 2**DIGITS - 2]))
    guide = _table.__wrapped__(1).guide
    assert guide[5] == (UNSURE if below < 2 else 1)
    assert guide[4] == (0 if below == 0 else UNSURE)
    assert guide[:4].tolist() == [0] * 4 and guide[6:9].tolist() == [1] * 3


class Scripted:
    """Words of a script, counted."""

    def __init__(self, *script):
        self.script, self.read = list(script), 0

    def words(self, count):
        self.read += count
        return np.array([self.script.pop(0) for _ in range(count)], dtype=np.uint64)


def place(variance, digits, known):
    """How many C_k are at most U = digits / 2^known, by mpmath."""
    with mpmath.workdps(200):
        u = mpmath.mpf(digits) / mpmath.mpf(2) ** known
        return sum(chance <= u for chance in cumulative(variance, digits=200))


@pytest.mark.parametrize("variance", [1, 7, 100])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_digits_on_an_edge_are_decided_by_more_digits(variance, k):
    with mpmath.workdps(160):
        fine = int(mpmath.floor(cumulative(variance)[k] * mpmath.mpf(2) ** (DIGITS + 64)))
    for digits in (fine - 5, fine + 5):  # on either side of C_k, whose first 63 digits they share
        first, more = digits >> 64, digits & (2**64 - 1)
        for sign in (0, 1):
            bits = Scripted(first << 1 | sign, more)
            (drawn,) = tabulated_gaussian(variance, 1, bits)
            assert drawn == (-1 if sign else 1) * place(variance, digits, DIGITS + 64)
            assert bits.read == 2


def test_digits_that_agree_with_an_edge_for_long_take_as_many_words_as_they_need():
    with mpmath.workdps(160):
        fine = int(mpmath.floor(cumulative(100)[3] * mpmath.mpf(2) ** (DIGITS + 192)))
    words = [fine >> shift & (2**64 - 1) for shift in (128, 64, 0)]
    bits = Scripted((fine >> 192) << 1, *words[:2], words[2] - 10**6)
    assert tabulated_gaussian(100, 1, bits).tolist() == [3] and bits.read == 4
    bits = Scripted((fine >> 192) << 1, *words[:2], words[2] + 10**6)
    assert tabulated_gaussian(100, 1, bits).tolist() == [4] and bits.read == 4


@pytest.mark.parametrize("variance", [1, 100])
def test_the_tail_has_no_end(variance):
    """U within 2^-127 of 1 is a draw beyond the table, found with finer bounds."""
    bits = Scripted(2**64 - 1, 2**64 - 2, 2**63)
    (drawn,) = tabulated_gaussian(variance, 1, bits)
    digits = ((2**63 - 1) << 64 | 2**64 - 2) << 64 | 2**63
    assert -drawn == place(variance, digits if bits.read == 3 else digits >> 64, DIGITS + 64 * (bits.read - 1))
    assert -drawn > len(_table(variance).edges)


@pytest.mark.parametrize("variance", VARIANCES)
def test_one_word_is_one_number(variance):
    seen, rest = InsecureBits(seed=variance), InsecureBits(seed=variance)
    tabulated_gaussian(variance, 1_000, seen)
    rest.words(1_000)
    assert seen.words(1) == rest.words(1)


@pytest.mark.parametrize("variance", [*VARIANCES, 10**8])
def test_draws_fit_their_law(variance):
    """Cells of at least 1 % each; false alarm 1e-9."""
    draws = tabulated_gaussian(variance, 200_000, SYSTEM)
    reach = int(10 * variance**0.5) + 1
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x.astype(float) ** 2) / (2 * variance))
    below = np.cumsum(weights) / weights.sum()
    edges = np.unique(x[np.searchsorted(below, np.linspace(0.01, 0.99, 50))])
    cells = np.diff(np.concatenate([[0], below[edges + reach], [1]]))
    seen = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(cells))
    assert chisquare(seen, cells * len(draws)).pvalue > FALSE_ALARM


def test_draws_are_like_those_of_rejection():
    ours, theirs = tabulated_gaussian(30, 100_000, SYSTEM), discrete_gaussian(Fraction(30), 100_000, SYSTEM)
    edges = np.arange(-12, 13)
    seen, also = (np.bincount(np.searchsorted(edges, draws), minlength=26) for draws in (ours, theirs))
    pooled = (seen + also) / 2
    assert chisquare(np.concatenate([seen, also]), np.concatenate([pooled, pooled]), ddof=25).pvalue > FALSE_ALARM


@pytest.mark.parametrize("variance", [1, 100, 2**20, 2**24, 2**30, LARGEST_TABULATED_VARIANCE])
def test_a_table_is_made_where_its_places_are_few_or_its_draws_many(variance):
    fewest = next(count for count in range(2**17) if worth_a_table(variance, count))
    assert worth_a_table(variance, 2**17), "what a pass draws ahead"
    assert (fewest == 0) == (variance <= 2**20)
    assert fewest <= 2 * variance**0.5 and not worth_a_table(LARGEST_TABULATED_VARIANCE + 1, 2**40)


@pytest.mark.parametrize("variance", [0, -1, LARGEST_TABULATED_VARIANCE + 1])
def test_a_variance_out_of_range_is_refused_before_a_word_is_read(variance):
    bits = Scripted()
    with pytest.raises(AssertionError, match="tabulated variance"):
        tabulated_gaussian(variance, 1, bits)
    assert bits.read == 0


def test_the_table_cannot_be_written_over():
    for array in (_table(7).edges, _table(7).guide):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
