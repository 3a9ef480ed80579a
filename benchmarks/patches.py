"""What do patch features cost, next to the two matrix products that they cannot do without?

Each patch of each image is multiplied by the whitening matrix, and each whitened patch by all centroids; cutting patches out,
square roots, triangles and pooling come on top. One run measures `PatchFeatures.transform` of all images over those two
products alone, of the same shapes, in as many threads: interleaved in one process, a ratio is the median over the rounds of
the ratio within a round, and the ratio of the best times stands beside it. The products as BLAS itself spreads them over
threads, in batches of 64 images, are timed too. Memory is the peak of a fresh process that loads images, fits and transforms.
JSON goes to benchmarks/results/patches.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import labeldp as ldp
from labeldp.errors import InvalidArgument
from labeldp.features import PatchFeatures
from labeldp.features.responses import Responses
from labeldp.features.threads import in_threads
from machine import machine

RESULTS = Path(__file__).parent / "results" / "patches.json"
ROWS, ROUNDS = 60_000, 3
RATIO_AIM, GIBIBYTES_AIM = 2.0, 3.0
LARGE_BATCH = 64
SHAPE = (1, 28, 28)

Job = Callable[[], object]


def load(data_dir: Path | None, rows: int) -> tuple[str, np.ndarray]:
    """Return Fashion-MNIST's training images, or random ones if its files are not there."""
    try:
        return "fashion-mnist", ldp.datasets.load("fashion-mnist", data_dir=data_dir).X[:rows]
    except InvalidArgument:
        return "random", np.random.default_rng(0).integers(256, size=(rows, *SHAPE), dtype=np.uint8)


class Products:
    """The two products, for all images, and nothing else."""

    def __init__(self, extractor: PatchFeatures, rows: int) -> None:
        learned = extractor.learned
        self.whitening, self.centroids = learned.whitening, learned.centroids
        self.rows = rows
        how = {"patch": extractor.patch, "pool": extractor.pool, "floor": extractor.floor}
        self.plan = Responses(self.whitening, self.centroids, shape=SHAPE, **how)
        self.regions = [down.length * across.length for down in self.plan.rows for across in self.plan.columns]
        self.n_centroids, self.n_values = self.centroids.shape

    def same_shapes(self) -> None:
        """Multiply what `transform` multiplies at once, in the threads that it uses."""
        own = threading.local()
        images, near = self.plan.at_once, self.plan.near

        def batch(_: int) -> None:
            if not hasattr(own, "room"):
                own.room = self._room(images * max(self.regions), near * max(self.regions))
            patches, whitened, distances = own.room
            for positions in self.regions:
                columns = patches[:, : images * positions]
                np.matmul(self.whitening, columns, out=_first(whitened, self.n_values, images * positions))
                for start in range(0, images, near):
                    some = columns[:, start * positions : (start + near) * positions]
                    np.matmul(self.centroids, some, out=_first(distances, self.n_centroids, near * positions))

        in_threads(batch, range(round(self.rows / images)))

    def large_batches(self) -> None:
        """Multiply the patches of 64 images at once, in BLAS's own threads."""
        patches, whitened, distances = self._room(*2 * [LARGE_BATCH * sum(self.regions)])
        for _ in range(round(self.rows / LARGE_BATCH)):
            np.matmul(self.whitening, patches, out=whitened.reshape(self.n_values, -1))
            np.matmul(self.centroids, patches, out=distances.reshape(self.n_centroids, -1))

    def _room(self, n_patches: int, n_near: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        patches = np.random.default_rng(0).standard_normal((self.n_values, n_patches), dtype=np.float32)
        whitened = np.empty(self.n_values * n_patches, np.float32)
        return patches, whitened, np.empty(self.n_centroids * n_near, np.float32)


def _first(floats: np.ndarray, n_rows: int, n_columns: int) -> np.ndarray:
    return floats[: n_rows * n_columns].reshape(n_rows, n_columns)


def timed(job: Job) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def interleaved(jobs: dict[str, Job], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds):
        for name in list(jobs)[:: -1 if number % 2 else 1]:
            times[name].append(timed(jobs[name]))
    return times


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    each = [a / b for a, b in zip(over, under, strict=True)]
    return {"median": statistics.median(each), "of_best": min(over) / min(under), "all": each}


def measure_peak(data_dir: Path | None, rows: int) -> dict[str, float]:
    """Fit and transform here, with the features in memory; return this process's peak and what it took to get there."""
    _, images = load(data_dir, rows)
    features = PatchFeatures().fit_transform(images)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"gibibytes": peak, "gibibytes_of_features": features.nbytes / 2**30}


def peak_of_a_fresh_process(arguments: argparse.Namespace) -> dict[str, float]:
    """Call it first: on Linux a child's peak starts from that of the process that started it."""
    child = [sys.executable, __file__, "--peak", "--rows", str(arguments.rows)]
    if arguments.data_dir is not None:
        child += ["--data-dir", str(arguments.data_dir)]
    return json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where Fashion-MNIST's files are; random images without them")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--peak", action="store_true", help="measure memory in this process, JSON on stdout")
    arguments = parser.parse_args()
    if arguments.peak:
        print(json.dumps(measure_peak(arguments.data_dir, arguments.rows)))
        return
    start = time.perf_counter()
    memory = peak_of_a_fresh_process(arguments)
    name, images = load(arguments.data_dir, arguments.rows)
    extractor = PatchFeatures()
    fit_seconds = timed(lambda: extractor.fit(images))
    products = Products(extractor, len(images))
    out = np.zeros((len(images), len(extractor.learned.mean)), np.float32)
    jobs: dict[str, Job] = {
        "transform": lambda: extractor.transform(images, out),
        "products": products.same_shapes,
        "products_in_large_batches": products.large_batches,
    }
    times = interleaved(jobs, arguments.rounds)
    ratios = {
        "over_products": ratio(times["transform"], times["products"]),
        "over_products_in_large_batches": ratio(times["transform"], times["products_in_large_batches"]),
    }
    result = {
        "command": "python benchmarks/patches.py",
        "seconds": time.perf_counter() - start,
        "machine": machine(),
        "images": name,
        "rows": len(images),
        "rounds": arguments.rounds,
        "extractor": extractor.description(),
        "fit_seconds": fit_seconds,
        "transform_seconds": {
            job: {"median": statistics.median(each), "best": min(each), "all": each} for job, each in times.items()
        },
        "ratios": ratios,
        "peak": memory,
        "aims": {
            "ratio": {"at_most": RATIO_AIM, "met": ratios["over_products"]["median"] <= RATIO_AIM},
            "gibibytes": {"at_most": GIBIBYTES_AIM, "met": memory["gibibytes"] <= GIBIBYTES_AIM},
        },
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{len(images):,} images ({name}): fit {fit_seconds:.1f} s, transform "
        f"{statistics.median(times['transform']):.1f} s, {ratios['over_products']['median']:.2f} times its two matrix products "
        f"(best times {ratios['over_products']['of_best']:.2f}); peak {memory['gibibytes']:.2f} GiB."
    )
    print("missed:", [aim for aim, found in result["aims"].items() if not found["met"]] or "nothing")


if __name__ == "__main__":
    main()
