"""How long a recipe would take here: one epoch is timed, nothing is asked, no test set is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import labeldp
from labeldp import datasets
from labeldp.errors import InvalidArgument
from labeldp.learning.partition import check_shares
from labeldp.learning.records import Watch
from labeldp.mechanisms import RandomizedResponse
from labeldp.reproduce.cookbook import Entry, hash_of
from labeldp.reproduce.provenance import commit
from labeldp.reproduce.results import now
from labeldp.runs import Recipe, inputs, learners
from labeldp.runs.families import family_of
from labeldp.vault import LabelVault

Record = dict[str, Any]

FIRST_BATCHES = 4
LONGEST = 60.0
"""Seconds that the timing itself may take, about: where an epoch takes longer, part of one is timed."""
HOURS_DIGITS = 5
"""Of a recorded estimate: 0.00001 h is 0.036 s."""


@dataclass(frozen=True)
class Estimate:
    """The time of an epoch over all rows of a recipe, by stages' model and student, and how many rows each was timed on.

    Attributes
    ----------
    processor_share : which part of the time that its threads asked for the timing got of the processors, the student's where
        there is one: well below 1, the machine was busy, and a free one is so much faster.
    """

    seconds_per_epoch: float
    timed_rows: int
    processor_share: float
    threads: int | None
    student_seconds_per_epoch: float | None = None
    student_timed_rows: int | None = None

    def hours(self, recipe: Recipe) -> float:
        """Return what a recipe's epochs take: those of a stage are over all rows that were released by then."""
        plan, how = recipe.release, recipe.training
        reached = np.cumsum(check_shares(plan.split, recipe.trainings)) * (1 - plan.hold_out)
        seconds = how.epochs * (1 + (how.bag_rounds or 0)) * float(reached.sum()) * self.seconds_per_epoch
        if recipe.student is not None and self.student_seconds_per_epoch is not None:
            first = recipe.student.first or recipe.trainings  # without one, it is taught after the last stage alone
            if recipe.prior is not None and how.learn_counts is not False:
                reached[:] = reached[-1]  # counts speak of all rows at once
            lessons = recipe.student.rounds * float(reached[first - 1 :].sum())
            seconds += lessons * recipe.student.epochs * self.student_seconds_per_epoch
        return seconds / 3600


def estimated(entry: Entry, epsilon: str, found: Estimate, command: str) -> Record:
    """Return the record of an estimate."""
    recipe = entry.at(epsilon)
    return {
        "kind": "estimate",
        "table": entry.table,
        "dataset": recipe.data,
        "trust": entry.trust,
        "recipe": entry.name,
        **({"variant": dict(entry.variant)} if entry.variant else {}),
        "recipe_hash": hash_of(recipe),
        "epsilon": recipe.epsilon,
        "hours": round(found.hours(recipe), HOURS_DIGITS),
        "of": "epochs of training alone: features, clusters, an initialisation and tests come on top",
        **{key: value for key, value in asdict(found).items() if value is not None},
        "commit": commit(),
        "version": labeldp.__version__,
        "time": now(),
        "command": command,
    }


def measured(
    recipe: Recipe, *, data_dir: Path | None = None, cache: Path | None = None, watch: Watch | None = None
) -> Estimate:
    """Time an epoch of a recipe on its data, with labels that are made up.

    Privacy
    -------
    The dataset's labels are forgotten as soon as it is read; a model is timed on random ones, and thrown away.
    """
    if recipe.sums is not None:
        raise InvalidArgument("a recipe on [sums] has no epochs to time: run it.")
    if family_of(recipe.model) != "torch":
        raise InvalidArgument(f"{recipe.model} has no epochs to time: run it.")
    images = datasets.load(recipe.data, data_dir=data_dir).only_public()
    read = learners.readable(recipe.model, inputs.public(images, recipe.features, cache=cache, watch=watch).data)
    seconds, rows, share = _timed(lambda: learners.learners_of(recipe, read, None)[0], read, recipe)
    threads = learners.threads(recipe.model)
    if recipe.student is None:
        return Estimate(seconds, rows, share, threads)
    student = _timed(lambda: learners.student_of(recipe, images, None), images, recipe)
    return Estimate(seconds, rows, student[2], threads, *student[:2])


def _timed(new: Callable[[], Any], data: datasets.Dataset, recipe: Recipe) -> tuple[float, int, float]:
    """Return the seconds of an epoch of new learners over all rows, how many rows it was timed on, and its processor share."""
    n_rows = min(recipe.rows or data.n_rows, data.n_rows)
    made_up = np.random.default_rng(recipe.seed).integers(len(data.classes), size=n_rows)

    def times(rows: int) -> tuple[float, float]:
        with LabelVault(made_up[:rows], classes=len(data.classes), budget=recipe.epsilon) as vault:
            release = vault.release(RandomizedResponse(recipe.epsilon))
        learner = new()
        learner.epochs = 1
        began, used = time.perf_counter(), time.process_time()
        learner.fit(data.X[:rows], release)
        return time.perf_counter() - began, time.process_time() - used

    first = min(n_rows, FIRST_BATCHES * new().batch_size)
    times(first)  # the first steps of a process are slow
    rows = max(first, min(n_rows, int(LONGEST * first / times(first)[0])))
    wall, processor = times(rows)
    share = processor / wall / (learners.threads(recipe.model) or 1)
    return _rounded(wall * n_rows / rows), rows, _rounded(share)


def _rounded(figure: float) -> float:
    """Return a figure by three digits, however small: an epoch of a few rows takes milliseconds."""
    return float(f"{figure:.3g}")
