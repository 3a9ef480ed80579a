"""The receipt of one query: what was asked, what it cost, and where the ledger says so."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from labeldp.budget import Entry
from labeldp.budget.certificate import NOT_PRIVATE
from labeldp.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was asked, what it cost, and the ledger entry (with its hash in the chain) that charged it."""

    query: str
    mechanism: dict[str, Any]
    epsilon: str
    delta: str
    realised_epsilon: float | None
    trust: str
    rows: dict[str, Any]
    labels_charged: int
    priors: dict[str, Any] | None
    dealing: int
    source: str
    name: str | None
    private: bool
    ledger: dict[str, Any]

    @classmethod
    def of_entry(cls, entry: Entry, ledger_id: str) -> Receipt:
        body = entry.body
        request = body["request"]
        return cls(
            query=request["query"],
            mechanism=request["mechanism"],
            epsilon=body["cost"]["epsilon"],
            delta=body["cost"]["delta"],
            realised_epsilon=body["realised_epsilon"],
            trust=body["trust"],
            rows=request["rows"],
            labels_charged=len(entry.runs),
            priors=request["priors"],
            dealing=body["dealing"],
            source=body["source"],
            name=request["name"],
            private=request["private"],
            ledger={"id": ledger_id, "entry": entry.number, "hash": entry.hash},
        )

    @classmethod
    def unprotected(cls, rows: dict[str, Any]) -> Receipt:
        """Return the receipt of true labels, which no ledger charged and nothing protects."""
        return cls(
            query="release",
            mechanism={"name": "Unprotected"},
            epsilon="infinite",
            delta="0",
            realised_epsilon=None,
            trust="none",
            rows=rows,
            labels_charged=0,
            priors=None,
            dealing=0,
            source="true labels",
            name=None,
            private=False,
            ledger={"id": None, "entry": None, "hash": None},
        )

    @classmethod
    def from_json(cls, values: Any) -> Receipt:
        try:
            return cls(**values)
        except TypeError:
            raise InvalidArgument("the file's receipt is not of this version of labeldp.") from None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        stamp = "" if self.private else f"{NOT_PRIVATE}: "
        delta = "" if self.delta == "0" else f", delta {self.delta}"
        return (
            f"{stamp}{self.mechanism['name']}, epsilon {self.epsilon}{delta} ({self.trust}, per label), "
            f"{self.labels_charged} of {self.rows['count']} labels charged, ledger entry {self.ledger['entry']}"
        )
