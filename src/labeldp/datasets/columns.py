"""How a column of a file becomes a feature: numbers or categories, decided once, over the whole column.

What was decided is kept as JSON values, so that a later file is read the same way: {"name": .., "kind": "number"}, or
{"name": .., "kind": "category", "categories": [..]}. Features are public, so these words may name cells of theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.bulk.arrow import pa, pc, unquoted
from labeldp.errors import InvalidArgument, MissingExtra

try:
    import pandas as pd
except ImportError:
    raise MissingExtra("Tables of features need pandas: pip install 'labeldp[table]'.") from None

MOST_CATEGORIES = 255
"""What scikit-learn's histogram boosting can tell apart in one column."""
OTHER = "(other)"
"""Stands for all that is too rare to be one of them."""
TRUTHS = {"false", "true"}
MISSING = -1
"""pandas' code of a cell that has no category."""

Description = dict[str, Any]


def describe(name: str, column: Any) -> Description:
    """Decide what a column is.

    Cells that say nothing (null, empty, blank) are missing and decide nothing. Text is numbers if all of it is finite numbers;
    booleans, and what Parquet calls a dictionary, are categories. Of too many categories the most frequent are kept. A column
    that says nothing has no categories: no model could learn from it, so whatever it says in a later file is missing too.
    """
    _check_type(name, column.type)
    marked = pa.types.is_dictionary(column.type) or pa.types.is_boolean(column.type)
    numbers = None if marked else _numbers(column)
    if numbers is None:
        return {"name": name, "kind": "category", "categories": _categories(_text(column))}
    if np.isnan(numbers).all():
        return {"name": name, "kind": "category", "categories": []}
    return {"name": name, "kind": "number"}


def read(column: Any, description: Description, *, source: Any) -> NDArray[np.float64] | pd.Categorical:
    """Return a column as it was decided: float64 with NaN where a cell is missing, or categories."""
    name = description["name"]
    _check_type(name, column.type)
    if description["kind"] == "category":
        categories = description["categories"]
        return pd.Categorical.from_codes(_codes(_text(column), categories), categories=categories)
    numbers = _numbers(column)
    if numbers is None:
        raise InvalidArgument(f"{source}: column {name!r} must hold numbers only; some of its cells are none.")
    return numbers


def _check_type(name: str, kind: Any) -> None:
    if not _is_plain(kind.value_type if pa.types.is_dictionary(kind) else kind):
        raise InvalidArgument(
            f"column {name!r} ({kind}) must be numbers, text, booleans or dates to be a feature: leave it out with drop."
        )


def _is_plain(kind: Any) -> bool:
    types = pa.types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    return bool(number or _is_text(kind) or _is_moment(kind) or types.is_null(kind))


def _is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_moment(kind: Any) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _numbers(column: Any) -> NDArray[np.float64] | None:
    """Return a column as numbers, None if it is text that is none; a date is the seconds since 1970."""
    column = _plain_values(column)
    if _is_text(column.type):
        return _parsed(_text(column))
    if _is_moment(column.type):
        return (
            _floats(column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False).cast(pa.int64()))
            / 1e6
        )
    return _floats(column)


def _parsed(text: Any) -> NDArray[np.float64] | None:
    try:
        numbers = pc.utf8_trim_whitespace(text).cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    return _floats(numbers) if pc.all(pc.is_finite(numbers), min_count=0).as_py() else None


def _floats(column: Any) -> NDArray[np.float64]:
    numbers = np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def _text(column: Any) -> Any:
    """Return a column as text, null where a cell is empty or blank."""
    text = unquoted(lambda: _plain_values(column).cast(pa.large_string()), "a column cannot be read as text.")
    blank = pc.equal(pc.utf8_trim_whitespace(text), "")
    return pc.if_else(blank, pa.scalar(None, pa.large_string()), text)


def _plain_values(column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _categories(text: Any) -> list[str]:
    """Return the categories of a column in alphabetical order; with too many of them, the most frequent and OTHER."""
    counted = pc.value_counts(text.drop_null())
    counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    if {value.lower() for value in counts} <= TRUTHS:
        return sorted({value.lower() for value in counts})
    if len(counts) <= MOST_CATEGORIES:
        return sorted(counts)
    frequent = sorted(counts, key=lambda value: (-counts[value], value))[: MOST_CATEGORIES - 1]
    return sorted({*frequent, OTHER})


def _codes(text: Any, categories: list[str]) -> NDArray[np.int16]:
    """Return the number of each cell's category; a stranger is among the others if there are any, and missing if not."""
    coded = (pc.utf8_lower(text) if set(categories) <= TRUTHS else text).combine_chunks().dictionary_encode()
    number_of = {category: number for number, category in enumerate(categories)}
    stranger = number_of.get(OTHER, MISSING)
    numbers = [number_of.get(value, stranger) for value in coded.dictionary.to_pylist()]
    number_of_code = np.array([*numbers, MISSING], dtype=np.int16)
    return number_of_code[coded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)]
