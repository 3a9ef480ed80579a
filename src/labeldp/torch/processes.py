"""Several processes, one voice: whatever touches a vault or writes a run's files happens on the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lightning_fabric import Fabric

T = TypeVar("T")


def on_first_process(fabric: Fabric, ask: Callable[[], T]) -> T:
    """Ask on rank 0 alone, and hand the answer, or the error, to every rank."""
    if fabric.world_size == 1:
        return ask()
    answer: Any = None
    if fabric.is_global_zero:
        try:
            answer = ask()
        except Exception as error:
            answer = error
    answer = fabric.broadcast(answer)
    if isinstance(answer, Exception):
        raise answer
    return answer  # type: ignore[no-any-return]
