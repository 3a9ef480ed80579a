from fractions import Fraction

import numpy as np
import pytest
from contract import LocalContract, priors
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import labeldp as ldp
from labeldp.budget import Epsilon, Odds


class TestRRWithPrior(LocalContract):
    def make(self, epsilon, n_classes):
        return ldp.RRWithPrior(epsilon)


def candidates(epsilon, prior):
    return sorted(ldp.RRWithPrior(epsilon).law(0, prior))


def worth(prior, k, odds):
    """w_k of Algorithm 2, exactly."""
    top = sorted((Fraction(float(p)) for p in prior), reverse=True)[:k]
    return Fraction(odds.keep, odds.keep + (k - 1) * odds.other) * sum(top)


def test_half_an_epsilon_and_ten_equal_classes_give_all_ten():
    """The official code returns k = 1 here: its k is off by one."""
    assert candidates("0.5", np.full(10, 0.1)) == list(range(10))


@given(prior=priors(most_classes=12), epsilon=st.sampled_from(["0.1", "0.5", "0.69", "1", "2", "4", "8"]))
def test_k_is_the_exhaustive_optimum_of_algorithm_2(prior, epsilon):
    odds = Odds.within(Epsilon.of(epsilon))
    chosen = len(candidates(epsilon, prior))
    best = max(worth(prior, k, odds) for k in range(1, len(prior) + 1))
    assert worth(prior, chosen, odds) >= best * (1 - Fraction(1, 10**14))


def test_of_equally_good_k_the_smallest_is_taken():
    odds = Odds.within(Epsilon.of("1"))
    # w_1 = p_1 and w_2 = keep (p_1 + p_2) / (keep + other) are equal for p_1 : p_2 = keep : other
    prior = np.array([odds.keep, odds.other]) / (odds.keep + odds.other)
    assert worth(prior, 1, odds) == pytest.approx(worth(prior, 2, odds), abs=1e-16)
    assert len(candidates("1", [0.8, 0.2])) == 1


@settings(max_examples=25)
@given(prior=priors(most_classes=6), epsilon=st.sampled_from(["0.2", "1", "3"]))
def test_theorem_3_no_private_answer_is_more_often_right(prior, epsilon):
    """The paper's LP1 over all epsilon-DP answers, solved; RRWithPrior reaches its optimum."""
    K = len(prior)
    ratio = float(np.exp(float(Epsilon.of(epsilon))))
    constraints = []
    for answer in range(K):
        for a in range(K):
            for b in range(K):
                if a != b:
                    row = np.zeros((K, K))
                    row[a, answer], row[b, answer] = 1, -ratio
                    constraints.append(row.ravel())
    sums = np.kron(np.eye(K), np.ones(K))
    objective = -(np.eye(K) * prior[:, None]).ravel()
    optimum = -linprog(
        objective, A_ub=np.array(constraints), b_ub=np.zeros(len(constraints)), A_eq=sums, b_eq=np.ones(K)
    ).fun
    mechanism = ldp.RRWithPrior(epsilon)
    reached = sum(prior[label] * float(mechanism.law(label, prior).get(label, 0)) for label in range(K))
    assert reached == pytest.approx(optimum, abs=1e-7)


def test_rows_of_one_release_choose_their_own_k():
    table = np.array([[0.97, 0.01, 0.01, 0.01], [0.25] * 4, [0.49, 0.49, 0.01, 0.01]])
    vault = ldp.LabelVault([0, 1, 2], classes=4, budget="1")
    release = vault.release(ldp.RRWithPrior("1"), priors=table)
    assert release.groups.sizes.tolist() == [1, 4, 2]
    assert release.receipt.labels_charged == 2
    assert vault.spent([0]).epsilon == "0"


def test_float32_and_float64_priors_agree_away_from_ties():
    table = np.random.default_rng(0).dirichlet(np.ones(30), size=2_000).astype(np.float32)
    mechanism = ldp.RRWithPrior("2")
    single = mechanism.deal(table, None)
    double = mechanism.deal(table.astype(np.float64), None)
    assert (single.counts == double.counts).all() and (single.members == double.members).all()


def test_without_a_prior_it_is_randomized_response():
    vault = ldp.LabelVault(np.zeros(50, dtype=int), classes=7, budget="1")
    assert (vault.release(ldp.RRWithPrior("1")).groups.sizes == 7).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_classes", "epsilon"), [(100, "1e-6"), (1000, "1e-5"), (100_000, "0.003")])
def test_of_an_even_prior_all_labels_are_candidates_at_small_epsilons_too(n_classes, epsilon, dtype):
    even = np.full((1, n_classes), 1 / n_classes, dtype=dtype)
    assert ldp.RRWithPrior(epsilon).best_k(even).tolist() == [n_classes]
