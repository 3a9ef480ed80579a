"""The certificate: what was asked, what it cost, by which composition, under which adjacency, in which trust model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.epsilon import decimal_text
from labeldp.budget.guarantee import Guarantee
from labeldp.budget.history import Entry, guarantee_of
from labeldp.budget.ledger import Ledger

FORMAT = "labeldp-certificate-1"
PASS = "normal pass"
"""The query whose answers about some labels may follow from its answers about others."""

NOT_PRIVATE = "NOT PRIVATE"
STAMP = f"{NOT_PRIVATE}: some noise came from a seeded generator and can be replayed."

ADJACENCY = (
    "One label is replaced by another of the declared classes. Features, class list, row count, row order, row ids, which "
    "labels are missing, partitions, groups and priors are public and not protected."
)
COMPOSITION = (
    "Costs of queries on the same label add up, exactly; queries on disjoint labels cost what the dearest of them costs. "
    "Queries may be chosen adaptively: a query past the budget of any of its labels is refused before anything is drawn."
)


@dataclass(frozen=True, slots=True)
class People:
    """How labels belong to people: one person number per row of the dataset."""

    person_of_row: NDArray[np.int64]
    ledger_rows: NDArray[np.int64]

    def summary(self, ledger: Ledger) -> dict[str, Any]:
        """Return what one person may lose, over the rows of this dataset."""
        labels = np.bincount(self.person_of_row)
        elsewhere = (ledger.n_rows() or 0) - len(self.ledger_rows)
        epsilons, deltas = ledger.spending_by_row(self.ledger_rows)
        return {
            "people": len(labels),
            "largest number of labels of one person": int(labels.max()),
            "largest epsilon of one person": decimal_text(self._largest_sum(epsilons), 12),
            **({"largest delta of one person": decimal_text(self._largest_sum(deltas), 18)} if deltas.any() else {}),
            **({"rows of this ledger that are not counted here": elsewhere} if elsewhere > 0 else {}),
        }

    def _largest_sum(self, units: NDArray[np.int64]) -> int:
        """Return the most units of any person, added in two halves, whose sums cannot overflow."""
        high, low = (self._sums(half) for half in np.divmod(units, 10**9))
        return int((high.astype(object) * 10**9 + low).max())

    def _sums(self, of_rows: NDArray[np.int64]) -> NDArray[np.int64]:
        sums = np.zeros(int(self.person_of_row.max()) + 1, dtype=np.int64)
        np.add.at(sums, self.person_of_row, of_rows)
        return sums


def certificate(ledger: Ledger, people: People | None = None) -> dict[str, Any]:
    """Return the certificate of everything that a ledger has recorded, as JSON values."""
    entries = ledger.entries()
    queries = [_query(entry) for entry in entries if entry.body["kind"] == "charge"]
    private = all(query["private"] for query in queries)
    curator = any(query["trust"] == "curator" for query in queries)
    spent, budget = ledger.spent(), ledger.budget()
    stages = len(queries) > 1 or any(query["query"] == PASS for query in queries)  # later ones may follow from earlier
    return {
        "format": FORMAT,
        "private": private,
        **({} if private else {"stamp": STAMP}),
        "guarantee": _words(spent, curator) if private else STAMP,
        "trust": "curator" if curator else "local",
        "interaction": "curator" if curator else "sequentially interactive local" if stages else "local",
        "unit": "per label, not per person" if people is None else "per label; people below",
        **({} if people is None else {"people": people.summary(ledger)}),
        "adjacency": ADJACENCY,
        "composition": COMPOSITION,
        "dearest label": _sum(ledger.charges_of(None), spent),
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta},
        "raises": [_raise(entry) for entry in entries if entry.body["kind"] == "raise"],
        "queries": queries,
        "ledger": {"id": entries[0].body["ledger"], "entry": entries[-1].number, "hash": entries[-1].hash},
    }


def _words(spent: Guarantee, curator: bool) -> str:
    if spent == Guarantee(0):
        return "Nothing that depends on a label has been released."
    trusted = "its owner and the label holder, who aggregated before adding noise" if curator else "its owner alone"
    return f"Label differential privacy with {spent} for every label; each label was entrusted to {trusted}."


def _sum(charges: list[Entry], spent: Guarantee) -> str:
    """Spell the sequential composition out: what the label that was charged most was charged for."""
    if not charges:
        return "no label was charged"
    terms = [
        f"{entry.body['cost']['epsilon']} (entry {entry.number}, {entry.body['request']['mechanism']['name']})"
        for entry in charges
    ]
    deltas = [entry.body["cost"]["delta"] for entry in charges if entry.body["cost"]["delta"] != "0"]
    with_delta = f"; delta {' + '.join(deltas)} = {_delta_of(charges)}" if deltas else ""
    return f"epsilon {' + '.join(terms)} = {spent.epsilon}{with_delta}"


def _delta_of(charges: list[Entry]) -> str:
    return decimal_text(sum(guarantee_of(entry.body["cost"]).delta_units for entry in charges), 18)


def _query(entry: Entry) -> dict[str, Any]:
    body = entry.body
    request = body["request"]
    return {
        "entry": entry.number,
        "query": request["query"],
        "mechanism": request["mechanism"],
        "epsilon": body["cost"]["epsilon"],
        "delta": body["cost"]["delta"],
        "realised_epsilon": body["realised_epsilon"],
        "trust": body["trust"],
        "labels asked": request["rows"]["count"],
        "labels charged": len(entry.runs),
        "priors": request["priors"],
        "groups": request["groups"],
        "source": body["source"],
        "name": request["name"],
        "private": request["private"],
        "time": body["time"],
    }


def _raise(entry: Entry) -> dict[str, Any]:
    return {"entry": entry.number, **{key: entry.body[key] for key in ("budget", "reason", "time")}}
