"""The paper's figures from recorded runs: which points they have, which are missing, and what is told of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labeldp.report import published
from labeldp.reproduce.cookbook import Entry, find, hash_of
from labeldp.reproduce.pooling import on_latest_data, spread_of
from labeldp.reproduce.results import Results

Record = dict[str, Any]

ALSO_SHOWN = {"figure-top-k": ("figure-split-temperature", "figure-mixup")}
"""Figures whose runs another one shows beside its own."""
TITLES = {
    "figure-stages": ("Accuracy by the number of stages", "1 a"),
    "figure-curves": ("Learning curves of one and of two stages", "3"),
    "figure-split-temperature": ("Accuracy by data split and temperature", "4 a"),
    "figure-mixup": ("Accuracy by the mixup of both stages", "4 b"),
    "figure-top-k": ("Accuracy by stage 1's top-k accuracy", "5"),
}
"""What a figure shows, and its number in the paper."""
PUBLIC = (
    "All accuracies, those on the way and top-k ones too, are on public test rows; training labels are never looked at."
)
NOT_A_CHOICE = "A figure is no procedure: choosing a setting by it would be choosing on test data."


@dataclass(frozen=True)
class Point:
    """A variant of a figure's recipe at an epsilon, and all runs of it on the same data that are recorded."""

    entry: Entry
    epsilon: str
    runs: tuple[Record, ...]

    @property
    def variant(self) -> dict[str, Any]:
        return dict(self.entry.variant)

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(run["value"] for run in self.runs)

    @property
    def mean(self) -> float:
        return statistics.mean(self.values)

    @property
    def spread(self) -> float | None:
        return spread_of(self.values)

    def plain(self) -> Record:
        """Return the point for JSON."""
        named = {"table": self.entry.table, "recipe": self.entry.name, "epsilon": self.epsilon, "variant": self.variant}
        known = {"mean": self.mean, "spread": self.spread} if self.runs else {}
        return named | {"runs": len(self.runs), "values": list(self.values)} | known


@dataclass(frozen=True)
class Figure:
    """A figure: its points, those without a run included, and how many records of other versions are not in it.

    `waiting` are the estimated hours of points without a run that were estimated.
    """

    name: str
    points: tuple[Point, ...]
    left_out: int = 0
    waiting: tuple[float, ...] = field(default=(), compare=False)

    @property
    def title(self) -> str:
        return TITLES[self.name][0]

    @property
    def drawn(self) -> list[Point]:
        return [point for point in self.points if point.runs]

    @property
    def conditions(self) -> str:
        """Say on which data the drawn points were run, on how many of its rows, and how often."""
        names = {published.known(point.entry.data) or point.entry.data for point in self.drawn}
        rows = {f"{n:,} rows" if (n := point.entry.at(point.epsilon).rows) else "all rows" for point in self.drawn}
        least, most = (pick(len(point.runs) for point in self.drawn) for pick in (min, max))
        runs = f"{least}" if least == most else f"{least} to {most}"
        on = f"{', '.join(sorted(names))}, {' or '.join(sorted(rows))}"
        return f"{on}; {runs} run{'s' * (most > 1)} a point; after the paper's Figure {TITLES[self.name][1]}"

    @property
    def heads(self) -> tuple[str, ...]:
        return ("recipe", "epsilon", "variant", "accuracy in percent", "stage 1, top-k")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (
                point.entry.name if point.entry.table == self.name else f"{point.entry.table}, {point.entry.name}",
                point.epsilon,
                " ".join(point.entry.variant_words),
                in_words(point),
                " ".join(f"{right:.1f} (k = {k})" for k, right, _ in top_k(point)),
            )
            for point in self.points
        ]

    @property
    def notes(self) -> list[str]:
        missing = [point for point in self.points if not point.runs]
        notes = [f"{self.conditions}."] if self.drawn else []
        notes += [f"{len(missing)} of {len(self.points)} points without a run{self._estimated}."] if missing else []
        others = f"{self.left_out} records of other versions of these recipes, or on other data, are not shown."
        notes += [others] if self.left_out else []
        return [*notes, PUBLIC, NOT_A_CHOICE]

    @property
    def _estimated(self) -> str:
        if not self.waiting:
            return ""
        hours = f"about {sum(self.waiting):.1f} h"
        count = len(self.waiting)
        return f"; {count} of them were estimated, {hours} together" if count > 1 else f"; 1 was estimated, {hours}"


def figure_of(name: str, entries: Sequence[Entry], results: Results, epsilons: Sequence[str] = ()) -> Figure:
    """Return a figure of recipes as they are now, from what is recorded of them.

    Parameters
    ----------
    entries : the figure's recipes; those of figures that it shows besides are added.
    epsilons : by default those that each recipe lists.
    """
    every = [*entries, *(entry for other in ALSO_SHOWN.get(name, ()) for entry in find(other))]
    points, waiting, shown = [], [], set()
    records = {table: results.records(table) for table in {entry.table for entry in every}}
    for entry in every:
        runs = [record for record in records[entry.table] if record["kind"] == "run"]
        estimates = {each["recipe_hash"]: each["hours"] for each in records[entry.table] if each["kind"] == "estimate"}
        for epsilon in epsilons or entry.epsilons:
            for variant in entry.variants():
                digest = hash_of(variant.at(epsilon))
                same = [run for run in runs if run["recipe_hash"] == digest]
                point = Point(variant, epsilon, tuple(on_latest_data(same)))
                points.append(point)
                shown |= {run["run"] for run in point.runs}
                waiting += [estimates[digest]] if digest in estimates and not point.runs else []
    left_out = sum(each["kind"] == "run" and each["run"] not in shown for each in records.get(name, []))
    return Figure(name, tuple(points), left_out, tuple(waiting))


def in_words(point: Point) -> str:
    """Return a point's mean, spread and number of runs."""
    if not point.runs:
        return "no run yet"
    spread = "" if point.spread is None else f" ± {point.spread:.2f}"
    return f"{point.mean:.2f}{spread} ({len(point.runs)} run{'s' * (len(point.runs) > 1)})"


def top_k(point: Point) -> list[tuple[int, float, float]]:
    """Return per run of two stages: stage 2's mean k, rounded; stage 1's top-k accuracy for it; the final accuracy."""
    found = []
    for run in point.runs:
        stages = {each["stage"]: each for each in run.get("stages", [])}
        if set(stages) == {1, 2} and stages[2]["mean_k"] is not None:
            k = max(1, round(stages[2]["mean_k"]))
            found.append((k, stages[1]["top_k"][k - 1], run["value"]))
    return found
