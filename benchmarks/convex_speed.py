"""What does label privacy cost in time, next to plain mini-batch SGD on true labels?

Softmax regression in double precision. Plain SGD calls the same gradient and the same projection on the same batches, in
steps of c / sqrt(t); it checks nothing and keeps no mean of its iterates. LP-RR-SGD and LP-Normal-SGD are timed whole: sealing
labels, checking rows, charging a ledger in memory, drawing with operating-system entropy, the pass. Sealing and drawing by
randomized response are timed alone, too. All are interleaved in one process; a ratio is the median over the rounds of the
ratio within a round. JSON goes to benchmarks/results/convex_speed.json, the table to docs/convex.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import labeldp as ldp
from labeldp import convex
from machine import machine
from page import rewrite

RESULTS = Path(__file__).parent / "results" / "convex_speed.json"
PAGE = Path(__file__).parent.parent / "docs" / "convex.md"
ROWS, FEATURES, CLASSES, ROUNDS = 1_000_000, 100, 10, 5
BATCHES = (100, 1_000)
EPSILON, DELTA = "1", "1e-6"
AIMS = {"lp_rr_sgd": 3.0, "lp_normal_sgd": 20.0}
LOSS, BALL = convex.Softmax(n_classes=CLASSES, norm_bound=1.0), convex.Ball(radius=4.0)

Job = Callable[[], object]


def problem(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows on the unit sphere and labels drawn from a softmax model."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, FEATURES))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores = X @ rng.standard_normal((FEATURES, CLASSES))
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def plain_sgd(X: np.ndarray, true_labels: np.ndarray, batch: int) -> np.ndarray:
    """Return the last iterate of one pass on true labels."""
    w, one = np.zeros(CLASSES * FEATURES), np.eye(CLASSES)
    scale = BALL.diameter(len(w)) / LOSS.lipschitz(BALL, len(w))
    for t, start in enumerate(range(0, len(X), batch), start=1):
        now = slice(start, start + batch)
        w = BALL.project(w - scale / math.sqrt(t) * LOSS.gradient(w, X[now], one[true_labels[now]]))
    return w


def jobs_of(X: np.ndarray, true_labels: np.ndarray, batch: int) -> dict[str, Job]:
    def sealed() -> ldp.LabelVault:
        return ldp.LabelVault(true_labels, classes=CLASSES, budget=EPSILON, delta=DELTA)

    return {
        "plain_sgd": lambda: plain_sgd(X, true_labels, batch),
        "lp_rr_sgd": lambda: convex.lp_rr_sgd(X, sealed(), LOSS, BALL, EPSILON, batch_size=batch),
        "seal_and_draw": lambda: sealed().release(ldp.RandomizedResponse(EPSILON)),
        "lp_normal_sgd": lambda: convex.lp_normal_sgd(X, sealed(), LOSS, BALL, EPSILON, DELTA, batch_size=batch),
    }


def interleaved(jobs: dict[str, Job], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds):
        for name in list(jobs)[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            jobs[name]()
            times[name].append(time.perf_counter() - start)
    return times


def ratio(over: list[float], under: list[float]) -> dict[str, object]:
    each = [a / b for a, b in zip(over, under, strict=True)]
    return {"median": statistics.median(each), "of_best": min(over) / min(under), "all": each}


def measured(X: np.ndarray, true_labels: np.ndarray, batch: int, rounds: int) -> dict:
    """Return the timings for one size of a step."""
    times = interleaved(jobs_of(X, true_labels, batch), rounds)
    return {
        "batch": batch,
        "seconds": {name: {"median": statistics.median(all_), "all": all_} for name, all_ in times.items()},
        "over_plain_sgd": {name: ratio(times[name], times["plain_sgd"]) for name in AIMS},
    }


def table_of(records: list[dict]) -> str:
    """Return the Markdown table of docs/convex.md."""
    lines = [
        "| rows a step | plain SGD | LP-RR-SGD | of that, sealing and drawing | LP-Normal-SGD | LP-RR-SGD / plain "
        "| LP-Normal-SGD / plain |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records:
        seconds = [f"{each['median']:.2f} s" for each in record["seconds"].values()]
        ratios = [f"{each['median']:.1f} ({each['of_best']:.1f})" for each in record["over_plain_sgd"].values()]
        lines.append(f"| {record['batch']:,} | {' | '.join(seconds + ratios)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    start = time.perf_counter()
    X, true_labels = problem(arguments.rows)
    measured(X[:10_000], true_labels[:10_000], BATCHES[0], 1)  # imports and tables that are made once
    records = [measured(X, true_labels, batch, arguments.rounds) for batch in BATCHES]
    result = {
        "command": "python benchmarks/convex_speed.py",
        "seconds": time.perf_counter() - start,
        "machine": machine(),
        "rows": arguments.rows,
        "features": FEATURES,
        "classes": CLASSES,
        "epsilon": EPSILON,
        "delta": DELTA,
        "rounds": arguments.rounds,
        "records": records,
        "aims": {
            name: {"at_most": most, "met": all(r["over_plain_sgd"][name]["median"] <= most for r in records)}
            for name, most in AIMS.items()
        },
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table_of(records))
    print("missed:", [name for name, found in result["aims"].items() if not found["met"]] or "nothing")
    if arguments.out == RESULTS:
        rewrite(PAGE, {"speed": table_of(records)})


if __name__ == "__main__":
    main()
