"""What follows from a ledger's entries: read one by one, each after its link in the hash chain was checked."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from labeldp.budget.guarantee import Guarantee
from labeldp.budget.runs import Runs, Spending
from labeldp.errors import LedgerError

GENESIS = "0" * 64


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


class History:
    """Where a ledger stands after the last entry read: its chain, budget, rows, names, and what every row has spent."""

    def __init__(self) -> None:
        self.number, self.hash = 0, GENESIS
        self.ledger_id = ""
        self.budget = Guarantee(0)
        self.n_rows: int | None = None
        self.naming: str | None = None
        self.id_batches: list[tuple[int, int, str]] = []
        """First row, row after the last, and digest of the ids, for every batch of ids that was bound."""
        self.names: dict[str, int] = {}
        """The newest entry of every named query."""
        self.charges: list[int] = []
        self.spending = Spending()

    def read_on(self, db: sqlite3.Connection) -> None:
        """Check and take in what was appended since we last looked, here or in another process."""
        if self.number:
            here = db.execute("SELECT hash FROM entries WHERE number = ?", (self.number,)).fetchone()
            if here != (self.hash,):
                raise LedgerError("The ledger was replaced by an older copy, or altered, while it was open.")
        try:
            for entry in chained(db, after=self.number, previous=self.hash):
                self._take(entry)
        except (KeyError, TypeError, ValueError):
            raise LedgerError(f"Entry {self.number + 1} of the ledger does not read as an entry.") from None
        if self.number == 0:
            raise LedgerError("The ledger has no entries, not even that of its creation: it was altered or damaged.")

    def _take(self, entry: Entry) -> None:
        body = entry.body
        if body["kind"] == "create":
            self.ledger_id = str(body["ledger"])
        if "budget" in body:
            self.budget = guarantee_of(body["budget"])
        if body.get("n_rows") is not None:
            self.n_rows = int(body["n_rows"])
        self.naming = body.get("naming", self.naming)
        if body["kind"] == "ids":
            self.id_batches.append((body["first"], body["n_rows"], body["ids"]))
        if body["kind"] == "charge":
            self._charge(entry)
        self.number, self.hash = (
            entry.number,
            entry.hash,
        )  # last: whatever interrupts us, a charge may count twice, never less

    def _charge(self, entry: Entry) -> None:
        cost, runs = guarantee_of(entry.body["cost"]), entry.runs
        self.spending.add(runs, cost.epsilon_units, cost.delta_units)
        epsilon, delta = self.spending.largest(runs)
        if epsilon > self.budget.epsilon_units or delta > self.budget.delta_units:
            raise LedgerError(f"Entry {entry.number} spends past the budget in force at its time.")
        self.charges.append(entry.number)
        name = entry.body["request"]["name"]
        if name is not None:
            self.names[name] = entry.number


def chained(db: sqlite3.Connection, *, after: int = 0, previous: str = GENESIS) -> Iterator[Entry]:
    """Yield the entries after one, in order, each after checking that it follows from the one before."""
    below = after or -(2**63)  # from the start on, an entry with a number below 1 is noticed too
    stored = db.execute("SELECT number, body, rows, hash FROM entries WHERE number > ? ORDER BY number", (below,))
    for place, (number, body, rows, digest) in enumerate(stored, start=after + 1):
        sound = number == place and isinstance(body, str) and isinstance(rows, bytes)
        if not sound or digest != link(previous, body, rows):
            raise LedgerError(f"The ledger's chain is broken at entry {place}: it was altered or damaged.")
        yield Entry(number, json.loads(body), rows, digest)
        previous = digest


def link(previous: str, body: str, rows: bytes) -> str:
    """Return the hash of an entry, which names the hash of the one before."""
    return hashlib.sha256(f"{previous}\n{body}\n{hashlib.sha256(rows).hexdigest()}".encode()).hexdigest()


def canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def plain(guarantee: Guarantee) -> dict[str, str]:
    return {"epsilon": guarantee.epsilon, "delta": guarantee.delta}


def guarantee_of(plain: dict[str, str]) -> Guarantee:
    return Guarantee.of(plain["epsilon"], delta=plain["delta"])
