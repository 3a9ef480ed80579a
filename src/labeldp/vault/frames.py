"""Failures while labels are in hand: they leave by name alone, without the frames that held a label, noise or a lost draw."""

from __future__ import annotations

import sys
from collections.abc import Callable
from traceback import clear_frames
from typing import TypeVar

from labeldp.errors import LabelDPError, TakenOver, VaultClosed

Result = TypeVar("Result")

OURS = (VaultClosed, TakenOver)
"""Failures whose own words hold no label, and say more."""
DRAW_FAILED = "The draw failed inside the vault ({})"


def guarded(work: Callable[[], Result], failed: str, *, passing: tuple[type[Exception], ...] = OURS) -> Result:
    """Work; if that fails, say no more than how: `failed`, with the kind of the failure in place of {}.

    Failures of the kinds in `passing`, whose own words hold no label, are raised anew with these.
    A Ctrl-C may come while a failure is handled, and then carries it as its context. So whatever failed comes here with frames
    that were emptied, and loses even those first.
    """
    failure: type[BaseException]
    try:
        return _emptied(work)
    except BaseException as error:
        error.__traceback__ = error.__context__ = error.__cause__ = None
        failure, said = type(error), error.args if isinstance(error, passing) else ()
        file = error.filename if isinstance(error, OSError) else None
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else None
    if issubclass(failure, passing):
        raise failure(*said, *([] if file is None else [file]))
    if issubclass(failure, SystemExit):
        raise SystemExit(code)
    if not issubclass(failure, Exception):  # Ctrl-C and its like, without the frames they interrupted
        raise _bare(failure)
    raise LabelDPError(failed.replace("{}", failure.__name__))


def _bare(failure: type[BaseException]) -> BaseException:
    try:
        return failure()
    except TypeError:  # it wants to be told more
        return KeyboardInterrupt()


def _emptied(work: Callable[[], Result]) -> Result:
    """Work; if that fails, empty every frame that the failure went through. Another failure meanwhile is `guarded`'s."""
    before = sys.exception()
    try:
        return work()
    except BaseException as error:
        link: BaseException | None = error
        while link is not None and link is not before:
            clear_frames(link.__traceback__)
            link = link.__context__
        raise
