import numpy as np
import pytest
from contract import LocalContract, priors
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Epsilon, Odds
from labeldp.mechanisms.channel import Response
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.grouped import (
    deal_to_lightest,
    even_information,
    first_labels,
    group_counts,
    information,
    loads_of,
)
from labeldp.mechanisms.information import information_limit, report_information


class TestGroupedResponse(LocalContract):
    def make(self, epsilon, n_classes):
        return ldp.GroupedResponse(epsilon)


def response(epsilon, table, key=1):
    groups = ldp.GroupedResponse(epsilon).deal(np.asarray(table), Dealing(key, np.arange(len(table))))
    return Response(groups, Odds.within(Epsilon.of(epsilon)))


def share_of_limit(epsilon, prior, dealings=64):
    table = np.tile(prior, (dealings, 1))
    return report_information(response(epsilon, table, key=99), table).mean() / information_limit(prior, float(epsilon))


@given(prior=priors(most_classes=12), m=st.integers(2, 6))
def test_dealing_is_the_naive_rule_each_to_the_lightest_so_far(prior, m):
    m = min(m, len(prior) - 1) if len(prior) > 2 else 2
    masses = loads_of(np.array([prior]), m)
    if m == len(masses):  # each label is then alone, even one of no mass
        assert deal_to_lightest(masses, m)[0][:, 0].tolist() == list(range(m))
        return
    groups, loads = deal_to_lightest(masses, m)
    totals = [0] * m
    for label, mass in enumerate(masses[:, 0].tolist()):
        lightest = min(range(m), key=lambda group: (totals[group], group))
        assert groups[label, 0] == lightest
        totals[lightest] += mass
    assert totals == pytest.approx(loads[:, 0] * 2.0**30, abs=256)


@given(prior=priors(most_classes=9), epsilon=st.sampled_from(["0.5", "1", "2", "3"]))
def test_the_number_of_groups_is_the_most_informative_of_all_tried(prior, epsilon):
    ratio = Odds.within(Epsilon.of(epsilon)).keep / 2**32
    made = ldp.GroupedResponse(epsilon).deal(np.array([prior]), Dealing(5, np.array([0])))
    hand = first_labels(np.array([prior]), Dealing(5, np.array([0])), most_groups=max(group_counts(len(prior), ratio)))
    gains = {}
    for m in group_counts(len(prior), ratio):
        _, masses = deal_to_lightest(hand.masses, m)
        gains[m] = information(masses, ratio)[0]
    assert gains[int(made.counts[0])] >= max(gains.values()) - 1e-9


def test_the_information_formula_is_that_of_the_exact_law():
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    channel = response("1", [prior], key=0)
    laws = [channel.law(0, label) for label in range(4)]
    expected = 0.0
    for report in laws[0]:
        marginal = sum(p * float(law[report]) for p, law in zip(prior, laws, strict=True))
        expected += sum(
            p * float(law[report]) * np.log(float(law[report]) / marginal) for p, law in zip(prior, laws, strict=True)
        )
    assert report_information(channel, np.array([prior]))[0] == pytest.approx(expected, rel=1e-9)


@given(epsilon=st.sampled_from(["0.25", "1", "3"]), prior=priors(most_classes=5), seed=st.integers(0, 10**6))
def test_no_private_channel_beats_the_limit(epsilon, prior, seed):
    """The oracle itself: random epsilon-DP channels stay below the linear program's value."""
    rng = np.random.default_rng(seed)
    prior = (prior + 0.01) / (prior + 0.01).sum()
    columns = np.exp(rng.uniform(0, float(epsilon), size=(len(prior), 6)))
    # scale each row to sum 1 while keeping columns within epsilon: mix with the remainder as one more output
    columns /= columns.sum(axis=1).max() * 1.0
    rest = 1 - columns.sum(axis=1)
    if rest.max() > np.exp(float(epsilon)) * max(rest.min(), 1e-300):
        return
    channel = np.column_stack([columns, rest]) + 1e-300
    marginal = prior @ channel
    carried = (prior[:, None] * channel * np.log(channel / marginal)).sum()
    assert carried <= information_limit(prior, float(epsilon)) + 1e-9


def test_for_two_classes_the_limit_is_randomized_response():
    prior = np.array([0.7, 0.3])
    table = np.array([prior])
    rr = Response(ldp.RandomizedResponse("1").deal(table, None), Odds.within(Epsilon.of("1")))
    assert report_information(rr, table)[0] == pytest.approx(information_limit(prior, 1.0), rel=1e-6)


@pytest.mark.parametrize("n_classes", [4, 5, 7, 10])
def test_it_comes_close_to_the_limit_of_all_private_reports(n_classes):
    """At least 98 % on average, 93 % at worst, over Dirichlet and structured priors, epsilon 0.25 to 8."""
    rng = np.random.default_rng(n_classes)
    rows = [
        rng.dirichlet(np.full(n_classes, c)) * (1 - 1e-6) + 1e-6 / n_classes
        for c in (0.1, 0.3, 1.0, 100.0)
        for _ in range(2)
    ]
    rows += [
        np.full(n_classes, 1 / n_classes),
        np.append(0.5, np.full(n_classes - 1, 0.5 / (n_classes - 1))),
        0.5 ** np.arange(1, n_classes + 1) / (1 - 0.5**n_classes),
    ]
    shares = [share_of_limit(epsilon, prior) for prior in rows for epsilon in ("0.25", "0.5", "1", "2", "4", "8")]
    assert np.mean(shares) >= 0.98
    assert min(shares) >= 0.93


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2"])
@pytest.mark.parametrize("kind", ["uniform", "skewed"])
def test_every_pair_of_classes_falls_apart_under_a_constant_prior(epsilon, kind):
    """The channel averaged over dealings has full rank, although each row's has rank 2 to 4 of 10."""
    prior = np.full(10, 0.1) if kind == "uniform" else np.arange(1, 11) / 55
    channel = response(epsilon, np.tile(prior, (4_000, 1)))
    from labeldp.vault.frequencies import _gram

    one_row = _gram(channel, np.array([0]))
    average = _gram(channel, np.arange(4_000))
    assert np.linalg.matrix_rank(one_row, tol=1e-9) <= 8
    assert np.linalg.matrix_rank(average, tol=1e-6 * np.linalg.norm(average)) == 10


def test_without_dealing_noise_some_pairs_never_fall_apart():
    channel = response("1", np.tile(np.full(10, 0.1), (100, 1)), key=0)
    from labeldp.vault.frequencies import _gram

    assert np.linalg.matrix_rank(_gram(channel, np.arange(100)), tol=1e-9) < 10


@pytest.mark.parametrize(("epsilon", "best"), [("0.5", 2), ("1", 3), ("2", 5), ("3", 9), ("4", 17)])
def test_many_equal_classes_use_the_known_best_number_of_groups(epsilon, best):
    ratio = np.exp(float(epsilon))
    assert max(group_counts(10_000, ratio), key=lambda m: even_information(m, ratio)) in (best, best + 1)


def test_the_dealing_depends_on_the_row_and_the_key_not_on_the_chunk():
    table = np.tile(np.full(10, 0.1), (50, 1))
    whole = ldp.GroupedResponse("1").deal(table, Dealing(3, np.arange(50))).groups
    part = ldp.GroupedResponse("1").deal(table[20:], Dealing(3, np.arange(20, 50))).groups
    other_key = ldp.GroupedResponse("1").deal(table, Dealing(4, np.arange(50))).groups
    assert (whole[20:] == part).all()
    assert (whole != other_key).any() and (whole[0] != whole[1]).any()


def test_reports_are_groups_so_there_is_no_single_noisy_label():
    vault = ldp.LabelVault(np.arange(100) % 10, classes=10, budget="1")
    release = vault.release(ldp.GroupedResponse("1"))
    with pytest.raises(ldp.InvalidArgument, match="several labels"):
        _ = release.labels


def test_a_label_of_zero_prior_still_belongs_to_a_group():
    law = ldp.GroupedResponse("1").law(2, [0.5, 0.5, 0.0])
    assert sum(law.values()) == 1 and any(2 in report for report in law)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3"])
def test_with_many_classes_lots_fill_the_groups_about_evenly(epsilon):
    """Beyond the first labels a label's group is drawn by lot; what is lost to chance stays below a hundredth."""
    rng = np.random.default_rng(3)
    table = np.vstack([np.full((20, 1_000), 0.001), rng.dirichlet(np.full(1_000, 0.05), size=20)])
    channel = response(epsilon, table, key=5)
    masses = np.zeros((40, int(channel.groups.sizes.max())))
    np.add.at(masses, (np.arange(40)[:, None], channel.groups.groups), table)
    ratio = channel.odds.keep / channel.odds.other
    for row in range(40):
        m = int(channel.groups.counts[row])
        assert set(channel.groups.groups[row].tolist()) == set(range(m))
        even = even_information(m, ratio)
        assert information(masses[row, :m, None], ratio)[0] > (0.99 if row < 20 else 0.9) * even


def test_lots_too_depend_on_the_row_and_the_key_not_on_the_chunk():
    table = np.tile(np.full(300, 1 / 300), (50, 1))
    whole = ldp.GroupedResponse("1").deal(table, Dealing(3, np.arange(50))).groups
    part = ldp.GroupedResponse("1").deal(table[20:], Dealing(3, np.arange(20, 50))).groups
    assert (whole[20:] == part).all()
    assert 0.2 < (whole[0] == whole[1]).mean() < 0.5  # rows are dealt independently, into three groups


@pytest.mark.parametrize("heavy", [0.2, 0.4, 0.6])
def test_lots_go_to_the_groups_that_lack_most(heavy, monkeypatch):
    """One heavy label among many: its group stays the label's own, and little is lost against dealing all one by one."""
    prior = np.append(heavy, np.full(999, (1 - heavy) / 999))
    table = np.tile(prior, (50, 1))
    by_lot = response("2", table, key=5)
    own_group = (by_lot.groups.groups == by_lot.groups.groups[:, :1]) @ prior
    share = 1 / by_lot.groups.counts[0]
    assert own_group.mean() < max(heavy, share) + 0.03
    carried = report_information(by_lot, table).mean()
    monkeypatch.setattr("labeldp.mechanisms.grouped.FIRST_LABELS", 1_000)
    assert carried > 0.99 * report_information(response("2", table, key=5), table).mean()


def test_without_noise_the_lots_are_spread_too():
    groups = ldp.GroupedResponse("1").deal(np.full((1, 1_000), 0.001), Dealing(0, np.array([0]))).groups[0]
    assert np.bincount(groups).min() > 250
