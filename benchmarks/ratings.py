"""What helps with ratings? Each idea is judged on noisy hold-outs alone: a tenth of the training ratings, set aside.

They are released once a draw, by randomized response at epsilon 4; what an idea makes of the others is graded on these answers
by the root of the mean squared error, which is estimated without bias. Neither true ratings nor the test split are looked at.
All ideas of a draw share its hold-out, so that differences are less noisy than the figures. Records go to
benchmarks/results/ratings.json as they come, the table to docs/frontier.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import labeldp as ldp
from labeldp.datasets import Dataset
from labeldp.features.pairs import pair_coordinates
from labeldp.files import renamed_when_whole
from labeldp.learning.ratings import RatingSums
from labeldp.torch import TorchLearner
from labeldp.torch.models.ratings import COORDINATES, FACTORS, SUM_COORDINATES, Ratings
from labeldp.torch.models.recommender import NeuMF, expected_value
from page import rewrite
from script import run

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "ratings.json"
PAGE = HERE.parent / "docs" / "frontier.md"
HELD, HELD_EPSILON = 0.1, "4"
EPSILONS = ("1", "2")
Record = dict[str, Any]


def unbiased(epsilon: Any) -> ldp.UnbiasedResponse:
    return ldp.UnbiasedResponse(epsilon, low=1, high=5)


@dataclass(frozen=True)
class Local:
    """Reports on each rating, and a model that learns from their likelihood."""

    mechanism: Callable[[Any], Any] = unbiased
    stages: int = 1
    n_factors: int = FACTORS
    n_coordinates: int = COORDINATES
    loss: str = "likelihood"
    trust = "local"

    def predictions(self, data: Dataset, train: np.ndarray, held: np.ndarray, epsilon: str, draw: int) -> np.ndarray:
        shape = {"n_factors": self.n_factors, "n_coordinates": self.n_coordinates}
        how = {"epochs": 5, "batch_size": 8192, "learning_rate": 0.015, "optimizer": "adam", "weight_decay": 0.0}
        learner = TorchLearner(Ratings(*data.inputs["sizes"], 5, **shape), loss=self.loss, seed=draw, **how)
        multi = ldp.MultiStage(learner, stages=self.stages, mechanism=self.mechanism)
        multi.fit(data.X, data.vault(budget=epsilon), epsilon, rows=train)
        return multi.predict_proba(data.X[held]) @ np.array(data.classes, dtype=np.float64)


@dataclass(frozen=True)
class Net:
    """What the recipe `paper-1st` does, for so many epochs, with a weight decay: of ratings the paper prints neither."""

    epochs: int = 50
    weight_decay: float = 1e-4
    trust = "local"

    def predictions(self, data: Dataset, train: np.ndarray, held: np.ndarray, epsilon: str, draw: int) -> np.ndarray:
        how = {"epochs": self.epochs, "weight_decay": self.weight_decay, "batch_size": 128, "schedule": "piecewise"}
        learner = TorchLearner(NeuMF(*data.inputs["sizes"], 5), learning_rate=0.1, seed=draw, **how)
        release = data.vault(budget=epsilon).release(ldp.RandomizedResponse(epsilon), train)
        learner.fit(data.X, release)
        return expected_value(learner.predict_proba(data.X[held]), data.classes)


@dataclass(frozen=True)
class Curator:
    """Sums over public pieces of items and of users, and a linear model of them."""

    share: float = 0.4
    n_coordinates: int = SUM_COORDINATES
    piece: float = 0.5
    trust = "curator"

    def predictions(self, data: Dataset, train: np.ndarray, held: np.ndarray, epsilon: str, draw: int) -> np.ndarray:  # noqa: ARG002
        found = pair_coordinates(data.X, tuple(data.inputs["sizes"]), self.n_coordinates)
        sums = RatingSums(found, self.share, self.piece)
        sums.fit(data.X, data.vault(budget=epsilon, trust="curator"), epsilon, rows=train)
        return sums.predict(data.X[held])


IDEAS: dict[str, Local | Curator] = {
    "randomized response": Local(ldp.RandomizedResponse),
    "randomized response, reports taken at their word": Local(ldp.RandomizedResponse, loss="noisy-label"),
    "balanced groups": Local(ldp.GroupedResponse),
    "balanced groups, two stages": Local(ldp.GroupedResponse, stages=2),
    "unbiased reports": Local(),
    "unbiased reports, no factors": Local(n_factors=0),
    "unbiased reports, no coordinates": Local(n_coordinates=0),
    "unbiased reports, biases alone": Local(n_factors=0, n_coordinates=0),
    "unbiased reports, twice the coordinates": Local(n_coordinates=2 * COORDINATES),
    "sums over even pieces (curator)": Curator(),
    "sums, one an item and one a user (curator)": Curator(piece=1e9),
    "sums, pieces of half the size (curator)": Curator(piece=0.25),
    "sums, pieces of twice the size (curator)": Curator(piece=1.0),
    "sums, half the coordinates (curator)": Curator(n_coordinates=SUM_COORDINATES // 2),
    "sums, a quarter of epsilon for items (curator)": Curator(share=0.25),
    "sums, three fifths of epsilon for items (curator)": Curator(share=0.6),
}
NETS = {
    "the paper's net, 25 epochs": Net(25),
    "the paper's net, 50 epochs": Net(),
    "the paper's net, 50 epochs, weight decay 3e-4": Net(weight_decay=3e-4),
    "the paper's net, 50 epochs, weight decay 3e-5": Net(weight_decay=3e-5),
    "the paper's net, 100 epochs": Net(100),
}
NETS_EPSILONS = ("4",)


def studied(data: Dataset, ideas: Mapping[str, Local | Net | Curator], epsilons: list[str], draw: int) -> Any:
    """Yield records of ideas in a draw, against a hold-out of its own."""
    order = np.random.default_rng(draw).permutation(data.n_rows)
    cut = int(HELD * data.n_rows)
    held, train = np.sort(order[:cut]), np.sort(order[cut:])
    hold_out = data.vault(budget=HELD_EPSILON).release(ldp.RandomizedResponse(HELD_EPSILON), held)
    for epsilon in epsilons:
        for name, idea in ideas.items():
            began = time.perf_counter()
            predicted = np.clip(idea.predictions(data, train, held, epsilon, draw), 1, 5)
            found = ldp.metrics.rmse(hold_out, predicted)
            yield {
                "idea": name,
                "trust": idea.trust,
                "epsilon": epsilon,
                "draw": draw,
                "rmse": found.value,
                "standard_error": found.standard_error,
                "seconds": time.perf_counter() - began,
            }


def table(records: list[Record]) -> str:
    """Return one row per idea: RMSE on noisy hold-outs by epsilon, mean over draws."""
    epsilons = sorted({each["epsilon"] for each in records}, key=float)
    lines = [f"| idea | {' | '.join(f'ε {each}' for each in epsilons)} |", "|---|" + "---|" * len(epsilons)]
    for idea in [name for name in (*IDEAS, *NETS) if any(each["idea"] == name for each in records)]:
        cells = [[r["rmse"] for r in records if (r["idea"], r["epsilon"]) == (idea, e)] for e in epsilons]
        lines.append(f"| {idea} | {' | '.join(_cell(each) for each in cells)} |")
    return "\n".join(lines)


def spent(records: list[Record]) -> str:
    """Return what all ideas, each of which asked every rating that was not held out, add up to."""
    total = sum(float(each["epsilon"]) for each in records)
    held = float(HELD_EPSILON) * len({each["draw"] for each in records})
    return f"On secret ratings the study would have cost epsilon {total:g} each, and at most {held:g} those that were held out."


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{statistics.mean(values):.4f}" + (f" ({len(values)} draws)" if len(values) > 1 else "")


def read(out: Path) -> list[Record]:
    found: list[Record] = json.loads(out.read_text(encoding="utf-8"))["records"] if out.exists() else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--epsilon", action="append", help="repeatable; by default 1 and 2, of nets 4")
    parser.add_argument("--nets", action="store_true", help="study the paper's net instead, for half an hour")
    parser.add_argument("--draw", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="run nothing: write the page from what is recorded")
    arguments = parser.parse_args()
    if not arguments.page:
        if any(each["draw"] == arguments.draw for each in read(arguments.out)):
            parser.error(f"draw {arguments.draw} is recorded, and its hold-out is gone: name another by --draw.")
        data = ldp.datasets.load("movielens-1m", data_dir=arguments.data_dir)
        ideas, epsilons = (NETS, NETS_EPSILONS) if arguments.nets else (IDEAS, EPSILONS)
        for record in studied(data, ideas, arguments.epsilon or list(epsilons), arguments.draw):
            with renamed_when_whole(arguments.out) as file:
                told = {"held_epsilon": HELD_EPSILON, "held": HELD, "records": [*read(arguments.out), record]}
                file.write((json.dumps(told, indent=1) + "\n").encode())
            print(json.dumps(record), file=sys.stderr, flush=True)
    if arguments.out == RESULTS:
        records = read(arguments.out)
        rewrite(PAGE, {"ratings": table(records), "ratings asked": spent(records)})


if __name__ == "__main__":
    run(main, stopped="Stopped. What is recorded stays; the hold-out is gone: begin another draw by --draw.")
