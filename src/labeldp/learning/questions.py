"""Several questions to one vault: which are still to be paid for, and whether all of them can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labeldp.budget import Epsilon, Guarantee
from labeldp.errors import BudgetExhausted
from labeldp.learning.partition import Rows
from labeldp.vault import LabelHolder


@dataclass(frozen=True, eq=False)
class Question:
    """One of the questions that are asked one after the other.

    Parameters
    ----------
    stage : what it is called, and the file that its answer is stored in.
    rows, epsilon : whose labels it is about, and what it costs each of them.
    """

    stage: str
    rows: Rows
    epsilon: Epsilon


LONGEST_NAME = 180
"""A query's name has at most 200 characters, and the stage's is part of it."""


def name_of(name: str | None, stage: str) -> str | None:
    """Return the name under which a run asks a question."""
    return None if name is None else f"{name}: {stage}"


def is_stored(folder: Path | None, stage: str) -> bool:
    """Return whether a folder has the whole answer to a question: its .json is written last."""
    return folder is not None and (Path(folder) / f"{stage}.json").exists()


def check_budget(vault: LabelHolder, questions: Sequence[Question], *, name: str | None, folder: Path | None) -> None:
    """Raise before the first charge where a later one would be refused.

    An answer that is in the folder, or that the vault's ledger has under its name, is free, whoever else has spent what.
    """
    paid = set() if name is None else {query["name"] for query in vault.certificate()["queries"]}
    due = [each for each in questions if not is_stored(folder, each.stage) and name_of(name, each.stage) not in paid]
    needs = np.zeros(len(vault), dtype=np.int64)
    for each in due:
        needs[each.rows] += each.epsilon.units
    if due and name is None and folder is not None:
        only_first = due[0].rows[needs[due[0].rows] == due[0].epsilon.units]
        needs[only_first] = (
            0  # the vault alone knows if that query was interrupted, and is free; else it refuses it itself
        )
    for units in np.unique(needs[needs > 0]).tolist():
        left = vault.remaining(np.flatnonzero(needs == units))
        if not left >= Guarantee(units):
            raise BudgetExhausted(
                f"these stages need {Guarantee(units)} for every row, and {left} is left for some. Use rows not yet "
                "released, or ask the label owner to raise the limit."
            )
