"""`labeldp plan`: what each mechanism would give, before any label is touched."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

from labeldp import checks
from labeldp.budget import Epsilon, Odds
from labeldp.cli import plan_convex
from labeldp.cli.options import ClassList, EpsilonText, data, json_option, print_json, words
from labeldp.errors import InvalidArgument
from labeldp.mechanisms import GroupedResponse, GroupMechanism, RandomizedResponse, RRWithPrior
from labeldp.mechanisms.groups import NO_GROUP
from labeldp.mechanisms.information import LARGEST_PROGRAM, chance_of_true_label, information_limit, report_information

DEALINGS = 200
BITS = 1 / math.log(2)
LEAST_BITS = 1e-12
"""Less than this is rounding: a label that is known, or an epsilon next to nothing."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one mechanism would give."""

    mechanism: str
    reports: float
    labels_per_report: float
    chance_of_true_label: float
    bits_per_label: float
    share_of_limit: float | None = None


@click.command()
@click.option("--classes", required=True, type=ClassList(), help="A count, or a list of names.")
@click.option("--rows", "n_rows", required=True, type=click.IntRange(min=1), help="How many labels there are.")
@click.option("--epsilon", required=True, type=EpsilonText(), help="The epsilon to plan for.")
@click.option("--prior", help="How likely each class is believed to be, separated by commas; by default all equally.")
@click.option("--convex", is_flag=True, help="Show what convex learning promises instead.")
@click.option(
    "--diameter",
    type=plan_convex.SizeText(),
    help="Of the parameter set, D; by default 2. With --convex, as all that follow.",
)
@click.option("--lipschitz", type=plan_convex.SizeText(), help="How long a gradient can be, L; by default 1.")
@click.option(
    "--sensitivity",
    type=plan_convex.SizeText(),
    help="How far apart two classes' gradients can be, for LP-Normal-SGD; by default 2 L.",
)
@click.option(
    "--delta", type=plan_convex.DeltaText(), help="Of LP-Normal-SGD, and of DP of rows and labels; by default 1e-6."
)
@click.option("--parameters", type=click.IntRange(min=1), help="How many the model has, p; by default as many as rows.")
@json_option
def plan(
    classes: int | list[str],
    n_rows: int,
    epsilon: Epsilon,
    prior: str | None,
    convex: bool,
    as_json: bool,
    **assumed: Any,
) -> None:
    """Show what each mechanism would give at an epsilon: chance of the true label, information, advice.

    With --convex, show what is known of the excess risk of one pass of SGD: with label privacy, without, and with privacy
    of whole rows; and how many rows it takes.
    """
    n_classes = classes if isinstance(classes, int) else len(classes)
    if convex:
        if prior is not None:
            raise click.UsageError(
                "--prior is for mechanisms, and the bounds of --convex do not look at it: leave it out."
            )
        plan_convex.show(plan_convex.Problem(n_rows, n_classes, epsilon, **assumed), as_json=as_json)
        return
    foreign = [f"--{name}" for name, value in assumed.items() if value is not None]
    if foreign:
        raise click.UsageError(f"{', '.join(foreign)}: only for convex learning. Add --convex, or leave this out.")
    believed = _prior(prior, n_classes)
    mechanisms = (RandomizedResponse(epsilon), RRWithPrior(epsilon), GroupedResponse(epsilon))
    rows = [DEALINGS if mechanism.deals_at_random else 1 for mechanism in mechanisms]
    found = [outlook(m, np.broadcast_to(believed, (n, n_classes))) for m, n in zip(mechanisms, rows, strict=True)]
    outlooks = [replace(each, share_of_limit=share_of_limit(each, believed, epsilon)) for each in found]
    error = frequency_error(n_rows, n_classes, epsilon)
    advice = _advice(outlooks, n_rows, error)
    if as_json:
        facts = {"classes": n_classes, "rows": n_rows, "epsilon": str(epsilon), "standard_error_of_a_share": error}
        print_json(facts | {"mechanisms": [asdict(each) for each in outlooks], "advice": advice})
        return
    data.print(_table(outlooks, n_rows, n_classes, epsilon))
    for sentence in advice:
        words.print(sentence)


def outlook(mechanism: GroupMechanism, priors: NDArray[Any]) -> Outlook:
    """Return what a mechanism would give for rows with these priors, on average."""
    response = mechanism.response(priors, dealing=1)
    sizes = response.groups.sizes
    grouped = (response.groups.assignment(np.arange(len(priors))) != NO_GROUP).sum(axis=1)
    return Outlook(
        mechanism=type(mechanism).__name__,
        reports=float(sizes.mean()),
        labels_per_report=float((grouped / sizes).mean()),
        chance_of_true_label=float(chance_of_true_label(response, priors).mean()),
        bits_per_label=max(0.0, float(report_information(response, priors).mean()) * BITS),
    )


def share_of_limit(found: Outlook, prior: NDArray[Any], epsilon: Epsilon) -> float | None:
    """Return how much of the most informative report's bits a mechanism gives, None where the limit is not known."""
    if len(prior) > LARGEST_PROGRAM and not np.allclose(prior, prior[0]):
        return None
    limit = information_limit(prior, float(epsilon)) * BITS
    return found.bits_per_label / limit if limit > LEAST_BITS else None


def frequency_error(n_rows: int, n_classes: int, epsilon: Epsilon) -> float | None:
    """Return the standard error of a rare class's estimated share under randomized response."""
    odds = Odds.within(epsilon)
    if odds.excess == 0:
        return None
    floor = odds.other / (odds.keep + (n_classes - 1) * odds.other)
    return math.sqrt(floor * (1 - floor) / n_rows) * odds.other / odds.excess / floor


def _advice(outlooks: list[Outlook], n_rows: int, error: float | None) -> list[str]:
    plain, likely, grouped = outlooks
    gain = grouped.bits_per_label / plain.bits_per_label if plain.bits_per_label > 0 else 1.0
    best = grouped if gain > 1.05 else plain
    advice = [
        f"{n_rows:,} labels carry about {best.bits_per_label * n_rows:,.4g} bits in all through {best.mechanism}."
    ]
    if best is grouped:
        advice.append(
            f"To train a model, release with GroupedResponse and train on release.likelihood(): {gain:.1f} times the "
            "information of RandomizedResponse. A report is then a group of labels."
        )
    else:
        advice.append(
            "Reported groups carry no more than reported labels here: RandomizedResponse is as good and simpler."
        )
    if likely.reports < 2:
        advice.append("This prior is so sure that RRWithPrior would not look at the labels at all.")
    if error is None or error > 0.5:
        advice.append("There are too few labels, or too small an epsilon, to estimate how frequent the classes are.")
    else:
        advice.append(
            f"To count classes, RandomizedResponse estimates a share with a standard error of about {error:.2g}; "
            "rarer classes than twice that cannot be seen."
        )
    return advice


def _table(outlooks: list[Outlook], n_rows: int, n_classes: int, epsilon: Epsilon) -> Table:
    table = Table(
        title=f"{n_rows:,} labels, {n_classes:,} classes, epsilon {epsilon} (local, per label)",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("mechanism", no_wrap=True)
    for heading in (
        "possible reports",
        "labels per report",
        "holds the true label",
        "bits per label",
        "share of limit",
    ):
        table.add_column(heading, justify="right", min_width=9)
    for each in outlooks:
        table.add_row(
            each.mechanism,
            _count(each.reports),
            _count(each.labels_per_report),
            f"{each.chance_of_true_label:.1%}",
            f"{each.bits_per_label:.3g}",
            "-" if each.share_of_limit is None else f"{each.share_of_limit:.1%}",
        )
    return table


def _count(number: float) -> str:
    return f"{number:.4g}" if number < 1_000 else f"{number:,.0f}"


def _prior(text: str | None, n_classes: int) -> NDArray[Any]:
    if text is None:
        return np.full(n_classes, 1 / n_classes)
    try:
        numbers = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise InvalidArgument("prior must be numbers separated by commas, such as 0.7,0.2,0.1.") from None
    if len(numbers) != n_classes:
        raise InvalidArgument(f"prior must have one number per class ({n_classes}), got {len(numbers)}.")
    if not (abs(numbers.sum() - 1) <= checks.PRIOR_SUM_TOLERANCE and numbers.min() >= 0):
        raise InvalidArgument("prior must be numbers from 0 to 1 that sum to 1.")
    return checks.probabilities(numbers[None], 1, n_classes)[0].astype(np.float64)
