"""The certificate of a run: what its ledger says, which releases that covers, and what nothing protects."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from labeldp.errors import InvalidArgument
from labeldp.runs import initial, ledgers, specs
from labeldp.runs.folder import Record, RunFolder
from labeldp.vault import HistogramRelease, LabelVault, Release

LEARNED_FROM = "the releases that this model learned from"
PUBLIC_LABELS = (
    "its labels are public: they were read as they are, to test models on, and nothing protects them. Test figures come from "
    "them, and are no part of the guarantee"
)


def of_run(folder: RunFolder, vault: LabelVault, facts: Record, answered: Iterable[int] = ()) -> Record:
    """Return the certificate of a run, with what its ledger does not know."""
    certificate = vault.certificate() | {"ledger file": facts["ledger"], "ledger place": ledgers.in_words(facts)}
    covered = _covered(folder, certificate, "the releases of this run", answered)
    earlier = folder.certificate() if folder.certificate_file.exists() else {}
    return certificate | covered | _stated(facts, earlier) | _unprotected(facts)


def of_model(certificate: Record, holder: RunFolder, facts: Record) -> Record:
    """Return a certificate as one of a model that learned from the releases in a folder, whoever asked for them."""
    return certificate | _covered(holder, certificate, LEARNED_FROM) | _stated(facts, certificate) | _unprotected(facts)


def _covered(folder: RunFolder, certificate: Record, releases: str, answered: Iterable[int] = ()) -> Record:
    """Say what a certificate speaks of: the releases in a folder, and all else that their ledger had charged by then.

    `answered` are the ledger's entries of releases that are about to be stored there.
    """
    entries = sorted({*answered, *map(_entry, folder.path.glob("release-*.json"))})
    others = [query for query in certificate["queries"] if query["entry"] not in entries]
    more = f" and {len(others)} other queries" if others else ""
    numbers = ", ".join(map(str, entries))
    return {
        "covers": f"{releases} (ledger entries {numbers}){more}: all that its ledger had released up to entry "
        f"{certificate['ledger']['entry']}. What is charged later, and what is listed as unprotected, is not covered"
    }


def _entry(release: Path) -> int:
    return int(json.loads(release.read_text(encoding="utf-8"))["receipt"]["ledger"]["entry"])


def _stated(facts: Record, earlier: Record) -> Record:
    """Say that features, or weights that they were made by, of a user's own are public by the user's word alone.

    What an earlier certificate of the run says of the features that labels were asked by stays: another model unsays nothing.
    """
    before, reads = earlier.get("features"), facts["reads"]
    if reads is None or not specs.parse(reads["spec"]).is_of_files:
        return {} if before is None else {"features": before}
    stated = f"the model reads {reads['spec']} (digest {reads['digest']}), which the caller states are public"
    said = stated if before is None else before if stated in before else f"{before}; {stated}"
    return {"features": said}


def _unprotected(facts: Record) -> Record:
    """List every public test that models of the run were ever tested on, and whose labels any began with."""
    read = facts["unprotected"]
    why = {each: initial.WORDS if each.startswith(initial.READ) else PUBLIC_LABELS for each in read}
    return {"unprotected": why} if read else {}


def check(folder: RunFolder) -> None:
    """Raise unless a folder's releases are all there and whole, and its certificate speaks of them."""
    releases: list[Release | HistogramRelease] = [*folder.releases()]
    releases += [each for each in (folder.hold_out(), folder.counts()) if each is not None]
    certificate = folder.certificate()
    known = {(certificate["ledger"]["id"], query["entry"], query["private"]) for query in certificate["queries"]}
    told = {(each.receipt.ledger["id"], each.receipt.ledger["entry"], each.private) for each in releases}
    if not known >= told:
        raise InvalidArgument(
            f"{folder.path} holds a release that its certificate does not know: it was stopped before that was certified "
            "(resume that run first), or the file is of another run."
        )
