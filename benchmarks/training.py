"""What does our training loop cost, next to the work it cannot avoid?

One run measures, on random 28×28 images and a release of RandomizedResponse at epsilon 2:
  an epoch of TorchLearner over the bare steps on batches gathered beforehand; the likelihood loss over cross entropy; mixup;
  the paper's augmentation; and, with GroupNorm, DP-SGD (Opacus) over TorchLearner on the same batches, in time and memory.
Machines are noisy, so epochs are interleaved in one process, in an order that turns round every round, and a ratio is the
median over the rounds of the ratio within a round; the ratio of the best times stands beside it. Memory is the peak of a
fresh process above what it held after imports and data. JSON goes to benchmarks/results/training.json, the table to
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import labeldp as ldp
from labeldp.torch.augmentation import Augmentation
from labeldp.torch.batches import Batches, as_input, gather
from labeldp.torch.learner import TorchLearner
from labeldp.torch.models.registry import build
from page import rewrite

RESULTS = Path(__file__).parent / "results" / "training.json"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
ROWS, ROUNDS, BATCH, CLASSES, EPSILON = 10_000, 15, 256, 10, "2"
IMAGE = {"kind": "image", "shape": [1, 28, 28]}
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4
PAPERS = Augmentation(crop=4, flip=True, cutout=8)
HAVE_OPACUS = find_spec("opacus") is not None

Epoch = Callable[[], float]  # trains for one epoch, returns its seconds
Times = dict[str, list[float]]


@dataclass(frozen=True)
class Ratio:
    """The time of one job over another's, what it must not exceed, and how a reader is told of both."""

    over: str
    under: str
    says: str
    at_most: float | None = None


RATIOS = {
    "noise": Ratio("plain_again", "plain", "our loop / the same again: how far noise goes"),
    "loop": Ratio("plain", "bare", "our loop / bare steps", 1.10),
    "likelihood": Ratio("likelihood", "plain", "likelihood loss / cross entropy", 1.03),
    "mixup": Ratio("mixup", "plain", "mixup / without"),
    "augmentation": Ratio("augmentation", "plain", "crop 4, flip and cutout 8 / without"),
    "dp_sgd": Ratio("opacus", "groupnorm", "DP-SGD (Opacus) / our loop, both with GroupNorm"),
}


class Trials:
    """One data set, one release, and the trainings that are compared on them."""

    def __init__(self, rows: int) -> None:
        rng = np.random.default_rng(0)
        self.images = rng.integers(256, size=(rows, 1, 28, 28), dtype=np.uint8)
        vault = ldp.LabelVault(rng.integers(CLASSES, size=rows), classes=CLASSES, budget=EPSILON)
        self.release = vault.release(ldp.RandomizedResponse(EPSILON))
        self.batches = Batches.of(rows, BATCH)

    @property
    def rows_an_epoch(self) -> int:
        return self.batches.steps * self.batches.size

    def jobs(self) -> dict[str, Epoch]:
        jobs = {
            "bare": self.bare(),
            "plain": self.ours(),
            "plain_again": self.ours(),
            "likelihood": self.ours(loss="likelihood"),
            "mixup": self.ours(mixup=1.0),
            "augmentation": self.ours(augmentation=PAPERS),
        }
        if HAVE_OPACUS:
            jobs |= {"groupnorm": self.ours("small-conv-groupnorm"), "opacus": self.opacus()}
        return jobs

    def ours(
        self,
        model: str = "small-conv",
        *,
        loss: str = "noisy-label",
        mixup: float = 0.0,
        augmentation: Augmentation | None = None,
    ) -> Epoch:
        learner = TorchLearner(
            build(model, IMAGE, CLASSES),
            loss=loss,
            epochs=1,
            batch_size=BATCH,
            learning_rate=LEARNING_RATE,
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
            schedule="constant",
            mixup=mixup,
            augmentation=augmentation,
        )

        def epoch() -> float:
            records: list[dict] = []
            learner.fit(self.images, self.release, watch=records.append)
            return records[0]["seconds"]

        return epoch

    def bare(self) -> Epoch:
        """Return the least one can do: the same net, optimizer and batches, and nothing but the steps."""
        batches = list(self.batched(as_input))
        module = build("small-conv", IMAGE, CLASSES).to(memory_format=torch.channels_last)
        optimizer = _sgd(module)
        return lambda: _timed(module, optimizer, batches)

    def opacus(self) -> Epoch:
        """Return DP-SGD on the batches that our own loop takes, in the layout that it is faster in.

        Opacus would rather draw each row by chance, which its proof needs, and collate rows one by one; equal batches, gathered
        as ours are, leave a ratio of the training alone.
        """
        from opacus import PrivacyEngine

        for known in ("Secure RNG turned off", "Full backward hook is firing"):
            warnings.filterwarnings("ignore", known)
        module = build("small-conv-groupnorm", IMAGE, CLASSES)
        module, optimizer, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=_sgd(module),
            data_loader=torch.utils.data.DataLoader(range(self.rows_an_epoch), batch_size=self.batches.size),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
        )
        return lambda: _timed(module, optimizer, self.batched(lambda taken: taken.float().mul_(1 / 255)))

    def batched(self, read: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of our first epoch, with the labels that were released."""
        rows, labels = self.release.rows, torch.from_numpy(self.release.label_numbers)
        for chosen in self.batches.epoch(0, 1):
            yield read(gather(self.images, rows[chosen], torch.device("cpu"))), labels[torch.from_numpy(chosen)]


def _sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, nesterov=True, weight_decay=WEIGHT_DECAY
    )


def _timed(module: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    module.train()
    start = time.perf_counter()
    for inputs, labels in batches:
        optimizer.zero_grad()
        functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    return time.perf_counter() - start


def interleaved(jobs: dict[str, Epoch], rounds: int) -> tuple[Times, Times]:
    """Return the seconds of each job's epochs, and those that each call took beyond its epoch."""
    for job in jobs.values():
        job()
    epochs: Times = {name: [] for name in jobs}
    beyond: Times = {name: [] for name in jobs}
    for number in range(rounds):
        for name in list(jobs)[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            epochs[name].append(jobs[name]())
            beyond[name].append(time.perf_counter() - start - epochs[name][-1])
    return epochs, beyond


def mebibytes_at_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_peak(job: str, rows: int) -> float:
    """Return the mebibytes that an epoch adds to the peak of this process."""
    import opacus  # noqa: F401 - on both sides, and before the baseline

    trials = Trials(rows)
    before = mebibytes_at_peak()
    epoch = trials.opacus() if job == "opacus" else trials.ours("small-conv-groupnorm")
    epoch()
    return mebibytes_at_peak() - before


def peaks(rows: int) -> dict[str, float]:
    """Measure in fresh processes. Call it first: on Linux a child's peak starts from that of the process that started it."""
    found = {}
    for job in ("groupnorm", "opacus"):
        child = [sys.executable, __file__, "--peak", job, "--rows", str(rows)]
        found[job] = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def summary(times: Times, rows_an_epoch: int) -> dict[str, dict]:
    """Return each ratio with its bound, and what it comes to per image."""
    found = {}
    for name, ratio in RATIOS.items():
        if ratio.over not in times:
            continue
        over, under = times[ratio.over], times[ratio.under]
        median = statistics.median(a / b for a, b in zip(over, under, strict=True))
        quartiles = statistics.quantiles((a / b for a, b in zip(over, under, strict=True)), method="inclusive")
        more = statistics.median(a - b for a, b in zip(over, under, strict=True))
        found[name] = {
            "median": median,
            "quartiles": [quartiles[0], quartiles[2]],
            "of_best": min(over) / min(under),
            "microseconds_more_per_image": more / rows_an_epoch * 1e6,
            "at_most": ratio.at_most,
            "met": None if ratio.at_most is None else median <= ratio.at_most,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="at least 2")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the page is rewritten only if this is left as it is")
    parser.add_argument(
        "--peak", choices=("groupnorm", "opacus"), help="measure its memory in this process, JSON on stdout"
    )
    arguments = parser.parse_args()
    if arguments.peak:
        print(json.dumps(measure_peak(arguments.peak, arguments.rows)))
        return
    start = time.perf_counter()
    if not HAVE_OPACUS:
        print("Opacus is not installed, so its lines are left out: pip install 'labeldp[benchmark]'.")
    memory = peaks(arguments.rows) if HAVE_OPACUS else {}
    trials = Trials(arguments.rows)
    times, beyond = interleaved(trials.jobs(), arguments.rounds)
    ratios = summary(times, trials.rows_an_epoch)
    result = {
        "command": " ".join(["python benchmarks/training.py", *sys.argv[1:]]),
        "seconds": time.perf_counter() - start,
        "machine": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
            "opacus": version("opacus") if HAVE_OPACUS else None,
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "rows": arguments.rows,
        "rows_an_epoch": trials.rows_an_epoch,
        "batch_size": trials.batches.size,
        "rounds": arguments.rounds,
        "epsilon": EPSILON,
        "ratios": ratios,
        "missed": [name for name, ratio in ratios.items() if ratio["met"] is False],
        "milliseconds_once_per_fit": statistics.median(beyond["plain"]) * 1e3,
        "peak_mebibytes_above_data": memory,
        "epoch_seconds": {
            name: {"median": statistics.median(each), "best": min(each), "all": each} for name, each in times.items()
        },
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    table = table_of(result)
    print(table)
    if arguments.out == RESULTS:
        rewrite(PAGE, {"training": table})
    print("missed:", result["missed"] or "nothing")


def table_of(result: dict) -> str:
    """Return the Markdown table of docs/benchmarks.md."""
    lines = ["| what | ratio | quartiles | of the best times | at most | more per image |", "|---|---|---|---|---|---|"]
    for name, found in result["ratios"].items():
        bound = "" if found["at_most"] is None else f"{found['at_most']:.2f}"
        more = f"{found['microseconds_more_per_image']:.1f} µs"
        low, high = found["quartiles"]
        figures = f"{found['median']:.3f} | {low:.3f} to {high:.3f} | {found['of_best']:.3f}"
        lines.append(f"| {RATIOS[name].says} | {figures} | {bound} | {more} |")
    if memory := result["peak_mebibytes_above_data"]:
        ours, theirs = memory["groupnorm"], memory["opacus"]
        says = f"peak memory above the data: DP-SGD, {theirs:.0f} MiB / our loop, {ours:.0f} MiB"
        lines.append(f"| {says} | {theirs / ours:.1f} | | | | |")
    machine = result["machine"]
    lines += [
        "",
        f"{result['rows']:,} rows, {result['rounds']} rounds, {machine['threads']} threads, torch {machine['torch']}. "
        f"What a fit does once, before and after its epochs: {result['milliseconds_once_per_fit']:.0f} ms.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
