"""A pass over rows: charged once before its first draw, then answered batch by batch, each row at most once.

The tables of later batches may follow from the answers to earlier ones, as in stochastic gradient descent. A pass lives in
the process that opened it and is never resumed: after a crash its rows stay charged, and another pass is another charge.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget import Guarantee, Ledger, Runs
from labeldp.budget.certificate import PASS
from labeldp.errors import InvalidArgument, LabelDPError, VaultClosed
from labeldp.mechanisms.normal import Integers, NormalResponse
from labeldp.randomness import Bits
from labeldp.vault.frames import DRAW_FAILED, guarded
from labeldp.vault.receipt import Receipt

Rows = NDArray[np.int64]

QUERY = PASS
FAILED = f"{DRAW_FAILED} in a pass. Nothing was handed over; these rows count as answered."
ANSWERS = "each row at most once"
TABLES = "public inputs and this pass's own earlier answers"

BLOCK = 2**17
"""How many numbers of noise are drawn ahead: drawing many at once is quicker, and needs neither label nor table."""


class Pass(Protocol):
    """What a holder returns for `normal_pass`: `NormalPass` of a vault, `ColumnPass` of a sealed column."""

    @property
    def receipt(self) -> Receipt: ...

    @property
    def unanswered(self) -> int: ...

    def answer(self, rows: Any, table: Any) -> Integers: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class NormalPass:
    """Answers about rows that were charged together, each row at most once. Made by `LabelVault.normal_pass`.

    Privacy
    -------
    (epsilon, delta)-label-DP for every row, however the tables are chosen: docs/proofs/normal.md. Nothing but the sum of a
    label's vector and its noise leaves; the check of a table reads the table alone. A refused table uses up no row.

    >>> vault = ldp.LabelVault([0, 1, 1, 0], classes=2, budget="1", delta="1e-6")
    >>> response = NormalResponse(epsilon="1", delta="1e-6", dimension=1, squared_sensitivity=100)
    >>> with vault.normal_pass(response) as steps:
    ...     answers = steps.answer([0, 1], [[[0], [10]], [[5], [-5]]])
    >>> answers.shape, steps.unanswered, str(vault.spent())
    ((2, 1), 2, 'epsilon 1, delta 0.000001')
    """

    def __init__(
        self,
        mechanism: NormalResponse,
        rows: Rows,
        receipt: Receipt,
        *,
        n_rows: int,
        n_classes: int,
        bits: Bits,
        read: Callable[[Rows], NDArray[Any]],
    ) -> None:
        self._mechanism = mechanism
        self._receipt = receipt
        self._n_classes = n_classes
        self._bits = bits
        self._read = read
        self._rows = rows
        self._in_pass = np.zeros(n_rows, dtype=np.bool_)
        self._in_pass[rows] = True
        self._waiting = self._in_pass.copy()
        self._ahead: Integers = np.empty(0, dtype=np.int64)
        self._used = 0
        self._over = False
        self._lock = threading.Lock()
        self._pid = os.getpid()
        _open_passes.add(self)

    @property
    def receipt(self) -> Receipt:
        return self._receipt

    @property
    def unanswered(self) -> int:
        """How many rows of the pass have not been answered; they are charged all the same."""
        return int(self._waiting.sum())

    def answer(self, rows: Any, table: Any) -> Integers:
        """Return, for each row, the vector of its label plus noise: whole numbers, shape (rows, dimension).

        Parameters
        ----------
        rows : rows of the pass that were not answered yet: a mask over the vault's rows or strictly increasing row numbers;
            None means all rows of the pass.
        table : the public vectors of every class, whole numbers of shape (rows, classes, dimension), made from public
            inputs and earlier answers. If two of one row are further apart than declared, nothing is answered.
        """
        asked = self._rows if rows is None else checks.rows(rows, len(self._in_pass))
        vectors = self._mechanism.checked(table, n_rows=len(asked), n_classes=self._n_classes)
        if self._pid != os.getpid():
            raise VaultClosed("This pass was copied by a fork, which closes it here. Open a pass in this process.")
        with self._lock:
            if self._over:
                raise LabelDPError("This pass is over. Another pass over the same rows is charged anew.")
            self._check(asked)
            return guarded(lambda: self._drawn(asked, vectors), FAILED)

    def _check(self, asked: Rows) -> None:
        if not self._in_pass[asked].all():
            raise InvalidArgument("rows must all be rows of this pass; some of these were not charged for it.")
        if not self._waiting[asked].all():
            raise InvalidArgument(
                "rows must each be answered at most once in a pass; some of these were answered already. Another answer about "
                "them is another pass, with its own charge."
            )

    def _drawn(self, asked: Rows, vectors: Integers) -> Integers:
        noise = self._noise(len(asked) * self._mechanism.dimension).reshape(len(asked), -1)
        try:
            true_labels = self._read(asked)
            self._waiting[asked] = False  # before anything that depends on them is computed
            return self._mechanism.answer(true_labels, vectors, noise)
        finally:
            noise.fill(0)

    def _noise(self, count: int) -> Integers:
        """Return noise that nobody else was or will be given; what is kept ahead is wiped as it is used.

        An interrupt may lose noise between any two lines; none may leave wiped noise to be used.
        """
        if count > BLOCK:
            return self._mechanism.noise(count, self._bits)
        if self._used + count > len(self._ahead):
            self._wipe()
            needed = self.unanswered * self._mechanism.dimension
            self._ahead = self._mechanism.noise(max(count, min(BLOCK, needed)), self._bits)
        start = self._used
        self._used = start + count  # first: from here on these are nobody's but ours
        taken = self._ahead[start : start + count].copy()
        self._ahead[start : start + count] = 0
        return taken

    def _wipe(self) -> None:
        forgotten = self._ahead
        self._ahead = np.empty(0, dtype=np.int64)  # first, for the same reason
        self._used = 0
        forgotten.fill(0)

    def close(self) -> None:
        """End the pass. Rows that were not answered stay charged."""
        with self._lock:
            self._over = True
            self._wipe()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()  # the parent's may have been held by a thread that does not exist here
        self._over = True
        self._wipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __copy__(self) -> NormalPass:
        return self

    def __deepcopy__(self, memo: object) -> NormalPass:
        return self

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("A pass is never pickled: a copy could answer the same rows again.")

    def __repr__(self) -> str:
        stamp = "" if self._receipt.private else ", NOT PRIVATE"
        return f"<NormalPass over {len(self._rows)} rows, {self.unanswered} not answered yet{stamp}>"


class ColumnPass:
    """A pass over rows of a sealed column: its row i is the i-th of the column."""

    def __init__(self, of_holder: Pass, column_rows: Rows) -> None:
        self._of_holder = of_holder
        self._column_rows = column_rows

    @property
    def receipt(self) -> Receipt:
        return self._of_holder.receipt

    @property
    def unanswered(self) -> int:
        return self._of_holder.unanswered

    def answer(self, rows: Any, table: Any) -> Integers:
        """Return the label's vector plus noise for rows of the column; see `NormalPass.answer`."""
        theirs = None if rows is None else self._column_rows[checks.rows(rows, len(self._column_rows))]
        return self._of_holder.answer(theirs, table)

    def close(self) -> None:
        self._of_holder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def notes_of(mechanism: NormalResponse, source: str | None) -> dict[str, Any]:
    """Return what the ledger notes beside the request for a pass."""
    return {
        "trust": "local",
        "dealing": 0,
        "source": TABLES if source is None else f"{TABLES}; {source}",
        "realised_epsilon": mechanism.realised_epsilon,
    }


def charged_once(
    ledger: Ledger, request: dict[str, Any], notes: dict[str, Any], runs: Runs, cost: Guarantee
) -> Receipt:
    """Charge a pass, durably, and note at once that it left: no later question is ever answered under its charge."""
    entry = ledger.charge(request, notes, runs, cost)
    ledger.mark_handed_over(entry)
    return Receipt.of_entry(entry, ledger.id)


_open_passes: weakref.WeakSet[NormalPass] = weakref.WeakSet()


def _close_after_fork() -> None:
    for open_pass in list(_open_passes):
        open_pass._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_after_fork)
