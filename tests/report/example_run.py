"""A run's folder as training leaves it: a real certificate, and metrics of a plausible two-stage run."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np

import labeldp as ldp

CLASSES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
RECIPE = """\
name = "fashion-mnist-two-stages"
data = "fashion-mnist"
model = "patches, then a small convolutional net"
epsilon = "2"

[stages]
split = [0.6, 0.4]
mechanism = "RRWithPrior"
temperature = 0.5

[training]
epochs = [30, 40]
batch = 512
learning_rate = 0.01  # falls to 0 by a cosine
"""


def certificate(*, bits=None, trust="local"):
    """Release labels in two stages from a real vault, and return its certificate."""
    rng = np.random.default_rng(1)
    vault = ldp.LabelVault(rng.integers(0, 10, 1000), classes=10, budget="2", trust=trust, bits=bits)
    first = vault.release(ldp.RandomizedResponse(epsilon="2"), rows=np.arange(600), name="stage 1")
    priors = rng.dirichlet(np.full(10, 0.3), 400)
    vault.release(ldp.RRWithPrior(epsilon="2"), rows=np.arange(600, 1000), priors=priors, source=first, name="stage 2")
    if trust == "curator":
        other = ldp.LabelVault(rng.integers(0, 10, 1000), classes=10, budget="2", trust=trust)
        other.histogram(np.arange(1000) % 20, epsilon="2", source="clusters of the features")
        return other.certificate()
    return vault.certificate() | {"ledger file": "labels.ledger"}


def confusion(n_classes=10, accuracy=0.91, per_class=1000):
    """Return plausible counts: most on the diagonal, the rest mostly among a few alike classes."""
    rng = np.random.default_rng(2)
    table = []
    for true in range(n_classes):
        ease = np.clip(accuracy + rng.normal(0, 0.05), 0.5, 0.99)
        wrong = rng.dirichlet(np.full(n_classes, 0.15))
        law = (1 - ease) * wrong
        law[true] += ease
        table.append(rng.multinomial(per_class, law).tolist())
    return table


def records(*, epochs=(30, 40), hold_out=True, n_classes=10, rmse=False):
    """Return the metrics of a run, in the order in which training writes them."""
    rng = np.random.default_rng(3)
    lines = []
    for stage, length in enumerate(epochs, start=1):
        k = (
            np.full(600, n_classes)
            if stage == 1
            else np.minimum(1 + rng.geometric(0.55, 400) - (rng.random(400) < 0.5), 8)
        )
        groups = {str(key): int(rows) * 60 for key, rows in sorted(Counter(k.tolist()).items())}
        rows = sum(groups.values())
        lines.append({
            "kind": "stage", "stage": stage, "stages": len(epochs), "rows": rows, "charged": rows - groups.get("1", 0),
            "mechanism": "RandomizedResponse" if stage == 1 else "RRWithPrior", "epsilon": "2",
            "temperature": None if stage == 1 else 0.5, "groups": groups, "mean_groups": float(k.mean()),
            "filtered": None if stage == 1 else {"rows": 36000, "kept": 30111, "k": 2},
        })  # fmt: skip
        start, end = (2.15, 1.42) if stage == 1 else (1.35, 0.98)
        low, high = (0.70, 0.885) if stage == 1 else (0.875, 0.915)
        for epoch in range(1, length + 1):
            done = 1 - np.exp(-4 * epoch / length)
            score = low + (high - low) * done + rng.normal(0, 0.008)
            held = {"accuracy": 0.4 if rmse else float(score), "standard_error": 0.012, "rows": 1200}
            lines.append({
                "kind": "epoch", "stage": stage, "epoch": epoch, "epochs": length,
                "loss": float(start + (end - start) * done + rng.normal(0, 0.012)), "learning_rate": 0.01, "seconds": 11.7,
                "rows": rows, "hold_out": held if hold_out else None,
            })  # fmt: skip
        if rmse:
            lines.append({"kind": "test", "stage": stage, "rows": 200000, "rmse": 0.981 if stage == 1 else 0.93})
        else:
            table = confusion(n_classes, accuracy=high)
            right = sum(table[c][c] for c in range(n_classes)) / sum(map(sum, table))
            lines.append({"kind": "test", "stage": stage, "rows": 10000, "accuracy": right, "confusion": table})
    return [*lines, {"kind": "done", "seconds": 812.0, "threads": 2}]


def write(folder, *, metrics, promise, recipe=RECIPE):
    """Write a run's folder; None leaves a file out."""
    folder.mkdir(parents=True, exist_ok=True)
    if recipe is not None:
        (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
    if promise is not None:
        (folder / "certificate.json").write_text(json.dumps(promise), encoding="utf-8")
    if metrics is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics), encoding="utf-8")
    return folder


COMPARISON = [
    {"method": "LP-1ST", "epsilon": "0.5", "values": [0.571, 0.602, 0.588]},
    {"method": "LP-1ST", "epsilon": "1", "values": [0.781, 0.794, 0.802]},
    {"method": "LP-1ST", "epsilon": "2", "values": [0.884, 0.879, 0.891]},
    {"method": "LP-1ST", "epsilon": "4", "values": [0.934, 0.931, 0.937]},
    {"method": "LP-2ST", "epsilon": "0.5", "values": [0.602, 0.641, 0.618]},
    {"method": "LP-2ST", "epsilon": "1", "values": [0.812, 0.831, 0.826]},
    {"method": "LP-2ST", "epsilon": "2", "values": [0.902, 0.911, 0.908]},
    {"method": "LP-2ST", "epsilon": "4", "values": [0.941, 0.944, 0.939]},
    {"method": "grouped, 2 stages", "epsilon": "0.5", "values": [0.742, 0.727, 0.751]},
    {"method": "grouped, 2 stages", "epsilon": "1", "values": [0.869, 0.861, 0.874]},
    {"method": "grouped, 2 stages", "epsilon": "2", "values": [0.921, 0.927, 0.919]},
    {"method": "grouped, 2 stages", "epsilon": "4", "values": [0.946, 0.943, 0.949]},
    {"method": "without privacy", "epsilon": "inf", "values": [0.964, 0.962]},
]
