"""Which ledger a run charges: its owner's, the one beside a file of one's own, or one in the run folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from labeldp.budget import Guarantee, Ledger, create_ledger
from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument
from labeldp.learning.records import Record, Watch
from labeldp.runs import tables
from labeldp.runs.folder import RunFolder, folder_named
from labeldp.runs.recipe import Recipe

if TYPE_CHECKING:
    from labeldp.bulk.book import Book

OWN_LEDGER = (
    "in the run folder, because the data goes by the name of a public benchmark: it covers this run alone. Labels that are not "
    "public need a ledger of their owner's"
)
LEDGER_BESIDE = (
    "beside the data. The book beside them (the file's name and .labels.json) has every train and privatize on this file "
    "charged to it; a copy of the file would get a book and a ledger of its own, which is for its owner to prevent"
)
LEDGER_GIVEN = "given by its owner"
LEDGER_IN_BOOK = (
    f"{LEDGER_GIVEN}. The book beside the data (its name and .labels.json) has every train and privatize on this file "
    "charged to it; a copy of the file would get a book of its own, which is for its owner to prevent"
)


def charged(
    folder: RunFolder, recipe: Recipe, data: Dataset, *, book: Book | None, given: Path | None, watch: Watch
) -> Path:
    """Return the ledger that a new run charges; one that belongs to the run or lies beside its data is made.

    Parameters
    ----------
    book : the book beside a file of one's own, which has agreed to its columns; None where the data has a name.
    given : the ledger that was asked for.
    """
    n_rows = data.n_rows if data.ids is None else None  # rows with ids may become more
    place = given if book is None else book.ledger_for(given)
    if place is not None:
        _check_exists(place, recipe, n_rows)
        return place.absolute()
    if book is not None:
        beside = tables.ledger_beside(book)
        create_ledger(beside, budget=recipe.epsilon, n_rows=n_rows)
        watch({"kind": "ledger", "file": str(beside), "budget": recipe.epsilon})
        return beside
    folder.path.mkdir(parents=True, exist_ok=True)
    if folder.ledger_file.exists():  # a run may have been killed between its ledger and its run.json
        _check_unused(folder.ledger_file, recipe)
    else:
        create_ledger(folder.ledger_file, budget=recipe.epsilon, n_rows=n_rows)
    return folder.ledger_file.absolute()


def _check_unused(ledger: Path, recipe: Recipe) -> None:
    """Raise unless a ledger that lies where a new run's belongs is as that run would have made it."""
    found, budget = Ledger(ledger), Guarantee.of(recipe.epsilon, name="epsilon")
    charges = sum(entry.body["kind"] == "charge" for entry in found.entries())
    if charges or found.budget() != budget:
        raise InvalidArgument(
            f"a new run's own ledger must have no charges and a budget of {budget}; {ledger} has {charges}, and a budget of "
            f"{found.budget()}: it is of another run. Nothing was asked. Choose another folder, or move that ledger away."
        )


def _check_exists(ledger: Path, recipe: Recipe, n_rows: int | None) -> None:
    if not ledger.exists():
        rows = "" if n_rows is None else f" --rows {n_rows}"
        raise InvalidArgument(
            f"there is no ledger at {ledger}. Its owner makes it once: "
            f"labeldp vault create --ledger {ledger} --budget {recipe.epsilon}{rows}"
        )


def in_words(facts: Record) -> str:
    """Say where the ledger of a run is from."""
    if facts["own_ledger"]:
        return OWN_LEDGER
    if facts["ledger_is_beside"]:
        return LEDGER_BESIDE
    return LEDGER_GIVEN if facts["features"] is None else LEDGER_IN_BOOK  # only files of one's own have a digest


def advice(ledger: Path) -> str:
    """Name the run that spent a ledger's labels, whose releases can be trained on again; or the ledger's owner."""
    names = [entry.body["request"]["name"] for entry in Ledger(ledger).entries() if entry.body["kind"] == "charge"]
    runs = [folder for name in names if (folder := folder_named(name)) is not None]
    if not names:
        return "Nothing was released yet: ask for less, or ask the label owner to raise this ledger's limit."
    where = shlex.quote(_from_here(runs[-1])) if runs else "RUN"
    return f"To train again on what was already released, at no cost: labeldp train --from {where} --out NEW"


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
