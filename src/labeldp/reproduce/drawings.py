"""How the paper's figures are drawn. Each mark stands for recorded runs."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from labeldp.report import page, svg
from labeldp.report.figures import HEAT
from labeldp.reproduce.plot import HEIGHT, Panel
from labeldp.reproduce.points import Figure, Point, in_words, top_k

COLOURS = (svg.BLUE, svg.ORANGE, svg.GREEN, svg.PURPLE, svg.ROSE, svg.BROWN)
MARKERS = ("o", "s", "D", "^", "v", "P")
LINE = 58
"""Characters of a legend's line."""
SIGNS = ("●", "■", "◆", "▲", "▼", "✚")
CAPTION = "Mean over runs, each with noise of its own; a bar is one standard deviation to either side. Point at a mark."
NAMES = {
    "release.stages": "stages",
    "release.split": "share of the rows in stage 1",
    "release.temperature": "temperature of the prior",
    "training.mixup.0": "mixup of stage 1",
    "training.mixup.1": "mixup of stage 2",
}


def panels(figure: Figure) -> list[Panel]:
    """Return what a figure shows of its runs; nothing where there are none."""
    if not figure.drawn:
        return []
    return DRAWN[figure.name](figure)


def section(figure: Figure) -> str:
    """Return a figure and what it shows in numbers, for a page."""
    drawn = [page.figure(panel.title, panel.svg, caption=CAPTION, legend=panel.legend) for panel in panels(figure)]
    table = page.table(figure.title, figure.heads, figure.rows)
    return page.section(figure.name, figure.title, *drawn, table, *map(page.paragraph, figure.notes))


def stages(figure: Figure) -> list[Panel]:
    """Draw accuracy against the number of stages: a line per recipe and epsilon, a bar of one standard deviation."""
    series = _series(figure.drawn)

    def paint(sheet: svg.Sheet) -> None:
        axes = _axes(sheet, "stages")
        for place, (name, points) in enumerate(series.items()):
            at = [point.variant["release.stages"] for point in points]
            means = [point.mean for point in points]
            colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
            (line,) = axes.plot(at, means, f"-{marker}", color=colour, ms=6.5, lw=1.8, mew=0)
            sheet.mark(
                line, f"line-{place}", [f"{name}, T = {t}: {in_words(p)}" for t, p in zip(at, points, strict=True)]
            )
            for x, point in zip(at, points, strict=True):
                if point.spread is not None:
                    low, high = point.mean - point.spread, point.mean + point.spread
                    axes.plot([x, x], [low, high], color=colour, linewidth=1.6)
        axes.set_xticks(sorted({point.variant["release.stages"] for point in figure.drawn}))
        axes.margins(x=0.08, y=0.14)

    return [_panel(figure, paint, _legend(series))]


def grid(figure: Figure) -> list[Panel]:
    """Draw a table of accuracies, with more colour where they are higher: one per recipe and epsilon."""
    return [_grid(figure, name, points) for name, points in _series(list(figure.points)).items() if _has_runs(points)]


def _grid(figure: Figure, name: str, points: Sequence[Point]) -> Panel:
    down, across = points[0].variant  # the order of [vary]
    rows, columns = (list(dict.fromkeys(_text(point.variant[key]) for point in points)) for key in (down, across))
    cells = {(_text(point.variant[down]), _text(point.variant[across])): point for point in points}
    means = [point.mean for point in points if point.runs]
    low, high = min(means), max(means)

    def paint(sheet: svg.Sheet) -> None:
        axes = sheet.axes(left=62, right=10, top=8, bottom=42)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        shades = np.zeros((len(rows), len(columns), 4))
        shades[..., :3] = HEAT
        for (row, column), (y, x) in _places(rows, columns).items():
            if cells[row, column].runs:
                shades[y, x, 3] = 0.08 + 0.67 * (cells[row, column].mean - low) / ((high - low) or 1)
        image = axes.imshow(np.round(shades * 255).astype(np.uint8), interpolation="none", aspect="auto")
        sheet.mark(image, "cells", [])
        for (row, column), (y, x) in _places(rows, columns).items():
            point = cells[row, column]
            words = f"{point.mean:.1f}" if point.runs else "–"
            text = axes.text(x, y, words, ha="center", va="center", color=svg.INK if point.runs else svg.MUTED)
            says = f"{NAMES.get(down, down)} {row}, {NAMES.get(across, across)} {column}: {in_words(point)}"
            sheet.mark(text, f"{y}-{x}", [says])
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(NAMES.get(across, across))
        axes.set_ylabel(NAMES.get(down, down), labelpad=8)

    return _panel(figure, paint, [("■", "blue", f"{name}; the more colour, the higher")], name=name)


def curves(figure: Figure) -> list[Panel]:
    """Draw test accuracy after each epoch, the mean over a recipe's draws, and stage 1's top-k accuracy, dotted."""
    lines = [line for point in figure.drawn for line in _lines(point)]

    def paint(sheet: svg.Sheet) -> None:
        axes = _axes(sheet, "epoch, counted over the stages of a run")
        for place, (name, at, right, style) in enumerate(lines):
            colour = COLOURS[place % len(COLOURS)]
            (line,) = axes.plot(at, right, style, color=colour, lw=1.8, marker="o", ms=3, mew=0)
            sheet.mark(line, f"line-{place}", [f"{name}, epoch {x}: {y:.2f} %" for x, y in zip(at, right, strict=True)])
        axes.margins(x=0.03, y=0.08)
        axes.xaxis.set_major_locator(svg.locator(nbins=6, integer=True))

    signs = {"-": "━", ":": "┅"}
    legend = [(signs[style], _colour(place), name) for place, (name, _, _, style) in enumerate(lines)]
    return [_panel(figure, paint, legend)]


def _lines(point: Point) -> list[tuple[str, list[int], list[float], str]]:
    """Return the curves of a point, means over its runs: name, epochs, accuracies, style."""
    told: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for each in itertools.chain.from_iterable(run.get("curve", []) for run in point.runs):
        told.setdefault((each["stage"], each["epoch"]), []).append(each)
    lines, before = [], 0
    stages = sorted({stage for stage, _ in told})
    for stage in stages:
        epochs = sorted(epoch for of, epoch in told if of == stage)
        at = [before + epoch for epoch in epochs]
        name = f"{point.entry.name.upper()}, epsilon {point.epsilon}" + (f", stage {stage}" if len(stages) > 1 else "")
        lines.append((name, at, [fmean(each["accuracy"] for each in told[stage, epoch]) for epoch in epochs], "-"))
        for k, _, _ in top_k(point)[:1] if stage == 1 else []:
            right = [fmean(each["top_k"][k - 1] for each in told[stage, epoch]) for epoch in epochs]
            lines.append((f"{name}, top-{k} accuracy", at, right, ":"))
        before += epochs[-1]
    return lines


def scatter(figure: Figure) -> list[Panel]:
    """Draw final accuracy against stage 1's top-k accuracy, k being stage 2's mean, rounded; a mark per run."""
    marks: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
    for point in figure.drawn:
        for k, right, final in top_k(point):
            says = f"{' '.join(point.entry.variant_words)}: top-{k} {right:.1f} %, in the end {final:.2f} %"
            marks.setdefault((point.entry.table, k), []).append((right, final, says))
    tables, sizes = (sorted({key[place] for key in marks}) for place in (0, 1))

    def paint(sheet: svg.Sheet) -> None:
        axes = _axes(sheet, "stage 1: top-k accuracy in percent")
        for number, ((table, k), each) in enumerate(sorted(marks.items())):
            colour, marker = COLOURS[tables.index(table)], MARKERS[sizes.index(k) % len(MARKERS)]
            right, final, says = zip(*each, strict=True)
            (drawn,) = axes.plot(right, final, marker, color=colour, ms=6.5, mew=0, alpha=0.85, linestyle="none")
            sheet.mark(drawn, f"marks-{number}", says)
        axes.margins(x=0.06, y=0.1)

    legend: list[tuple[str, str, str]] = [
        (SIGNS[place % len(SIGNS)], "ink", f"k = {k}" + (", stage 2's mean number of candidates" if not place else ""))
        for place, k in enumerate(sizes)
    ]
    legend += [("●", _colour(place), f"runs of {table}") for place, table in enumerate(tables)]
    return [_panel(figure, paint, legend)] if marks else []


DRAWN: dict[str, Callable[[Figure], list[Panel]]] = {
    "figure-stages": stages,
    "figure-curves": curves,
    "figure-split-temperature": grid,
    "figure-mixup": grid,
    "figure-top-k": scatter,
}


def _series(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points by recipe and epsilon."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(f"{point.entry.name}, epsilon {point.epsilon}", []).append(point)
    return found


def _has_runs(points: Sequence[Point]) -> bool:
    return any(point.runs for point in points)


def _places(rows: list[str], columns: list[str]) -> dict[tuple[str, str], tuple[int, int]]:
    return {(row, column): (y, x) for y, row in enumerate(rows) for x, column in enumerate(columns)}


def _axes(sheet: svg.Sheet, below: str) -> Any:
    axes = sheet.axes(left=50, bottom=38, top=14, right=16)
    axes.set_xlabel(below)
    axes.yaxis.set_major_locator(svg.locator(nbins=5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}\u00a0%")
    return axes


def _panel(figure: Figure, paint: Callable[[svg.Sheet], None], legend: page.Legend, *, name: str = "") -> Panel:
    words = f"{figure.name} {name}".strip()
    drawn = svg.draw("-".join(words.replace(",", "").split()), figure.title, paint, height=HEIGHT)
    lines = textwrap.wrap(figure.conditions, LINE)
    return Panel(figure.title, drawn, [*legend, *(("", "muted", line) for line in lines)])


def _legend(series: dict[str, list[Point]]) -> page.Legend:
    return [(SIGNS[place % len(SIGNS)], _colour(place), name) for place, name in enumerate(series)]


def _colour(place: int) -> str:
    return svg.VARIABLES[COLOURS[place % len(COLOURS)]].removeprefix("--")


def _text(value: Any) -> str:
    """Write a value on an axis; of a split, the share of stage 1."""
    return f"{value[0]:.0%}" if isinstance(value, list) else f"{value:g}"
