"""Charge durably, then draw, then spool, then hand over: the first law, in one place.

The caller holds the ledger's exclusive lock, so an entry that is charged but not handed over belongs to a query that died.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from labeldp.budget import Entry, Guarantee, Ledger, Runs
from labeldp.errors import InvalidArgument
from labeldp.vault.files import Stored
from labeldp.vault.frames import DRAW_FAILED, guarded
from labeldp.vault.receipt import Receipt
from labeldp.vault.spool import Spool

T = TypeVar("T", bound=Stored)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[T]):
    """A query ready to be charged: the ledger rows that its answer depends on, and how to draw the answer."""

    runs: Runs
    draw: Callable[[Receipt], T]


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A query: what is asked (public), what the ledger notes beside it, what it costs, and how it is prepared.

    `prepare` takes the dealing key, which an interrupted query has fixed already.
    """

    request: dict[str, Any]
    notes: dict[str, Any]
    cost: Guarantee
    prepare: Callable[[int], Prepared[T]]
    kind: type[T]


def answer(ledger: Ledger, spool: Spool, question: Question[T]) -> T:
    """Answer a question, or finish or repeat the answer that it was given before."""
    entry, state, digest = _earlier(ledger, question.request)
    if entry is not None and state == "charged" and (digest := spool.found(entry)) is not None:
        ledger.mark_spooled(entry, digest)  # it was spooled, but its process died before it could say so
        state = "spooled"
    if entry is not None and state != "charged":
        release = spool.read(entry, digest)
        assert isinstance(release, question.kind)
    else:
        prepared = question.prepare(question.notes["dealing"] if entry is None else entry.body["dealing"])
        if entry is not None and prepared.runs.digest() != entry.runs.digest():
            entry, prepared = None, question.prepare(question.notes["dealing"])  # not what the earlier charge covers
        if entry is None:
            entry = ledger.charge(question.request, question.notes, prepared.runs, question.cost)
        release = _draw_and_spool(ledger, spool, entry, prepared)
    ledger.mark_handed_over(entry)
    spool.settle(entry)
    return release


def _earlier(ledger: Ledger, request: dict[str, Any]) -> tuple[Entry | None, str | None, str | None]:
    """Return the entry that already paid for this request, if it may be answered again, and how far it got."""
    if request["name"] is None:
        entry = ledger.interrupted(request)
    else:
        entry = ledger.named(request["name"])
        if entry is not None and entry.body["request"] != request:
            raise InvalidArgument(
                f"the name {request['name']!r} belongs to another request of this ledger (entry {entry.number}); the same "
                "name asks for the same mechanism, rows and priors again."
            )
    return (None, None, None) if entry is None else (entry, *ledger.progress(entry))


def _draw_and_spool(ledger: Ledger, spool: Spool, entry: Entry, prepared: Prepared[T]) -> T:
    return guarded(
        lambda: _drawn_and_spooled(ledger, spool, entry, prepared),
        f"{DRAW_FAILED} after it was charged (ledger entry {entry.number}). Nothing was handed over: ask the same again, and "
        "it is completed under the same charge.",
    )


def _drawn_and_spooled(ledger: Ledger, spool: Spool, entry: Entry, prepared: Prepared[T]) -> T:
    release = prepared.draw(Receipt.of_entry(entry, ledger.id))
    ledger.check_not_taken_over(entry)  # or what the other process spooled would be written over
    ledger.mark_spooled(entry, spool.write(entry, release))
    return release
