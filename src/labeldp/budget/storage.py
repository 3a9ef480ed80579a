"""Files that other processes use at the same time: opening, locking and waiting, and what survives a power cut."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from labeldp.errors import LedgerError

LOCK_PATIENCE_SECONDS = 3600.0
LOCK_STEP_SECONDS = 1.0
"""SQLite waits this long for another process before we look whether somebody pressed Ctrl-C."""


def sync_folder(path: Path) -> None:
    """Make a rename or a new name in a folder survive a power cut."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def connect(path: Path) -> sqlite3.Connection:
    """Open a database that exists; no file is made."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=LOCK_STEP_SECONDS, isolation_level=None, check_same_thread=False
    )


def locked(path: Path) -> sqlite3.Connection:
    """Return a connection that holds the lock of a ledger's queries until it is closed."""
    name = f"{path}-lock"
    try:
        lock = sqlite3.connect(name, timeout=LOCK_STEP_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            patiently(lock, "BEGIN EXCLUSIVE", path)
            if not os.access(name, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                raise LedgerError(f"{name} must be writable: whoever may only read it is not kept out by it.")
        except BaseException:
            lock.close()
            raise
    except sqlite3.Error as error:
        raise LedgerError(f"The ledger {path} cannot be locked: {error}.") from None
    return lock


def patiently(db: sqlite3.Connection, statement: str, path: Path | None) -> sqlite3.Cursor:
    """Run a statement, waiting for other processes in steps that Ctrl-C can interrupt."""
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while True:
        try:
            return db.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"The ledger {path} is in use by another process that does not let go of it."
                ) from None
            time.sleep(0.001)  # SQLite does not always wait by itself
