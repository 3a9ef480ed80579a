"""An estimate from noisy reports, its standard error, and the interval that holds the truth with a stated confidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument

Floats = NDArray[np.float64]
HALVINGS = 40  # to a trillionth


class Spread(Protocol):
    """How estimates of one kind of figure miss the truth."""

    @property
    def percent(self) -> bool:
        """Whether the figure is a share, and reads as a percentage."""

    def interval(self, estimate: Estimate, z: float) -> tuple[float, float]:
        """Return the figures that are at most z standard errors away from the estimate."""


@dataclass(frozen=True, slots=True)
class Even:
    """The standard error is the same wherever the truth lies; a mean of skew terms is corrected for their skewness.

    Attributes
    ----------
    low, high : what the figure can be.
    percent : whether it is a share, and reads as a percentage.
    skewness : that of one row's term.
    """

    low: float = 0.0
    high: float = 1.0
    percent: bool = True
    skewness: float = 0.0

    def interval(self, estimate: Estimate, z: float) -> tuple[float, float]:
        def error_at(figure: float) -> float:  # noqa: ARG001 - the same everywhere
            return estimate.standard_error

        return score_interval(estimate, z, error_at, low=self.low, high=self.high, skewness=self.skewness)


@dataclass(frozen=True, slots=True)
class TwoValued:
    """A share whose rows each count as one of two known numbers, so that the truth fixes the standard error: Wilson's interval.

    Unlike the standard error that the rows show, this one is not 0 where all rows agree.

    Attributes
    ----------
    no, yes : what a row counts as.
    """

    no: float
    yes: float

    percent: ClassVar[bool] = True

    def interval(self, estimate: Estimate, z: float) -> tuple[float, float]:
        def error_at(figure: float) -> float:
            return math.sqrt(max((figure - self.no) * (self.yes - figure), 0.0) / estimate.rows)

        return score_interval(estimate, z, error_at, low=0.0, high=1.0)


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a mean of squares: its interval is the root of the interval of that mean."""

    square: Estimate

    percent: ClassVar[bool] = False

    def interval(self, estimate: Estimate, z: float) -> tuple[float, float]:  # noqa: ARG002 - the square knows more
        low, high = self.square.spread.interval(self.square, z)
        return math.sqrt(low), math.sqrt(high)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of a model, estimated from noisy reports.

    Attributes
    ----------
    value : the estimate. It is not forced into what the figure can be, because that would bias it: noise may put an accuracy
        above 100 %.
    standard_error : of the noise and of drawing the rows, together; nan where it cannot be told, as from one row.
    rows : how many rows it rests on.
    spread : how such an estimate misses the truth.

    >>> found = Estimate(0.81, 0.02, rows=400)
    >>> print(found)
    81.0% ± 2.0%
    >>> low, high = found.interval(confidence=0.95)
    >>> f"{low:.3f} {high:.3f}"
    '0.771 0.849'
    """

    value: float
    standard_error: float
    rows: int
    spread: Spread = Even()

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the two ends of an interval that holds the figure of the population with the given confidence.

        The population is what the hold-out's rows were drawn from, independently of each other and of the model: both the
        noise and the luck of the draw are covered. For these very rows alone the interval is wider than it need be. It lies
        within what the figure can be, and is never empty: an estimate outside counts as the nearest possible figure.

        The confidence is approximate, as for any interval that knows no more of the rows than what they show. A loss that is
        rare and huge, and that no row of the hold-out met, is in no interval.
        """
        is_number = isinstance(confidence, (int, float, np.floating))
        if not is_number or not 0 < confidence < 1:
            got = confidence if is_number else type(confidence).__name__
            raise InvalidArgument(f"confidence must lie between 0 and 1, such as 0.95; got {got}.")
        return self.spread.interval(self, -NormalDist().inv_cdf((1 - float(confidence)) / 2))

    def __str__(self) -> str:
        if self.spread.percent:
            return f"{self.value:.1%} ± {self.standard_error:.1%}"
        if not 0 < self.standard_error < math.inf:
            return f"{self.value:.4g} ± {self.standard_error:.2g}"
        places = min(max(1 - math.floor(math.log10(self.standard_error)), 0), 12)  # two digits of the error
        return f"{self.value:.{places}f} ± {self.standard_error:.{places}f}"


def mean_of(terms: Floats, *, low: float, high: float, least_variance: float = 0.0) -> Estimate:
    """Return the mean of one term per row, as a plain number.

    Parameters
    ----------
    low, high : what the mean can be.
    least_variance : what the variance of a term is known to be at least.
    """
    standard_error, skewness = error_and_skewness(terms, least_variance)
    return Estimate(float(terms.mean()), standard_error, len(terms), Even(low, high, percent=False, skewness=skewness))


def error_and_skewness(terms: Floats, least_variance: float = 0.0) -> tuple[float, float]:
    """Return the standard error of the mean of the terms, and the skewness of one term."""
    if len(terms) == 1:
        return math.nan, 0.0
    variance = max(float(terms.var(ddof=1)), least_variance)
    skewness = 0.0
    if variance > np.finfo(np.float64).tiny:
        skewness = float((((terms - terms.mean()) / math.sqrt(variance)) ** 3).mean())
    return math.sqrt(variance / len(terms)), skewness


def score_interval(
    estimate: Estimate,
    z: float,
    error_at: Callable[[float], float],
    *,
    low: float,
    high: float,
    skewness: float = 0.0,
) -> tuple[float, float]:
    """Return the ends of all figures from low to high that are at most z standard errors away from the estimate.

    Parameters
    ----------
    error_at : the standard error that the estimate has if the given figure is the truth.
    skewness : of the terms whose mean the estimate is.
    """
    nearest = min(max(estimate.value, low), high)
    if math.isnan(error_at(nearest)):
        return low, high

    def is_near(figure: float) -> bool:
        error = error_at(figure)
        if error == 0:
            return figure == nearest
        return abs(_without_skewness((nearest - figure) / error, skewness / math.sqrt(estimate.rows))) <= z

    step = error_at(nearest)
    return _edge(is_near, nearest, low, -step), _edge(is_near, nearest, high, step)


def _without_skewness(t: float, skewness: float) -> float:
    """Transform a studentized mean so that it is nearly normal although the terms are skew (Hall 1992, monotone in t)."""
    bend = skewness * t / 3
    return t * (1 + bend + bend * bend / 3) + skewness / 6


def _edge(is_near: Callable[[float], bool], inside: float, end: float, step: float) -> float:
    """Return the last figure between `inside` and `end` that is near; where `end` is infinite, look for one that is not."""
    if math.isinf(end):
        end = inside + step
        while step != 0 and is_near(end):
            step *= 2
            end = inside + step
    if is_near(end):
        return end
    for _ in range(HALVINGS):
        middle = (inside + end) / 2
        inside, end = (middle, end) if is_near(middle) else (inside, middle)
    return inside
