"""`labeldp demo`: the mechanisms at work on scikit-learn's handwritten digits, which need no download."""

from __future__ import annotations

from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import labeldp as ldp
from labeldp.cli.plan import outlook
from labeldp.errors import MissingExtra
from labeldp.mechanisms import GroupMechanism

EPSILONS = ("0.5", "1", "2", "4")
FIRST_STAGE = 1_000


@click.command()
def demo() -> None:
    """See the mechanisms at work on handwritten digits: noisy labels, priors, information, a budget that holds."""
    console = Console(highlight=False)
    images, labels = _digits()
    console.print(f"{len(labels):,} handwritten digits (public data, used as if their labels were secret).\n")
    _show_a_release(console, labels)
    console.print()
    _show_priors(console, images, labels)
    console.print()
    _show_the_budget(console, labels)
    console.print("\nNext: docs/quickstart.md, or: labeldp plan --classes 10 --rows 1797 --epsilon 1")


def _show_a_release(console: Console, labels: NDArray[Any]) -> None:
    """Release every label once, and read the class frequencies off the noise."""
    vault = ldp.LabelVault(labels, classes=10, budget="2")
    release = vault.release(ldp.RandomizedResponse(epsilon="2"))
    shares = release.class_frequencies()
    console.print("1. RandomizedResponse at epsilon 2: a noisy label says little, their frequencies a lot.")
    for digit, share, error in zip(shares.classes, shares.estimates, shares.standard_errors, strict=True):
        bar = "█" * max(0, round(float(share) * 200))
        console.print(f"   digit {digit}  {share:6.1%} ± {error:.1%}  [cyan]{bar}[/cyan]")
    console.print("   (in truth about 10 % each; ± is one standard error)")


def _show_priors(console: Console, images: NDArray[Any], labels: NDArray[Any]) -> None:
    """Use a model of the first stage as the prior of the second, and compare what each mechanism then tells."""
    from sklearn.linear_model import LogisticRegression

    console.print(
        f"2. A model trained on {FIRST_STAGE:,} noisy labels is a prior for the other {len(labels) - FIRST_STAGE:,}."
    )
    console.print("   How often a report then holds the true label, and what it tells, under that prior:")
    table = Table(box=SIMPLE_HEAD)
    for heading in ("epsilon", "mechanism", "reports", "holds label", "bits", ""):
        left = heading in ("mechanism", "")
        table.add_column(heading, no_wrap=True, justify="left" if left else "right", min_width=len(heading))
    for epsilon in EPSILONS:
        vault = ldp.LabelVault(labels, classes=10, budget=epsilon)
        first = vault.release(ldp.RandomizedResponse(epsilon=epsilon), rows=np.arange(FIRST_STAGE))
        model = LogisticRegression(C=0.1, max_iter=500).fit(images[:FIRST_STAGE], first.labels)
        priors = _probabilities(model, images[FIRST_STAGE:])
        for mechanism in (
            ldp.RandomizedResponse(epsilon=epsilon),
            ldp.RRWithPrior(epsilon=epsilon),
            ldp.GroupedResponse(epsilon=epsilon),
        ):
            table.add_row(epsilon, *_tells(mechanism, priors))
        vault.release(
            ldp.GroupedResponse(epsilon=epsilon), np.arange(FIRST_STAGE, len(labels)), priors=priors, source=first
        )
        table.add_section()
    console.print(table)
    console.print(
        "   RRWithPrior names the right label most often. GroupedResponse reports a group of labels and tells most."
    )


def _tells(mechanism: GroupMechanism, priors: NDArray[Any]) -> tuple[str, str, str, str, str]:
    found = outlook(mechanism, priors)
    bar = "█" * max(1, round(found.bits_per_label * 7))
    holds, bits = f"{found.chance_of_true_label:.0%}", f"{found.bits_per_label:.3f}"
    return found.mechanism, f"{found.reports:.1f}", holds, bits, f"[cyan]{bar}[/cyan]"


def _show_the_budget(console: Console, labels: NDArray[Any]) -> None:
    """Spend a budget, and be refused."""
    vault = ldp.LabelVault(labels, classes=10, budget="1")
    release = vault.release(ldp.RandomizedResponse(epsilon="1"))
    console.print(f"3. The ledger. {release.receipt}.")
    try:
        vault.release(ldp.RandomizedResponse(epsilon="0.000000000001"))
    except ldp.BudgetExhausted as refusal:
        console.print(f"   One more query, however small: [yellow]{refusal}[/yellow]")
    console.print(f"   Certificate: {vault.certificate()['guarantee']}")


def _probabilities(model: Any, images: NDArray[Any]) -> NDArray[np.float64]:
    """Return one column per class, also for classes that no noisy label showed."""
    known = model.predict_proba(images)
    priors = np.full((len(images), 10), 1e-3)
    priors[:, model.classes_] += known
    return priors / priors.sum(axis=1, keepdims=True)


def _digits() -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("The demo's digits come with scikit-learn: pip install 'labeldp[sklearn]'.") from None
    images, labels = load_digits(return_X_y=True)
    return images / 16, labels
