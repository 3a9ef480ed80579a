"""From a recipe to its learners. Torch and scikit-learn are imported only where a model is theirs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument, MissingExtra
from labeldp.learning import Learner
from labeldp.runs.families import SKLEARN_MODELS, family_of, unknown_model
from labeldp.runs.plans import Student, Training
from labeldp.runs.recipe import Recipe
from labeldp.vault import HistogramRelease, Release

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")
Inputs = dict[str, Any]


class OneProcess:
    """The only process there is, where no Fabric is needed to say so."""

    is_global_zero = True
    world_size = 1


def processes(model: str, fabric: Fabric | None) -> Fabric | OneProcess:
    """Return the processes that a model is trained in."""
    if family_of(model) == "sklearn":
        return OneProcess()
    with needs_torch(model):
        from lightning_fabric import Fabric

    return fabric or Fabric(accelerator="cpu", devices=1)


def once(fabric: Fabric | OneProcess, ask: Callable[[], T]) -> T:
    """Ask on the first process alone, and hand the answer to all."""
    if isinstance(fabric, OneProcess):
        return ask()
    from labeldp.torch.processes import on_first_process

    return on_first_process(fabric, ask)


def threads(model: str) -> int | None:
    """Return how many threads a model is trained by; scikit-learn does not say."""
    if family_of(model) == "sklearn":
        return None
    import torch

    return torch.get_num_threads()


def check_known(model: str) -> None:
    """Raise unless there is such a model, and what it needs is installed."""
    if family_of(model) == "sklearn":
        with needs_sklearn(model):
            import labeldp.sklearn  # noqa: F401
        return
    close = difflib.get_close_matches(model, SKLEARN_MODELS, n=1, cutoff=0.7)
    try:
        from labeldp.torch import models
    except ImportError:
        if close:
            raise InvalidArgument(unknown_model(model, SKLEARN_MODELS)) from None
        raise _torch_is_missing(model) from None
    if model not in models.names():
        raise InvalidArgument(unknown_model(model, (*models.names(), *SKLEARN_MODELS)))


def learners_of(recipe: Recipe, data: Dataset, fabric: Fabric | OneProcess | None) -> list[Learner]:
    """Return one learner per stage, or one that learns from counts alone."""
    make = _estimator if family_of(recipe.model) == "sklearn" else _net
    return [make(recipe, data, stage, fabric) for stage in range(recipe.trainings)]


def readable(model: str, data: Dataset) -> Dataset:
    """Return public features as a model's learner takes them."""
    if family_of(model) == "torch":
        return data
    from labeldp.sklearn import named

    return data.only_public(X=named.readable(data.X, data.inputs), X_test=named.readable(data.X_test, data.inputs))


def check_readable(recipe: Recipe, releases: list[Release | HistogramRelease]) -> None:
    """Raise where a recipe's loss cannot read releases that are there."""
    if family_of(recipe.model) == "torch":
        from labeldp.torch.losses import TrainingSet

        TrainingSet.of(releases, recipe.training.loss)


def loaded(model: str, inputs: Inputs, n_classes: int, file: Path, *, mirror: bool = False, shift: int = 0) -> Learner:
    """Return a fitted model from its file."""
    if family_of(model) == "sklearn":
        with needs_sklearn(model):
            from labeldp.sklearn import SklearnLearner, named
        return SklearnLearner(named.build(model, inputs, n_classes)).load(file)
    with needs_torch(model):
        from labeldp.torch import TorchLearner, models
    return TorchLearner(models.build(model, inputs, n_classes), mirror=mirror, shift=shift).load(file)


def _estimator(recipe: Recipe, data: Dataset, stage: int, fabric: Any) -> Learner:  # noqa: ARG001
    from labeldp.sklearn import SklearnLearner, named

    seed, how = recipe.seed + stage, recipe.training
    model = named.build(recipe.model, data.inputs, len(data.classes), seed=seed)
    return SklearnLearner(model, rounds=how.rounds, folds=how.folds, seed=seed)


def _net(recipe: Recipe, data: Dataset, stage: int, fabric: Any) -> Learner:
    how = recipe.training
    if data.inputs["kind"] in ("frame", "table"):
        raise InvalidArgument(f"{recipe.model} does not read tables: choose one of {', '.join(SKLEARN_MODELS)}.")
    own = {"loss": how.loss, "optimizer": how.optimizer, "mixup": recipe.mixup(stage), "averaging": how.averaging}
    return _network(recipe.model, how, recipe, data, fabric, seed=recipe.seed + stage, **own)


def student_of(recipe: Recipe, data: Dataset, fabric: Fabric | OneProcess | None) -> Learner:
    """Return the network of a recipe's [student], which reads the data as it is."""
    how = recipe.student
    assert how is not None
    own = {"loss": "likelihood", "mixup": how.mixup, "averaging": how.averaging or None}
    own |= {"mirror": how.flip, "shift": how.shift or 0, "smoothing": how.smoothing or 0.0}
    fabric = None if isinstance(fabric, OneProcess) else fabric
    return _network(how.model, how, recipe, data, fabric, seed=recipe.seed, **own)


def _network(
    model: str, how: Training | Student, recipe: Recipe, data: Dataset, fabric: Any, *, seed: int, **own: Any
) -> Learner:
    """Return a learner of a network by name, with the settings that stages and students have alike, and its own."""
    from labeldp.torch import Augmentation, TorchLearner, models

    return TorchLearner(
        models.build(model, data.inputs, len(data.classes), seed=recipe.seed),
        epochs=how.epochs,
        batch_size=how.batch_size,
        learning_rate=how.learning_rate,
        momentum=how.momentum,
        weight_decay=how.weight_decay,
        schedule=how.schedule,
        augmentation=Augmentation(crop=how.crop, flip=how.flip, cutout=how.cutout),
        precision=how.precision or "float32",
        seed=seed,
        fabric=fabric,
        **own,
    )


def _torch_is_missing(model: str) -> MissingExtra:
    without = ", ".join(SKLEARN_MODELS)
    return MissingExtra(f"{model} needs torch: pip install 'labeldp[torch]'. Models that do without: {without}.")


@contextmanager
def needs_torch(model: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise _torch_is_missing(model) from None


@contextmanager
def needs_sklearn(model: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise MissingExtra(f"{model} needs scikit-learn and skops: pip install 'labeldp[sklearn]'.") from None
