"""A student: a learner that reads other inputs than its teacher, and learns what teacher and releases say of each row together.

A linear model of good features learns fast from noisy answers, and stops early; a network on the images goes further, but only
on targets that are mostly right. What the first predicts, times the likelihood of each row's own report, is such a target.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.learning import evidence, records
from labeldp.learning.bags import bag_beliefs
from labeldp.learning.learner import Beliefs, Epoch, Examples, Learner
from labeldp.vault import HistogramRelease, Release

if TYPE_CHECKING:
    from labeldp.learning.multistage import MultiStage

L = TypeVar("L", bound=Learner)
Probabilities = NDArray[np.floating[Any]]

TEACHERS_SHARE = 0.25
"""Of what both say together. Students that are far ahead of their teachers do better alone: docs/frontier.md."""
LOSSES = ("posterior", "likelihood")
NO_LIKELIHOOD = (
    "the likelihood is that of reports on rows: where counts of groups are learned from, loss must be 'posterior'."
)
LEAST = 1e-9
"""Below it no probability is believed when two models are put together: one alone rules nothing out."""


@dataclass(frozen=True, eq=False, repr=False)
class Lesson:
    """What a student learns from: a teacher's predictions, and the releases that the teacher learned from.

    Parameters
    ----------
    taught : the teacher's probabilities, one row for each of `rows`.
    releases : reports on rows.
    counts : of groups of rows, if there are any.
    rounds : how often the student learns. After each, what it and its teacher predict together takes the teacher's place in the
        targets of the next (EM, whose first step is the teacher's).
    share : the teacher's part in what both predict together after a round; 0 leaves the next targets to the student alone.
    loss : "posterior", of such targets; or "likelihood", of the releases' own reports: then nothing is learned of the teacher,
        which pays where a network goes far beyond it, and has answers enough to do so (EM whose every step is the network's).

    Privacy
    -------
    Free: releases are read, and what a teacher learned from them. Nothing can check that no label had another part in
    `taught`: giving it is the caller's statement that none had.
    """

    taught: Probabilities
    releases: Sequence[Release] = ()
    counts: HistogramRelease | None = None
    rounds: int = 1
    share: float = TEACHERS_SHARE
    loss: str = "posterior"

    def __post_init__(self) -> None:
        _check_settings(self.rounds, self.share, self.loss)
        if not self._behind or not all(isinstance(each, Release | HistogramRelease) for each in self._behind):
            raise InvalidArgument(
                "a lesson must be of releases of a vault: reports on rows, counts of groups, or both."
            )
        if self.loss == "likelihood" and self.counts is not None:
            raise InvalidArgument(NO_LIKELIHOOD)
        if len({each.classes for each in self._behind}) > 1:
            raise InvalidArgument("releases must all have the same classes.")
        checks.probabilities(self.taught, len(self.rows), len(self._behind[0].classes))

    @classmethod
    def of(
        cls,
        teacher: MultiStage,
        X: Any,
        *,
        rounds: int = 1,
        share: float = TEACHERS_SHARE,
        loss: str = "posterior",
    ) -> Lesson:
        """Return the lesson that a fitted `MultiStage` can give, which reads X."""
        counts = teacher.counts_ if teacher.learn_counts else None
        rows = spoken_of([*teacher.releases_, *([] if counts is None else [counts])])
        return cls(teacher.predict_proba(X[rows]), teacher.releases_, counts, rounds, share, loss)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The vault's rows that the releases speak of, in order."""
        return spoken_of(self._behind)

    @property
    def _behind(self) -> list[Release | HistogramRelease]:
        return [*self.releases, *([] if self.counts is None else [self.counts])]

    @property
    def private(self) -> bool:
        return all(each.private for each in self._behind)

    def __repr__(self) -> str:
        stamp = "" if self.private else ", NOT PRIVATE"
        return f"<Lesson about {len(self.rows)} rows, {len(self._behind[0].classes)} classes{stamp}>"

    def targets(self, predicted: Probabilities) -> Beliefs:
        """Return what predictions and releases say together: prior times likelihood, adding up to the counts."""
        if self.counts is not None:
            order = np.searchsorted(self.rows, self.counts.rows)
            return bag_beliefs(predicted[order], self.counts, self.releases)
        return evidence.posterior(self.releases, [Beliefs(self.rows, predicted, self._behind)])

    def teach(
        self,
        student: L,
        X: Any,
        *,
        start: L | None = None,
        checkpoint: Callable[[int], Path | None] = lambda number: None,  # noqa: ARG005
        watch: Callable[[L, Epoch], None] | None = None,
    ) -> L:
        """Return a copy of the student that has learned, round by round, each from where the last one ended.

        Each round has the seed after that of the round before, or of `start`, so that crops and flips are others.

        Parameters
        ----------
        X : public inputs as the student reads them, one row per row of the vault.
        start : the student after an earlier lesson: it goes on from there, and has its part in the first round's targets.
        checkpoint : from the number of a round, from 0, to its file.
        watch : called with the student and a record at the end of each epoch; they are counted over all rounds.
        """
        model = start
        for number in range(self.rounds):
            begun = copy.deepcopy(student)
            if isinstance(seed := getattr(model, "seed", None), int):
                begun.seed = seed + 1  # type: ignore[attr-defined]

            def epoch_ended(number: int, begun: L, epoch: Epoch) -> None:
                if watch is not None:
                    done = number * epoch["epochs"] + epoch["epoch"]
                    watch(begun, {**epoch, "epoch": done, "epochs": self.rounds * epoch["epochs"]})

            model = begun.fit(
                X,
                self._examples(model, X),
                start=model,
                checkpoint=checkpoint(number),
                watch=partial(epoch_ended, number, begun),
            )
        assert model is not None
        return model

    def _examples(self, model: Learner | None, X: Any) -> list[Examples]:
        """Return what a round learns from, after a model of the rounds before, if there is one."""
        if self.loss == "likelihood":
            return list(self.releases)
        if model is None:
            return [self.targets(self.taught)]
        return [self.targets(together(self.taught, model.predict_proba(X[self.rows]), share=self.share))]


def _check_settings(rounds: int, share: float, loss: str) -> None:
    checks.integer(rounds=rounds, at_least=1)
    checks.one_of(LOSSES, loss=loss)
    checks.share(share=share)


@dataclass(frozen=True, eq=False, repr=False)
class Pupil:
    """A student that has yet to learn, the inputs that it reads, and how the models of stages teach it.

    Parameters
    ----------
    learner : what is taught; see `Lesson`, as of `rounds`, `share` and `loss`.
    X : public inputs as it reads them, one row per row of the vault.
    first : the first stage after which it is taught, to make better questions: what it and the stage's model predict together
        is the prior of the next stage. None for none: it is always taught after the last one.
    """

    learner: Learner
    X: Any
    rounds: int = 1
    share: float = TEACHERS_SHARE
    loss: str = "posterior"
    first: int | None = None

    def __post_init__(self) -> None:
        _check_settings(self.rounds, self.share, self.loss)
        if self.first is not None:
            checks.integer(first=self.first, at_least=1)

    def check(self, n_rows: int, n_classes: int, *, stages: int, learns_counts: bool, reports_labels: bool) -> None:
        """Raise where stages could not teach it, before anything is asked."""
        if len(self.X) != n_rows:
            raise InvalidArgument(f"the pupil's X must have one row per label ({n_rows}), got {len(self.X)}.")
        if self.first is not None and self.first >= stages:
            raise InvalidArgument(
                f"the pupil's first stage must come before the last, whose question it helps to ask; got {self.first} of "
                f"{stages}."
            )
        self.learner.check(self.X, n_classes)
        if getattr(self.learner, "needs_finite", False):
            checks.finite_rows(self.X, np.arange(n_rows))
        if self.loss == "likelihood" and learns_counts:
            raise InvalidArgument(NO_LIKELIHOOD)
        if self.loss == "likelihood" and self.learner.learns_from == "labels" and not reports_labels:
            raise InvalidArgument(
                "the pupil needs one noisy label per row, and groups of labels are reported: train it on the likelihood."
            )
        if self.loss == "posterior" and not getattr(self.learner, "takes_beliefs", True):
            raise InvalidArgument("the pupil cannot weigh what is believed of a row, as a posterior needs.")

    def taught(
        self,
        stages: MultiStage,
        X: Any,
        *,
        number: float,
        checkpoint: Callable[[int], Path | None],
        watch: Callable[[dict[str, Any]], None] | None,
    ) -> Learner:
        """Return the student after a lesson by the last model of stages, which reads X, on all releases so far.

        Parameters
        ----------
        number : what records of this lesson are told under, where those of stages have theirs.

        Privacy
        -------
        Free: only releases and public inputs are read.
        """
        lesson = Lesson.of(stages, X, rounds=self.rounds, share=self.share, loss=self.loss)
        told = {"stage": number, "rows": len(lesson.rows), "rounds": self.rounds, "loss": self.loss}
        if watch is not None:
            watch({"kind": "student", **told, "private": lesson.private})

        def epoch_ended(student: Learner, epoch: Epoch) -> None:
            assert watch is not None
            grade = records.grade(student, self.X, stages.hold_out_)
            watch({"kind": "epoch", "stage": number, **epoch, "hold_out": grade})

        return lesson.teach(
            self.learner,
            self.X,
            start=stages.student_,
            checkpoint=checkpoint,
            watch=epoch_ended if watch is not None else None,
        )


def spoken_of(releases: Sequence[Release | HistogramRelease]) -> NDArray[np.int64]:
    return np.unique(np.concatenate([each.rows for each in releases]))


def together(teacher: Probabilities, student: Probabilities, *, share: float = TEACHERS_SHARE) -> Probabilities:
    """Return a geometric mean of probabilities, of which the teacher has a share, normalised: likely is what both find likely.

    >>> together(np.array([[0.5, 0.5]]), np.array([[0.5, 0.5]])).tolist()
    [[0.5, 0.5]]
    """
    logs = np.log(np.maximum(student, LEAST), dtype=np.float64)
    logs += share * (np.log(np.maximum(teacher, LEAST), dtype=np.float64) - logs)
    joint = np.exp(logs - logs.max(axis=1, keepdims=True))
    return joint / joint.sum(axis=1, keepdims=True)
