"""What LP-RR-SGD and LP-Normal-SGD share: a plan of one pass over the rows, and what such a pass found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.convex import bounds
from labeldp.convex.estimator import weights
from labeldp.convex.given import flag, member, permutation, taken
from labeldp.convex.losses import Loss
from labeldp.convex.numbers import CELLS, Floats, in_double_precision, positive, size
from labeldp.convex.sets import ParameterSet
from labeldp.convex.watched import check_rows, watched
from labeldp.errors import InvalidArgument, LabelDPError
from labeldp.vault import Release

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Promise:
    """What is known of a pass before its first step: how long the steps are, and what follows for what it will find.

    Attributes
    ----------
    n_steps, scale : the step sizes are scale / sqrt(t) for t = 1 .. n_steps.
    diameter, lipschitz : D of the set and L of the loss.
    moment : G, with E|gradient estimate|^2 <= G^2 in every step.
    averaged : whether the mean of the iterates is returned rather than the last one.
    """

    n_steps: int
    scale: float
    diameter: float
    lipschitz: float
    moment: float
    averaged: bool

    @property
    def step_sizes(self) -> Floats:
        return self.scale / np.sqrt(np.arange(1, self.n_steps + 1))

    @property
    def kind(self) -> str:
        return "mean of the iterates" if self.averaged else "last iterate"

    def of_the_pass(self) -> float:
        """Return the most that the excess risk is in the mean, if every gradient was unbiased."""
        return bounds.of_iterate(self.averaged)(
            self.n_steps, diameter=self.diameter, moment=self.moment, scale=self.scale
        )


@dataclass(frozen=True, eq=False, repr=False)
class Found(Promise):
    """What one pass of SGD found.

    Attributes
    ----------
    weights : the parameters: the last iterate, or the mean of all if that was asked for. For the others see `Promise`.
    """

    weights: Floats


@dataclass(frozen=True, eq=False)
class Plan:
    """What a pass will do, checked: in which order it takes positions of the release, cut into steps, and where it starts."""

    loss: Loss
    """The given one, or one that holds it to its word."""
    parameter_set: ParameterSet
    diameter: float
    lipschitz: float
    order: Rows
    cuts: Rows
    start: Floats
    average: bool

    @classmethod
    def checked(
        cls,
        X: NDArray[Any],
        rows: Rows,
        n_classes: int,
        loss: Loss,
        parameter_set: ParameterSet,
        *,
        order: Any,
        start: Any,
        batch_size: int,
        average: Any,
    ) -> Plan:
        if not isinstance(loss, Loss) or not isinstance(parameter_set, ParameterSet):
            raise InvalidArgument(
                "loss and parameter_set must be of labeldp.convex, such as Logistic(norm_bound=1) and Ball(radius=1)."
            )
        if loss.n_classes != n_classes:
            raise InvalidArgument(
                f"loss must have the classes of the labels ({n_classes}), got one for {loss.n_classes}."
            )
        dimension = loss.dimension(X)
        parameter_set.check(dimension)
        with in_double_precision():
            diameter = size(diameter=parameter_set.diameter(dimension))
            size(largest_norm=parameter_set.largest_norm(dimension))
            lipschitz = size(lipschitz=loss.lipschitz(parameter_set, dimension))
        checked_loss = watched(loss, lipschitz)
        first = parameter_set.middle(dimension) if start is None else member(start, parameter_set, dimension)
        check_rows(checked_loss, X, rows, first)
        n_steps = -(-len(rows) // checks.integer(batch_size=batch_size, at_least=1))
        cuts = np.arange(n_steps + 1) * len(rows) // n_steps  # steps of nearly equal size
        return cls(
            loss=checked_loss,
            parameter_set=parameter_set,
            diameter=diameter,
            lipschitz=lipschitz,
            order=permutation(order, len(rows)),
            cuts=cuts,
            start=first,
            average=flag(average=average),
        )

    @property
    def n_steps(self) -> int:
        return len(self.cuts) - 1

    def promise(self, moment: float, *, step_moment: float) -> Promise:
        """Return what the pass promises where rows have this G and steps follow that one; refuse what is no promise."""
        with in_double_precision():
            G, G_of_steps = self._batched(size(moment=moment)), self._batched(size(moment=step_moment))
            promise = Promise(
                n_steps=self.n_steps,
                scale=positive(scale=self.diameter / G_of_steps),
                diameter=self.diameter,
                lipschitz=self.lipschitz,
                moment=G,
                averaged=self.average,
            )
            positive(bound=promise.of_the_pass())
        return promise

    def _batched(self, moment: float) -> float:
        """Return G for the mean of a batch: the noise is averaged, the risk's own gradient, at most L long, is not."""
        smallest = int(np.diff(self.cuts).min())
        return math.sqrt(self.lipschitz**2 + (moment**2 - self.lipschitz**2) / smallest)

    def batches(self, X: NDArray[Any], release: Release) -> Iterator[tuple[NDArray[Any], Floats]]:
        """Yield the rows of each step and how much every label counts in them; gathered many steps at a time."""
        size = int(np.diff(self.cuts).max()) * (len(release.classes) + math.prod(X.shape[1:]))
        together = max(1, CELLS // size)
        for first in range(0, self.n_steps, together):
            cuts = self.cuts[first : first + together + 1]
            positions = self.order[cuts[0] : cuts[-1]]
            x, c = taken(X, release.rows[positions]), weights(release, positions)
            for begin, end in pairwise((cuts - cuts[0]).tolist()):
                yield x[begin:end], c[begin:end]


@contextmanager
def paid(what_now: str) -> Iterator[None]:
    """Have whatever fails in a pass say that its labels were charged, and what to do: the caller's own errors in a note."""
    try:
        yield
    except LabelDPError as error:
        raise type(error)(f"{error} {what_now}") from error
    except BaseException as error:  # an interrupt too
        error.add_note(what_now)
        raise
