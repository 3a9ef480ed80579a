"""The label column: read whole, checked whole, and held as small class numbers until the vault seals it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.bulk.arrow import pa, unquoted
from labeldp.bulk.declared import MISSING, STRANGER, DeclaredClasses
from labeldp.bulk.tables import Table
from labeldp.errors import InvalidArgument, InvalidLabels
from labeldp.vault.frames import guarded

Numbers = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """Class numbers of a whole column, MISSING where there is no label, and the rows' ids. Never printed."""

    numbers: Numbers = field(repr=False)
    ids: list[Any] | None = field(repr=False)


def read_labels(
    table: Table,
    *,
    label: str,
    id_column: str | None,
    classes: DeclaredClasses,
    missing: str | None,
    advance: Callable[[int], None],
) -> LabelColumn:
    """Read the label column and check all of it, so that a failure points at no row and no label."""
    needed = [label] if id_column is None else [label, id_column]
    column, problem = guarded(
        lambda: _try_to_read(table, needed, classes, missing, advance),
        f"The labels of {table.path} could not be read ({{}}). Nothing was charged.",
        passing=(OSError,),
    )
    if column is None:
        raise problem
    return column


def _try_to_read(
    table: Table, needed: list[str], classes: DeclaredClasses, missing: str | None, advance: Callable[[int], None]
) -> tuple[LabelColumn | None, InvalidArgument]:
    """Return the column, or a fresh error whose traceback leads to no frame that holds labels."""
    parts: list[Numbers] = []
    ids: list[Any] = []
    try:
        for batch in table.batches(table.to_check(needed)):
            parts.append(encode(batch.column(needed[0]), classes))
            if len(needed) > 1:
                ids += batch.column(needed[1]).to_pylist()
            advance(len(batch))
    except InvalidArgument as error:
        return None, type(error)(str(error))
    numbers = np.concatenate(parts) if parts else np.empty(0, np.int8)
    problem = _problem(numbers, missing, table)
    if problem is not None:
        return None, problem
    return LabelColumn(numbers, ids if len(needed) > 1 else None), InvalidArgument("")


def encode(column: Any, classes: DeclaredClasses) -> Numbers:
    """Return the class number of every cell, MISSING or STRANGER where it has none."""
    return unquoted(lambda: _encode(column, classes), "labels must be a column of text, integers or booleans.")


def _encode(column: Any, classes: DeclaredClasses) -> Numbers:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    coded = column.dictionary_encode()
    numbers = [classes.number_of(value) for value in coded.dictionary.to_pylist()]
    number_of_code = np.array([*numbers, MISSING], dtype=np.min_scalar_type(-len(classes)))
    return number_of_code[coded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)]


def _problem(numbers: Numbers, missing: str | None, table: Table) -> InvalidArgument | None:
    if len(numbers) == 0:
        return InvalidArgument(f"{table.path} has no rows.")
    if (numbers == STRANGER).any():
        return InvalidLabels("labels must all be among the declared classes; some are not. Case and spaces count.")
    absent = numbers == MISSING
    if absent.all():
        return InvalidLabels("labels must not all be missing.")
    if absent.any() and missing != "public":
        return InvalidLabels(
            "labels must not be missing. If which labels are missing is public, say --missing public; their rows are then "
            "never released."
        )
    return None
