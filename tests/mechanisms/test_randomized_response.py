from fractions import Fraction

import numpy as np
import pytest
from contract import LocalContract

import labeldp as ldp
from labeldp.budget import Epsilon, Odds


class TestRandomizedResponse(LocalContract):
    def make(self, epsilon, n_classes):
        return ldp.RandomizedResponse(epsilon)


def test_the_law_is_the_papers_equation_1_at_the_integer_odds():
    odds = Odds.within(Epsilon.of("1"))
    law = ldp.RandomizedResponse("1").law(2, np.full(10, 0.1))
    total = odds.keep + 9 * odds.other
    assert law == {report: Fraction(odds.keep if report == 2 else odds.other, total) for report in range(10)}


def test_only_the_length_of_the_prior_counts():
    mechanism = ldp.RandomizedResponse("1")
    assert mechanism.law(0, [0.9, 0.1]) == mechanism.law(0, [0.5, 0.5])


@pytest.mark.parametrize("wrong", [0, -1, "nan", float("inf"), "20.1", None, "1e-13", True, [1]])
def test_a_wrong_epsilon_is_a_clear_error(wrong):
    with pytest.raises(ldp.InvalidArgument, match="epsilon must be"):
        ldp.RandomizedResponse(wrong)


def test_epsilon_has_no_default():
    with pytest.raises(TypeError):
        ldp.RandomizedResponse()


@pytest.mark.parametrize("prior", [[1.0], [], [[0.5, 0.5]]])
def test_one_class_is_refused(prior):
    with pytest.raises(ldp.InvalidArgument):
        ldp.RandomizedResponse("1").law(0, prior)


@pytest.mark.parametrize("label", [-1, 2, 1.0, "0", None, True])
def test_the_law_takes_a_label_of_the_prior(label):
    with pytest.raises(ldp.InvalidArgument, match="label"):
        ldp.RandomizedResponse("1").law(label, [0.5, 0.5])
