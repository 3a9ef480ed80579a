"""LabelDPRegressor: bounded numbers, with label differential privacy, for regressors that minimise a squared error."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone

from labeldp import checks
from labeldp.budget.epsilon import Epsilon, exact_number
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import UnbiasedResponse
from labeldp.sklearn.given import Given, Wrapper, hidden, opened, refuse_sealed
from labeldp.sklearn.models import cannot_learn, fit_steps, joined, quoting_no_column, split
from labeldp.sklearn.rows import taken, telling
from labeldp.sklearn.squared import check_squared_error
from labeldp.vault import LabelVault, Release
from labeldp.vault.labels import Classes, Unsealed
from labeldp.vault.targets import grid, on_grid

USUAL_STEPS = 20


class LabelDPRegressor(RegressorMixin, Wrapper, BaseEstimator):
    """Fits a regressor to reports that are right on average: unbiased, with the least noise that epsilon allows.

    Parameters
    ----------
    estimator : a regressor that minimises a squared error, or a pipeline that ends in one; others are refused.
    epsilon : what each target may spend. Exact as text, "0.1"; there is no default.
    low, high : the declared bounds of the targets. Public: never learned from them.
    step : of the grid low, low + step, .. high on which targets are reported, for instance 1 for stars; at most 101 values.
        None means a twentieth of the range. A target between two grid values is rounded to one of them at random, so that its
        mean is the target.
    clip : move targets outside the bounds to the nearer one. Otherwise they are an error, before anything is sealed.
    assume_squared_error : take a regressor of which this library does not know that it minimises a squared error.
    folds, seed : of the fits that tell how far predictions may go from their mean, see `line_`. The noise has no seed.

    Attributes
    ----------
    estimator_ : the fitted regressor.
    line_ : intercept and slope; predictions are intercept + slope * estimator_.predict(X), within the bounds. A slope of 0 says
        that nothing was learned from X.
    certificate_ : what was released and what that promises. With a y that was not sealed it covers this fit alone.
    release_ : the unbiased reports.

    Privacy
    -------
    epsilon-label-DP for every target. Features, weights, bounds and which rows there are are public; weights must not depend
    on the targets. No attribute of the fitted model, and no pickle of it, holds a target.

    >>> from sklearn.linear_model import Ridge
    >>> X = np.random.default_rng(0).random((2000, 2))
    >>> model = ldp.sklearn.LabelDPRegressor(Ridge(), epsilon=2, low=0, high=2).fit(X, X.sum(axis=1))
    >>> bool(np.corrcoef(model.predict(X), X.sum(axis=1))[0, 1] > 0.9)
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        epsilon: Any = None,
        low: Any = None,
        high: Any = None,
        step: Any = None,
        clip: bool = False,
        assume_squared_error: bool = False,
        folds: int = 3,
        seed: int = 0,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.low = low
        self.high = high
        self.step = step
        self.clip = clip
        self.assume_squared_error = assume_squared_error
        self.folds = folds
        self.seed = seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Seal y, if it is not sealed, release it once, and fit the regressor to the reports.

        Parameters
        ----------
        y : the targets, which are sealed here; or `vault.sealed()`, rows of a vault whose classes are the grid.
        sample_weight : public weights: they must not depend on y.
        """
        y = hidden(y)
        check_squared_error(self.estimator, assume=self.assume_squared_error)
        checks.integer(folds=self.folds, at_least=2)
        checks.integer(seed=self.seed, at_least=0)
        if self.epsilon is None:
            raise InvalidArgument("epsilon must be given: what each target may spend, such as epsilon=1.")
        Epsilon.of(self.epsilon)  # says what is wrong with it under its own name
        with opened(self, X, y, sample_weight, fit_params, self._seal) as given:
            response = self._response(given)
            self._rehearse(given)
            release = given.labels.release(response)
            for fitted in ("estimator_", "line_"):  # a model of an earlier fit does not go with this release
                self.__dict__.pop(fitted, None)
            given.noted_in(self)
            self.release_, self.certificate_ = given.told(release), given.certificate()
        self._bounds = float(response.low), float(response.high)
        with quoting_no_column(self.estimator, given.X):
            line = self._line(given, release)
            self.estimator_ = self._fitted(given, release.rows, release.values)
        self.line_ = line
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the regressor's predictions, shrunk along `line_`, within the bounds."""
        self._check_features(X)
        intercept, slope = self.line_
        return np.clip(intercept + slope * np.asarray(self.estimator_.predict(X)).ravel(), *self._bounds)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 on targets that are read as they are: give it public ones. Sealed ones are refused."""
        refuse_sealed(y)
        return float(super().score(X, y, sample_weight))

    # ---- what defines the release ------------------------------------------------------------------------------------

    def _seal(self, targets: Unsealed) -> LabelVault:
        if self.low is None or self.high is None:
            raise InvalidArgument(
                "low and high must be given, such as low=0, high=100: the bounds are public, and are never learned from y."
            )
        low, high = exact_number(self.low, name="low"), exact_number(self.high, name="high")
        step = (high - low) / USUAL_STEPS if self.step is None else exact_number(self.step, name="step")
        values = on_grid(targets.labels, low=low, high=high, step=step, clip=self.clip)
        return LabelVault(values, classes=grid(low, high, step), budget=self.epsilon)

    def _response(self, given: Given) -> UnbiasedResponse:
        """Return the mechanism on the grid that the vault's classes are."""
        values = Classes(tuple(given.labels.classes)).exact_values()
        if values is None or len(values) < 2:
            raise InvalidArgument("the classes of the vault must be a grid of numbers: low, low + step, .. high.")
        response = UnbiasedResponse(self.epsilon, low=values[0], high=values[-1], step=values[1] - values[0])
        if response.values != values:
            raise InvalidArgument("the classes of the vault must be a grid of numbers: low, low + step, .. high.")
        for name, bound in (("low", values[0]), ("high", values[-1]), ("step", values[1] - values[0])):
            stated = getattr(self, name)
            if stated is not None and exact_number(stated, name=name) != bound:
                raise InvalidArgument(
                    f"{name} must be that of the vault whose targets y is ({float(bound):g}), or left out."
                )
        return response

    def _line(self, given: Given, release: Release) -> tuple[float, float]:
        """Return the least-squares line from predictions, made without their own rows, to the reports.

        A flexible regressor fits the noise of the reports too, which is far larger than what it can learn: its predictions
        then point in the right direction and go too far. Reports are unbiased, so the line through them is the targets' own.
        """
        rows, values = release.rows, release.values
        folds = np.random.default_rng([self.seed, 0xF01D]).permutation(len(rows)) % min(self.folds, len(rows))
        predicted = np.empty(len(rows))
        for fold in np.unique(folds):
            others, own = rows[folds != fold], rows[folds == fold]
            fitted = self._fitted(given, others, values[folds != fold])
            predicted[folds == fold] = np.ravel(fitted.predict(given.X[own]))
        weights = np.ones(len(rows)) if given.weights is None else given.weights[rows]
        means = np.average(predicted, weights=weights), np.average(values, weights=weights)
        spread = weights @ (predicted - means[0]) ** 2
        slope = weights @ ((predicted - means[0]) * (values - means[1])) / spread if spread > 0 else 1.0
        slope = float(np.clip(slope, 0, 1))
        return float(means[1] - slope * means[0]), slope

    def _rehearse(self, given: Given) -> None:
        """Raise where the regressor cannot learn from X, before anything is spent: it tries targets that are made up."""
        rows = telling(given.X, 500)
        try:
            self._fitted(given, rows, np.linspace(-1, 1, len(rows))).predict(given.X[rows[:1]])
        except Exception as error:  # no target was touched: what it says is public
            raise cannot_learn(self.estimator, given.X, error) from (None if given.X.is_column else error)

    def _fitted(self, given: Given, rows: NDArray[np.int64], values: NDArray[np.float64]) -> Any:
        steps, regressor = split(self.estimator)
        steps, features = fit_steps(steps, given.X, rows, values)
        params = {name: taken(value, rows, len(given.X)) for name, value in given.params.items()}
        if given.weights is not None:
            params["sample_weight"] = given.weights[rows]
        return joined(self.estimator, steps, clone(regressor).fit(features, values, **params))
