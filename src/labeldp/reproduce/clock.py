"""The wall time of a run that may be stopped and gone on with, and which data it reads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labeldp.files import renamed_when_whole
from labeldp.learning.records import Watch
from labeldp.reproduce.provenance import commit
from labeldp.runs.folder import RunFolder

Record = dict[str, Any]

AT_MOST_EVERY = 2.0
"""Seconds between two notes of the time."""


class Clock:
    """The sessions of a folder's runs, in a file beside it, which outlives a run that is removed.

    Each has the run's id, a digest of its data, how long it took, of which commit, and whether it had to compute features. A
    session that is killed counts up to the last record that its training told of. One that ended before there was a run is
    of none, and does not count.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.file = folder.path.with_name(f"{folder.path.name}.clock.json")

    def sessions(self) -> list[Record]:
        """Return the sessions of the run that is in the folder now."""
        run = self._run()
        return [session for session in self._of_all_runs() if run is not None and session["run"] == run]

    @contextmanager
    def session(self, watch: Watch | None, *, data: str) -> Iterator[Watch]:
        """Time what is done, and yield what to tell its records to: it hands them on.

        Parameters
        ----------
        data : a digest of the inputs.
        """
        earlier = self._of_all_runs()
        this = {"run": None, "data": data, "seconds": 0.0, "commit": commit(), "computed_features": False}
        began = noted = time.monotonic()

        def note() -> None:
            nonlocal noted
            noted = time.monotonic()
            this["run"] = this["run"] or self._run()
            this["seconds"] = round(noted - began, 1)
            self._write([*earlier, this])

        def tell(record: Record) -> None:
            if record["kind"] in ("features", "initial") and record.get("computed"):
                this["computed_features"] = True
            is_made = this["run"] is None and self.folder.exists
            if is_made or time.monotonic() - noted >= AT_MOST_EVERY:
                note()
            if watch is not None:
                watch(record)

        note()
        try:
            yield tell
        finally:
            note()

    def _of_all_runs(self) -> list[Record]:
        if not self.file.exists():
            return []
        found = json.loads(self.file.read_text(encoding="utf-8"))
        assert isinstance(found, list)
        sessions, run = [{"run": None} | session for session in found], self._run()
        if sessions and sessions[-1]["run"] is None and run not in {session["run"] for session in sessions}:
            sessions[-1]["run"] = run  # it was killed between making the run and noting it
        return sessions

    def _run(self) -> str | None:
        """Return the id of the run that is in the folder, if there is one."""
        return str(self.folder.facts()["id"]) if self.folder.exists else None

    def _write(self, sessions: list[Record]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with renamed_when_whole(self.file) as file:
            file.write((json.dumps(sessions, indent=1) + "\n").encode())
