"""The ledger: what every label has spent, per row, durable and tamper-evident.

One SQLite file, or one database in memory. Entries form a hash chain; an entry is committed, on disk, before anything is
drawn for it, and its release is spooled next to the ledger before it is handed over. docs/proofs/ledger.md has the proof.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.guarantee import Guarantee
from labeldp.budget.runs import Runs, Spending
from labeldp.errors import BudgetExhausted, InvalidArgument, LedgerError

FORMAT = 1
APPLICATION_ID = 0x4C444C47  # "LDLG", so that `file` and we can tell a ledger from another database
GENESIS = "0" * 64
LOCK_PATIENCE_SECONDS = 3600.0

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, rows BLOB NOT NULL, hash TEXT NOT NULL);
CREATE TABLE progress (number INTEGER PRIMARY KEY REFERENCES entries, state TEXT NOT NULL, spooled TEXT);
CREATE TABLE ids (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger: its place in the chain, what it says, and the rows it charges."""

    number: int
    body: dict[str, Any]
    rows: bytes
    hash: str

    @property
    def runs(self) -> Runs:
        return Runs.decode(self.rows)


class Ledger:
    """What every label has spent. Make one with `create_ledger`, or in memory for one process's life."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._thread_lock = threading.RLock()
        self._memory: sqlite3.Connection | None = None
        self._spending = Spending()
        self._replayed = 0
        if self.path is None:
            self._memory = _connect("file::memory:", uri=True)
        else:
            self._check_file(self.path)
            self._check_spool(self.path)

    @classmethod
    def in_memory(cls, *, budget: Guarantee, n_rows: int | None = None) -> Ledger:
        ledger = cls(None)
        assert ledger._memory is not None
        ledger._memory.executescript(SCHEMA)
        with ledger._write() as db:
            ledger._append(db, _creation(budget, n_rows))
        return ledger

    @staticmethod
    def _check_file(path: Path) -> None:
        if not path.is_file():
            raise LedgerError(
                f"There is no ledger at {path}. A missing ledger is never replaced by an empty one: restore it, or make a "
                "new one with create_ledger (labeldp vault create) if these labels have never been queried."
            )
        try:
            with closing(_connect(path)) as db:
                application = db.execute("PRAGMA application_id").fetchone()[0]
                version = db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError:
            application = version = None
        if application != APPLICATION_ID:
            raise LedgerError(f"{path} is not a labeldp ledger.")
        if version != FORMAT:
            raise LedgerError(f"{path} has ledger format {version}; this version of labeldp reads format {FORMAT}.")

    def _check_spool(self, path: Path) -> None:
        """Refuse a ledger that is older than the releases beside it."""
        spooled = [int(file.stem) for file in spool_folder(path).glob("*.json") if file.stem.isdigit()]
        last, _ = self.head()  # read after the spool: an entry is charged before its release is spooled
        if max(spooled, default=0) > last:
            raise LedgerError(
                f"The ledger {path} ends at entry {last}, but release {max(spooled)} lies in its spool: it is an older copy. "
                "Charges are missing; restore the newest copy before anything else is asked."
            )

    # ---- reading -----------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return every entry, in order, after checking the chain."""
        with self._read() as db:
            return self._entries(db)

    def head(self) -> tuple[int, str]:
        """Return the number and hash of the last entry."""
        with self._read() as db:
            return _head(db)

    @property
    def id(self) -> str:
        return str(self.entries()[0].body["ledger"])

    def budget(self) -> Guarantee:
        """Return the limit in force: the first one, or the last raise."""
        with self._read() as db:
            return self._budget(db)

    def spent(self, rows: NDArray[np.int64] | None = None) -> Guarantee:
        """Return the largest epsilon and delta that any label (of these ledger rows) has spent."""
        with self._read() as db:
            self._replay(db)
            return Guarantee(*self._spending.largest(None if rows is None else Runs.of_rows(np.unique(rows))))

    def spent_by_row(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the epsilon units that each of these ledger rows has spent."""
        with self._read() as db:
            self._replay(db)
            return self._spending.of_rows(rows)[0]

    def charges_of_most_charged_row(self) -> list[Entry]:
        """Return the entries that charge the row with the largest epsilon."""
        with self._read() as db:
            self._replay(db)
            row = self._spending.most_charged_row()
            return [entry for entry in self._entries(db) if entry.body["kind"] == "charge" and entry.runs.holds(row)]

    def n_rows(self) -> int | None:
        """Return how many rows the ledger knows, or None if no dataset was ever opened with it."""
        with self._read() as db:
            return _last(_bodies(db), "n_rows")

    # ---- binding to a dataset ----------------------------------------------------------------------------------------

    def bind(self, *, n_rows: int, ids: Sequence[str] | None) -> NDArray[np.int64]:
        """Return the ledger's row number of each row of a dataset, refusing a dataset that is not the ledger's."""
        with self._write() as db:
            bodies = list(_bodies(db))
            known, naming = _last(bodies, "n_rows"), _last(bodies, "naming")
            wanted = "position" if ids is None else "id"
            if naming not in (None, wanted):
                raise LedgerError(
                    f"This ledger names rows by {naming}: open the dataset {'without' if ids is not None else 'with'} ids, "
                    "or use the ledger that belongs to it."
                )
            if ids is not None:
                return self._bind_ids(db, list(ids), expected=known if naming is None else None)
            if known not in (None, n_rows):
                raise LedgerError(
                    f"This ledger is for {known} rows, but the dataset has {n_rows}. A dataset that grows needs ids."
                )
            if naming is None:
                self._append(db, {"kind": "bind", "naming": "position", "n_rows": n_rows})
            return np.arange(n_rows, dtype=np.int64)

    def _bind_ids(self, db: sqlite3.Connection, ids: list[str], expected: int | None) -> NDArray[np.int64]:
        if expected is not None and len(ids) != expected:
            raise LedgerError(f"This ledger was made for {expected} rows, but the dataset has {len(ids)} ids.")
        number_of = dict(db.execute("SELECT id, row FROM ids"))
        known = len(number_of)
        fresh = [name for name in ids if name not in number_of]
        if fresh:
            number_of.update(zip(fresh, range(known, known + len(fresh)), strict=True))
            db.executemany("INSERT INTO ids (id, row) VALUES (?, ?)", ((name, number_of[name]) for name in fresh))
            total = known + len(fresh)
            self._append(
                db,
                {"kind": "ids", "naming": "id", "first": known, "n_rows": total, "ids": _digest_of_ids(fresh)},
            )
        return np.fromiter((number_of[name] for name in ids), dtype=np.int64, count=len(ids))

    # ---- the owner's acts --------------------------------------------------------------------------------------------

    def raise_budget(self, budget: Guarantee, *, reason: str) -> Entry:
        """Raise the limit; the act is an entry of its own."""
        checks.text(reason=reason)
        with self._write() as db:
            now = self._budget(db)
            if budget.epsilon_units < now.epsilon_units or budget.delta_units < now.delta_units or budget == now:
                raise InvalidArgument(f"the new budget must be above the present one ({now}), got {budget}.")
            return self._append(db, {"kind": "raise", "budget": _plain(budget), "reason": reason, "time": _now()})

    # ---- queries -----------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let one query at a time run on this ledger, across threads and processes.

        The operating system frees the lock when its holder dies, however it dies; so an entry that is charged but not
        handed over belongs, inside this block, to a query that will never go on.
        """
        with self._thread_lock:
            if self.path is None:
                yield
                return
            with closing(_connect(f"{self.path}-lock", timeout=1.0)) as lock:
                _patiently(lock, "BEGIN EXCLUSIVE", self.path)
                yield

    def interrupted(self, request: dict[str, Any]) -> Entry | None:
        """Return the oldest entry for the same request whose release was never handed over."""
        with self._read() as db:
            numbers = db.execute("SELECT number FROM progress WHERE state != 'handed over' ORDER BY number").fetchall()
            waiting = (_entry(db, number) for (number,) in numbers)
            return next((entry for entry in waiting if entry.body["request"] == request), None)

    def named(self, name: str) -> Entry | None:
        """Return the entry of the query that was given this name."""
        with self._read() as db:
            for number, body in enumerate(_bodies(db), start=1):
                if body["kind"] == "charge" and body["request"]["name"] == name:
                    return _entry(db, number)
        return None

    def charge(self, request: dict[str, Any], extra: dict[str, Any], runs: Runs, cost: Guarantee) -> Entry:
        """Charge rows for a request, durably, or raise BudgetExhausted and change nothing."""
        with self._write() as db:
            self._replay(db)
            budget = self._budget(db)
            epsilon, delta = self._spending.largest(runs) if len(runs) else (0, 0)
            charged = len(runs) > 0
            if charged and (
                epsilon + cost.epsilon_units > budget.epsilon_units or delta + cost.delta_units > budget.delta_units
            ):
                left = Guarantee(max(0, budget.epsilon_units - epsilon), max(0, budget.delta_units - delta))
                raise BudgetExhausted(
                    f"This query needs {cost}, but {left} of {budget} is left for these rows. Use rows not yet queried, "
                    "ask for less, or ask the label owner to raise this ledger's limit."
                )
            body = {"kind": "charge", "request": request, **extra, "cost": _plain(cost), "time": _now()}
            entry = self._append(db, body, runs)
            db.execute("INSERT INTO progress (number, state) VALUES (?, 'charged')", (entry.number,))
            return entry

    def mark_spooled(self, entry: Entry, digest: str) -> None:
        """Note that the release of an entry lies in the spool, whole."""
        with self._write() as db:
            db.execute("UPDATE progress SET state = 'spooled', spooled = ? WHERE number = ?", (digest, entry.number))

    def mark_handed_over(self, entry: Entry) -> None:
        """Note that the release of an entry left the vault: the same request is from now on a new query."""
        with self._write() as db:
            db.execute("UPDATE progress SET state = 'handed over' WHERE number = ?", (entry.number,))

    def progress(self, entry: Entry) -> tuple[str, str | None]:
        """Return how far an entry got ("charged", "spooled", "handed over") and the digest of its spooled release."""
        with self._read() as db:
            row = db.execute("SELECT state, spooled FROM progress WHERE number = ?", (entry.number,)).fetchone()
        if row is None:
            raise LedgerError(f"Entry {entry.number} of this ledger is not a query.")
        return row[0], row[1]

    # ---- tamper evidence ---------------------------------------------------------------------------------------------

    def verify(self, receipt: dict[str, Any] | None = None) -> None:
        """Check the chain, the ids, the sums, and that a receipt of this ledger is still in it."""
        with self._read() as db:
            entries = self._entries(db)
            spending = Spending()
            budget = Guarantee(0)
            for entry in entries:
                if "budget" in entry.body:
                    budget = _guarantee(entry.body["budget"])
                if entry.body["kind"] == "charge":
                    cost = _guarantee(entry.body["cost"])
                    spending.add(entry.runs, cost.epsilon_units, cost.delta_units)
                    epsilon, delta = spending.largest()
                    if epsilon > budget.epsilon_units or delta > budget.delta_units:
                        raise LedgerError(f"Entry {entry.number} spends past the budget in force at its time.")
            for body in (entry.body for entry in entries if entry.body["kind"] == "ids"):
                span = (body["first"], body["n_rows"])
                ids = [row[0] for row in db.execute("SELECT id FROM ids WHERE row >= ? AND row < ? ORDER BY row", span)]
                if _digest_of_ids(ids) != body["ids"]:
                    raise LedgerError("The ledger's row ids are not the ones that were bound to it.")
        if receipt is not None:
            self._verify_receipt(receipt, entries)

    @staticmethod
    def _verify_receipt(receipt: dict[str, Any], entries: list[Entry]) -> None:
        try:
            ledger, number, digest = (receipt["ledger"][key] for key in ("id", "entry", "hash"))
        except (KeyError, TypeError):
            raise InvalidArgument("a receipt names its ledger's id, entry and hash; this one does not.") from None
        if ledger != entries[0].body["ledger"]:
            raise LedgerError("The receipt was issued by another ledger.")
        if number > entries[-1].number:
            raise LedgerError(
                f"The receipt is for entry {number}, but the ledger ends at {entries[-1].number}: it is an older copy. "
                "Charges are missing; restore the newest copy before anything else is asked."
            )
        if entries[number - 1].hash != digest:
            raise LedgerError(
                f"Entry {number} is not the one of the receipt: the ledger was an old copy or was altered."
            )

    # ---- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._transaction("BEGIN") as db:
            yield db

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._transaction("BEGIN IMMEDIATE") as db:
            yield db

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Open, begin, commit: a connection is never shared with a fork or another thread."""
        with self._thread_lock:
            if self._memory is not None:
                self._memory.execute(begin)
                yield from self._commit(self._memory)
                return
            assert self.path is not None
            try:
                with closing(_connect(self.path, timeout=1.0)) as db:
                    _patiently(db, begin, self.path)
                    yield from self._commit(db)
            except sqlite3.Error as error:
                raise LedgerError(f"The ledger {self.path} cannot be used: {error}.") from None

    @staticmethod
    def _commit(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _append(self, db: sqlite3.Connection, body: dict[str, Any], runs: Runs | None = None) -> Entry:
        number, previous = _head(db)
        runs = Runs.of_rows(np.empty(0, np.int64)) if runs is None else runs
        text, rows = _canonical(body), runs.encode()
        entry = Entry(number + 1, body, rows, _link(previous, text, rows))
        db.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (entry.number, text, rows, entry.hash))
        return entry

    def _entries(self, db: sqlite3.Connection) -> list[Entry]:
        previous = GENESIS
        entries: list[Entry] = []
        for number, body, rows, digest in db.execute("SELECT number, body, rows, hash FROM entries ORDER BY number"):
            if number != len(entries) + 1 or digest != _link(previous, body, rows):
                raise LedgerError(
                    f"The ledger's chain is broken at entry {len(entries) + 1}: it was altered or damaged."
                )
            entries.append(Entry(number, json.loads(body), rows, digest))
            previous = digest
        return entries

    def _replay(self, db: sqlite3.Connection) -> None:
        """Add to the spending what other processes have charged since we last looked."""
        last, _ = _head(db)
        if last < self._replayed:
            raise LedgerError("The ledger was replaced by an older copy while it was open.")
        for number in range(self._replayed + 1, last + 1):
            entry = _entry(db, number)
            if entry.body["kind"] == "charge":
                cost = _guarantee(entry.body["cost"])
                self._spending.add(entry.runs, cost.epsilon_units, cost.delta_units)
        self._replayed = last

    def _budget(self, db: sqlite3.Connection) -> Guarantee:
        return _guarantee(_last(_bodies(db), "budget"))

    def __reduce__(self) -> NoReturn:
        raise LedgerError("A ledger is not pickled. Open it by its path in the other process.")


def create_ledger(path: str | os.PathLike[str], *, budget: Any, delta: Any = 0, n_rows: int | None = None) -> Ledger:
    """Make a new ledger file, which must not exist, with a budget per label.

    Parameters
    ----------
    path : where the ledger will lie; releases are spooled to `PATH.spool/`.
    budget : the largest epsilon that any label may ever spend.
    delta : the largest delta; without it queries with delta > 0 are refused.
    n_rows : the number of rows, if known already; otherwise the first dataset opened with the ledger sets it.
    """
    path = Path(path)
    body = _creation(Guarantee.of(budget, delta=delta, name="budget"), n_rows)
    if not path.parent.is_dir():
        raise InvalidArgument(f"the folder {path.parent} must exist to hold a ledger.")
    if path.exists() or spool_folder(path).exists():
        raise LedgerError(f"{path} (or its spool) exists already; a ledger is never overwritten.")
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    try:
        with closing(_connect(fresh, create=True)) as db:
            db.executescript("BEGIN;" + SCHEMA + "COMMIT;")
            text = _canonical(body)
            db.execute("INSERT INTO entries VALUES (1, ?, ?, ?)", (text, b"R", _link(GENESIS, text, b"R")))
        try:
            os.link(fresh, path)  # fails if another process made the ledger in the meantime
        except FileExistsError:
            raise LedgerError(f"{path} exists already; a ledger is never overwritten.") from None
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)
    return Ledger(path)


def spool_folder(path: Path) -> Path:
    """Return where the releases of a ledger are spooled."""
    return path.with_name(path.name + ".spool")


def sync_folder(path: Path) -> None:
    """Make a rename or a new name in a folder survive a power cut."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _connect(path: str | Path, *, timeout: float = 5.0, create: bool = False, uri: bool = False) -> sqlite3.Connection:
    existing = isinstance(path, Path) and not create
    name = f"{path.absolute().as_uri()}?mode=rw" if existing and isinstance(path, Path) else str(path)
    db = sqlite3.connect(name, uri=uri or existing, timeout=timeout, isolation_level=None, check_same_thread=False)
    # EXTRA is FULL and also syncs the folder after a commit: a power cut cannot bring a committed charge's journal back
    db.execute("PRAGMA synchronous = EXTRA")
    return db


def _patiently(db: sqlite3.Connection, begin: str, path: Path) -> None:
    """Begin a transaction, waiting for other processes in steps that Ctrl-C can interrupt."""
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while True:
        try:
            db.execute(begin)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise LedgerError(
                    f"The ledger {path} is in use by another process, or cannot be written: {error}."
                ) from None


def _creation(budget: Guarantee, n_rows: int | None) -> dict[str, Any]:
    if n_rows is not None:
        checks.integer(n_rows=n_rows, at_least=1)
    return {
        "kind": "create",
        "format": FORMAT,
        "ledger": uuid.uuid4().hex,
        "budget": _plain(budget),
        "n_rows": None if n_rows is None else int(n_rows),
        "time": _now(),
    }


def _bodies(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    return (json.loads(row[0]) for row in db.execute("SELECT body FROM entries ORDER BY number"))


def _last(bodies: Iterable[dict[str, Any]], key: str) -> Any:
    """Return the newest value of a key, None if no entry has one."""
    return next((body[key] for body in reversed(list(bodies)) if body.get(key) is not None), None)


def _entry(db: sqlite3.Connection, number: int) -> Entry:
    body, rows, digest = db.execute("SELECT body, rows, hash FROM entries WHERE number = ?", (number,)).fetchone()
    return Entry(number, json.loads(body), rows, digest)


def _head(db: sqlite3.Connection) -> tuple[int, str]:
    row = db.execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
    return (0, GENESIS) if row is None else (row[0], row[1])


def _link(previous: str, body: str, rows: bytes) -> str:
    return hashlib.sha256(f"{previous}\n{body}\n{hashlib.sha256(rows).hexdigest()}".encode()).hexdigest()


def _digest_of_ids(ids: list[str]) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _plain(guarantee: Guarantee) -> dict[str, str]:
    return {"epsilon": guarantee.epsilon, "delta": guarantee.delta}


def _guarantee(plain: dict[str, str]) -> Guarantee:
    return Guarantee.of(plain["epsilon"], delta=plain["delta"])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
