"""`init` of a recipe: a network starts from weights that were learned in the open, from another dataset's public labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeldp import datasets
from labeldp.errors import InvalidArgument
from labeldp.features.cache import content_digest
from labeldp.learning.records import Record, Watch, nobody
from labeldp.runs import learners
from labeldp.runs.inputs import cache_folder
from labeldp.runs.recipe import Recipe

if TYPE_CHECKING:
    from labeldp.learning import Learner
    from labeldp.torch import TorchLearner

SEED = 0
"""Of the initialisation, whatever a run's own: it is learned once, and all draws start from it."""
MOST_SHARED = 0.01
"""The share of a run's rows, or of the initialisation's, that may be rows of both (some inputs are blank, or common); with
more, it is the same dataset. The labels of rows of both are not read.
"""
READ = "the training labels of "
WORDS = (
    "they are public, were read as they are to learn the weights that training starts from, and nothing protects them. The "
    "guarantee is for the labels of the run's own data"
)


def begin(
    nets: Sequence[Learner],
    recipe: Recipe,
    data: datasets.Dataset,
    *,
    data_dir: Path | None,
    cache: Path | None,
    watch: Watch | None,
    once: Callable[[Callable[[], str]], str],
) -> None:
    """Give networks the weights of the same one trained on a recipe's `init`, all but the last layer: that is for classes.

    Parameters
    ----------
    nets : the learners of a recipe's stages.
    data : what they will learn from.
    cache : where the weights are kept; see `labeldp.runs.inputs.cache_folder`.

    Privacy
    -------
    The labels of `init` are read without noise; they must be public. Those of `data` have no part in this, and `init` must be
    another dataset, also by its content: rows are compared byte by byte, whatever their order, and those of both are left out
    of `init`. Near duplicates are not known.
    """
    if recipe.init is None:
        return
    public = datasets.load(recipe.init, data_dir=data_dir)
    rows = _of_init_alone(public, data, recipe)
    learner: TorchLearner = learners.learners_of(_in_the_open(recipe), public, None)[0]  # type: ignore[assignment]
    _without_last_layer(learner.module, learner.module.state_dict(), recipe.model)  # raises before anything is learned
    file = once(lambda: str(_learned(learner, public, rows, recipe, cache_folder(cache), watch or nobody)))
    trained = learner.load(file).module_
    assert trained is not None
    weights = _without_last_layer(trained, trained.state_dict(), recipe.model)
    for net in nets:
        net.module.load_state_dict(weights, strict=False)  # type: ignore[attr-defined]  # recipes check that it is torch's


def read_by(recipe: Recipe) -> list[str]:
    """Name the labels that a recipe reads without noise to begin with."""
    return [] if recipe.init is None else [f"{READ}{recipe.init}"]


def _in_the_open(recipe: Recipe) -> Recipe:
    """Return how the initialisation is trained: as stage 1 is, but for mixup, since its labels have no noise."""
    assert recipe.init is not None
    training = replace(recipe.training, loss="noisy-label", mixup=0.0)
    return replace(recipe, data=recipe.init, init=None, rows=None, student=None, seed=SEED, training=training)


def _of_init_alone(public: datasets.Dataset, data: datasets.Dataset, recipe: Recipe) -> NDArray[np.int64]:
    """Return the rows of `init` that are none of a run's, or raise where there are too many of both."""
    if public.inputs != data.inputs:
        raise InvalidArgument(
            f"init must be a dataset with the inputs of {recipe.data} ({data.inputs}); {recipe.init} has {public.inputs}."
        )
    known = list(_row_digests(public.X))
    public_rows = set(known)
    every = {kind: list(_row_digests(rows)) for kind, rows in (("training", data.X), ("test", data.X_test))}
    for kind, rows in (*every.items(), ("training", every["training"][: recipe.rows])):
        shared = sum(digest in public_rows for digest in rows)
        if shared > MOST_SHARED * min(len(rows), public.n_rows):
            raise InvalidArgument(
                f"init must be another dataset, and the files of {recipe.init} hold {shared:,} of {len(rows):,} {kind} rows of "
                f"{recipe.data}: it would read the very labels that are to be protected, or that models are tested on."
            )
    ours = {*every["training"], *every["test"]}
    return np.flatnonzero([digest not in ours for digest in known])


def _row_digests(inputs: NDArray[Any]) -> Iterator[bytes]:
    return (hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).digest() for row in inputs)


def _learned(
    learner: TorchLearner,
    public: datasets.Dataset,
    rows: NDArray[np.int64],
    recipe: Recipe,
    folder: Path,
    tell: Watch,
) -> Path:
    """Return the file of weights, which are learned if it is missing; a training that was stopped is gone on with."""
    how = {name: value for name, value in asdict(_in_the_open(recipe).training).items() if name != "warm_start"}
    left_out = [content_digest(rows)] if len(rows) < public.n_rows else []
    about = json.dumps([recipe.init, recipe.model, how, SEED, content_digest(public.X), *left_out], sort_keys=True)
    file = folder / f"initial-{hashlib.sha256(about.encode()).hexdigest()[:32]}.safetensors"
    said: Record = {"kind": "initial", "data": recipe.init, "rows": len(rows), "computed": not file.exists()}
    tell(said | {"folder": str(folder), "epoch": 0, "epochs": learner.epochs})
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = file.with_suffix(".checkpoint")
        learner.fit(
            public.X,
            public.unprotected(rows),
            checkpoint=checkpoint,
            watch=lambda epoch: tell(said | {key: epoch[key] for key in ("epoch", "epochs")}),
        )
        learner.save(file)
        checkpoint.unlink(missing_ok=True)
    return file


def _without_last_layer(module: Any, weights: dict[str, Any], model: str) -> dict[str, Any]:
    """Return weights without those of the last linear layer: another dataset has other classes, even if as many."""
    from torch import nn

    if hasattr(module, "see"):
        raise InvalidArgument(
            f"init is not for {model}: it takes in its own data's inputs before training, which would undo what was learned."
        )
    linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    kept = {name: value for name, value in weights.items() if not linear or not name.startswith(f"{linear[-1]}.")}
    if not linear or not kept:
        raise InvalidArgument(f"init is for networks of several layers that end in a linear one, and {model} is none.")
    return kept
