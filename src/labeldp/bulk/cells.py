"""Columns as CSV text: a cell is quoted only where it must be, a null is an empty cell, empty text is two quotes."""

from __future__ import annotations

from typing import Any

from labeldp.bulk.arrow import pa, pc
from labeldp.errors import InvalidArgument

SPECIAL = (b'"', b",", b"\n", b"\r")


def check_plain(schema: Any) -> None:
    """Refuse columns that CSV cannot hold: nested ones and raw bytes."""
    for field in schema:
        if not _plain(field.type):
            raise InvalidArgument(
                f"column {field.name!r} ({field.type}) cannot be written as CSV: choose an --out that ends in .parquet."
            )


def header(names: list[str]) -> bytes | memoryview:
    """Return the first line."""
    return lines([pa.array([name]) for name in names], empty_is_null=True)


def lines(columns: list[Any], *, empty_is_null: bool = False) -> bytes | memoryview:
    """Return the lines of a batch of columns, each with its line feed."""
    cells = [_cells(column, empty_is_null=empty_is_null) for column in columns]
    if len(cells) == 1:  # an empty line would be no line
        cells = [pc.if_else(pc.equal(pc.fill_null(cells[0], ""), ""), '""', cells[0])]
    cells[-1] = pc.binary_join_element_wise(
        cells[-1], _large("\n"), _large(""), null_handling="replace", null_replacement=""
    )
    text = pc.binary_join_element_wise(*cells, _large(","), null_handling="replace", null_replacement="")
    _, offsets, data = text.buffers()
    ends = memoryview(offsets).cast("q")
    first, last = ends[text.offset], ends[text.offset + len(text)]
    return memoryview(data)[first:last] if data is not None else b""


def _cells(column: Any, *, empty_is_null: bool) -> Any:
    """Return a column of text, quoted where needed."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not _text(column.type):
        return column.cast(pa.string()).cast(pa.large_string())
    column = column.cast(pa.large_string())
    needy = pc.match_substring_regex(column, '[",\r\n]') if _holds_special(column) else None
    if not empty_is_null:
        empty = pc.equal(column, "")
        needy = empty if needy is None else pc.or_(needy, empty)
    if needy is None or not pc.any(needy).as_py():
        return column
    doubled = pc.replace_substring(column, '"', '""')
    return pc.if_else(needy, pc.binary_join_element_wise(_large('"'), doubled, _large('"'), _large("")), column)


def _holds_special(column: Any) -> bool:
    """Whether some cell may need quotes: one quick look at the bytes of all of them."""
    data = column.buffers()[2]
    if data is None:
        return False
    text = data.to_pybytes()
    return any(mark in text for mark in SPECIAL)


def _large(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


def _text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _plain(kind: Any) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    moment = types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind)
    return bool(_text(kind) or number or moment or types.is_null(kind))
