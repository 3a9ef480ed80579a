"""The tables of a recipe: what is asked of whom, and how models learn from the answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument
from labeldp.learning.cluster_prior import SHARES
from labeldp.learning.learner import PRECISIONS
from labeldp.learning.student import LOSSES, TEACHERS_SHARE
from labeldp.runs import specs
from labeldp.runs.families import family_of


@dataclass(frozen=True)
class Table:
    """What the columns of a file of one's own are. All but `public_test` defines what is asked, and of whom."""

    label: str
    classes: int | tuple[str, ...]
    id: str | None = None
    drop: tuple[str, ...] = ()
    missing: str | None = None
    public_test: str | None = None

    @property
    def n_classes(self) -> int:
        return self.classes if isinstance(self.classes, int) else len(self.classes)


@dataclass(frozen=True)
class Prior:
    """Counts of the classes in public clusters, asked before all else, for a curator. All of it defines what is asked.

    Attributes
    ----------
    epsilon : its part of the run's epsilon; None for all of it.
    count : how many clusters; None for the public rule, `labeldp.priors.cluster_count`.
    features : what is clustered; None for what the model reads, or patches of images.
    components : how many principal components of it.
    shares : how the prior is made of counts, "smoothed" or "normalised", the paper's; None for the first.
    """

    epsilon: str | None = None
    count: int | None = None
    features: str | None = None
    components: int = 64
    shares: str | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", str(Epsilon.of(self.epsilon, name="prior.epsilon")))
        if self.count is not None:
            checks.integer(**{"prior.count": self.count}, at_least=1)
        checks.integer(**{"prior.components": self.components}, at_least=1)
        if self.shares is not None:
            checks.one_of(SHARES, **{"prior.shares": self.shares})
        if self.features is not None:
            specs.parse(self.features, name="prior.features")


@dataclass(frozen=True)
class Sums:
    """Sums of ratings over public pieces of items, then of users, for a curator. They take all of epsilon.

    Attributes
    ----------
    share : of epsilon that the items' sums cost; the users' cost the rest.
    """

    share: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidArgument(f"sums.share must lie between 0 and 1, got {self.share}.")


@dataclass(frozen=True)
class ReleasePlan:
    """What defines the releases. Another plan is another query, and is paid for.

    The recipe settles what is None: 2 stages, or 1 where there are two classes, for which no prior makes a better question, or
    where there is a [prior] to begin with, or none where that takes all of epsilon; and a hold-out of a fiftieth, or of a
    fifth of a file of one's own, which has no public test rows.
    """

    mechanism: str = "GroupedResponse"
    stages: int = None  # type: ignore[assignment]  # until a recipe settles it
    split: tuple[float, ...] | None = None
    temperature: float = 1.0
    hold_out: float = None  # type: ignore[assignment]

    def settled(self, *, stages: int, own_file: bool) -> ReleasePlan:
        stages = stages if self.stages is None else self.stages
        hold_out = (0.2 if own_file else 0.02) if self.hold_out is None else self.hold_out
        return replace(self, stages=stages, hold_out=hold_out)


@dataclass(frozen=True)
class Training:
    """How models are trained on what was released. Changing it is free: see `train_again`.

    `rounds` and `folds` are of scikit-learn's models, `warm_start`, `bag_rounds` and `learn_counts` are of all, the others are
    of torch's. The recipe settles `bag_rounds`, which are of counts of clusters: 3 where they are all there is to learn from,
    else 0. With `learn_counts = false` counts are a prior and nothing else; None is true.
    `precision` is what nets are trained in, "float32" or "bfloat16" where the processor is quicker at it; None for the first.
    """

    loss: str = "likelihood"
    epochs: int = 15
    batch_size: int = 256
    learning_rate: float = 0.1
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "linear"
    mixup: float | tuple[float, ...] = 0.0
    averaging: float | None = None
    warm_start: bool = True
    filter: str | None = None
    crop: int = 0
    flip: bool = False
    cutout: int = 0
    rounds: int = 5
    folds: int = 3
    bag_rounds: int | None = None
    learn_counts: bool | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        _check_precision(self.precision, "training")


@dataclass(frozen=True)
class Student:
    """A network on the inputs themselves, taught after the last stage; its model and this one predict together.

    With `first`, it is taught after that stage and each later one, and both are the prior of the next: it helps to ask.
    Changing it is free: what has been asked stays as it is when a run is trained again.

    Attributes
    ----------
    rounds : how often it learns; see `labeldp.learning.Lesson`. Each has `epochs`.
    flip : also predicts the mean over an image and its mirror image.
    shift : also predicts the mean over an image and two that are moved by so many pixels; None for none.
    smoothing : label smoothing, of posteriors; see `labeldp.torch.TorchLearner`. None for none.
    precision : what it is trained in, "float32" or "bfloat16"; None for the first.
    share : the teacher's part in what both say together, after each round and in the end; None for a quarter.
    loss : "posterior", of what teacher and answers say together, or "likelihood", of the answers alone; None for the first.
    """

    model: str
    rounds: int = 1
    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "linear"
    mixup: float = 0.0
    averaging: float = 0.998
    crop: int = 0
    flip: bool = False
    cutout: int = 0
    precision: str | None = None
    share: float | None = None
    loss: str | None = None
    first: int | None = None
    shift: int | None = None
    smoothing: float | None = None

    def __post_init__(self) -> None:
        checks.integer(**{"student.rounds": self.rounds}, at_least=1)
        if family_of(self.model) == "sklearn":
            raise InvalidArgument(f"student.model must be one of torch's networks, got {self.model}.")
        _check_precision(self.precision, "student")
        if self.loss is not None:
            checks.one_of(LOSSES, **{"student.loss": self.loss})
        if self.shift is not None:
            checks.integer(**{"student.shift": self.shift}, at_least=0)
        if self.smoothing is not None:
            checks.share(**{"student.smoothing": self.smoothing}, below_one=True)
            if self.smoothing and self.loss == "likelihood":
                raise InvalidArgument(
                    "student.smoothing is of posteriors, and the likelihood of answers has no targets to smooth: leave out "
                    "student.smoothing, or set student.loss to 'posterior'."
                )
        checks.share(**{"student.share": self.teachers_share}, below_one=False)

    @property
    def teachers_share(self) -> float:
        return TEACHERS_SHARE if self.share is None else self.share


def _check_precision(precision: str | None, table: str) -> None:
    if precision is not None:
        checks.one_of(PRECISIONS, **{f"{table}.precision": precision})
