"""A scikit-learn classifier as a learner: expectation maximisation on the likelihood of what was reported."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pydoc import locate
from typing import Any, Literal, Self, TypeVar

import numpy as np
import skops.io
from scipy.sparse import issparse
from sklearn.base import is_regressor
from sklearn.dummy import DummyClassifier

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.files import renamed_when_whole
from labeldp.learning import evidence
from labeldp.learning.learner import Beliefs, Examples, Watch
from labeldp.sklearn.calibration import Stretch, Temper, Trust, stretch_of, temper_of
from labeldp.sklearn.models import (
    Model,
    Numbers,
    Steps,
    Table,
    Task,
    bounded,
    cannot_learn,
    fit_steps,
    joined,
    name_of,
    split,
    takes_weights,
)
from labeldp.sklearn.rows import Rows, taken, telling

T = TypeVar("T")

REHEARSED_ROWS = 500
TRUSTED_TYPES = ("sklearn.", "numpy.", "scipy.", "xgboost.", "lightgbm.", "collections.OrderedDict")
TRUSTED_FUNCTIONS = ("sklearn.feature_selection.",)
"""Where the types and functions in a model file may come from. A transformer calls functions: others would be code."""


@dataclass(frozen=True)
class Round:
    """A round of EM: the beliefs that were fitted to, and what was predicted of every row by a fit to others."""

    number: int
    beliefs: Table
    predicted: Table
    trust: Trust
    evidence: Table
    """The log likelihood of every row's report under what was predicted of it, as far as that is trusted."""

    @classmethod
    def of(cls, number: int, beliefs: Table, predicted: Table, likelihood: Table, weights: Table) -> Round:
        trust = (stretch_of if number == 1 else temper_of)(predicted, likelihood, weights)
        evidence = weights / weights.mean() * np.log((trust(predicted) * likelihood).sum(axis=1))
        return cls(number, beliefs, predicted, trust, evidence)

    def is_better_than(self, other: Round) -> bool:
        """Tell whether reports are likelier by more than the standard error of that: a drift must not pass for progress."""
        gain = self.evidence - other.evidence
        return bool(gain.mean() > gain.std() / len(gain) ** 0.5)


class SklearnLearner:
    """Learns from the likelihood of reports with any classifier that has `predict_proba` and takes `sample_weight`.

    EM: every row is believed to have each label with some probability, at first those that were reported; the classifier is
    fitted to all labels, weighted by these beliefs, and its predictions times the likelihood are the next beliefs. What it
    predicts for a row comes from a fit to other rows (`folds`): a flexible classifier would otherwise confirm its own noise.
    Predictions are made as sure of themselves as the reports bear out: the first are stretched, being of noisy labels, later
    ones at most tempered. The last round that made the reports clearly likelier makes the model.

    Beliefs, such as a curator's histograms give, are fitted to once: prior times likelihood, where there are reports too.

    A classifier without `sample_weight` is fitted once, to one reported label per row, as if it were true.

    Parameters
    ----------
    estimator : the classifier, or a pipeline that ends in one; it is cloned, never changed. A pipeline's transformers are
        fitted once, to all rows of X; one that reads labels, to the rows of the releases, with one label drawn for each.
    rounds, folds : of EM. They cost rounds * folds + 1 fits, each to about K copies of the rows.
    seed : of the folds. Public; no seed reaches privacy noise.
    sample_weight : public weights, one per row of X.
    fit_params : more of what the classifier's `fit` takes; what has one entry per row of X goes along with its rows.

    Privacy
    -------
    Free: it reads releases, and no label.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        rounds: int = 5,
        folds: int = 3,
        seed: int = 0,
        sample_weight: Any = None,
        fit_params: dict[str, Any] | None = None,
    ) -> None:
        self.estimator = estimator
        self.rounds = checks.integer(rounds=rounds, at_least=1)
        self.folds = checks.integer(folds=folds, at_least=2)
        self.seed = checks.integer(seed=seed, at_least=0)
        self.sample_weight = sample_weight
        self.fit_params = dict(fit_params or {})
        self.model_: Model | None = None

    @property
    def learns_from(self) -> Literal["labels", "likelihood"]:
        return "likelihood" if takes_weights(self.estimator) else "labels"

    @property
    def takes_beliefs(self) -> bool:
        """Whether soft targets can be learned from: with weights."""
        return takes_weights(self.estimator)

    def check(self, X: Any, n_classes: int) -> None:
        """Raise where the classifier cannot learn from X: it rehearses on some rows, with labels that are made up."""
        X = _as_rows(X)
        if is_regressor(self.estimator):
            raise InvalidArgument(
                f"{name_of(self.estimator)} is a regressor: use LabelDPRegressor, or give a classifier."
            )
        if self.sample_weight is not None and not takes_weights(self.estimator):
            raise InvalidArgument(
                f"{name_of(self.estimator)} takes no sample_weight: leave it out, or choose another classifier."
            )
        rows = telling(X, REHEARSED_ROWS)
        beliefs = np.full((len(rows), n_classes), 0.1 / n_classes)
        beliefs[np.arange(len(rows)), np.arange(len(rows)) % n_classes] += 0.9
        try:
            steps, task = self._task(X, rows, beliefs)
            model = task.fit_beliefs(np.arange(len(rows)), beliefs) if takes_weights(self.estimator) else None
            model = model or task.fit_labels(beliefs.argmax(axis=1), n_classes)
            self._joined(steps, model).predict_proba(X[rows[:1]])
        except Exception as error:  # no label was touched: what it says is public
            if not hasattr(split(self.estimator)[1], "predict_proba"):  # some have it once they are fitted
                raise InvalidArgument(
                    f"{name_of(self.estimator)} has no predict_proba, which priors and beliefs are made of: choose one that "
                    "has, or wrap it in sklearn.calibration.CalibratedClassifierCV."
                ) from None
            raise cannot_learn(self.estimator, X, error) from (None if X.is_column else error)

    # ---- learning ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        releases: Examples | Sequence[Examples],
        *,
        start: SklearnLearner | None = None,
        checkpoint: Path | None = None,
        watch: Watch | None = None,
    ) -> Self:
        """Learn from one or more releases; see `Learner.fit`.

        The fit to all rows goes on from the coefficients of `start`, where the classifier has a warm start.
        """
        given = evidence.checked(releases)
        local, beliefs = evidence.apart(given)
        X, n_classes = _as_rows(X), len(evidence.classes_of(given[0]))
        if beliefs:
            return self._fit_beliefs(X, evidence.posterior(local, beliefs), start, watch)
        if self.learns_from == "labels":
            rows, labels = evidence.noisy_labels(local)
            evidence.check_rows(rows, len(X))
            return self._fit_labels(X, rows, labels, n_classes, watch)
        rows, logs = evidence.log_likelihoods(local)
        evidence.check_rows(rows, len(X))
        return self._fit_likelihood(X, rows, np.exp(logs - logs.max(axis=1, keepdims=True)), start, checkpoint, watch)

    def _fit_likelihood(
        self,
        X: Rows,
        rows: Numbers,
        likelihood: Table,
        start: SklearnLearner | None,
        checkpoint: Path | None,
        watch: Watch | None,
    ) -> Self:
        beliefs = reported(likelihood)
        steps, task = self._task(X, rows, beliefs)
        mark = self._fingerprint(rows, likelihood)
        latest, best = _read(checkpoint, mark, likelihood, task.weights)
        for number in range(1 if latest is None else latest.number + 1, self.rounds + 1):
            began = time.perf_counter()
            if latest is not None:
                beliefs = posterior(latest.trust(latest.predicted), likelihood)
            predicted = self._predicted_by_others(task, beliefs)
            latest = Round.of(number, beliefs, predicted, likelihood, task.weights)
            best = latest if best is None or latest.is_better_than(best) else best
            if watch is not None:
                self.model_ = self._model_of(best, steps, task, start)
                watch(
                    _record(number, self.rounds, -float(latest.evidence.mean()), time.perf_counter() - began, len(rows))
                )
            _write(checkpoint, mark, latest, best)
        assert best is not None
        self.model_ = self._model_of(best, steps, task, start)
        return self

    def _model_of(self, best: Round, steps: Steps, task: Task, start: SklearnLearner | None) -> Model:
        """Fit the classifier to all rows with the beliefs of a round, to be trusted as far as its predictions were."""
        fitted = task.fit_beliefs(np.arange(len(best.beliefs)), best.beliefs, None if start is None else start.model_)
        return self._joined(steps, replace(fitted, trust=best.trust))

    def _predicted_by_others(self, task: Task, beliefs: Table) -> Table:
        """Return every row's predictions by a classifier that was fitted to the beliefs about other rows."""
        n_rows = len(beliefs)
        folds = np.random.default_rng([self.seed, 0xF01D]).permutation(n_rows) % min(self.folds, n_rows)
        predicted = np.full(beliefs.shape, 1 / beliefs.shape[1])
        for fold in range(self.folds if n_rows > 1 else 0):
            others, own = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            if len(own):
                predicted[own] = task.fit_beliefs(others, beliefs[others]).predict_proba(task.X[own])
        return bounded(predicted)

    def _fit_beliefs(self, X: Rows, beliefs: Beliefs, start: SklearnLearner | None, watch: Watch | None) -> Self:
        """Fit once to what is believed of each row: prior times likelihood, where there are reports too."""
        began = time.perf_counter()
        evidence.check_rows(beliefs.rows, len(X))
        if not takes_weights(self.estimator):
            raise InvalidArgument(
                f"{name_of(self.estimator)} takes no sample_weight, by which beliefs are learned: choose another classifier."
            )
        rows, shares = beliefs.rows, beliefs.shares.astype(np.float64)
        steps, task = self._task(X, rows, shares)
        if beliefs.weights is not None:
            task = replace(task, weights=task.weights * beliefs.weights)
        fitted = task.fit_beliefs(np.arange(len(rows)), shares, None if start is None else start.model_)
        self.model_ = self._joined(steps, fitted)
        if watch is not None:
            loss = -float((shares * np.log(bounded(self.predict_proba(X[rows])))).sum(axis=1).mean())
            watch(_record(1, 1, loss, time.perf_counter() - began, len(rows)))
        return self

    def _fit_labels(self, X: Rows, rows: Numbers, labels: Numbers, n_classes: int, watch: Watch | None) -> Self:
        """Fit once to the reported labels: all that can be done with a classifier that takes no weights."""
        began = time.perf_counter()
        steps, task = self._task(X, rows, np.eye(n_classes)[labels])
        self.model_ = self._joined(steps, task.fit_labels(labels, n_classes))
        if watch is not None:
            predicted = bounded(self.predict_proba(X[rows]))
            loss = -float(np.log(predicted[np.arange(len(rows)), labels]).mean())
            watch(_record(1, 1, loss, time.perf_counter() - began, len(rows)))
        return self

    def _task(self, X: Rows, rows: Numbers, beliefs: Table) -> tuple[Steps, Task]:
        """Fit a pipeline's transformers and return them, with what the classifier at its end is to learn from."""
        steps, classifier = split(self.estimator)
        steps, features = fit_steps(steps, X, rows, drawn(beliefs, self.seed))
        weights = (
            np.ones(len(rows)) if self.sample_weight is None else np.asarray(self.sample_weight, dtype=float)[rows]
        )
        params = {name: taken(value, rows, len(X)) for name, value in self.fit_params.items()}
        return steps, Task(classifier, Rows(features), weights, params)

    def _joined(self, steps: Steps, model: Model) -> Model:
        return replace(model, estimator=joined(self.estimator, steps, model.estimator))

    # ---- the fitted model --------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Table:
        """Return one row of K probabilities per row of X."""
        return self._fitted().predict_proba(X.X if isinstance(X, Rows) else X)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier in the format of skops, which holds no code."""
        model = self._fitted()
        state = {"estimator": model.estimator, "seen": model.seen, "n_classes": model.n_classes}
        if model.trust is not None:
            state |= asdict(model.trust)
        with renamed_when_whole(Path(path)) as file:
            file.write(skops.io.dumps(state))

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote of a classifier of the same kind."""
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError:
            raise InvalidArgument(f"there is no model at {path}.") from None
        try:
            named = skops.io.get_untrusted_types(data=data)
            state = skops.io.loads(data, trusted=[name for name in named if _trusted(name)])
            trusts = [kind(state.pop(name)) for kind, name in ((Stretch, "times"), (Temper, "power")) if name in state]
            model = Model(**state, trust=trusts[0] if trusts else None)
            same = type(split(model.estimator)[1]) in (type(split(self.estimator)[1]), DummyClassifier)
        except Exception as error:
            raise InvalidArgument(f"{path} does not hold a model of skops ({type(error).__name__}).") from None
        if not same:
            raise InvalidArgument(f"{path} does not hold a {name_of(self.estimator)}.")
        self.model_ = model
        return self

    def _fitted(self) -> Model:
        if self.model_ is None:
            raise InvalidArgument("this SklearnLearner has not been fitted: call fit(X, releases) first.")
        return self.model_

    def ask_once(self, ask: Callable[[], T]) -> T:
        return ask()

    def _fingerprint(self, rows: Numbers, likelihood: Table) -> str:
        named = sorted(self.estimator.get_params().items())  # its own repr leaves out what is long
        settings = (type(self.estimator).__name__, named, self.rounds, self.folds, self.seed)
        digest = hashlib.sha256(repr(settings).encode())
        weights = () if self.sample_weight is None else (np.asarray(self.sample_weight, dtype=float),)
        for array in (rows, likelihood, *weights):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def posterior(predicted: Table, likelihood: Table) -> Table:
    """Return the beliefs about each row's label: prediction times likelihood, normalised. The E-step of EM."""
    joint = predicted * likelihood
    return joint / joint.sum(axis=1, keepdims=True)


def reported(likelihood: Table) -> Table:
    """Return the beliefs of somebody who takes reports at their word: the labels in the reported group, all alike."""
    named = likelihood >= likelihood.max(axis=1, keepdims=True) * (1 - 1e-9)
    return named / named.sum(axis=1, keepdims=True)


def drawn(beliefs: Table, seed: int) -> Numbers:
    """Return one label per row, drawn from the beliefs about it."""
    chances = np.random.default_rng([seed, 0xD4A3]).random((len(beliefs), 1))
    return (beliefs.cumsum(axis=1) < chances * beliefs.sum(axis=1, keepdims=True)).sum(axis=1)


def _trusted(name: str) -> bool:
    """Tell whether what a model file names may be used: a type of a known library, or a score of features."""
    if not name.startswith(TRUSTED_TYPES):
        return False
    return name.startswith(TRUSTED_FUNCTIONS) or isinstance(locate(name), type)


def _record(number: int, rounds: int, loss: float, seconds: float, rows: int) -> dict[str, Any]:
    return {
        "epoch": number,
        "epochs": rounds,
        "loss": loss,
        "learning_rate": None,
        "seconds": seconds,
        "rows": rows,
    }


def _write(checkpoint: Path | None, mark: str, latest: Round, best: Round) -> None:
    if checkpoint is None:
        return
    arrays: dict[str, Any] = {}
    for name, each in (("latest", latest), ("best", best)):
        arrays |= {f"{name}_number": np.array(each.number), f"{name}_beliefs": each.beliefs}
        arrays[f"{name}_predicted"] = each.predicted
    with renamed_when_whole(checkpoint) as file:
        np.savez(file, allow_pickle=False, mark=np.array(mark), **arrays)


def _read(checkpoint: Path | None, mark: str, likelihood: Table, weights: Table) -> tuple[Round | None, Round | None]:
    """Return the latest round and the best one, if some were made."""
    if checkpoint is None or not checkpoint.exists():
        return None, None
    try:
        with np.load(checkpoint, allow_pickle=False) as stored:
            found = dict(stored)
    except Exception as error:
        raise InvalidArgument(f"{checkpoint} is not a whole checkpoint ({type(error).__name__}): remove it.") from None
    if str(found.get("mark")) != mark:
        raise InvalidArgument(
            f"{checkpoint} was made by a training with other releases, settings or starting weights, and cannot be gone on "
            "from. Resume with those it was made with, or remove it and the checkpoints beside it: what was released is then "
            "trained on anew, and nothing is asked again."
        )
    latest, best = (
        Round.of(
            int(found[f"{name}_number"]), found[f"{name}_beliefs"], found[f"{name}_predicted"], likelihood, weights
        )
        for name in ("latest", "best")
    )
    return latest, best


def _as_rows(X: Any) -> Rows:
    if isinstance(X, Rows):
        return X
    if isinstance(X, np.ndarray) or issparse(X):
        return Rows(X)
    raise InvalidArgument(f"X must be an array, a sparse matrix, or labeldp.sklearn.Rows(X), got {type(X).__name__}.")
