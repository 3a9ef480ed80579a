"""TOML's values to dataclasses and back: every unknown name and every value of another type is an error."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from labeldp.errors import InvalidArgument

MOST = 1e300
HINTS = {
    "label": " Of a table, --label names the column of true labels.",
    "classes": " --classes lists all that a label may be, such as --classes no,yes: they are never learned from the labels.",
    "epsilon": " --epsilon is what each label may spend, such as --epsilon 1.",
    "model": " Of tables, --model is boosting, logistic or forest; with --features it is linear, mlp or logistic.",
}
OF_STUDENT = " A student is a net on images: --set student.model=small-conv."
WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a finite number",
    "bool": "true or false",
    "tuple[float, ...]": "a list of numbers",
    "tuple[str, ...]": "a list of names",
}


def read_values(path: Path) -> dict[str, Any]:
    """Return the values of a recipe's file, as it says them."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidArgument(f"there is no recipe at {path}.") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not TOML: it is not text in UTF-8.") from None
    return parsed(text, str(path))


def parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{source} is not TOML: {error}") from None


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


def filled(kind: Any, values: Any, source: str) -> Any:
    """Make a dataclass from TOML's values, checking names and types."""
    known = {item.name: item for item in fields(kind)}
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"{source} must be a table.")
    given = {}
    for name, value in values.items():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise InvalidArgument(f"{source} knows no {name!r}.{meant} It knows: {', '.join(known)}.")
        given[name] = _fitting(f"{source}: {name}", str(known[name].type), value)
    lacking = [name for name, item in known.items() if item.default is item.default_factory and given.get(name) is None]
    if lacking:  # both are MISSING
        hint = OF_STUDENT if source.endswith("[student]") else HINTS.get(lacking[0], "")
        raise InvalidArgument(f"{source} must say {', '.join(lacking)}.{hint}")
    return kind(**given)


def _fitting(name: str, kind: str, value: Any) -> Any:
    """Return a value of the annotated type: whole numbers pass for floats, lists for tuples."""
    if value is None or is_dataclass(value):
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


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same without what is None: TOML has no such value."""
    return {
        key: nested(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def written(value: Any) -> str:
    """Write a text, number, truth value or list; for these TOML and JSON agree, but for the character DEL."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")
