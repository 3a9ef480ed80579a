"""`labeldp certificate`: what a ledger has released and what that promises."""

from __future__ import annotations

from pathlib import Path

import click

from labeldp.budget import Ledger
from labeldp.budget import certificate as make_certificate
from labeldp.cli.options import ledger_option, print_json, words


@click.command()
@ledger_option
def certificate(ledger: Path) -> None:
    """Print a ledger's certificate: JSON on stdout, its promise in words on stderr."""
    made = make_certificate(Ledger(ledger))
    print_json(made)
    words.print(made.get("stamp", made["guarantee"]))
