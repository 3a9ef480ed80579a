"""The vault's own copy of every release, written before the release is handed over."""

from __future__ import annotations

from pathlib import Path

from labeldp.budget import Entry
from labeldp.budget.ledger import spool_folder
from labeldp.budget.storage import sync_folder
from labeldp.errors import InvalidArgument, LedgerError
from labeldp.vault.aggregates import AgreementRelease, HistogramRelease, SumRelease
from labeldp.vault.files import Stored, file_digest, read_release, write_release
from labeldp.vault.release import KIND, Release

IN_MEMORY = "memory"

KINDS: dict[str, type[Stored]] = {
    KIND: Release,
    HistogramRelease.KIND: HistogramRelease,
    SumRelease.KIND: SumRelease,
    AgreementRelease.KIND: AgreementRelease,
}


class Spool:
    """Releases by ledger entry: in the folder beside a ledger's file, or in memory beside a ledger in memory.

    In memory a release without a name is kept only until it is handed over, because after that nothing can ask for it.
    """

    def __init__(self, ledger_path: Path | None) -> None:
        self._folder = None if ledger_path is None else spool_folder(ledger_path)
        self._kept: dict[int, Stored] = {}

    def write(self, entry: Entry, release: Stored) -> str:
        """Keep a release, durably where the ledger is durable; return its digest."""
        if self._folder is None:
            self._kept[entry.number] = release
            return IN_MEMORY
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._folder.parent)
        path = self._file(entry)
        for unfinished in self._folder.glob(f"{path.name}.*.new"):  # of a process that died while it wrote
            unfinished.unlink(missing_ok=True)
        return write_release(path, *release.contents())

    def found(self, entry: Entry) -> str | None:
        """Return the digest of a whole release of an entry that the ledger does not know to be spooled, if there is one."""
        if self._folder is None:
            return IN_MEMORY if entry.number in self._kept else None
        try:
            digest = file_digest(self._json(entry))
            release = self.read(entry, digest)
        except (OSError, LedgerError):
            return None
        return digest if release.receipt.ledger["hash"] == entry.hash else None

    def read(self, entry: Entry, digest: str | None) -> Stored:
        """Return the release of an entry as it was spooled."""
        if self._folder is None:
            return self._kept[entry.number]
        try:
            if file_digest(self._json(entry)) != digest:
                raise LedgerError(
                    f"The spooled release of entry {entry.number} is not the one that the ledger recorded."
                )
            facts, arrays = read_release(self._file(entry))
            return KINDS[facts["kind"]].from_contents(facts, arrays)
        except (OSError, KeyError, InvalidArgument):
            raise LedgerError(
                f"The spooled release of entry {entry.number} is missing or damaged. Restore {self._folder} from a copy: it "
                "is not drawn again under the same charge."
            ) from None

    def settle(self, entry: Entry) -> None:
        """Let go of what was handed over and cannot be asked for again."""
        if entry.body["request"]["name"] is None:
            self._kept.pop(entry.number, None)

    def _file(self, entry: Entry) -> Path:
        assert self._folder is not None
        return self._folder / f"{entry.number:06d}"

    def _json(self, entry: Entry) -> Path:
        return self._file(entry).with_suffix(".json")
