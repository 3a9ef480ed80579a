"""What every local mechanism must satisfy, in exact arithmetic, and what its sampler must match."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import labeldp as ldp
from labeldp.budget import Epsilon, Odds
from labeldp.mechanisms.channel import Response
from labeldp.mechanisms.dealing import Dealing

FALSE_ALARM = 1e-9

EPSILONS = st.one_of(
    st.sampled_from(["1e-12", "0.1", "0.5", "1", "2", "8", "20"]), st.decimals("0.001", "20", places=6)
)


@st.composite
def priors(draw, most_classes=8):
    """Rows of probabilities, with zeros, ties and near-certainty among them."""
    weights = draw(
        st.lists(st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-6, 1.0)), min_size=2, max_size=most_classes).filter(
            any
        )
    )
    return np.array(weights) / sum(weights)


def exact_bound(epsilon) -> Fraction:
    """A rational number that is at most e^epsilon, found without the code under test."""
    from mpmath import iv, mp

    mp.dps = iv.dps = 60
    low = iv.exp(iv.mpf(str(Epsilon.of(epsilon)))).a
    return Fraction(int(mp.floor(mp.mpf(low) * 10**40)), 10**40)


class LocalContract:
    """Subclass and say how to make the mechanism for an epsilon and a number of classes."""

    def make(self, epsilon, n_classes):
        raise NotImplementedError

    def channel(self, mechanism, priors):
        """What is drawn from, for rows with these priors."""
        groups = mechanism.deal(priors, Dealing(7, np.arange(len(priors))))
        return Response(groups, Odds.within(Epsilon.of(mechanism.epsilon)))

    @given(epsilon=EPSILONS, prior=priors(), key=st.sampled_from([0, 1, 2**64 - 1]))
    def test_no_report_betrays_any_pair_of_labels_by_more_than_epsilon(self, epsilon, prior, key):
        mechanism = self.make(epsilon, len(prior))
        bound = exact_bound(epsilon)
        laws = [mechanism.law(label, prior, dealing=key) for label in range(len(prior))]
        for law in laws:
            assert sum(law.values()) == 1
            assert law.keys() == laws[0].keys()
        for report in laws[0]:
            chances = [law[report] for law in laws]
            assert max(chances) <= bound * min(chances)

    @given(epsilon=EPSILONS)
    def test_the_realised_epsilon_is_at_most_the_asked_one_and_hardly_less(self, epsilon):
        asked = float(Epsilon.of(epsilon))
        assert asked - 1e-9 < self.make(epsilon, 3).realised_epsilon <= asked

    @pytest.mark.parametrize("epsilon", ["0.3", "2"])
    def test_the_sampler_follows_its_law(self, epsilon):
        """Chi-square over 40,000 draws per label; false alarms 1e-9 in all."""
        prior = np.array([0.45, 0.3, 0.1, 0.1, 0.05])
        n = 40_000
        mechanism = self.make(epsilon, len(prior))
        for label in range(len(prior)):
            vault = ldp.LabelVault(np.full(n, label), classes=len(prior), budget="20")
            release = vault.release(mechanism, priors=prior)
            assert_counts_follow(self.expected_counts(release, label), self.observed_counts(release), FALSE_ALARM / 10)

    def expected_counts(self, release, label):
        """Expected number of times each report is the k-th cell, summed over the rows' own laws."""
        n_classes = len(release.classes)
        groups = release.groups
        index = np.arange(len(release))
        reachable = groups.assignment(index)
        cells = np.zeros(int(groups.sizes.max()))
        for report in range(len(cells)):
            rows = index[groups.sizes > report]
            chance = release.channel.likelihood(np.full(len(release), report), rows)
            cells[report] = chance[:, label].sum()
        assert reachable.shape == (len(release), n_classes)
        return cells

    def observed_counts(self, release):
        return np.bincount(release.reports, minlength=int(release.groups.sizes.max()))

    def test_the_number_of_random_words_does_not_depend_on_the_label(self):
        prior = np.array([0.45, 0.3, 0.1, 0.1, 0.05])
        drawn = set()
        for label in range(5):
            bits = CountingBits()
            self.channel(self.make("1", 5), np.tile(prior, (500, 1))).draw(np.full(500, label), bits)
            drawn.add(bits.count)
        assert len(drawn) == 1

    @given(prior=priors())
    def test_the_likelihood_is_the_law(self, prior):
        n = 20
        mechanism = self.make("1.5", len(prior))
        vault = ldp.LabelVault(np.arange(n) % len(prior), classes=len(prior), budget="2")
        release = vault.release(mechanism, priors=prior)
        likelihood = release.likelihood()
        for row in range(n):
            groups = release.groups.assignment(np.array([row]))[0]
            for label in range(len(prior)):
                law = release.channel.law(row, label)
                members = np.flatnonzero(groups == release.reports[row]).tolist()
                report = members[0] if release.groups.single_labels else frozenset(members)
                empty = max(1, int(release.groups.sizes[row]) - len(set(groups[groups >= 0]))) if not members else 1
                assert likelihood[row, label] == pytest.approx(float(law[report] / empty), rel=1e-15)

    def test_many_classes_are_no_trouble(self):
        n_classes = 100_000
        labels = np.array([0, 5, 99_999])
        priors = np.random.default_rng(0).dirichlet(np.ones(n_classes), size=3)
        vault = ldp.LabelVault(labels, classes=n_classes, budget="4")
        release = vault.release(self.make("4", n_classes), priors=priors)
        assert release.likelihood().shape == (3, n_classes)

    def test_priors_come_as_array_memmap_function_or_one_row(self, tmp_path):
        rng = np.random.default_rng(1)
        table = rng.dirichlet(np.ones(4), size=100).astype(np.float32)
        np.save(tmp_path / "p.npy", table)
        mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
        rows = np.arange(0, 100, 3)
        for given_priors in (table[rows], mapped[rows], lambda asked: table[asked], table[0]):
            vault = ldp.LabelVault(rng.integers(4, size=100), classes=4, budget="1")
            assert len(vault.release(self.make("1", 4), rows, priors=given_priors)) == len(rows)

    @pytest.mark.parametrize(
        "wrong",
        [
            np.ones((10, 4)),
            np.full((9, 4), 0.25),
            np.full((10, 5), 0.2),
            np.array([[np.nan] * 4] * 10),
            np.array([[np.inf, 0, 0, 0]] * 10),
            np.array([[2.0, -1.0, 0, 0]] * 10),
            [["a", "b", "c", "d"]] * 10,
            [[0.5, 0.5], [1.0]],
            np.full((10, 4), 0.25) + 0j,
            lambda rows: np.ones((len(rows), 4)),
            lambda _: None,
            0.25,
        ],
    )
    def test_wrong_priors_are_refused_and_cost_nothing(self, wrong):
        vault = ldp.LabelVault(np.zeros(10, dtype=int), classes=4, budget="1")
        with pytest.raises(ldp.InvalidArgument, match="prior"):
            vault.release(self.make("1", 4), priors=wrong)
        assert vault.spent().epsilon == "0"


class CountingBits:
    """The words of one seed, counted: a word may be refused by chance, but for any label it must be the same one."""

    private = False

    def __init__(self, seed=0):
        self.count = 0
        self._bits = ldp.InsecureBits(seed)

    def words(self, count):
        self.count += count
        return self._bits.words(count)


def assert_counts_follow(expected, observed, false_alarm):
    """Chi-square of counts against expectations, cells below 10 pooled."""
    small = expected < 10
    if small.any():
        expected = np.append(expected[~small], expected[small].sum())
        observed = np.append(observed[~small], observed[small].sum())
        expected, observed = expected[expected > 0], observed[expected > 0]
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert statistic <= chi2.isf(false_alarm, max(1, len(expected) - 1))
