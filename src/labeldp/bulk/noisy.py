"""The noisy column: drawn in the vault, and put where the true one was dropped while the other columns stream by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.budget import Guarantee, Ledger
from labeldp.budget.ledger import refusal
from labeldp.bulk.arrow import pa
from labeldp.bulk.declared import MISSING
from labeldp.bulk.labels import LabelColumn
from labeldp.bulk.order import Order
from labeldp.bulk.sinks import Sink, bare
from labeldp.bulk.tables import ROWS_PER_BATCH, Table
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import RandomizedResponse
from labeldp.vault import LabelVault, Receipt
from labeldp.vault.labels import NumberedLabels


@dataclass(frozen=True, slots=True)
class Noise:
    """What came out of the vault: noisy class numbers of all rows, MISSING where there was no label."""

    numbers: NDArray[np.int32]
    receipt: Receipt
    left: Guarantee

    @property
    def n_labels(self) -> int:
        return int((self.numbers != MISSING).sum())


def draw(order: Order, column: LabelColumn, *, source: str, before: Callable[[], None]) -> Noise:
    """Seal the labels and release them once, by randomized response; the same order again is the same release.

    `before` is called before they are charged, and not if the budget is spent.
    """
    with LabelVault(
        NumberedLabels(column.numbers),
        classes=order.classes.names,
        ids=column.ids,
        ledger=order.ledger,
        missing=order.missing,
    ) as vault:
        ledger, cost = Ledger(order.ledger), Guarantee(order.epsilon.units)
        left = vault.remaining(vault.labelled)  # of this file's rows: others may have spent all of theirs
        if not left >= cost and ledger.named(order.name()) is None:
            raise refusal(cost, left, ledger.budget())
        before()
        release = vault.release(RandomizedResponse(order.epsilon), name=order.name(), source=source)
        left = vault.remaining(release.rows)
    numbers = np.full(len(column.numbers), MISSING, dtype=np.int32)
    numbers[release.rows] = release.label_numbers
    return Noise(numbers, release.receipt, left)


def noisy_schema(order: Order, table: Table, others: list[str]) -> Any:
    """Return the columns of the output: the public ones, bare of metadata, and the noisy one."""
    kind = pa.int64() if order.classes.integers else pa.string()
    return pa.schema([*(bare(table.schema.field(name)) for name in others), pa.field(order.noisy_column, kind)])


def pass_through(
    order: Order,
    table: Table,
    others: list[str],
    noise: Noise,
    *,
    sink: Sink,
    schema: Any,
    advance: Callable[[int], None],
) -> None:
    """Write the public columns and the noisy one; the true one is not read again."""
    names = pa.array(order.classes.names, type=schema.field(order.noisy_column).type)
    done, total = 0, len(noise.numbers)
    for n_rows, columns in _public_columns(table, others, total):
        if done + n_rows > total:
            raise _changed(table)
        numbers = noise.numbers[done : done + n_rows]
        noisy = names.take(pa.array(numbers, mask=numbers == MISSING))
        sink.write(pa.RecordBatch.from_arrays([*columns, noisy], schema=schema))
        done += n_rows
        advance(n_rows)
    if done != total:
        raise _changed(table)
    table.check_unchanged()


def _public_columns(table: Table, others: list[str], n_rows: int) -> Iterator[tuple[int, list[Any]]]:
    if others:
        for batch in table.batches(others):
            yield len(batch), batch.columns
    else:  # the labels were all there was
        for start in range(0, n_rows, ROWS_PER_BATCH):
            yield min(ROWS_PER_BATCH, n_rows - start), []


def _changed(table: Table) -> InvalidArgument:
    return InvalidArgument(
        f"{table.path} changed while it was read: it has another number of rows now. Nothing was written."
    )
