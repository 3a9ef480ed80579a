"""Which regressors may learn from unbiased reports: those that minimise a squared error."""

from __future__ import annotations

from typing import Any

from sklearn.base import is_classifier

from labeldp.errors import InvalidArgument
from labeldp.sklearn.models import split

SETTINGS = ("loss", "criterion", "objective", "objective_type", "application", "app")
SQUARED = (
    "squared_error",
    "friedman_mse",
    "reg:squarederror",
    "regression",
    "regression_l2",
    "l2",
    "mean_squared_error",
    "mse",
    "rmse",
    "deprecated",  # how scikit-learn says that a setting was not given
)
NOT_SQUARED = ("RANSACRegressor",)
"""Its `loss` only tells outliers from others, and with noise as strong as this the reports are mostly outliers."""
WITHOUT_SETTING = (
    "ARDRegression",
    "BayesianRidge",
    "ElasticNet",
    "ElasticNetCV",
    "GaussianProcessRegressor",
    "KNeighborsRegressor",
    "KernelRidge",
    "LGBMRegressor",
    "Lars",
    "Lasso",
    "LassoCV",
    "LassoLars",
    "LinearRegression",
    "MLPRegressor",
    "RadiusNeighborsRegressor",
    "Ridge",
    "RidgeCV",
    "XGBRegressor",
)
"""They minimise a squared error, or average targets, whatever their settings; the boosters unless `objective` differs."""
WHY = (
    "A report is right on average but far from its target: its squared distance to any prediction is that of the target plus "
    "a constant, so that a squared error finds the same minimum. No other loss does."
)


def check_squared_error(estimator: Any, *, assume: bool) -> None:
    """Raise unless a regressor, or the one at a pipeline's end, is known to minimise a squared error."""
    regressor = split(estimator)[1]
    if is_classifier(regressor):
        raise InvalidArgument(
            f"{type(regressor).__name__} is a classifier: use LabelDPClassifier, or give a regressor."
        )
    name, settings = type(regressor).__name__, regressor.get_params(deep=False)
    for key in SETTINGS:
        if (value := settings.get(key)) is not None and value not in SQUARED:
            raise InvalidArgument(f"{key} of {name} must be a squared error, got {value!r}. {WHY}")
    known = name in WITHOUT_SETTING or any(key in settings for key in SETTINGS)
    if assume or (known and name not in NOT_SQUARED and "quantile" not in name.lower()):
        return
    raise InvalidArgument(
        f"{name} is not known to minimise a squared error. {WHY} If it does, say assume_squared_error=True."
    )
