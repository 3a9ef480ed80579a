"""Intervals and standard errors against the truth, over many hold-outs of fresh rows and fresh noise.

The draws are seeded, so that no run fails by chance: for other seeds nearly all would pass too.
"""

from __future__ import annotations

import numpy as np
import pytest
from noisy_hold_outs import Population, mean_class

import labeldp as ldp
from labeldp.metrics import accuracy, auc, log_loss, rmse

FIGURES = {
    "accuracy": accuracy,
    "auc": auc,
    "log_loss": log_loss,
    "rmse": lambda release, predicted: rmse(release, mean_class(predicted)),
}
HOLD_OUTS = 400


def graded(population, name, *, rows, epsilon, seed=1, count=HOLD_OUTS):
    """Return the estimates of as many hold-outs, without those that cannot be graded."""
    found = []
    for release, predicted in population.hold_outs(count, rows, epsilon, seed):
        try:
            found.append(FIGURES[name](release, predicted))
        except ldp.NotIdentifiable:
            assert name == "auc"
    return found


def covered(population, estimates, name):
    truth = getattr(population, name)
    intervals = np.array([estimate.interval() for estimate in estimates])
    return ((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])).mean()


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("epsilon", ["0.5", "1", "4"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_of_100_intervals_about_95_hold_the_truth(name, epsilon, n_classes):
    """Up to 98 where noise is so strong that one end of most intervals is the end of what can be."""
    population = Population.of(n_classes, sharpness=1.5, seed=n_classes)
    rows = 1000 if name == "auc" and n_classes > 2 else 200  # fewer are often too few to count each class
    estimates = graded(population, name, rows=rows, epsilon=epsilon)
    assert len(estimates) > 0.95 * HOLD_OUTS
    assert 0.925 <= covered(population, estimates, name) <= 0.99


@pytest.mark.parametrize(("name", "rows"), [("accuracy", 100), ("auc", 100), ("log_loss", 300), ("rmse", 300)])
@pytest.mark.parametrize("epsilon", ["4", "12"])
def test_intervals_are_honest_where_a_model_is_nearly_always_right(name, rows, epsilon):
    """An accuracy of 98 %: often no row of a hold-out is wrong, and no report is noise. A loss needs rows that show some."""
    population = Population.of(2, sharpness=12, seed=0)
    assert population.accuracy > 0.97 and population.auc > 0.99
    assert covered(population, graded(population, name, rows=rows, epsilon=epsilon), name) >= 0.9


@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_intervals_are_honest_for_sure_models_that_err(epsilon):
    """Losses are skew: a few rows of each hold-out carry most of the log loss."""
    population = Population.of(3, sharpness=2, overconfidence=3, seed=5)
    assert population.log_loss > 0.9
    assert 0.925 <= covered(population, graded(population, "log_loss", rows=100, epsilon=epsilon), "log_loss") <= 0.99


@pytest.mark.parametrize("epsilon", ["0.5", "1"])
def test_intervals_are_honest_for_a_rare_class(epsilon):
    """About one row in ten: the number of pairs is then itself mostly noise, and sometimes not even positive."""
    population = Population.of(2, sharpness=2, tilt=4, seed=6)
    assert 0.05 < population.truth[:, 1].mean() < 0.15
    estimates = graded(population, "auc", rows=300, epsilon=epsilon)
    assert HOLD_OUTS / 2 < len(estimates) < HOLD_OUTS
    assert covered(population, estimates, "auc") >= 0.925


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_standard_errors_are_the_spread_of_the_estimates(name, n_classes):
    population = Population.of(n_classes, sharpness=1.5, seed=n_classes)
    estimates = graded(population, name, rows=1000, epsilon="2", count=200)
    values = np.array([estimate.value for estimate in estimates])
    errors = np.array([estimate.standard_error for estimate in estimates])
    assert values.std(ddof=1) == pytest.approx(np.sqrt((errors**2).mean()), rel=0.15)
    assert values.mean() == pytest.approx(getattr(population, name), abs=5 * values.std() / np.sqrt(len(values)))


def test_no_interval_holds_95_percent_by_being_wide():
    """On average as wide as the normal one, with 1000 rows and little noise."""
    population = Population.of(2, sharpness=1.5, seed=2)
    for name in FIGURES:
        estimates = graded(population, name, rows=1000, epsilon="4", count=100)
        widths = np.array([np.subtract(*estimate.interval()[::-1]) for estimate in estimates])
        errors = np.array([estimate.standard_error for estimate in estimates])
        assert widths.mean() == pytest.approx(2 * 1.96 * errors.mean(), rel=0.15)
