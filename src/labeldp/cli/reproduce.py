"""`labeldp reproduce`: the paper's tables again, and ours beside them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD

from labeldp.budget.epsilon import Epsilon
from labeldp.cli.options import EpsilonText, Stopped, cache_option, check_page, json_option, print_json, usage
from labeldp.cli.options import data as stdout
from labeldp.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import Console

    from labeldp.reproduce import Entry, Figure, Job, Results

WIDE = 160
"""Columns of a table in a file or a pipe."""


@click.command()
@click.argument("table", required=False)
@click.option(
    "--epsilon", "epsilons", type=EpsilonText(), multiple=True, help="Repeatable; by default all of the recipe."
)
@click.option(
    "--recipe",
    "names",
    multiple=True,
    help="By its name, or a .toml file of your own; repeatable. By default best-local.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="KEY=VALUE",
    help="Of a figure: only what has this value of what is varied, such as release.stages=2; repeatable.",
)
@click.option(
    "--draws", type=click.IntRange(min=1), default=1, show_default=True, help="Runs, each with noise of its own."
)
@click.option(
    "--rows", type=click.IntRange(min=1), help="Use only the first so many rows; never pooled with whole runs."
)
@click.option(
    "--results",
    "folder",
    type=click.Path(path_type=Path),
    help="Where records are; by default benchmarks/results if there is such a folder here, else results.",
)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets' files are.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/reproduce"), show_default=True, help="Where runs are."
)
@cache_option
@click.option("--list", "listing", is_flag=True, help="List the recipes there are, of TABLE or of all tables.")
@click.option("--show", is_flag=True, help="Run nothing: show what was recorded, of TABLE or of all, and draw it.")
@click.option("--estimate", is_flag=True, help="Run nothing: time an epoch, and record how long a run would take.")
@click.option("--html", type=click.Path(path_type=Path), help="With --show: also write a page with figures and tables.")
@json_option
def reproduce(
    table: str | None,
    epsilons: tuple[Epsilon, ...],
    names: tuple[str, ...],
    only: tuple[str, ...],
    draws: int,
    rows: int | None,
    folder: Path | None,
    data_dir: Path | None,
    out: Path,
    cache: Path | None,
    listing: bool,
    show: bool,
    estimate: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Run a recipe of a table, record what it gives, and print paper, official code and ours side by side.

    TABLE may also be one of the paper's other figures: what it lacks is run, and it is drawn. The same command again goes on
    where it was stopped. Every run looks at public test data; each look is logged.

    \b
    labeldp reproduce --list
    labeldp reproduce fashion-mnist --recipe best-curator --epsilon 1 --draws 3
    labeldp reproduce mnist --show
    labeldp reproduce figure-stages
    """
    from labeldp.reproduce import Results, default_folder, find
    from labeldp.reproduce.cookbook import figures, is_figure, narrowed

    if sum((listing, show, estimate)) > 1:
        raise click.UsageError("Give one of --list, --show and --estimate: each is done instead of a run.")
    if html is not None:
        _check_page(html, show)
    if show and (epsilons or names or only or rows is not None or draws > 1):
        raise click.UsageError(
            "--show shows all that is recorded: --epsilon, --recipe, --only, --rows and --draws are for runs."
        )
    if folder is not None:
        _check_results(folder, table, show)
    if table is None and not (listing or show):
        raise click.UsageError(f"Name a table: {', '.join(_tables(None))}. --list shows their recipes.")
    chosen = _tables(table)
    if listing:
        _list(chosen, as_json)
        return
    results = Results(folder or default_folder())
    if show:
        _show(chosen, results, html, as_json)
        return
    assert table is not None
    if only and not is_figure(table):
        raise click.UsageError(
            f"--only is for figures, which vary something, and {table} is a table: leave it out, name a figure "
            f"({', '.join(figures())}), or change a recipe's file and name that by --recipe."
        )
    with usage():
        entries = find(table, names)
        varied = [each for entry in entries for each in entry.variants()]
        varied = narrowed(varied, dict(map(_setting, only))) if only else varied
    asked = [str(epsilon) for epsilon in epsilons]
    cells = [(entry, epsilon) for entry in varied for epsilon in asked or entry.epsilons]
    for entry, epsilon in ((entry, epsilon) for entry in entries for epsilon in asked):
        if epsilon not in entry.epsilons:
            listed = ", ".join(entry.epsilons)
            _say(f"{entry.name} lists epsilon {listed}: at {epsilon} it is run with its base settings.")
    _say_of_other_data(table, entries)
    _say(f"Results: {results.folder}")
    where = {"data_dir": data_dir, "cache": cache}
    made = _estimate(cells, results, **where) if estimate else _run(cells, results, draws, rows, out, **where)
    if as_json:
        print_json(made)
    elif is_figure(table):
        _print_figure(_figure(table, results, entries, asked), results)
    else:
        _print(table, results)


def _check_results(folder: Path, table: str | None, show: bool) -> None:
    """Raise unless a folder of one's own can hold records, or has some to show."""
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"--results must be a folder, and {folder} is a file: name another.")
    if show and not folder.exists():
        fill = f"labeldp reproduce {table or 'TABLE'} --results {folder}"
        raise click.UsageError(f"--results: there is no folder {folder} to show. To fill it: {fill}")


def _check_page(html: Path, show: bool) -> None:
    """Raise unless a page is asked for, and can be written there."""
    if not show:
        raise click.UsageError(f"--html goes with --show, which runs nothing: labeldp reproduce --show --html {html}")
    check_page(html, option="--html")


def _say_of_other_data(table: str, entries: list[Entry]) -> None:
    from labeldp.reproduce.cookbook import datasets_of

    own = datasets_of(table)
    for entry in entries:
        others = [data for data in entry.datasets if data not in own]
        if others:
            of, beside = " and ".join(others), " and ".join(own)
            _say(f"{entry.named} is of {of}: its figures do not stand beside those of {beside}.")


def _setting(text: str) -> tuple[str, Any]:
    """Return the key and the value of --only, which is written as in TOML."""
    import tomllib

    key, _, value = text.partition("=")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        raise click.UsageError(f"--only must be KEY=VALUE, such as release.stages=2; got {text!r}.") from None


def _tables(table: str | None) -> tuple[str, ...]:
    from labeldp.reproduce import figures, recipes_of, tables

    if table is None:
        return (*tables(), *figures())
    with usage():
        recipes_of(table)
    return (table,)


def _list(tables: tuple[str, ...], as_json: bool) -> None:
    from labeldp.reproduce import recipes_of

    entries = [entry for table in tables for entry in recipes_of(table)]
    if as_json:
        keys = ("table", "name", "trust", "epsilons", "data", "about")
        print_json([{key: getattr(entry, key) for key in keys} for entry in entries])
        return
    wide = max(len(entry.name) for entry in entries)
    for table, same in itertools.groupby(entries, key=lambda entry: entry.table):
        click.echo(table)
        for entry in same:
            click.echo(f"  {entry.name:{wide}}  {entry.trust or '':7}  epsilon {' '.join(entry.epsilons)}")
            if entry.vary:
                click.echo(f"    varies {' '.join(entry.vary)}")


def _run(
    cells: list[tuple[Entry, str]],
    results: Results,
    draws: int,
    rows: int | None,
    out: Path,
    data_dir: Path | None,
    cache: Path | None,
) -> list[dict[str, Any]]:
    """Do the runs, one after another, draw by draw, and return their records."""
    from labeldp import checks, datasets
    from labeldp.reproduce import Job, performed
    from labeldp.reproduce.running import recorded

    with usage():
        jobs = [Job(entry, epsilon, draw, rows) for draw in range(1, draws + 1) for entry, epsilon in cells]
    made, checked = [], set()
    for job in jobs:
        known = recorded(job, results, out)
        if known is not None:
            _say(f"{_named(job)} is done and recorded: {_given(known)}.")
            made.append(known)
            continue
        with _stoppable(partial(_stopped, job, out)):
            if job.recipe.data not in checked:  # what cannot be run is no look at a test set
                there = datasets.load(job.recipe.data, data_dir=data_dir).n_rows
                checks.integer(rows=rows or there, at_least=1, at_most=there)
                checked.add(job.recipe.data)
            with _progress(job, out) as progress:
                made.append(performed(job, results, out=out, data_dir=data_dir, cache=cache, watch=progress))
        _say(_done(job, made[-1], results, out))
    return made


@contextlib.contextmanager
def _progress(job: Job, out: Path) -> Iterator[Any]:
    from labeldp.cli.progress import TrainingProgress, say
    from labeldp.learning.multistage import COUNTS

    say(f"{_named(job)}, hash {job.hash[:16]}.")
    answers = {0: COUNTS} | {number: f"release-{number}" for number in range(1, job.recipe.release.stages + 1)}
    path = job.folder(out).path
    with TrainingProgress(
        job.drawn, released_earlier={n for n, name in answers.items() if (path / f"{name}.json").exists()}
    ) as progress:
        yield progress


def _estimate(
    cells: list[tuple[Entry, str]], results: Results, data_dir: Path | None, cache: Path | None
) -> list[dict[str, Any]]:
    """Time one epoch of each recipe, once for all epsilons of the same networks, and record what each would take."""
    from labeldp.reproduce import Job, estimated
    from labeldp.reproduce.estimate import measured
    from labeldp.reproduce.pooling import BUSY, about

    timed: dict[tuple[Any, ...], Any] = {}
    made = []
    for entry, epsilon in cells:
        recipe = entry.at(epsilon)
        networks = (entry.name, recipe.model, recipe.features, recipe.training.batch_size, recipe.student)
        if networks not in timed:
            _say(f"{entry.name}: timing an epoch on {entry.data}, with made-up labels.")
            with _stoppable(lambda: "Stopped. Estimates that were made before are recorded."):
                timed[networks] = measured(recipe, data_dir=data_dir, cache=cache)
            if timed[networks].processor_share < BUSY:
                got = f"{timed[networks].processor_share:.0%}"
                _say(f"The machine was busy: the timing got {got} of its threads' time. Estimate again on free cores.")
        command = f"{Job(entry, epsilon).command} --estimate"
        record = estimated(entry, epsilon, timed[networks], command)
        results.append(entry.table, record)
        made.append(record)
        _say(
            f"{entry.name} at epsilon {epsilon}: {about(record['hours'])} here, recorded in {results.file(entry.table)}."
        )
    return made


def _show(asked: tuple[str, ...], results: Results, html: Path | None, as_json: bool) -> None:
    from labeldp.reproduce import pooled
    from labeldp.reproduce.cookbook import is_figure
    from labeldp.reproduce.pooling import estimates

    every = [_figure(name, results) for name in asked if is_figure(name)]
    drawn = [figure for figure in every if figure.drawn or len(asked) == 1]
    tables = tuple(table for table in asked if not is_figure(table))
    found = {table: results.records(table) for table in tables}
    if as_json:
        cells = [
            cell.plain() | {"table": table} for table in tables for cell in pooled(found[table], results.looks(table))
        ]
        waiting = [each for table in tables for each in estimates(found[table]).values()]
        points = [point.plain() | {"figure": figure.name} for figure in drawn for point in figure.points]
        print_json({"results": str(results.folder), "cells": cells, "estimates": waiting, "points": points})
        return
    if not any(found.values()) and not any(figure.drawn for figure in drawn):
        of, name = (f" of {asked[0]}", asked[0]) if len(asked) == 1 else ("", "TABLE")
        runs = f"labeldp reproduce {name} runs recipes and records them{_where_shipped_ones_are(results)}."
        _say(f"There are no results{of} in {results.folder} yet: {runs}")
    sheets = []
    for table in tables:
        sheets += _print(table, results, plot=True)
    for figure in drawn:
        _print_figure(figure, results)
    if html is not None:
        from labeldp.reproduce.drawings import section
        from labeldp.reproduce.plot import write_page

        _say(f"Page: {write_page(html, sheets, map(section, drawn))}")


def _where_shipped_ones_are(results: Results) -> str:
    """Say where records are that come with the repository, to who neither works in a clone nor named a folder."""
    from labeldp.reproduce.results import OTHERWISE, PROJECTS_OWN

    if results.folder != OTHERWISE:
        return ""
    return f"; those shipped are in {PROJECTS_OWN} of the repository: name it by --results"


def _figure(
    name: str, results: Results, entries: list[Entry] | None = None, epsilons: list[str] | None = None
) -> Figure:
    from labeldp.reproduce import figure_of, find

    return figure_of(name, entries or find(name), results, epsilons or ())


def _print_figure(figure: Figure, results: Results) -> None:
    """Print the points of a figure, and draw it."""
    from labeldp.reproduce.drawings import panels
    from labeldp.reproduce.plot import write_panels

    _print_sheet(figure.title, figure.heads, figure.rows, figure.notes)
    with _drawn():
        written = write_panels(results.folder / f"{figure.name}.svg", panels(figure))
        if written is not None:
            _say(f"Plot: {written}")


def _print(table: str, results: Results, *, plot: bool = False) -> list[Any]:
    """Print a table's sheets, and where its plot is if that is asked for; return the sheets."""
    from labeldp.reproduce import recipes_of, sheets_of

    entries, records = recipes_of(table), results.records(table)
    sheets = sheets_of(records, entries, results.looks(table))
    for sheet in sheets:
        _print_sheet(sheet.title, sheet.heads, sheet.rows, sheet.notes)
    idle = sorted({entry.name for entry in entries} - {record["recipe"] for record in records})
    if idle:
        _console().print(f"Recipes of {table} without a record: {', '.join(idle)}.", soft_wrap=True)
    if plot and results.folder.is_dir():
        _plot(table, results, sheets)
    return sheets


def _print_sheet(title: str, heads: Sequence[str], rows: Sequence[tuple[str, ...]], notes: Iterable[str]) -> None:
    from rich.table import Table

    console, printed = _console(), Table(box=SIMPLE_HEAD)
    for head in heads:
        printed.add_column(head, overflow="fold")
    for row in rows:
        printed.add_row(*row)
    console.print(f"[bold]{title}[/bold]")
    if rows:  # of subsets alone there are only notes
        console.print(printed)
    for note in notes:
        console.print(note, markup=False, soft_wrap=not stdout.is_terminal)
    console.print()


def _console() -> Console:
    from rich.console import Console

    return stdout if stdout.is_terminal else Console(highlight=False, width=WIDE)


def _plot(table: str, results: Results, sheets: list[Any]) -> None:
    from labeldp.reproduce.plot import write_svg

    with _drawn():
        written = write_svg(results.folder / f"{table}.svg", sheets)
        if written is not None:
            _say(f"Plot: {written}")


@contextlib.contextmanager
def _drawn() -> Iterator[None]:
    """Say so where there is nothing to draw with."""
    try:
        yield
    except MissingExtra as error:
        _say(str(error))


def _named(job: Job) -> str:
    varied = "".join(f", {words}" for words in job.entry.variant_words)
    subset = "" if job.rows is None else f", {job.rows:,} rows"
    return f"{job.entry.table}, {job.entry.name} at epsilon {job.recipe.epsilon}{varied}, draw {job.draw}{subset}"


def _done(job: Job, record: dict[str, Any], results: Results, out: Path) -> str:
    """Say what a run has given, how long it took, and where that stands."""
    from labeldp.report.words import duration

    report = job.folder(out).report_file
    took = "" if record["seconds"] is None else f" in {duration(record['seconds'])}"
    more = f" Report: {report}" if report.exists() else ""
    return f"Done: {_given(record)}{took}, recorded in {results.file(job.entry.table)}.{more}"


def _given(record: dict[str, Any]) -> str:
    return f"{record['value']:.2f} % right" if record["metric"] == "accuracy" else f"RMSE {record['value']:.3f}"


def _stopped(job: Job, out: Path) -> str:
    from labeldp.reproduce.running import has_asked

    if has_asked(job, out):
        return "Stopped. Nothing is lost: the same command goes on from the last epoch's end."
    return "Stopped before any label was asked. The same command begins this run again."


@contextlib.contextmanager
def _stoppable(sentence: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(sentence()) from None


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
