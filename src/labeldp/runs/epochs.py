"""A learner whose model is tested at each epoch's end, for learning curves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from labeldp.learning import Learner
from labeldp.learning.learner import Epoch, Examples, Watch

T = TypeVar("T")


class TestedEachEpoch:
    """A learner that learns just as it would, and tells under `test` of each epoch's record how its model does then.

    Parameters
    ----------
    test : from a model to its figures on public test data.
    """

    __test__ = False  # not a test of pytest's

    def __init__(self, learner: Learner, test: Callable[[Learner], dict[str, Any]]) -> None:
        self.learner, self.test = learner, test

    @property
    def learns_from(self) -> Literal["labels", "likelihood"]:
        return self.learner.learns_from

    @property
    def takes_beliefs(self) -> bool:
        return getattr(self.learner, "takes_beliefs", True)

    def check(self, X: Any, n_classes: int) -> None:
        self.learner.check(X, n_classes)

    def fit(
        self,
        X: Any,
        releases: Examples | Sequence[Examples],
        *,
        start: Any = None,
        checkpoint: Path | None = None,
        watch: Watch | None = None,
    ) -> Self:
        def tell(epoch: Epoch) -> None:
            assert watch is not None
            watch({**epoch, "test": {key: figure for key, figure in self.test(self).items() if key != "confusion"}})

        begun = start.learner if isinstance(start, TestedEachEpoch) else start
        self.learner.fit(X, releases, start=begun, checkpoint=checkpoint, watch=None if watch is None else tell)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        return self.learner.predict_proba(X)

    def save(self, path: str | os.PathLike[str]) -> None:
        self.learner.save(path)

    def load(self, path: str | os.PathLike[str]) -> Self:
        self.learner.load(path)
        return self

    def ask_once(self, ask: Callable[[], T]) -> T:
        return self.learner.ask_once(ask)
