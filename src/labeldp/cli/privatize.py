"""`labeldp privatize`: a file with true labels becomes a file with noisy ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labeldp.cli.options import ClassList, Stopped, json_option, ledger_option, print_json, usage

if TYPE_CHECKING:
    from labeldp.bulk import Order, Outcome


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="The file: .csv or .parquet.")
@click.option("--label", required=True, help="The column of true labels.")
@click.option("--classes", type=ClassList(), required=True, help="A count (labels are 0, 1, ..), or a list of names.")
@click.option("--epsilon", required=True, help="The privacy cost per label.")
@ledger_option
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The new file: .csv or .parquet.")
@click.option("--id", "id_column", help="A column of unique public ids, by which the ledger knows rows.")
@click.option("--noisy-column", help="The name of the noisy column; noisy_LABEL unless given.")
@click.option(
    "--missing", type=click.Choice(["public"]), help="Say public if it is no secret which labels are missing."
)
@click.option(
    "--drop", multiple=True, help="A column to leave out of the output, as one that tells the label; repeatable."
)
@click.option(
    "--unchanged", is_flag=True, help="The file was touched since an earlier run, but its labels are the same."
)
@json_option
def privatize(
    data: Path,
    label: str,
    classes: int | list[str],
    epsilon: str,
    ledger: Path,
    out: Path,
    id_column: str | None,
    noisy_column: str | None,
    missing: str | None,
    drop: tuple[str, ...],
    unchanged: bool,
    as_json: bool,
) -> None:
    """Turn a column of labels in a CSV or Parquet file into a noisy one.

    Every label is kept, or replaced by another class, at random (randomized response); the ledger is charged first. All
    other columns are passed through: --drop any that tells the label. If the command is stopped, run it again: it
    is completed with the same noise and is not charged twice. A book beside the file (DATA.labels.json) keeps all its
    labels on one ledger, and columns that were labels from being written out.

    In a CSV an empty cell is missing, and the output is UTF-8 with line feeds.
    """
    from labeldp.budget import Epsilon
    from labeldp.bulk import DeclaredClasses, Order
    from labeldp.bulk import privatize as run

    with usage():  # wrong whatever the files hold
        order = Order(
            data=data,
            label=label,
            classes=DeclaredClasses.of(classes),
            epsilon=Epsilon.of(epsilon),
            ledger=ledger,
            out=out,
            noisy_column=f"noisy_{label}" if noisy_column is None else noisy_column,
            id_column=id_column,
            missing=missing,
            drop=drop,
            unchanged=unchanged,
        )
    try:
        with _progress() as progress:
            outcome = run(order, progress=progress)
    except KeyboardInterrupt:
        raise Stopped("Stopped. Run the same command again to finish; nothing is charged twice.") from None
    click.echo(_sentence(order, outcome), err=True)
    if as_json:
        print_json(outcome.to_json())


def _sentence(order: Order, outcome: Outcome) -> str:
    done = f"{order.out} is done already: " if outcome.already_done else ""
    return (
        f"{done}{outcome.rows:,} labels released at epsilon {outcome.receipt.epsilon} ({outcome.receipt.trust}, per label). "
        f"Ledger {order.ledger}: {outcome.left.epsilon} of {outcome.budget.epsilon} left for these rows.\n"
        f"Each noisy label is the true one with chance {outcome.keep_chance:.1%}. To count classes or to train on the "
        f"likelihood: labeldp.Release.load({str(outcome.release)!r})."
    )


@contextmanager
def _progress() -> Iterator[Callable[[str, int | None], Callable[[int], None]]]:
    """Show a bar on stderr while something runs, if somebody is there to see it."""
    if not sys.stderr.isatty():
        yield lambda *_: lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def begin(words: str, total: int | None) -> Callable[[int], None]:
            task = bars.add_task(words, total=total)
            return lambda rows: bars.advance(task, rows)

        yield begin
