"""The (epsilon, delta) of discrete Gaussian noise: never below the truth, and within a hair of the continuous formula."""

from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import exp, fsum, sqrt

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.mechanisms.normal_privacy import (
    ERROR,
    SMOOTHING,
    UNEVENNESS,
    continuous_variance,
    delta_bound,
    gaussian_delta,
    smallest_epsilon,
    smallest_variance,
)

POINTS = [("0.1", "1e-8"), ("0.5", "1e-5"), ("1", "1e-6"), ("2", "1e-9"), ("8", "1e-12")]
UNITS = 10**12


def true_gaussian_delta(epsilon, squared_ratio):
    with mpmath.workdps(120):
        epsilon, m = mpmath.mpf(epsilon), mpmath.sqrt(mpmath.mpf(squared_ratio))
        return mpmath.ncdf(m / 2 - epsilon / m) - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m)


def discrete_delta(epsilon, variance, shift):
    """The smallest delta of noise of this variance for two vectors that are `shift` apart, added up over the lattice."""
    reach = int(12 * sqrt(variance)) + max(map(abs, shift))
    line = range(-reach, reach + 1)
    normalizer = fsum(exp(-(x * x) / (2 * variance)) for x in line) ** len(shift)
    excess = []
    for point in product(line, repeat=len(shift)):
        here = sum(x * x for x in point)
        there = sum((x - s) ** 2 for x, s in zip(point, shift, strict=True))
        if there - here > 2 * variance * epsilon:  # the loss is above epsilon
            excess.append(exp(-here / (2 * variance)) - exp(epsilon - there / (2 * variance)))
    return fsum(excess) / normalizer


# ---------------------------------------------------------------- the continuous formula


@pytest.mark.parametrize("epsilon", ["1e-12", "0.01", "1", "7.5", "20"])
@pytest.mark.parametrize("squared_ratio", ["1e-20", "1e-6", "0.01", "1", "30", "1e6"])
def test_the_formula_is_evaluated_to_80_digits_and_never_below(epsilon, squared_ratio):
    true = true_gaussian_delta(epsilon, squared_ratio)
    ours = gaussian_delta(Decimal(epsilon), Decimal(squared_ratio))
    with mpmath.workdps(120):
        assert 0 <= mpmath.mpf(str(ours)) - true <= 2 * mpmath.mpf(str(ERROR))


def test_the_unevenness_of_shifted_sums_is_bounded():
    with mpmath.workdps(60):
        a = 2 * mpmath.pi**2 * SMOOTHING
        true = 2 * mpmath.nsum(lambda m: mpmath.exp(-a * m * m), [1, mpmath.inf])
        assert true < mpmath.mpf(UNEVENNESS.numerator) / UNEVENNESS.denominator < 1.06 * true


@pytest.mark.parametrize(("vector", "answer"), [(0, 0), (3, 5), (-2, 6)])
def test_the_discrete_gaussian_is_a_rounding_of_a_continuous_one(vector, answer):
    """The lemma of docs/proofs/normal.md, added up finely."""
    variance = 9
    with mpmath.workdps(40):
        smooth, eta = mpmath.mpf(SMOOTHING), mpmath.mpf(UNEVENNESS.numerator) / UNEVENNESS.denominator

        def weights(z):
            return mpmath.fsum(mpmath.exp(-((k - z) ** 2) / (2 * smooth)) for k in range(int(z) - 25, int(z) + 26))

        def rounded(z):
            density = mpmath.npdf(z, vector, mpmath.sqrt(variance - SMOOTHING))
            return density * mpmath.exp(-((answer - z) ** 2) / (2 * smooth)) / weights(z)

        step = mpmath.mpf(1) / 5  # the trapezoidal rule errs by less than e^-100 on a function as smooth as this
        ours = step * mpmath.fsum(rounded(step * i) for i in range(-100, 120))
        density = mpmath.npdf(answer, vector, mpmath.sqrt(variance))
        assert 1 - eta <= density / ours <= 1 + eta
        normalizer = mpmath.fsum(mpmath.exp(-mpmath.mpf(k * k) / (2 * variance)) for k in range(-60, 61))
        assert 1 - eta <= mpmath.sqrt(2 * mpmath.pi * variance) / normalizer <= 1
        assert abs(weights(mpmath.mpf("0.5")) / mpmath.sqrt(2 * mpmath.pi * smooth) - 1) <= eta


# ---------------------------------------------------------------- the discrete law, added up


@pytest.mark.parametrize("sensitivity", [3, 10, 40])
@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "1e-3"), ("1", "1e-5"), ("3", "1e-7")])
def test_on_a_line_the_true_delta_is_at_most_the_promised_one(epsilon, delta, sensitivity):
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    variance = smallest_variance(epsilon, delta, squared_sensitivity=sensitivity**2, dimension=1)
    true = [discrete_delta(float(epsilon), variance, (shift,)) for shift in range(1, sensitivity + 1)]
    assert max(true) <= float(delta) and max(true) == true[-1]
    if variance > 100:
        assert true[-1] > 0.8 * float(delta)  # and no noise is wasted
    bound = float(delta_bound(epsilon, variance=variance, squared_sensitivity=sensitivity**2, dimension=1))
    assert true[-1] <= bound <= float(delta)


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-2"), ("2", "1e-4")])
def test_in_the_plane_the_true_delta_of_every_shift_is_at_most_the_promised_one(epsilon, delta):
    squared = 25
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    variance = smallest_variance(epsilon, delta, squared_sensitivity=squared, dimension=2)
    for shift in [(5, 0), (4, 3), (3, 4), (-4, 3), (3, 3), (1, 0), (4, 1)]:
        assert discrete_delta(float(epsilon), variance, shift) <= float(delta)


@pytest.mark.parametrize(("epsilon", "delta"), POINTS[:3])
def test_a_little_less_noise_would_break_the_promise(epsilon, delta):
    squared = 20**2
    needed = continuous_variance(Fraction(epsilon), Fraction(delta), squared_sensitivity=squared)
    assert discrete_delta(float(epsilon), int(0.99 * needed), (20,)) > float(delta)
    assert smallest_variance(Fraction(epsilon), Fraction(delta), squared_sensitivity=squared, dimension=5) > needed


# ---------------------------------------------------------------- the smallest


@settings(max_examples=12, deadline=None)
@given(
    epsilon=st.integers(10**9, 2 * 10**13).map(lambda units: Fraction(units, UNITS)),
    delta=st.integers(1, 10**17).map(lambda units: Fraction(units, 10**18)),
    squared=st.integers(1, 10**8),
    dimension=st.integers(1, 4096),
)
def test_the_variance_is_the_smallest_with_the_promise_and_the_epsilon_is_the_smallest_it_proves(
    epsilon, delta, squared, dimension
):
    facts = {"squared_sensitivity": squared, "dimension": dimension}
    variance = smallest_variance(epsilon, delta, **facts)
    assert Fraction(delta_bound(epsilon, variance=variance, **facts)) <= delta
    assert Fraction(delta_bound(epsilon, variance=variance - 1, **facts)) > delta
    realised = smallest_epsilon(delta, variance=variance, units_per_one=UNITS, **facts)
    assert Fraction(realised, UNITS) <= epsilon
    assert Fraction(delta_bound(Fraction(realised, UNITS), variance=variance, **facts)) <= delta


def test_noise_that_the_rounding_alone_would_make_promises_nothing():
    facts = {"variance": SMOOTHING, "squared_sensitivity": 1, "dimension": 1}
    assert delta_bound(Fraction(20), **facts) == 1
    with pytest.raises(AssertionError, match="above 2"):
        smallest_epsilon(Fraction(1, 10), units_per_one=UNITS, **facts)


# ---------------------------------------------------------------- somebody else's accountants


@pytest.fixture
def accounting():
    return pytest.importorskip("dp_accounting")


@pytest.mark.parametrize(("epsilon", "delta"), POINTS)
@pytest.mark.parametrize("dimension", [1, 9, 999])
def test_epsilon_is_within_a_thousandth_of_dp_accountings_gaussian_and_never_below(
    accounting, epsilon, delta, dimension
):
    """Against its exact formula for continuous noise of the same deviation and sensitivity."""
    from dp_accounting import gaussian_mechanism

    facts = {"squared_sensitivity": 300**2, "dimension": dimension}
    variance = smallest_variance(Fraction(epsilon), Fraction(delta), **facts)
    ours = smallest_epsilon(Fraction(delta), variance=variance, units_per_one=UNITS, **facts) / UNITS
    theirs = gaussian_mechanism.get_epsilon_gaussian(sqrt(variance) / 300, float(delta))
    assert theirs <= ours <= theirs * (1 + 1e-3)
    assert ours <= float(epsilon)
    sigma = gaussian_mechanism.get_sigma_gaussian(float(epsilon), float(delta)) * 300
    assert sigma * (1 - 1e-9) <= sqrt(variance) <= sigma * (1 + 1e-3)
    assert (
        abs(sqrt(continuous_variance(Fraction(epsilon), Fraction(delta), squared_sensitivity=300**2)) / sigma - 1)
        < 1e-6
    )


@pytest.mark.parametrize(("epsilon", "delta"), POINTS)
def test_epsilon_is_within_a_thousandth_of_dp_accountings_loss_distributions(accounting, epsilon, delta):
    """Its continuous and its one-dimensional discrete Gaussian, both rounded up there; its Renyi accountant is looser."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    sensitivity = 100
    facts = {"squared_sensitivity": sensitivity**2, "dimension": 1}
    variance = smallest_variance(Fraction(epsilon), Fraction(delta), **facts)
    ours = smallest_epsilon(Fraction(delta), variance=variance, units_per_one=UNITS, **facts) / UNITS
    fine = float(epsilon) / 2_000
    continuous = pld.from_gaussian_mechanism(
        sqrt(variance), sensitivity=sensitivity, value_discretization_interval=fine
    )
    assert abs(continuous.get_epsilon_for_delta(float(delta)) / ours - 1) < 1e-3
    discrete = pld.from_discrete_gaussian_mechanism(
        sqrt(variance), sensitivity=sensitivity, value_discretization_interval=fine, truncation_bound=None
    )
    assert abs(discrete.get_epsilon_for_delta(float(delta)) / ours - 1) < 1e-3
    renyi = accounting.rdp.RdpAccountant()
    renyi.compose(accounting.GaussianDpEvent(sqrt(variance) / sensitivity))
    assert renyi.get_epsilon(float(delta)) > ours
