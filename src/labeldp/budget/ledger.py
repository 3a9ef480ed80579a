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
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.guarantee import Guarantee
from labeldp.budget.history import GENESIS, Entry, History, canonical, chained, guarantee_of, link, plain
from labeldp.budget.runs import Runs
from labeldp.budget.storage import connect, locked, patiently, sync_folder
from labeldp.errors import BudgetExhausted, InvalidArgument, LedgerError, TakenOver

FORMAT = 1
APPLICATION_ID = 0x4C444C47  # "LDLG", so that `file` and we can tell a ledger from another database

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, rows BLOB NOT NULL, hash TEXT NOT NULL);
CREATE TABLE progress (number INTEGER PRIMARY KEY REFERENCES entries, state TEXT NOT NULL, spooled TEXT);
CREATE TABLE ids (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
"""


class Ledger:
    """What every label has spent. Make one with `create_ledger`, or in memory for one process's life."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path).resolve()  # one lock and one spool, whatever link leads here
        self._thread_lock = threading.RLock()
        self._pid = os.getpid()
        self._memory: sqlite3.Connection | None = None
        self._history = History()
        _all_ledgers.add(self)
        if self.path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._memory.close).atexit = False
        else:
            self._check_file(self.path)
            self._check_spool(self.path)

    @classmethod
    def in_memory(cls, *, budget: Guarantee, n_rows: int | None = None) -> Ledger:
        ledger = cls(None)
        assert ledger._memory is not None
        _write_first_entry(ledger._memory, _creation(budget, n_rows))
        return ledger

    @staticmethod
    def _check_file(path: Path) -> None:
        if (path / "ledger").is_file():
            raise LedgerError(f"{path} is a folder, such as a run's. The ledger in it is {path / 'ledger'}: name that.")
        if not path.is_file():
            raise LedgerError(
                f"There is no ledger at {path}. A missing ledger is never replaced by an empty one: restore it, or make a "
                "new one with create_ledger (labeldp vault create) if these labels have never been queried."
            )
        if path.stat().st_nlink > 1:
            raise LedgerError(
                f"{path} has more than one name (hard links), which would be locked apart: remove the others."
            )
        try:
            with closing(connect(path)) as db:
                application = patiently(db, "PRAGMA application_id", path).fetchone()[0]
                version = patiently(db, "PRAGMA user_version", path).fetchone()[0]
        except sqlite3.OperationalError as error:
            raise LedgerError(f"The ledger {path} cannot be read: {error}.") from None
        except sqlite3.DatabaseError:
            application = version = None
        if application != APPLICATION_ID:
            raise LedgerError(f"{path} is not a labeldp ledger.")
        if version != FORMAT:
            raise LedgerError(f"{path} has ledger format {version}; this version of labeldp reads format {FORMAT}.")

    def _check_spool(self, path: Path) -> None:
        """Check the chain, and refuse a ledger that is older than the releases beside it."""
        spooled = [int(file.stem) for file in spool_folder(path).glob("*.json") if file.stem.isdecimal()]
        with self._read() as db:  # read after the spool: an entry is charged before its release is spooled
            self._check_progress(db)
            last = self._history.number
        if max(spooled, default=0) > last:
            raise LedgerError(
                f"The ledger {path} ends at entry {last}, but release {max(spooled)} lies in its spool: it is an older copy. "
                "Charges are missing; restore the newest copy before anything else is asked."
            )

    def _check_progress(self, db: sqlite3.Connection) -> None:
        """Check that the queries whose progress is noted are those of the chain, which may have lost its end."""
        if [row[0] for row in db.execute("SELECT number FROM progress ORDER BY number")] != self._history.charges:
            raise LedgerError("The ledger's entries are not those whose progress it notes: it was altered or damaged.")

    # ---- reading -----------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return every entry, in order, after checking the chain."""
        with self._read() as db:
            return list(chained(db))

    def head(self) -> tuple[int, str]:
        """Return the number and hash of the last entry."""
        with self._read():
            return self._history.number, self._history.hash

    @property
    def id(self) -> str:
        with self._read():
            return self._history.ledger_id

    def budget(self) -> Guarantee:
        """Return the limit in force: the first one, or the last raise."""
        with self._read():
            return self._history.budget

    def spent(self, runs: Runs | None = None) -> Guarantee:
        """Return the largest epsilon and delta that any label (of these ledger rows) has spent."""
        with self._read():
            return Guarantee(*self._history.spending.largest(runs))

    def spending_by_row(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the epsilon units and the delta units that each of these ledger rows has spent."""
        with self._read():
            epsilons, deltas = self._history.spending.of_rows(rows)
            return epsilons, deltas

    def charges_of(self, row: int | None) -> list[Entry]:
        """Return the entries that charge a ledger row; by default the row with the largest sum of epsilons."""
        with self._read() as db:
            row = self._history.spending.most_charged_row() if row is None else row
            return [entry for entry in chained(db) if entry.body["kind"] == "charge" and entry.runs.holds(row)]

    def n_rows(self) -> int | None:
        """Return how many rows the ledger knows, or None if no dataset was ever opened with it."""
        with self._read():
            return self._history.n_rows

    # ---- binding to a dataset ----------------------------------------------------------------------------------------

    def bind(self, *, n_rows: int, ids: Sequence[str] | None) -> NDArray[np.int64]:
        """Return the ledger's row number of each row of a dataset, refusing a dataset that is not the ledger's."""
        with self._write() as db:
            known, naming = self._history.n_rows, self._history.naming
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
        self._check_ids(db)
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

    def has_charged_others(self, ids: Iterable[str], *, among: Runs | None = None) -> bool:
        """Tell whether some row (among these ledger rows) was charged under an id that is not one of the given ones."""
        with self._read() as db:
            given = set(ids)
            others = [row for name, row in db.execute("SELECT id, row FROM ids ORDER BY row") if name not in given]
            rows = np.array(others, dtype=np.int64)
            if among is not None:
                rows = np.intersect1d(rows, among.rows())
            return bool(self._history.spending.of_rows(rows).any())

    def _check_ids(self, db: sqlite3.Connection) -> None:
        ids = [row[0] for row in db.execute("SELECT id FROM ids ORDER BY row")]
        batches = self._history.id_batches
        bound = batches[-1][1] if batches else 0
        ends = db.execute("SELECT min(row), max(row) FROM ids").fetchone()
        whole = len(ids) == bound and (not bound or ends == (0, bound - 1))
        if not whole or any(_digest_of_ids(ids[first:after]) != digest for first, after, digest in batches):
            raise LedgerError("The ledger's row ids are not the ones that were bound to it: it was altered or damaged.")

    # ---- the owner's acts --------------------------------------------------------------------------------------------

    def raise_budget(self, budget: Guarantee, *, reason: str) -> Entry:
        """Raise the limit; the act is an entry of its own."""
        checks.text(reason=reason)
        body = {"kind": "raise", "budget": _readable(budget), "reason": reason, "time": _now()}
        with self._write() as db:
            now = self._history.budget
            if budget.epsilon_units < now.epsilon_units or budget.delta_units < now.delta_units or budget == now:
                raise InvalidArgument(f"the new budget must be above the present one ({now}), got {budget}.")
            return self._append(db, body)

    # ---- queries -----------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let one query at a time run on this ledger, across threads and processes.

        The operating system frees the lock when its holder dies, however it dies; so an entry that is charged but not
        handed over belongs, inside this block, to a query that will never go on.
        """
        key = self.path or self
        held = _held_by_this_thread()
        if key in held:
            raise LedgerError("A query cannot be asked from within another query of the same ledger, as by its priors.")
        with self._thread_lock:
            try:
                held.add(key)
                if self.path is None:
                    yield
                else:
                    with closing(locked(self.path)):
                        yield
            finally:
                held.discard(key)

    def interrupted(self, request: dict[str, Any]) -> Entry | None:
        """Return the newest entry for the same request whose release was never handed over."""
        with self._read() as db:
            numbers = db.execute(
                "SELECT number FROM progress WHERE state != 'handed over' ORDER BY number DESC"
            ).fetchall()
            waiting = (_entry(db, number) for (number,) in numbers)
            return next((entry for entry in waiting if entry.body["request"] == request), None)

    def named(self, name: str) -> Entry | None:
        """Return the newest entry of the query that was given this name."""
        with self._read() as db:
            number = self._history.names.get(name)
            return None if number is None else _entry(db, number)

    def charge(self, request: dict[str, Any], extra: dict[str, Any], runs: Runs, cost: Guarantee) -> Entry:
        """Charge rows for a request, durably, or raise BudgetExhausted and change nothing."""
        body = {"kind": "charge", "request": request, **extra, "cost": _readable(cost), "time": _now()}
        with self._write() as db:
            budget = self._history.budget
            epsilon, delta = self._history.spending.largest(runs)
            past = epsilon + cost.epsilon_units > budget.epsilon_units or delta + cost.delta_units > budget.delta_units
            if len(runs) and past:
                left = Guarantee(max(0, budget.epsilon_units - epsilon), max(0, budget.delta_units - delta))
                raise refusal(cost, left, budget)
            entry = self._append(db, body, runs)
            db.execute("INSERT INTO progress (number, state) VALUES (?, 'charged')", (entry.number,))
            return entry

    def check_not_taken_over(self, entry: Entry) -> None:
        """Raise if an entry that this process draws for is not waiting for a draw any more."""
        if self.progress(entry)[0] != "charged":
            raise _taken_over(entry)

    def mark_spooled(self, entry: Entry, digest: str) -> None:
        """Note that the release of an entry lies in the spool, whole. Once: if the lock fails, one of two draws is refused."""
        with self._write() as db:
            done = db.execute(
                "UPDATE progress SET state = 'spooled', spooled = ? WHERE number = ? AND state = 'charged'",
                (digest, entry.number),
            )
            if done.rowcount != 1:
                raise _taken_over(entry)

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
            History().read_on(db)  # from the first entry on
            self._check_ids(db)
            self._check_progress(db)
            if receipt is not None:
                self._check_receipt(db, receipt)

    def _check_receipt(self, db: sqlite3.Connection, receipt: dict[str, Any]) -> None:
        try:
            ledger, number, digest = (receipt["ledger"][key] for key in ("id", "entry", "hash"))
        except (KeyError, TypeError):
            raise InvalidArgument("a receipt names its ledger's id, entry and hash; this one does not.") from None
        if ledger != self._history.ledger_id:
            raise LedgerError("The receipt was issued by another ledger.")
        if checks.integer(entry=number, at_least=1) > self._history.number:
            raise LedgerError(
                f"The receipt is for entry {number}, but the ledger ends at {self._history.number}: it is an older copy. "
                "Charges are missing; restore the newest copy before anything else is asked."
            )
        if _entry(db, number).hash != digest:
            raise LedgerError(
                f"Entry {number} is not the one of the receipt: the ledger was an old copy or was altered."
            )
        if db.execute("SELECT state FROM progress WHERE number = ?", (number,)).fetchone() != ("handed over",):
            raise LedgerError(
                f"The receipt's release was handed over, but the ledger says that entry {number} was not: it is an older copy."
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
        """Open, begin, read on, commit: a connection to a file is never shared with a fork or another thread."""
        with self._thread_lock:
            if self._memory is not None:
                if self._pid != os.getpid():
                    raise LedgerError(
                        "This ledger lives in the memory of another process; a fork copied it, and it is closed here."
                    )
                yield from self._committed(self._memory, begin)
                return
            assert self.path is not None
            try:
                with closing(connect(self.path)) as db:
                    # EXTRA is FULL and also syncs the folder after a commit: a power cut cannot bring back the journal
                    # that would undo a committed charge
                    patiently(db, "PRAGMA synchronous = EXTRA", self.path)
                    yield from self._committed(db, begin)
            except sqlite3.Error as error:
                raise LedgerError(f"The ledger {self.path} cannot be used: {error}.") from None

    def _committed(self, db: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
        try:
            patiently(db, begin, self.path)
            patiently(db, "SELECT number FROM entries LIMIT 1", self.path)  # a plain BEGIN waits for nobody yet
            self._history.read_on(db)
            yield db
            patiently(db, "COMMIT", self.path)
        except BaseException:
            if db.in_transaction:  # SQLite may have rolled back already, on a full disk for example
                db.execute("ROLLBACK")
            raise

    def _append(self, db: sqlite3.Connection, body: dict[str, Any], runs: Runs | None = None) -> Entry:
        runs = Runs.of_rows(np.empty(0, np.int64)) if runs is None else runs
        text, rows = canonical(body), runs.encode()
        entry = Entry(self._history.number + 1, body, rows, link(self._history.hash, text, rows))
        db.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (entry.number, text, rows, entry.hash))
        return entry

    def _after_fork_in_child(self) -> None:
        self._thread_lock = threading.RLock()  # the parent's may have been held by a thread that does not exist here

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
    path = Path(path).resolve()
    body = _creation(Guarantee.of(budget, delta=delta, name="budget"), n_rows)
    if not path.parent.is_dir():
        raise InvalidArgument(f"the folder {path.parent} must exist to hold a ledger.")
    if path.exists() or spool_folder(path).exists():
        raise LedgerError(f"{path} (or its spool) exists already; a ledger is never overwritten.")
    journal = path.with_name(path.name + "-journal")
    if journal.exists():  # SQLite would play it into the new file
        raise LedgerError(f"{journal} is left of an older ledger. Restore that ledger, or move its journal away.")
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    try:
        with closing(sqlite3.connect(fresh, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = EXTRA")
            _write_first_entry(db, body)
        os.link(fresh, path)  # fails if another process made the ledger in the meantime
    except FileExistsError:
        raise LedgerError(f"{path} exists already; a ledger is never overwritten.") from None
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"The ledger {path} cannot be made: {error}.") from None
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)
    return Ledger(path)


def refusal(cost: Guarantee, left: Guarantee, budget: Guarantee) -> BudgetExhausted:
    """Return the error of a query that costs more than is left."""
    return BudgetExhausted(
        f"This query needs {cost}, but {left} of {budget} is left for these rows. Use rows not yet queried, ask for less, or "
        "ask the label owner to raise this ledger's limit."
    )


def _taken_over(entry: Entry) -> TakenOver:
    return TakenOver(
        f"Another process went on with entry {entry.number} while it was drawn for here, so this draw is lost: the ledger's "
        "lock did not hold. Do not delete LEDGER-lock, and mount the ledger's folder rather than its file. Asked by its name, "
        "the query is answered from the spool; without one, asking again is another charge."
    )


def spool_folder(path: Path) -> Path:
    """Return where the releases of a ledger are spooled."""
    return path.with_name(path.name + ".spool")


def _write_first_entry(db: sqlite3.Connection, body: dict[str, Any]) -> None:
    text, rows = canonical(body), Runs.of_rows(np.empty(0, np.int64)).encode()
    db.executescript(SCHEMA)
    db.execute("INSERT INTO entries VALUES (1, ?, ?, ?)", (text, rows, link(GENESIS, text, rows)))


def _creation(budget: Guarantee, n_rows: int | None) -> dict[str, Any]:
    if n_rows is not None:
        checks.integer(n_rows=n_rows, at_least=1)
    return {
        "kind": "create",
        "format": FORMAT,
        "ledger": uuid.uuid4().hex,
        "budget": _readable(budget),
        "n_rows": None if n_rows is None else int(n_rows),
        "time": _now(),
    }


def _entry(db: sqlite3.Connection, number: int) -> Entry:
    body, rows, digest = db.execute("SELECT body, rows, hash FROM entries WHERE number = ?", (number,)).fetchone()
    return Entry(number, json.loads(body), rows, digest)


def _readable(guarantee: Guarantee) -> dict[str, str]:
    """Return a guarantee as it is stored, after checking that it will be read back."""
    stored = plain(guarantee)
    guarantee_of(stored)
    return stored


def _digest_of_ids(ids: list[str]) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_all_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _reset_after_fork() -> None:
    for ledger in list(_all_ledgers):
        ledger._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


_holds = threading.local()


def _held_by_this_thread() -> set[Any]:
    """Return the ledgers whose exclusive lock this thread holds in this process."""
    if getattr(_holds, "pid", None) != os.getpid():
        _holds.pid, _holds.ledgers = os.getpid(), set()
    held: set[Any] = _holds.ledgers
    return held
