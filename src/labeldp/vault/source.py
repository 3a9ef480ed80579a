"""Where public priors, groups or tables came from, in the certificate's words."""

from __future__ import annotations

from collections.abc import Sequence

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.vault.files import Stored

Source = str | Stored | Sequence[Stored] | None


def source_words(source: Source, *, needed: bool, private: bool, ledger_id: str) -> str:
    """Return a caller's sentence, or name the releases that it gave; a private vault rests on private releases alone."""
    if source is None:
        return "not stated" if needed else "none needed"
    if isinstance(source, str):
        return checks.text(source=source, at_most=10_000)
    releases = [source] if isinstance(source, Stored) else list(source) if isinstance(source, (list, tuple)) else []
    if not releases or not all(isinstance(release, Stored) for release in releases):
        raise InvalidArgument("source must be a sentence, a release, or a list of releases.")
    if private and not all(release.private for release in releases):
        raise InvalidArgument(
            "source must not be a release that is NOT PRIVATE: what follows from it protects nothing."
        )
    ledgers = [release.receipt.ledger for release in releases]
    named = "releases " + ", ".join(f"{ledger['entry']} of ledger {ledger['id']}" for ledger in ledgers)
    foreign = any(ledger["id"] != ledger_id for ledger in ledgers)
    return f"{named}; what another ledger charged, and whom it trusted, is not covered here" if foreign else named
