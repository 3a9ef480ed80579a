"""`labeldp vault`: the owner's acts on a ledger."""

from __future__ import annotations

import json
from pathlib import Path

import click

from labeldp.budget import Epsilon, Guarantee, Ledger, create_ledger
from labeldp.cli.options import EpsilonText, json_option, ledger_option, print_json, words
from labeldp.errors import InvalidArgument


@click.group()
def vault() -> None:
    """Create, raise, inspect and verify a ledger."""


@vault.command()
@click.option("--ledger", required=True, type=click.Path(path_type=Path), help="The ledger's new file.")
@click.option("--budget", required=True, type=EpsilonText(), help="The most epsilon that any label may ever spend.")
@click.option("--delta", default="0", show_default=True, help="The most delta that any label may ever spend.")
@click.option("--rows", "n_rows", type=int, help="How many rows the dataset has, if it will be known by position.")
def create(ledger: Path, budget: Epsilon, delta: str, n_rows: int | None) -> None:
    """Make a new ledger. It is never overwritten."""
    made = create_ledger(ledger, budget=budget, delta=delta, n_rows=n_rows)
    words.print(f"Ledger {ledger} created: {made.budget()} per label.")


@vault.command("raise")
@ledger_option
@click.option("--budget", required=True, type=EpsilonText(), help="The new limit, above the present one.")
@click.option("--delta", help="The new limit on delta; by default it stays as it is.")
@click.option("--reason", required=True, help="Why; it is logged in the ledger and shown in certificates.")
def raise_(ledger: Path, budget: Epsilon, delta: str | None, reason: str) -> None:
    """Raise the limit of a ledger, as a logged act of the owner."""
    opened = Ledger(ledger)
    before = opened.budget()
    opened.raise_budget(
        Guarantee.of(budget, delta=before.delta if delta is None else delta, name="budget"), reason=reason
    )
    words.print(f"Ledger {ledger}: raised from {before} to {opened.budget()} per label.")


@vault.command()
@ledger_option
@json_option
def status(ledger: Path, as_json: bool) -> None:
    """Show what a ledger knows: rows, budget, spending, queries."""
    opened = Ledger(ledger)
    entries = opened.entries()
    queries = [entry for entry in entries if entry.body["kind"] == "charge"]
    waiting = [entry.number for entry in queries if opened.progress(entry)[0] != "handed over"]
    spent, budget = opened.spent(), opened.budget()
    facts = {
        "ledger": str(ledger),
        "id": opened.id,
        "rows": opened.n_rows(),
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta},
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "queries": len(queries),
        "interrupted": waiting,
        "entry": entries[-1].number,
        "hash": entries[-1].hash,
    }
    if as_json:
        print_json(facts)
        return
    rows = f"{facts['rows']:,} rows" if facts["rows"] else "no dataset opened yet"
    words.print(f"Ledger {ledger}: {rows}, {len(queries)} {'query' if len(queries) == 1 else 'queries'}.")
    words.print(f"The most-charged label has spent {spent} of {budget}.")
    if waiting:
        words.print(
            f"Interrupted and waiting to be asked again, at no further cost: entries {', '.join(map(str, waiting))}."
        )
    words.print(f"Chain: entry {entries[-1].number}, {entries[-1].hash}")


@vault.command()
@ledger_option
@click.option(
    "--receipt", type=click.Path(path_type=Path), help="A release's .json: check that its charge is still in here."
)
def verify(ledger: Path, receipt: Path | None) -> None:
    """Check a ledger's chain and sums, and a receipt."""
    opened = Ledger(ledger)
    opened.verify(None if receipt is None else _receipt(receipt))
    known = "" if receipt is None else " The receipt's charge is in it."
    words.print(f"Ledger {ledger}: the chain of {opened.head()[0]} entries is whole and within budget.{known}")


def _receipt(path: Path) -> dict[str, object]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InvalidArgument(f"{path} must be the .json of a release, or a receipt.") from None
    found = values.get("receipt", values) if isinstance(values, dict) else None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{path} must be the .json of a release, or a receipt.")
    return found
