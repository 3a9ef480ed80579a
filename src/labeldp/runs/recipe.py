"""A recipe: everything that decides a run, as TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.datasets.catalogue import FILES, LOADERS
from labeldp.datasets.surveys import SURVEYS
from labeldp.errors import InvalidArgument
from labeldp.learning.learner import PRECISIONS
from labeldp.learning.student import TEACHERS_SHARE
from labeldp.mechanisms import GroupedResponse, LocalMechanism, RandomizedResponse, RRWithPrior, UnbiasedResponse
from labeldp.runs import specs
from labeldp.runs.families import SKLEARN_MODELS, family_of, means_nothing, unknown_model

MECHANISMS: dict[str, type[LocalMechanism]] = {
    mechanism.__name__: mechanism for mechanism in (RandomizedResponse, RRWithPrior, GroupedResponse, UnbiasedResponse)
}

MOST = 1e300
ON_FEATURES = {"optimizer": "adam", "learning_rate": 2e-3, "weight_decay": 1e-3, "epochs": 8, "batch_size": 512}
"""How torch's models learn from features unless told otherwise: the other defaults are for nets on images."""
HINTS = {
    "label": " Of a table, --label names the column of true labels.",
    "classes": " --classes lists all that a label may be, such as --classes no,yes: they are never learned from the labels.",
    "epsilon": " --epsilon is what each label may spend, such as --epsilon 1.",
    "model": " Of tables, --model is boosting, logistic or forest; with --features it is linear, mlp or logistic.",
}
WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a finite number",
    "bool": "true or false",
    "tuple[float, ...]": "a list of numbers",
    "tuple[str, ...]": "a list of names",
}


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
    """

    epsilon: str | None = None
    count: int | None = None
    features: str | None = None
    components: int = 64

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", str(Epsilon.of(self.epsilon, name="prior.epsilon")))
        if self.count is not None:
            checks.integer(**{"prior.count": self.count}, at_least=1)
        checks.integer(**{"prior.components": self.components}, at_least=1)
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
    `precision` is what nets are trained in, "float32" or "bfloat16"; None for the first.
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
    """A network on the inputs themselves, taught by the model of the last stage; both predict together. Changing it is free.

    Attributes
    ----------
    rounds : how often it learns; see `labeldp.learning.Lesson`. Each has `epochs`.
    flip : also predicts the mean over an image and its mirror image.
    precision : what it is trained in, "float32" or "bfloat16"; None for the first.
    share : the teacher's part in what both say together, after each round and in the end; None for a quarter.
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

    def __post_init__(self) -> None:
        checks.integer(**{"student.rounds": self.rounds}, at_least=1)
        if family_of(self.model) == "sklearn":
            raise InvalidArgument(f"student.model must be one of torch's networks, got {self.model}.")
        _check_precision(self.precision, "student")
        if not 0 <= self.teachers_share <= 1:
            raise InvalidArgument(f"student.share must be between 0 and 1, got {self.share}.")

    @property
    def teachers_share(self) -> float:
        return TEACHERS_SHARE if self.share is None else self.share


@dataclass(frozen=True)
class Recipe:
    """What to train on what, at which epsilon.

    `init` is another dataset, whose labels are public: networks start from weights that were learned from it in the open.

    >>> recipe = Recipe(data="digits", model="tiny-conv", epsilon="2")
    >>> Recipe.parse(recipe.toml()) == recipe
    True
    """

    data: str
    model: str
    epsilon: str
    rows: int | None = None
    seed: int = 0
    about: str | None = None
    features: str | None = None
    table: Table | None = None
    prior: Prior | None = None
    release: ReleasePlan = field(default_factory=ReleasePlan)
    training: Training = field(default_factory=Training)
    student: Student | None = None
    sums: Sums | None = None
    init: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", str(Epsilon.of(self.epsilon)))
        self._check_table()
        plan = self.release.settled(stages=self._usual_stages, own_file=self.table is not None)
        object.__setattr__(self, "release", plan)
        checks.one_of(tuple(MECHANISMS), mechanism=plan.mechanism)
        self._check_features()
        self._check_prior()
        self._check_student()
        self._check_sums()
        self._check_init()
        self._settle_counts()
        self._check_settings(
            item.name for item in fields(Training) if getattr(self.training, item.name) != item.default
        )
        mixup = self.training.mixup
        if isinstance(mixup, tuple) and len(mixup) != self.trainings:
            raise InvalidArgument(f"mixup must be one number, or one per stage ({self.trainings}).")

    def _settle_counts(self) -> None:
        given = self.training.bag_rounds
        if self.prior is None:
            if given:
                raise InvalidArgument(
                    "training.bag_rounds are of counts of clusters: give --prior clusters, or leave them out."
                )
            if self.training.learn_counts is not None:
                raise InvalidArgument(
                    "training.learn_counts is of counts of clusters: give --prior clusters, or leave it out."
                )
            return
        rounds = (3 if self.release.stages == 0 else 0) if given is None else given
        checks.integer(**{"training.bag_rounds": rounds}, at_least=0)
        if self.training.learn_counts is False and (rounds or self.release.stages == 0):
            raise InvalidArgument(
                "training.learn_counts = false is for counts that are the prior of a stage: give [prior] a part of epsilon, "
                "and no training.bag_rounds."
            )
        object.__setattr__(self, "training", replace(self.training, bag_rounds=rounds))

    def _check_table(self) -> None:
        if self.table is not None:
            _check_own_file(self.data)
            if self.model not in SKLEARN_MODELS and self.features is None:
                raise InvalidArgument(f"{unknown_model(self.model, SKLEARN_MODELS)} Other models do not read tables.")
        elif self.data.lower().endswith(FILES):
            raise InvalidArgument(
                f"the file {self.data} needs its label column and its classes: --label and --classes, or [table] in a recipe."
            )

    def _check_features(self) -> None:
        for name, given in (("features", self.features), ("prior.features", _of(self.prior, "features"))):
            spec = None if given is None else specs.parse(given, name=name)
            if spec is not None and self.table is not None and spec.kind != "arrays":
                raise InvalidArgument(
                    f"{name}: {spec.kind} makes features of images, and {self.data} is a table: compute features yourself, "
                    "without labels, and give them as arrays:TRAIN.npy,TEST.npy."
                )
        if self.table is not None and self.prior is not None and self.features is None and self.prior.features is None:
            raise InvalidArgument(
                "[prior] clusters rows of numbers, and a table's columns may be anything: give numbers that were made of them "
                "without labels, prior.features=arrays:TRAIN.npy."
            )

    def _check_prior(self) -> None:
        if self.prior is None:
            return
        stages, part = self.release.stages, Epsilon.of(self.prior.epsilon or self.epsilon)
        if part > Epsilon.of(self.epsilon):
            raise InvalidArgument(
                f"prior.epsilon must be at most the run's epsilon ({self.epsilon}), of which it is a part; got {part}."
            )
        if (stages == 0) != self._prior_takes_all:
            raise InvalidArgument(
                "release.stages must be 0 where [prior] takes all of epsilon, and at least 1 where it takes a part; got "
                f"{stages} stages, and a part of {part} of {self.epsilon}."
            )

    def _check_student(self) -> None:
        own_features = self.features is not None and specs.parse(self.features).kind == "arrays"
        if self.student is not None and (self.table is not None or own_features):
            raise InvalidArgument(
                "[student] reads the inputs of a dataset beside the features that are made of them: it is not for a file or "
                "arrays of one's own."
            )

    def _check_sums(self) -> None:
        if self.sums is not None and (self.prior or self.student or self.release.stages or self.release.hold_out):
            raise InvalidArgument(
                "[sums] take all of epsilon: leave out [prior], [student] and release.stages, and set release.hold_out = 0."
            )

    def _check_init(self) -> None:
        if self.init is None:
            return
        checks.one_of(tuple(LOADERS), init=self.init)
        if self.init == self.data:
            raise InvalidArgument(
                f"init must be another dataset than {self.data}: its labels are read as they are, and nothing protects them."
            )
        if family_of(self.model) == "sklearn" or self.features is not None or self.sums is not None:
            raise InvalidArgument("init is for one of torch's networks that reads the inputs themselves: leave it out.")

    @property
    def _prior_takes_all(self) -> bool:
        return self.prior is not None and self.prior.epsilon in (None, self.epsilon)

    @property
    def _usual_stages(self) -> int:
        if self.prior is not None or self.sums is not None:
            return 0 if self._prior_takes_all or self.sums is not None else 1
        return 1 if self._has_two_classes else 2

    @property
    def trainings(self) -> int:
        """How many models are trained: one per stage, or one on counts alone."""
        return max(self.release.stages, 1)

    @property
    def _has_two_classes(self) -> bool:
        if self.table is not None:
            return self.table.n_classes == 2
        return self.data in SURVEYS and len(SURVEYS[self.data].classes) == 2

    def _check_settings(self, given: Iterable[str]) -> None:
        """Raise where a setting of [training] was given that means nothing to the model."""
        idle = [f"training.{name}" for name in given if means_nothing(self.model, name)]
        if idle:
            known = [item.name for item in fields(Training) if not means_nothing(self.model, item.name)]
            raise InvalidArgument(
                f"{', '.join(idle)} means nothing to {self.model}: leave it out. It knows training.{', '.join(known)}."
            )

    @property
    def mechanism(self) -> type[LocalMechanism]:
        return MECHANISMS[self.release.mechanism]

    def mixup(self, stage: int) -> float:
        given = self.training.mixup
        return given[stage] if isinstance(given, tuple) else given

    @classmethod
    def read(cls, path: Path) -> Recipe:
        return cls.of(read_values(path), source=str(path))

    @classmethod
    def parse(cls, text: str, *, source: str = "the recipe") -> Recipe:
        return cls.of(_parsed(text, source), source=source)

    @classmethod
    def of(cls, values: Mapping[str, Any], *, source: str = "the recipe") -> Recipe:
        """Make a recipe from TOML's values; every unknown key is an error."""
        given = dict(values)
        given["release"] = _filled(ReleasePlan, given.get("release", {}), f"{source}, [release]")
        settings = given.get("training", {})
        if given.get("features") is not None and family_of(str(given.get("model"))) == "torch":
            settings = ON_FEATURES | settings
        given["training"] = _filled(Training, settings, f"{source}, [training]")
        if given.get("table") is not None:
            _check_own_file(given.get("data"))
            given["table"] = _filled(Table, given["table"], f"{source}, [table]")
        if given.get("prior") is not None:
            given["prior"] = _filled(Prior, given["prior"], f"{source}, [prior]")
        if given.get("student") is not None:
            given["student"] = _filled(Student, given["student"], f"{source}, [student]")
        if given.get("sums") is not None:
            given["sums"] = _filled(Sums, given["sums"], f"{source}, [sums]")
        recipe: Recipe = _filled(cls, given, source)
        recipe._check_settings(settings)
        return recipe

    def changed(self, changes: Mapping[str, Any]) -> Recipe:
        """Return the recipe with other values under dotted keys, such as training.epochs.

        Stages and hold-out stay as they were settled. With a model of the other library goes what [training] says of the old
        one's alone.
        """
        values = self._values(str(changes.get("model", self.model)))
        return Recipe.of(with_keys(values, changes), source="the changed recipe")

    def placed(self) -> Recipe:
        """Return the recipe with absolute paths in its features: a run may be gone on with elsewhere."""
        prior = self.prior
        if prior is not None and prior.features is not None:
            prior = replace(prior, features=specs.placed(prior.features))
        return replace(self, features=self.features and specs.placed(self.features), prior=prior)

    def _values(self, model: str) -> dict[str, Any]:
        """Return the recipe as TOML's values, without the settings that mean nothing to a model."""
        values = _nested(asdict(self))
        values["training"] = {key: each for key, each in values["training"].items() if not means_nothing(model, key)}
        return values

    def toml(self) -> str:
        """Return the whole recipe as TOML."""
        values = self._values(self.model)
        names = ("table", "prior", "sums", "release", "training", "student")
        tables = {name: values.pop(name) for name in names if name in values}
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"

    def other_releases_than(self, other: Recipe) -> list[str]:
        """Return the keys that define the releases and differ: with none, both recipes can be trained on the same ones."""
        keys = [key for key in ("data", "rows", "epsilon") if getattr(self, key) != getattr(other, key)]
        columns = [item.name for item in fields(Table) if item.name != "public_test"]
        keys += [f"table.{key}" for key in columns if _of(self.table, key) != _of(other.table, key)]
        keys += self._other_prior_than(other) + (["sums"] if self.sums != other.sums else [])
        plan = [item.name for item in fields(ReleasePlan)]
        return keys + [f"release.{key}" for key in plan if getattr(self.release, key) != getattr(other.release, key)]

    def _other_prior_than(self, other: Recipe) -> list[str]:
        if self.prior is None or other.prior is None:
            return [] if self.prior is other.prior else ["prior"]
        return [
            f"prior.{item.name}"
            for item in fields(Prior)
            if getattr(self.prior, item.name) != getattr(other.prior, item.name)
        ]


def read_values(path: Path) -> dict[str, Any]:
    """Return the values of a recipe's file, as it says them."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidArgument(f"there is no recipe at {path}.") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not TOML: it is not text in UTF-8.") from None
    return _parsed(text, str(path))


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{source} is not TOML: {error}") from None


def _check_own_file(data: Any) -> None:
    if isinstance(data, str) and not data.lower().endswith(FILES):
        raise InvalidArgument(
            f"label, classes and all else of [table] are for a file of one's own ({' or '.join(FILES)}); {data!r} is "
            "a dataset's name, which needs none of them."
        )


def _check_precision(precision: str | None, table: str) -> None:
    if precision is not None:
        checks.one_of(PRECISIONS, **{f"{table}.precision": precision})


def _of(table: Table | Prior | None, key: str) -> Any:
    return None if table is None else getattr(table, key)


def with_keys(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with others put under dotted keys."""
    changed = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for key, value in changes.items():
        table, _, name = key.rpartition(".")
        if table and changed.get(table) is None:
            changed[table] = {}
        place = changed[table] if table else changed
        if not isinstance(place, dict):
            raise InvalidArgument(f"there is no {key} in a recipe: {table} is a value, not a table.")
        place[name] = value
    return changed


def _filled(kind: Any, values: Any, source: str) -> Any:
    """Make a dataclass from TOML's values, checking names and types."""
    known = {item.name: item for item in fields(kind)}
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"{source} must be a table.")
    given = {}
    for name, value in values.items():
        if name not in known:
            raise InvalidArgument(f"{source} knows no {name!r}. It knows: {', '.join(known)}.")
        given[name] = _fitting(f"{source}: {name}", str(known[name].type), value)
    lacking = [name for name, item in known.items() if item.default is item.default_factory and given.get(name) is None]
    if lacking:  # both are MISSING
        raise InvalidArgument(f"{source} must say {', '.join(lacking)}.{HINTS.get(lacking[0], '')}")
    return kind(**given)


def _fitting(name: str, kind: str, value: Any) -> Any:
    """Return a value of the annotated type: whole numbers pass for floats, lists for tuples."""
    if value is None or is_dataclass_value(value):
        return value
    kinds = kind.split(" | ")
    if isinstance(value, (list, tuple)) and "tuple[float, ...]" in kinds:
        return tuple(_fitting(name, "float", item) for item in value)
    if isinstance(value, (list, tuple)) and "tuple[str, ...]" in kinds:
        return tuple(str(item) if type(item) is int else _fitting(name, "str", item) for item in value)
    if isinstance(value, bool):
        if "bool" in kinds:
            return value
    elif isinstance(value, int) and "int" in kinds:
        return value
    elif isinstance(value, (int, float)) and "float" in kinds:
        if abs(value) <= MOST:  # not nan or inf either, which TOML knows and no setting can mean
            return float(value)
    elif isinstance(value, str) and "str" in kinds:
        return value
    elif isinstance(value, (int, float)) and name.endswith("epsilon"):
        return str(value)
    raise InvalidArgument(
        f"{name} must be {' or '.join(WORDS[each] for each in kinds if each != 'None')}, got {value!r}."
    )


def is_dataclass_value(value: Any) -> bool:
    return isinstance(value, (Table, Prior, Sums, ReleasePlan, Training, Student))


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same without what is None: TOML has no such value."""
    return {
        key: _nested(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def _toml(value: Any) -> str:
    """Write a text, number, truth value or list; for these TOML and JSON agree, but for the character DEL."""
    written = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return written.replace("\x7f", "\\u007f")
