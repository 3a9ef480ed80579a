"""The classes as a shell declares them, and how a cell of any column type is matched with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from labeldp import checks
from labeldp.errors import InvalidArgument

MISSING = -1
STRANGER = -2

INTEGER_NAME = re.compile(r"0|-?[1-9][0-9]{0,17}")
INTEGER_CELL = re.compile(r"([+-]?[0-9]{1,40})(\.0*)?")
TRUTHS = {"false": False, "true": True}


@dataclass(frozen=True)
class DeclaredClasses:
    """The declared class list: all integers, or all text. Public, given, never learned from the data.

    Integer classes match integers, whole numbers (a column with missing cells is often stored as floats) and their text; the
    two classes false and true match booleans, 0 and 1, and their text in any case; other classes match the same text only.

    >>> DeclaredClasses.of(3).names, DeclaredClasses.of(["no", "yes"]).names, DeclaredClasses.of(["1", "2"]).names
    ((0, 1, 2), ('no', 'yes'), (1, 2))
    >>> DeclaredClasses.of(["1", "2"]).number_of("2.0"), DeclaredClasses.of(["false", "true"]).number_of(True)
    (1, 1)
    """

    names: tuple[str, ...] | tuple[int, ...]
    _key_of: Callable[[Any], Any] = field(init=False, repr=False, compare=False)
    _number_of_key: dict[Any, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.integer(at_least=2, at_most=checks.MAX_CLASSES, **{"the number of classes": len(self.names)})
        if len(set(self.names)) != len(self.names):
            raise InvalidArgument("classes must name each class once.")
        if "" in self.names:
            raise InvalidArgument("a class must not be the empty text: an empty cell is a missing label.")
        key_of = _integer if self.integers else _truth if self._truths else _text
        object.__setattr__(self, "_key_of", key_of)
        object.__setattr__(self, "_number_of_key", {key_of(name): number for number, name in enumerate(self.names)})

    @classmethod
    def of(cls, classes: int | Sequence[str]) -> DeclaredClasses:
        """Take a count, or names; names that all are integers as one writes them become integers."""
        if isinstance(classes, int):
            return cls(tuple(range(checks.integer(classes=classes, at_least=2, at_most=checks.MAX_CLASSES))))
        if all(INTEGER_NAME.fullmatch(name) for name in classes):
            return cls(tuple(map(int, classes)))
        return cls(tuple(classes))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def integers(self) -> bool:
        """Whether the noisy column will hold integers."""
        return isinstance(self.names[0], int)

    @property
    def _truths(self) -> bool:
        return {str(name).lower() for name in self.names} == set(TRUTHS)

    @property
    def text_only(self) -> bool:
        """Whether only a column of text can hold these classes."""
        return not self.integers and not self._truths

    def number_of(self, cell: Any) -> int:
        """Return the number of a cell's class, MISSING or STRANGER."""
        if cell is None or cell == "" or cell != cell:
            return MISSING
        return self._number_of_key.get(self._key_of(cell), STRANGER)


def _text(cell: Any) -> str | None:
    return cell if isinstance(cell, str) else None


def _integer(cell: Any) -> int | None:
    if isinstance(cell, str):
        match = INTEGER_CELL.fullmatch(cell.strip())
        return int(match[1]) if match else None
    if isinstance(cell, (float, Decimal)):
        return int(cell) if -(2**63) < cell < 2**63 and cell == int(cell) else None
    return int(cell) if isinstance(cell, (bool, int)) else None


def _truth(cell: Any) -> bool | None:
    if isinstance(cell, str) and cell.strip().lower() in TRUTHS:
        return TRUTHS[cell.strip().lower()]
    number = _integer(cell)
    return None if number is None or number not in (0, 1) else bool(number)
