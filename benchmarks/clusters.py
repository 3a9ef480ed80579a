"""A curator's histograms of public clusters: accuracy against their number and epsilon, alone and before a local response.

For each dataset, patch features of all inputs (no labels), then, with noise from the operating system:
  learned : a linear model on the soft targets that the counts give, tested on the public test split, for C = n epsilon / d;
  large clusters : the same for the paper's C = 100;
  bags : the same for d = 20, then three rounds of EM on the likelihood of the counts;
  majority : Appendix B of the paper, Figure 2: training and test rows clustered together, test rows labelled by the noisy
      majority of their cluster, for a row of C;
  parts : at epsilon 1, counts and a local response together against each alone, and against the paper's own ways.
Settings were fixed before the test split was looked at; the page says how. Draws go to benchmarks/results/clusters.json as they
come (a second run goes on where the first stopped), tables and plots to docs/priors.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labeldp as ldp
from labeldp.features import PatchFeatures, cached
from labeldp.learning import Beliefs, ClusterPrior
from labeldp.priors import Clusters, cluster_count, joint_accuracy
from labeldp.torch import TorchLearner, models
from page import rewrite

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "clusters.json"
PAGE = HERE.parent / "docs" / "priors.md"
README = HERE.parent / "README.md"
PLOT = HERE.parent / "docs" / "priors.svg"
DATASETS = ("fashion-mnist", "mnist")
EPSILONS = ("0.05", "0.1", "0.5", "1", "2")
ROWS_PER_CLUSTER = (80, 40, 20, 10, 5)
"""d of C = n epsilon / d; 20 is the public rule."""
RULE, BAG_ROUNDS = 20, 3
LARGE = 100
"""What the paper took for BYOL's features."""
JOINT_COUNTS = (20, 50, 100, 200, 500, 1000, 2000, 5000)
WANTED = {
    "fashion-mnist": {"0.1": 83.7, "0.5": 86.8, "1": 87.8, "2": 88.3},
    "mnist": {"0.1": 96.1, "0.5": 97.4},
}
FLOORS = {"fashion-mnist": 10.0, "mnist": 6500.0}
"""Of PatchFeatures, chosen on noisy hold-outs of training rows; 10 had been looked at on Fashion-MNIST's test split."""
LINEAR = {
    "epochs": 8,
    "batch_size": 512,
    "learning_rate": 2e-3,
    "optimizer": "adam",
    "weight_decay": 1e-3,
}
Record = dict[str, Any]


class Inputs:
    """A dataset's patch features, and clusters of them, each found once."""

    def __init__(self, name: str, data_dir: Path | None, cache: Path) -> None:
        self.name, self.data = name, ldp.datasets.load(name, data_dir=data_dir)
        extractor = PatchFeatures(floor=FLOORS[name])
        began = time.perf_counter()
        self.X = np.array(cached(self.data.X, extractor, cache))
        self.X_test = np.array(cached(self.data.X_test, extractor, cache))
        say(f"{name}: features in {time.perf_counter() - began:.0f} s")
        self._found: dict[tuple[bool, int], tuple[Clusters, float]] = {}

    def count(self, epsilon: str, per_cluster: int) -> int:
        return max(1, int(float(epsilon) * len(self.X) / per_cluster))

    def clusters(self, count: int, *, with_test: bool = False) -> tuple[Clusters, float]:
        """Return so many clusters, and the seconds that they took."""
        if (with_test, count) not in self._found:
            began = time.perf_counter()
            features = np.concatenate([self.X, self.X_test]) if with_test else self.X
            found = Clusters.of(features, count=count)
            self._found[with_test, count] = found, time.perf_counter() - began
        return self._found[with_test, count]

    def learner(self, draw: int, loss: str = "likelihood") -> TorchLearner:
        module = models.build("linear", {"kind": "vector", "size": self.X.shape[1]}, len(self.data.classes), seed=draw)
        return TorchLearner(module, loss=loss, seed=draw, **LINEAR)

    def vault(self, epsilon: str) -> ldp.LabelVault:
        return self.data.vault(budget=epsilon, trust="curator")

    def tested(self, model: Any) -> float:
        return 100 * float(np.mean(model.predict_proba(self.X_test).argmax(axis=1) == self.data.test_labels))


def learned(inputs: Inputs, epsilon: str, count: int, draw: int, bag_rounds: int = 0) -> Record:
    clusters, clustering = inputs.clusters(count)
    began = time.perf_counter()
    prior = ClusterPrior(clusters)
    multi = ldp.MultiStage(inputs.learner(draw), stages=0, clusters=prior, bag_rounds=bag_rounds)
    multi.fit(inputs.X, inputs.vault(epsilon), epsilon)
    seconds = time.perf_counter() - began
    return {"clusters": count, "value": inputs.tested(multi), "seconds": seconds, "clustering_seconds": clustering}


def majority(inputs: Inputs, epsilon: str, count: int, draw: int) -> Record:  # noqa: ARG001 - noise needs no seed
    clusters, clustering = inputs.clusters(count, with_test=True)
    share = joint_accuracy(clusters, inputs.vault(epsilon), epsilon, inputs.data.test_labels)
    return {"clusters": count, "value": 100 * share, "clustering_seconds": clustering}


# ---- at epsilon 1: counts and a response together, and each alone ----------------------------------------------------


def response(epsilon: str, stages: int = 1) -> Callable[[Inputs, int], Any]:
    def fit(inputs: Inputs, draw: int) -> Any:
        multi = ldp.MultiStage(inputs.learner(draw), stages=stages, mechanism=ldp.GroupedResponse)
        return multi.fit(inputs.X, inputs.vault(epsilon), epsilon)

    return fit


def counts(epsilon: str, *, bag_rounds: int = 0) -> Callable[[Inputs, int], Any]:
    def fit(inputs: Inputs, draw: int) -> Any:
        clusters, _ = inputs.clusters(cluster_count(len(inputs.X), epsilon))
        prior = ClusterPrior(clusters)
        multi = ldp.MultiStage(inputs.learner(draw), stages=0, clusters=prior, bag_rounds=bag_rounds)
        return multi.fit(inputs.X, inputs.vault(epsilon), epsilon)

    return fit


def both(
    part: str,
    mechanism: Any = ldp.GroupedResponse,
    *,
    count: int | None = None,
    loss: str = "likelihood",
    stages: int = 1,
    bag_rounds: int = 0,
) -> Callable[[Inputs, int], Any]:
    def fit(inputs: Inputs, draw: int) -> Any:
        clusters, _ = inputs.clusters(count or cluster_count(len(inputs.X), part))
        prior = ClusterPrior(clusters, part)
        how = {"stages": stages, "mechanism": mechanism, "bag_rounds": bag_rounds}
        multi = ldp.MultiStage(inputs.learner(draw, loss), clusters=prior, **how)
        return multi.fit(inputs.X, inputs.vault("1"), "1")

    return fit


def posterior_as_targets(part: str, rest: str) -> Callable[[Inputs, int], Any]:
    """Learn prior times likelihood of each row as a soft target, instead of both side by side."""

    def fit(inputs: Inputs, draw: int) -> Any:
        clusters, _ = inputs.clusters(cluster_count(len(inputs.X), part))
        vault, prior = inputs.vault("1"), ClusterPrior(clusters, part)
        histogram = vault.histogram(clusters.numbers, part, n_groups=clusters.count)
        rows = np.arange(len(inputs.X))
        priors = prior.prior(histogram, rows)
        release = vault.release(ldp.GroupedResponse(rest), priors=priors, source=histogram)
        joint = priors * release.likelihood()
        beliefs = Beliefs(rows, joint / joint.sum(axis=1, keepdims=True), [histogram, release])
        return inputs.learner(draw).fit(inputs.X, beliefs)

    return fit


PARTS: dict[str, Callable[[Inputs, int], Any]] = {
    "response alone, epsilon 1": response("1"),
    "response alone, epsilon 1, two stages": response("1", 2),
    "counts alone, epsilon 1": counts("1"),
    "counts alone, epsilon 1, bag likelihood": counts("1", bag_rounds=BAG_ROUNDS),
    "counts alone, epsilon 0.25": counts("0.25"),
    "response alone, epsilon 0.75": response("0.75"),
    "counts 0.1, response 0.9": both("0.1"),
    "counts 0.25, response 0.75": both("0.25"),
    "counts 0.25, response 0.75, two stages": both("0.25", stages=2),
    "counts 0.5, response 0.5": both("0.5"),
    "counts 0.5, response 0.5, bag likelihood": both("0.5", bag_rounds=BAG_ROUNDS),
    "counts 0.25, response 0.75, posterior as soft target": posterior_as_targets("0.25", "0.75"),
    "counts 0.25, RRWithPrior 0.75": both("0.25", ldp.RRWithPrior),
    "counts 0.25, ClusterRR 0.75": both("0.25", ldp.ClusterRR),
    "the paper's: counts 0.05 of 100 clusters, RRWithPrior 0.95, noisy labels": both(
        "0.05", ldp.RRWithPrior, count=100, loss="noisy-label"
    ),
}


def part(inputs: Inputs, name: str, draw: int) -> Record:
    began = time.perf_counter()
    return {"value": inputs.tested(PARTS[name](inputs, draw)), "seconds": time.perf_counter() - began}


# ---- what is run -----------------------------------------------------------------------------------------------------


def cells(name: str, draws: int) -> Iterator[tuple[Record, Callable[[Inputs], Record]]]:
    """Yield what names a figure, and how to get it."""
    for epsilon in EPSILONS:
        for per_cluster in ROWS_PER_CLUSTER:
            for draw in range(draws):
                key = {"figure": "learned", "epsilon": epsilon, "rows_per_cluster": per_cluster, "draw": draw}
                yield key, lambda inputs, e=epsilon, p=per_cluster, d=draw: learned(inputs, e, inputs.count(e, p), d)
    for epsilon in EPSILONS:
        for draw in range(draws):
            key = {"figure": "bags", "epsilon": epsilon, "rows_per_cluster": RULE, "draw": draw}
            yield key, lambda inputs, e=epsilon, d=draw: learned(inputs, e, inputs.count(e, RULE), d, BAG_ROUNDS)
            key = {"figure": "large clusters", "epsilon": epsilon, "count": LARGE, "draw": draw}
            yield key, lambda inputs, e=epsilon, d=draw: learned(inputs, e, LARGE, d)
    for count in JOINT_COUNTS:
        for epsilon in EPSILONS:
            for draw in range(draws):
                key = {"figure": "majority", "epsilon": epsilon, "count": count, "draw": draw}
                yield key, lambda inputs, e=epsilon, c=count, d=draw: majority(inputs, e, c, d)
    if name == "fashion-mnist":
        for method in PARTS:
            for draw in range(draws):
                key = {"figure": "parts", "epsilon": "1", "method": method, "draw": draw}
                yield key, lambda inputs, m=method, d=draw: part(inputs, m, d)


def measure(args: argparse.Namespace) -> list[Record]:
    """Return all records, those of earlier runs among them; each is stored as it comes."""
    records: list[Record] = json.loads(RESULTS.read_text())["records"] if RESULTS.exists() else []
    done = {_key(record) for record in records}
    for name in args.datasets:
        inputs = None
        for key, get in cells(name, args.draws):
            trust = "local" if key.get("method", "").startswith("response alone") else "curator"
            key = {"dataset": name, "trust": trust, "metric": "accuracy", **key}
            if _key(key) in done:
                continue
            inputs = inputs or Inputs(name, args.data_dir, args.cache)
            record = key | get(inputs)
            records.append(record)
            say(" ".join(str(each) for each in record.values()))
            store(records)
    return records


def _key(record: Record) -> tuple[Any, ...]:
    names = ("dataset", "figure", "epsilon", "rows_per_cluster", "count", "method", "draw")
    return tuple(record.get(name) for name in names)


def store(records: list[Record]) -> None:
    facts = {
        "command": "python benchmarks/clusters.py",
        "threads": torch.get_num_threads(),
        "noise": "operating system",
        "settings": LINEAR,
        "floors": FLOORS,
        "records": records,
    }
    text = json.dumps(facts, indent=0).replace("\n", " ").replace("}, {", "},\n{")
    RESULTS.write_text(text + "\n")


# ---- what is shown ---------------------------------------------------------------------------------------------------


def gathered(records: list[Record], dataset: str, figure: str, by: str) -> dict[tuple[str, Any], list[float]]:
    """Return the values of each (epsilon, setting)."""
    found = defaultdict(list)
    for record in records:
        if (record["dataset"], record["figure"]) == (dataset, figure):
            found[record["epsilon"], record[by]].append(record["value"])
    return found


def mean_and_spread(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def learned_table(records: list[Record], dataset: str) -> str:
    found = gathered(records, dataset, "learned", "rows_per_cluster")
    lines = [
        f"| epsilon | C = {LARGE} | "
        + " | ".join(f"C = n ε / {d}" for d in ROWS_PER_CLUSTER)
        + f" | n ε / {RULE}, bag likelihood | to reach |",
        "|---|" + "---|" * (len(ROWS_PER_CLUSTER) + 3),
    ]
    bags = gathered(records, dataset, "bags", "rows_per_cluster")
    large = gathered(records, dataset, "large clusters", "count")
    for epsilon in EPSILONS:
        cells = [mean_and_spread(large[epsilon, LARGE])]
        cells += [mean_and_spread(found[epsilon, d]) for d in ROWS_PER_CLUSTER]
        cells.append(mean_and_spread(bags[epsilon, RULE]))
        lines.append(f"| {epsilon} | {' | '.join(cells)} | {WANTED[dataset].get(epsilon, '')} |")
    return "\n".join(lines)


def majority_table(records: list[Record], dataset: str) -> str:
    found = gathered(records, dataset, "majority", "count")
    lines = ["| epsilon | " + " | ".join(f"{c:,}" for c in JOINT_COUNTS) + " |", "|---|" + "---|" * len(JOINT_COUNTS)]
    for epsilon in EPSILONS:
        cells = [f"{statistics.mean(found[epsilon, c]):.1f}" for c in JOINT_COUNTS]
        lines.append(f"| {epsilon} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parts_table(records: list[Record]) -> str:
    found = gathered(records, "fashion-mnist", "parts", "method")
    trusts = {record["method"]: record["trust"] for record in records if record["figure"] == "parts"}
    lines = ["| what epsilon is spent on | trust | accuracy |", "|---|---|---|"]
    lines += [f"| {method} | {trusts[method]} | {mean_and_spread(found['1', method])} |" for method in PARTS]
    return "\n".join(lines)


def wall_time(records: list[Record], dataset: str) -> str:
    ours = [record for record in records if record["dataset"] == dataset and record["figure"] == "learned"]
    rule = [record for record in ours if record["rows_per_cluster"] == RULE]
    draws = len({record["draw"] for record in ours})
    fits = statistics.median(record["seconds"] for record in rule)
    slowest = max(rule, key=lambda record: record["clustering_seconds"])
    longest = f"{slowest['clustering_seconds']:.0f} s to find {slowest['clusters']:,} clusters"
    threads = json.loads(RESULTS.read_text())["threads"]
    return (
        f"{len(ours) // draws} cells, {draws} draws. With C = n ε / {RULE}: {fits:.0f} s to count and train (median), at most "
        f"{longest}; {threads} threads of a shared machine."
    )


def draw_plot(records: list[Record]) -> None:
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "labeldp"
    figure, axes = plt.subplots(1, len(DATASETS), figsize=(11, 4.6), sharex=True)
    colours = dict(zip(EPSILONS, plt.cm.viridis(np.linspace(0, 0.85, len(EPSILONS))), strict=True))
    for axis, dataset in zip(axes, DATASETS, strict=True):
        for epsilon in EPSILONS:
            for kind, line in (("learned", "-"), ("bags", "none"), ("majority", ":")):
                points = defaultdict(list)
                for record in records:
                    if (record["dataset"], record["figure"], record["epsilon"]) == (dataset, kind, epsilon):
                        points[record["clusters"]].append(record["value"])
                where = sorted(points)
                values = [statistics.mean(points[count]) for count in where]
                label = f"ε = {epsilon}" if kind == "learned" else None
                mark = {"marker": "*", "markersize": 9} if kind == "bags" else {"marker": "o", "markersize": 3}
                axis.plot(where, values, color=colours[epsilon], linestyle=line, label=label, **mark)
        axis.set(title=dataset, xscale="log", xlabel="clusters C")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="test accuracy, %", ylim=(40, 92))
    axes[1].set(ylim=(60, 100))
    axes[1].legend(loc="lower left", title="— model on counts\n★ by the bag likelihood\n··· majority of its cluster")
    figure.tight_layout()
    figure.savefig(PLOT, metadata={"Date": None})


def patches_words() -> str:
    found = json.loads((RESULTS.parent / "patches.json").read_text())
    ratio, memory, aim = found["ratios"]["over_products"]["median"], found["peak"]["gibibytes"], found["aims"]["ratio"]
    return (
        f"**Patch features** of {found['rows']:,} Fashion-MNIST images (`python benchmarks/patches.py`): {ratio:.2f} times the "
        f"two matrix products that they cannot do without, in as many threads (we aimed for {aim['at_most']:g}"
        f"{'' if aim['met'] else ': missed'}); peak memory {memory:.2f} GiB, the features among it."
    )


def byol_table() -> str:
    found = json.loads((RESULTS.parent / "byol.json").read_text())
    names = {
        "raw_pixels": "raw pixels",
        "untrained": "the encoder, untrained",
        "untrained_calibrated": "the same, batch statistics calibrated",
        "byol": "after BYOL",
    }
    k, epochs = found["neighbours"]["k"], found["extractor"]["epochs"]
    lines = [f"| k = {k}, 10,000 test images | accuracy |", "|---|---|"]
    lines += [f"| {words} | {found['accuracy'][name]:.2f} |" for name, words in names.items()]
    minutes = found["training_seconds"] / 60
    return (
        "\n".join(lines)
        + f"\n\n{epochs} epochs, {minutes:.0f} minutes of training on {found['machine']['threads']} threads of a busy machine."
    )


def summary(records: list[Record]) -> str:
    lines = ["| epsilon | " + " | ".join(EPSILONS) + " |", "|---|" + "---|" * len(EPSILONS)]
    for dataset in DATASETS:
        found = gathered(records, dataset, "bags", "rows_per_cluster")
        lines.append(f"| {dataset} | " + " | ".join(mean_and_spread(found[e, RULE]) for e in EPSILONS) + " |")
    return "\n".join(lines)


def show(records: list[Record]) -> None:
    tables = {"parts": parts_table(records), "patches": patches_words(), "byol": byol_table()}
    for dataset in DATASETS:
        tables |= {
            f"learned {dataset}": learned_table(records, dataset),
            f"majority {dataset}": majority_table(records, dataset),
            f"time {dataset}": wall_time(records, dataset),
        }
    rewrite(PAGE, tables)
    rewrite(README, {"curator": summary(records)})
    draw_plot(records)


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=DATASETS, help="fashion-mnist, mnist; both by default")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "labeldp" / "features")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="Only write tables and plots from what is stored.")
    args = parser.parse_args()
    records = json.loads(RESULTS.read_text())["records"] if args.show else measure(args)
    if args.show or tuple(args.datasets) == DATASETS:
        show(records)


if __name__ == "__main__":
    main()
