"""Sealing: true labels become class numbers that nobody prints, pickles or copies.

Failures here say what must hold of the whole column, never which label or row broke it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import repeat
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument, InvalidLabels, LabelDPError, VaultClosed
from labeldp.mechanisms.groups import unsigned
from labeldp.vault.frames import guarded

UNKNOWN = -1
LARGEST_FLOAT = np.finfo(np.float64).max

ClassNames = tuple[str, ...] | tuple[int, ...] | tuple[bool, ...] | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Classes:
    """The declared class list: public, given, never learned from the labels.

    >>> Classes.declared(3).names, Classes.declared(["no", "yes"]).names
    ((0, 1, 2), ('no', 'yes'))
    """

    names: ClassNames

    @classmethod
    def declared(cls, classes: Any) -> Classes:
        if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
            return cls(tuple(range(checks.integer(classes=classes, at_least=2, at_most=checks.MAX_CLASSES))))
        if isinstance(classes, (str, bytes, set, frozenset)) or not hasattr(classes, "__iter__"):  # a set has no order
            raise InvalidArgument(
                "classes must be a count or a list of names, such as classes=10 or classes=['no', 'yes']."
            )
        names = tuple(name.item() if isinstance(name, np.generic) else name for name in classes)
        whole = [abs(name) for name in names if type(name) is int]
        if {type(name) for name in names} == {int, float} and max(whole) <= LARGEST_FLOAT:
            names = tuple(map(float, names))
        kinds = {type(name) for name in names}
        if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
            raise InvalidArgument("classes must be all text, all integers, all booleans or all numbers.")
        if kinds == {float} and not np.isfinite(names).all():
            raise InvalidArgument("classes must be finite.")
        if len(set(names)) != len(names):
            raise InvalidArgument("classes must name each class once.")
        checks.integer(at_least=2, at_most=checks.MAX_CLASSES, **{"the number of classes": len(names)})
        return cls(names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> type:
        return type(self.names[0])

    def exact_values(self) -> tuple[Fraction, ...] | None:
        """Return the numbers that the classes stand for, None if they are not numbers."""
        if self.kind not in (int, float):
            return None
        return tuple(Fraction(name) if self.kind is int else Fraction(repr(name)) for name in self.names)

    def decode(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return class names for class numbers."""
        names = np.array(self.names)
        return names[numbers]

    def encode_public(self, values: Any) -> NDArray[np.int64]:
        """Return class numbers of something public, such as predictions."""
        array = checks.array(predictions=values)
        numbers = _encoder(self)(array) if array.ndim == 1 else None
        if numbers is None or not ((numbers >= 0) & (numbers < len(self))).all():
            raise InvalidArgument("predictions must be a column of declared classes.")
        return numbers


class SealedLabels:
    """Class numbers of the true labels. The vault opens them; nothing else does."""

    __slots__ = ("_numbers", "labelled")

    def __init__(self, numbers: NDArray[Any], labelled: NDArray[np.bool_]) -> None:
        self._numbers: NDArray[Any] | None = numbers
        self.labelled = labelled
        """Which rows have a label; public where some are missing."""

    def open(self, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        """Return the class numbers of these rows, or of all."""
        if self._numbers is None:
            raise VaultClosed("This vault is closed.")
        return self._numbers if rows is None else self._numbers[rows]

    def destroy(self) -> None:
        self._numbers = None

    def __len__(self) -> int:
        return len(self.labelled)

    def __repr__(self) -> str:
        return "<sealed labels>"

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("True labels are never pickled.")

    def __copy__(self) -> SealedLabels:
        return self

    def __deepcopy__(self, memo: object) -> SealedLabels:
        return self


class NumberedLabels:
    """Labels that were encoded already: class numbers 0 .. K - 1 of a declared class list, UNKNOWN where one is missing."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: NDArray[Any]) -> None:
        self.numbers = numbers

    def __repr__(self) -> str:
        return "<labels>"

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("True labels are never pickled.")


class Unsealed:
    """Labels on their way in, so that no frame of a traceback shows them."""

    __slots__ = ("labels",)

    def __init__(self, labels: Any) -> None:
        self.labels = labels

    @property
    def column(self) -> Hashable:
        """The public name of the column that the labels are, if it has one."""
        return guarded(lambda: _column_name(self), "The labels' name could not be read ({}).")

    def __repr__(self) -> str:
        return "<labels>"

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("True labels are never pickled.")


def _column_name(given: Unsealed) -> Hashable:
    """Return the name of a column, or of a table's only one. What else has a `name` may mean a field of labels by it."""
    dimensions = 0 if isinstance(given.labels, np.ndarray) else len(getattr(given.labels, "shape", ()))
    if dimensions == 1:
        return getattr(given.labels, "name", None)
    columns: Any = getattr(given.labels, "columns", ()) if dimensions == 2 else ()
    return columns[0] if len(columns) == 1 else None


def seal(unsealed: Unsealed, classes: Classes, *, missing: str | None) -> SealedLabels:
    """Check a whole column of labels and seal it, or raise InvalidLabels without a word about any label."""
    sealed, problem = guarded(lambda: _try_to_seal(unsealed.labels, classes, missing), "Labels were not sealed ({}).")
    if sealed is None:
        raise InvalidLabels(problem)
    return sealed


def _try_to_seal(labels: Any, classes: Classes, missing: str | None) -> tuple[SealedLabels | None, str]:
    if isinstance(labels, SealedLabels):
        return None, "labels must be the labels themselves; these are sealed already."
    try:
        numbered = isinstance(labels, NumberedLabels)
        column = _numbered_column(labels.numbers) if numbered else _column(labels)
        if column is None:
            return None, "labels must be a column: one dimension, at least one row."
        values, absent = column
        encode = _encoder(Classes.declared(len(classes)) if numbered else classes)
        if absent.any() and missing != "public":
            return None, (
                "labels must not be missing. If which labels are missing is public, say LabelVault(.., missing='public'); "
                "their rows are then never released. (An estimator takes such a vault's sealed() for y.)"
            )
        labelled = ~absent
        if not labelled.any():
            return None, "labels must not all be missing."
        known = values[labelled] if absent.any() else values
        numbers = encode(known)
        if numbers is None:
            return None, (
                f"labels must be of the type of the declared classes ({_type_words(classes)}); these are stored as "
                f"{_stored_words(values)}. Convert the column (a pandas one of whole numbers and gaps: .astype('Int64')), or "
                "declare classes as they are stored."
            )
        if not ((numbers >= 0) & (numbers < len(classes))).all():
            return None, "labels must all be among the declared classes; some are not."
        sealed = np.zeros(len(values), dtype=unsigned(len(classes)))
        sealed[labelled] = numbers
        return SealedLabels(sealed, labelled), ""
    except Exception:  # whatever numpy or pandas says could quote a label
        return None, f"labels must be a column of {_type_words(classes)}; this object cannot be read as one."


def _numbered_column(numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
    fits = type(numbers) is np.ndarray and numbers.ndim == 1 and len(numbers) > 0 and numbers.dtype.kind == "i"
    return (numbers, numbers == UNKNOWN) if fits else None


def _type_words(classes: Classes) -> str:
    return {str: "text", int: "integers", bool: "booleans", float: "numbers"}[classes.kind]


def _stored_words(values: NDArray[Any]) -> str:
    """Return what a whole column is stored as; the length of texts is not said."""
    words = {"b": "booleans", "i": "integers", "u": "integers", "f": "numbers with a decimal point", "U": "text"}
    kinds = (
        {words.get(np.array(value).dtype.kind, "objects") for value in values.tolist()}
        if values.dtype == object
        else set()
    )
    return kinds.pop() if len(kinds) == 1 else words.get(values.dtype.kind, "objects of several or other types")


def _column(labels: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
    """Return the values and which are missing, from an array, a list, or a pandas column."""
    if hasattr(labels, "isna") and hasattr(labels, "to_numpy"):  # pandas, not imported here
        absent = np.asarray(labels.isna(), dtype=np.bool_)
        values = labels.to_numpy(dtype=object)
        if values.ndim != 1 or len(values) == 0:
            return None
        values = values.copy()
        values[absent] = None
        if not absent.any():
            values = np.array(values.tolist(), dtype=_tight(values))
        return values, absent
    if isinstance(labels, np.ma.MaskedArray):
        absent = np.ma.getmaskarray(labels)
        column = _column(np.asarray(labels.data))
        return None if column is None else (column[0], column[1] | absent)
    if isinstance(labels, np.ndarray):
        values = np.asarray(labels)
    else:
        values = np.array([each.item() if isinstance(each, np.generic) else each for each in labels], dtype=object)
    if values.ndim != 1 or len(values) == 0:
        return None
    if values.dtype.kind == "f":
        return values, np.isnan(values)
    if values.dtype.kind == "O":
        absent = np.fromiter((v is None or v != v for v in values.tolist()), dtype=np.bool_, count=len(values))
        return values, absent
    return values, np.zeros(len(values), dtype=np.bool_)


def _tight(values: NDArray[Any]) -> Any:
    """Return a plain dtype for an object column of one plain type, so that it is encoded without a Python call per label."""
    kinds = set(map(type, values.tolist()))
    return {int: np.int64, bool: np.bool_, float: np.float64}.get(kinds.pop(), object) if len(kinds) == 1 else object


def _encoder(classes: Classes) -> Any:
    """Return a function from values to class numbers, UNKNOWN for strangers, None for values of the wrong type."""
    index = {name: number for number, name in enumerate(classes.names)}

    def by_lookup(values: NDArray[Any]) -> NDArray[np.int64] | None:
        items = values.tolist()
        if not set(map(type, items)) <= ({int, float} if classes.kind is float else {classes.kind}):
            return None
        return np.fromiter(map(index.get, items, repeat(UNKNOWN)), dtype=np.int64, count=len(items))

    def by_search(values: NDArray[Any]) -> NDArray[np.int64]:
        order = np.argsort(np.array(classes.names))
        names = np.array(classes.names)[order]
        place = np.minimum(np.searchsorted(names, values), len(names) - 1)
        return np.where(names[place] == values, order[place], UNKNOWN)

    def encode(values: NDArray[Any]) -> NDArray[np.int64] | None:
        kind = values.dtype.kind
        if kind in {"O", "U"}:
            return by_lookup(values)
        fits = {int: "iu", bool: "b", float: "iuf", str: ""}[classes.kind]
        if classes.names in ((0, 1), (False, True)):
            fits += "iub"
        if kind not in fits:
            return None
        if classes.kind is int and classes.names == tuple(range(len(classes))):
            inside = (values >= 0) & (values < len(classes))
            return np.where(inside, values.astype(np.int64), UNKNOWN)  # UNKNOWN has no place in an unsigned type
        return by_search(values)

    return encode


def ids_as_text(ids: Any, n_rows: int) -> list[str]:
    """Return public row ids as unique text, from text or integers."""
    text = _names("ids", ids, n_rows)
    if len(set(text)) != n_rows:
        raise InvalidArgument("ids must be unique: each label is accounted for under its own id.")
    return text


def people_numbers(owners: Sequence[Any], n_rows: int) -> NDArray[np.int64]:
    """Return person numbers from public person ids, text or integers. A missing one would hide that people are the same."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(owner, len(numbers)) for owner in _names("owners", owners, n_rows)], np.int64)


def _names(what: str, given: Any, n_rows: int) -> list[str]:
    array = np.asarray(given, dtype=object) if not isinstance(given, np.ndarray) else given
    items = (
        [item.item() if isinstance(item, np.generic) else item for item in array.tolist()] if array.ndim == 1 else None
    )
    if items is None or len(items) != n_rows:
        raise InvalidArgument(f"{what} must be a column with one for each row ({n_rows}).")
    if not set(map(type, items)) <= {str, int}:
        raise InvalidArgument(f"{what} must be text or integers, and none may be missing.")
    return list(map(str, items))
