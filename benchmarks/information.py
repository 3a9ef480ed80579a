"""How much of the limit over all epsilon-DP reports does each mechanism reach?

Writes benchmarks/results/information.json, docs/information.svg and the tables in docs/information.md and README.md.
The limit is a linear program (labeldp.mechanisms.information); priors are Dirichlet and structured.
"""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path

import numpy as np

import labeldp as ldp
from labeldp.mechanisms.information import information_limit, report_information, uniform_limit
from page import rewrite

ROOT = Path(__file__).parent.parent
EPSILONS = ("0.25", "0.5", "1", "2", "4", "8")
CLASSES = (3, 4, 5, 7, 10)
CONCENTRATIONS = (0.1, 0.3, 1.0, 100.0)
PRIORS_EACH = 12
DEALINGS = 64
MECHANISMS = {"RR": ldp.RandomizedResponse, "RRWithPrior": ldp.RRWithPrior, "GroupedResponse": ldp.GroupedResponse}
MANY_CLASSES = (100, 1_000)
FLOOR = 1e-6  # a prior of exactly zero makes the share 0/0


def priors(n_classes: int, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """Return prior rows by kind."""
    kinds = {f"Dirichlet {c:g}": list(rng.dirichlet(np.full(n_classes, c), size=PRIORS_EACH)) for c in CONCENTRATIONS}
    kinds["structured"] = [
        np.full(n_classes, 1 / n_classes),
        np.append(0.5, np.full(n_classes - 1, 0.5 / (n_classes - 1))),
        np.append(0.9, np.full(n_classes - 1, 0.1 / (n_classes - 1))),
        0.5 ** np.arange(n_classes) / (0.5 ** np.arange(n_classes)).sum(),
        1 / np.arange(1, n_classes + 1) / (1 / np.arange(1, n_classes + 1)).sum(),
        np.append([0.3, 0.3], np.full(n_classes - 2, 0.4 / (n_classes - 2))),
    ]
    return {kind: [row * (1 - FLOOR) + FLOOR / n_classes for row in rows] for kind, rows in kinds.items()}


def carried(kind: type, epsilon: str, prior: np.ndarray) -> float:
    """Return the mean information of a report, over dealings."""
    table = np.tile(prior, (DEALINGS, 1))
    return float(report_information(kind(epsilon).response(table, dealing=2_024), table).mean())


def study() -> list[dict]:
    """Return one record per prior and epsilon."""
    rng = np.random.default_rng(0)
    records = []
    for n_classes in CLASSES:
        for kind, rows in priors(n_classes, rng).items():
            for prior in rows:
                for epsilon in EPSILONS:
                    limit = information_limit(prior, float(epsilon))
                    shares = {
                        name: carried(mechanism, epsilon, prior) / limit for name, mechanism in MECHANISMS.items()
                    }
                    records.append(
                        {"classes": n_classes, "prior": kind, "row": prior.tolist(), "epsilon": epsilon, **shares}
                    )
    return records


def many_classes() -> list[dict]:
    """Return shares of the limit for a uniform prior over many classes, where the limit has a closed form."""
    records = []
    for n_classes in MANY_CLASSES:
        prior = np.full(n_classes, 1 / n_classes)
        for epsilon in EPSILONS:
            limit = uniform_limit(n_classes, float(epsilon))
            shares = {name: carried(mechanism, epsilon, prior) / limit for name, mechanism in MECHANISMS.items()}
            records.append({"classes": n_classes, "epsilon": epsilon, "limit_nats": limit, **shares})
    return records


def ranks() -> list[dict]:
    """Return the rank of the channel averaged over dealings, under constant priors."""
    from labeldp.vault.frequencies import _gram

    records = []
    for name, prior in {
        "uniform": np.full(10, 0.1),
        "1, 2, .. 10": np.arange(1, 11) / 55,
        "half on one class": np.append(0.5, np.full(9, 0.5 / 9)),
        "0.9 on one class": np.append(0.9, np.full(9, 0.1 / 9)),
    }.items():
        for epsilon in ("0.5", "1", "2", "4"):
            table = np.tile(prior, (4_000, 1))
            response = ldp.GroupedResponse(epsilon).response(table, dealing=7)
            one, average = _gram(response, np.array([0])), _gram(response, np.arange(4_000)) / 4_000
            rank = int(np.linalg.matrix_rank(average, tol=1e-6 * np.linalg.norm(average)))
            single = int(np.linalg.matrix_rank(one, tol=1e-9))
            records.append({"prior": name, "epsilon": epsilon, "rank_of_one_row": single, "rank_over_rows": rank})
    return records


def noise_cost() -> dict:
    """Return how much information the random order of dealing costs, against the same rule without noise."""
    rng = np.random.default_rng(1)
    losses = []
    for prior in (row for rows in priors(10, rng).values() for row in rows):
        for epsilon in EPSILONS:
            table = np.tile(prior, (DEALINGS, 1))
            with_noise, without = (
                report_information(ldp.GroupedResponse(epsilon).response(table, dealing=key), table)
                for key in (2_024, 0)
            )
            losses.append(1 - with_noise.mean() / without.mean())
    return {"mean": float(np.mean(losses)), "worst": float(np.max(losses))}


def table_of(records: list[dict], epsilons: tuple[str, ...] = (*EPSILONS, "all")) -> str:
    """Return the Markdown table: mean and worst share of the limit by epsilon."""
    lines = ["| epsilon | RR | RRWithPrior | GroupedResponse | worst GroupedResponse |", "|---|---|---|---|---|"]
    for epsilon in epsilons:
        rows = [record for record in records if epsilon in (record["epsilon"], "all")]
        means = " | ".join(f"{np.mean([row[name] for row in rows]):.1%}" for name in MECHANISMS)
        lines.append(f"| {epsilon} | {means} | {min(row['GroupedResponse'] for row in rows):.1%} |")
    return "\n".join(lines)


def by_prior(records: list[dict]) -> str:
    """Return the Markdown table: mean share of the limit by kind of prior, at epsilon 1."""
    lines = ["| prior | RR | RRWithPrior | GroupedResponse |", "|---|---|---|---|"]
    for kind in dict.fromkeys(record["prior"] for record in records):
        rows = [record for record in records if record["prior"] == kind and record["epsilon"] == "1"]
        lines.append(
            f"| {kind} | " + " | ".join(f"{np.mean([row[name] for row in rows]):.1%}" for name in MECHANISMS) + " |"
        )
    return "\n".join(lines)


def many_table(records: list[dict]) -> str:
    lines = ["| classes | epsilon | RR | GroupedResponse | times RR |", "|---|---|---|---|---|"]
    for row in records:
        gain = row["GroupedResponse"] / row["RR"]
        lines.append(
            f"| {row['classes']:,} | {row['epsilon']} | {row['RR']:.1%} | {row['GroupedResponse']:.1%} | {gain:.1f} |"
        )
    return "\n".join(lines)


def rank_table(records: list[dict]) -> str:
    lines = ["| constant prior over 10 classes | epsilon | rank of one row | rank over rows |", "|---|---|---|---|"]
    lines += [f"| {r['prior']} | {r['epsilon']} | {r['rank_of_one_row']} | {r['rank_over_rows']} |" for r in records]
    return "\n".join(lines)


def plot(records: list[dict], path: Path) -> None:
    """Draw the share of the limit against epsilon: the mean, and the spread over priors."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "labeldp"
    figure, axis = plt.subplots(figsize=(7.5, 4.2))
    colours = {"RR": "#8c8c8c", "RRWithPrior": "#d9822b", "GroupedResponse": "#1f6fb4"}
    for name, colour in colours.items():
        shares = [[record[name] for record in records if record["epsilon"] == epsilon] for epsilon in EPSILONS]
        x = np.arange(len(EPSILONS))
        low, high = ([np.quantile(row, q) for row in shares] for q in (0.05, 0.95))
        axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(x, [np.mean(row) for row in shares], "o-", color=colour, label=name)
    axis.set_xticks(np.arange(len(EPSILONS)), EPSILONS)
    axis.set_ylim(0, 1.03)
    axis.set_yticks(np.linspace(0, 1, 6), [f"{share:.0%}" for share in np.linspace(0, 1, 6)])
    axis.set_xlabel("epsilon")
    axis.set_ylabel("share of the limit over all private reports")
    axis.set_title("Information that a report carries (mean, and 5-95 % of priors)", loc="left", fontsize=11)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    start = time.perf_counter()
    records, many, rank, noise = study(), many_classes(), ranks(), noise_cost()
    seconds = time.perf_counter() - start
    grouped = [record["GroupedResponse"] for record in records]
    summary = {
        "question": "share of the information limit over all epsilon-DP reports",
        "mean": float(np.mean(grouped)),
        "worst": float(np.min(grouped)),
        "noise_in_the_order_costs": noise,
        "seconds": seconds,
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "processor": platform.machine()},
        "command": "python benchmarks/information.py",
    }
    worst = sorted(records, key=lambda record: record["GroupedResponse"])[:10]
    results = ROOT / "benchmarks" / "results" / "information.json"
    results.write_text(
        json.dumps({**summary, "worst_cases": worst, "many_classes": many, "ranks": rank, "records": records}) + "\n"
    )
    tables = {"by epsilon": table_of(records), "by prior": by_prior(records), "many classes": many_table(many)}
    rewrite(ROOT / "docs" / "information.md", tables | {"ranks": rank_table(rank)})
    rewrite(ROOT / "README.md", {"information": table_of(records, ("0.5", "1", "2"))})
    plot(records, ROOT / "docs" / "information.svg")
    print(json.dumps(summary, indent=1))
    print(table_of(records))
    print("worst:", [(w["classes"], w["epsilon"], w["prior"], round(w["GroupedResponse"], 4)) for w in worst[:5]])


if __name__ == "__main__":
    main()
