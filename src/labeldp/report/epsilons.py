"""The figure of a measure against epsilon: lines of means, a dot per draw, and what is reached without privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeldp.report import svg
from labeldp.report.page import Legend
from labeldp.report.words import ACCURACY, Measure

NO_PRIVACY = math.inf
GAP, DIGIT = 5, 6.6
"""Pixels between two numbers on the axis of epsilons, and of a digit."""
NEARLY_ALL = 0.97
"""An accuracy above which differences are of errors: these are drawn by their ratio."""
ERRORS = (0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.003, 0.002, 0.001)

SIGNS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}


@dataclass(frozen=True, slots=True)
class Series:
    """One method: its draws by epsilon (infinity: without privacy), and how it looks."""

    name: str
    draws: dict[float, tuple[float, ...]]
    colour: str
    marker: str = "o"
    hollow: bool = False
    dashed: bool = False
    stands_out: bool = False

    def private(self) -> list[float]:
        """Return the epsilons, without infinity, in their order."""
        return sorted(epsilon for epsilon in self.draws if epsilon < NO_PRIVACY)


def legend(series: Sequence[Series]) -> Legend:
    """Return the signs of the figure, in its colours."""
    entries = []
    for one in series:
        sign = SIGNS[one.marker] if one.private() else "– –"
        sign = {"■": "□", "●": "○", "◆": "◇", "▲": "△"}.get(sign, sign) if one.hollow else sign
        entries.append((sign, svg.VARIABLES[one.colour].removeprefix("--"), one.name))
    return entries


def against_epsilon(
    name: str, about: str, series: Sequence[Series], measure: Measure, *, beside: Sequence[Series] = ()
) -> str:
    """Draw the figure. Epsilons are spaced by their ratio; without privacy is the last place to the right.

    Parameters
    ----------
    beside : what figures beside this one draw: all have the same scale of the measure.
    """

    def paint(sheet: svg.Sheet) -> None:
        axes = sheet.axes(left=50, bottom=38, top=14, right=16)
        places = _Places.of(series, sheet.width - 66)
        for number, one in enumerate(series, start=1):
            _line(sheet, axes, one, number, measure, places)
        axes.set_xscale("log")
        axes.set_xlim(places.left, places.right)
        axes.set_xticks(*places.ticks())
        axes.minorticks_off()
        axes.set_xlabel("epsilon (less is more private)", labelpad=4)
        axes.margins(y=0.12)
        axes.update_datalim([(places.epsilons[0], value) for value in _values(beside)])
        if is_by_errors([*series, *beside], measure):
            _by_errors(axes)
        else:
            axes.yaxis.set_major_locator(svg.locator(nbins=5))
            axes.yaxis.set_major_formatter(
                lambda value, _: measure.show(value, 0) if measure.more_is_better else f"{value:.2f}"
            )

    return svg.draw(name, about, paint, height=260)


def is_by_errors(series: Sequence[Series], measure: Measure) -> bool:
    """Tell whether a figure's accuracies are spaced by their errors: where the best is nearly all, and none is all."""
    return measure is ACCURACY and NEARLY_ALL < max(_values(series), default=0.0) < 1


def _values(series: Sequence[Series]) -> list[float]:
    return [value for one in series for draws in one.draws.values() for value in draws]


def _by_errors(axes: Any) -> None:
    """Space accuracies by the ratio of their errors, so that 99.0 and 99.3 % are as far apart as 90 and 93 %."""
    axes.set_yscale("function", functions=(lambda right: -np.log(1 - right), lambda place: 1 - np.exp(-place)))
    low, high = axes.get_ylim()
    shown = [1 - error for error in ERRORS if low <= 1 - error <= high]
    axes.set_yticks(shown, [f"{100 * right:g}\N{NO-BREAK SPACE}%" for right in shown])


@dataclass(frozen=True, slots=True)
class _Places:
    """Where an epsilon stands: methods of several draws, which would cover each other, stand side by side."""

    epsilons: list[float]
    endless: bool
    pixels: float
    beside: tuple[str, ...] = ()
    dodge: float = 0.0

    @classmethod
    def of(cls, series: Sequence[Series], pixels: float) -> _Places:
        every = {epsilon for one in series for epsilon in one.draws}
        beside = tuple(one.name for one in series if any(len(values) > 1 for values in one.draws.values()))
        places = cls(sorted(every - {NO_PRIVACY}) or [1.0], NO_PRIVACY in every, pixels, beside)
        gaps = np.diff(np.log([*places.epsilons, places.without_privacy])) / places.span
        return replace(places, dodge=min(0.036, 0.7 * float(gaps.min()) / max(len(beside), 1)))

    @property
    def without_privacy(self) -> float:
        return self.epsilons[-1] * max(1.5, (self.epsilons[-1] / self.epsilons[0]) ** 0.16)

    @property
    def span(self) -> float:
        return math.log((self.without_privacy if self.endless else self.epsilons[-1]) / self.epsilons[0]) or 1.0

    @property
    def left(self) -> float:
        return self.epsilons[0] * math.exp(-0.08 * self.span)

    @property
    def right(self) -> float:
        return (self.without_privacy if self.endless else self.epsilons[-1]) * math.exp(0.08 * self.span)

    def at(self, epsilon: float, name: str, aside: float = 0.0) -> float:
        shift = self.beside.index(name) - (len(self.beside) - 1) / 2 - aside if name in self.beside else 0.0
        place = self.without_privacy if epsilon == NO_PRIVACY else epsilon
        return place * math.exp(self.dodge * self.span * shift)

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return the places that have room for their number."""
        kept: list[float] = []
        for epsilon in self.epsilons:
            room = self.pixels * math.log(epsilon / kept[-1]) / (1.16 * self.span) if kept else math.inf
            if room >= GAP + DIGIT * (len(f"{epsilon:g}") + (len(f"{kept[-1]:g}") if kept else 0)) / 2:
                kept.append(epsilon)
        names = [f"{epsilon:g}" for epsilon in kept]
        return ([*kept, self.without_privacy], [*names, "none"]) if self.endless else (kept, names)


def _line(sheet: svg.Sheet, axes: Any, one: Series, number: int, measure: Measure, places: _Places) -> None:
    order = sorted(one.draws)
    at = [places.at(epsilon, one.name) for epsilon in order]
    means = [float(np.mean(one.draws[epsilon])) for epsilon in order]
    if NO_PRIVACY in one.draws:
        axes.axhline(means[-1], color=one.colour, linewidth=1.3, dashes=(5, 4), zorder=1)
    private = len(one.private())
    style = "--" if one.dashed else "-"
    axes.plot(at[:private], means[:private], style, color=one.colour, linewidth=1.8, alpha=0.9, zorder=2)
    dots = [(places.at(epsilon, one.name, aside=0.45), v, epsilon) for epsilon in order for v in one.draws[epsilon]]
    if len(dots) > len(order):
        (drawn,) = axes.plot(
            *zip(*[dot[:2] for dot in dots], strict=True), "o", color=one.colour, ms=4, mew=0, alpha=0.45, zorder=3
        )
        sheet.mark(drawn, f"draws-{number}", [_says(one.name, epsilon, measure.show(v, 2)) for _, v, epsilon in dots])
        for x, mean, epsilon in zip(at, means, order, strict=True):
            spread = deviation(one.draws[epsilon])
            axes.plot([x, x], [mean - spread, mean + spread], color=one.colour, linewidth=1.6, zorder=3)
    (mean_marks,) = axes.plot(
        at,
        means,
        one.marker,
        color=one.colour,
        markerfacecolor=svg.CARD if one.hollow else one.colour,
        markeredgecolor=svg.CARD if one.stands_out else one.colour,
        markeredgewidth=1.6 if one.hollow or one.stands_out else 0,
        markersize=12 if one.stands_out else 6.5,
        zorder=6 if one.stands_out else 4,
        clip_on=False,
    )
    says = [_says(one.name, epsilon, measure.show(mean, 2)) for epsilon, mean in zip(order, means, strict=True)]
    sheet.mark(mean_marks, f"mean-{number}", says)
    if one.stands_out:  # the legend says what it is; below is where curves that flatten leave room
        shift = (8, -18) if measure.more_is_better else (8, 10)
        sheet.label(
            axes, measure.show(means[-1]), (at[-1], means[-1]), shift, weight="bold", color=one.colour, zorder=7
        )


def deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation, 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _says(name: str, epsilon: float, value: str) -> str:
    return f"{name}, {'without privacy' if epsilon == NO_PRIVACY else f'epsilon {epsilon:g}'}: {value}"
