"""Which ledger a run charges: its owner's, the one beside a file of one's own, or one in the run folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from labeldp.budget import Ledger, create_ledger
from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument
from labeldp.runs.folder import Record, RunFolder, Watch, folder_named
from labeldp.runs.recipe import Recipe

OWN_LEDGER = (
    "in the run folder, because the data goes by the name of a public benchmark: it covers this run alone. Labels that are not "
    "public need a ledger of their owner's"
)
LEDGER_BESIDE = (
    "beside the data, made by the first run on it, with that run's epsilon as the budget. Every run on this file is charged to "
    "it; a copy of the file would get a ledger of its own, which is for its owner to prevent"
)


def charged(
    folder: RunFolder, recipe: Recipe, data: Dataset, *, beside: Path | None, given: Path | None, watch: Watch
) -> Path:
    """Return the ledger that a new run charges; one that belongs to the run or lies beside its data is made.

    Parameters
    ----------
    beside : where the ledger of a file of one's own lies; None where the data has a name.
    given : the ledger that was asked for.
    """
    n_rows = data.n_rows if data.ids is None else None  # rows with ids may become more
    if given is not None:
        _check_given(given, recipe, beside, n_rows)
        return given.absolute()
    if beside is not None:
        if not beside.exists():
            create_ledger(beside, budget=recipe.epsilon, n_rows=n_rows)
            watch({"kind": "ledger", "file": str(beside), "budget": recipe.epsilon})
        return beside
    folder.path.mkdir(parents=True, exist_ok=True)
    if not folder.ledger_file.exists():  # a run may have been killed between its ledger and its run.json
        create_ledger(folder.ledger_file, budget=recipe.epsilon, n_rows=n_rows)
    return folder.ledger_file.absolute()


def _check_given(given: Path, recipe: Recipe, beside: Path | None, n_rows: int | None) -> None:
    if beside is not None and beside.exists() and given.resolve() != beside:
        raise InvalidArgument(
            f"the labels of {recipe.data} are charged to {beside}: leave --ledger out, so that all they spend adds up."
        )
    if not given.exists():
        rows = "" if n_rows is None else f" --rows {n_rows}"
        raise InvalidArgument(
            f"there is no ledger at {given}. Its owner makes it once: "
            f"labeldp vault create --ledger {given} --budget {recipe.epsilon}{rows}"
        )


def in_words(facts: Record) -> str:
    """Say where the ledger of a run is from."""
    if facts["own_ledger"]:
        return OWN_LEDGER
    return LEDGER_BESIDE if facts["ledger_is_beside"] else "given by its owner"


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
