"""Fitting a scikit-learn classifier to beliefs: to a probability of every label, for every row."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _get_feature_names, _num_features, _num_samples, has_fit_parameter

from labeldp.errors import InvalidArgument, LabelDPError
from labeldp.sklearn.calibration import Trust
from labeldp.sklearn.rows import Rows, taken

Table = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]
Params = Mapping[str, Any]
Steps = list[tuple[str, Any]]

NOTHING = ("passthrough", None)
LEAST_PROBABILITY = 1e-6
"""No label is believed impossible because a model said so."""
LEAST_BELIEF = 1e-4
"""A label that a row is believed to have with less than this is left out of a fit."""


class WrongType(InvalidArgument, TypeError):
    """Features of a type that an estimator does not take; scikit-learn's users expect a TypeError."""


def cannot_learn(estimator: Any, X: Rows, error: Exception) -> InvalidArgument:
    """Return what to raise where an estimator fails on public features and made-up labels.

    Of a single column its words are not passed on: they might quote labels that were given in the place of X.
    """
    kind = WrongType if isinstance(error, TypeError) else InvalidArgument
    if X.is_column:
        return kind(
            f"{name_of(estimator)} cannot learn from these features ({type(error).__name__}). They are a single column, as "
            "labels are, so its own words are not shown: they may quote them."
        )
    return kind(f"{name_of(estimator)} cannot learn from these features: {error}")


@contextmanager
def quoting_no_column(estimator: Any, X: Rows) -> Iterator[None]:
    """Say no more than the kind of an estimator's failure where X is a single column; see `cannot_learn`."""
    try:
        yield
    except LabelDPError:
        raise
    except Exception as error:
        if not X.is_column:
            raise
        raise cannot_learn(estimator, X, error) from None


@dataclass(frozen=True)
class Model:
    """A fitted classifier of class numbers, some of which it may never have seen, and how far it is to be believed."""

    estimator: Any
    seen: Numbers
    n_classes: int
    trust: Trust | None = None

    def predict_proba(self, X: Any) -> Table:
        table: Table = np.zeros((_num_samples(X), self.n_classes))
        if len(table):
            table[:, self.seen] = self.estimator.predict_proba(X)
        return table if self.trust is None else self.trust(bounded(table))


def bounded(predicted: Table) -> Table:
    """Return probabilities none of which is 0."""
    kept = np.maximum(predicted, LEAST_PROBABILITY)
    return kept / kept.sum(axis=1, keepdims=True)


def split(estimator: Any) -> tuple[Steps, Any]:
    """Return a pipeline's transformers, by name, and what learns at its end."""
    if not isinstance(estimator, Pipeline):
        return [], estimator
    *steps, (_, last) = estimator.steps
    inner, learns = split(last)
    return [*steps, *((f"inner_{name}", step) for name, step in inner)], learns


def name_of(estimator: Any) -> str:
    return type(split(estimator)[1]).__name__


def fit_steps(steps: Steps, X: Rows, rows: Numbers, y: Any) -> tuple[Steps, Any]:
    """Fit clones of a pipeline's transformers and return them with the features that they make of these rows.

    Those that read no labels are fitted to all rows, which are public: an encoder that met a new category in a later stage
    would fail when half of the labels are spent. From the first one that reads labels on, it is these rows and their y.
    """
    fitted: Steps = []
    features = X
    for name, step in steps:
        step = clone(step, safe=False)
        if step not in NOTHING:
            try:
                made = step.fit_transform(features.X)
            except Exception:  # it reads labels; or it fails on features, and will say so again
                break
            features = Rows(made)
        fitted.append((name, step))
    if len(fitted) == len(steps):
        return fitted, features[rows]
    rest = Pipeline([(name, clone(step, safe=False)) for name, step in steps[len(fitted) :]])
    made = rest.fit_transform(features[rows], y)
    return [*fitted, *rest.steps], made


def joined(estimator: Any, steps: Steps, last: Any) -> Any:
    """Return fitted transformers and what was fitted behind them as one estimator, whose last step is named as it was."""
    return Pipeline([*steps, (_last_name(estimator), last)]) if steps else last


def _last_name(pipeline: Pipeline) -> str:
    name, last = pipeline.steps[-1]
    return _last_name(last) if isinstance(last, Pipeline) else str(name)


def takes_weights(estimator: Any) -> bool:
    """Tell whether an estimator, or the one at a pipeline's end, can weigh its rows."""
    return bool(has_fit_parameter(split(estimator)[1], "sample_weight"))


@dataclass(frozen=True)
class Task:
    """A classifier to fit, and the public things to fit it to: features, weights, and what else its `fit` takes."""

    classifier: Any
    X: Rows
    weights: Table
    params: Params

    def fit_beliefs(self, rows: Numbers, beliefs: Table, start: Model | None = None) -> Model:
        """Fit a clone to every label of these rows, weighted by the belief in it: the M-step of EM."""
        kept = beliefs > LEAST_BELIEF
        if kept.any(axis=0).sum() < 2:
            kept = beliefs > 0  # a classifier wants two classes
        row, labels = np.nonzero(kept)
        weights = {"sample_weight": beliefs[row, labels] * self.weights[rows[row]]}
        return self._fit(rows[row], labels, beliefs.shape[1], weights, start)

    def fit_labels(self, labels: Numbers, n_classes: int) -> Model:
        """Fit a clone to a class number for each row."""
        return self._fit(np.arange(len(self.X)), labels, n_classes, {}, None)

    def _fit(self, rows: Numbers, labels: Numbers, n_classes: int, weights: Params, start: Model | None) -> Model:
        seen, numbers = np.unique(labels, return_inverse=True)  # some libraries insist on 0, 1, .. without gaps
        if len(seen) < 2:
            return Model(DummyClassifier().fit(X=self.X[rows], y=numbers), seen, n_classes)
        features = self.X[rows]
        given = {name: taken(value, rows, len(self.X)) for name, value in self.params.items()}
        fitted = self._started(start, seen, features).fit(features, numbers, **given, **weights)
        if "warm_start" in fitted.get_params(deep=False):
            fitted.set_params(warm_start=self.classifier.warm_start)
        return Model(fitted, seen, n_classes)

    def _started(self, start: Model | None, seen: Numbers, features: Any) -> Any:
        """Return a clone; or a copy of a fitted one that goes on from its coefficients, where the classifier can.

        A warm start of trees adds trees to those that are there, which is another model and not a start. Nor is one where
        transformers have made other features of other rows.
        """
        settings = self.classifier.get_params(deep=False)
        if start is None or "warm_start" not in settings or list(start.seen) != list(seen):
            return fresh(self.classifier)
        before = split(start.estimator)[1]
        if type(before) is not type(self.classifier) or not (hasattr(before, "coef_") or hasattr(before, "coefs_")):
            return fresh(self.classifier)
        if not _was_fitted_to(before, features):
            return fresh(self.classifier)
        return copy.deepcopy(before).set_params(**settings | {"warm_start": True})


def fresh(classifier: Any) -> Any:
    """Return a clone that does not stop early unless it was told to.

    A row is fitted with each of its labels: part of them set aside says little about rows that were not seen.
    """
    cloned = clone(classifier)
    if cloned.get_params(deep=False).get("early_stopping") == "auto":
        cloned.set_params(early_stopping=False)
    return cloned


def _was_fitted_to(estimator: Any, features: Any) -> bool:
    """Tell whether an estimator knows these features, by their number and, where they have any, by their names."""
    names = _get_feature_names(features)
    known = getattr(estimator, "feature_names_in_", None)
    same_names = known is None if names is None else known is not None and list(known) == list(names)
    return same_names and getattr(estimator, "n_features_in_", None) == _num_features(features)
