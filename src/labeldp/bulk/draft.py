"""A file that appears under its name whole, or not at all."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from labeldp.budget.storage import sync_folder
from labeldp.errors import InvalidArgument, LabelDPError


class Draft:
    """A temporary sibling of a file, removed unless published; what killed runs left behind is removed first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
        self.file: BinaryIO

    def __enter__(self) -> Draft:
        ours = re.compile(rf"\.{re.escape(self._path.name)}\.[0-9a-f]{{12}}\.part")
        for leftover in self._path.parent.iterdir():
            if ours.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)
        self.file = self._fresh.open("xb")
        return self

    def publish(self) -> None:
        """Give the file its name, after it is on disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        refuse_existing(self._path)
        try:
            os.replace(self._fresh, self._path)
        except FileNotFoundError:  # a later run took it for a leftover
            raise LabelDPError(f"another run of the same command is writing {self._path}; let it finish.") from None
        sync_folder(self._path.parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a full disk has been told already
            self.file.close()
        self._fresh.unlink(missing_ok=True)


def refuse_existing(path: Path) -> None:
    """Never write over a file."""
    if path.exists() or path.is_symlink():
        raise InvalidArgument(f"{path} exists; remove it or choose another --out.")
