"""The figure of a measure against epsilon: lines of means, a dot per draw, and what is reached without privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeldp.report import svg
from labeldp.report.page import Legend
from labeldp.report.words import Measure

NO_PRIVACY = math.inf
LEAST_GAP = 17
"""Pixels between two numbers on the axis of epsilons."""

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


def against_epsilon(name: str, about: str, series: Sequence[Series], measure: Measure) -> str:
    """Draw the figure. Epsilons are spaced by their ratio; without privacy is the last place to the right."""

    def paint(sheet: svg.Sheet) -> None:
        axes = sheet.axes(left=50, bottom=38, top=14, right=16)
        places = _Places.of(series, sheet.width - 66)
        for number, one in enumerate(series, start=1):
            _line(sheet, axes, one, number, measure, places, len(series))
        axes.set_xscale("log")
        axes.set_xlim(places.left, places.right)
        axes.set_xticks(*places.ticks())
        axes.minorticks_off()
        axes.set_xlabel("epsilon (less is more private)", labelpad=4)
        axes.margins(y=0.12)
        axes.yaxis.set_major_locator(svg.locator(nbins=5))
        axes.yaxis.set_major_formatter(
            lambda value, _: measure.show(value, 0) if measure.more_is_better else f"{value:.2f}"
        )

    return svg.draw(name, about, paint, height=260)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where an epsilon stands: side by side where several draws would cover each other."""

    epsilons: list[float]
    endless: bool
    dodge: float
    pixels: float

    @classmethod
    def of(cls, series: Sequence[Series], pixels: float) -> _Places:
        every = {epsilon for one in series for epsilon in one.draws}
        places = cls(sorted(every - {NO_PRIVACY}) or [1.0], NO_PRIVACY in every, 0.0, pixels)
        if all(len(values) == 1 for one in series for values in one.draws.values()):
            return places
        gaps = np.diff(np.log([*places.epsilons, places.without_privacy])) / places.span
        return replace(places, dodge=min(0.036, 0.7 * float(gaps.min()) / len(series)))

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

    def at(self, epsilon: float, number: float, of: int) -> float:
        shift = math.exp(self.dodge * self.span * (number - (of + 1) / 2))
        return (self.without_privacy if epsilon == NO_PRIVACY else epsilon) * shift

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return the places that have room for their number."""
        gap = 1.16 * self.span * LEAST_GAP / self.pixels
        kept: list[float] = []
        for epsilon in self.epsilons:
            if not kept or math.log(epsilon / kept[-1]) >= gap:
                kept.append(epsilon)
        names = [f"{epsilon:g}" for epsilon in kept]
        return ([*kept, self.without_privacy], [*names, "none"]) if self.endless else (kept, names)


def _line(sheet: svg.Sheet, axes: Any, one: Series, number: int, measure: Measure, places: _Places, of: int) -> None:
    order = sorted(one.draws)
    at = [places.at(epsilon, number, of) for epsilon in order]
    means = [float(np.mean(one.draws[epsilon])) for epsilon in order]
    if NO_PRIVACY in one.draws:
        axes.axhline(means[-1], color=one.colour, linewidth=1.3, dashes=(5, 4), zorder=1)
    private = len(one.private())
    style = "--" if one.dashed else "-"
    axes.plot(at[:private], means[:private], style, color=one.colour, linewidth=1.8, alpha=0.9, zorder=2)
    dots = [(places.at(epsilon, number - 0.45, of), v, epsilon) for epsilon in order for v in one.draws[epsilon]]
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
