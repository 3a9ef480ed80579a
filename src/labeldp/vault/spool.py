"""The vault's own copy of every release, written before the release is handed over."""

from __future__ import annotations

from pathlib import Path

from labeldp.budget import Entry
from labeldp.budget.ledger import spool_folder, sync_folder
from labeldp.errors import LedgerError
from labeldp.vault.aggregates import AgreementRelease, HistogramRelease, SumRelease
from labeldp.vault.files import Stored, read_release, write_release
from labeldp.vault.release import KIND, Release

KINDS: dict[str, type[Stored]] = {
    KIND: Release,
    HistogramRelease.KIND: HistogramRelease,
    SumRelease.KIND: SumRelease,
    AgreementRelease.KIND: AgreementRelease,
}


class Spool:
    """Releases by ledger entry: in the folder beside a ledger's file, or in memory beside a ledger in memory.

    In memory only releases that were given a name are kept, because nothing else can be asked for again.
    """

    def __init__(self, ledger_path: Path | None) -> None:
        self._folder = None if ledger_path is None else spool_folder(ledger_path)
        self._kept: dict[int, Stored] = {}

    def write(self, entry: Entry, release: Stored) -> str:
        """Keep a release, durably where the ledger is durable; return the digest of its arrays."""
        if self._folder is None:
            if entry.body["request"]["name"] is not None:
                self._kept[entry.number] = release
            return "memory"
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._folder.parent)
        return write_release(self._file(entry), *release.contents())

    def read(self, entry: Entry, digest: str | None) -> Stored:
        """Return the release of an entry as it was spooled."""
        if self._folder is None:
            return self._kept[entry.number]
        facts, arrays = read_release(self._file(entry))
        if facts["arrays"] != digest:
            raise LedgerError(f"The spooled release of entry {entry.number} is not the one that the ledger recorded.")
        return KINDS[facts["kind"]].from_contents(facts, arrays)

    def _file(self, entry: Entry) -> Path:
        assert self._folder is not None
        return self._folder / f"{entry.number:06d}"
