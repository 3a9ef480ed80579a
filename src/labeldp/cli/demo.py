"""`labeldp demo`: the same small net with and without label privacy, on handwritten digits that need no download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from labeldp.cli.options import check_page, data, words
from labeldp.errors import BudgetExhausted, MissingExtra
from labeldp.mechanisms import GroupedResponse, LocalMechanism, RRWithPrior

if TYPE_CHECKING:
    from labeldp.datasets import Dataset
    from labeldp.torch import TorchLearner

EPSILONS = ("1", "2", "4")
EPOCHS = 30
MIXUP = 4.0
OURS = "labeldp"

Record = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One line of the table: how labels are asked, and how the net learns from the answers."""

    name: str
    stages: int
    mechanism: Callable[[Any], LocalMechanism]
    loss: str
    temperature: float = 1.0
    filter: str | None = None


# The settings were chosen on MNIST, shrunk to this size and number of rows, never on these digits.
METHODS = (
    Method("LP-1ST", 1, RRWithPrior, "noisy-label"),
    Method("LP-2ST", 2, RRWithPrior, "noisy-label", temperature=0.5, filter="round"),
    Method(OURS, 2, GroupedResponse, "likelihood"),
)
ABOUT = (
    "LP-1ST and LP-2ST are the paper's: reported labels are trained on as if they were true. labeldp is ours: two stages of "
    "GroupedResponse, trained on the likelihood of what was reported. The net, its epochs, its learning rate and mixup are the "
    "same for all."
)


@click.command()
@click.option(
    "--draws", default=3, show_default=True, type=click.IntRange(min=1), help="Noise draws per method and epsilon."
)
@click.option(
    "--out", default="labeldp-demo.html", show_default=True, type=click.Path(path_type=Path), help="The report."
)
def demo(draws: int, out: Path) -> None:
    """Train a small net on handwritten digits without privacy and with it, at epsilon 1, 2 and 4; compare and draw a report."""
    check_page(out, option="--out")
    try:
        import torch

        from labeldp import datasets, report
    except ImportError:
        raise MissingExtra("The demo needs torch and more: pip install 'labeldp[torch,sklearn,report]'.") from None
    torch.set_num_threads(1)  # the net is so small that more threads only wait for each other
    digits = datasets.load("digits")
    words.print(
        f"{digits.n_rows:,} handwritten digits to train on, {len(digits.X_test):,} to test on (public data, whose training "
        "labels are sealed and used as if they were secret)."
    )
    rows, certificates = compare(digits, draws)
    data.print(_table(rows))
    _show_the_budget_holds(digits)
    written = report.write_comparison(
        out,
        rows,
        title="Handwritten digits, with and without label privacy",
        about=f"{ABOUT} A spread over several noise draws is a study of the method; a certificate covers one run. Those below "
        f"are of the first draw of {OURS}.",
        certificates=certificates,
    )
    words.print(ABOUT)
    words.print(f"Report: {written}")
    words.print("Next: labeldp train --data digits --model tiny-conv --epsilon 2 --out runs/digits")


def compare(digits: Dataset, draws: int) -> tuple[list[Record], list[Record]]:
    """Return the test accuracies of every method at every epsilon, one per noise draw, and our first draw's certificates."""
    jobs = [(None, "inf"), *((method, epsilon) for epsilon in EPSILONS for method in METHODS)]
    found: dict[tuple[str, str], list[float]] = {}
    certificates = []
    steps = [(method, epsilon, draw) for draw in range(draws) for method, epsilon in jobs]
    for number, (method, epsilon, draw) in enumerate(
        track(steps, description="Training", console=words, transient=True), start=1
    ):
        if not words.is_terminal:  # there is no bar in a file or a pipe
            how = "without privacy" if method is None else f"{method.name} at epsilon {epsilon}"
            words.print(f"Training {number} of {len(steps)}: {how}, draw {draw + 1}.")
        if method is None:
            found.setdefault(("non-private", epsilon), []).append(_non_private(digits, draw))
            continue
        accuracy, certificate = _private(digits, method, epsilon, draw)
        found.setdefault((method.name, epsilon), []).append(accuracy)
        if method.name == OURS and draw == 0:
            certificates.append(certificate)
    rows = [{"method": name, "epsilon": epsilon, "values": values} for (name, epsilon), values in found.items()]
    return rows, certificates


def _private(digits: Dataset, method: Method, epsilon: str, seed: int) -> tuple[float, Record]:
    from labeldp.learning import MultiStage

    vault = digits.vault(budget=epsilon)
    multistage = MultiStage(
        _learner(digits, method.loss, seed),
        stages=method.stages,
        mechanism=method.mechanism,
        temperature=method.temperature,
        filter=method.filter,
        seed=seed,
    )
    accuracy = _accuracy(digits, multistage.fit(digits.X, vault, epsilon))
    return accuracy, vault.certificate()


def _non_private(digits: Dataset, seed: int) -> float:
    return _accuracy(digits, _learner(digits, "noisy-label", seed).fit(digits.X, digits.unprotected()))


def _learner(digits: Dataset, loss: str, seed: int) -> TorchLearner:
    from labeldp.torch import TorchLearner, models

    net = models.build("tiny-conv", digits.inputs, len(digits.classes), seed=seed)
    return TorchLearner(net, loss=loss, epochs=EPOCHS, batch_size=64, learning_rate=0.1, mixup=MIXUP, seed=seed)


def _accuracy(digits: Dataset, model: Any) -> float:
    return float((model.predict_proba(digits.X_test).argmax(axis=1) == digits.test_labels).mean())


def _table(rows: list[Record]) -> Table:
    """Return one line per method, one column per epsilon, mean and spread over draws."""
    table = Table(title="Right on the test digits (mean ± standard deviation over draws)", box=SIMPLE_HEAD)
    table.add_column("")
    found = {(row["method"], row["epsilon"]): row["values"] for row in rows}
    for epsilon in (*EPSILONS, "inf"):
        table.add_column("no privacy" if epsilon == "inf" else f"epsilon {epsilon}", justify="right")
    for name in dict.fromkeys(row["method"] for row in rows):
        table.add_row(name, *(_cell(found.get((name, epsilon))) for epsilon in (*EPSILONS, "inf")))
    return table


def _cell(values: list[float] | None) -> str:
    if values is None:
        return ""
    spread = f" ± {np.std(values, ddof=1):.1%}" if len(values) > 1 else ""
    return f"{np.mean(values):.1%}{spread}"


def _show_the_budget_holds(digits: Dataset) -> None:
    """Spend a budget, and be refused."""
    vault = digits.vault(budget="1")
    vault.release(GroupedResponse("1"))
    try:
        vault.release(GroupedResponse("0.000000000001"))
    except BudgetExhausted as refusal:
        words.print(f"One more query on spent labels, however small: [yellow]{refusal}[/yellow]")
