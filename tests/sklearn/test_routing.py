"""Metadata routing: weights, and whatever else the wrapped estimator's `fit` takes, go along with their rows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import labeldp as ldp
from labeldp.sklearn import LabelDPClassifier, LabelDPRegressor, LabelDPSearchCV

N = 80


class Recording(GaussianNB):
    """Notes what its `fit` was given: for each row its number, which is its first feature, and the entry that came along."""

    given: ClassVar[list[tuple]] = []

    def fit(self, X, y, sample_weight=None, *, numbers=None, word=None):
        Recording.given.append((X[:, 0], numbers, word))
        return super().fit(X, y, sample_weight)


class RecordingRegressor(LinearRegression):
    given: ClassVar[list[tuple]] = []

    def fit(self, X, y, sample_weight=None, *, numbers=None):
        RecordingRegressor.given.append((X[:, 0], numbers))
        return super().fit(X, y, sample_weight)


def features():
    """The first feature is the row's number."""
    return np.stack([np.arange(N), np.random.default_rng(0).normal(size=N)], axis=1)


def labels():
    return (features()[:, 1] > 0).astype(int)


def private(estimator, **settings):
    return LabelDPClassifier(estimator, **{"epsilon": 2, "classes": 2, "rounds": 1, "folds": 2} | settings)


@pytest.fixture
def routing():
    Recording.given, RecordingRegressor.given = [], []
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("stages", [1, 2])
def test_entries_go_along_with_their_rows(stages):
    model = private(Recording().set_fit_request(numbers=True, word=True), stages=stages)
    model.fit(features(), labels(), numbers=np.arange(N), word="said")
    assert len(Recording.given) > 3 * stages
    for rows, numbers, word in Recording.given:
        assert (rows == numbers).all() and word == "said"


@pytest.mark.usefixtures("routing")
def test_entries_go_along_with_rows_that_are_sealed_in_another_order():
    order = np.random.default_rng(0).permutation(N)
    vault = ldp.LabelVault(labels(), classes=2, budget="2")
    model = private(Recording().set_fit_request(numbers=True), classes=None)
    model.fit(features()[order], vault.sealed()[order], numbers=np.arange(N)[order])
    assert all((rows == numbers).all() for rows, numbers, _ in Recording.given)


@pytest.mark.usefixtures("routing")
def test_entries_reach_the_end_of_a_wrapped_pipeline():
    model = private(make_pipeline(StandardScaler(), Recording().set_fit_request(numbers=True)))
    model.fit(features(), labels(), numbers=np.arange(N))
    for rows, numbers, _ in Recording.given:
        assert np.corrcoef(rows, numbers)[0, 1] == pytest.approx(1)


@pytest.mark.usefixtures("routing")
def test_entries_reach_a_regressor():
    model = LabelDPRegressor(
        RecordingRegressor().set_fit_request(numbers=True), epsilon=2, low=0, high=1, assume_squared_error=True
    )
    model.fit(features(), labels(), numbers=np.arange(N))
    assert len(RecordingRegressor.given) == 5  # a rehearsal, three folds, and all
    assert all((rows == numbers).all() for rows, numbers in RecordingRegressor.given)


@pytest.mark.usefixtures("routing")
def test_what_was_not_requested_is_refused_and_nothing_is_charged():
    vault = ldp.LabelVault(labels(), classes=2, budget="2")
    for estimator in (Recording(), LogisticRegression()):
        with pytest.raises((TypeError, ValueError), match="numbers"):
            private(estimator, classes=None).fit(features(), vault.sealed(), numbers=np.arange(N))
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize(
    "model", [private(Recording()), LabelDPRegressor(LinearRegression(), epsilon=1, low=0, high=1)]
)
def test_without_routing_nothing_but_weights_is_taken(model):
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        model.fit(features(), labels(), numbers=np.arange(N))
    assert model.fit(features(), labels(), sample_weight=np.ones(N)) is model


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("kind", ["classifier", "search", "regressor"])
def test_weights_are_routed_through_pipelines_and_cross_validation(kind):
    """A light half of the rows has its labels the other way round; at epsilon 20 the heavy half decides."""
    X, y = features()[:, 1:], labels()
    light = np.arange(N) % 2 == 0
    weights, y = np.where(light, 1e-9, 1.0), np.where(light, 1 - y, y)
    model = {
        "classifier": private(LogisticRegression(), epsilon=20),
        "search": LabelDPSearchCV(private(LogisticRegression(), epsilon=20), {"rounds": [1]}),
        "regressor": LabelDPRegressor(LinearRegression(), epsilon=20, low=0, high=1, step=1),
    }[kind].set_fit_request(sample_weight=True)

    def slope(fitted, X, y):
        low, high = fitted.predict(np.array([[-0.8], [0.8]]))
        return float(high - low)

    pipeline = make_pipeline(MinMaxScaler((-1, 1)), model)
    found = cross_validate(
        pipeline, X, y, cv=KFold(2), scoring=slope, params={"sample_weight": weights}, error_score="raise"
    )
    assert (found["test_score"] > 0.5).all()
