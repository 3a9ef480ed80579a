"""A certificate in words: what is promised, whom one has to trust, and every query with its cost."""

from __future__ import annotations

from typing import Any

from labeldp.report import page
from labeldp.report.words import TRUST, count, is_private, spent

Certificate = dict[str, Any]
TOLD_ELSEWHERE = {
    "format",
    "private",
    "stamp",
    "guarantee",
    "trust",
    "interaction",
    "spent",
    "budget",
    "raises",
    "queries",
    "people",
}
NAMES = {
    "unit": "Unit",
    "adjacency": "Neighbours",
    "composition": "Composition",
    "dearest label": "The most charged label",
    "ledger": "Ledger",
    "ledger file": "Ledger file",
}


def in_words(certificate: Certificate) -> list[str]:
    """Return the parts of a section on one certificate."""
    kind = "promise" if is_private(certificate) else "promise broken"
    return [
        page.paragraph(str(certificate.get("guarantee", "The certificate states no guarantee.")), kind=kind),
        f'<div class="card">{page.facts(_facts(certificate))}</div>',
        _queries(certificate),
    ]


def not_private(certificates: list[Certificate]) -> str:
    """Return a banner if any of the certificates does not say private, and nothing otherwise."""
    stamps = [str(one.get("stamp", "")) for one in certificates if not is_private(one)]
    if not stamps:
        return ""
    why = stamps[0].removeprefix("NOT PRIVATE:").strip() or "The certificate does not say that this run is private."
    return page.banner("NOT PRIVATE", f"{why[0].upper()}{why[1:]} Nothing below protects any label.")


def queries(certificate: Certificate) -> list[dict[str, Any]]:
    """Return the queries that a certificate lists."""
    listed = certificate.get("queries")
    return [query for query in listed if isinstance(query, dict)] if isinstance(listed, list) else []


def _facts(certificate: Certificate) -> list[tuple[str, str]]:
    trust, interaction = str(certificate.get("trust", "not stated")), str(certificate.get("interaction", ""))
    manner = f" Interaction: {interaction}." if interaction not in ("", trust) else ""
    epsilon, delta = spent(certificate)
    facts = [
        ("Trust model", TRUST.get(trust, trust) + manner),
        ("Spent", f"epsilon {epsilon}, delta {delta}: the most that any label has spent."),
    ]
    budget = certificate.get("budget")
    if isinstance(budget, dict):
        facts.append(("Budget", f"epsilon {budget.get('epsilon')}, delta {budget.get('delta')} for each label."))
    if raises := certificate.get("raises"):
        facts += [("Budget raised", _joined(entry)) for entry in raises]
    if people := certificate.get("people"):
        facts.append(("People", _joined(people)))
    facts += [
        (NAMES.get(key, key[:1].upper() + key[1:]), _joined(value))
        for key, value in certificate.items()
        if key not in TOLD_ELSEWHERE and value is not None
    ]
    return facts


def _joined(value: Any) -> str:
    return ", ".join(f"{key} {_joined(part)}" for key, part in value.items()) if isinstance(value, dict) else str(value)


def _queries(certificate: Certificate) -> str:
    asked = queries(certificate)
    if not asked:
        return page.paragraph("The certificate lists no query.", kind="empty")
    ledger = certificate.get("ledger")
    own = f" of ledger {ledger.get('id')}" if isinstance(ledger, dict) else ""
    head = (
        "entry",
        "query",
        "mechanism",
        "epsilon",
        "delta",
        "labels asked",
        "labels charged",
        "source of prior or groups",
    )
    rows = [
        (
            str(query.get("entry", "")),
            _with_name(query),
            _mechanism(query.get("mechanism")),
            str(query.get("epsilon", "")),
            str(query.get("delta", "0")),
            _count(query.get("labels asked")),
            _count(query.get("labels charged")),
            str(query.get("source", "not stated")).replace(own, " of this ledger") if own else str(query.get("source")),
        )
        for query in asked
    ]
    caption = "Every query, in the order of the ledger. A row whose report does not depend on its label is not charged."
    return page.table(caption, head, rows, words=(1, 2, 7))


def _with_name(query: dict[str, Any]) -> str:
    kind, name = str(query.get("query", "")), query.get("name")
    return f"{kind} “{name}”" if name else kind


def _mechanism(mechanism: Any) -> str:
    if not isinstance(mechanism, dict):
        return str(mechanism)
    settings = [f"{key} {value}" for key, value in mechanism.items() if key not in ("name", "epsilon")]
    return ", ".join([str(mechanism.get("name", "not stated")), *settings])


def _count(number: Any) -> str:
    return count(number) if isinstance(number, int) else "not stated"
