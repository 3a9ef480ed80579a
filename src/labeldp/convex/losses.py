"""What a loss tells an algorithm of this room: the gradients of all classes, and how large they can be.

The gradients of all K classes at a row are public: they depend on the row and on the parameters, never on its label. What
a report says of the label enters as weights on them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex.numbers import CELLS, ROUNDING, Floats, number, positive, read_only
from labeldp.convex.sets import ParameterSet
from labeldp.errors import InvalidArgument


class Loss(ABC):
    """A loss l(w, (x, y)) that is convex and Lipschitz in w for every row x and class y."""

    label_is_linear: ClassVar[bool] = False
    """Whether l(w, (x, y)) = h(w, x) + <w, a_y(x)> + b_y(x) with h convex and smooth: then debiasing keeps it convex."""

    n_classes: int

    @abstractmethod
    def dimension(self, X: NDArray[Any]) -> int:
        """Return the number p of parameters for these features."""

    @abstractmethod
    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:
        """Return L: no class has a longer gradient, at any row within the declared bound and any w of the set."""

    @abstractmethod
    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:
        """Return the least and the largest value of the loss on the set."""

    @abstractmethod
    def check(self, X: NDArray[Any], w: Floats) -> None:
        """Raise where rows violate what was declared, before anything is asked of a vault; w is the starting point."""

    @abstractmethod
    def values(self, w: Floats, X: NDArray[Any]) -> Floats:
        """Return the loss of every row under every class, shape (rows, K)."""

    @abstractmethod
    def gradients(self, w: Floats, X: NDArray[Any]) -> Floats:
        """Return the gradient in w of every row under every class, shape (rows, K, p)."""

    def gradient(self, w: Floats, X: NDArray[Any], weights: Floats) -> Floats:
        """Return the mean over rows of the gradients of all classes, weighted; weights has shape (rows, K)."""
        ranges = parts(len(X), self.n_classes * len(w))
        return np.sum([np.einsum("iy,iyp->p", weights[at], self.gradients(w, X[at])) for at in ranges], axis=0) / len(X)


@dataclass(frozen=True, eq=False)
class GivenLoss(Loss):
    """A loss by its gradients, written by the caller; what it returns is checked against what was declared.

    Parameters
    ----------
    class_gradients : a function of (w, rows of X) that returns the gradients of all classes, shape (rows, K, p).
    n_parameters : p.
    n_classes : K.
    lipschitz_constant : L; no gradient may be longer.
    class_values, lowest, highest : the losses, shape (rows, K), and their limits: only what looks at values needs them.

    Both functions read w and rows, and cannot write to them.
    The algorithm's promise needs a convex loss, which is the caller's word: it cannot be seen from gradients at a point.
    """

    class_gradients: Callable[[Floats, NDArray[Any]], Any]
    n_parameters: int
    n_classes: int
    lipschitz_constant: float
    class_values: Callable[[Floats, NDArray[Any]], Any] | None = None
    lowest: float | None = None
    highest: float | None = None

    def __post_init__(self) -> None:
        checks.integer(n_parameters=self.n_parameters, at_least=1)
        checks.integer(n_classes=self.n_classes, at_least=2, at_most=checks.MAX_CLASSES)
        positive(lipschitz_constant=self.lipschitz_constant)
        _function(class_gradients=self.class_gradients)
        if self.class_values is not None:
            _function(class_values=self.class_values)
        low, high = self._limits()
        if not low < high:
            raise InvalidArgument(f"lowest must be below highest, got {self.lowest} and {self.highest}.")

    def dimension(self, X: NDArray[Any]) -> int:  # noqa: ARG002 - declared
        return self.n_parameters

    def lipschitz(self, parameter_set: ParameterSet, dimension: int) -> float:  # noqa: ARG002 - declared
        return float(self.lipschitz_constant)

    def range(self, parameter_set: ParameterSet, dimension: int) -> tuple[float, float]:  # noqa: ARG002 - declared
        if self.lowest is None or self.highest is None:
            raise InvalidArgument("this needs the loss's limits: GivenLoss(..., lowest=.., highest=..).")
        return self._limits()

    def _limits(self) -> tuple[float, float]:
        low = -math.inf if self.lowest is None else number(lowest=self.lowest)
        return low, math.inf if self.highest is None else number(highest=self.highest)

    def check(self, X: NDArray[Any], w: Floats) -> None:
        check_gradients(self, X, w)

    def values(self, w: Floats, X: NDArray[Any]) -> Floats:
        if self.class_values is None:
            raise InvalidArgument("this needs the loss's values: GivenLoss(..., class_values=..).")
        given = self.class_values(read_only(w), read_only(X))
        return self._within_limits(as_table(given, (len(X), self.n_classes), "class_values"))

    def _within_limits(self, table: Floats) -> Floats:
        low, high = self._limits()
        least, largest = float(table.min(initial=math.inf)), float(table.max(initial=-math.inf))
        slack = ROUNDING * max(abs(limit) for limit in (low, high, 0.0) if math.isfinite(limit))
        if least < low - slack or largest > high + slack:
            raise InvalidArgument(
                f"class_values must be from lowest={low:g} to highest={high:g}, got {least:.6g} to {largest:.6g}. Declare "
                "wider limits."
            )
        return table

    def gradients(self, w: Floats, X: NDArray[Any]) -> Floats:
        given = self.class_gradients(read_only(w), read_only(X))
        table = as_table(given, (len(X), self.n_classes, self.n_parameters), "class_gradients")
        return no_longer(table, self.lipschitz_constant, name="class_gradients", declared="lipschitz_constant")


def _function(**named: Any) -> None:
    ((name, value),) = named.items()
    if not callable(value):
        raise InvalidArgument(f"{name} must be a function of (w, rows of X), got {type(value).__name__}.")


def check_gradients(loss: Loss, X: NDArray[Any], w: Floats) -> None:
    """Ask for every row's gradients at w, from a loss that returns none that are too long."""
    for at in parts(len(X), loss.n_classes * len(w)):
        loss.gradients(w, X[at].astype(np.float64, copy=False))


def no_longer(table: Floats, most: float, *, name: str, declared: str) -> Floats:
    """Return gradients of which none is longer than was declared."""
    longest = float(np.sqrt(np.vecdot(table, table).max(initial=0.0)))
    if longest > most * (1 + ROUNDING):
        raise InvalidArgument(
            f"{name} must be at most {declared}={most:g} long, got {longest:.6g}. Declare a larger constant, or scale the "
            "rows down."
        )
    return table


def as_table(given: Any, shape: tuple[int, ...], name: str) -> Floats:
    """Return what a caller's function returned, as finite numbers of this shape."""
    table = checks.array(**{name: given})
    if table.shape != shape or table.dtype.kind not in "fiu":
        raise InvalidArgument(f"{name} must return numbers of shape {shape}, got {table.dtype} of shape {table.shape}.")
    if not np.isfinite(table).all():
        raise InvalidArgument(f"{name} must return finite numbers; {int((~np.isfinite(table)).sum())} are not.")
    return table.astype(np.float64, copy=False)


def parts(n_rows: int, cells: int) -> Iterator[slice]:
    """Yield ranges of rows that hold few enough numbers, at so many cells a row."""
    step = max(1, CELLS // cells)
    return (slice(start, start + step) for start in range(0, n_rows, step))
