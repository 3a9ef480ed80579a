"""The wall time of a run that may be stopped and gone on with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labeldp.files import renamed_when_whole
from labeldp.reproduce.provenance import commit
from labeldp.runs.folder import Watch

Record = dict[str, Any]

AT_MOST_EVERY = 2.0
"""Seconds between two notes of the time."""


class Clock:
    """The sessions of a run, in a file: how long each took, of which commit, whether it had to compute features.

    A session that is killed counts up to the last record that its training told of.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def sessions(self) -> list[Record]:
        if not self.file.exists():
            return []
        found = json.loads(self.file.read_text(encoding="utf-8"))
        assert isinstance(found, list)
        return found

    @contextmanager
    def session(self, watch: Watch | None) -> Iterator[Watch]:
        """Time what is done, and yield what to tell its records to: it hands them on."""
        earlier, this = self.sessions(), {"seconds": 0.0, "commit": commit(), "computed_features": False}
        began = noted = time.monotonic()

        def note() -> None:
            nonlocal noted
            noted = time.monotonic()
            this["seconds"] = round(noted - began, 1)
            self._write([*earlier, this])

        def tell(record: Record) -> None:
            if record["kind"] in ("features", "initial") and record.get("computed"):
                this["computed_features"] = True
            if time.monotonic() - noted >= AT_MOST_EVERY:
                note()
            if watch is not None:
                watch(record)

        note()
        try:
            yield tell
        finally:
            note()

    def _write(self, sessions: list[Record]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with renamed_when_whole(self.file) as file:
            file.write((json.dumps(sessions, indent=1) + "\n").encode())
