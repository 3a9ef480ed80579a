"""The book beside a file with labels: which ledger they are charged to, and which columns were secret and which public.

A ledger knows rows, but neither files nor columns. Without the book the same labels would get a fresh budget from another
ledger or under other ids, and a column could be a label in one run and a feature in the next.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from labeldp.budget import Ledger, Runs
from labeldp.budget.storage import sync_folder
from labeldp.errors import InvalidArgument, LedgerError
from labeldp.files import renamed_when_whole

FORMAT = "labeldp-book-1"
MUST_NOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a run or an order makes of a file's columns; those in neither place are left out."""

    label: str
    features: Sequence[str]
    """All that is used as a feature, or written out."""
    id_column: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What was made of a file with labels so far. Public: names of columns, and the ledger's rows. Made by `open_book`.

    Attributes
    ----------
    data : the file.
    ledger, ledger_id : where the ledger was last seen that its labels are charged to, and its id; None if none were charged.
    id_column : the column by which the ledger knows rows; None if by position.
    labels, features : the columns that were ever charged as labels, and those that were ever used or written out as they are.
    rows : spans of the ledger's rows that are this file's, if it has ids: a ledger may have rows of other files.
    """

    data: Path
    ledger: Path | None = None
    ledger_id: str | None = None
    id_column: str | None = None
    labels: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    rows: tuple[Span, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.ledger_id is None

    def check(self, columns: Columns) -> None:
        """Raise if a column was a label and shall be public now, or was public and shall be a label now."""
        if not self.is_empty and columns.id_column != self.id_column:
            known = "their position" if self.id_column is None else f"the column {self.id_column!r}"
            what = "leave --id out" if self.id_column is None else f"say --id {self.id_column}"
            raise InvalidArgument(
                f"the ledger knows the rows of {self.data} by {known}: {what}, or their labels would be charged as if they "
                "were other rows'."
            )
        if columns.label in self.features:
            raise InvalidArgument(
                f"the column {columns.label!r} of {self.data} cannot be a label: an earlier run or privatize took it as it is, "
                "as a feature or a public test, so its values are public already, and no epsilon protects them. A column that "
                f"shall be a label later is left out from the first run on: --drop {columns.label}"
            )
        secret = [name for name in columns.features if name in self.labels]
        if secret:
            raise InvalidArgument(
                f"{_listed(secret)} of {self.data} was charged as a label in an earlier run, so it cannot be used as it is "
                f"now: leave it out with {' '.join(f'--drop {name}' for name in secret)}"
            )

    def ledger_for(self, given: Path | None) -> Path | None:
        """Return the ledger to charge: the one in the book, wherever it was moved to; None if there is none yet.

        Parameters
        ----------
        given : the ledger that was asked for, which must be the one in the book. Beside a file without a book it must be
            the one that lies there already, if there is one.
        """
        beside = ledger_beside(self.data)
        if self.is_empty:
            if given is not None and beside.exists() and not (given.exists() and os.path.samefile(given, beside)):
                raise self._charged_elsewhere(given, beside)
            return beside if given is None and beside.exists() else given
        assert self.ledger is not None
        if given is not None and given.exists() and not self._is_ours(given):
            raise self._charged_elsewhere(given, self.ledger)
        found = [place for place in ((self.ledger, beside) if given is None else (given,)) if self._is_ours(place)]
        if not found:
            raise LedgerError(
                f"The labels of {self.data} are charged to {self.ledger if given is None else given}, which is not there or is "
                "another ledger by now. A missing ledger is never replaced by an empty one: restore it, or say with "
                "--ledger where it was moved to."
            )
        return found[0]

    def check_ids(self, ledger: Path, ids: Sequence[str] | None) -> None:
        """Raise if rows of this file were charged under ids that it does not have any more."""
        if ids is None:
            return  # the ledger counts rows without ids
        if self.is_empty and ledger.resolve() != ledger_beside(self.data).resolve():
            return  # what it knows are other files' rows
        rows = None if self.is_empty else _runs(self.rows)
        if Ledger(ledger).has_charged_others(ids, among=rows):
            raise InvalidArgument(
                f"ids that were charged are gone from {self.data}: were they rewritten? Rows may be added, not renamed, "
                "because their labels would be charged as if they were new ones. Go on with the ids as they were."
            )

    def note(self, columns: Columns, ledger: Path, ids: Sequence[str] | None) -> None:
        """Write down what is about to be charged; before it is, so that no charge is without its book."""
        charged = Ledger(ledger)
        noted = replace(
            self,
            ledger=charged.path,
            ledger_id=charged.id,
            id_column=columns.id_column,
            labels=_with(self.labels, [columns.label]),
            features=_with(self.features, columns.features),
            rows=self.rows if ids is None else _spans(self.rows, charged.bind(n_rows=len(ids), ids=ids)),
        )
        if noted != self:
            noted._write()

    def note_public(self, column: str) -> None:
        """Write down that a column is read as it is, as the labels of a public test are: it is no label any more.

        Where the folder must not be written to, nothing is: a file that others gave us keeps no book of ours.
        """
        self.check_public()
        noted = replace(self, features=_with(self.features, [column]))
        if noted != self:
            try:
                noted._write()
            except OSError as error:
                if error.errno not in MUST_NOT_WRITE:
                    raise

    def check_public(self) -> None:
        """Raise if labels of the file were ever charged: then they are not public."""
        beside = ledger_beside(self.data)
        if self.labels or beside.exists():
            raise InvalidArgument(
                f"the labels of {self.data} are charged to a ledger ({self.ledger or beside}), so they are not public: give "
                "another file as the public test."
            )

    def _write(self) -> None:
        path = book_beside(self.data)
        with renamed_when_whole(path) as file:
            file.write((json.dumps(self._values(), indent=1) + "\n").encode())
        sync_folder(path.parent)

    def _is_ours(self, ledger: Path) -> bool:
        return ledger.exists() and Ledger(ledger).id == self.ledger_id

    def _charged_elsewhere(self, given: Path, ledger: Path) -> InvalidArgument:
        return InvalidArgument(
            f"the labels of {self.data} are charged to {ledger}, not to {given}: say --ledger {ledger}, so that all they spend "
            "adds up."
        )

    def _values(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "ledger": None if self.ledger is None else str(self.ledger),
            "ledger id": self.ledger_id,
            "id": self.id_column,
            "labels": self.labels,
            "features": self.features,
            "rows": self.rows,
        }


@contextmanager
def open_book(data: Path) -> Iterator[Book]:
    """Yield the book of a file, which is empty before the first run; meanwhile no other process opens it."""
    with _locked(data):
        yield _read(data)


def book_beside(data: str | os.PathLike[str]) -> Path:
    """Return where the book of a file lies: beside the file itself, whatever link led to it."""
    return Path(os.path.realpath(data) + ".labels.json")


def ledger_beside(data: str | os.PathLike[str]) -> Path:
    """Return where the ledger of a file lies that was given none."""
    return Path(os.path.realpath(data) + ".ledger")


def _read(data: Path) -> Book:
    path = book_beside(data)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError
        return Book(
            data=data,
            ledger=None if values["ledger"] is None else Path(values["ledger"]),
            ledger_id=None if values["ledger id"] is None else str(values["ledger id"]),
            id_column=values["id"],
            labels=tuple(values["labels"]),
            features=tuple(values["features"]),
            rows=tuple((int(first), int(after)) for first, after in values["rows"]),
        )
    except FileNotFoundError:
        return Book(data=data)
    except (ValueError, KeyError, TypeError):
        raise LedgerError(
            f"{path} is not a book of format {FORMAT}. It says which ledger the labels of {data} are charged to, so nothing is "
            "asked without it: restore it."
        ) from None


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    """Hold the lock of a file's book. It is the file's own: nothing more lies beside it, and a kill frees it."""
    while True:
        with data.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(data, file):  # it may have been replaced while we waited
                yield
                return


def _is_still(path: Path, file: IO[bytes]) -> bool:
    return os.path.samestat(os.fstat(file.fileno()), path.stat())


def _with(known: tuple[str, ...], more: Sequence[str]) -> tuple[str, ...]:
    return (*known, *(name for name in more if name not in known))


def _runs(spans: tuple[Span, ...]) -> Runs:
    starts, stops = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    return Runs(starts, stops)


def _spans(known: tuple[Span, ...], rows: np.ndarray) -> tuple[Span, ...]:
    runs = Runs.of_rows(np.union1d(_runs(known).rows(), rows))
    return tuple(zip(runs.starts.tolist(), runs.stops.tolist(), strict=True))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
