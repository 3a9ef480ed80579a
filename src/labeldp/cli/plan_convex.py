"""`labeldp plan --convex`: what convex learning promises for so many rows, before any label is touched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from labeldp.budget import Epsilon, Guarantee
from labeldp.cli.options import data, print_json, words
from labeldp.convex import bounds
from labeldp.mechanisms.normal import LARGEST_DIMENSION

DIAMETER, LIPSCHITZ, DELTA = 2.0, 1.0, "1e-6"
GOAL = 0.1
AT_MOST, AT_LEAST, RATE = "at most", "at least", "rate"


@dataclass(frozen=True, slots=True)
class Promise:
    """A guarantee in figures: an excess risk that is explicit, from above or from below, or a rate without its constant."""

    guarantee: str
    kind: str
    excess_risk: float
    of_the_most: float
    rows_for_a_tenth: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """So many rows and classes, an epsilon, and what is assumed of the loss and of its parameters."""

    n_rows: int
    n_classes: int
    epsilon: Epsilon
    diameter: float | None
    lipschitz: float | None
    delta: str | None
    parameters: int | None

    @property
    def sizes(self) -> dict[str, float]:
        """D and L, as the bounds take them."""
        return {
            "diameter": DIAMETER if self.diameter is None else self.diameter,
            "lipschitz": LIPSCHITZ if self.lipschitz is None else self.lipschitz,
        }

    @property
    def most(self) -> float:
        """D L, which no excess risk exceeds."""
        return self.sizes["diameter"] * self.sizes["lipschitz"]

    @property
    def exact_delta(self) -> str:
        return Guarantee.of(self.epsilon, delta=DELTA if self.delta is None else self.delta).delta

    @property
    def p(self) -> int:
        return self.n_rows if self.parameters is None else self.parameters

    def facts(self) -> dict[str, Any]:
        given = {"classes": self.n_classes, "rows": self.n_rows, "epsilon": str(self.epsilon), **self.sizes}
        return given | {"delta": self.exact_delta, "parameters": self.p}


def show(problem: Problem, *, as_json: bool) -> None:
    """Print the guarantees as a table with advice, or as JSON."""
    found = promises(problem)
    advice = _advice(problem, found)
    if as_json:
        print_json(problem.facts() | {"guarantees": [asdict(each) for each in found], "advice": advice})
        return
    data.print(_table(problem, found))
    for sentence in advice:
        words.print(sentence)


def promises(problem: Problem) -> list[Promise]:
    """Return what is known without privacy, of both algorithms, of every label-DP algorithm, and under DP of whole rows."""
    n, K, epsilon, sizes = problem.n_rows, problem.n_classes, problem.epsilon, problem.sizes
    delta, p = problem.exact_delta, problem.p
    chance = float(delta)
    full = bounds.full_dp_rate(n, epsilon, delta=chance, dimension=p, **sizes)  # first: it refuses what no delta is

    above = {"no privacy (true labels)": bounds.without_privacy(n, **sizes)}
    for steps, whose in zip(bounds.STEPS, ("paper's", "exact"), strict=True):
        above[f"LP-RR-SGD ({whose} steps)"] = bounds.lp_rr_sgd(n, K, epsilon, steps=steps, **sizes)
    if K - 1 <= LARGEST_DIMENSION:
        above["LP-Normal-SGD"] = bounds.lp_normal_sgd(n, K, epsilon, delta, **sizes)
    goal = GOAL * problem.most
    found = [Promise(name, AT_MOST, risk, risk / problem.most, rows_for(goal, risk, n)) for name, risk in above.items()]

    below = bounds.erm_lower(n, epsilon, delta=chance, dimension=p, **sizes)
    others = [("any label DP, ERM", AT_LEAST, below)]
    if p >= n:
        others.append(("any label DP, population", RATE, bounds.population_lower_rate(n, epsilon, **sizes)))
    others.append(("DP of rows and labels", RATE, full))
    return found + [Promise(name, kind, risk, risk / problem.most) for name, kind, risk in others]


def rows_for(goal: float, bound: float, n_rows: int) -> int:
    """Return from how many rows on a bound, given at n rows, is at most the goal: all of ours fall like the last iterate's."""
    factor = bound / _last_iterate(n_rows)
    enough = 2
    while factor * _last_iterate(enough) > goal:
        enough *= 2
    short = enough // 2
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (middle, enough) if factor * _last_iterate(middle) > goal else (short, middle)
    return enough


def _last_iterate(n_rows: int) -> float:
    return bounds.last_iterate(n_rows, diameter=1.0, moment=1.0)


def _advice(problem: Problem, found: list[Promise]) -> list[str]:
    without, *private = [each for each in found if each.kind == AT_MOST]
    best = min(private, key=lambda each: each.excess_risk)
    advice = [
        f"{best.guarantee} promises the most with label privacy: {best.excess_risk / without.excess_risk:.3g} times the bound "
        f"without. It is down to a tenth of D L from {_rows(best.rows_for_a_tenth)} rows on; without privacy from "
        f"{_rows(without.rows_for_a_tenth)}."
    ]
    empty = [each.guarantee for each in (without, *private) if each.of_the_most > 1]
    if empty:
        advice.append(
            f"No excess risk exceeds D L = {problem.most:g}: a bound above it says nothing. Here: {', '.join(empty)}."
        )
    advice.append(
        "At most and at least are explicit. A rate leaves out a constant that nobody has written down: it says how things "
        "grow, and is not to be compared with an explicit figure."
    )
    if problem.p < problem.n_rows:
        advice.append("The population's lower rate is for at least as many parameters as rows, and left out.")
    if problem.n_classes - 1 > LARGEST_DIMENSION:
        advice.append(f"LP-Normal-SGD takes at most {LARGEST_DIMENSION + 1:,} classes, and is left out.")
    return advice + _assumed(problem)


def _assumed(problem: Problem) -> list[str]:
    assumed = {
        f"--diameter {DIAMETER:g} (the unit ball's)": problem.diameter,
        f"--lipschitz {LIPSCHITZ:g}": problem.lipschitz,
        f"--delta {DELTA}": problem.delta,
        f"--parameters {problem.p} (as many as rows)": problem.parameters,
    }
    missing = [option for option, given in assumed.items() if given is None]
    return [f"Assumed, as not given: {', '.join(missing)}."] if missing else []


def _table(problem: Problem, found: list[Promise]) -> Table:
    D, L = problem.sizes.values()
    table = Table(
        title=f"Excess risk of convex learning, epsilon {problem.epsilon} (local, per label)\n{problem.n_rows:,} rows, "
        f"{problem.n_classes:,} classes, p = {problem.p:,}, D = {D:g}, L = {L:g}, delta {problem.exact_delta}",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for heading in ("guarantee", "kind"):
        table.add_column(heading, no_wrap=True)
    for heading in ("excess\nrisk", "share of\nD L", "rows for\na tenth"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        table.add_row(
            each.guarantee,
            each.kind,
            f"{each.excess_risk:.3g}",
            f"{100 * each.of_the_most:.3g}%" if each.of_the_most <= 1 else "> 100%",
            _rows(each.rows_for_a_tenth),
        )
    return table


def _rows(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count:,}" if count < 10**12 else f"{count:.3g}"
