"""A file with true labels becomes a file with noisy ones: check everything, charge, draw, then stream the rest through.

The label column is read and checked whole before the ledger is charged; so is what else could fail later (the types, the text
of a CSV, the place for the output). The release has a name made of the order, so after a kill at any point the same order is
completed with the same noise and no second charge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labeldp.budget import Guarantee, Ledger, Odds
from labeldp.budget.ledger import spool_folder
from labeldp.bulk.book import Book, Columns, open_book
from labeldp.bulk.draft import Draft, refuse_existing
from labeldp.bulk.labels import encode, read_labels
from labeldp.bulk.noisy import Noise, draw, noisy_schema, pass_through
from labeldp.bulk.order import FORMAT, Order
from labeldp.bulk.sinks import KINDS
from labeldp.bulk.tables import Table, ending, open_table
from labeldp.errors import BudgetExhausted, InvalidArgument
from labeldp.vault import Receipt
from labeldp.vault.labels import ids_as_text

Progress = Callable[[str, int | None], Callable[[int], None]]
"""Told what begins and how many rows it has, if known; returns a function that is told of rows done."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was written, what it cost, and what these rows can still spend."""

    order: Order
    rows: int
    receipt: Receipt
    left: Guarantee
    budget: Guarantee
    already_done: bool

    @property
    def release(self) -> Path:
        """Where the vault keeps the release, with its likelihood."""
        return spool_folder(self.order.ledger) / f"{self.receipt.ledger['entry']:06d}"

    @property
    def keep_chance(self) -> float:
        """How likely a noisy label is the true one."""
        odds = Odds.within(self.order.epsilon)
        return odds.keep / (odds.keep + (len(self.order.classes) - 1) * odds.other)

    def to_json(self) -> dict[str, Any]:
        return {
            "release": str(self.release),
            "keep_chance": self.keep_chance,
            "rows": self.rows,
            "epsilon": self.receipt.epsilon,
            "receipt": self.receipt.to_json(),
            "left": self.left.epsilon,
            "out": str(self.order.out),
        }


def privatize(order: Order, *, progress: Progress = lambda *_: lambda _: None) -> Outcome:
    """Write `order.out`: the input with its label column replaced by noise.

    If `order.out` is the finished output of this very order, nothing is touched; any other file there is refused.

    Privacy
    -------
    epsilon-label-DP per label (local). Public: the other columns, the number and order of rows, the ids, and which labels are
    missing. A column that tells the label (a copy of it, say) is passed through like any other: leave it out of the file.
    The book beside the file (DATA.labels.json) keeps its labels on one ledger, and a column that was a label from being written
    out, or the other way round.
    """
    table = open_table(order.data)
    ledger = Ledger(order.ledger)
    job = Job(order, table, order.other_columns(table), progress)
    earlier = ledger.named(order.name())
    if earlier is None:
        refuse_existing(order.out)
    elif earlier.body["source"] != job.source and not order.unchanged:
        raise InvalidArgument(
            f"{order.data} was touched since this command was charged (ledger entry {earlier.number}). Nothing was done "
            "now. If the labels are the same, add --unchanged: the same noise is written, at no cost. To release "
            "changed labels, which costs epsilon again, choose another --out."
        )
    already_done = order.out.exists()
    refusal = None
    try:
        noise = job.confirm() if already_done else job.write()
    except BudgetExhausted as error:
        refusal = f"{error}{_released_before(ledger)}"
    if refusal is not None:
        raise BudgetExhausted(refusal)
    return Outcome(order, noise.n_labels, noise.receipt, noise.left, ledger.budget(), already_done)


def _released_before(ledger: Ledger) -> str:
    """Say which commands have spent a ledger: their outputs are still there to be used, at no cost."""
    sources = [entry.body["source"] for entry in ledger.entries() if entry.body["kind"] == "charge"]
    commands = [source for source in sources if source.startswith("labeldp privatize")]
    return f" Released before: {commands[-1]}." if commands else ""


@dataclass(frozen=True, slots=True)
class Job:
    """One order with the table it is about."""

    order: Order
    table: Table
    others: list[str]
    progress: Progress

    @property
    def source(self) -> str:
        return self.order.source(mtime_ns=self.table.mtime_ns)

    def write(self) -> Noise:
        """Open the output, then read, charge and draw, then write; the output appears when it is whole."""
        order, table = self.order, self.table
        schema = noisy_schema(order, table, self.others)
        with Draft(order.out) as draft, KINDS[ending(order.out)](draft.file, schema) as sink:
            noise = self._noise()
            advance = self.progress("Writing", len(noise.numbers))
            pass_through(order, table, self.others, noise, sink=sink, schema=schema, advance=advance)
            sink.finish(self._facts(noise))
            draft.publish()
        return noise

    def confirm(self) -> Noise:
        """Return the noise again if the output holds it; otherwise the output is another file and is refused."""
        noise = self._noise()
        if not self._is_output(noise):
            refuse_existing(self.order.out)
        return noise

    @property
    def columns(self) -> Columns:
        return Columns(label=self.order.label, features=self.others, id_column=self.order.id_column)

    def _noise(self) -> Noise:
        """Read the labels and draw, after the book beside the file agreed to these columns and this ledger."""
        with open_book(self.order.data) as book:
            book.check(self.columns)
            book.ledger_for(self.order.ledger)
            return self._drawn(book)

    def _drawn(self, book: Book) -> Noise:
        order, table = self.order, self.table
        column = read_labels(
            table,
            label=order.label,
            id_column=order.id_column,
            classes=order.classes,
            missing=order.missing,
            advance=self.progress("Reading labels", table.n_rows),
        )
        table.check_unchanged()
        ids = None if column.ids is None else ids_as_text(column.ids, len(column.numbers))
        book.check_ids(order.ledger, ids)
        return draw(order, column, source=self.source, before=lambda: book.note(self.columns, order.ledger, ids))

    def _facts(self, noise: Noise) -> dict[str, Any]:
        """Return what a reader of the output needs to know of its noise; all of it public."""
        return {
            "format": FORMAT,
            "noisy_column": self.order.noisy_column,
            "classes": list(self.order.classes.names),
            "receipt": noise.receipt.to_json() | {"source": "labeldp privatize"},  # not the paths of this machine
            **({"said": "unchanged since an earlier run"} if self.order.unchanged else {}),
        }

    def _is_output(self, noise: Noise) -> bool:
        """Whether the file at `order.out` is what this order wrote: it has the same columns and the same noise."""
        out, noisy = self.order.out, self.order.noisy_column
        if not out.is_file():
            return False
        try:
            found = open_table(out)
            if found.names != [*self.others, noisy]:
                return False
            parts = [encode(batch.column(0), self.order.classes) for batch in found.batches([noisy])]
        except InvalidArgument:
            return False
        return bool(parts) and np.array_equal(np.concatenate(parts), noise.numbers)
