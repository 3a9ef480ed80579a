"""What runs have given: DIR/TABLE.json, one record a line, and DIR/test-looks.md, one line per look at a test set.

Nothing is ever taken out. Records and looks may be added by several processes at once; a kill leaves a file whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labeldp.errors import InvalidArgument
from labeldp.files import renamed_when_whole

Record = dict[str, Any]

PROJECTS_OWN, OTHERWISE = Path("benchmarks") / "results", Path("results")
LOOKS = "test-looks.md"
LOOK_COLUMNS = ("time", "table", "recipe", "hash", "epsilon", "draw", "rows", "commit", "why")
HEADER = f"""# Looks at test sets

One line per training that `labeldp reproduce` begins, resumes or reads back, written before a figure on test data is there
or is stored. A run is tested at the end of each of its stages. A recipe that changes gets another hash; where a figure had a
part in a choice, its `about` says so. What other scripts test, their own results list.

| {" | ".join(LOOK_COLUMNS)} |
|{"---|" * len(LOOK_COLUMNS)}
"""


def now() -> str:
    """Return the time as records have it: UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def default_folder() -> Path:
    """Return where results are kept: benchmarks/results where that is, else results."""
    return PROJECTS_OWN if PROJECTS_OWN.is_dir() else OTHERWISE


class Results:
    """A folder of records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looks_file = folder / LOOKS

    def file(self, table: str) -> Path:
        return self.folder / f"{table}.json"

    def records(self, table: str) -> list[Record]:
        """Return a table's records, in the order in which they came."""
        file = self.file(table)
        if not file.exists():
            return []
        try:
            found = json.loads(file.read_text(encoding="utf-8"))["records"]
            if not all(isinstance(record["kind"], str) for record in found):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise InvalidArgument(
                f"{file} does not hold records of labeldp reproduce: name another folder by --results, or bring the file back."
            ) from None
        return list(found)

    def of_run(self, table: str, run: str) -> Record | None:
        """Return the record of a run, by the id that is in its folder."""
        return next((record for record in self.records(table) if record.get("run") == run), None)

    def append(self, table: str, record: Record) -> bool:
        """Add a record, and say whether it was new: a run has one."""
        with self._locked():
            records = self.records(table)
            if "run" in record and any(other.get("run") == record["run"] for other in records):
                return False
            lines = ",\n".join(json.dumps(each) for each in [*records, record])
            with renamed_when_whole(self.file(table)) as file:
                file.write(f'{{"records": [\n{lines}\n]}}\n'.encode())
        return True

    def looks(self, table: str) -> list[Record]:
        """Return a table's looks, in the order in which they came; every value is text, "" where nothing is noted."""
        lines = self.looks_file.read_text(encoding="utf-8").splitlines() if self.looks_file.exists() else []
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("| 2")]
        found = [dict(zip(LOOK_COLUMNS, row, strict=True)) for row in rows if len(row) == len(LOOK_COLUMNS)]
        return [look for look in found if look["table"] == table]

    def look(self, **facts: Any) -> None:
        """Note a look at a test set, before it is taken."""
        cells = {"time": now()} | facts
        line = " | ".join(str(cells.get(column, "")).replace("|", "/").replace("\n", " ") for column in LOOK_COLUMNS)
        with self._locked():
            if not self.looks_file.exists():
                with renamed_when_whole(self.looks_file) as file:
                    file.write(HEADER.encode())
            with self.looks_file.open("ab") as file:
                file.write(f"| {line} |\n".encode())
                file.flush()
                os.fsync(file.fileno())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing into the folder; it is itself the lock, so that no other file is needed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)
