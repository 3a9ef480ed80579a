"""A recipe: everything that decides a run, as TOML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.datasets.catalogue import FILES, LOADERS
from labeldp.datasets.surveys import SURVEYS
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import GroupedResponse, LocalMechanism, RandomizedResponse, RRWithPrior, UnbiasedResponse
from labeldp.runs import specs, toml
from labeldp.runs.families import SKLEARN_MODELS, family_of, means_nothing, unknown_model
from labeldp.runs.plans import Prior, ReleasePlan, Student, Sums, Table, Training

MECHANISMS: dict[str, type[LocalMechanism]] = {
    mechanism.__name__: mechanism for mechanism in (RandomizedResponse, RRWithPrior, GroupedResponse, UnbiasedResponse)
}

TABLES = {
    "release": ReleasePlan,
    "training": Training,
    "table": Table,
    "prior": Prior,
    "student": Student,
    "sums": Sums,
}
ON_FEATURES = {"optimizer": "adam", "learning_rate": 2e-3, "weight_decay": 1e-3, "epochs": 8, "batch_size": 512}
"""How torch's models learn from features unless told otherwise: the other defaults are for nets on images."""


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
        counted = self.prior is not None and self.training.learn_counts is not False
        if counted and self.student is not None and self.student.loss == "likelihood":
            raise InvalidArgument(
                "student.loss must be 'posterior' where models learn from counts of clusters, since the likelihood is that of "
                "single answers: leave it out, or set training.learn_counts = false."
            )
        first = None if self.student is None else self.student.first
        if first is not None and not 1 <= first < self.release.stages:
            raise InvalidArgument(
                f"student.first must be a stage before the last, whose successor it helps to ask; got {first} of "
                f"{self.release.stages}. Without it the student is taught after the last stage alone."
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
        return cls.of(toml.read_values(path), source=str(path))

    @classmethod
    def parse(cls, text: str) -> Recipe:
        return cls.of(toml.parsed(text, "the recipe"))

    @classmethod
    def of(cls, values: Mapping[str, Any], *, source: str = "the recipe") -> Recipe:
        """Make a recipe from TOML's values; every unknown key is an error."""
        given = {"release": {}, "training": {}} | dict(values)
        of_features = given.get("features") is not None and family_of(str(given.get("model"))) == "torch"
        if of_features and isinstance(given["training"], Mapping):  # what is no table is refused below
            given["training"] = ON_FEATURES | dict(given["training"])
        settings = given["training"]
        if given.get("table") is not None:
            _check_own_file(given.get("data"))
        for name, kind in TABLES.items():
            if given.get(name) is not None or name in ("release", "training"):
                given[name] = toml.filled(kind, given[name], f"{source}, [{name}]")
        recipe: Recipe = toml.filled(cls, given, source)
        recipe._check_settings(settings)
        return recipe

    def changed(self, changes: Mapping[str, Any]) -> Recipe:
        """Return the recipe with other values under dotted keys, such as training.epochs.

        Stages and hold-out stay as they were settled. With a model of the other library goes what [training] says of the old
        one's alone.
        """
        values = self._values(str(changes.get("model", self.model)))
        return Recipe.of(toml.with_keys(values, changes), source="the changed recipe")

    def placed(self) -> Recipe:
        """Return the recipe with absolute paths in its features: a run may be gone on with elsewhere."""
        prior = self.prior
        if prior is not None and prior.features is not None:
            prior = replace(prior, features=specs.placed(prior.features))
        return replace(self, features=self.features and specs.placed(self.features), prior=prior)

    def _values(self, model: str) -> dict[str, Any]:
        """Return the recipe as TOML's values, without the settings that mean nothing to a model."""
        values = toml.nested(asdict(self))
        values["training"] = {key: each for key, each in values["training"].items() if not means_nothing(model, key)}
        return values

    def toml(self) -> str:
        """Return the whole recipe as TOML."""
        values = self._values(self.model)
        names = ("table", "prior", "sums", "release", "training", "student")
        tables = {name: values.pop(name) for name in names if name in values}
        lines = [f"{key} = {toml.written(value)}" for key, value in values.items()]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {toml.written(value)}" for key, value in table.items())]
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


def _check_own_file(data: Any) -> None:
    if isinstance(data, str) and not data.lower().endswith(FILES):
        raise InvalidArgument(
            f"label, classes and all else of [table] are for a file of one's own ({' or '.join(FILES)}); {data!r} is "
            "a dataset's name, which needs none of them."
        )


def _of(table: Table | Prior | None, key: str) -> Any:
    return None if table is None else getattr(table, key)
