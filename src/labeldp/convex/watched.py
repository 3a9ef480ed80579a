"""A loss of the caller's own class, whose gradients are held to what it says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from labeldp.convex.linear import Absolute, Hinge, Logistic, Softmax, Squared
from labeldp.convex.losses import GivenLoss, Loss, as_table, check_gradients, no_longer
from labeldp.convex.numbers import Floats
from labeldp.convex.sets import ParameterSet

KNOWN = (Softmax, Hinge, Logistic, Squared, Absolute, GivenLoss)
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
        return self.loss.dimension(X)

    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:  # noqa: ARG002 - said before
        return self.longest

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        return self.loss.range(parameter_set, dimension)

    def check(self, X: NDArray[Any], w: Floats) -> None:
        self.loss.check(X, w)
        check_gradients(self, X, w)

    def values(self, w: Floats, X: NDArray[Any]) -> Floats:
        return self.loss.values(w, X)

    def gradients(self, w: Floats, X: NDArray[Any]) -> Floats:
        table = as_table(self.loss.gradients(w, X), (len(X), self.n_classes, len(w)), "gradients")
        return no_longer(table, self.longest, name="gradients", declared="lipschitz()")


def watched(loss: Loss, lipschitz: float) -> Loss:
    """Return a loss whose gradients are no longer than L: the given one, if that is known of it."""
    return loss if type(loss) in KNOWN else Watched(loss, lipschitz)
