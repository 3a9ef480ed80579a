"""Convex problems whose excess risk is known in closed form, and the ways to learn them that convex_rates.py compares.

D = 2 and L = 1 in all of them, and no risk is strongly convex. docs/convex-rates.md describes problems and methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

import labeldp as ldp
from labeldp import convex
from labeldp.convex.linear import LinearLoss
from labeldp.mechanisms.normal_privacy import continuous_variance

BALL = convex.Ball(radius=1.0)
DIAMETER, LIPSCHITZ = 2.0, 1.0
DELTA = "1e-6"
SHARE = 0.375
"""Of a row of the linear problem in the direction that labels go with; the rest of its norm is noise in all the others."""
DIRECTIONS, KINK, SURE = 4, 0.5, 0.9
"""Of the kinked problem: how many rows there are, the class values -KINK and KINK, and the chance of the likelier class."""


# ---- the problems ----------------------------------------------------------------------------------------------------


class Problem(ABC):
    """Rows with labels, a loss, and its population risk in closed form."""

    loss: LinearLoss
    n_classes: int
    p: int

    @abstractmethod
    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return independent rows and their labels."""

    @abstractmethod
    def excess(self, w: np.ndarray) -> float:
        """Return the population risk of w above its minimum on the ball, exactly."""

    @property
    def at_start(self) -> float:
        return self.excess(BALL.middle(self.p))


def corners(n_classes: int) -> np.ndarray:
    """Return K vectors of length 1 and sum 0, each two equally far apart, in K - 1 dimensions."""
    u, s, _ = np.linalg.svd(math.sqrt(n_classes / (n_classes - 1)) * (np.eye(n_classes) - 1 / n_classes))
    return u[:, :-1] * s[:-1]


@dataclass(frozen=True)
class Correlation(LinearLoss):
    """-<B_y, W x>, where B_y is the corner of class y: linear in W, K - 1 scores, every gradient as long as its row."""

    n_classes: int
    norm_bound: float = 1.0

    label_is_linear: ClassVar[bool] = True

    @cached_property
    def corners(self) -> np.ndarray:
        return corners(self.n_classes)

    @property
    def n_scores(self) -> int:
        return self.n_classes - 1

    def lipschitz(self, parameter_set: convex.ParameterSet, dimension: int) -> float:  # noqa: ARG002 - the same everywhere
        return self.norm_bound

    def score_values(self, scores: np.ndarray) -> np.ndarray:
        return -scores @ self.corners.T

    def score_slopes(self, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:  # noqa: ARG002 - the same everywhere
        return -weights @ self.corners

    def range(self, parameter_set: convex.ParameterSet, dimension: int) -> tuple[float, float]:
        reach = self.reach(parameter_set, dimension)
        return -reach, reach


@dataclass(frozen=True)
class Linear(Problem):
    """x = (SHARE s, noise) with a side s = +-1. A share of the labels is class 0 or 1 by the side, the others are uniform.

    The noise is random signs on d - 1 coordinates, so the mean gradient is -M in the first column of W and 0 elsewhere.
    """

    n_classes: int
    n_features: int
    informative: float = 0.875

    @cached_property
    def loss(self) -> Correlation:  # type: ignore[override]
        return Correlation(self.n_classes)

    @property
    def p(self) -> int:  # type: ignore[override]
        return (self.n_classes - 1) * self.n_features

    @cached_property
    def mean(self) -> np.ndarray:
        """M = E[B_y x_1], with s = 1 and s = -1 equally likely."""
        return self.informative * SHARE * (self.loss.corners[0] - self.loss.corners[1]) / 2

    def rows(self, sides: np.ndarray, signs: np.ndarray) -> np.ndarray:
        X = np.empty((len(sides), self.n_features), dtype=np.float32)
        X[:, 1:] = signs
        X[:, 1:] *= np.float32(math.sqrt((1 - SHARE**2) / (self.n_features - 1)))
        X[:, 0] = np.where(sides == 0, SHARE, -SHARE)
        return X

    def chances(self, side: int) -> np.ndarray:
        """Return the law of the label on one side, 0 for s = 1 and 1 for s = -1."""
        return self.informative * (np.arange(self.n_classes) == side) + (1 - self.informative) / self.n_classes

    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        sides = rng.integers(0, 2, size=n_rows)
        laws = np.cumsum([self.chances(0), self.chances(1)], axis=1)
        labels = (rng.random(n_rows)[:, None] > laws[sides, :-1]).sum(axis=1)
        width = self.n_features - 1
        bits = np.unpackbits(rng.integers(0, 256, size=(n_rows, -(-width // 8)), dtype=np.uint8), axis=1, count=width)
        return self.rows(sides, 2 * bits.view(np.int8) - 1), labels

    def excess(self, w: np.ndarray) -> float:
        column = w.reshape(self.n_classes - 1, -1)[:, 0]
        return float(BALL.radius * np.linalg.norm(self.mean) - self.mean @ column)

    def balance(self, found: dict[str, Any]) -> float:
        """Return what the excess risk is where noise and steps balance: along the sphere, and across it."""
        moment = 1 + (found["moment"] ** 2 - 1) * found["batch"]  # of one row
        variance = (moment - self.mean @ self.mean) / found["batch"]
        across = SHARE**2 / (self.n_classes - 1)
        return found["scale"] / math.sqrt(found["steps"]) * variance * ((1 - across) / 4 + across / 2)


@dataclass(frozen=True)
class Kinked(Problem):
    """|<w, x> - value|: a row is one of a few orthonormal directions of R^p, dense and unknown to the algorithms.

    In all directions but the last one class is likelier, and its value the minimiser; in the last both are equally likely, and
    the risk is flat between their values.
    """

    p: int

    n_classes: ClassVar[int] = 2  # type: ignore[misc]
    loss: ClassVar[convex.Absolute] = convex.Absolute(class_values=[-KINK, KINK], norm_bound=1.0)  # type: ignore[misc]
    chances: ClassVar[np.ndarray] = np.where(np.arange(DIRECTIONS) < DIRECTIONS - 1, SURE, 0.5)

    @cached_property
    def directions(self) -> np.ndarray:
        """Return the directions, (DIRECTIONS, p), in single precision as the rows are."""
        return np.linalg.qr(np.random.default_rng(self.p).normal(size=(self.p, DIRECTIONS)))[0].T.astype(np.float32)

    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        which = rng.integers(0, DIRECTIONS, size=n_rows)
        return self.directions[which], (rng.random(n_rows) < self.chances[which]).astype(int)

    def risk(self, scores: np.ndarray) -> float:
        return float(np.mean(self.chances * abs(scores - KINK) + (1 - self.chances) * abs(scores + KINK)))

    def excess(self, w: np.ndarray) -> float:
        return self.risk(self.directions @ w) - self.risk(np.full(DIRECTIONS, KINK))


# ---- the methods -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One point of a study: a problem, and how many rows at which epsilon and batch size."""

    problem: Problem
    n_rows: int
    epsilon: str
    batch: int


def lp_rr_sgd(cell: Cell, X: np.ndarray, labels: np.ndarray, steps: str) -> convex.Fit:
    vault = ldp.LabelVault(labels, classes=cell.problem.n_classes, budget=cell.epsilon)
    return convex.lp_rr_sgd(X, vault, cell.problem.loss, BALL, cell.epsilon, batch_size=cell.batch, steps=steps)


def lp_normal_sgd(cell: Cell, X: np.ndarray, labels: np.ndarray) -> convex.NormalFit:
    vault = ldp.LabelVault(labels, classes=cell.problem.n_classes, budget=cell.epsilon, delta=DELTA)
    return convex.lp_normal_sgd(X, vault, cell.problem.loss, BALL, cell.epsilon, DELTA, batch_size=cell.batch)


def without_privacy(cell: Cell, X: np.ndarray, labels: np.ndarray) -> convex.Fit:
    release = ldp.LabelVault.unprotected(labels, classes=cell.problem.n_classes)
    return convex.sgd_on_release(X, release, cell.problem.loss, BALL, batch_size=cell.batch)


def full_dp_sigma(epsilon: str) -> float:
    """Return the analytic Gaussian's deviation for one row's gradient, which another row moves by at most 2 L."""
    return 2 * LIPSCHITZ * math.sqrt(continuous_variance(Fraction(epsilon), Fraction(DELTA), squared_sensitivity=1))


def own_batch(cell: Cell) -> int:
    """Return the batch size with the least bound for full DP: where noise, sqrt(p) sigma / b, is as long as a gradient."""
    return max(1, min(cell.n_rows // 4, round(math.sqrt(cell.problem.p) * full_dp_sigma(cell.epsilon) / LIPSCHITZ)))


@dataclass(frozen=True)
class NoisyFit:
    """What noisy SGD found, in the words of `labeldp.convex.Fit`."""

    weights: np.ndarray
    n_steps: int
    scale: float
    moment: float


def full_dp_sgd(cell: Cell, X: np.ndarray, labels: np.ndarray, batch: int, rng: np.random.Generator) -> NoisyFit:
    """Run one pass of noisy SGD: (epsilon, DELTA)-DP when a row is replaced, features and label; each row is in one batch.

    A batch's mean moves by at most 2 L / b, so sigma / b in each of the p coordinates is enough; batches compose in parallel.
    Steps are those of the last iterate's theorem with G^2 = L^2 + p sigma^2 / b^2.
    """
    loss, p, sigma = cell.problem.loss, cell.problem.p, full_dp_sigma(cell.epsilon) / batch
    moment = math.sqrt(LIPSCHITZ**2 + p * sigma**2)
    scale, n_steps, true = DIAMETER / moment, len(X) // batch, np.eye(cell.problem.n_classes)[labels]
    w = BALL.middle(p)
    for t in range(n_steps):
        rows = slice(t * batch, (t + 1) * batch)
        gradient = loss.gradient(w, X[rows].astype(np.float64), true[rows])
        gradient += sigma * rng.standard_normal(p, dtype=np.float32)
        w = BALL.project(w - scale / math.sqrt(t + 1) * gradient)
    return NoisyFit(w, n_steps, scale, moment)


RR, PAPER, NORMAL, PLAIN = "LP-RR-SGD", "LP-RR-SGD, the paper's steps", "LP-Normal-SGD", "no privacy"
FULL, OWN = "full DP", "full DP, its own batch"
Method = Callable[[Cell, np.ndarray, np.ndarray, np.random.Generator], Any]
METHODS: dict[str, Method] = {
    RR: lambda cell, X, labels, _: lp_rr_sgd(cell, X, labels, "exact"),
    PAPER: lambda cell, X, labels, _: lp_rr_sgd(cell, X, labels, "theorem"),
    NORMAL: lambda cell, X, labels, _: lp_normal_sgd(cell, X, labels),
    PLAIN: lambda cell, X, labels, _: without_privacy(cell, X, labels),
    FULL: lambda cell, X, labels, rng: full_dp_sgd(cell, X, labels, cell.batch, rng),
    OWN: lambda cell, X, labels, rng: full_dp_sgd(cell, X, labels, own_batch(cell), rng),
}
