"""`labeldp plan --convex`: what convex learning promises for so many rows, before any label is touched."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from textwrap import fill
from typing import Any, TypedDict

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from labeldp.budget import Epsilon, Guarantee
from labeldp.cli.options import data, print_json, words
from labeldp.convex import bounds
from labeldp.convex.numbers import some_delta
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.normal import LARGEST_DIMENSION

NO_PRIVACY, NO_PRIVACY_MEAN = "no privacy (true labels)", "no privacy (true labels, mean of iterates)"
ANY_ERM = "any label DP, ERM"
WIDEST = 25  # characters of a name before it takes another line: the table then fits a narrow terminal
DIAMETER, LIPSCHITZ, DELTA = 2.0, 1.0, "1e-6"
GOAL = 0.1
SMALLEST, LARGEST = 1e-30, 1e30
"""Of D, L and a sensitivity: whatever the other options are, no bound leaves double precision."""
AT_MOST, AT_LEAST, RATE = "at most", "at least", "rate"


class SizeText(click.ParamType[Any]):
    """A length above 0, neither tiny nor huge."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            length = float(value)
        except ValueError:
            length = math.nan
        if not SMALLEST <= length <= LARGEST:
            self.fail(f"must be a number from {SMALLEST:g} to {LARGEST:g}, got {value}.", param, ctx)
        return length


class DeltaText(click.ParamType[Any]):
    """A delta, read exactly and kept as its text."""

    name = "delta"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return Guarantee.of("1", delta=some_delta(value)).delta
        except InvalidArgument as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class Promise:
    """A guarantee in figures: an excess risk that is explicit, from above or from below, or a rate without its constant."""

    guarantee: str
    kind: str
    excess_risk: float
    of_the_most: float
    rows_for_a_tenth: int | None = None


class Sizes(TypedDict):
    """D and L, as the bounds take them."""

    diameter: float
    lipschitz: float


@dataclass(frozen=True, slots=True)
class Problem:
    """So many rows and classes, an epsilon, and what is assumed of the loss and of its parameters."""

    n_rows: int
    n_classes: int
    epsilon: Epsilon
    diameter: float | None
    lipschitz: float | None
    sensitivity: float | None
    delta: str | None
    parameters: int | None

    @property
    def sizes(self) -> Sizes:
        return {
            "diameter": DIAMETER if self.diameter is None else self.diameter,
            "lipschitz": LIPSCHITZ if self.lipschitz is None else self.lipschitz,
        }

    @property
    def most(self) -> float:
        """D L, which no excess risk exceeds."""
        return self.sizes["diameter"] * self.sizes["lipschitz"]

    @property
    def apart(self) -> float:
        """How far apart two classes' gradients can be."""
        return 2 * self.sizes["lipschitz"] if self.sensitivity is None else self.sensitivity

    @property
    def exact_delta(self) -> str:
        return Guarantee.of(self.epsilon, delta=DELTA if self.delta is None else self.delta).delta

    @property
    def p(self) -> int:
        return self.n_rows if self.parameters is None else self.parameters

    def facts(self) -> dict[str, Any]:
        given = {"classes": self.n_classes, "rows": self.n_rows, "epsilon": str(self.epsilon), **self.sizes}
        return given | {"sensitivity": self.apart, "delta": self.exact_delta, "parameters": self.p}


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
    return [*_explicit(problem), *_limits(problem)]


def _explicit(problem: Problem) -> list[Promise]:
    """Return the bounds of a pass: of its last iterate, and of the mean of its iterates, which has no logarithm."""
    n, K, epsilon, sizes = problem.n_rows, problem.n_classes, problem.epsilon, problem.sizes
    exact = partial(bounds.lp_rr_sgd, n, K, epsilon, steps="exact", **sizes)
    last, mean = {NO_PRIVACY: bounds.without_privacy(n, **sizes)}, {}
    mean[NO_PRIVACY_MEAN] = bounds.without_privacy(n, average=True, **sizes)
    paper = bounds.lp_rr_sgd(n, K, epsilon, **sizes)
    if paper != exact():
        last["LP-RR-SGD (paper's steps)"] = paper
    last["LP-RR-SGD (exact steps)"] = exact()
    mean["LP-RR-SGD (exact steps, mean of iterates)"] = exact(average=True)
    if K - 1 <= LARGEST_DIMENSION:
        normal = partial(bounds.lp_normal_sgd, n, K, epsilon, problem.exact_delta, sensitivity=problem.apart, **sizes)
        last["LP-Normal-SGD"] = normal()
        mean["LP-Normal-SGD (mean of iterates)"] = normal(average=True)
    goal, most = GOAL * problem.most, problem.most
    return [
        Promise(name, AT_MOST, risk, risk / most, rows_for(goal, risk, n, average=average))
        for average, group in ((False, last), (True, mean))
        for name, risk in group.items()
    ]


def _limits(problem: Problem) -> list[Promise]:
    """Return what no algorithm with label DP can do, where that is known to be more than 0, and what DP of rows can."""
    n, epsilon, sizes, p = problem.n_rows, problem.epsilon, problem.sizes, problem.p
    delta = float(problem.exact_delta)
    others = [(ANY_ERM, AT_LEAST, bounds.erm_lower(n, epsilon, delta=delta, dimension=p, **sizes))]
    if p >= n:
        others.append(("any label DP, population", RATE, bounds.population_lower_rate(n, epsilon, **sizes)))
    full = bounds.full_dp_rate(n, epsilon, delta=delta, dimension=p, **sizes)
    others.append(("DP of rows and labels", RATE, full))
    return [Promise(name, kind, risk, risk / problem.most) for name, kind, risk in others if risk > 0]


def rows_for(goal: float, bound: float, n_rows: int, *, average: bool = False) -> int:
    """Return from how many rows on a bound, given at n rows, is at most the goal: all of ours fall like their iterate's."""
    law = partial(bounds.of_iterate(average), diameter=1.0, moment=1.0)
    factor = bound / law(n_rows)
    enough = 2
    while factor * law(enough) > goal:
        enough *= 2
    short = enough // 2
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (middle, enough) if factor * law(middle) > goal else (short, middle)
    return enough


def _advice(problem: Problem, found: list[Promise]) -> list[str]:
    explicit = {each.guarantee: each for each in found if each.kind == AT_MOST}
    without = explicit[NO_PRIVACY_MEAN]
    private = [each for name, each in explicit.items() if name not in (NO_PRIVACY, NO_PRIVACY_MEAN)]
    best = min(private, key=lambda each: each.excess_risk)
    equal = [each.guarantee for each in private if math.isclose(each.excess_risk, best.excess_risk)]
    promise = f"{equal[0]} promises" if len(equal) == 1 else f"{' and '.join(equal)} promise the same, which is"
    advice = [
        f"{promise} the most with label privacy: {best.excess_risk / without.excess_risk:.3g} times the same bound "
        f"without. It is down to a tenth of D L from {_rows(best.rows_for_a_tenth)} rows on; without privacy from "
        f"{_rows(without.rows_for_a_tenth)}. The mean of iterates is what average=True returns."
    ]
    empty = [each.guarantee for each in explicit.values() if each.of_the_most > 1]
    if empty:
        advice.append(
            f"No excess risk exceeds D L = {problem.most:g}: a bound above it says nothing. Here: {', '.join(empty)}."
        )
    advice.append(
        "At most and at least are explicit. A rate leaves out a constant that nobody has written down: it says how things "
        "grow, and is not to be compared with an explicit figure."
    )
    if "LP-RR-SGD (paper's steps)" not in explicit:
        advice.append("Above epsilon 1 the paper's steps are the exact ones.")
    if not any(each.guarantee == ANY_ERM for each in found):
        advice.append(
            "The explicit lower bound is as good as 0 for so few parameters or so large a delta, and left out."
        )
    if problem.p < problem.n_rows:
        advice.append("The population's lower rate is for at least as many parameters as rows, and left out.")
    if problem.n_classes - 1 > LARGEST_DIMENSION:
        advice.append(f"LP-Normal-SGD takes at most {LARGEST_DIMENSION + 1:,} classes, and is left out.")
    elif problem.sensitivity is None:
        advice.append(
            "LP-Normal-SGD is for class gradients up to 2 L apart, which holds for every loss. Those of softmax and logistic "
            f"regression are at most L apart: for these, --sensitivity {problem.sizes['lipschitz']:g}."
        )
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
    D, L = problem.sizes["diameter"], problem.sizes["lipschitz"]
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
            fill(each.guarantee, WIDEST),
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
