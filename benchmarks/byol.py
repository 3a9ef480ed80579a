"""Does BYOL learn a representation of CIFAR-10 on two cores, in about 20 minutes, without a label?

A small convolutional network is trained by `labeldp.torch.BYOL` on training images alone. Then test images are named by the
vote of their k nearest training images, by cosine similarity, on four representations: raw pixels, the network before training
(as it is, and with its batch statistics taken from training images, whichever is better), and the network after it. The aim:
more than 2 points above the untrained network, with the same k.

NOT PRIVATE: an evaluation on published labels. The true labels of CIFAR-10 grade representations here. BYOL never sees them.

Learning rate and weight decay were chosen by the same figure on training rows that were split off; the test images are looked
at once, at the end. A stopped run is gone on with: each epoch leaves a checkpoint in --runs. Progress goes to stderr, JSON to
benchmarks/results/byol.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import labeldp as ldp
from labeldp.torch import BYOL
from labeldp.torch.batches import as_input, gather
from labeldp.torch.views import Views

RESULTS = Path(__file__).parent / "results" / "byol.json"
NOT_PRIVATE = "NOT PRIVATE: an evaluation on published labels"
AIM = 2.0
MINUTES = 20
NEIGHBOURS = 20
AT_ONCE = 1000
CALIBRATED_ON = 10_000
WIDTH = 16
SETTINGS = {
    "epochs": 40,
    "batch_size": 128,
    "projection": 256,
    "hidden": 512,
    "decay": 0.99,
    "learning_rate": 0.2,
    "weight_decay": 5e-4,
    "views": Views(flip=True),
}
ROWS = 20_000


class Convolution(nn.Sequential):
    """Convolution -> batch norm -> ReLU."""

    def __init__(self, c_in: int, c_out: int, *, kernel: int = 3, stride: int = 1) -> None:
        convolution = nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=(kernel - 1) // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(c_out), nn.ReLU())


class Residual(nn.Module):
    """x + Convolution(x)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = Convolution(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolution(x)


def backbone(width: int = WIDTH) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        Convolution(3, width, kernel=6, stride=2),  # 32 -> 15
        Convolution(width, 2 * width, stride=2),  # 8
        Residual(2 * width),
        Convolution(2 * width, 4 * width, stride=2),  # 4
        Residual(4 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def calibrated(module: nn.Module, images: np.ndarray) -> nn.Module:
    """Return a copy whose batch statistics are the averages over these images."""
    module = copy.deepcopy(module).train()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # a plain average over batches
    with torch.no_grad():
        for at in range(0, len(images), AT_ONCE):
            module(inputs_at(images, at))
    return module.eval()


def representations(module: nn.Module, images: np.ndarray) -> Tensor:
    module.eval()
    with torch.inference_mode():
        return torch.cat([module(inputs_at(images, at)).flatten(1) for at in range(0, len(images), AT_ONCE)])


def inputs_at(images: np.ndarray, at: int) -> Tensor:
    return as_input(gather(images, slice(at, at + AT_ONCE), torch.device("cpu")))


def nearest_accuracy(known: Tensor, known_classes: Tensor, asked: Tensor, asked_classes: Tensor) -> float:
    """Return the percentage of rows whose class is that of most of their nearest neighbours by cosine similarity.

    Of classes with as many votes, the first is taken.
    """
    known, asked = functional.normalize(known), functional.normalize(asked)
    n_classes = int(known_classes.max()) + 1
    right = 0
    for at in range(0, len(asked), AT_ONCE):
        nearest = (asked[at : at + AT_ONCE] @ known.T).topk(NEIGHBOURS).indices
        votes = functional.one_hot(known_classes[nearest], n_classes).sum(dim=1)
        right += int((votes.argmax(dim=1) == asked_classes[at : at + AT_ONCE]).sum())
    return 100 * right / len(asked)


def train(images: np.ndarray, settings: dict[str, Any], runs: Path) -> tuple[BYOL, list[dict[str, Any]]]:
    """Train, or go on with a training that was stopped; return the extractor and the records of all its epochs."""
    runs.mkdir(parents=True, exist_ok=True)
    log = runs / "epochs.jsonl"

    def watch(record: dict[str, Any]) -> None:
        with log.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(
            f"epoch {record['epoch']} of {record['epochs']}: loss {record['loss']:.3f}, spread {record['spread']:.3f}, "
            f"target's {record['target_spread']:.3f}, {record['seconds']:.1f} s",
            file=sys.stderr,
            flush=True,
        )

    extractor = BYOL(backbone(), **settings).fit(images, checkpoint=runs / "byol.pt", watch=watch)
    by_epoch = {record["epoch"]: record for record in map(json.loads, log.read_text().splitlines())}
    return extractor, list(
        by_epoch.values()
    )  # an epoch that was killed between its record and its checkpoint came twice


def grade(extractor: BYOL, data: ldp.datasets.Dataset) -> dict[str, float]:
    """Return the accuracies on all test images; neighbours are all training images."""
    print(f"{NOT_PRIVATE}: true labels grade the representations.", file=sys.stderr, flush=True)
    labels = torch.from_numpy(data.unprotected().reports.copy()).long()
    test_labels = torch.from_numpy(data.test_labels.copy()).long()
    untrained = backbone()
    modules = {
        "raw_pixels": nn.Flatten(),
        "untrained": untrained,
        "untrained_calibrated": calibrated(untrained, data.X[:CALIBRATED_ON]),
        "byol": extractor.module_,
    }
    found = {}
    for name, module in modules.items():
        known, asked = representations(module, data.X), representations(module, data.X_test)
        found[name] = nearest_accuracy(known, labels, asked, test_labels)
        print(f"{name}: {found[name]:.2f} %", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10's files are")
    parser.add_argument("--runs", type=Path, default=Path("runs/byol"), help="where the checkpoint goes")
    parser.add_argument("--rows", type=int, default=ROWS, help="how many training images BYOL sees")
    parser.add_argument("--epochs", type=int, default=SETTINGS["epochs"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    start = time.perf_counter()
    data = ldp.datasets.load("cifar-10", data_dir=arguments.data_dir)
    settings = SETTINGS | {"epochs": arguments.epochs}
    extractor, epochs = train(data.X[: arguments.rows], settings, arguments.runs)
    accuracies = grade(extractor, data)
    gain = accuracies["byol"] - max(accuracies["untrained"], accuracies["untrained_calibrated"])
    training_seconds = sum(record["seconds"] for record in epochs)
    result = {
        "command": f"python benchmarks/byol.py --rows {arguments.rows} --epochs {arguments.epochs}",
        "privacy": NOT_PRIVATE,
        "seconds": time.perf_counter() - start,
        "training_seconds": training_seconds,
        "machine": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load_average": os.getloadavg(),
        },
        "dataset": data.name,
        "rows": arguments.rows,
        "neighbours": {"k": NEIGHBOURS, "among": data.n_rows, "similarity": "cosine", "asked": len(data.X_test)},
        "extractor": extractor.description(),
        "epochs": [
            {name: record[name] for name in ("epoch", "loss", "spread", "target_spread", "learning_rate", "seconds")}
            for record in epochs
        ],
        "accuracy": accuracies,
        "points_above_the_better_untrained": gain,
        "aims": {
            "points": {"more_than": AIM, "met": gain > AIM},
            "training_minutes": {"about": MINUTES, "met": training_seconds <= 1.1 * 60 * MINUTES},
        },
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{NEIGHBOURS} nearest of {data.n_rows:,}, {len(data.X_test):,} test images: raw pixels "
        f"{accuracies['raw_pixels']:.2f} %, untrained {accuracies['untrained']:.2f} % (calibrated "
        f"{accuracies['untrained_calibrated']:.2f} %), BYOL {accuracies['byol']:.2f} %, {gain:+.2f} points, after "
        f"{training_seconds / 60:.1f} minutes of training."
    )
    print("missed:", [aim for aim, found in result["aims"].items() if not found["met"]] or "nothing")
    print(NOT_PRIVATE)


if __name__ == "__main__":
    main()
