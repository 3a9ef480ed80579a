"""A finished run as an object."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.learning import Learner, together
from labeldp.runs import inputs, learners, rows, specs
from labeldp.runs.families import family_of
from labeldp.runs.folder import RunFolder
from labeldp.vault.labels import Classes

ROWS_AT_ONCE = 4_096
"""Rows whose features are held at once."""


class Run:
    """A run's model, with what it was trained from. Made by `labeldp.load`."""

    def __init__(self, folder: RunFolder) -> None:
        facts = folder.facts()
        if not folder.model_file.exists():
            raise InvalidArgument(
                f"{folder.path} has no model yet. Go on with it: "
                f"labeldp train --resume --out {shlex.quote(str(folder.path))}"
            )
        self.folder = folder
        self.recipe = folder.recipe()
        self.classes: tuple[Any, ...] = tuple(facts["classes"])
        self.inputs: dict[str, Any] = facts["inputs"]
        reads = facts["reads"]
        self._extractor = None if reads is None else inputs.kept(folder.path, reads, self.inputs)
        self._read_inputs: dict[str, Any] = self.inputs if reads is None else reads["inputs"]
        if self._extractor is None:
            self.inputs = self._read_inputs  # features that a user computes
        self.data_dir = None if facts["data_dir"] is None else Path(facts["data_dir"])
        self._learner = learners.loaded(self.recipe.model, self._read_inputs, len(self.classes), folder.model_file)
        how = self.recipe.student
        self._student: Learner | None = None
        if how is not None:
            file = folder.student_file
            self._student = learners.loaded(
                how.model, self.inputs, len(self.classes), file, mirror=how.flip, shift=how.shift or 0
            )

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return one row of K probabilities per row of X.

        Images are bytes (n, C, H, W), also where the model reads features of them; of a run on arrays of one's own X are such
        features. Of a table of one's own X is a DataFrame with its columns; see `labeldp.datasets.table.read_features`.
        """
        rows.check_images(X, self.inputs)
        taught = self._taught(X)
        how = self.recipe.student
        if how is None or self._student is None:
            return taught
        return together(taught, self._student.predict_proba(X), share=how.teachers_share)

    def _taught(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the probabilities of the last stage's model."""
        if self._extractor is None or not len(X):
            return self._predicted(
                X if self._extractor is None else np.empty((0, self._read_inputs["size"]), np.float32)
            )
        parts = (X[at : at + ROWS_AT_ONCE] for at in range(0, len(X), ROWS_AT_ONCE))
        return np.concatenate([self._predicted(self._extractor.transform(part)) for part in parts])

    def _predicted(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the probabilities of rows as the model reads them."""
        if family_of(self.recipe.model) == "sklearn":
            return self._learner.predict_proba(rows.readable(X, self._read_inputs))
        if self._read_inputs["kind"] == "vector" and isinstance(X, np.ndarray):
            X = inputs.as_floats(X)
        if len(X):
            self._learner.check_reads(X, len(self.classes))  # type: ignore[attr-defined]  # torch's
        return self._learner.predict_proba(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the name of the most likely class per row of X."""
        return Classes(self.classes).decode(self.predict_proba(X).argmax(axis=1))

    @property
    def reads_arrays(self) -> bool:
        """Whether its model reads features that a user computes."""
        return self.recipe.features is not None and specs.parse(self.recipe.features).kind == "arrays"

    @property
    def certificate(self) -> dict[str, Any]:
        return self.folder.certificate()

    def __repr__(self) -> str:
        return f"<Run {self.folder.path}: {self.recipe.model} on {self.recipe.data}, epsilon {self.recipe.epsilon}>"


def load(path: str | os.PathLike[str]) -> Run:
    """Return the finished run in a folder: load("runs/x").predict_proba(X)."""
    return Run(RunFolder(path))
