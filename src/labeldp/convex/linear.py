"""Losses on linear models: they see a row through its scores W x alone, so that no table of K x p gradients is formed.

Every one is given a public bound on the norms of the rows, from which its Lipschitz constant follows; rows beyond it are
refused. Parameters are the score weights, row by row: a vector of m d numbers for m scores of d features.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex.given import check_norms
from labeldp.convex.losses import Loss
from labeldp.convex.numbers import Floats, finite, positive
from labeldp.convex.sets import ParameterSet
from labeldp.errors import InvalidArgument


class LinearLoss(Loss):
    """A loss of m scores. Final subclasses say its values and slopes in the scores; the rest is written once."""

    norm_bound: float

    @property
    @abstractmethod
    def n_scores(self) -> int: ...

    @abstractmethod
    def score_values(self, scores: Floats) -> Floats:
        """Return the loss under every class, shape (rows, K), from scores of shape (rows, m)."""

    @abstractmethod
    def score_slopes(self, scores: Floats, weights: Floats) -> Floats:
        """Return the slopes in the scores of all classes' losses, weighted: (rows, m), from weights of shape (rows, K)."""

    def dimension(self, X: NDArray[Any]) -> int:
        return self.n_scores * int(X.shape[1])

    def check(self, X: NDArray[Any], w: Floats) -> None:  # noqa: ARG002 - the bound holds at every w
        check_norms(X, np.arange(len(X)), self.norm_bound)

    def scores(self, w: Floats, X: NDArray[Any]) -> Floats:
        """Return W x for every row, shape (rows, m)."""
        return X @ w.reshape(self.n_scores, -1).T

    def values(self, w: Floats, X: NDArray[Any]) -> Floats:
        return self.score_values(self.scores(w, X))

    def gradient(self, w: Floats, X: NDArray[Any], weights: Floats) -> Floats:
        slopes = self.score_slopes(self.scores(w, X), weights)
        return (slopes.T @ X).ravel() / len(X)

    def gradients(self, w: Floats, X: NDArray[Any]) -> Floats:
        return np.einsum("iym,id->iymd", self.class_slopes(self.scores(w, X)), X).reshape(len(X), self.n_classes, -1)

    def class_slopes(self, scores: Floats) -> Floats:
        """Return the slopes in the scores under every class, shape (rows, K, m)."""
        one = np.eye(self.n_classes)
        return np.stack(
            [self.score_slopes(scores, np.broadcast_to(own, (len(scores), len(own)))) for own in one], axis=1
        )

    def reach(self, parameter_set: ParameterSet, dimension: int) -> float:
        """Return the largest |<w, x>| on the set."""
        return parameter_set.largest_norm(dimension) * self.norm_bound


@dataclass(frozen=True)
class _Classifier(LinearLoss):
    """One score per class; a gradient is (slopes) x^T."""

    n_classes: int
    norm_bound: float

    def __post_init__(self) -> None:
        checks.integer(n_classes=self.n_classes, at_least=2, at_most=checks.MAX_CLASSES)
        object.__setattr__(self, "norm_bound", positive(norm_bound=self.norm_bound))

    @property
    def n_scores(self) -> int:
        return self.n_classes

    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:  # noqa: ARG002 - the same everywhere
        return math.sqrt(2) * self.norm_bound


@dataclass(frozen=True)
class Softmax(_Classifier):
    """-log softmax(W x)_y, with one score per class.

    The gradient is (softmax - e_y) x^T, and |softmax - e_y| <= sqrt(2): L = sqrt(2) norm_bound.

    >>> loss = Softmax(n_classes=3, norm_bound=1.0)
    >>> loss.values(np.zeros(6), np.array([[0.6, 0.8]])).round(4).tolist()
    [[1.0986, 1.0986, 1.0986]]
    """

    label_is_linear: ClassVar[bool] = True

    def score_values(self, scores: Floats) -> Floats:
        top = scores.max(axis=1, keepdims=True)
        return np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) + top - scores

    def score_slopes(self, scores: Floats, weights: Floats) -> Floats:
        slopes = np.exp(scores - scores.max(axis=1, keepdims=True))
        slopes *= weights.sum(axis=1, keepdims=True) / slopes.sum(axis=1, keepdims=True)
        slopes -= weights
        return slopes

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        apart = math.sqrt(2) * self.reach(parameter_set, dimension)  # between two scores
        return 0.0, float(np.logaddexp(0.0, math.log(self.n_classes - 1) + apart))


@dataclass(frozen=True)
class Hinge(_Classifier):
    """max(0, 1 + max of the other scores - own score): the multi-class hinge of Crammer and Singer, as the paper's [K] asks.

    The gradient is 0 or (e_j - e_y) x^T, where j is the best other class: L = sqrt(2) norm_bound.
    """

    def score_values(self, scores: Floats) -> Floats:
        return np.maximum(0.0, 1.0 + _best_other(scores)[2] - scores)

    def score_slopes(self, scores: Floats, weights: Floats) -> Floats:
        first, second, best = _best_other(scores)
        row, pulled = np.arange(len(scores)), np.where(1.0 + best - scores > 0, weights, 0.0)
        of_first = pulled[row, first]
        slopes = -pulled
        slopes[row, first] += pulled.sum(axis=1) - of_first
        slopes[row, second] += of_first
        return slopes

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        return 0.0, 1.0 + math.sqrt(2) * self.reach(parameter_set, dimension)


def _best_other(scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the two classes that score highest, and for every class the highest score of another one."""
    row = np.arange(len(scores))
    first = scores.argmax(axis=1)
    without = scores.copy()
    without[row, first] = -np.inf
    second = without.argmax(axis=1)
    best = np.repeat(scores[row, first][:, None], scores.shape[1], axis=1)
    best[row, first] = scores[row, second]
    return first, second, best


@dataclass(frozen=True)
class Logistic(LinearLoss):
    """log(1 + e^(-<w, x>)) for the second class, log(1 + e^<w, x>) for the first: two classes, one score. L = norm_bound."""

    norm_bound: float

    n_classes: ClassVar[int] = 2  # type: ignore[misc]
    n_scores: ClassVar[int] = 1  # type: ignore[assignment]
    label_is_linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm_bound", positive(norm_bound=self.norm_bound))

    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:  # noqa: ARG002 - the same everywhere
        return self.norm_bound

    def score_values(self, scores: Floats) -> Floats:
        return np.logaddexp(0.0, np.hstack([scores, -scores]))

    def score_slopes(self, scores: Floats, weights: Floats) -> Floats:
        return (0.5 + 0.5 * np.tanh(scores / 2)) * weights.sum(axis=1, keepdims=True) - weights[:, 1:]

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        return 0.0, float(np.logaddexp(0.0, self.reach(parameter_set, dimension)))


@dataclass(frozen=True, eq=False)
class _Regression(LinearLoss):
    """One score, compared with a public number per class, such as a rating."""

    class_values: Any
    norm_bound: float

    n_scores: ClassVar[int] = 1  # type: ignore[assignment]

    def __post_init__(self) -> None:
        numbers = finite(class_values=self.class_values)
        if numbers.ndim != 1 or len(numbers) < 2:
            raise InvalidArgument(f"class_values must be one number per class, at least 2; got shape {numbers.shape}.")
        object.__setattr__(self, "class_values", numbers)
        object.__setattr__(self, "norm_bound", positive(norm_bound=self.norm_bound))

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        return len(self.class_values)

    def furthest(self, parameter_set: ParameterSet, dimension: int) -> float:
        """Return the largest |<w, x> - value| on the set."""
        return self.reach(parameter_set, dimension) + float(np.abs(self.class_values).max())


@dataclass(frozen=True, eq=False)
class Squared(_Regression):
    """(<w, x> - value of the class)^2 / 2. Lipschitz on a bounded set alone: L = (largest |<w, x> - value|) norm_bound."""

    label_is_linear: ClassVar[bool] = True

    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:
        return self.furthest(parameter_set, dimension) * self.norm_bound

    def score_values(self, scores: Floats) -> Floats:
        return (scores - self.class_values) ** 2 / 2

    def score_slopes(self, scores: Floats, weights: Floats) -> Floats:
        return scores * weights.sum(axis=1, keepdims=True) - (weights @ self.class_values)[:, None]

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        return 0.0, self.furthest(parameter_set, dimension) ** 2 / 2


@dataclass(frozen=True, eq=False)
class Absolute(_Regression):
    """|<w, x> - value of the class|. L = norm_bound."""

    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:  # noqa: ARG002 - the same everywhere
        return self.norm_bound

    def score_values(self, scores: Floats) -> Floats:
        return np.abs(scores - self.class_values)

    def score_slopes(self, scores: Floats, weights: Floats) -> Floats:
        return (np.sign(scores - self.class_values) * weights).sum(axis=1, keepdims=True)

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        return 0.0, self.furthest(parameter_set, dimension)
