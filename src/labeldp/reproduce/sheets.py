"""Tables: what is published, ours and the targets side by side, one sheet per dataset and trust model."""

from __future__ import annotations

import tomllib
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from labeldp.report import published
from labeldp.report.words import duration
from labeldp.reproduce.cookbook import Entry, hash_of
from labeldp.reproduce.pooling import BUSY, Cell, about, estimates, pooled

Record = dict[str, Any]

TRUST_MODELS = ("local", "curator")
OURS = "best-"
HEADINGS = {"ssl-prior": "Priors from self-supervised features: "}
"""Before the titles of a table that is not the main one of its data."""
NO_RUN = "no run yet"
NOT_RUN = "not run here"
"""Of runs that would take longer than this machine's patience, in hours:"""
PATIENCE = 3
CLOSE = "≈"
"""Closer to its target than the standard error that the test rows leave."""
HEADS = {
    published.ONE_STAGE: "paper\nLP-1ST",
    published.TWO_STAGES: "paper\nLP-2ST",
    published.OFFICIAL_CODE: "official\ncode",
    published.PRE_TRAINED_ONCE: "LP-1ST,\npre-trained",
    published.PRE_TRAINED: "LP-2ST,\npre-trained",
    published.PROJECTIONS: "LabelDP-Pro\n(delta > 0)",
}
ONE_RUN = "Epsilon is that of one run: further runs, and the studies that chose settings, asked the same labels again."
PROMISES = {
    "local": "Local, delta = 0: each label is randomized on its own, and nobody but its owner is trusted; neighbours differ in "
    f"one label. {ONE_RUN} {published.ELSEWHERE}",
    "curator": "Curator, delta = 0: the label holder is trusted to aggregate labels before it adds noise; neighbours differ in "
    f"one label. {ONE_RUN} Not comparable with local figures.",
}


@dataclass(frozen=True)
class Sheet:
    """One sheet of a table: a row per epsilon, then sentences on what it promises and misses."""

    table: str
    dataset: str
    trust: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    cells: tuple[Cell, ...] = field(repr=False)
    notes: tuple[str, ...] = field(repr=False)

    @property
    def title(self) -> str:
        return f"{HEADINGS.get(self.table, '')}{self._measured}"

    @property
    def short_title(self) -> str:
        """The title of a panel, which is narrow."""
        if self.table in HEADINGS:
            return f"{self.table}: {self.name}, {self.trust}"
        return self._measured

    @property
    def _measured(self) -> str:
        unit = "RMSE" if published.is_rmse(self.name) else "test accuracy in percent"
        return f"{self.name}, {self.trust}: {unit}"

    @property
    def place(self) -> str:
        """What names it on a page, which may have the sheets of all tables."""
        return "-".join(dict.fromkeys((self.table, self.dataset, self.trust)))

    @property
    def name(self) -> str:
        """The dataset as people write it."""
        return published.known(self.dataset) or self.dataset

    @property
    def is_drawn(self) -> bool:
        return bool(self.cells) or _has_points(self.dataset, self.trust)


def targets(dataset: str, trust: str) -> dict[str, float]:
    """Return what ours must reach, by epsilon."""
    found: dict[str, float] = _all_targets().get(dataset, {}).get(trust, {})
    return found


@cache
def _all_targets() -> dict[str, Any]:
    return tomllib.loads((files("labeldp.reproduce") / "targets.toml").read_text(encoding="utf-8"))


def number(value: float, metric: str) -> str:
    return f"{value:.2f}" if metric == "accuracy" else f"{value:.3f}"


def spread_in_words(cell: Cell) -> str:
    """Return the spread after its sign, an RMSE's with one digit more than the mean; nothing of a single run."""
    return "" if cell.spread is None else f" ± {cell.spread:.{2 if cell.metric == 'accuracy' else 4}f}"


def in_words(cell: Cell) -> str:
    """Return mean and spread, how many runs of how long; of how many commits, hashes and data if of more than one."""
    seconds = cell.mean_seconds
    took = "" if seconds is None else f", {duration(seconds)}{' each' * (cell.runs > 1)}"
    lines = [f"{number(cell.mean, cell.metric)}{spread_in_words(cell)}", f"{_runs(cell)}{took}"]
    lines += [threads_in_words(cell)] if any(cell.threads) else []
    lines += [f"{cell.commits} commits"] if cell.commits > 1 else []
    lines += [f"{cell.hashes} recipe hashes so far"] if cell.hashes > 1 else []
    return "\n".join(lines + ([f"one of {cell.data_versions} versions of the data"] if cell.data_versions > 1 else []))


def threads_in_words(cell: Cell) -> str:
    """Return how many threads its runs had, where that is noted."""
    known = sorted({threads for threads in cell.threads if threads})
    if not known:
        return ""
    return f"{' to '.join(str(each) for each in dict.fromkeys((known[0], known[-1])))} thread{'s' * (known[-1] > 1)}"


def sheets_of(records: Iterable[Record], entries: Iterable[Entry], looks: Iterable[Record] = ()) -> list[Sheet]:
    """Return the sheets of a table's records.

    Parameters
    ----------
    records : of runs and estimates.
    entries : the table's recipes: those of ours, best-.., have a column before they are run.
    looks : the table's looks at test sets.
    """
    records, entries = list(records), list(entries)
    cells, expected = pooled(records, looks), estimates(records)
    table = next((entry.table for entry in entries), "")
    datasets = [entry.data for entry in entries] + [record["dataset"] for record in records]
    have_best = any(entry.name.startswith(OURS) for entry in entries)
    sheets = []
    for dataset in dict.fromkeys(datasets):
        for trust in TRUST_MODELS:
            ours = [cell for cell in cells if (cell.dataset, cell.trust) == (dataset, trust)]
            told = [entry for entry in entries if (entry.data, entry.trust) == (dataset, trust)]
            waits = _waits(expected.values(), told)
            tried = {cell.recipe for cell in ours if cell.rows is None} | {name for name, _ in waits}
            shown = [each for each in told if each.name in tried or each.name.startswith(OURS) or not have_best]
            not_run = {(entry.name, epsilon): NO_RUN for entry in shown for epsilon in entry.epsilons} | waits
            if ours or not_run:
                sheets.append(_sheet(table, dataset, trust, ours, not_run, told))
    return sheets


def _sheet(
    table: str, dataset: str, trust: str, ours: list[Cell], not_run: dict[tuple[str, str], str], entries: list[Entry]
) -> Sheet:
    known, is_ours = _published(dataset, trust), any(name == f"{OURS}{trust}" for name, _ in not_run)
    wanted = targets(dataset, trust) if is_ours else {}
    metric = "rmse" if published.is_rmse(published.known(dataset) or "") else "accuracy"
    whole = {(cell.recipe, cell.epsilon): cell for cell in ours if cell.rows is None}
    old = {cell.recipe_hash for cell in _outdated(whole.values(), entries)}
    filled = not_run | {
        key: in_words(cell) + ("\nof an earlier recipe" if cell.recipe_hash in old else "")
        for key, cell in whole.items()
    }
    names = sorted({name for name, _ in filled})
    every = {epsilon for _, epsilon in filled} | set(wanted)
    every |= {epsilon for points in known.values() for epsilon in points}
    rows = []
    for epsilon in sorted(every, key=float):
        row = ["none" if epsilon == "inf" else epsilon]
        row += [number(points[epsilon], metric) if epsilon in points else "" for points in known.values()]
        row += [filled.get((name, epsilon), "") for name in names]
        row += [number(wanted[epsilon], metric) if epsilon in wanted else ""] if wanted else []
        rows.append(tuple(row))
    heads = ("epsilon", *(HEADS[method] for method in known), *names, *(["target"] if wanted else []))
    told = [
        *_remarks(dataset, known, is_drawn=bool(whole) or _has_points(dataset, trust)),
        *verdicts(whole, wanted, trust, metric, old),
    ]
    told += _subsets(ours)
    return Sheet(table, dataset, trust, heads, tuple(rows), tuple(whole.values()), (PROMISES[trust], *told))


def _published(dataset: str, trust: str) -> dict[str, dict[str, float]]:
    """Return the points of the methods that a sheet shows; what is reached without privacy stands with the first."""
    name = published.known(dataset)
    points = published.POINTS.get(name or "", {})
    methods = published.PURE_AND_LOCAL if trust == "local" else (published.PROJECTIONS,)
    found = {method: dict(points[method]) for method in methods if method in points}
    if published.ONE_STAGE in found:
        found[published.ONE_STAGE] |= points.get(published.NOT_PRIVATE, {})
    return found


def _has_points(dataset: str, trust: str) -> bool:
    """Tell whether there is something to draw before anything was run: what is published, most of which is local."""
    return trust == "local" and published.known(dataset) is not None


def _waits(expected: Iterable[Record], entries: list[Entry]) -> dict[tuple[str, str], str]:
    """Return what stands in cells whose recipe, as it is now, was estimated."""
    return {
        (entry.name, each["epsilon"]): _waiting(each)
        for entry in entries
        for each in expected
        if each["recipe"] == entry.name and each["recipe_hash"] == hash_of(entry.at(each["epsilon"]))
    }


def _waiting(estimate: Record) -> str:
    busy = ",\ntimed on a busy machine" if estimate.get("processor_share", 1) < BUSY else ""
    return f"{NOT_RUN if estimate['hours'] > PATIENCE else NO_RUN}:\n{about(estimate['hours'])}{busy}"


def _remarks(dataset: str, known: dict[str, Any], *, is_drawn: bool) -> list[str]:
    """Return what must be said of the points that a sheet shows, and of those that its plot draws besides."""
    name = published.known(dataset) or ""
    shown = {*known, *(published.POINTS.get(name, {}) if is_drawn else ())}
    keys = [published.PROJECTIONS] * (published.PROJECTIONS in shown) + [name]
    in_plot = published.PROJECTIONS not in known
    return [
        f"{'In the plot, ' * (in_plot and key == published.PROJECTIONS)}{published.NOTES[key]}"
        for key in keys
        if key in published.NOTES
    ]


def verdicts(
    whole: dict[tuple[str, str], Cell], wanted: dict[str, float], trust: str, metric: str, old: Container[str] = ()
) -> list[str]:
    """Name the targets that our best recipe misses, meets, or was not run for; with old hashes, as it was earlier."""
    earlier = " by an earlier recipe"
    kinds: dict[str, list[str]] = {"missed": [], f"missed{earlier}": [], "met": [], f"met{earlier}": []}
    kinds["without a run"] = []
    for epsilon, target in wanted.items():
        cell = whole.get((f"{OURS}{trust}", epsilon))
        if cell is None:
            kinds["without a run"].append(f"epsilon {epsilon}")
            continue
        found = f"{number(cell.mean, metric)} of {f'{CLOSE} ' * is_close(cell, target)}{number(target, metric)}"
        kind = ("missed" if misses(cell, target) else "met") + earlier * (cell.recipe_hash in old)
        kinds[kind].append(f"epsilon {epsilon} ({found})")
    told = [f"Targets {kind}: {', '.join(each)}." for kind, each in kinds.items() if each]
    close = f"{CLOSE}: closer than the standard error that the test rows alone leave, so neither met nor missed for certain."
    return [*told, *([close] if any(CLOSE in each for each in told) else [])]


def is_of(cell: Cell, entries: Iterable[Entry]) -> bool:
    """Tell whether a cell's runs are of a recipe as it is now."""
    return cell.recipe_hash in {hash_of(entry.at(cell.epsilon)) for entry in entries if entry.name == cell.recipe}


def _outdated(cells: Iterable[Cell], entries: list[Entry]) -> list[Cell]:
    """Return the cells whose recipe has changed since it was run."""
    packaged = {entry.name for entry in entries}
    return [cell for cell in cells if cell.recipe in packaged and not is_of(cell, entries)]


def misses(cell: Cell, target: float) -> bool:
    return cell.mean < target if cell.metric == "accuracy" else cell.mean > target


def is_close(cell: Cell, target: float) -> bool:
    """Tell whether a cell is closer to its target than its test rows can tell."""
    return cell.test_error is not None and abs(cell.mean - target) < cell.test_error


def _subsets(ours: list[Cell]) -> list[str]:
    """Name figures of subsets, which stand in no table."""
    return [
        f"Of a subset, not comparable: {cell.recipe} at epsilon {cell.epsilon} on {cell.rows:,} rows: "
        f"{number(cell.mean, cell.metric)}{spread_in_words(cell)} ({_runs(cell)})."
        for cell in ours
        if cell.rows is not None
    ]


def _runs(cell: Cell) -> str:
    return f"{cell.runs} run{'s' * (cell.runs > 1)}"
