"""How a training looks while it runs."""

from __future__ import annotations

from collections.abc import Container
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from labeldp.cli.options import words

if TYPE_CHECKING:
    from labeldp.runs import Recipe


class TrainingProgress:
    """One line per stage: epochs done, time left (or taken), loss, and the noisy figure on held-out rows.

    The epochs of a scikit-learn model are rounds of EM. It fits 80 columns.
    Where nobody watches, in a file or a pipe, there are only sentences.
    """

    def __init__(self, recipe: Recipe, *, released_earlier: Container[int] = ()) -> None:
        from labeldp.runs.families import family_of  # late, as all that is not needed for --help

        by_rounds = family_of(recipe.model) == "sklearn"
        self._stages = recipe.release.stages
        self._epochs = recipe.training.rounds if by_rounds else recipe.training.epochs
        self._released_earlier = released_earlier
        self._tasks: dict[int, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            TextColumn("round" if by_rounds else "epoch"),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[figures]}"),
            console=words,
            disable=not words.is_terminal,
        )

    def __call__(self, record: dict[str, Any]) -> None:
        kind, stage = record["kind"], record.get("stage", 0)
        if kind in ("stage", "hold-out"):
            self._complete_all()  # a resumed stage may have been done
        if kind == "ledger":
            self._say(
                f"Ledger {record['file']} made, with a budget of epsilon {record['budget']} for each label: every later run "
                "on this file is charged to it."
            )
        elif kind == "stage":
            self._say(self._sentence(record))
            name = f"stage {stage} of {self._stages}"
            self._tasks[stage] = self._progress.add_task(name, total=self._epochs, figures="")
        elif kind == "epoch":
            self._progress.update(self._tasks[stage], completed=record["epoch"], figures=self._figures(record))
        elif kind == "test":
            self._complete_all()
            if stage < self._stages and "accuracy" in record:
                self._say(f"Stage {stage}: {record['accuracy']:.2%} right on public test data.")

    def _complete_all(self) -> None:
        for task in self._tasks.values():
            self._progress.update(task, completed=self._epochs)

    def _say(self, sentence: str) -> None:
        words.print(sentence, soft_wrap=True, markup=False)

    def _sentence(self, record: dict[str, Any]) -> str:
        filtered = record["filtered"]
        kept = (
            f"; {filtered['kept']:,} of {filtered['rows']:,} earlier rows kept (top {filtered['k']})"
            if filtered
            else ""
        )
        earlier = " earlier" if record["stage"] in self._released_earlier else ""
        return (
            f"Stage {record['stage']}: {record['rows']:,} labels released{earlier} by {record['mechanism']} at epsilon "
            f"{record['epsilon']}; {record['mean_groups']:.3g} possible answers to each, on average{kept}."
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
