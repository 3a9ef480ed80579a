"""How does the excess risk of LP-RR-SGD and LP-Normal-SGD fall and grow with n, K, epsilon and the dimension p?

Two made-up problems with D = 2, L = 1, no strong convexity, and a population risk whose minimum is known in closed form, so
that what an output lacks is computed and not estimated (docs/convex-rates.md describes both):
  linear : l = -<B_y, W x> on a ball; dense rows, K classes at the corners of a simplex, the minimiser on the boundary;
  kinked : the absolute loss of two class values; risk piecewise linear and partly flat, the minimiser inside the ball.
The two algorithms run as a user runs them: a vault per run, noise from the operating system. Baselines: the same steps on true
labels, and noisy SGD with (epsilon, delta)-DP of whole rows, whose noise is drawn from a seed because nobody's data is here.
Points go to benchmarks/results/convex_rates.json as they come (a stopped run is gone on with), tables and plots to
docs/convex-rates.md. `--show` only writes tables and plots anew; `--quick` prints a small version and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from convex_problems import (
    DELTA,
    DIAMETER,
    FULL,
    LIPSCHITZ,
    METHODS,
    NORMAL,
    OWN,
    PAPER,
    PLAIN,
    RR,
    Cell,
    Kinked,
    Linear,
    own_batch,
)
from labeldp.convex import bounds
from page import rewrite

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "convex_rates.json"
PAGE = HERE.parent / "docs" / "convex-rates.md"
WIDE_ROWS = 2**13
"""Of the studies of p: 10,000 dense features each."""
Record = dict[str, Any]


# ---- the studies -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """Points along one axis."""

    name: str
    axis: str
    cells: dict[float, Cell]
    methods: tuple[str, ...]
    repeats: int


def studies(small: bool = False) -> Iterator[Study]:
    """Yield what is measured; `small` for a look: fewer rows, four repeats."""
    largest, many, widest = (13, 2**12, 300) if small else (15, 2**15, 10_000)
    sizes = [2**i for i in range(10, largest + 1)]
    dimensions = [p for p in (10, 30, 100, 300, 1_000, 3_000, 10_000) if p <= widest]
    everything = (RR, NORMAL, PLAIN, FULL, OWN)

    def study(name: str, cells: dict[float, Cell], methods: tuple[str, ...], repeats: int) -> Study:
        return Study(name, name.split()[1], cells, methods, 4 if small else repeats)

    narrow, wide = [p for p in dimensions if p <= 300], [p for p in dimensions if p > 300]
    for some, repeats in ((narrow, 96), (wide, 16)):
        yield study("linear p", {p: Cell(Linear(2, p), WIDE_ROWS, "1", 16) for p in some}, everything, repeats)
    for some, repeats in ((sizes[:3], 64), (sizes[3:], 20)):
        cells = {n: Cell(Linear(2, 64), n, "1", 1) for n in some}
        yield study("linear n", cells, (RR, PAPER, NORMAL, PLAIN, OWN), repeats)
    cells = {k: Cell(Linear(k, 248 // (k - 1)), many, "1", 1) for k in (2, 4, 8, 16, 32)}
    yield study("linear K", cells, (RR, NORMAL), 12)
    cells = {float(e): Cell(Linear(2, 64), many, e, 1) for e in ("0.1", "0.2", "0.5", "1", "2")}
    yield study("linear epsilon", cells, (RR, NORMAL), 16)
    for some, repeats in ((narrow, 128), (wide, 64)):
        yield study("kinked p", {p: Cell(Kinked(p), WIDE_ROWS, "1", 16) for p in some}, everything, repeats)
    yield study("kinked n", {n: Cell(Kinked(64), n, "1", 16) for n in sizes[1:]}, everything, 48)
    shares = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
    yield study("linear signal", {a: Cell(Linear(2, 64, a), 2**12, "1", 1) for a in shares}, (RR, NORMAL), 32)


def measured(study: Study, x: float) -> Iterator[Record]:
    """Yield one point per method: the excess risk of independent runs, each on rows of its own, and what theory says.

    In one repeat all methods see the same rows.
    """
    cell = study.cells[x]
    fits: dict[str, Any] = {}
    excess: dict[str, list[float]] = {method: [] for method in study.methods}
    seconds = dict.fromkeys(study.methods, 0.0)
    for repeat in range(study.repeats):
        rng = np.random.default_rng([repeat, cell.n_rows, cell.problem.p, cell.problem.n_classes])
        X, labels = cell.problem.draw(cell.n_rows, rng)
        for method in study.methods:
            began = time.process_time()
            fits[method] = METHODS[method](cell, X, labels, rng)
            seconds[method] += time.process_time() - began
            excess[method].append(cell.problem.excess(fits[method].weights))
    for method in study.methods:
        point = {
            "study": study.name,
            "axis": study.axis,
            "x": x,
            "method": method,
            "seconds": round(seconds[method], 2),
        }
        yield {**point, **described(cell, method, fits[method]), **summary(excess[method])}


def described(cell: Cell, method: str, fit: Any) -> Record:
    """Return where a point lies and what theory says about it."""
    steps = {"diameter": DIAMETER, "moment": fit.moment, "scale": fit.scale}
    record = {
        "n": cell.n_rows,
        "K": cell.problem.n_classes,
        "epsilon": cell.epsilon,
        "p": cell.problem.p,
        "batch": own_batch(cell) if method == OWN else cell.batch,
        "steps": fit.n_steps,
        "scale": fit.scale,
        "moment": fit.moment,
        "bound": bounds.last_iterate(fit.n_steps, **steps),
        "rate": bounds.average_iterate(fit.n_steps, **steps),
        "at_start": cell.problem.at_start,
    }
    if isinstance(cell.problem, Linear) and method in (RR, PAPER, NORMAL, PLAIN):
        record["balance"] = cell.problem.balance(record)
    return record


def summary(excess: list[float]) -> Record:
    return {
        "repeats": len(excess),
        "mean": float(np.mean(excess)),
        "standard_error": float(np.std(excess, ddof=1) / math.sqrt(len(excess))),
        "excess": excess,
    }


def measure(path: Path | None, *, small: bool = False) -> list[Record]:
    """Return all points, reading those that are there and storing those of each cell as they come."""
    points: list[Record] = json.loads(path.read_text())["points"] if path and path.exists() else []
    known = {(each["study"], each["x"]) for each in points}
    for study in studies(small):
        for x in study.cells:
            if (study.name, x) in known:
                continue
            for point in measured(study, x):
                points.append(point)
                print(
                    f"{study.name} = {x:g}, {point['method']}: {point['mean']:.5f} +- {point['standard_error']:.5f} "
                    f"(bound {point['bound']:.3f}), {point['seconds']:.0f} s",
                    flush=True,
                )
            if path:
                store(path, points)
    return points


def store(path: Path, points: list[Record]) -> None:
    facts = {
        "trust": "local; full DP: curator",
        "delta": DELTA,
        "diameter": DIAMETER,
        "lipschitz": LIPSCHITZ,
        "seconds": round(sum(point["seconds"] for point in points)),
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "command": "OMP_NUM_THREADS=1 python benchmarks/convex_rates.py",
    }
    points = sorted(points, key=lambda point: (point["study"], point["x"]))
    fits = [fit for study in dict.fromkeys(point["study"] for point in points) for fit in fits_of(points, study)]
    path.write_text(json.dumps({**facts, "fits": fits, "points": points}, indent=1) + "\n")


# ---- exponents -------------------------------------------------------------------------------------------------------


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the least-squares slope of log y against log x, along the last axis."""
    centred = np.log(x) - np.log(x).mean()
    return np.log(y) @ centred / (centred @ centred)


def interval(points: list[Record]) -> tuple[float, float]:
    """Return a 95 % interval of the slope: the standard errors of the points, carried through the regression.

    Student's t with the degrees of freedom of Welch and Satterthwaite. It is about the noise of the repeats: that the points of
    a curve do not lie on a line is no part of it.
    """
    x, mean, error, repeats = (
        np.array([point[key] for point in points]) for key in ("x", "mean", "standard_error", "repeats")
    )
    centred = np.log(x) - np.log(x).mean()
    parts = (centred / (centred @ centred) * error / mean) ** 2
    freedom = parts.sum() ** 2 / (parts**2 / (repeats - 1)).sum()
    half = float(stats.t.ppf(0.975, freedom) * math.sqrt(parts.sum()))
    middle = float(slope(x, mean))
    return middle - half, middle + half


def learned(points: list[Record]) -> list[Record]:
    """Return the points at which less than half of the excess risk of the start is left: elsewhere no rate shows."""
    return [point for point in points if point["mean"] < point["at_start"] / 2]


def of(points: list[Record], study: str, method: str) -> list[Record]:
    """Return the points of a method in a study, in the order of x."""
    here = [point for point in points if point["study"] == study and point["method"] == method]
    return sorted(here, key=lambda point: point["x"])


def fits_of(points: list[Record], study: str) -> list[Record]:
    """Return the fitted exponent of every method in a study, and those that theory has on the same points."""
    fits = []
    for method in METHODS:
        used = learned(of(points, study, method))
        if len(used) < 3 or used[0]["axis"] == "signal":
            continue
        x = np.array([point["x"] for point in used])
        low, high = interval(used)
        mean = np.array([point["mean"] for point in used])
        theory = {
            name: float(slope(x, np.array([point[name] for point in used])))
            for name in ("rate", "bound", "balance")
            if name in used[0]
        }
        fits.append(
            {
                "study": study,
                "axis": used[0]["axis"],
                "method": method,
                "points": len(used),
                "of": len(of(points, study, method)),
                "exponent": float(slope(x, mean)),
                "low": low,
                "high": high,
                **theory,
            }
        )
    return fits


# ---- what they say ---------------------------------------------------------------------------------------------------

LETTERS = {"n": "n", "K": "K", "epsilon": "ε", "p": "p"}


def exponents(points: list[Record], problem: str) -> str:
    """Return a line per axis and method: the fitted exponent, its interval, and the exponents of theory on the same points."""
    lines = [
        "| against | method | measured exponent | 95 % interval | of the balance | of D G / √T | of the bound | points |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for axis in LETTERS:
        for fit in fits_of(points, f"{problem} {axis}"):
            theory = " | ".join(signed(fit[name]) if name in fit else "" for name in ("balance", "rate", "bound"))
            lines.append(
                f"| {LETTERS[fit['axis']]} | {fit['method']} | {signed(fit['exponent'])} | {signed(fit['low'])} to "
                f"{signed(fit['high'])} | {theory} | {fit['points']} of {fit['of']} |"
            )
    return "\n".join(lines)


def signed(number: float, digits: int = 3) -> str:
    return f"{round(number, digits) + 0.0:+.{digits}f}".replace("-", "−")  # + 0.0: nothing has no minus sign


def constants(points: list[Record], study: str, methods: tuple[str, ...]) -> str:
    """Return a line per point: each method's measured excess risk, beside its balance and its bound."""
    first = of(points, study, methods[0])
    head = " | ".join(f"{method} | balance | bound" for method in methods)
    lines = [f"| {LETTERS[first[0]['axis']]} | {head} |", "|---|" + "---|" * (3 * len(methods))]
    for place, point in enumerate(first):
        here = [of(points, study, method)[place] for method in methods]
        cells = " | ".join(f"{figure(each)} | {each['balance']:.4f} | {each['bound']:.2f}" for each in here)
        lines.append(f"| {point['x']:,g} | {cells} |")
    return "\n".join(lines)


def slack(points: list[Record]) -> str:
    """Return how far the measured excess risk lies below the bounds."""
    lines = ["| bound / measured | least | median | most |", "|---|---|---|---|"]
    for problem, method in ((problem, method) for problem in ("linear", "kinked") for method in (RR, PAPER, NORMAL)):
        ratios = [
            point["bound"] / point["mean"]
            for point in learned(points)
            if point["study"].startswith(problem) and point["axis"] != "signal" and point["method"] == method
        ]
        if ratios:
            least, middle, most = np.quantile(ratios, [0, 0.5, 1])
            lines.append(f"| {problem}, {method} | {least:.0f} | {middle:.0f} | {most:.0f} |")
    return "\n".join(lines)


def figure(point: Record) -> str:
    return f"{point['mean']:.4f} ± {point['standard_error']:.4f}"


def by_column(points: list[Record], study: str, head: str) -> str:
    """Return a line per point and a column per method, with what is lost at the start."""
    methods = [method for method in METHODS if of(points, study, method)]
    lines = [f"| {head} | " + " | ".join([*methods, "at the start"]) + " |", "|---|" + "---|" * (len(methods) + 1)]
    for x in [point["x"] for point in of(points, study, methods[0])]:
        here = [next(point for point in of(points, study, method) if point["x"] == x) for method in methods]
        lines.append(
            f"| {x:,g} | " + " | ".join([*(figure(point) for point in here), f"{here[0]['at_start']:.4f}"]) + " |"
        )
    return "\n".join(lines)


STYLES = {
    RR: ("#1b6ca8", "o"),
    NORMAL: ("#2e8b57", "D"),
    PLAIN: ("#8c8c8c", "v"),
    FULL: ("#c0392b", "s"),
    OWN: ("#d9822b", "^"),
}
INK = "#2c3e50"
TITLES = {
    "linear n": "rows (K = 2, ε = 1, p = 64)",
    "linear K": "classes (n = 32,768, ε = 1, p ≈ 248)",
    "linear epsilon": "epsilon (n = 32,768, K = 2, p = 64)",
    "linear p": "parameters (n = 8,192, K = 2, ε = 1, batches of 16)",
    "kinked n": "rows (K = 2, ε = 1, p = 64, batches of 16)",
    "kinked p": "parameters (n = 8,192, K = 2, ε = 1, batches of 16)",
}


def plot(points: list[Record], names: tuple[str, ...], path: Path) -> None:
    """Draw excess risk against each axis, with fitted lines and the slope of theory."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "labeldp"
    from matplotlib import pyplot

    rows = len(names) // 2
    figure, grid = pyplot.subplots(rows, 2, figsize=(10, 3.9 * rows + 0.5), layout="constrained", squeeze=False)
    shown: dict[str, Any] = {}
    for axis, name in zip(grid.ravel(), names, strict=True):
        shown |= draw_panel(axis, points, name)
    for row in grid:
        row[0].set_ylabel("excess population risk")
    for words, style in (("shape of D G / √T", "--"), ("nothing learned", ":")):
        shown[words] = pyplot.Line2D([], [], color=INK, linestyle=style, linewidth=1)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_panel(axis: Any, points: list[Record], name: str) -> dict[str, Any]:
    """Draw one study, and return what stands for each method in the legend."""
    from matplotlib.ticker import NullFormatter

    shown, fits = {}, {fit["method"]: fit for fit in fits_of(points, name)}
    for method, (colour, mark) in STYLES.items():
        here = of(points, name, method)
        if not here:
            continue
        x, mean, error = (np.array([point[key] for point in here]) for key in ("x", "mean", "standard_error"))
        style = {"color": colour, "markersize": 5, "linewidth": 1}
        shown[method] = axis.errorbar(x, mean, 1.96 * error, fmt=mark, capsize=2, **style)
        fitted = learned(here) if method in fits else []
        for point in here:
            if point not in fitted:
                axis.plot(point["x"], point["mean"], mark, markerfacecolor="white", zorder=3, **style)
        if fitted:
            draw_fit(axis, fits[method], fitted, colour)
    ticks, start = ([point[key] for point in of(points, name, RR)] for key in ("x", "at_start"))
    axis.plot(ticks, start, ":", color=INK, linewidth=1)
    axis.set(xscale="log", yscale="log")
    axis.set_xticks(ticks, [f"{tick:,g}" for tick in ticks], fontsize=8.5)
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_title(TITLES[name], loc="left", fontsize=10)
    axis.grid(alpha=0.25, which="major")
    axis.spines[["top", "right"]].set_visible(False)
    write_exponents(axis, points, fits)
    return shown


def write_exponents(axis: Any, points: list[Record], fits: dict[str, Record]) -> None:
    """Write each exponent beside the last point of its line, no two of them over each other."""
    ends = {method: learned(of(points, fit["study"], method))[-1] for method, fit in fits.items() if method in STYLES}
    low, high = np.log(axis.get_ylim())
    below: dict[float, float] = {}
    for method, end in sorted(ends.items(), key=lambda pair: pair[1]["mean"]):
        height = max(math.log(end["mean"]), below.get(end["x"], low) + 0.045 * (high - low))
        below[end["x"]] = height
        words, colour = signed(fits[method]["exponent"], 2), STYLES[method][0]
        at = (end["x"], math.exp(height))
        axis.annotate(words, at, xytext=(7, -3), textcoords="offset points", color=colour, fontsize=9)


def draw_fit(axis: Any, fit: Record, used: list[Record], colour: str) -> None:
    """Draw the fitted line, and beside it the shape of D G / sqrt(T) through the same centre."""
    x, mean, rate = (np.array([point[key] for point in used]) for key in ("x", "mean", "rate"))
    line = x ** fit["exponent"]
    for shape, style in ((line, {"linewidth": 1.4}), (rate, {"linewidth": 0.9, "linestyle": "--"})):
        axis.plot(x, shape * np.exp((np.log(mean) - np.log(shape)).mean()), color=colour, alpha=0.8, **style)


def setting(points: list[Record]) -> str:
    seconds = sum(point["seconds"] for point in points)
    repeats = [point["repeats"] for point in points]
    each = f"{min(repeats)} to {max(repeats)} for each point"
    return f"{sum(repeats):,} runs, {each}; {seconds / 60:.0f} minutes of processor time."


def show(points: list[Record]) -> None:
    tables = {
        "linear exponents": exponents(points, "linear"),
        "kinked exponents": exponents(points, "kinked"),
        "constants": constants(points, "linear n", (RR, PAPER, NORMAL)),
        "slack": slack(points),
        "classes": constants(points, "linear K", (RR, NORMAL)),
        "epsilons": constants(points, "linear epsilon", (RR, NORMAL)),
        "dimension linear": by_column(points, "linear p", "p"),
        "dimension kinked": by_column(points, "kinked p", "p"),
        "signal": by_column(points, "linear signal", "share of informative labels"),
        "cost": setting(points),
    }
    rewrite(PAGE, tables)
    plot(points, ("linear n", "linear K", "linear epsilon", "linear p"), RESULTS.with_name("convex-rates.svg"))
    plot(points, ("kinked n", "kinked p"), RESULTS.with_name("convex-rates-kinked.svg"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small version, printed and not stored")
    parser.add_argument("--show", action="store_true", help="only write the tables and the plots anew")
    arguments = parser.parse_args()
    if arguments.show:
        points = json.loads(RESULTS.read_text())["points"]
    else:
        points = measure(None if arguments.quick else RESULTS, small=arguments.quick)
    for problem in ("linear", "kinked"):
        print(f"\n{problem}\n{exponents(points, problem)}")
    if not arguments.quick:
        store(RESULTS, points)
        show(points)


if __name__ == "__main__":
    main()
