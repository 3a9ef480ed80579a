"""Rare labels: what are accuracy, ranking and probabilities worth when 1 % of the rows are positive?

Made-up conversions with a logistic truth, 50,000 rows to train on and 20,000 public ones to test on. For every epsilon, several
noise draws of one release by LabelDPClassifier, which with two classes is randomized response, and from the very same reports
  naive RR         : a plain fit to what was reported;
  naive RR, undone : its probabilities, put through the inverse of the noise and cut at 0;
  labeldp          : LabelDPClassifier with its default settings;
  labeldp, 30 rounds : the same releases, learned from again with more rounds.
At epsilon 1 all is done again with four times the rows. The last model of each draw is also graded on a noisy hold-out.
30 rounds were picked after trying 5, 20 and 60 on other rows of the same kind.
Records go to benchmarks/results/imbalanced.json as they come (a stopped run is gone on with), the tables to
docs/imbalanced.md, the plot beside it. `--show` only writes the tables and the plot anew.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

import labeldp as ldp
from labeldp import metrics
from labeldp.errors import NotIdentifiable
from labeldp.sklearn import LabelDPClassifier, SklearnLearner
from page import rewrite

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "imbalanced.json"
PAGE = HERE.parent / "docs" / "imbalanced.md"
EPSILONS = ("0.5", "1", "2", "4")
RATE, TRAIN, TEST, MANY = 0.01, 50_000, 20_000, 200_000
MANY_EPSILONS = ("1",)
SLOPES = np.array([0.9, -0.7, 0.5, 0.4, 0.0, 0.0])
OFFSET = -5.4112
"""Makes the mean chance RATE, for normal features."""
ROUNDS = 30
RELEASES = 200
COST, WORTH = 1, 50
"""Of contacting somebody, and of a conversion: it pays where a conversion is likelier than 2 %."""
LEAST = 1e-6
METHODS = ("naive RR", "naive RR, undone", "labeldp", f"labeldp, {ROUNDS} rounds")
YARDSTICKS = ("always 1 %", "the truth itself", "no privacy")
Record = dict[str, Any]


class Conversions:
    """Rows with a logistic truth, of which a share of RATE converts, and the public test rows."""

    def __init__(self, n_rows: int) -> None:
        self.X_test, self.test_labels, self.test_chances = _drawn(TEST, seed=2021)
        self.X, self.true_labels, _ = _drawn(n_rows, seed=n_rows)

    def figures(self, chances: np.ndarray) -> Record:
        """Return what probabilities of a conversion are worth on the test rows."""
        contacted = chances > COST / WORTH
        gain = WORTH * self.test_labels[contacted].sum() - COST * contacted.sum()
        by_decile = np.array_split(np.argsort(chances, kind="stable"), 10)
        return {
            "accuracy": float(((chances > 0.5) == self.test_labels).mean()),
            "auc": float(roc_auc_score(self.test_labels, chances)),
            "log_loss": float(log_loss(self.test_labels, np.maximum(chances, LEAST))),
            "mean": float(chances.mean()),
            "contacted": float(contacted.mean()),
            "gain": float(1000 * gain / TEST),
            "predicted": [float(chances[rows].mean()) for rows in by_decile],
            "observed": [float(self.test_labels[rows].mean()) for rows in by_decile],
        }


def _drawn(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels, and the chances that these were drawn from."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, len(SLOPES)))
    chances = expit(X @ SLOPES + OFFSET)
    return X, (rng.random(n_rows) < chances).astype(int), chances


def draw_of(data: Conversions, epsilon: str) -> list[Record]:
    """Return the records of one noise draw."""
    model = LabelDPClassifier(LogisticRegression(), epsilon=epsilon, classes=2).fit(data.X, data.true_labels)
    (release,) = model.releases_
    plain = LogisticRegression().fit(data.X[release.rows], release.label_numbers)
    naive = plain.predict_proba(data.X_test)[:, 1]
    yes_if_yes, yes_if_no = map(float, odds(epsilon))
    undone = np.clip((naive - yes_if_no) / (yes_if_yes - yes_if_no), 0, 1)
    again = SklearnLearner(LogisticRegression(), rounds=ROUNDS).fit(data.X, release)
    ours = model.predict_proba(data.X_test)[:, 1]
    predictions = (naive, undone, ours, again.predict_proba(data.X_test)[:, 1])
    cell = [{"method": method, **data.figures(chances)} for method, chances in zip(METHODS, predictions, strict=True)]
    cell[3] |= graded(data, epsilon, predictions[3])
    return cell


def graded(data: Conversions, epsilon: str, chances: np.ndarray) -> Record:
    """Return the figures of these predictions that a noisy hold-out, of as many rows as the test, would have told."""
    hold_out = ldp.LabelVault(data.test_labels, classes=2, budget=epsilon).release(ldp.RandomizedResponse(epsilon))
    table = np.stack([1 - chances, chances], axis=1)
    found: Record = {}
    for name, metric in (("log_loss", metrics.log_loss), ("auc", metrics.auc)):
        try:
            estimate = metric(hold_out, table)
        except NotIdentifiable:
            continue
        found |= {f"told_{name}": estimate.value, f"told_{name}_error": estimate.standard_error}
    return found


def odds(epsilon: str) -> tuple[Fraction, Fraction]:
    """Return the chances of a reported yes: of a true yes, and of a true no."""
    mechanism = ldp.RandomizedResponse(epsilon)
    return mechanism.law(1, [0.5, 0.5])[1], mechanism.law(0, [0.5, 0.5])[1]


def measure(draws: int) -> list[Record]:
    """Return all records, reading those that are there and storing each draw as it comes.

    Each draw has noise of its own from the operating system.
    """
    records: list[Record] = json.loads(RESULTS.read_text())["records"] if RESULTS.exists() else []
    known = {(each["rows"], each["epsilon"], each["draw"]) for each in records}

    def note(n_rows: int, epsilon: str, draw: int | str, cell: list[Record], seconds: float) -> None:
        where = {"rows": n_rows, "epsilon": epsilon, "draw": draw, "seconds": seconds}
        records.extend({**where, **each} for each in cell)
        RESULTS.write_text(json.dumps({**facts(draws), "records": records}, indent=1) + "\n")
        print(f"{n_rows} rows, epsilon {epsilon}, draw {draw}: {seconds:.0f} s", flush=True)

    for n_rows, epsilons, times in ((TRAIN, EPSILONS, draws), (MANY, MANY_EPSILONS, draws // 2)):
        data = Conversions(n_rows)
        if (n_rows, "inf", 0) not in known:
            note(n_rows, "inf", 0, without_noise(data), 0.0)
        for epsilon in epsilons:
            if n_rows == TRAIN and (n_rows, epsilon, "rate") not in known:
                note(n_rows, epsilon, "rate", shares(data, epsilon), 0.0)
            for draw in range(times):
                if (n_rows, epsilon, draw) not in known:
                    began = time.process_time()
                    cell = draw_of(data, epsilon)
                    note(n_rows, epsilon, draw, cell, time.process_time() - began)
    return records


def shares(data: Conversions, epsilon: str) -> list[Record]:
    """Return the rate as estimated from many releases, each of which is one study of its own."""
    found = []
    for _ in range(RELEASES):
        vault = ldp.LabelVault(data.true_labels, classes=2, budget=epsilon)
        found.append(float(vault.release(ldp.RandomizedResponse(epsilon)).class_frequencies().estimates[1]))
    return [{"method": "rate", "shares": found}]


def without_noise(data: Conversions) -> list[Record]:
    """Return the records that the others are compared with."""
    free = LogisticRegression().fit(data.X, data.true_labels).predict_proba(data.X_test)[:, 1]
    predictions = (np.full(TEST, RATE), data.test_chances, free)
    return [
        {"method": method, **data.figures(chances)} for method, chances in zip(YARDSTICKS, predictions, strict=True)
    ]


# ---- what they say ---------------------------------------------------------------------------------------------------


def values(records: list[Record], figure: str, **wanted: Any) -> np.ndarray:
    found = [each for each in records if figure in each and all(each[key] == value for key, value in wanted.items())]
    return np.array([each[figure] for each in found])


def cell(found: np.ndarray, digits: int, scale: float = 1) -> str:
    if len(found) == 0:
        return ""
    error = f" ± {scale * found.std(ddof=1) / len(found) ** 0.5:.{digits}f}" if len(found) > 1 else ""
    return f"{scale * found.mean():.{digits}f}{error}"


FIGURES = {"accuracy": (1, 100), "auc": (3, 1), "log_loss": (4, 1), "mean": (2, 100), "gain": (0, 1)}
HEAD = "| ε | method | accuracy, % | AUC | log loss | mean probability, % | gain |\n|---|---|---|---|---|---|---|"


def line(records: list[Record], shown: str, **wanted: Any) -> str:
    cells = [cell(values(records, name, **wanted), *how) for name, how in FIGURES.items()]
    return f"| {shown} | {wanted['method']} | {' | '.join(cells)} |"


def comparison(records: list[Record], n_rows: int) -> str:
    """Return a line per epsilon and method: mean and standard error over the draws."""
    here = [each for each in records if each["rows"] == n_rows]
    lines = [HEAD] + [line(here, "", method=method) for method in YARDSTICKS]
    for epsilon in dict.fromkeys(each["epsilon"] for each in here if each["epsilon"] != "inf"):
        lines += [line(here, epsilon, method=method, epsilon=epsilon) for method in METHODS]
    return "\n".join(lines)


def reported() -> str:
    """Return how often a yes is reported, and what that makes of the rate, by epsilon."""
    lines = [
        "| ε | a yes is reported of a true yes, % | of a true no, % | of all rows, % | true among the reported, % |",
        "|---|---|---|---|---|",
    ]
    for epsilon in EPSILONS:
        yes, no = map(float, odds(epsilon))
        every = RATE * yes + (1 - RATE) * no
        lines.append(f"| {epsilon} | {yes:.1%} | {no:.1%} | {every:.1%} | {RATE * yes / every:.1%} |".replace("%", ""))
    return "\n".join(lines)


def needed(records: list[Record]) -> str:
    """Return the standard error of an estimated rate, by the formula and over many releases, and the rows for a small one."""
    lines = [
        f"| ε | standard error with {TRAIN:,} rows, points | seen in {RELEASES} releases | rows for a tenth of the rate | "
        "positives among them |",
        "|---|---|---|---|---|",
    ]
    for epsilon in (*EPSILONS, "none"):
        if epsilon == "none":
            one, seen = (RATE * (1 - RATE)) ** 0.5, ""
        else:
            yes, no = map(float, odds(epsilon))
            one = (no * (1 - no)) ** 0.5 / (yes - no)
            seen = f"{100 * values(records, 'shares', rows=TRAIN, epsilon=epsilon).std(ddof=1):.2f}"
        rows = int(float(f"{(one / (RATE / 10)) ** 2:.2g}"))
        shown = "no noise" if epsilon == "none" else epsilon
        lines.append(f"| {shown} | {100 * one / TRAIN**0.5:.2f} | {seen} | {rows:,} | {int(RATE * rows):,} |")
    return "\n".join(lines)


def told(records: list[Record]) -> str:
    """Return the medians of what a noisy hold-out says of a model, beside what the public test says of the same."""
    lines = [
        "| ε | log loss | estimated | its standard error | AUC | estimated | its standard error | AUC not told |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for epsilon in EPSILONS:
        where = {"rows": TRAIN, "epsilon": epsilon, "method": METHODS[3]}
        draws = len(values(records, "auc", **where))
        cells = []
        for name in ("log_loss", "auc"):
            for key in (name, f"told_{name}", f"told_{name}_error"):
                found = values(records, key, **where)
                cells.append(f"{np.median(found):.3f}" if len(found) else "")
        missing = draws - len(values(records, "told_auc", **where))
        lines.append(f"| {epsilon} | {' | '.join(cells)} | {missing} of {draws} |")
    return "\n".join(lines)


def plot(records: list[Record], path: Path) -> None:
    """Draw the observed against the predicted rate by decile, at epsilon 1 and at the larger number of rows too."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "labeldp"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4.3), layout="constrained", sharex=True, sharey=True)
    styles = (("naive RR", "#c0392b", "s"), (METHODS[3], "#1b6ca8", "o"))
    for axis, n_rows in zip(axes, (TRAIN, MANY), strict=True):
        both = np.array([0.05, 60])
        axis.plot(both, both, color="#2c3e50", linewidth=1, label="as predicted")
        for method, colour, mark in styles:
            where = {"rows": n_rows, "epsilon": "1", "method": method}
            predicted, observed = (100 * values(records, name, **where) for name in ("predicted", "observed"))
            axis.plot(
                predicted.ravel(), observed.ravel(), mark, color=colour, alpha=0.2, markersize=3, markeredgewidth=0
            )
            axis.plot(
                predicted.mean(axis=0), observed.mean(axis=0), f"{mark}-", color=colour, label=method, markersize=5
            )
        axis.set(xscale="log", yscale="log", xlim=both, ylim=(0.05, 10), title=f"{n_rows:,} rows")
        axis.set_xticks([0.1, 1, 10], ["0.1 %", "1 %", "10 %"])
        axis.set_yticks([0.1, 1, 10], ["0.1 %", "1 %", "10 %"])
        axis.set_xlabel("predicted rate")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("observed rate")
    figure.suptitle("Deciles of the test rows by prediction, ε = 1 (faint: single draws)", fontsize=11)
    axes[0].legend(frameon=False, loc="upper left")
    figure.savefig(path, metadata={"Date": None})


def facts(draws: int) -> Record:
    return {
        "trust": "local",
        "draws": draws,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "scikit-learn": sklearn.__version__,
        },
        "command": f"python benchmarks/imbalanced.py --draws {draws}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10, help="with four times the rows: half as many")
    parser.add_argument("--show", action="store_true", help="only write the tables and the plot anew")
    arguments = parser.parse_args()
    records = json.loads(RESULTS.read_text())["records"] if arguments.show else measure(arguments.draws)
    tables = {
        "reported": reported(),
        "comparison": comparison(records, TRAIN),
        "more rows": comparison(records, MANY),
        "needed": needed(records),
        "told": told(records),
    }
    print("\n\n".join(tables.values()))
    rewrite(PAGE, tables)
    plot(records, PAGE.with_suffix(".svg"))


if __name__ == "__main__":
    main()
