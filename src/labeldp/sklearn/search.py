"""LabelDPSearchCV: ask once, then choose the learner on noisy hold-outs, for free."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.learning import Choice, select
from labeldp.sklearn.classifier import LabelDPClassifier
from labeldp.sklearn.given import Wrapper, hidden, opened
from labeldp.sklearn.models import quoting_no_column

FREE = ("estimator", "rounds", "folds")
"""What may be searched: how models are learned from what was released."""
FOUND = ("best_estimator_", "best_params_", "best_index_", "best_score_", "cv_results_", "classes_")
"""What a fit adds to what it released."""


class LabelDPSearchCV(ClassifierMixin, Wrapper, BaseEstimator):
    """Release the labels once, hold some out, and choose between settings of the learner on these.

    A grid search around LabelDPClassifier asks every label again for every candidate and fold. Here all candidates learn from
    the same releases, and are graded on rows that were released by plain randomized response: nothing more is asked.

    Parameters
    ----------
    estimator : a LabelDPClassifier. Its epsilon, classes, stages, mechanism and the like define the release, once.
    param_grid : of `estimator__..`, `estimator`, `rounds`, `folds`, as for GridSearchCV. What defines the release is refused.
    hold_out : the share of the rows that is held out.
    scoring : "log_likelihood" of the held-out reports, the quieter figure, or "accuracy".

    Attributes
    ----------
    best_estimator_ : a LabelDPClassifier with the best settings, fitted to all releases, the held-out rows included.
    best_params_, best_index_, best_score_ : the choice; the score is that of a fit without the held-out rows.
    cv_results_ : params, mean_test_score, std_test_score (a standard error), rank_test_score, and the figure that was not
        asked for, by its name.
    releases_ : the noisy reports that candidates learn from.
    hold_out_ : the release that the choice was made on; it cannot grade best_estimator_, which has learned from it.
    certificate_, classes_ : as in LabelDPClassifier.

    Privacy
    -------
    What the one release costs: epsilon for every label, those of held-out rows included. The choice reads releases alone.
    """

    def __init__(
        self, estimator: Any, param_grid: Any, *, hold_out: float = 0.2, scoring: str = "log_likelihood"
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.hold_out = hold_out
        self.scoring = scoring

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Release once, and choose; see `LabelDPClassifier.fit` for y."""
        y = hidden(y)
        checks.one_of(("log_likelihood", "accuracy"), scoring=self.scoring)
        if not 0 < self.hold_out < 1:
            raise InvalidArgument(
                f"hold_out must be a share between 0 and 1 of rows to choose on, got {self.hold_out}."
            )
        grid = list(ParameterGrid(self.param_grid))
        if not grid:
            raise InvalidArgument("param_grid must hold at least one setting to choose, got none.")
        base = self._base()
        candidates = [self._candidate(base, params) for params in grid]
        with opened(self, X, y, sample_weight, {}, base._seal) as given:
            names, epsilon = base._names(given), base._epsilon()
            if not round(self.hold_out * int(given.labels.labelled.sum())):
                raise InvalidArgument(f"hold_out must keep at least one row to choose on, got {self.hold_out}.")
            learners = [each._learner(given) for each in candidates]
            for each in candidates:  # all that can stop one, before anything is asked
                each._multistage(len(names), given).check(given.X, given.labels.labelled, len(names), epsilon)
            asked = base._multistage(len(names), given)
            try:
                with quoting_no_column(base.estimator, given.X):
                    asked.fit(given.X, given.labels, epsilon)
            finally:  # what was released can be learned from again, free, also where learning failed
                if asked.releases_ or asked.hold_out_ is not None:
                    base._keep(given, asked)
                    given.noted_in(self)
                    for name in FOUND:  # by an earlier fit
                        self.__dict__.pop(name, None)
                    self.releases_, self.hold_out_ = base.releases_, base.hold_out_
                    self.certificate_ = base.certificate_
        assert asked.hold_out_ is not None
        named = {str(number): learner for number, learner in enumerate(learners)}
        with quoting_no_column(base.estimator, given.X):
            choice = select(named, given.X, asked.releases_, asked.hold_out_)
        self.cv_results_ = _results(grid, choice, self.scoring)
        self.best_index_ = int(np.argmax(self.cv_results_["mean_test_score"]))
        self.best_params_ = grid[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        with quoting_no_column(base.estimator, given.X):
            learner = learners[self.best_index_].fit(given.X, [*asked.releases_, asked.hold_out_])
        best = candidates[self.best_index_]
        given.noted_in(best)
        best.releases_, best.certificate_ = base.releases_, base.certificate_
        best.hold_out_ = None  # it has learned from those rows: they cannot grade it any more
        self.best_estimator_ = best._learned(names, learner)
        self.classes_ = best.classes_
        return self

    def _base(self) -> LabelDPClassifier:
        if not isinstance(self.estimator, LabelDPClassifier):
            raise InvalidArgument(f"estimator must be a LabelDPClassifier, got {type(self.estimator).__name__}.")
        base = clone(self.estimator)
        return base.set_params(hold_out=self.hold_out, mechanism=base._mechanism())

    def _candidate(self, base: LabelDPClassifier, params: dict[str, Any]) -> LabelDPClassifier:
        strangers = sorted(name for name in params if name.split("__")[0] not in base.get_params(deep=False))
        if strangers:
            raise InvalidArgument(
                f"param_grid must name settings of LabelDPClassifier; {strangers[0]} is none. Those of what it wraps: "
                f"estimator__.., such as estimator__{strangers[0]}."
            )
        asked_again = [name for name in params if name.split("__")[0] not in FREE]
        if asked_again:
            raise InvalidArgument(
                f"param_grid must not hold {', '.join(sorted(asked_again))}: it defines the release, so that each value of it "
                "would ask every label again. Choose it beforehand; estimator__.., estimator, rounds and folds can be searched."
            )
        return clone(base).set_params(**params)

    # ---- the best model ----------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        return self._best().predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return self._best().predict_proba(X)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        return self._best().decision_function(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on labels that are read as they are: give it public ones. Sealed ones are refused."""
        return self._best().score(X, y, sample_weight)

    def _best(self) -> LabelDPClassifier:
        check_is_fitted(self, "best_estimator_")
        best: LabelDPClassifier = self.best_estimator_
        return best


def _results(grid: list[dict[str, Any]], choice: Choice, scoring: str) -> dict[str, Any]:
    figures = {"log_likelihood": choice.log_likelihood, "accuracy": choice.accuracy}
    chosen = figures.pop(scoring)
    ((other, rest),) = figures.items()
    asked = [chosen[str(number)] for number in range(len(grid))]
    scores = np.array([each.value for each in asked])
    return {
        "params": grid,
        "mean_test_score": scores,
        "std_test_score": np.array([each.standard_error for each in asked]),
        "rank_test_score": rankdata(-scores, method="min").astype(int),
        other: np.array([rest[str(number)].value for number in range(len(grid))]),
    }
