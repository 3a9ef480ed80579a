"""What a learner is: something that is fitted to releases, never to labels, and then gives probabilities."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.vault import HistogramRelease, Release

T = TypeVar("T")
Epoch = dict[str, Any]
Watch = Callable[[Epoch], None]
"""Called at each epoch's end with public figures: epoch, epochs, loss, learning_rate, seconds, rows; of nets also precision."""
PRECISIONS = ("float32", "bfloat16")
"""What networks can be trained in, where the processor has instructions for it; see `TorchLearner`."""


@dataclass(frozen=True, eq=False)
class Filtered:
    """A release from which rows were dropped by looking at their reports.

    The remaining reports no longer follow the release's law, so that their likelihood would be biased: only learners from
    noisy labels take them.
    """

    release: Release
    kept: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.kept.shape != (len(self.release),) or self.kept.dtype != np.bool_:
            raise InvalidArgument(f"kept must be a mask over the {len(self.release)} reports of the release.")


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs:
    """What is believed of the labels of rows, made from releases alone: soft targets that any learner takes.

    Attributes
    ----------
    rows : (n,) the vault's rows that are spoken of, each once, in any order.
    shares : (n, K) probabilities of each row's label.
    releases : the release or releases that this was made from, which speak of all these rows.
    weights : (n,) how much a row counts beside others; 1 is a label that is known.

    Privacy
    -------
    Nothing can check that no label had a part in `shares`: naming releases is the caller's statement that none had.
    """

    rows: NDArray[np.int64]
    shares: NDArray[np.floating[Any]]
    releases: Release | HistogramRelease | Sequence[Release | HistogramRelease]
    weights: NDArray[np.floating[Any]] | None = None

    def __post_init__(self) -> None:
        given = list(self.releases) if isinstance(self.releases, Sequence) else [self.releases]
        if not given or not all(isinstance(each, Release | HistogramRelease) for each in given):
            raise InvalidArgument("releases must be what the beliefs were made from: one or more releases of a vault.")
        object.__setattr__(self, "releases", tuple(given))
        if self.rows.ndim != 1 or self.rows.dtype.kind not in "iu" or self.rows.min(initial=0) < 0:
            raise InvalidArgument("rows must be whole numbers from 0, as they are in the vault.")
        if len(np.unique(self.rows)) != len(self.rows):
            raise InvalidArgument("rows must name each row once: join what is believed of a row before.")
        if not np.isin(self.rows, np.concatenate([each.rows for each in given])).all():
            raise InvalidArgument("rows must all be spoken of by the releases that the beliefs were made from.")
        checks.probabilities(self.shares, len(self.rows), len(self.classes))
        if self.weights is not None and (
            self.weights.shape != self.rows.shape
            or self.weights.dtype.kind not in "fiu"
            or not np.isfinite(self.weights).all()
            or self.weights.min(initial=0) < 0
        ):
            raise InvalidArgument(f"weights must be {len(self.rows)} finite numbers that are not negative.")

    @property
    def classes(self) -> tuple[Any, ...]:
        return self.releases[0].classes  # type: ignore[index,union-attr]

    @property
    def private(self) -> bool:
        return all(each.private for each in self.releases)  # type: ignore[union-attr]

    @property
    def weighted(self) -> NDArray[np.floating[Any]]:
        return self.shares if self.weights is None else self.shares * self.weights[:, None]

    def __repr__(self) -> str:
        stamp = "" if self.private else ", NOT PRIVATE"
        return f"<Beliefs about {len(self.rows)} rows, {len(self.classes)} classes{stamp}>"


Examples = Release | HistogramRelease | Filtered | Beliefs


@runtime_checkable
class Learner(Protocol):
    """Learns from releases. X is public and has one row per row of the vault; a release knows which rows it speaks of."""

    @property
    def learns_from(self) -> Literal["labels", "likelihood"]:
        """What it reads of a release: one noisy label per row, or the likelihood of its report, which any release has."""
        ...

    def check(self, X: Any, n_classes: int) -> None:
        """Raise where this learner could not learn from X, before anything is spent on it."""
        ...

    def fit(
        self,
        X: Any,
        releases: Examples | Sequence[Examples],
        *,
        start: Any = None,
        checkpoint: Path | None = None,
        watch: Watch | None = None,
    ) -> Self:
        """Learn from one or more releases.

        Parameters
        ----------
        start : a fitted learner of the same kind, whose model is the point to start from.
        checkpoint : a file to write at epoch ends, and to go on from if it is there.
        watch : called at each epoch's end; `predict_proba` works there.
        """
        ...

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return one row of K probabilities per row of X."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model."""
        ...

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Read what a learner of the same description saved."""
        ...

    def ask_once(self, ask: Callable[[], T]) -> T:
        """Ask on the first process alone, and hand the answer to all. With one process: ask."""
        ...
