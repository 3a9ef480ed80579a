"""What LP-Normal-SGD asks of a vault: public tables of the class gradients' coordinates, in a basis of their span.

The centred gradients of a row's K classes span at most K - 1 dimensions. A table holds their coordinates, stretched until the
furthest two are as far apart as declared: the noise is then in proportion to how much the label matters in this row. All of
it is public, and so is what makes a gradient of an answer. Rounding to the lattice never biases: docs/convex.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.convex import bounds
from labeldp.convex.linear import LinearLoss
from labeldp.convex.losses import Loss, parts
from labeldp.convex.numbers import Floats
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import NormalResponse
from labeldp.mechanisms.normal import largest_squared_distance
from labeldp.vault import Pass

Rows = NDArray[np.int64]
Group = tuple[Rows, NDArray[Any], list[int]]
"""Row numbers, their features, and where one step ends and the next begins."""

Estimate = Callable[[Floats], Floats]
"""An unbiased estimate of the gradient at w."""

NEGLIGIBLE = 1e-7  # of the largest: directions that a Gram matrix in double precision cannot tell from rounding
TINY = 1e-140  # a label that moves a gradient by no more does not matter; smaller numbers have squares beyond double precision
EXACT = 1e-9


class Span(ABC):
    """How one pass asks, and how it reads the answers."""

    response: NormalResponse

    @property
    @abstractmethod
    def noise(self) -> float:
        """The most that E|estimate - gradient|^2 can be for one row, over noise and rounding."""

    @abstractmethod
    def estimates(self, opened: Pass, groups: Iterator[Group]) -> Iterator[Estimate]:
        """Yield, step by step, the mean gradient of the step's rows as a function of w."""


def span_of(loss: Loss, sensitivity: float, dimension: int, *, epsilon: Any, delta: Any, seed: int) -> Span:
    """Return the span of a loss with p = `dimension` parameters, no two of whose class gradients are further apart."""
    if isinstance(loss, LinearLoss) and loss.label_is_linear:
        centred = loss.class_slopes(np.zeros((1, loss.n_scores)))[0]
        centred -= centred.mean(axis=0)
        sensitivity = float(_widths(centred @ centred.T)) * loss.norm_bound
        if sensitivity == 0:
            raise InvalidArgument(
                "all class values are equal: no label changes a gradient, so there is nothing to ask for."
            )
        closed = OneTable.of(loss, centred, sensitivity, epsilon, delta)
        if closed is not None:
            return closed
    reach = loss.n_scores if isinstance(loss, LinearLoss) else dimension
    r = min(loss.n_classes - 1, reach)
    response = NormalResponse.covering(sensitivity, epsilon=epsilon, delta=delta, dimension=r)
    return TablePerRow(loss, sensitivity, response, np.random.default_rng(seed))


@dataclass(frozen=True, eq=False)
class OneTable(Span):
    """Softmax and logistic: a row's centred gradients are its x times slopes that depend on neither row nor w.

    Stretched to the full norm, all rows have the same table, so that its exact largest distance is the sensitivity. Answers
    do not depend on w: they are asked for many steps at a time. The basis is as the SVD gives it: softmax's singular values
    are all equal, and another LAPACK may choose another table.
    """

    loss: LinearLoss
    response: NormalResponse
    table: NDArray[np.int64]
    back: Floats
    """(r, m): what a lattice unit of each coordinate is in slopes, for which table @ back + offset are the centred slopes."""
    offset: Floats

    @classmethod
    def of(cls, loss: LinearLoss, centred: Floats, sensitivity: float, epsilon: Any, delta: Any) -> OneTable | None:
        """Return the closed form, or None where rounding puts it out of shape, as it can with fewer than K - 1 dimensions."""
        u, s, _ = np.linalg.svd(centred, full_matrices=False)
        coordinates = (u * s)[:, s > NEGLIGIBLE * s[0]] * loss.norm_bound
        covering = NormalResponse.covering(sensitivity, epsilon=epsilon, delta=delta, dimension=coordinates.shape[1])
        table = covering.quantised(coordinates)
        extended = np.column_stack([table, np.full(len(table), math.sqrt(covering.squared_sensitivity))])
        back = np.linalg.lstsq(extended, centred)[0]
        if np.abs(extended @ back - centred).max() > EXACT * s[0]:
            return None
        response = replace(covering, squared_sensitivity=largest_squared_distance(table[None]))
        return cls(loss, response, table, back[:-1], extended[0, -1] * back[-1])

    @property
    def noise(self) -> float:
        return self.response.variance * float(np.vecdot(self.back, self.back).sum()) * self.loss.norm_bound**2

    def estimates(self, opened: Pass, groups: Iterator[Group]) -> Iterator[Estimate]:
        for rows, x, cuts in groups:
            shifts = self.answers(opened, rows) @ self.back + self.offset
            for begin, end in pairwise(cuts):
                yield partial(self._gradient, x=x[begin:end], shifts=shifts[begin:end])

    def answers(self, opened: Pass, rows: Rows) -> NDArray[np.int64]:
        """Return the answers about rows in any order; a vault is asked in its own."""
        sorting = np.argsort(rows)
        answers = np.empty((len(rows), self.response.dimension), dtype=np.int64)
        for part in parts(len(rows), self.table.size):
            places = sorting[part]
            answers[places] = opened.answer(rows[places], np.broadcast_to(self.table, (len(places), *self.table.shape)))
        return answers

    def _gradient(self, w: Floats, *, x: NDArray[Any], shifts: Floats) -> Floats:
        evenly = np.full((len(x), self.loss.n_classes), 1 / self.loss.n_classes)
        slopes = self.loss.score_slopes(self.loss.scores(w, x), evenly) + shifts
        return (slopes.T @ x).ravel() / len(x)


@dataclass(frozen=True, eq=False)
class TablePerRow(Span):
    """Any loss: a basis and a table for every row at every step, from K x K matrices of inner products.

    On a linear model the class gradients are slopes times x, and slopes stand for them: x need not be multiplied out.
    """

    loss: Loss
    sensitivity: float
    response: NormalResponse
    offsets: np.random.Generator
    """Public: what is added before rounding and taken off again, uniform on a lattice unit, so that rounding does not bias."""

    @property
    def noise(self) -> float:
        return bounds.normal_noise(self.response)

    def estimates(self, opened: Pass, groups: Iterator[Group]) -> Iterator[Estimate]:
        for rows, x, cuts in groups:
            for begin, end in pairwise(cuts):
                sorting = begin + np.argsort(rows[begin:end])
                yield partial(self._gradient, opened=opened, rows=rows[sorting], x=x[sorting])

    def _gradient(self, w: Floats, *, opened: Pass, rows: Rows, x: NDArray[Any]) -> Floats:
        total = np.zeros(len(w))
        for part in parts(len(rows), self.loss.n_classes * (len(w) + self.loss.n_classes)):
            total += self._summed(w, x[part], partial(opened.answer, rows[part]))
        return total / len(rows)

    def _summed(self, w: Floats, x: NDArray[Any], answer: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Floats:
        if not isinstance(self.loss, LinearLoss):
            return self.estimated(self.loss.gradients(w, x), answer).sum(axis=0)
        slopes = self.estimated(self.loss.class_slopes(self.loss.scores(w, x)), answer)
        return (slopes.T @ x).ravel()

    def estimated(self, vectors: Floats, answer: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Floats:
        """Return an estimate of the true class's vector for every row, (rows, q), from all classes', (rows, K, q)."""
        mean = vectors.mean(axis=1)
        basis, coordinates = orthonormal(vectors - mean[:, None], self.response.dimension)
        widths = _widths(coordinates @ coordinates.swapaxes(1, 2))
        stretch = np.divide(self.sensitivity, widths, out=np.zeros_like(widths), where=widths > 0)
        grid = float(self.response.grid)
        offsets = self.offsets.random((len(vectors), 1, self.response.dimension)) - 0.5
        table = self.response.quantised(coordinates * stretch[:, None, None] + offsets * grid)
        answers = (answer(table) - offsets[:, 0]) * (grid / self.sensitivity * widths[:, None])
        return mean + (answers[:, None] @ basis)[:, 0]


def orthonormal(vectors: Floats, dimension: int) -> tuple[Floats, Floats]:
    """Return a basis of every row's K vectors, (rows, r, q), and their coordinates in it, (rows, K, r).

    With V V^T = U S^2 U^T the basis is U^T V / S and the coordinates are U S. Where there are fewer than r directions the
    rest of both is 0. A basis vector is a combination of the given ones: none can leave their span.

    Its signs do not depend on the processor. Last bits may, and where values of S are equal, the whole choice of U for them.
    """
    squares, u = np.linalg.eigh(vectors @ vectors.swapaxes(1, 2))
    s = np.sqrt(np.maximum(squares[:, ::-1][:, :dimension], 0.0))  # the largest first
    u = _signed(u[:, :, ::-1][:, :, :dimension])
    counts = s > np.maximum(NEGLIGIBLE * s[:, :1], TINY)
    inverse = np.divide(1.0, s, out=np.zeros_like(s), where=counts)
    return inverse[:, :, None] * (u.swapaxes(1, 2) @ vectors), u * np.where(counts, s, 0.0)[:, None]


def _signed(u: Floats) -> Floats:
    """Return stacked columns, of the two signs that would do for each the one that LAPACK has no say in.

    No column of algebraic numbers other than 0 is orthogonal to cosines of whole numbers (Lindemann and Weierstrass), so that
    rounding does not decide for (1, -2, 1), as it would with weights 0, 1, 2.
    """
    weights = -np.cos(np.arange(u.shape[1]))
    return np.where(weights @ u < 0, -1, 1)[:, None] * u


def _widths(gram: Floats) -> Floats:
    """Return the largest distance of two vectors, for stacked matrices of their inner products."""
    squares = np.diagonal(gram, axis1=-2, axis2=-1)
    apart = squares[..., :, None] + squares[..., None, :] - 2 * gram
    return np.sqrt(np.maximum(apart.max(axis=(-2, -1)), 0.0))
