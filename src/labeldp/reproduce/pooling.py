"""From records to cells: all runs of a recipe's latest hash together, never the best of them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from labeldp.report.words import duration

Record = dict[str, Any]
NAMED = ("dataset", "trust", "recipe", "epsilon", "rows", "metric")
CELL = (*NAMED, "data")
HASH_DIGITS = 16
"""Of a recipe's hash, in looks."""
BUSY = 0.6
"""Below this share of its threads' time a timing says little."""


@dataclass(frozen=True)
class Cell:
    """All that is known of a recipe at an epsilon, by its latest hash.

    Attributes
    ----------
    rows : how many rows of a subset; None for all.
    values, seconds, threads : of the runs of this hash, in their order; what nobody noted is None.
    test_rows : of the latest run.
    data : a digest of what its runs read; None of records that do not say it.
    hashes : how many the cell has had, this one included, also those of looks without a record: each is an attempt.
    commits : from how many its runs come; code is in no hash.
    data_versions : how many digests of data there are records of, this one included: each has a cell of its own.
    """

    dataset: str
    trust: str
    recipe: str
    epsilon: str
    rows: int | None
    metric: str
    data: str | None
    recipe_hash: str
    values: tuple[float, ...]
    seconds: tuple[float | None, ...]
    threads: tuple[int | None, ...]
    test_rows: int | None
    hashes: int
    commits: int
    data_versions: int
    last: str

    @property
    def mean(self) -> float:
        return statistics.mean(self.values)

    @property
    def spread(self) -> float | None:
        return spread_of(self.values)

    @property
    def test_error(self) -> float | None:
        """The standard error that the test rows alone leave, which all runs share: of an RMSE, if errors are normal."""
        if not self.test_rows:
            return None
        if self.metric == "rmse":
            return self.mean / math.sqrt(2 * self.test_rows)
        return math.sqrt(self.mean * (100 - self.mean) / self.test_rows)

    @property
    def runs(self) -> int:
        return len(self.values)

    @property
    def mean_seconds(self) -> float | None:
        known = [seconds for seconds in self.seconds if seconds is not None]
        return statistics.mean(known) if known else None

    def plain(self) -> Record:
        """Return the cell for JSON."""
        figures = {"mean": self.mean, "spread": self.spread, "runs": self.runs, "mean_seconds": self.mean_seconds}
        return asdict(self) | figures | {"test_error": self.test_error}


def spread_of(values: Sequence[float]) -> float | None:
    """Return the standard deviation over runs; of one run, none."""
    return statistics.stdev(values) if len(values) > 1 else None


def pooled(records: Iterable[Record], looks: Iterable[Record] = ()) -> list[Cell]:
    """Return the cells of all runs. Subsets and whole data, other data, trust models, and hashes are never pooled.

    Of cells that differ in their data alone the one with the latest run is last.

    Parameters
    ----------
    looks : at test sets, of the same table: an attempt may have ended without a record.
    """
    tried: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for look in looks:
        tried[look["recipe"], look["epsilon"], look["rows"]] |= {look["hash"]} - {""}
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record["kind"] == "run":
            groups[tuple(record.get(key) for key in NAMED)].append(record)
    return [cell for runs in groups.values() for cell in _cells(runs, tried[_look_of(runs[0])])]


def _look_of(run: Record) -> tuple[str, ...]:
    return run["recipe"], run["epsilon"], str(run.get("rows") or "")


def _cells(runs: list[Record], tried: set[str]) -> list[Cell]:
    versions = {run.get("data") for run in runs}
    found = [_cell([run for run in runs if run.get("data") == data], len(versions), tried) for data in versions]
    return sorted(found, key=lambda cell: (cell.last, cell.data or ""))


def latest_of(runs: Sequence[Record]) -> Record:
    return max(enumerate(runs), key=lambda run: (run[1]["time"], run[0]))[1]


def on_latest_data(runs: Sequence[Record]) -> list[Record]:
    """Return the runs that read what the latest of them read."""
    return [run for run in runs if run.get("data") == latest_of(runs).get("data")]


def _cell(runs: list[Record], data_versions: int, tried: set[str]) -> Cell:
    latest = latest_of(runs)
    same = [run for run in runs if run["recipe_hash"] == latest["recipe_hash"]]
    named: Record = {key: latest.get(key) for key in (*CELL, "recipe_hash")}
    return Cell(
        **named,
        values=tuple(run["value"] for run in same),
        seconds=tuple(run["seconds"] for run in same),
        threads=tuple(run.get("threads") for run in same),
        test_rows=latest.get("test_rows"),
        hashes=len({run["recipe_hash"][:HASH_DIGITS] for run in runs} | tried),
        commits=len({commit for run in same for commit in run.get("commits", [run["commit"]])}),
        data_versions=data_versions,
        last=latest["time"],
    )


def estimates(records: Iterable[Record]) -> dict[tuple[str, str, str], Record]:
    """Return the latest estimate per dataset, recipe and epsilon."""
    found = [record for record in records if record["kind"] == "estimate"]
    return {(each["dataset"], each["recipe"], each["epsilon"]): each for each in sorted(found, key=lambda e: e["time"])}


def about(hours: float) -> str:
    """Return an estimate in words.

    >>> about(41.3), about(1.04), about(0.01)
    ('about 41 h', 'about 1.0 h', 'about 36.0 s')
    """
    if hours < 0.1:
        return f"about {duration(3600 * hours)}"
    return f"about {hours:.{0 if hours >= 10 else 1}f} h"
