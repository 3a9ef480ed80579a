"""How fast is a whole release, next to the least work it cannot avoid?

One run measures, for K = 2, 10, 100 and 1000 classes and float32 priors, with operating-system entropy:
  RRWithPrior over numpy.sort(priors, axis=1), GroupedResponse over RRWithPrior, RandomizedResponse over 8 bytes per row;
beside them a per-row Algorithm 2 on `secrets`, and OpenDP's single-record randomized response.
A release here is everything the vault does: check, digest, deal, charge (a ledger in memory), draw, hand over.
Machines are noisy, so each ratio is of the best of several interleaved timings in one process. JSON goes to
benchmarks/results/mechanisms.json, the table to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import labeldp as ldp
from page import rewrite

RESULTS = Path(__file__).parent / "results" / "mechanisms.json"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
ROWS = {2: 1_000_000, 10: 1_000_000, 100: 300_000, 1_000: 40_000}
PLAIN_ROWS = 1_000_000  # plain randomized response needs no priors, so it can have many rows for any K
EPSILON = "1"
ROUNDS = 7
LIMITS = {
    "rr_with_prior_over_sort": {10: 8.0, 100: 4.0, 1_000: 4.0},
    "grouped_over_rr_with_prior": dict.fromkeys(ROWS, 3.0),
    "rr_over_entropy": dict.fromkeys(ROWS, 3.0),
}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(n_classes: int) -> dict:
    """Return the timings for one number of classes."""
    n = ROWS[n_classes]
    rng = np.random.default_rng(0)
    labels, many_labels = (rng.integers(n_classes, size=size) for size in (n, PLAIN_ROWS))
    priors = np.empty((n, n_classes), dtype=np.float32)
    for part in np.array_split(priors, 50):  # in parts, so that making them does not set the peak
        part[:] = rng.dirichlet(np.ones(n_classes), size=len(part))

    def release(mechanism: object, column: np.ndarray, given: np.ndarray | None) -> Callable[[], object]:
        vault = ldp.LabelVault(column, classes=n_classes, budget="20")
        return lambda: vault.release(mechanism, priors=given)

    jobs = {
        "entropy": lambda: os.urandom(8 * PLAIN_ROWS),
        "rr": release(ldp.RandomizedResponse(EPSILON), many_labels, None),
        "rr_with_prior": release(ldp.RRWithPrior(EPSILON), labels, priors),
        "grouped": release(ldp.GroupedResponse(EPSILON), labels, priors),
    }
    before = peak_mebibytes()
    jobs["rr_with_prior"](), jobs["grouped"]()
    peak = peak_mebibytes() - before
    times = {
        name: min(rounds) for name, rounds in _interleaved(jobs | {"sort": lambda: np.sort(priors, axis=1)}).items()
    }
    return {
        "classes": n_classes,
        "rows": n,
        "epsilon": EPSILON,
        "labels_per_second": {
            "rr": round(PLAIN_ROWS / times["rr"]),
            **{name: round(n / times[name]) for name in ("rr_with_prior", "grouped")},
        },
        "rr_with_prior_over_sort": times["rr_with_prior"] / times["sort"],
        "grouped_over_rr_with_prior": times["grouped"] / times["rr_with_prior"],
        "rr_over_entropy": times["rr"] / times["entropy"],
        "priors_mebibytes": priors.nbytes / 2**20,
        "peak_mebibytes_above_inputs": peak,
        "one_row_at_a_time_labels_per_second": round(_naive(labels, priors)),
        "opendp_labels_per_second": round(_opendp(labels, n_classes)),
    }


def _interleaved(jobs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            times[name].append(seconds(job))
    return times


def _naive(labels: np.ndarray, priors: np.ndarray, most_seconds: float = 1.0) -> float:
    """Return labels per second of Algorithm 2 as one would write it for a single row, on `secrets`."""
    source = secrets.SystemRandom()
    ratio = math.exp(float(EPSILON))
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < most_seconds and done < len(labels):
        label, prior = int(labels[done]), priors[done].tolist()
        order = sorted(range(len(prior)), key=lambda y: -prior[y])
        best, mass, best_worth = 1, 0.0, -1.0
        for k, y in enumerate(order, start=1):
            mass += prior[y]
            worth = ratio / (ratio + k - 1) * mass
            if worth > best_worth:
                best, best_worth = k, worth
        candidates = order[:best]
        if label not in candidates or source.random() >= (ratio - 1) / (ratio + best - 1):
            source.choice(candidates)
        done += 1
    return done / (time.perf_counter() - start)


def _opendp(labels: np.ndarray, n_classes: int, count: int = 2_000) -> float:
    """Return labels per second of OpenDP's randomized response, which takes one record a call."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    ratio = math.exp(float(EPSILON))
    answer = dp.m.make_randomized_response(list(range(n_classes)), prob=ratio / (ratio + n_classes - 1))
    chosen = labels[:count].tolist()
    return count / seconds(lambda: [answer(label) for label in chosen])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, help="measure this number of classes in this process, JSON on stdout")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.classes:
        print(json.dumps(measure(arguments.classes)))
        return
    records = []
    for n_classes in ROWS:  # a fresh process each, so that peak memory is its own
        child = [sys.executable, __file__, "--classes", str(n_classes)]
        record = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
        records.append(record)
        _show(record)
    facts = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }
    missed = [
        f"{name} at K = {k}" for name, limits in LIMITS.items() for k in limits if _of(records, k)[name] > limits[k]
    ]
    result = {
        "command": "python benchmarks/mechanisms.py",
        "machine": facts,
        "limits": LIMITS,
        "missed": missed,
        "records": records,
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    rewrite(PAGE, {"mechanisms": table_of(records)})
    print("missed:", missed or "nothing")


def table_of(records: list[dict]) -> str:
    """Return the Markdown table of docs/benchmarks.md."""
    lines = [
        "| K | rows | RRWithPrior / sort | GroupedResponse / RRWithPrior | RR / 8 bytes a row | RRWithPrior, labels/s "
        "| one row at a time | OpenDP | memory above inputs (priors) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in records:
        ratios = " | ".join(f"{r[name]:.2f}" for name in LIMITS)
        speeds = (
            r["labels_per_second"]["rr_with_prior"],
            r["one_row_at_a_time_labels_per_second"],
            r["opendp_labels_per_second"],
        )
        memory = f"{r['peak_mebibytes_above_inputs']:.0f} MiB ({r['priors_mebibytes']:.0f} MiB)"
        lines.append(
            f"| {r['classes']:,} | {r['rows']:,} | {ratios} | "
            + " | ".join(f"{s:,}" for s in speeds)
            + f" | {memory} |"
        )
    return "\n".join(lines)


def _of(records: list[dict], n_classes: int) -> dict:
    return next(record for record in records if record["classes"] == n_classes)


def _show(record: dict) -> None:
    k = record["classes"]
    print(f"K = {k:,}, {record['rows']:,} rows")
    for name, limits in LIMITS.items():
        print(f"  {name:32} {record[name]:6.2f}   (at most {limits.get(k, '-')})")
    for name, speed in record["labels_per_second"].items():
        print(f"  {name:32} {speed:12,} labels/s")
    print(f"  {'one row at a time on secrets':32} {record['one_row_at_a_time_labels_per_second']:12,} labels/s")
    print(f"  {'OpenDP, one record a call':32} {record['opendp_labels_per_second']:12,} labels/s")
    peak, given = record["peak_mebibytes_above_inputs"], record["priors_mebibytes"]
    print(f"  peak memory above inputs {peak:.0f} MiB (priors: {given:.0f} MiB)")


if __name__ == "__main__":
    main()
