"""Write the README's summary of what `labeldp reproduce` has recorded: ours beside the paper, and what was aimed at."""

from __future__ import annotations

import argparse
from pathlib import Path

from labeldp.report import published
from labeldp.report.words import duration
from labeldp.reproduce.cookbook import recipes_of, tables
from labeldp.reproduce.pooling import Cell, pooled
from labeldp.reproduce.results import Results
from labeldp.reproduce.sheets import is_of, misses, number, spread_in_words, targets
from page import rewrite

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
HEADS = {
    "local": "| data, local | ε | paper, LP-2ST | ours | target | runs | time of a run |\n|---|---|---|---|---|---|---|",
    "curator": "| data, curator | ε | ours | target | runs | time of a run |\n|---|---|---|---|---|---|",
}
"""Two trust models, two tables: one's figures are not the other's."""


def row(cell: Cell) -> str:
    name = published.known(cell.dataset) or cell.dataset
    theirs = published.POINTS.get(name, {}).get(published.TWO_STAGES, {})
    target = targets(cell.dataset, cell.trust).get(cell.epsilon)
    paper, aim = (number(each, cell.metric) if each is not None else "" for each in (theirs.get(cell.epsilon), target))
    took = "" if cell.mean_seconds is None else duration(cell.mean_seconds)
    mean = number(cell.mean, cell.metric)
    is_met = target is not None and not misses(cell, target)
    ours = f"{f'**{mean}**' if is_met else mean}{spread_in_words(cell)}"
    runs = f"{cell.runs}{'' if is_of(cell, recipes_of(cell.dataset)) else ', of an earlier recipe'}"
    shown = (name, cell.epsilon, *([paper] * (cell.trust == "local")), ours, aim, runs, took)
    return f"| {' | '.join(shown)} |"


def summary(results: Results) -> str:
    cells = [cell for table in tables() for cell in pooled(results.records(table))]
    ours = [cell for cell in cells if cell.recipe.startswith("best-") and cell.rows is None]
    order = {name: place for place, name in enumerate(tables())}
    ours.sort(key=lambda cell: (order[cell.dataset], float(cell.epsilon)))
    found = ["\n".join([head, *(row(cell) for cell in ours if cell.trust == trust)]) for trust, head in HEADS.items()]
    return "\n\n".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    rewrite(README, {"reproduced": summary(Results(parser.parse_args().results))})


if __name__ == "__main__":
    main()
