"""A recipe: everything that decides a run, as TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import GroupedResponse, LocalMechanism, RandomizedResponse, RRWithPrior

MECHANISMS: dict[str, type[LocalMechanism]] = {
    mechanism.__name__: mechanism for mechanism in (RandomizedResponse, RRWithPrior, GroupedResponse)
}

MOST = 1e300
WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a finite number",
    "bool": "true or false",
    "tuple[float, ...]": "a list of numbers",
}


@dataclass(frozen=True)
class ReleasePlan:
    """What defines the releases. Another plan is another query, and is paid for."""

    mechanism: str = "GroupedResponse"
    stages: int = 2
    split: tuple[float, ...] | None = None
    temperature: float = 1.0
    hold_out: float = 0.02


@dataclass(frozen=True)
class Training:
    """How models are trained on what was released. Changing it is free: see `train_again`."""

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


@dataclass(frozen=True)
class Recipe:
    """What to train on what, at which epsilon.

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
    release: ReleasePlan = field(default_factory=ReleasePlan)
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", str(Epsilon.of(self.epsilon)))
        checks.one_of(tuple(MECHANISMS), mechanism=self.release.mechanism)
        mixup = self.training.mixup
        if isinstance(mixup, tuple) and len(mixup) != self.release.stages:
            raise InvalidArgument(f"mixup must be one number, or one per stage ({self.release.stages}).")

    @property
    def mechanism(self) -> type[LocalMechanism]:
        return MECHANISMS[self.release.mechanism]

    def mixup(self, stage: int) -> float:
        given = self.training.mixup
        return given[stage] if isinstance(given, tuple) else given

    @classmethod
    def read(cls, path: Path) -> Recipe:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InvalidArgument(f"there is no recipe at {path}.") from None
        except UnicodeDecodeError:
            raise InvalidArgument(f"{path} is not TOML: it is not text in UTF-8.") from None
        return cls.parse(text, source=str(path))

    @classmethod
    def parse(cls, text: str, *, source: str = "the recipe") -> Recipe:
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidArgument(f"{source} is not TOML: {error}") from None
        return cls.of(values, source=source)

    @classmethod
    def of(cls, values: Mapping[str, Any], *, source: str = "the recipe") -> Recipe:
        """Make a recipe from TOML's values; every unknown key is an error."""
        given = dict(values)
        given["release"] = _filled(ReleasePlan, given.get("release", {}), f"{source}, [release]")
        given["training"] = _filled(Training, given.get("training", {}), f"{source}, [training]")
        missing = [name for name in ("data", "model", "epsilon") if given.get(name) is None]
        if missing:
            raise InvalidArgument(f"{source} must say {', '.join(missing)}.")
        return _filled(cls, given, source)

    def changed(self, changes: Mapping[str, Any]) -> Recipe:
        """Return the recipe with other values under dotted keys, such as training.epochs."""
        return Recipe.of(with_keys(_nested(asdict(self)), changes), source="the changed recipe")

    def toml(self) -> str:
        """Return the whole recipe as TOML."""
        values = _nested(asdict(self))
        tables = {name: values.pop(name) for name in ("release", "training")}
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"

    def other_releases_than(self, other: Recipe) -> list[str]:
        """Return the keys that define the releases and differ: with none, both recipes can be trained on the same ones."""
        keys = [key for key in ("data", "rows", "epsilon") if getattr(self, key) != getattr(other, key)]
        plan = [item.name for item in fields(ReleasePlan)]
        return keys + [f"release.{key}" for key in plan if getattr(self.release, key) != getattr(other.release, key)]


def with_keys(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with others put under dotted keys."""
    changed = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for key, value in changes.items():
        table, _, name = key.rpartition(".")
        place = changed.setdefault(table, {}) if table else changed
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
    return kind(**given)


def _fitting(name: str, kind: str, value: Any) -> Any:
    """Return a value of the annotated type: whole numbers pass for floats, lists for tuples."""
    if value is None or is_dataclass_value(value):
        return value
    kinds = kind.split(" | ")
    if isinstance(value, (list, tuple)) and "tuple[float, ...]" in kinds:
        return tuple(_fitting(name, "float", item) for item in value)
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
    return isinstance(value, (ReleasePlan, Training))


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
