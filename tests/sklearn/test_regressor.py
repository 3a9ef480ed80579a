"""LabelDPRegressor: unbiased reports of bounded targets, for squared errors alone."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    PoissonRegressor,
    QuantileRegressor,
    RANSACRegressor,
    Ridge,
    SGDRegressor,
)
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVR
from sklearn.tree import DecisionTreeRegressor

import labeldp as ldp
from labeldp.randomness import InsecureBits
from labeldp.sklearn import LabelDPRegressor


def problem(n=400):
    X = np.random.default_rng(0).random((n, 3))
    return X, 2 * X[:, 0] + X[:, 1] + 1  # between 1 and 4


def private(estimator=None, **settings):
    return LabelDPRegressor(
        Ridge() if estimator is None else estimator, **{"epsilon": 2, "low": 1, "high": 4} | settings
    )


def stars(n=20_000):
    """Ordinal targets, 1 to 5, whose mean is a linear function of the features; and a vault of them, whose noise is seeded."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 2))
    targets = 1 + rng.binomial(4, 0.2 + 0.6 * X[:, 0])
    return X, targets, ldp.LabelVault(targets, classes=[1, 2, 3, 4, 5], budget="1", bits=InsecureBits(0))


# ---- right on average ------------------------------------------------------------------------------------------------


def test_coefficients_are_those_of_the_truth_about():
    """The mean of the targets is 1.8 + 2.4 x. Reports at epsilon 1 have a deviation below 5: that of the slope is 0.13."""
    X, targets, vault = stars()
    model = LabelDPRegressor(LinearRegression(), epsilon=1).fit(X, vault.sealed())
    assert model.release_.values.std() > 1.5 * targets.std()
    assert model.estimator_.coef_ == pytest.approx([2.4, 0], abs=0.5)
    assert model.estimator_.intercept_ == pytest.approx(1.8, abs=0.5)
    assert np.abs(model.predict(X) - (1.8 + 2.4 * X[:, 0])).mean() < 0.2


def test_targets_between_grid_values_are_right_on_average():
    """Targets that lie between the values of the grid: 40,000 of 1.3 on a grid of whole numbers."""
    X = np.zeros((40_000, 1))
    model = private(LinearRegression(), epsilon=20, step=1).fit(X, np.full(40_000, 1.3))
    assert len(np.unique(model.release_.values)) <= 4
    assert model.predict(X[:1])[0] == pytest.approx(1.3, abs=0.02)  # its deviation is 0.0023


def test_at_a_large_epsilon_it_is_the_regressor_itself():
    X, y = problem()
    model = private(LinearRegression(), epsilon=20).fit(X, y)
    assert model.score(X, y) > 0.98
    assert model.estimator_.coef_ == pytest.approx([2, 1, 0], abs=0.1)


# ---- how far predictions go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [RandomForestRegressor(10, random_state=0), KNeighborsRegressor(3)])
def test_where_nothing_can_be_learned_predictions_stay_at_the_mean(estimator):
    rng = np.random.default_rng(0)
    X, targets = rng.random((3000, 2)), rng.integers(1, 6, size=3000)
    vault = ldp.LabelVault(targets, classes=[1, 2, 3, 4, 5], budget="1", bits=InsecureBits(0))
    model = LabelDPRegressor(estimator, epsilon=1).fit(X, vault.sealed())
    assert 0 <= model.line_[1] < 0.1
    predicted, raw = model.predict(X), model.estimator_.predict(X)
    assert predicted.std() < 0.2 < raw.std()
    assert predicted.mean() == pytest.approx(3, abs=0.5)


def test_the_line_is_the_least_squares_line_through_predictions_of_others():
    X, targets, vault = stars(300)
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    model = LabelDPRegressor(tree, epsilon=1, folds=2).fit(X, vault.sealed())
    reports = model.release_.values
    folds = np.random.default_rng([0, 0xF01D]).permutation(300) % 2
    predicted = np.zeros(300)
    for fold in (0, 1):
        predicted[folds == fold] = clone(tree).fit(X[folds != fold], reports[folds != fold]).predict(X[folds == fold])
    slope, intercept = np.polyfit(predicted, reports, 1)
    slope_within = min(max(slope, 0), 1)
    if slope != slope_within:
        intercept = reports.mean() - slope_within * predicted.mean()
    assert model.line_ == pytest.approx((intercept, slope_within))
    expected = np.clip(intercept + slope_within * model.estimator_.predict(X), 1, 5)
    assert model.predict(X) == pytest.approx(expected) and targets.min() >= 1


def test_predictions_stay_within_the_bounds():
    X, y = problem()
    model = private(LinearRegression(), epsilon=4).fit(X, y)
    far = model.predict(1000 * (X - 0.5))
    assert far.min() == 1 and far.max() == 4


# ---- bounds and grids ------------------------------------------------------------------------------------------------


def test_reports_are_on_the_declared_grid():
    X, _ = problem(50)
    vault_grid = private(low=1, high=5, step=1, epsilon=20).fit(X, np.arange(50) % 5 + 1).release_
    assert vault_grid.classes == (1, 2, 3, 4, 5) and vault_grid.receipt.mechanism["name"] == "UnbiasedResponse"
    assert len(private(low=1, high=5).fit(X, np.arange(50) % 5 + 1).release_.classes) == 21


@pytest.mark.parametrize("outside", [0.99, 4.01, 1e9])
def test_targets_outside_the_bounds_are_an_error_unless_they_are_to_be_clipped(outside):
    X, y = problem()
    y = y.copy()
    y[7] = outside
    with pytest.raises(ldp.InvalidLabels, match=r"between low=1.* and high=4.*; some do not .*clip=True"):
        private().fit(X, y)
    model = private(clip=True, epsilon=20).fit(X, y)
    assert model.release_.values[7] == pytest.approx(np.clip(outside, 1, 4), abs=0.2)


@pytest.mark.parametrize("y", [["a"] * 400, [None] * 400, np.full(400, np.nan), np.full(400, 2j), [True] * 400])
def test_targets_that_are_no_numbers_are_an_error(y):
    X, _ = problem()
    with pytest.raises(ldp.InvalidLabels):
        private().fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": None}, "epsilon must be given"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"low": None}, "low and high must be given"),
        ({"high": None}, "low and high must be given"),
        ({"low": 4, "high": 1}, "low"),
        ({"low": 1, "high": 1}, "low"),
        ({"low": "one"}, "low"),
        ({"step": 0}, "step"),
        ({"step": -1}, "step"),
        ({"step": 0.7}, "step"),
        ({"step": 0.001}, "(?i)at most 101|values|step"),
        ({"folds": 1}, "folds"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_are_checked(settings, message):
    X, y = problem()
    with pytest.raises(ldp.InvalidArgument, match=message):
        private(**settings).fit(X, y)


@pytest.mark.parametrize("bounds", [(1, 4), (1.0, 4.0), ("1", "4"), (np.float64(1), np.int64(4)), (np.float32(1), 4)])
def test_bounds_are_taken_in_all_their_forms(bounds):
    X, y = problem(60)
    model = private(low=bounds[0], high=bounds[1]).fit(X, y)
    assert model.predict(X).min() >= 1 and model.predict(X).max() <= 4


# ---- sealed targets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"low": 0}, {"high": 6}, {"low": 1, "high": 4}])
def test_bounds_must_be_those_of_the_vault(settings):
    X, _, vault = stars(60)
    with pytest.raises(ldp.InvalidArgument, match="must be that of the vault"):
        LabelDPRegressor(Ridge(), epsilon=1, **settings).fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"
    LabelDPRegressor(Ridge(), epsilon=1, low=1, high=5).fit(X, vault.sealed())


@pytest.mark.parametrize("classes", [["a", "b", "c"], [1, 2, 4], [3, 2, 1], [False, True]])
def test_a_vault_without_a_grid_is_refused(classes):
    X, _ = problem(60)
    vault = ldp.LabelVault([classes[number % len(classes)] for number in range(60)], classes=classes, budget="1")
    with pytest.raises(ldp.InvalidArgument):
        LabelDPRegressor(Ridge(), epsilon=1).fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"


def test_a_step_that_is_not_the_vaults_is_refused():
    X, _, vault = stars(60)
    with pytest.raises(ldp.InvalidArgument, match="step must be that of the vault"):
        LabelDPRegressor(Ridge(), epsilon=1, step="0.5").fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize("spoil", ["missing", "alpha", "weights"])
def test_a_regressor_that_cannot_learn_charges_nothing(spoil):
    X, _, vault = stars(60)
    if spoil == "missing":
        X[33] = np.nan
    estimator = Ridge(alpha=-1) if spoil == "alpha" else KNeighborsRegressor() if spoil == "weights" else Ridge()
    weights = np.ones(60) if spoil == "weights" else None
    with pytest.raises(ldp.InvalidArgument, match="cannot learn from these features"):
        LabelDPRegressor(estimator, epsilon=1).fit(X, vault.sealed(), sample_weight=weights)
    assert vault.spent().epsilon == "0"


# ---- squared errors --------------------------------------------------------------------------------------------------


def boosted(library, regressor, **settings):
    return lambda: getattr(pytest.importorskip(library), regressor)(**settings)


OTHER_LOSSES = {
    "huber": HuberRegressor,
    "quantile": QuantileRegressor,
    "poisson": PoissonRegressor,
    "outliers": lambda: RANSACRegressor(loss="squared_error"),
    "median": lambda: DummyRegressor(strategy="median"),
    "support vectors": SVR,
    "linear support vectors": LinearSVR,
    "adaptive boosting": AdaBoostRegressor,
    "absolute boosting": lambda: HistGradientBoostingRegressor(loss="absolute_error"),
    "poisson boosting": lambda: HistGradientBoostingRegressor(loss="poisson"),
    "quantile boosting": lambda: GradientBoostingRegressor(loss="quantile"),
    "huber descent": lambda: SGDRegressor(loss="huber"),
    "absolute forest": lambda: RandomForestRegressor(criterion="absolute_error"),
    "poisson tree": lambda: DecisionTreeRegressor(criterion="poisson"),
    "in a pipeline": lambda: make_pipeline(StandardScaler(), HuberRegressor()),
    "lightgbm": boosted("lightgbm", "LGBMRegressor", objective="regression_l1"),
    "lightgbm by another name": boosted("lightgbm", "LGBMRegressor", app="huber"),
    "xgboost": boosted("xgboost", "XGBRegressor", objective="reg:absoluteerror"),
}


@pytest.mark.parametrize("name", OTHER_LOSSES)
def test_other_losses_are_refused_with_the_reason(name):
    X, _, vault = stars(60)
    with pytest.raises(ldp.InvalidArgument, match=r"squared error.*right on average"):
        LabelDPRegressor(OTHER_LOSSES[name](), epsilon=1).fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"


SQUARED = {
    "ridge": Ridge,
    "lasso": lambda: Lasso(alpha=0.01),
    "elastic net": lambda: ElasticNet(alpha=0.01),
    "neighbours": KNeighborsRegressor,
    "boosting": lambda: HistGradientBoostingRegressor(max_iter=10),
    "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=10),
    "forest": lambda: RandomForestRegressor(5),
    "extra trees": lambda: ExtraTreesRegressor(5),
    "descent": SGDRegressor,
    "network": lambda: MLPRegressor(hidden_layer_sizes=(5,), solver="lbfgs", max_iter=50, random_state=0),
    "pipeline": lambda: make_pipeline(StandardScaler(), Ridge()),
    "lightgbm": boosted("lightgbm", "LGBMRegressor", n_estimators=10, verbose=-1, n_jobs=1),
    "lightgbm, saying so": boosted("lightgbm", "LGBMRegressor", n_estimators=10, verbose=-1, objective="l2", n_jobs=1),
    "xgboost": boosted("xgboost", "XGBRegressor", n_estimators=10),
}


@pytest.mark.parametrize("name", SQUARED)
def test_squared_errors_are_learned_from(name):
    X, y = problem()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=Warning, message=".*(converge|valid feature names|ITERATIONS).*")
        model = private(SQUARED[name](), epsilon=20).fit(X, y)
        assert model.score(X, y) > 0.6


class Unknown(Ridge):
    """A regressor that this library does not know."""


def test_an_unknown_regressor_is_taken_at_its_users_word():
    X, y = problem(60)
    with pytest.raises(ldp.InvalidArgument, match="assume_squared_error=True"):
        private(Unknown()).fit(X, y)
    private(Unknown(), assume_squared_error=True).fit(X, y)
    with pytest.raises(ldp.InvalidArgument, match="must be a squared error"):  # what is known to be wrong stays wrong
        private(HistGradientBoostingRegressor(loss="poisson"), assume_squared_error=True).fit(X, y)


# ---- an estimator among others ---------------------------------------------------------------------------------------


def test_weights_decide_what_counts():
    X, y = problem()
    light = np.arange(400) % 2 == 0
    y = np.where(light, 5 - y, y)
    model = private(LinearRegression(), epsilon=20).fit(X, y, sample_weight=np.where(light, 1e-9, 1.0))
    assert model.score(X[~light], y[~light]) > 0.9


@pytest.mark.parametrize("weights", [np.zeros(400), -np.ones(400), np.ones(3)])
def test_weights_that_make_no_sense_are_refused(weights):
    X, y = problem()
    with pytest.raises(ValueError, match=r"(?i)weight"):
        private().fit(X, y, sample_weight=weights)


def test_frames_pipelines_pickles_and_cross_validation():
    X, y = problem()
    table, targets = pd.DataFrame(X, columns=list("abc")), pd.Series(y, index=np.arange(400) + 9)
    model = private(make_pipeline(StandardScaler(), Ridge()), epsilon=8).fit(table, targets)
    assert model.feature_names_in_.tolist() == list("abc") and is_regressor(model)
    assert list(model.estimator_.named_steps) == ["standardscaler", "ridge"]
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(table) == model.predict(table)).all() and again.line_ == model.line_
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["b", "a", "c"]])
    assert cross_val_score(private(epsilon=20), table, targets, cv=3).min() > 0.8
    assert not hasattr(clone(model), "line_")


def test_rows_of_a_vault_may_come_in_any_order():
    X, targets, vault = stars(2000)
    order = np.random.default_rng(1).permutation(2000)
    shuffled = LabelDPRegressor(LinearRegression(), epsilon=1).fit(X[order], vault.sealed()[order])
    assert shuffled.predict(X).shape == targets.shape and shuffled.release_.rows.tolist() == np.argsort(order).tolist()
    assert np.corrcoef(shuffled.predict(X), X[:, 0])[0, 1] > 0.8


def test_a_second_fit_that_fails_keeps_what_it_released_and_no_model_of_the_first():
    X, y = problem()
    model = private(FailsOnDemand(), assume_squared_error=True).fit(X, y)
    first = model.release_
    FailsOnDemand.after = 2
    try:
        with pytest.raises(RuntimeError):
            model.fit(X, y)
    finally:
        FailsOnDemand.after = None
    assert model.release_ is not first and len(model.release_) == len(y) and not hasattr(model, "estimator_")


class FailsOnDemand(Ridge):
    after = None

    def fit(self, X, y, sample_weight=None):
        if FailsOnDemand.after is not None:
            FailsOnDemand.after -= 1
            if FailsOnDemand.after < 0:
                raise RuntimeError("out of luck")
        return super().fit(X, y, sample_weight)
