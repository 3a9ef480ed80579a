"""How a training looks while it runs."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from labeldp.cli.options import words

if TYPE_CHECKING:
    from labeldp.runs import Recipe


class TrainingProgress:
    """One line per stage: epochs done, time left, loss, and the noisy figure on held-out rows."""

    def __init__(self, recipe: Recipe) -> None:
        self._stages = recipe.release.stages
        self._tasks: dict[int, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.fields[figures]}"),
            console=words,
        )

    def __call__(self, record: dict[str, Any]) -> None:
        kind, stage = record["kind"], record.get("stage", 0)
        if kind == "stage":
            words.print(self._sentence(record))
        elif kind == "epoch":
            if stage not in self._tasks:
                self._tasks[stage] = self._progress.add_task(
                    f"stage {stage} of {self._stages}, epoch", total=record["epochs"], figures=""
                )
            self._progress.update(self._tasks[stage], completed=record["epoch"], figures=self._figures(record))
        elif kind == "test" and "accuracy" in record:
            words.print(f"Stage {stage}: {record['accuracy']:.2%} right on public test data.")

    def _sentence(self, record: dict[str, Any]) -> str:
        filtered = record["filtered"]
        kept = (
            f"; {filtered['kept']:,} of {filtered['rows']:,} earlier rows kept (top {filtered['k']})"
            if filtered
            else ""
        )
        return (
            f"Stage {record['stage']}: {record['rows']:,} labels released by {record['mechanism']} at epsilon "
            f"{record['epsilon']}, {record['mean_groups']:.2f} possible answers on average{kept}."
        )

    def _figures(self, record: dict[str, Any]) -> str:
        grade = record["hold_out"]
        graded = f", hold-out {grade['accuracy']:.1%} ± {grade['standard_error']:.1%}" if grade else ""
        return f"loss {record['loss']:.3f}{graded}"

    def __enter__(self) -> TrainingProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
