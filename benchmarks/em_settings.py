"""How should EM around a scikit-learn classifier be set: how many rounds, how many folds, and how low may a stretch go?

Answered on made-up problems that no other page measures: two, five and ten classes, one of the two-class problems with 5 %
positives, at epsilon 0.5, 1 and 2, one release each, some noise draws. One setting is changed at a time.
JSON goes to benchmarks/results/em_settings.json, the table to docs/tabular.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeldp as ldp
from labeldp.sklearn import SklearnLearner, calibration
from page import rewrite

RESULTS = Path(__file__).parent / "results" / "em_settings.json"
PAGE = Path(__file__).parent.parent / "docs" / "tabular.md"
CHOSEN = {"rounds": 5, "folds": 3, "floor": 0.001}
TRIED = {"rounds": (1, 3, 5, 8), "folds": (2, 3, 5), "floor": (0.0001, 0.001, 0.01)}
EPSILONS = ("0.5", "1", "2")
PROBLEMS = {
    "2 classes": {"n_classes": 2, "n_features": 10, "n_informative": 6},
    "2 classes, 5 % positive": {"n_classes": 2, "n_features": 10, "n_informative": 6, "weights": [0.95]},
    "5 classes": {"n_classes": 5, "n_features": 20, "n_informative": 10, "n_clusters_per_class": 1},
    "10 classes": {"n_classes": 10, "n_features": 30, "n_informative": 15, "n_clusters_per_class": 1},
}
CLASSIFIERS = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "forest": RandomForestClassifier(20, min_samples_leaf=5, random_state=0),
}
TRAIN, TEST = 1_500, 4_000


def settings() -> list[dict[str, float]]:
    """Return the chosen settings first, then each with one of them changed."""
    others = [CHOSEN | {name: value} for name, values in TRIED.items() for value in values if value != CHOSEN[name]]
    return [CHOSEN, *others]


def measured(problem: dict, epsilon: str, draws: int) -> list[dict]:
    """Return log loss and accuracy of every setting on the same releases."""
    found = []
    for draw in range(draws):
        X, labels = make_classification(TRAIN + TEST, random_state=draw, class_sep=1.5, **problem)
        vault = ldp.LabelVault(labels[:TRAIN], classes=problem["n_classes"], budget=epsilon)
        release = vault.release(ldp.GroupedResponse(epsilon))
        for name, classifier in CLASSIFIERS.items():
            for each in settings():
                calibration.FLOOR = each["floor"]
                learner = SklearnLearner(classifier, rounds=int(each["rounds"]), folds=int(each["folds"]))
                predicted = learner.fit(X[:TRAIN], release).predict_proba(X[TRAIN:])
                chance = np.maximum(predicted[np.arange(TEST), labels[TRAIN:]], 1e-6)
                right = predicted.argmax(axis=1) == labels[TRAIN:]
                figures = {"log_loss": float(-np.log(chance).mean()), "accuracy": float(right.mean())}
                found.append({"classifier": name, "draw": draw, **each, **figures})
    return found


def table(records: list[dict]) -> str:
    """Return, for each setting, its mean figures over all problems less those of the chosen settings."""
    lines = ["| setting | log loss | accuracy, points |", "|---|---|---|"]

    def mean(each: dict[str, float], figure: str) -> float:
        return float(np.mean([r[figure] for r in records if all(r[key] == value for key, value in each.items())]))

    for each in settings()[1:]:
        ((name, value),) = [(key, value) for key, value in each.items() if value != CHOSEN[key]]
        loss = mean(each, "log_loss") - mean(CHOSEN, "log_loss")
        points = 100 * (mean(each, "accuracy") - mean(CHOSEN, "accuracy"))
        lines.append(
            f"| {name.replace('_', ' ')} {value:g} instead of {CHOSEN[name]:g} | {loss:+.3f} | {points:+.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3)
    arguments = parser.parse_args()
    records = []
    for name, problem in PROBLEMS.items():
        for epsilon in EPSILONS:
            cell = measured(problem, epsilon, arguments.draws)
            records += [{"problem": name, "epsilon": epsilon, **each} for each in cell]
            RESULTS.write_text(json.dumps(records, indent=1) + "\n")
            print(name, epsilon, flush=True)
    print(table(records))
    if PAGE.exists():
        rewrite(PAGE, {"settings": table(records)})


if __name__ == "__main__":
    main()
