"""Label privacy on tables: the surveys, digits and breast cancer, against noisy labels taken as true, and diffprivlib.

For every dataset, epsilon and estimator, several noise draws of
  naive RR : randomized response on every label, and a plain fit to what was reported;
  labeldp  : LabelDPClassifier or LabelDPRegressor with its default settings, around the same estimator;
  diffprivlib : its own models, which protect features too (see benchmarks/diffprivlib_models.py);
and the same estimator on true labels. Draws are paired: with two classes our release is randomized response too, and the plain
fit gets the very same reports; otherwise draw i of one stands beside draw i of the other. The figures are on the public test
split. All draws go to benchmarks/results/tabular.json as they come (a second run goes on where the first stopped), tables to
docs/tabular.md, the plot beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import venv
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeldp as ldp
from labeldp.sklearn import LabelDPClassifier, LabelDPRegressor
from page import rewrite

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "tabular.json"
PAGE = HERE.parent / "docs" / "tabular.md"
ENVIRONMENT = HERE.parent / ".venv-diffprivlib"
PEERS = ("diffprivlib==0.6.6", "scikit-learn==1.5.2")
EPSILONS = ("0.5", "1", "2", "4")
DATASETS = ("fair", "anes96-vote", "anes96-party", "breast-cancer", "digits")
BOOSTED = ("fair", "anes96-vote")
NUMBERS = ("randhie",)
LEAST = 1e-6
CLASSIFIERS = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "naive Bayes": GaussianNB(),
}
WITH_BOOSTING = {"boosting": HistGradientBoostingClassifier(max_iter=50, early_stopping=False, random_state=0)}
REGRESSORS = {
    "ridge": make_pipeline(StandardScaler(), Ridge()),
    "boosting": HistGradientBoostingRegressor(max_iter=50, early_stopping=False, random_state=0),
}
Record = dict[str, Any]


def estimators(name: str) -> dict[str, Any]:
    """Return the estimators that a dataset is tried with; boosting takes long, and is tried on two surveys."""
    if name in NUMBERS:
        return REGRESSORS
    return CLASSIFIERS | (WITH_BOOSTING if name in BOOSTED else {})


class Table:
    """A dataset as rows of numbers, with what the figures need."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data = ldp.datasets.load(name)
        self.X = self.data.X.reshape(len(self.data.X), -1).astype(float)
        self.X_test = self.data.X_test.reshape(len(self.data.X_test), -1).astype(float)
        self.true = self.data.unprotected().label_numbers
        self.test = self.data.test_labels
        self.is_numeric = name in NUMBERS

    def figures(self, predicted: Any) -> Record:
        """Return what predictions are worth: probabilities in the order of the dataset's classes, or numbers."""
        if self.is_numeric:
            values = np.array(self.data.classes, dtype=float)[self.test]
            return {"rmse": float(np.sqrt(np.mean((predicted - values) ** 2)))}
        chance = np.maximum(predicted[np.arange(len(self.test)), self.test], LEAST)
        right = predicted.argmax(axis=1) == self.test
        return {"accuracy": float(right.mean()), "log_loss": float(-np.log(chance).mean())}


def plain(table: Table, estimator: Any, labels: Any) -> tuple[Any, float]:
    """Fit the estimator to labels as if they were true; return its predictions on the test rows and the seconds of its fit."""
    began = time.perf_counter()
    fitted = clone(estimator).fit(table.X, labels)
    seconds = time.perf_counter() - began
    if table.is_numeric:
        return fitted.predict(table.X_test), seconds
    predicted = np.zeros((len(table.X_test), len(table.data.classes)))
    predicted[:, fitted.classes_] = fitted.predict_proba(table.X_test)
    return predicted, seconds


def draw_of(table: Table, estimator: Any, epsilon: str, draw: int) -> list[Record]:
    """Return the records of one noise draw: ours, and the naive fit beside it."""
    vault = table.data.vault(budget=epsilon)
    began = time.perf_counter()
    if table.is_numeric:
        model = LabelDPRegressor(estimator, epsilon=epsilon, seed=draw).fit(table.X, vault.sealed())
        seconds, ours = time.perf_counter() - began, model.predict(table.X_test)
    else:
        fitted = LabelDPClassifier(estimator, epsilon=epsilon, seed=draw).fit(table.X, vault.sealed())
        seconds = time.perf_counter() - began
        order = [fitted.classes_.tolist().index(name) for name in table.data.classes]
        ours = fitted.predict_proba(table.X_test)[:, order]
    if not table.is_numeric and len(table.data.classes) == 2:
        (release,) = fitted.releases_  # the very same reports
    else:
        release = table.data.vault(budget=epsilon).release(ldp.RandomizedResponse(epsilon))
    reported = release.labels if table.is_numeric else release.label_numbers
    naive, plain_seconds = plain(table, estimator, reported)
    return [
        {"method": "naive RR", **table.figures(naive), "seconds": plain_seconds},
        {"method": "labeldp", **table.figures(ours), "seconds": seconds},
    ]


def peers(table: Table, epsilon: str, draws: int) -> list[Record]:
    """Return the records of diffprivlib's models, from an environment of their own."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.npz"
        facts: Record = {"X": table.X, "labels": table.true, "X_test": table.X_test, "test_labels": table.test}
        if table.is_numeric:
            facts["bounds"] = np.array([table.data.classes[0], table.data.classes[-1]], dtype=float)
        np.savez(job, epsilon=float(epsilon), draws=draws, n_classes=len(table.data.classes), **facts)
        command = [str(environment()), str(HERE / "diffprivlib_models.py"), str(job)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [{"method": f"diffprivlib {each.pop('model')}", **each} for each in found]


def environment() -> Path:
    """Return the python of an environment with diffprivlib, which is made on first use."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
        (ENVIRONMENT / "ready").touch()
    return python


# ---- the records -----------------------------------------------------------------------------------------------------


def measure(draws: int, say: Callable[[str], None]) -> list[Record]:
    """Return all records, reading those that are there and storing each cell as it comes."""
    records: list[Record] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    known = {(each["dataset"], each["estimator"], each["epsilon"]) for each in records}

    def note(table: Table, estimator: str, epsilon: str, cell: list[Record]) -> None:
        records.extend({"dataset": table.name, "estimator": estimator, "epsilon": epsilon, **each} for each in cell)
        RESULTS.write_text(json.dumps(records, indent=1) + "\n")
        say(f"{table.name} {estimator} {epsilon}")

    for name in (*DATASETS, *NUMBERS):
        table = Table(name)
        for kind, estimator in estimators(name).items():
            if (name, kind, "inf") not in known:
                labels = np.array(table.data.classes)[table.true] if table.is_numeric else table.true
                predicted, seconds = plain(table, estimator, labels)
                note(
                    table,
                    kind,
                    "inf",
                    [{"method": "no privacy", "draw": 0, **table.figures(predicted), "seconds": seconds}],
                )
            for epsilon in EPSILONS:
                if (name, kind, epsilon) not in known:
                    cell = [{"draw": n, **each} for n in range(draws) for each in draw_of(table, estimator, epsilon, n)]
                    note(table, kind, epsilon, cell)
        for epsilon in EPSILONS:
            if (name, "diffprivlib", epsilon) not in known:
                note(table, "diffprivlib", epsilon, peers(table, epsilon, draws))
    return records


# ---- what they say ---------------------------------------------------------------------------------------------------


def values(records: list[Record], figure: str, **wanted: str) -> np.ndarray:
    """Return a figure of some records, in the order of their draws."""
    found = [each for each in records if figure in each and all(each[key] == value for key, value in wanted.items())]
    return np.array([each[figure] for each in sorted(found, key=lambda each: each["draw"])])


def cell(found: np.ndarray, scale: float) -> str:
    if len(found) == 0:
        return ""
    digits = 1 if scale == 100 else 3
    error = f" ± {scale * found.std(ddof=1) / len(found) ** 0.5:.{digits}f}" if len(found) > 1 else ""
    return f"{scale * found.mean():.{digits}f}{error}"


def comparison(records: list[Record], figure: str, datasets: tuple[str, ...]) -> str:
    """Return a line per dataset, estimator and method: mean and standard error over the draws."""
    scale = 100 if figure == "accuracy" else 1
    lines = [
        f"| | | method | {' | '.join(f'ε = {e}' for e in EPSILONS)} | no privacy |",
        "|---" * (4 + len(EPSILONS)) + "|",
    ]
    for name in datasets:
        here = [each for each in records if each["dataset"] == name]
        kinds = dict.fromkeys(each["estimator"] for each in here if each["estimator"] != "diffprivlib")
        for kind in kinds:
            best = cell(values(here, figure, estimator=kind, method="no privacy"), scale)
            for method in ("naive RR", "labeldp"):
                cells = [cell(values(here, figure, estimator=kind, method=method, epsilon=e), scale) for e in EPSILONS]
                lines.append(f"| {name} | {kind} | {method} | {' | '.join(cells)} | {best} |")
        for method in dict.fromkeys(each["method"] for each in here if each["estimator"] == "diffprivlib"):
            cells = [cell(values(here, figure, method=method, epsilon=e), scale) for e in EPSILONS]
            lines.append(f"| {name} | its own | {method} | {' | '.join(cells)} | |")
    return "\n".join(lines)


def gains(records: list[Record]) -> list[Record]:
    """Return, for each cell, the mean gain over naive RR and its standard error over paired draws; more is better."""
    found = []
    for name in (*DATASETS, *NUMBERS):
        for kind in estimators(name):
            for epsilon in EPSILONS:
                for figure in ("rmse",) if name in NUMBERS else ("accuracy", "log_loss"):
                    where = {"dataset": name, "estimator": kind, "epsilon": epsilon}
                    ours, naive = (values(records, figure, method=m, **where) for m in ("labeldp", "naive RR"))
                    difference = (ours - naive) * (1 if figure == "accuracy" else -1)
                    error = difference.std(ddof=1) / len(difference) ** 0.5
                    found.append({**where, "figure": figure, "gain": difference.mean(), "error": error})
    return found


def summary(records: list[Record]) -> str:
    """Return the average gain, and every cell that is below naive RR by more than two standard errors."""
    found = gains(records)
    lines = []
    for figure, scale in (("accuracy", 100), ("log_loss", 1), ("rmse", 1)):
        some = [each for each in found if each["figure"] == figure]
        mean = scale * float(np.mean([each["gain"] for each in some]))
        below = [_told(each, scale) for each in some if each["gain"] < -2 * each["error"]]
        told = (
            f"{len(below) or 'none'} below it by more than two standard errors{': ' if below else ''}{'; '.join(below)}"
        )
        lines.append(
            f"* {figure.replace('_', ' ')}: a mean gain of {mean:.2f} over naive RR in {len(some)} cells, {told}."
        )
    return "\n".join(lines)


def _told(each: Record, scale: float) -> str:
    where = f"{each['dataset']}, {each['estimator']}, ε = {each['epsilon']}"
    return f"{where} ({scale * each['gain']:+.2f} ± {scale * each['error']:.2f})"


def times(records: list[Record]) -> str:
    """Return the median, over draws, of our fit's seconds over the plain fit's in the same draw."""
    lines = ["| | estimator | our fit over the plain fit |", "|---|---|---|"]
    for name in (*DATASETS, *NUMBERS):
        for kind in estimators(name):
            pairs = []
            for epsilon in EPSILONS:
                where = {"dataset": name, "estimator": kind, "epsilon": epsilon}
                ours, plain_fit = (values(records, "seconds", method=m, **where) for m in ("labeldp", "naive RR"))
                pairs.append(ours / plain_fit)
            lines.append(f"| {name} | {kind} | {np.median(np.concatenate(pairs)):.0f} |")
    return "\n".join(lines)


def plot(records: list[Record], path: Path) -> None:
    """Draw accuracy against epsilon, one small picture per dataset."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "labeldp"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(DATASETS), figsize=(15, 3.2), layout="constrained")
    lines = (
        ("labeldp", "logistic", "labeldp", "#1b6ca8", "o-"),
        ("naive RR", "logistic", "naive RR", "#c0392b", "s--"),
        ("diffprivlib LogisticRegression", "diffprivlib", "diffprivlib (protects features too)", "#7f8c8d", "^:"),
    )
    for axis, name in zip(axes, DATASETS, strict=True):
        for method, kind, label, colour, style in lines:
            where = {"dataset": name, "estimator": kind, "method": method}
            found = [100 * values(records, "accuracy", epsilon=e, **where) for e in EPSILONS]
            means = [each.mean() for each in found]
            errors = [each.std(ddof=1) / len(each) ** 0.5 for each in found]
            axis.errorbar(
                range(len(EPSILONS)), means, errors, fmt=style, color=colour, label=label, capsize=2, markersize=4
            )
        best = 100 * values(records, "accuracy", dataset=name, estimator="logistic", method="no privacy").mean()
        axis.axhline(best, color="#2c3e50", linewidth=1, label="no privacy")
        axis.set_xticks(range(len(EPSILONS)), EPSILONS)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("epsilon")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("right on the test rows, %")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="Only write the tables and the plot anew.")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if arguments.show:
        records = json.loads(RESULTS.read_text())
    else:
        records = measure(arguments.draws, lambda line: print(line, flush=True))
    tables = {
        "accuracy": comparison(records, "accuracy", DATASETS),
        "log loss": comparison(records, "log_loss", DATASETS),
        "rmse": comparison(records, "rmse", NUMBERS),
        "summary": summary(records),
        "times": times(records),
    }
    print("\n\n".join(tables.values()))
    if PAGE.exists():
        rewrite(PAGE, tables)
    plot(records, PAGE.with_suffix(".svg"))


if __name__ == "__main__":
    main()
