"""Write the README's summary of what `labeldp reproduce` has recorded: ours beside the paper, and what was aimed at."""

from __future__ import annotations

import argparse
from pathlib import Path

from labeldp.report import published
from labeldp.report.words import duration
from labeldp.reproduce.cookbook import recipes_of, tables
from labeldp.reproduce.pooling import Cell, pooled
from labeldp.reproduce.results import Results
from labeldp.reproduce.sheets import (
    CLOSE,
    NO_RUN,
    is_close,
    is_of,
    misses,
    number,
    spread_in_words,
    targets,
    threads_in_words,
)
from page import rewrite

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
HEADS = {
    "local": "| data, local | ε | paper, LP-2ST | ours | target | runs | time of a run |\n|---|---|---|---|---|---|---|",
    "curator": "| data, curator | ε | ours | target | runs | time of a run |\n|---|---|---|---|---|---|",
}
"""Two trust models, two tables: one's figures are not the other's."""


def row(dataset: str, trust: str, epsilon: str, cell: Cell | None) -> str:
    """Return the line of a cell that has runs, or a target."""
    name = published.known(dataset) or dataset
    metric = "rmse" if published.is_rmse(name) else "accuracy"
    theirs = published.POINTS.get(name, {}).get(published.TWO_STAGES, {}).get(epsilon)
    target = targets(dataset, trust).get(epsilon)
    paper, aim = ("" if each is None else number(each, metric) for each in (theirs, target))
    said = (
        (NO_RUN, aim, "", "")
        if cell is None
        else (_ours(cell, target), _aim(cell, target, aim), _runs(cell), _time(cell))
    )
    title = f"{name}, per rating" if metric == "rmse" else name
    return f"| {' | '.join((title, epsilon, *([paper] * (trust == 'local')), *said))} |"


def _ours(cell: Cell, target: float | None) -> str:
    mean = number(cell.mean, cell.metric)
    is_met = target is not None and not misses(cell, target) and is_of(cell, recipes_of(cell.dataset))
    return f"{f'**{mean}**' if is_met else mean}{spread_in_words(cell)}"


def _aim(cell: Cell, target: float | None, aim: str) -> str:
    return f"{CLOSE} {aim}" if target is not None and is_close(cell, target) else aim


def _runs(cell: Cell) -> str:
    return f"{cell.runs}{'' if is_of(cell, recipes_of(cell.dataset)) else ', of an earlier recipe'}"


def _time(cell: Cell) -> str:
    took = "" if cell.mean_seconds is None else duration(cell.mean_seconds)
    return ", ".join(filter(None, (took, threads_in_words(cell))))


def summary(results: Results) -> str:
    cells = [cell for table in tables() for cell in pooled(results.records(table), results.looks(table))]
    ours = {
        (cell.dataset, cell.trust, cell.epsilon): cell
        for cell in cells
        if cell.recipe.startswith("best-") and cell.rows is None
    }
    found = []
    for trust, head in HEADS.items():
        aims = {(table, trust, epsilon) for table in tables() for epsilon in targets(table, trust)}
        keys = {key for key in {*ours, *aims} if key[1] == trust}
        order = sorted(keys, key=lambda key: (tables().index(key[0]), float(key[2])))
        found.append("\n".join([head, *(row(*key, ours.get(key)) for key in order)]))
    return "\n\n".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    rewrite(README, {"reproduced": summary(Results(parser.parse_args().results))})


if __name__ == "__main__":
    main()
