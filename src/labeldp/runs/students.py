"""The [student] of a recipe: a network on the inputs, taught after the last stage, whose model it predicts together with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets import Dataset
from labeldp.learning import Learner, MultiStage, Pupil, together
from labeldp.learning.records import Record, Watch
from labeldp.learning.student import TEACHERS_SHARE
from labeldp.runs import learners
from labeldp.runs.folder import RunFolder
from labeldp.runs.grades import tested
from labeldp.runs.learners import OneProcess
from labeldp.runs.recipe import Recipe

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Probabilities = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class FinalModel:
    """What a run ends with: the last stage's model and what it reads, and the student that it taught, if there is one."""

    teacher: Learner
    read: Dataset
    student: Learner | None = None
    inputs: Dataset | None = None
    share: float = TEACHERS_SHARE

    def predict_proba(self, rows: NDArray[np.int64]) -> Probabilities:
        """Return the probabilities of rows of the vault."""
        taught = self.teacher.predict_proba(self.read.X[rows])
        if self.student is None or self.inputs is None:
            return taught
        return together(taught, self.student.predict_proba(self.inputs.X[rows]), share=self.share)

    def test(self) -> Record:
        """Return how student and teacher do on public test rows, together."""
        assert self.student is not None and self.inputs is not None
        taught = self.teacher.predict_proba(self.read.X_test)
        learned = self.student.predict_proba(self.inputs.X_test)
        return tested(self.read, together(taught, learned, share=self.share))

    def save(self, folder: RunFolder) -> None:
        if self.student is not None:
            self.student.save(folder.student_file)
        self.teacher.save(folder.model_file)  # last: with it the run can predict


def of(recipe: Recipe, data: Dataset, fabric: Fabric | OneProcess) -> Pupil | None:
    """Return a recipe's student, which reads data as it is, or raise where it cannot."""
    if recipe.student is None:
        return None
    with learners.needs_torch(recipe.student.model):
        learner = learners.student_of(recipe, data, fabric)
    learner.check(data.X, len(data.classes))
    how = recipe.student
    return Pupil(learner, data.X, how.rounds, how.teachers_share, how.loss or "posterior", how.first)


def final(stages: MultiStage, read: Dataset, inputs: Dataset, watch: Watch | None) -> FinalModel:
    """Return the last stage's model, and with it the student, if there is one, which is tested."""
    if stages.pupil is None:
        return FinalModel(stages.model_, read)
    model = FinalModel(stages.model_, read, stages.student_, inputs, stages.pupil.share)
    if read.public_test is not None and watch is not None:
        watch({"kind": "test", "stage": stages.trainings + 1, **model.test()})
    return model
