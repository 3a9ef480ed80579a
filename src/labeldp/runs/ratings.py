"""The [sums] of a recipe: ratings learned from a curator's sums, where other recipes release labels in stages."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument
from labeldp.features.pairs import pair_coordinates
from labeldp.learning import Learner
from labeldp.learning.ratings import ROUNDS, RatingSums
from labeldp.learning.records import Record, nobody
from labeldp.mechanisms import LocalMechanism, UnbiasedResponse
from labeldp.runs import learners
from labeldp.runs.learners import OneProcess
from labeldp.runs.recipe import Recipe
from labeldp.vault import LabelHolder, SumRelease

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Rows = NDArray[np.int64]

MODEL = "rating-sums"


class SumStages:
    """Asks for sums and fits a model to them, with the face of a `MultiStage` that has no stages.

    Privacy
    -------
    epsilon-label-DP per rating, for a curator: see `RatingSums`.
    """

    hold_out_ = None
    counts_ = None
    clusters = None
    releases_ = ()
    trainings = len(ROUNDS)

    def __init__(self, recipe: Recipe, data: Dataset, fabric: Fabric | OneProcess | None) -> None:
        assert recipe.sums is not None
        if data.inputs["kind"] != "ids" or recipe.model != MODEL:
            raise InvalidArgument(
                f"[sums] are of ratings by users of items, for the model {MODEL!r}; got {recipe.model!r} on {recipe.data}."
            )
        self.fabric = fabric or OneProcess()
        self.learner: list[Any] = list(learners.learners_of(recipe, data, fabric))  # torch's, which is imported late
        self.share = recipe.sums.share
        self.sizes = tuple(data.inputs["sizes"])
        self.model_: Learner

    def check(self, X: Any, labelled: NDArray[np.bool_], n_classes: int, epsilon: Any, *, rows: Any = None) -> Rows:
        """Raise whatever can be known to stop `fit`, with public things alone, and return the rows that it would use."""
        self.learner[0].check(X, n_classes)
        RatingSums((np.empty((0, 0)),) * 2, self.share).epsilons(epsilon)
        return checks.rows(labelled if rows is None else rows, len(labelled))

    def fit(
        self,
        X: Any,
        vault: LabelHolder,
        epsilon: Any,
        *,
        rows: Any = None,
        name: str | None = None,
        folder: Path | None = None,
        watch: Callable[[Record], None] | None = None,
        test: Callable[[Learner], Record] | None = None,
    ) -> SumStages:
        """Ask on the first process alone, fit, and tell; see `MultiStage.fit`."""
        began, tell = time.perf_counter(), watch or nobody

        def answered(stage: str, release: SumRelease) -> None:
            tell({"kind": "answer", "stage": stage, "entry": release.receipt.ledger["entry"]})

        def asked() -> RatingSums:
            sums = RatingSums(pair_coordinates(X, self.sizes, self.learner[0].module.n_coordinates), self.share)
            return sums.fit(X, vault, epsilon, rows=rows, name=name, folder=folder, answered=answered)

        sums = learners.once(self.fabric, asked)
        seconds = (time.perf_counter() - began) / len(sums.sums_)
        for number, release in enumerate(sums.sums_, start=1):
            tell(_told(number, release) | {"seconds": seconds})
        model = self.learner[0]
        model.module.take(sums.numbers_, sums.coordinates, low=sums.sums_[0].low)
        model.module_ = model.module.eval()
        self.model_ = model
        if test is not None:
            tell({"kind": "test", "stage": self.trainings, **test(model)})
        return self


def mechanism_of(recipe: Recipe, classes: tuple[Any, ...]) -> Callable[[Any], LocalMechanism]:
    """Return a recipe's mechanism, from an epsilon; UnbiasedResponse also wants the grid that the classes are."""
    if recipe.mechanism is not UnbiasedResponse:
        return recipe.mechanism
    if not all(isinstance(value, int) for value in classes):
        raise InvalidArgument(
            f"UnbiasedResponse is for labels that are numbers, such as ratings; {recipe.data} has none."
        )
    return partial(UnbiasedResponse, low=min(classes), high=max(classes))


def _told(number: int, release: SumRelease) -> Record:
    return {
        "kind": "sums",
        "stage": number,
        "rows": len(release.rows),
        "pieces": len(release.totals),
        "charged": release.receipt.labels_charged,
        "epsilon": release.receipt.epsilon,
        "private": release.private,
    }
