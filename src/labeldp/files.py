"""Files that are whole or not there, also where several processes and threads write the same one at the same time."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".new"


@contextmanager
def renamed_when_whole(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that gets its name once it is written and synced, and vanishes if that fails."""
    fresh = fresh_name(path)
    try:
        with fresh.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def fresh_name(path: Path) -> Path:
    """Return a name in the same folder that nobody else has."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
