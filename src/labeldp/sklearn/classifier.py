"""LabelDPClassifier: any classifier, with label differential privacy, in the line one already writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument
from labeldp.learning import MultiStage
from labeldp.mechanisms import GroupedResponse, RRWithPrior
from labeldp.metrics import Estimate, accuracy
from labeldp.sklearn.given import Given, Wrapper, hidden, opened, refuse_sealed
from labeldp.sklearn.learner import SklearnLearner
from labeldp.sklearn.models import quoting_no_column, takes_weights
from labeldp.vault import LabelVault, Release
from labeldp.vault.labels import Classes, Unsealed


class LabelDPClassifier(ClassifierMixin, Wrapper, BaseEstimator):
    """Fits a classifier to noisy reports of the labels, released at epsilon, in stages.

    Parameters
    ----------
    estimator : a classifier with `predict_proba`, or a pipeline that ends in one. With `sample_weight` in its `fit` it learns
        by EM from the likelihood of the reports; without, from one reported label per row.
    epsilon : what each label may spend. Exact as text, "0.1"; there is no default.
    classes : the declared classes, a list of names or numbers, or a count. Never learned from the labels: which ones occur may
        be a secret. Not needed where y is sealed, because its vault has them.
    stages : how many times labels are asked, each row once; the model of the stages before is the prior of the next. None
        means one for two classes, whose best question no prior changes, and two otherwise.
    mechanism : from an epsilon to a mechanism. None means GroupedResponse, or RRWithPrior for an estimator without weights.
    split, temperature, hold_out : of the stages, see `MultiStage`. Held-out rows are released as `hold_out_`, by plain
        randomized response, for `grade`.
    rounds, folds : of EM, see `SklearnLearner`.
    warm_start : begin each stage with the model of the one before.
    seed : of the public partition and folds. The noise has no seed: no two fits are the same.

    Attributes
    ----------
    classes_ : the classes, sorted, as everywhere in scikit-learn; columns of `predict_proba` are in this order.
    estimator_ : the fitted estimator; it predicts numbers, not names, and is surer of itself than `predict_proba` may be.
    certificate_ : what was released and what that promises. With a y that was not sealed it covers this fit alone.
    releases_, hold_out_ : the noisy reports, which can be learned from again, free.
    feature_names_in_, n_features_in_ : of X.

    Privacy
    -------
    epsilon-label-DP for every label of y. Features, weights, classes and which rows there are are public. No attribute of
    the fitted model, and no pickle of it, holds a label.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ldp.sklearn.LabelDPClassifier(LogisticRegression(max_iter=500), epsilon=4, classes=3).fit(X, y)
    >>> model.predict_proba(X).shape, model.certificate_["spent"]["epsilon"]
    ((150, 3), '4')
    """

    def __init__(
        self,
        estimator: Any,
        *,
        epsilon: Any = None,
        classes: Any = None,
        stages: int | None = None,
        mechanism: Any = None,
        split: Any = None,
        temperature: float = 1.0,
        hold_out: float = 0.0,
        rounds: int = 5,
        folds: int = 3,
        warm_start: bool = True,
        seed: int = 0,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.classes = classes
        self.stages = stages
        self.mechanism = mechanism
        self.split = split
        self.temperature = temperature
        self.hold_out = hold_out
        self.rounds = rounds
        self.folds = folds
        self.warm_start = warm_start
        self.seed = seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Seal y, if it is not sealed, release it in stages, and learn from what was released.

        Parameters
        ----------
        y : the labels, which are sealed here; or `vault.sealed()`, rows of a vault, which is then charged.
        sample_weight : public weights: they must not depend on y.
        """
        y = hidden(y)
        with opened(self, X, y, sample_weight, fit_params, self._seal) as given:
            names = self._names(given)
            asked = self._multistage(len(names), given)
            try:
                with quoting_no_column(self.estimator, given.X):
                    asked.fit(given.X, given.labels, self._epsilon())
            finally:  # what was released can be learned from again, free, also where learning failed
                if asked.releases_ or asked.hold_out_ is not None:
                    self._keep(given, asked)
        if asked.hold_out_ is not None:
            with quoting_no_column(self.estimator, given.X):
                self._held_out_predictions = asked.predict_proba(given.X[asked.hold_out_.rows])
        return self._learned(names, asked.model_)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return one row of probabilities per row of X, in the order of `classes_`."""
        self._check_features(X)
        return self._model.predict_proba(X)[:, self._order]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return log probabilities; with two classes the log odds of the second."""
        logs = np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    def grade(self, figure: Callable[[Release, Any], Estimate] = accuracy) -> Estimate:
        """Estimate how good the model is from the rows that were held out, without a true label.

        Parameters
        ----------
        figure : accuracy, auc, log_loss or log_likelihood of labeldp.metrics.
        """
        check_is_fitted(self, "estimator_")
        if self.hold_out_ is None:
            raise InvalidArgument(
                "no rows are held out from this model: say hold_out=0.2 before fit. (The best one of a search has learned from "
                "the rows that chose it: best_score_ is of a fit without them.)"
            )
        return figure(self.hold_out_, self._held_out_predictions)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on labels that are read as they are: give it public ones. Sealed ones are refused."""
        refuse_sealed(y)
        return float(super().score(X, y, sample_weight))

    # ---- what defines the release ------------------------------------------------------------------------------------

    def _epsilon(self) -> Any:
        if self.epsilon is None:
            raise InvalidArgument("epsilon must be given: what each label may spend, such as epsilon=1.")
        Epsilon.of(self.epsilon)  # says what is wrong with it under its own name
        return self.epsilon

    def _seal(self, labels: Unsealed) -> LabelVault:
        if self.classes is None:
            raise InvalidArgument(
                "classes must be given, such as classes=['no', 'yes'] or classes=10: they are public, and are never learned "
                "from the labels."
            )
        names = sorted(Classes.declared(self.classes).names)  # as classes_ will be
        return LabelVault(labels.labels, classes=names, budget=self._epsilon())

    def _names(self, given: Given) -> tuple[Any, ...]:
        names = tuple(given.labels.classes)
        if self.classes is not None and set(Classes.declared(self.classes).names) != set(names):
            raise InvalidArgument("classes must be those of the vault whose labels y is, or be left out.")
        return names

    def _multistage(self, n_classes: int, given: Given) -> MultiStage:
        return MultiStage(
            self._learner(given),
            stages=self.stages if self.stages is not None else 1 if n_classes == 2 else 2,
            split=self.split,
            mechanism=self._mechanism(),
            temperature=self.temperature,
            warm_start=self.warm_start,
            hold_out=self.hold_out,
            seed=self.seed,
        )

    def _mechanism(self) -> Any:
        usual = GroupedResponse if takes_weights(self.estimator) else RRWithPrior
        return usual if self.mechanism is None else self.mechanism

    def _learner(self, given: Given) -> SklearnLearner:
        return SklearnLearner(
            self.estimator,
            rounds=self.rounds,
            folds=self.folds,
            seed=self.seed,
            sample_weight=given.weights,
            fit_params=given.params,
        )

    def _keep(self, given: Given, asked: MultiStage) -> None:
        """Keep what was released, with the caller's row numbers, and no model of an earlier fit beside it."""
        self.__dict__.pop("estimator_", None)
        given.noted_in(self)
        self.releases_ = [given.told(release) for release in asked.releases_]
        self.hold_out_ = None if asked.hold_out_ is None else given.told(asked.hold_out_)
        self.certificate_ = given.certificate()

    def _learned(self, names: tuple[Any, ...], learner: Any) -> Self:
        """Keep the fitted model, and not what it was learned from."""
        self.classes_, self._order = np.unique(np.array(names), return_index=True)
        self._model = learner.model_
        self.estimator_ = self._model.estimator
        return self
