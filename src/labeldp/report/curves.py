"""The learning curves of a run, stage after stage. Each mark stands for one recorded number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labeldp.report import svg
from labeldp.report.records import Epoch, Estimate, Run
from labeldp.report.words import ACCURACY, Measure, name_of


def has_loss(epoch: Epoch) -> bool:
    """Return whether an epoch's loss can be drawn."""
    return epoch.loss is not None and math.isfinite(epoch.loss)


def loss(run: Run) -> str:
    """Draw the training loss of every epoch, stage after stage."""

    def paint(sheet: svg.Sheet) -> None:
        axes, starts = _epochs(sheet, run)
        for stage, epochs in _by_stage([epoch for epoch in run.epochs if has_loss(epoch)]).items():
            at = [starts[stage] + epoch.epoch for epoch in epochs]
            (line,) = axes.plot(at, [epoch.loss for epoch in epochs], "-o", color=svg.BLUE, ms=_dot(run), lw=1.6, mew=0)
            says = [f"{name_of(run, stage)}, epoch {epoch.epoch}: loss {epoch.loss:.4g}" for epoch in epochs]
            sheet.mark(line, f"stage-{stage}", says)

    return svg.draw("loss", "Training loss per epoch.", paint, height=235)


def learning(run: Run, measure: Measure) -> str:
    """Draw noisy hold-out figures with their standard error, and public test figures at the ends of stages."""

    def paint(sheet: svg.Sheet) -> None:
        axes, starts = _epochs(sheet, run)
        for stage, epochs in _by_stage([epoch for epoch in run.epochs if _held(epoch, measure)]).items():
            at = [starts[stage] + epoch.epoch for epoch in epochs]
            held = [estimate for epoch in epochs if (estimate := _held(epoch, measure))]
            values = np.array([estimate.value for estimate in held])
            errors = np.array([estimate.standard_error for estimate in held])
            axes.fill_between(at, values - errors, values + errors, color=svg.BLUE, alpha=0.18, linewidth=0)
            (line,) = axes.plot(at, values, "-o", color=svg.BLUE, ms=_dot(run), lw=1.6, mew=0)
            says = [
                f"{name_of(run, stage)}, epoch {epoch.epoch}: {measure.show(one.value)} ± {measure.show(one.standard_error)}"
                for epoch, one in zip(epochs, held, strict=True)
            ]
            sheet.mark(line, f"hold-out-stage-{stage}", says)
        last = axes.get_xlim()[1]
        for test in [test for test in run.tests if test.is_accuracy == (measure is ACCURACY)]:
            at_end = _end(run, starts, test.stage)
            (mark,) = axes.plot(
                [at_end], [test.value], "D", color=svg.ORANGE, ms=9, mec=svg.CARD, mew=1.5, zorder=5, clip_on=False
            )
            sheet.mark(
                mark, f"test-stage-{test.stage}", [f"after {name_of(run, test.stage)}: {measure.show(test.value, 2)}"]
            )
            side = "right" if at_end > 0.85 * last else "center"
            beside = [_held(epoch, measure) for epoch in run.epochs if epoch.stage == test.stage]
            above = not beside or beside[-1] is None or test.value >= beside[-1].value
            shift = (6 if side == "right" else 0, 10 if above else -20)
            sheet.label(axes, measure.show(test.value), (at_end, test.value), shift, ha=side, weight="bold", zorder=6)
        axes.margins(y=0.16)
        axes.yaxis.set_major_formatter(lambda value, _: measure.show(value, 0 if measure.more_is_better else 1))
        low, high = axes.get_ylim()
        if measure.more_is_better and high - low < 0.04:  # whole percents would repeat themselves
            axes.yaxis.set_major_formatter(lambda value, _: measure.show(value, 1))

    name = "learning" if measure is ACCURACY else "learning-rmse"
    return svg.draw(name, f"{measure.name} per epoch.", paint, height=235)


def _held(epoch: Epoch, measure: Measure) -> Estimate | None:
    """Return an epoch's hold-out figure if it is of this measure."""
    return epoch.hold_out if measure is ACCURACY else None


def _epochs(sheet: svg.Sheet, run: Run) -> tuple[Any, dict[float, int]]:
    """Return axes of epochs counted over all stages, and how many epochs precede each stage."""
    axes = sheet.axes(top=26)
    lengths = {epoch.stage: epoch.epochs for epoch in run.epochs}
    for test in run.tests:
        lengths.setdefault(test.stage, 1)
    starts, total = {}, 0
    for stage in sorted(lengths):
        starts[stage] = total
        total += lengths[stage]
    for stage, start in starts.items():
        if start:
            axes.axvline(start + 0.5, color=svg.LINE, linewidth=1, zorder=0)
        room = lengths[stage] / total * (sheet.width - 58) > 48
        words = name_of(run, stage) if room else str(stage)
        at = (start + 0.5 if start else 0, 1)
        axes.annotate(
            words,
            at,
            xytext=(4 if start else 0, 8),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=svg.MUTED,
        )
    axes.set_xlim(0, total + 1)
    axes.set_xlabel("epoch, counted over all stages" if len(starts) > 1 else "epoch")
    axes.xaxis.set_major_locator(svg.locator(nbins=6, integer=True))
    axes.yaxis.set_major_locator(svg.locator(nbins=5))
    return axes, starts


def _end(run: Run, starts: dict[float, int], stage: float) -> int:
    return starts[stage] + max([epoch.epoch for epoch in run.epochs if epoch.stage == stage], default=1)


def _by_stage(epochs: list[Epoch]) -> dict[float, list[Epoch]]:
    return {stage: [e for e in epochs if e.stage == stage] for stage in sorted({e.stage for e in epochs})}


def _dot(run: Run) -> float:
    return 4.5 if len(run.epochs) <= 30 else 2.6
