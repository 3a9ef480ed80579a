"""Options that several commands share, and how they speak."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console

from labeldp.budget.epsilon import Epsilon
from labeldp.checks import MAX_CLASSES
from labeldp.cli.main import INTERRUPTED
from labeldp.errors import InvalidArgument

data = Console(highlight=False)
words = Console(stderr=True, highlight=False)
"""Data goes to stdout, words and progress to stderr."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
features_words = (
    "patches[:patch=6,centroids=300,..], byol:backbone=small-conv,epochs=20, simclr:.., pretrained:vit-small-16,FILE"
)
cache_option = click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Where features are kept, and found again; by default LABELDP_CACHE, then ~/.cache/labeldp/features.",
)
ledger_option = click.option(
    "--ledger",
    required=True,
    type=click.Path(path_type=Path),
    help="The ledger's file: made with 'labeldp vault create', or RUN/ledger of a run that made its own.",
)


NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,"]*?))\s*(,|$)')
"""A name in a list: in quotes it keeps its spaces and commas."""


class Stopped(click.ClickException):
    """Ctrl-C was pressed: no error, but not done either. The message says how to go on."""

    exit_code = INTERRUPTED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.format_message(), file=file, err=file is None)


class ClassList(click.ParamType[Any]):
    """A count, or names separated by commas (quoted as in CSV where a name holds a comma)."""

    name = "K|NAME,NAME,.."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | list[str]:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        if value.strip().isascii() and value.strip().isdecimal():
            if not 2 <= int(value) <= MAX_CLASSES:
                self.fail(f"a count of classes must be between 2 and {MAX_CLASSES:,}, got {value}.", param, ctx)
            return int(value)
        names, at, more = [], 0, ","
        while more:
            found = NAME.match(value, at)
            if found is None:
                self.fail('a name that holds a comma or a quote stands in quotes, "yes, please".', param, ctx)
            quoted, plain, more = found.groups()
            names.append(plain if quoted is None else quoted.replace('""', '"'))
            at = found.end()
        if len(names) < 2 or not all(names):
            self.fail("give a count, such as 10, or at least two names, such as no,yes.", param, ctx)
        if len(set(names)) < len(names):
            self.fail("classes must name each class once.", param, ctx)
        return names


class EpsilonText(click.ParamType[Any]):
    """An epsilon, read exactly."""

    name = "epsilon"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Epsilon:
        try:
            return Epsilon.of(value, name=param.name if param is not None and param.name else "epsilon")
        except InvalidArgument as error:
            self.fail(str(error), param, ctx)


def check_new(path: Path, *, option: str = "--out") -> None:
    """Raise unless a file can be made there, and none is lost by it: it might be a table, a ledger or a model."""
    if path.exists():
        raise click.UsageError(f"{option}: {path} exists; remove it or choose another name.")
    _check_folder(path, option)


def check_page(path: Path, *, option: str) -> None:
    """Raise unless a page can be written there. Only a page is written over."""
    if path.is_dir():
        raise click.UsageError(f"{option}: {path} is a folder. Name a file, such as {path / 'page.html'}.")
    if path.exists() and path.suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"{option}: {path} exists and is no page: choose a name that ends in .html.")
    _check_folder(path, option)


def _check_folder(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        raise click.UsageError(f"{option}: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        raise click.UsageError(f"{option}: the folder {path.parent} cannot be written to.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """What is wrong here is what the command line says."""
    try:
        yield
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None
