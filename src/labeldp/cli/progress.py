"""How a training looks while it runs."""

from __future__ import annotations

import time
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

SECONDS_BETWEEN = 30.0


def bars() -> Progress:
    """Return bars of what is done, with its unit, the time left (or taken) and figures, in 80 columns of stderr.

    Where nobody watches, in a file or a pipe, there are none.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.fields[unit]}"),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[figures]}"),
        console=words,
        disable=not words.is_terminal,
    )


def say(sentence: str) -> None:
    """Say a sentence above the bars."""
    words.print(sentence, soft_wrap=True, markup=False)


class NowAndThen:
    """Says how far it is where nobody sees a bar, in a file or a pipe: a sentence each half minute."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, sentence: str) -> None:
        if not words.is_terminal and time.monotonic() - self._last >= SECONDS_BETWEEN:
            self._last = time.monotonic()
            say(sentence)


class FeatureProgress:
    """What is made of public inputs: one bar for what learns from them, and one for each part that is computed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._now_and_then = NowAndThen()

    def __call__(self, record: dict[str, Any]) -> None:
        part = record["part"]
        if part is None:
            while self._tasks:
                self._progress.remove_task(self._tasks.popitem()[1])  # their columns would widen those of other bars
            where = f"{'computed and kept' if record['computed'] else 'found'} in {record['folder']}"
            say(f"Features: {record['rows']:,} rows of {record['size']:,} numbers by {record['spec']}, {where}.")
        elif part != "fitting":
            self._advance(part, "rows", record["done"], record["rows"])
        elif record["epoch"]:
            self._advance(part, "epoch", record["epoch"], record["epochs"])
        else:
            say(f"Features: {record['by']} learns from {record['rows']:,} inputs, without labels.")

    def _advance(self, part: str, unit: str, done: int, total: int) -> None:
        if part not in self._tasks:
            self._tasks[part] = self._progress.add_task(f"features, {part}", total=total, unit=unit, figures="")
        self._progress.update(self._tasks[part], completed=done)
        self._now_and_then(f"Features, {part}: {unit} {done:,} of {total:,}.")


class TrainingProgress:
    """One line per stage: epochs done, time left (or taken), loss, and the noisy figure on held-out rows.

    The epochs of a scikit-learn model are rounds of EM. Where nobody watches, there are only sentences, now and then.
    """

    def __init__(self, recipe: Recipe, *, released_earlier: Container[int] = ()) -> None:
        from labeldp.runs.families import family_of  # late, as all that is not needed for --help

        by_rounds = family_of(recipe.model) == "sklearn"
        self._stages = recipe.release.stages
        epochs = recipe.training.rounds if by_rounds else recipe.training.epochs
        self._epochs = epochs * (1 + (recipe.training.bag_rounds or 0))
        self._student_epochs = recipe.student.rounds * recipe.student.epochs if recipe.student is not None else 0
        self._last = self._stages if recipe.student is None else recipe.trainings + 1
        self._unit = "round" if by_rounds else "epoch"
        self._released_earlier = released_earlier
        self._tasks: dict[int, TaskID] = {}
        self._progress = bars()
        self._features = FeatureProgress(self._progress)
        self._now_and_then = NowAndThen()

    def __call__(self, record: dict[str, Any]) -> None:
        kind, stage = record["kind"], record.get("stage", 0)
        if kind in ("stage", "student", "hold-out"):
            self._complete_all()  # a resumed stage may have been done
        if kind == "ledger":
            say(
                f"Ledger {record['file']} made, with a budget of epsilon {record['budget']} for each label: every later run "
                "on this file is charged to it."
            )
        elif kind == "features":
            self._features(record)
        elif kind == "initial":
            if not record["epoch"]:
                how = "are learned first, in the open, from" if record["computed"] else "are there, learned from"
                say(f"Initialisation: weights {how} {record['rows']:,} public labels of {record['data']}.")
            else:
                self._now_and_then(f"Initialisation: epoch {record['epoch']} of {record['epochs']}.")
        elif kind == "clusters":
            say(
                f"Clusters: {record['clusters']:,} are looked for among {record['rows']:,} rows, without labels. Next, the "
                "label holder counts labels in them, with noise: it is trusted as a curator."
            )
        elif kind == "sums":
            say(f"Sums: {record['rows']:,} ratings in {record['pieces']:,} pieces at epsilon {record['epsilon']}.")
        elif kind == "stage":
            say(self._sentence(record))
            if stage or not self._stages:  # otherwise counts are only the prior of stage 1
                name = f"stage {stage} of {self._stages}" if stage else "clusters"
                self._tasks[stage] = self._progress.add_task(name, total=self._epochs, unit=self._unit, figures="")
        elif kind == "student":
            who = "the answers say" if record["loss"] == "likelihood" else "the model and the answers say together"
            say(f"Student: learns what {who} of {record['rows']:,} rows. Nothing is asked.")
            self._tasks[stage] = self._progress.add_task(
                "student", total=self._student_epochs, unit="epoch", figures=""
            )
        elif kind == "epoch":
            task, total, figures = self._tasks[stage], record["epochs"], self._figures(record)
            self._progress.update(task, completed=record["epoch"], total=total, figures=figures)
            (bar,) = (each for each in self._progress.tasks if each.id == task)
            done = f"{bar.fields['unit']} {record['epoch']} of {total}"
            self._now_and_then(f"{bar.description.capitalize()}: {done}, {figures}.")
        elif kind == "test":
            self._complete_all()
            if stage != self._last and "accuracy" in record:
                say(f"{f'Stage {stage}' if stage else 'Clusters'}: {record['accuracy']:.2%} right on public test data.")

    def _complete_all(self) -> None:
        for task in self._progress.tasks:
            if task.id in self._tasks.values():
                self._progress.update(task.id, completed=task.total)

    def _sentence(self, record: dict[str, Any]) -> str:
        earlier = " earlier" if record["stage"] in self._released_earlier else ""
        if record["stage"] == 0:
            return (
                f"Clusters: {record['rows']:,} labels counted{earlier} in {record['clusters']:,} clusters at epsilon "
                f"{record['epsilon']}."
            )
        filtered = record["filtered"]
        kept = (
            f"; {filtered['kept']:,} of {filtered['rows']:,} earlier rows kept (top {filtered['k']})"
            if filtered
            else ""
        )
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
