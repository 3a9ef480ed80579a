"""A loss of the caller's own class, whose gradients are held to what it says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.convex.given import check_finite, check_norms
from labeldp.convex.linear import Absolute, Hinge, LinearLoss, Logistic, Softmax, Squared
from labeldp.convex.losses import GivenLoss, Loss, as_table, check_gradients, no_longer
from labeldp.convex.numbers import Floats, read_only
from labeldp.convex.sets import ParameterSet

LINEAR = (Softmax, Hinge, Logistic, Squared, Absolute)
KNOWN = (*LINEAR, GivenLoss)
"""Their constants are proven, or checked by themselves. A subclass may say anything."""


@dataclass(frozen=True, eq=False)
class Watched(Loss):
    """A loss that returns no gradients but finite ones, of the right shape, no longer than L.

    It sees gradients of all classes alone: what a subclass knows of linear scores, or of a quicker sum, is not relied on.
    """

    loss: Loss
    longest: float

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        return self.loss.n_classes

    def dimension(self, X: NDArray[Any]) -> int:
        return self.loss.dimension(read_only(X))

    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:  # noqa: ARG002 - said before
        return self.longest

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        return self.loss.range(parameter_set, dimension)

    def check(self, X: NDArray[Any], w: Floats) -> None:
        self.loss.check(read_only(X), read_only(w))
        check_gradients(self, X, w)

    def values(self, w: Floats, X: NDArray[Any]) -> Floats:
        return self.loss.values(read_only(w), read_only(X))

    def gradients(self, w: Floats, X: NDArray[Any]) -> Floats:
        given = self.loss.gradients(read_only(w), read_only(X))
        table = as_table(given, (len(X), self.n_classes, len(w)), "gradients")
        return no_longer(table, self.longest, name="gradients", declared="lipschitz()")


def watched(loss: Loss, lipschitz: float) -> Loss:
    """Return a loss whose gradients are no longer than L: the given one, if that is known of it."""
    return loss if type(loss) in KNOWN else Watched(loss, lipschitz)


def check_rows(loss: Loss, X: NDArray[Any], rows: NDArray[np.int64], w: Floats) -> None:
    """Raise where rows that are used are not finite or violate what a loss declares; w is the starting point."""
    given = loss.loss if isinstance(loss, Watched) else loss
    if isinstance(given, LinearLoss):
        check_norms(X, rows, given.norm_bound)
    else:
        check_finite(X, rows)
    if type(loss) not in LINEAR:  # whose check this was
        loss.check(X if len(rows) == len(X) else X[rows], w)
