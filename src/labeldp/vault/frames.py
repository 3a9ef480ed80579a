"""Failures while labels are in hand: they leave by name alone, without the frames that held a label, noise or a lost draw."""

from __future__ import annotations

from collections.abc import Callable
from traceback import clear_frames
from typing import TypeVar

from labeldp.errors import LabelDPError, VaultClosed

Result = TypeVar("Result")

DRAW_FAILED = "The draw failed inside the vault ({})"


def guarded(work: Callable[[], Result], failed: str) -> Result:
    """Work; if that fails, say no more than how: `failed`, with the kind of the failure in place of {}.

    A Ctrl-C may come while a failure is handled, and then carries it as its context. So whatever failed comes here with frames
    that were emptied, and loses even those first.
    """
    failure: type[BaseException]
    try:
        return _emptied(work)
    except BaseException as error:
        error.__traceback__ = error.__context__ = error.__cause__ = None
        failure, said = type(error), str(error) if isinstance(error, VaultClosed) else ""
    if issubclass(failure, VaultClosed):
        raise VaultClosed(said)
    if not issubclass(failure, Exception):
        raise failure  # Ctrl-C and its like, without the frames they interrupted
    raise LabelDPError(failed.replace("{}", failure.__name__))


def _emptied(work: Callable[[], Result]) -> Result:
    """Work; if that fails, empty every frame that the failure went through. Another failure meanwhile is `guarded`'s."""
    try:
        return work()
    except BaseException as error:
        link: BaseException | None = error
        while link is not None:
            clear_frames(link.__traceback__)
            link = link.__context__
        raise
