from fractions import Fraction

import numpy as np
import pytest
from contract import LocalContract, priors
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Epsilon, Odds


class TestRRTopK(LocalContract):
    def make(self, epsilon, n_classes):
        return ldp.RRTopK(epsilon, k=min(3, n_classes))


@given(prior=priors(), k=st.integers(1, 8), epsilon=st.sampled_from(["0.5", "1", "3"]))
def test_the_law_is_algorithm_1(prior, k, epsilon):
    k = min(k, len(prior))
    odds = Odds.within(Epsilon.of(epsilon))
    candidates = sorted(range(len(prior)), key=lambda label: (-prior[label], label))[:k]
    for label in range(len(prior)):
        law = ldp.RRTopK(epsilon, k=k).law(label, prior)
        if label in candidates:
            total = odds.keep + (k - 1) * odds.other
            expected = {c: Fraction(odds.keep if c == label else odds.other, total) for c in candidates}
        else:
            expected = dict.fromkeys(candidates, Fraction(1, k))
        assert law == expected


def test_ties_go_to_the_first_classes():
    assert sorted(ldp.RRTopK("1", k=2).law(0, [0.25, 0.25, 0.25, 0.25])) == [0, 1]


def test_one_candidate_reveals_nothing_and_costs_nothing():
    vault = ldp.LabelVault([0, 1, 2], classes=3, budget="1")
    release = vault.release(ldp.RRTopK("1", k=1), priors=[[0.5, 0.3, 0.2]] * 3)
    assert release.labels.tolist() == [0, 0, 0]
    assert vault.spent().epsilon == "0"
    assert release.receipt.labels_charged == 0


@pytest.mark.parametrize("k", [0, -1, 1.5, "2", True, None])
def test_k_must_be_a_positive_integer(k):
    with pytest.raises(ldp.InvalidArgument, match="k must be"):
        ldp.RRTopK("1", k=k)


def test_k_above_the_classes_is_refused():
    with pytest.raises(ldp.InvalidArgument, match="at most the number of classes"):
        ldp.RRTopK("1", k=4).law(0, [0.5, 0.25, 0.25])


def test_priors_are_needed():
    vault = ldp.LabelVault([0, 1], classes=2, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="needs priors"):
        vault.release(ldp.RRTopK("1", k=1))


def test_the_released_label_is_a_candidate_of_its_row():
    rng = np.random.default_rng(2)
    table = rng.dirichlet(np.ones(20), size=3_000)
    vault = ldp.LabelVault(rng.integers(20, size=3_000), classes=20, budget="1")
    release = vault.release(ldp.RRTopK("1", k=4), priors=table)
    rank = (table > np.take_along_axis(table, release.labels[:, None], axis=1)).sum(axis=1)
    assert (rank < 4).all()
