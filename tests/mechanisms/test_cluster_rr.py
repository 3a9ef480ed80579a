import json
from fractions import Fraction
from math import log

import numpy as np
import pytest
from contract import FALSE_ALARM, CountingBits, LocalContract, assert_counts_follow, exact_bound, priors
from hypothesis import example, given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Epsilon, Odds
from labeldp.mechanisms import keep_or_draw
from labeldp.mechanisms.channel import channel_from
from labeldp.mechanisms.cluster_rr import floor_and_total
from labeldp.mechanisms.keep_or_draw import KeepOrDraw, equal_rows

CLOSE = Fraction(1, 2**30)
epsilons = st.one_of(st.sampled_from(["0.01", "0.5", "1", "3", "8", "20"]), st.decimals("0.001", "20", places=6))
taus = st.fractions("1/10000", "1/8", max_denominator=10_000)

HARD_PRIORS = {
    "zeros": [0.5, 0.5, 0, 0, 0],
    "one-hot": [0, 0, 0, 1, 0],
    "uniform": [0.2] * 5,
    "just below the floor": [0.96, 0.00999, 0.01, 0.01001, 0.01],
    "two classes": [0.999, 0.001],
    "a hundred classes": (np.arange(100) / np.arange(100).sum()).tolist(),
    "32 bits": np.float32([0.1, 0.2, 0.7]),
}


def odds_of(epsilon):
    return Odds.within(Epsilon.of(epsilon))


def floored_slowly(prior, tau):
    """Floor the classes that are too light, scale the others to what is left, and begin again until none is too light."""
    p = [Fraction(float(x)) for x in prior]
    low = set()
    while True:
        rest = sum(p[j] for j in range(len(p)) if j not in low)
        left = 1 - tau * len(low)
        q = [tau if j in low else p[j] * left / rest for j in range(len(p))]
        too_light = {j for j in range(len(p)) if q[j] < tau}
        if not too_light:
            return q
        low |= too_light


def formula(prior, tau, ratio, label):
    q = floored_slowly(prior, tau)
    blind = 1 / (1 + (ratio - 1) * min(q))
    return [(1 - blind) * (j == label) + blind * q[j] for j in range(len(q))]


def slow_draw(channel, labels, bits):
    """One row at a time: the first d of the integers below the total keep the label, then each class has as many as it weighs.

    Words are asked for as the fast draw does: one for each row, then again one for each row whose word was refused.
    """
    weights, kept = ([array[place].tolist() for place in channel.which] for array in (channel.weights, channel.kept))
    totals = [sum(w) + d for w, d in zip(weights, kept, strict=True)]
    words, open_rows = [None] * len(totals), list(range(len(totals)))
    while open_rows:
        for row, word in zip(open_rows, bits.words(len(open_rows)).tolist(), strict=True):
            words[row] = word
        open_rows = [row for row in open_rows if words[row] >= 2**64 - 2**64 % totals[row]]
    reports = []
    for row, label in enumerate(labels):
        u, report = words[row] % totals[row] - kept[row], 0
        while u >= weights[row][report]:
            u -= weights[row][report]
            report += 1
        reports.append(int(label) if u < 0 else report)
    return reports


class TestClusterRR(LocalContract):
    def make(self, epsilon, n_classes):
        return ldp.ClusterRR(epsilon, tau=Fraction(1, 20 if n_classes < 20 else 2 * n_classes))

    def channel(self, mechanism, priors):
        return mechanism.channel(priors, odds_of(mechanism.epsilon))


@given(prior=priors(), epsilon=epsilons, tau=taus)
def test_all_of_epsilon_is_spent_and_not_more(prior, epsilon, tau):
    laws = [ldp.ClusterRR(epsilon, tau).law(label, prior) for label in range(len(prior))]
    ratios = [max(law[j] for law in laws) / min(law[j] for law in laws) for j in laws[0]]
    assert max(ratios) <= exact_bound(epsilon)
    assert log(max(ratios)) > float(epsilon) - 1e-9


@given(prior=priors(), epsilon=epsilons, tau=taus)
@example(prior=np.array([1.0, 0.0]), epsilon="20", tau=Fraction(1, 10_000))
@example(prior=np.full(8, 0.125), epsilon="20", tau=Fraction(1, 8))
def test_the_law_is_the_formula(prior, epsilon, tau):
    odds = odds_of(epsilon)
    for label in range(len(prior)):
        law = ldp.ClusterRR(epsilon, tau).law(label, prior)
        expected = formula(prior, tau, Fraction(odds.keep, odds.other), label)
        assert sum(law.values()) == 1
        assert all(abs(law[j] - expected[j]) < CLOSE for j in range(len(prior)))


@pytest.mark.parametrize("prior", HARD_PRIORS.values(), ids=HARD_PRIORS)
@pytest.mark.parametrize("epsilon", ["0.1", "1", "20"])
@pytest.mark.parametrize("tau", ["0.01", "0.001"])
def test_hard_priors_are_no_exception(prior, epsilon, tau):
    mechanism, tau, odds = ldp.ClusterRR(epsilon, tau), Fraction(tau), odds_of(epsilon)
    bound = exact_bound(epsilon)
    laws = [mechanism.law(label, prior) for label in (0, len(prior) - 1)]
    for label, law in zip((0, len(prior) - 1), laws, strict=True):
        expected = formula(prior, tau, Fraction(odds.keep, odds.other), label)
        assert all(abs(law[j] - expected[j]) < CLOSE for j in range(len(prior)))
    assert all(laws[0][j] <= bound * laws[1][j] and laws[1][j] <= bound * laws[0][j] for j in laws[0])


@given(prior=priors(), epsilon=epsilons, tau=st.one_of(taus, st.fractions("1/1000000", "1/8")))
def test_the_floor_is_kept_exactly_and_only_rounding_goes_above_it(prior, epsilon, tau):
    mechanism = ldp.ClusterRR(epsilon, tau)
    weights = [int(w) for w in mechanism.channel(prior[None], odds_of(epsilon)).weights[0]]
    assert min(weights) >= tau * sum(weights)
    expected = floored_slowly(prior, tau)
    assert all(
        abs(Fraction(w, sum(weights)) - q) < 4 * len(prior) / Fraction(2**33)
        for w, q in zip(weights, expected, strict=True)
    )


@given(epsilon=epsilons, tau=st.fractions("1/1000000", "1/2"), n_classes=st.integers(2, 1000))
def test_the_floor_fits_as_often_as_there_are_classes_and_hardly_exceeds_tau(epsilon, tau, n_classes):
    floor, total = floor_and_total(tau, odds_of(epsilon))
    assert floor >= tau * total and floor < tau * (total + 1)
    assert n_classes * tau > 1 or n_classes * floor <= total


def test_a_prior_without_light_classes_stays_as_it_is():
    prior = [0.5, 0.25, 0.125, 0.125]
    law = ldp.ClusterRR("1", tau="0.1").law(0, prior)
    assert float(law[2] / law[1]) == pytest.approx(0.5, rel=1e-12)
    assert abs(law[2] - law[3]) < CLOSE


def test_the_label_is_kept_more_often_where_no_class_is_light():
    mechanism = ldp.ClusterRR("1", tau="0.01")
    even, uneven = (mechanism.keep_probability(p) for p in ([0.25] * 4, [0.97, 0.01, 0.01, 0.01]))
    ratio = Fraction(odds_of("1").keep, odds_of("1").other)
    assert abs(even - (1 - 1 / (1 + (ratio - 1) / 4))) < CLOSE
    assert abs(uneven - (1 - 1 / (1 + (ratio - 1) / 100))) < CLOSE
    law = mechanism.law(1, [0.25] * 4)
    assert law[1] - law[0] == even


def test_with_a_uniform_prior_it_is_randomized_response():
    """Up to the rounding of d: the odds of the own label are keep : other."""
    law, plain = (m.law(2, np.full(10, 0.1)) for m in (ldp.ClusterRR("1"), ldp.RandomizedResponse("1")))
    assert all(abs(law[j] - plain[j]) < CLOSE for j in plain)
    no_prior_left = ldp.ClusterRR("1", tau="0.1").law(2, np.eye(10)[7])
    assert all(abs(no_prior_left[j] - plain[j]) < CLOSE for j in plain)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), n_classes=st.sampled_from([2, 3, 10, 100]), epsilon=epsilons)
def test_the_same_words_give_the_same_reports_as_a_slow_walk(seed, n_classes, epsilon):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(n_classes, 0.2), size=3)[rng.integers(3, size=40)]
    channel = ldp.ClusterRR(epsilon, tau=Fraction(1, 2 * n_classes)).channel(table, odds_of(epsilon))
    labels = rng.integers(n_classes, size=40)
    fast = channel.draw(labels, ldp.InsecureBits(seed))
    assert fast.tolist() == slow_draw(channel, labels, ldp.InsecureBits(seed))


def test_each_integer_below_the_total_is_one_report():
    """A tiny channel, drawn from all its integers: the counts are the weights, and d more for the label."""
    channel = KeepOrDraw(np.array([[3, 1, 2]]), np.zeros(9, dtype=np.uint8), Odds(4 * 2**32))
    assert channel.kept.tolist() == [3] and channel.totals.tolist() == [9]
    for label in range(3):
        reports = channel.draw(np.full(9, label), EveryInteger())
        assert np.bincount(reports, minlength=3).tolist() == [
            3 + 3 * (label == 0),
            1 + 3 * (label == 1),
            2 + 3 * (label == 2),
        ]


class EveryInteger:
    def words(self, count):
        return np.arange(count, dtype=np.uint64)


@pytest.mark.parametrize("epsilon", ["0.5", "4"])
def test_the_sampler_follows_its_law_where_clusters_differ(epsilon):
    """Chi-square per cluster and label over 20,000 seeded draws each; false alarm 1e-9, but the seed is fixed."""
    table = np.array([[0.7, 0.2, 0.1, 0], [0, 0, 1, 0], [0.25, 0.25, 0.25, 0.25]])
    cluster, label = np.divmod(np.arange(12 * 20_000) % 12, 4)
    channel = ldp.ClusterRR(epsilon, tau="0.02").channel(table[cluster], odds_of(epsilon))
    reports = channel.draw(label, ldp.InsecureBits(5))
    for cell in range(12):
        rows = np.flatnonzero((cluster == cell // 4) & (label == cell % 4))
        law = channel.law(int(rows[0]), cell % 4)
        expected = np.array([float(law[j]) * len(rows) for j in range(4)])
        assert_counts_follow(expected, np.bincount(reports[rows], minlength=4), FALSE_ALARM)


def test_the_number_of_words_depends_on_no_label_even_if_clusters_differ():
    table = np.random.default_rng(0).dirichlet(np.full(6, 0.3), size=2_000)
    channel = ldp.ClusterRR("20").channel(table, odds_of("20"))  # totals so large that some words are refused
    for seed in range(3):
        asked = set()
        for labels in (np.zeros(2_000, dtype=int), np.full(2_000, 5), np.arange(2_000) % 6):
            bits = CountingBits(seed)
            channel.draw(labels, bits)
            asked.add(bits.count)
        assert len(asked) == 1 and min(asked) > 2_000


@given(smallest=st.integers(1, 2**33), epsilon=epsilons)
def test_keeping_takes_the_most_that_epsilon_allows_in_whole_numbers(smallest, epsilon):
    odds = odds_of(epsilon)
    channel = KeepOrDraw(np.array([[smallest, smallest + 7]]), np.zeros(1, dtype=np.uint8), odds)
    kept = int(channel.kept[0])
    assert (smallest + kept) * odds.other <= smallest * odds.keep < (smallest + kept + 1) * odds.other


def test_large_weights_at_small_odds_do_not_overflow():
    odds, smallest = odds_of("0.7"), 2**60 - 3
    channel = KeepOrDraw(np.array([[smallest, 2**61]]), np.zeros(1, dtype=np.uint8), odds)
    assert int(channel.kept[0]) == smallest * odds.excess // odds.other
    assert int(channel.totals[0]) == smallest + 2**61 + int(channel.kept[0]) < 2**63


@pytest.mark.parametrize(
    ("weights", "which", "odds"),
    [
        ([[1, 0]], [0], Odds(2**33)),
        ([[1, -5]], [0], Odds(2**33)),
        ([[1, 2]], [1], Odds(2**33)),
        ([[1, 2]], [0], Odds(2**31)),
        ([[1, 2]], [0], Odds(4, 2)),
        ([[2**62, 1]], [0], Odds(2**33)),
        ([[2**61, 2**61]], [0], Odds(2**33)),
        ([[2**40, 2**40]], [0], Odds(2**60)),
        ([[2**63 - 1] * 4], [0], Odds(2**33)),
        ([1, 2], [0], Odds(2**33)),
        ([[]], [0], Odds(2**33)),
        ([[0.5, 0.5]], [0], Odds(2**33)),
    ],
)
def test_weights_that_are_none_are_refused(weights, which, odds):
    with pytest.raises(AssertionError):
        KeepOrDraw(np.array(weights), np.array(which, dtype=np.uint8), odds)


def test_rows_must_be_numbered_by_whole_numbers_of_no_sign():
    with pytest.raises(AssertionError, match="which"):
        KeepOrDraw(np.array([[1, 2], [3, 4]]), np.array([-1]), Odds(2**33))


def test_rows_that_share_a_prior_share_their_weights():
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.ones(10), size=50)
    cluster = rng.integers(50, size=40_000)
    vault = ldp.LabelVault(rng.integers(10, size=40_000), classes=10, budget="1")
    channel = vault.release(ldp.ClusterRR("1"), priors=table[cluster]).channel  # three chunks
    assert channel.weights.shape == (50, 10) and channel.which.dtype == np.uint8
    alone = ldp.ClusterRR("1").channel(table, odds_of("1"))
    assert (channel.weights[channel.which] == alone.weights[alone.which][cluster]).all()


def test_permuted_priors_are_not_taken_for_equal():
    table = np.array([[0.4, 0.1, 0.1, 0.4], [0.1, 0.4, 0.4, 0.1], [0.4, 0.1, 0.4, 0.1], [0.4, 0.1, 0.1, 0.4]])
    first, which = equal_rows(table)
    assert len(first) == 3 and (table[first][which] == table).all()


def test_rows_whose_keys_collide_cost_memory_and_nothing_else(monkeypatch):
    table = np.array([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]])
    apart = ldp.ClusterRR("1").channel(table, odds_of("1"))
    monkeypatch.setattr(keep_or_draw, "row_keys", lambda words: np.zeros(len(words), dtype=np.uint64))
    together = ldp.ClusterRR("1").channel(table, odds_of("1"))
    assert len(apart.weights) == 2 and len(together.weights) == 3
    assert (apart.weights[apart.which] == together.weights[together.which]).all()


def test_a_release_survives_its_file(tmp_path):
    rng = np.random.default_rng(1)
    vault = ldp.LabelVault(list("abacc" * 10), classes=["a", "b", "c"], budget="1")
    release = vault.release(ldp.ClusterRR("1"), priors=rng.dirichlet(np.ones(3), size=5)[rng.integers(5, size=50)])
    release.save(tmp_path / "r")
    again = ldp.Release.load(tmp_path / "r")
    assert (again.labels == release.labels).all() and set(release.labels) <= {"a", "b", "c"}
    assert (again.likelihood() == release.likelihood()).all()
    assert again.channel.law(7, 2) == release.channel.law(7, 2)
    assert (again.debiased_weights() == release.debiased_weights()).all()
    assert again.receipt.priors == release.receipt.priors


@pytest.mark.parametrize("damage", ["odds", "weight", "which", "rows", "classes", "dtype", "missing"])
def test_a_damaged_channel_is_refused(damage):
    channel = ldp.ClusterRR("1").channel(np.array([[0.5, 0.5], [0.9, 0.1]]), odds_of("1"))
    description, arrays = channel.description(), {name: array.copy() for name, array in channel.arrays().items()}
    n_rows, n_classes = 2, 2
    if damage == "odds":
        description["keep"] = 2**31
    elif damage == "weight":
        arrays["weights"][0, 0] = 0
    elif damage == "which":
        arrays["which"][0] = 2
    elif damage == "rows":
        n_rows = 3
    elif damage == "classes":
        n_classes = 3
    elif damage == "dtype":
        arrays["weights"] = arrays["weights"].astype(np.float64)
    else:
        del arrays["which"]
    with pytest.raises(ldp.InvalidArgument, match="does not describe a channel"):
        channel_from(json.loads(json.dumps(description)), arrays, n_rows=n_rows, n_classes=n_classes)


def test_a_damaged_file_is_refused(tmp_path):
    vault = ldp.LabelVault([0, 1, 2], classes=3, budget="1")
    vault.release(ldp.ClusterRR("1"), priors=[0.5, 0.3, 0.2]).save(tmp_path / "r")
    data = bytearray((tmp_path / "r.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "r.npz").write_bytes(data)
    with pytest.raises(ldp.InvalidArgument):
        ldp.Release.load(tmp_path / "r")


def test_the_vault_charges_it_and_refuses_it_past_the_budget():
    vault = ldp.LabelVault([0, 1, 2], classes=3, budget="1.5")
    release = vault.release(ldp.ClusterRR("1", tau="0.02"), priors=[0.5, 0.3, 0.2])
    assert vault.spent().epsilon == "1" and release.receipt.labels_charged == 3
    assert release.receipt.priors["shared"] and len(release.receipt.priors["digest"]) == 64
    with pytest.raises(ldp.BudgetExhausted):
        vault.release(ldp.ClusterRR("1"), priors=[0.5, 0.3, 0.2])
    assert vault.spent().epsilon == "1"


def test_the_histogram_before_it_is_charged_as_well():
    rng = np.random.default_rng(2)
    cluster = rng.integers(4, size=400)
    vault = ldp.LabelVault(rng.integers(3, size=400), classes=3, budget="2", trust="curator")
    counts = vault.histogram(cluster, epsilon="0.5")
    noisy = np.maximum(counts.projected(), 1e-9)
    shares = noisy / noisy.sum(axis=1, keepdims=True)
    release = vault.release(ldp.ClusterRR("1.5"), priors=shares[cluster], source=counts)
    assert vault.spent().epsilon == "2"
    assert release.likelihood().shape == (400, 3)


def test_a_report_that_does_not_depend_on_the_label_costs_nothing():
    vault = ldp.LabelVault([0, 1, 2], classes=3, budget="1")
    release = vault.release(ldp.ClusterRR("1e-12"), priors=[0.5, 0.3, 0.2])
    assert not release.channel.reveals.any() and vault.spent().epsilon == "0"
    with pytest.raises(ldp.InvalidArgument, match="nothing to debias"):
        release.debiased_weights()
    with pytest.raises(ldp.NotIdentifiable):
        release.class_frequencies()


@given(prior=priors(), epsilon=epsilons, tau=taus)
def test_debiased_weights_have_the_right_mean_for_every_label(prior, epsilon, tau):
    n_classes = len(prior)
    vault = ldp.LabelVault(np.zeros(n_classes, dtype=int), classes=n_classes, budget="20")
    channel = vault.release(ldp.ClusterRR(epsilon, tau), priors=prior).channel
    weights = channel.debiased(np.arange(n_classes), np.arange(n_classes))  # as if report j were that of row j
    for label in range(n_classes):
        chances = np.array([float(chance) for chance in channel.law(0, label).values()])
        assert chances @ weights == pytest.approx(np.eye(n_classes)[label], abs=1e-12 * np.abs(weights).max())


def test_class_frequencies_are_unbiased():
    """Each class within 6 standard errors (false alarm 2e-9 each), from one prior for all rows."""
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    labels = np.repeat(np.arange(4), (shares * 40_000).astype(int))
    found = ldp.LabelVault(labels, classes=4, budget="2").release(ldp.ClusterRR("2", tau="0.05"), priors=shares)
    found = found.class_frequencies()
    assert found.assumes is None
    assert (np.abs(found.estimates - shares) < 6 * found.standard_errors).all()


def test_groups_are_the_labels_themselves():
    release = ldp.LabelVault([0, 1, 2], classes=3, budget="1").release(ldp.ClusterRR("1"), priors=[0.5, 0.3, 0.2])
    assert (release.label_numbers == release.reports).all() and release.sizes.tolist() == [3, 3, 3]
    assert release.groups.assignment(np.array([0])).tolist() == [[0, 1, 2]]


def test_a_subclass_is_refused_and_nothing_is_spent():
    class Mine(ldp.ClusterRR):
        def channel(self, priors, odds):
            raise AssertionError("must not be asked")

    vault = ldp.LabelVault([0, 1, 2], classes=3, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="ClusterRR itself"):
        vault.release(Mine("1"), priors=[0.5, 0.3, 0.2])
    assert vault.spent().epsilon == "0"


def test_priors_are_needed_and_their_absence_costs_nothing():
    vault = ldp.LabelVault([0, 1], classes=2, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="needs priors"):
        vault.release(ldp.ClusterRR("1"))
    assert vault.spent().epsilon == "0"


def test_a_floor_above_an_even_share_is_refused_and_costs_nothing():
    vault = ldp.LabelVault([0, 1, 2], classes=3, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="at most 1 / classes, which is 1/3 here; got 2/5"):
        vault.release(ldp.ClusterRR("1", tau="0.4"), priors=[0.5, 0.3, 0.2])
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize("tau", [0, -0.1, "0.6", 1, "1e-7", "nan", None, True, "much"])
def test_tau_must_be_a_share(tau):
    with pytest.raises(ldp.InvalidArgument, match="tau must"):
        ldp.ClusterRR("1", tau=tau)


@pytest.mark.parametrize("tau", [0.01, "0.01", Fraction(1, 100)])
def test_tau_is_kept_exactly(tau):
    assert ldp.ClusterRR("1", tau=tau).tau == Fraction(1, 100)
    assert ldp.ClusterRR("1", tau=tau).parameters()["tau"] == "1/100"


@pytest.mark.parametrize("prior", [[0.5, np.nan], [1.5, -0.5], [0.5, 0.4], [1.0], [[0.5, 0.5]], "half", None], ids=str)
def test_a_wrong_prior_has_no_law(prior):
    with pytest.raises(ldp.InvalidArgument, match="prior"):
        ldp.ClusterRR("1").law(0, prior)


@pytest.mark.parametrize("label", [-1, 2, 0.5, None])
def test_a_label_outside_the_prior_has_no_law(label):
    with pytest.raises(ldp.InvalidArgument, match="label must be"):
        ldp.ClusterRR("1").law(label, [0.5, 0.5])


def test_a_channel_put_into_an_instance_is_not_drawn_from():
    mechanism = ldp.ClusterRR("0.001")
    dear = ldp.ClusterRR("10")
    object.__setattr__(mechanism, "channel", lambda priors, _: dear.channel(priors, Odds.within(Epsilon.of("10"))))
    vault = ldp.LabelVault(np.arange(2_000) % 4, classes=4, budget="1")
    release = vault.release(mechanism, priors=np.full(4, 0.25))
    assert np.mean(release.label_numbers == np.arange(2_000) % 4) < 0.4
