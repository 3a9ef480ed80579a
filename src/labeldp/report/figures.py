"""The figures of a run: candidates, filtered rows, confusion. Each mark stands for one recorded number."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldp.report import svg
from labeldp.report.records import Stage
from labeldp.report.words import count, printable, share

MOST_NUMBERS = 10
"""Classes of a confusion matrix that still has room for numbers."""

HEAT = (0x2B / 255, 0x7D / 255, 0xD6 / 255)
"""The colour of a confusion matrix, which does on a light and on a dark card."""


def candidates(stages: list[Stage]) -> str:
    """Draw, per stage, which share of its rows had how many candidates."""
    most = max(max(stage.candidates) for stage in stages)

    def paint(sheet: svg.Sheet) -> None:
        each = 114
        for place, stage in enumerate(stages):
            below = 40 + each * (len(stages) - 1 - place)
            axes = sheet.axes(left=46, bottom=below, top=sheet.height - below - each + 36)
            rows = sum(stage.candidates.values()) or 1
            for k, number in sorted(stage.candidates.items()):
                (bar,) = axes.bar(k, number / rows, width=0.78, color=svg.MUTED if k == 1 else svg.BLUE, linewidth=0)
                words = f"stage {stage.stage}: {count(number)} of {count(rows)} rows had {k} ({share(number, rows)})"
                sheet.mark(bar, f"stage-{stage.stage}-k-{k}", [words])
            axes.set_xlim(0.4, most + 0.6)
            axes.set_ylim(0, max(stage.candidates.values()) / rows * 1.08 or 1)
            axes.set_title(
                f"stage {stage.stage}: {printable(stage.mechanism)}",
                loc="left",
                fontsize=11,
                color=svg.INK,
                pad=10,
                x=-0.137,
            )
            axes.yaxis.set_major_locator(svg.locator(nbins=2))
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}\u00a0%")
            _whole_numbers(axes, most)
            axes.tick_params(labelbottom=place == len(stages) - 1)
        axes.set_xlabel("candidates of a row")

    return svg.draw("candidates", "How many rows had how many candidates.", paint, height=26 + 114 * len(stages))


def filtered(stages: list[Stage]) -> str:
    """Draw, per stage that filtered, which share of the rows of earlier stages was kept."""

    def paint(sheet: svg.Sheet) -> None:
        axes = sheet.axes(left=2, right=2, bottom=2, top=2)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        for place, stage in enumerate(stages):
            if stage.filtered is None:
                continue
            kept, rows = stage.filtered.kept, stage.filtered.rows
            part = kept / rows if rows else 0
            axes.barh(-place, 1, height=0.3, color=svg.LINE, linewidth=0)
            (bar,) = axes.barh(-place, part, height=0.3, color=svg.BLUE, linewidth=0)
            words = f"stage {stage.stage}: {count(kept)} of {count(rows)} rows"
            sheet.mark(bar, f"stage-{stage.stage}", [words])
            axes.text(0, 0.24 - place, words, va="bottom")
            axes.text(1, 0.24 - place, share(kept, rows), va="bottom", ha="right", weight="bold")
        axes.set_xlim(0, 1)
        axes.set_ylim(0.8 - len(stages), 0.5)
        axes.set_xticks([])
        axes.set_yticks([])

    return svg.draw("filtered", "Share of rows kept.", paint, height=4 + 56 * (len(stages) - 0.3))


def confusion(table: list[list[int]], classes: list[str]) -> str:
    """Draw true classes of public test data against predicted ones; with numbers where there is room."""
    counts = np.array(table, dtype=np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(counts)
    names = [name if len(name) <= 12 else f"{name[:11]}…" for name in map(printable, classes)]
    widest = max(map(len, names)) if size <= MOST_NUMBERS else 3
    left, bottom = 30 + 6.2 * widest, 26 + (4.4 * widest if widest > 2 else 12)

    def paint(sheet: svg.Sheet) -> None:
        axes = sheet.axes(left=left, right=4, top=4, bottom=bottom)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        cells = np.empty((size, size, 4))
        cells[..., :3], cells[..., 3] = HEAT, np.sqrt(shares)
        image = axes.imshow(np.round(cells * 255).astype(np.uint8), interpolation="none", aspect="auto")
        sheet.mark(image, "cells", [])
        if size <= MOST_NUMBERS:
            for true, predicted in np.ndindex(size, size):
                _number(sheet, axes, true, predicted, table[true][predicted], float(shares[true, predicted]), names)
            turned = {"rotation": 45, "rotation_mode": "anchor", "ha": "right"} if widest > 2 else {}
            axes.set_xticks(range(size), names, **turned)
            axes.set_yticks(range(size), names)
        else:
            axes.xaxis.set_major_locator(svg.locator(nbins=6, integer=True))
            axes.yaxis.set_major_locator(svg.locator(nbins=6, integer=True))
            axes.set_xlim(-0.5, size - 0.5)
            axes.set_ylim(size - 0.5, -0.5)
        sheet.figure.text(
            (left + sheet.width) / 2 / sheet.width, 4 / sheet.height, "predicted", color=svg.MUTED, ha="center"
        )
        sheet.figure.text(
            11 / sheet.width,
            (bottom + sheet.height) / 2 / sheet.height,
            "true",
            color=svg.MUTED,
            ha="center",
            rotation=90,
            rotation_mode="anchor",
        )

    return svg.draw("confusion", "True classes against predicted ones.", paint, height=svg.WIDTH - left + bottom)


def _number(sheet: svg.Sheet, axes: Any, true: int, predicted: int, number: int, part: float, names: list[str]) -> None:
    words = "<1" if 0 < part < 0.005 else f"{100 * part:.0f}"
    colour = "#ffffff" if part > 0.4 else svg.INK if number else svg.MUTED
    text = axes.text(predicted, true, words, ha="center", va="center", fontsize=10, color=colour)
    sheet.mark(text, f"{true}-{predicted}", [f"{names[true]} taken for {names[predicted]}: {count(number)}"])


def _whole_numbers(axes: Any, most: int) -> None:
    if most <= 12:
        axes.set_xticks(range(1, most + 1))
    else:
        axes.xaxis.set_major_locator(svg.locator(nbins=8, integer=True))
