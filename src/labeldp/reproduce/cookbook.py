"""The packaged recipes: recipes/TABLE/NAME.toml, each a recipe of `labeldp.runs` for a list of epsilons.

Besides what a recipe says there are three keys: `trust` (local or curator), `epsilons` (those of the table), and `at`, which
holds what is different at an epsilon, such as `[at."2".training]`. `about` says how the settings were chosen.

A figure's recipes are in recipes/figure-NAME, and have two keys more: `[vary]`, lists of values under dotted keys, whose grid
is run point by point ("training.mixup.0" is the first of a list), and `each_epoch`, to test models at each epoch's end.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument
from labeldp.runs import Recipe
from labeldp.runs.toml import read_values, with_keys

ORDER = ("mnist", "fashion-mnist", "kmnist", "cifar-10", "cifar-100", "movielens-1m")
"""Tables of the paper, in its order; others follow by name."""
FIRST = ("best-local", "paper-ssl-prior-small")
"""What is run where no recipe is named: the first of these that a table has."""
FIGURE = "figure-"
OWN = "own:"
"""Before the name of a recipe that is not packaged: it is never taken for one that is."""
OWN_KEYS = ("trust", "epsilons", "at", "vary", "each_epoch")


@dataclass(frozen=True)
class Entry:
    """A recipe for a list of epsilons.

    Attributes
    ----------
    table, name : where it stands; of a file of one's own, own: and the file's name.
    named : what --recipe calls it: its name, or the file of one's own.
    trust : what the file says, if it does, which is what it does at the epsilons listed. A run promises what its
        certificate says.
    epsilons : those that the table has.
    vary : of a figure: lists of values under dotted keys; see `variants`.
    variant : of a point of that grid: its values.
    each_epoch : whether models are tested at each epoch's end. It changes no model, and is not in the hash.
    """

    table: str
    name: str
    named: str
    trust: str | None
    epsilons: tuple[str, ...]
    values: Mapping[str, Any] = field(repr=False)
    overrides: Mapping[str, Mapping[str, Any]] = field(repr=False)
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)
    variant: Mapping[str, Any] = field(default_factory=dict)
    each_epoch: bool = False

    @property
    def data(self) -> str:
        return self.at(self.epsilons[0]).data

    @property
    def datasets(self) -> tuple[str, ...]:
        """All that it is of, at whatever epsilon and in whatever variant."""
        each = (variant.at(epsilon).data for variant in self.variants() for epsilon in self.epsilons)
        return tuple(dict.fromkeys(each))

    @property
    def about(self) -> str:
        return str(self.values.get("about", ""))

    def at(self, epsilon: str, *, rows: int | None = None) -> Recipe:
        """Return the recipe at an epsilon; at one that is not listed, its base settings."""
        epsilon = str(Epsilon.of(epsilon))
        values = _varied(_merged(self.values, self.overrides.get(epsilon, {})), self.variant) | {"epsilon": epsilon}
        return Recipe.of(values if rows is None else values | {"rows": rows}, source=self.named)

    def variants(self) -> list[Entry]:
        """Return an entry per point of the grid that is varied over; of a recipe that varies nothing, itself."""
        points = itertools.product(*self.vary.values())
        return [replace(self, vary={}, variant=dict(zip(self.vary, point, strict=True))) for point in points]

    @property
    def variant_words(self) -> tuple[str, ...]:
        """What is different in this variant, each as --only takes it."""
        return tuple(f"{key}={json.dumps(value)}" for key, value in self.variant.items())


def hash_of(recipe: Recipe) -> str:
    """Return what tells attempts apart: a digest of all that a recipe says, but for `about`."""
    return hashlib.sha256(replace(recipe, about=None).toml().encode()).hexdigest()


def tables() -> tuple[str, ...]:
    """Return the tables that have recipes.

    >>> "mnist" in tables()
    True
    """
    found = {name for name in _folders() if not is_figure(name)}
    return (*(name for name in ORDER if name in found), *sorted(found - set(ORDER)))


def figures() -> tuple[str, ...]:
    """Return the figures that have recipes.

    >>> "figure-stages" in figures()
    True
    """
    return tuple(sorted(filter(is_figure, _folders())))


def is_figure(table: str) -> bool:
    return table.startswith(FIGURE)


def recipes_of(table: str) -> list[Entry]:
    """Return the recipes of a table or figure, by name, which puts ours before the paper's."""
    folder = _packaged() / _known(table, (*tables(), *figures()), "table")
    return [read(file, table) for file in sorted(folder.glob("*.toml"), key=lambda file: file.stem)]


def find(table: str, names: Iterable[str] = ()) -> list[Entry]:
    """Return recipes of a table by name, or of files of one's own, which end in .toml.

    By default they are the first of a table, and all of a figure. A file must not be of data that another table is of.
    """
    entries = {entry.name: entry for entry in recipes_of(table)}
    usual = list(entries) if is_figure(table) else [next(name for name in (*FIRST, *entries) if name in entries)]
    chosen = list(names) or usual
    return [
        _of_ones_own(Path(name), table, entries)
        if name.endswith(".toml")
        else entries[_known(name, entries, f"recipe of {table}")]
        for name in dict.fromkeys(chosen)
    ]


def datasets_of(table: str) -> tuple[str, ...]:
    """Return the datasets of a table's or figure's packaged recipes.

    >>> datasets_of("kmnist")
    ('kmnist',)
    """
    return tuple(dict.fromkeys(data for entry in recipes_of(table) for data in entry.datasets))


def _of_ones_own(file: Path, table: str, packaged: Iterable[str]) -> Entry:
    if not file.exists():
        there = ", ".join(packaged)
        raise InvalidArgument(f"there is no recipe at {file}. The packaged ones of {table} are named so: {there}.")
    entry, own = read(file, table), datasets_of(table)
    for data in entry.datasets:
        if data not in own and data in tables():
            instead = f"give a recipe of {own[0]}" if is_figure(table) else f"labeldp reproduce {data} --recipe {file}"
            what = "figure" if is_figure(table) else "table"
            raise InvalidArgument(f"{file} is of {data}, and the {what} {table} is of {' and '.join(own)}: {instead}.")
    return entry


def read(file: Path, table: str) -> Entry:
    """Read a recipe's file, and check it at every epsilon that it lists."""
    said = read_values(file)
    is_packaged = file.resolve().parent == (_packaged() / table).resolve()
    name, source = (file.stem, file.stem) if is_packaged else (f"{OWN}{file.stem}", str(file))
    values = {key: value for key, value in said.items() if key not in OWN_KEYS}
    epsilons = _epsilons(said.get("epsilons", [said["epsilon"]] if "epsilon" in said else []), source)
    overrides = said.get("at", {})
    if not isinstance(overrides, dict) or not all(isinstance(changes, dict) for changes in overrides.values()):
        raise InvalidArgument(f'{source}: at must hold a table per epsilon, such as [at."2".training].')
    by_epsilon = {str(Epsilon.of(epsilon, name="at")): changes for epsilon, changes in overrides.items()}
    if unlisted := set(by_epsilon) - set(epsilons):
        raise InvalidArgument(f"{source}: at speaks of epsilon {min(unlisted)}, which epsilons does not list.")
    trust = said.get("trust")
    if trust is not None:
        checks.one_of(("local", "curator"), trust=trust)
    vary, each_epoch = _lists(said.get("vary", {}), source), said.get("each_epoch", False)
    if not isinstance(each_epoch, bool):
        raise InvalidArgument(f"{source}: each_epoch must be true or false, got {each_epoch!r}.")
    if (vary or each_epoch) and not is_figure(table):
        raise InvalidArgument(f"{source}: vary and each_epoch are of figures ({', '.join(figures())}), not of {table}.")
    entry = Entry(table, name, source, trust, epsilons, values, by_epsilon, vary, each_epoch=each_epoch)
    for variant, epsilon in itertools.product(entry.variants(), epsilons):
        _check_trust(trust, variant.at(epsilon), source)
    return entry


def narrowed(variants: Iterable[Entry], only: Mapping[str, Any]) -> list[Entry]:
    """Return the variants that have these values, of what varies; there must be one."""
    every = list(variants)
    keys = list(dict.fromkeys(key for each in every for key in each.variant))
    for key in only:
        if key not in keys:
            raise InvalidArgument(
                f"--only must name what varies, which is {' and '.join(keys) or 'nothing'}; got {key}."
            )
    found = [each for each in every if all(each.variant.get(key) == value for key, value in only.items())]
    if not found:
        there = "; ".join(dict.fromkeys(" ".join(each.variant_words) for each in every))
        raise InvalidArgument(f"--only must leave a variant, of which there are: {there}.")
    return found


def _check_trust(stated: str | None, recipe: Recipe, source: str) -> None:
    """Raise where a file states another trust model than its recipe has: only [prior] and [sums] aggregate labels."""
    aggregates = recipe.prior is not None or recipe.sums is not None
    needed = "curator" if aggregates else "local"
    if stated not in (None, needed):
        why = "[prior] and [sums] aggregate labels" if aggregates else "nothing in it aggregates labels"
        raise InvalidArgument(f'{source}: trust must be "{needed}" at epsilon {recipe.epsilon}, got "{stated}": {why}.')


def _lists(given: Any, source: str) -> dict[str, tuple[Any, ...]]:
    if not isinstance(given, dict) or not all(isinstance(values, list) and values for values in given.values()):
        raise InvalidArgument(f'{source}: vary must hold lists of values, such as "release.stages" = [1, 2].')
    return {key: tuple(values) for key, values in given.items()}


def _varied(values: dict[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with a variant's put under their dotted keys."""
    for key, value in variant.items():
        above, _, last = key.rpartition(".")
        if not last.isdigit():
            values = with_keys(values, {key: value})
            continue
        table, _, name = above.rpartition(".")
        listed = values.get(table, {}).get(name) if table else values.get(name)
        if not isinstance(listed, list) or int(last) >= len(listed):
            raise InvalidArgument(f"vary: {key} is one of a list, and the recipe's {above} has no such place.")
        place = int(last)
        values = with_keys(values, {above: [*listed[:place], value, *listed[place + 1 :]]})
    return values


def _epsilons(given: Any, source: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not given:
        raise InvalidArgument(f'{source} must say epsilons, a list such as ["1", "2"].')
    return tuple(dict.fromkeys(str(Epsilon.of(epsilon, name=f"{source}: epsilons")) for epsilon in given))


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others put over them, table by table."""
    merged = dict(values)
    for key, value in changes.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged


def _known(name: str, names: Iterable[str], what: str) -> str:
    every = list(names)
    if name in every:
        return name
    close = difflib.get_close_matches(name.lower().replace("_", "-"), every, n=3, cutoff=0.5)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    raise InvalidArgument(f"there is no {what} {name[:80]!r}. There are: {', '.join(every)}.{meant}")


def _folders() -> list[str]:
    return [place.name for place in _packaged().iterdir() if place.is_dir()]


def _packaged() -> Path:
    return Path(str(files("labeldp.reproduce") / "recipes"))
