"""How the report puts things: numbers, sentences, and what is not protected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from unicodedata import category

from labeldp.report.records import Interval, Run, Stage, Test

NBSP = "\u00a0"
STUDY = (
    "A certificate covers one run of a fixed recipe. A spread over several noise draws is a study of the method on labels "
    "that are known; repeating a release of secret labels would spend their budget again."
)


@dataclass(frozen=True, slots=True)
class Measure:
    """What a model is judged by."""

    name: str
    more_is_better: bool

    def show(self, value: float, digits: int = 1) -> str:
        """Return a value in words.

        >>> ACCURACY.show(0.879), RMSE.show(0.9312)
        ('87.9\\xa0%', '0.931')
        """
        return self.number(value, digits) + (f"{NBSP}%" if self is ACCURACY else "")

    def number(self, value: float, digits: int = 1) -> str:
        """Return a value for a column whose unit is said elsewhere."""
        return f"{100 * value:.{digits}f}" if self is ACCURACY else f"{value:.{min(digits + 2, 3)}f}"

    @property
    def unit(self) -> str:
        """Return what such a column holds."""
        return "Accuracy in percent" if self is ACCURACY else self.name

    def plainly(self, value: float) -> str:
        """Return a value with the name it needs."""
        return self.show(value) if self is ACCURACY else f"{self.name} {self.show(value)}"


ACCURACY = Measure("accuracy", more_is_better=True)
RMSE = Measure("RMSE", more_is_better=False)


def printable(text: object) -> str:
    """Return text without control characters, which neither a page nor a figure can hold."""
    return "".join(char if category(char)[0] != "C" or char in "\n\t" else "\ufffd" for char in str(text))


def count(number: int) -> str:
    """Return a whole number with its thousands marked."""
    return f"{number:,}"


def share(part: int, whole: int) -> str:
    """Return a part as a percentage."""
    return f"{100 * part / whole:.1f}{NBSP}%" if whole else "none"


def duration(seconds: float) -> str:
    """Return a time as a person says it.

    >>> duration(812.0), duration(4.26), duration(7384)
    ('13 min 32 s', '4.3 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def listed(numbers: list[int]) -> str:
    """Return numbers as a list in words: 1, 2 and 3."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def measure(run: Run) -> Measure:
    """Return what this run is judged by: public test data if there is any, a noisy hold-out otherwise."""
    return RMSE if run.tests and not run.tests[-1].is_accuracy else ACCURACY


def data_name(run: Run) -> str | None:
    """Return the recipe's name of the data."""
    data = run.recipe.get("data")
    return data if isinstance(data, str) else None


def is_private(certificate: dict[str, Any]) -> bool:
    """Return whether a certificate says so, in so many words; anything else counts as no."""
    return certificate.get("private") is True


def spent(certificate: dict[str, Any]) -> tuple[str, str]:
    """Return the epsilon and delta that a certificate says were spent, as text."""
    amounts = certificate.get("spent")
    amounts = amounts if isinstance(amounts, dict) else {}
    return str(amounts.get("epsilon", "not stated")), str(amounts.get("delta", "0"))


def promise(run: Run) -> str:
    """Return the end of the headline: at which epsilon, or that there is none to speak of."""
    if run.certificate is None:
        return ", without a certificate"
    if not is_private(run.certificate):
        return ", NOT PRIVATE"
    epsilon, delta = spent(run.certificate)
    return f" at epsilon{NBSP}{epsilon}" + (f", delta{NBSP}{delta}" if delta != "0" else "")


def headline(run: Run) -> str:
    """Return the result in one sentence."""
    if run.tests:
        unfinished = "" if run.done else ", not finished"
        return f"{measure(run).plainly(run.tests[-1].value)} on public test data{promise(run)}{unfinished}"
    if run.done and run.hold_out and (right := run.hold_out.figures.get("accuracy")):
        answers = f"{count(run.hold_out.rows)} noisy held-out answers"
        return f"{ACCURACY.show(possible(right))} right{promise(run)}, by {answers}"
    if run.done:
        return f"Trained{promise(run)}; no figure on public test data was recorded"
    return f"Not finished{promise(run)}" if run.has_metrics else f"Nothing recorded yet{promise(run)}"


def possible(found: Interval) -> float:
    """Return an estimate, or the nearest figure that can be where noise put it out of bounds."""
    return min(max(found.value, found.low), found.high)


def progress(run: Run) -> str | None:
    """Return how far an unfinished run came, or None if it is done."""
    if run.done:
        return None
    if not run.epochs:
        return "This run did not finish: no epoch was recorded."
    last = run.epochs[-1]
    total = next((stage.stages for stage in run.stages if stage.stages), None)
    of = f" of {total}" if total else ""
    where = f"in {name_of(run, last.stage)}{of}" if last.stage else "on the counts of clusters"
    if name_of(run, last.stage) == "student":
        where = "of the student"
    return f"This run did not finish. The last it recorded was epoch {last.epoch} of {last.epochs} {where}."


def name_of(run: Run, stage: float) -> str:
    """Return what a training is called: stage 0 is one on counts alone; one between or after the stages is a student's."""
    if run.stages and (stage > max(each.stage for each in run.stages) or stage != int(stage)):
        return "student"
    return f"stage {stage}" if stage else "clusters"


def counted(counts: Stage) -> str:
    """Return how many labels were counted, at which epsilon."""
    labels = f"{count(counts.rows)} labels" if counts.rows is not None else "labels"
    return f"{labels} counted" + (f" at epsilon{NBSP}{counts.epsilon}" if counts.epsilon else "")


def test_error(test: Test) -> str:
    """Return how far public test rows can tell, as one standard error."""
    if not test.rows:
        return "public test data"
    rows = f"{count(test.rows)} public test rows"
    if not test.is_accuracy or not 0 <= test.value <= 1:
        return rows
    return f"± {100 * math.sqrt(test.value * (1 - test.value) / test.rows):.1f} points (standard error), {rows}"


TRUST = {
    "local": "Local: each label was randomized on its own. Nobody but its owner had to be trusted with it.",
    "curator": "Curator: the label holder saw the labels and aggregated them before adding noise, and is trusted with them.",
}


def not_protected(run: Run) -> list[tuple[str, str]]:
    """Return what label privacy does not hide: a heading and a sentence or two each."""
    limits = [
        (
            "Features, class list, counts.",
            "Features, the classes, the number and order of rows, ids, groups and priors are public, and so is everything in "
            "this report.",
        ),
        (
            "What the features say anyway.",
            f"If the features determine a label, nothing here hides it. {_advantage(run)}",
        ),
        (
            "People.",
            "Epsilon is per label. Somebody with m labels has up to m times epsilon, unless a budget per person groups them.",
        ),
        (
            "Shuffling does not help.",
            "Mixing the rows amplifies nothing: the features say which row a noisy label belongs to.",
        ),
        ("Other runs.", STUDY),
    ]
    for file, why in ((run.certificate or {}).get("unprotected") or {}).items():
        if "to test models on" in why:
            limits.insert(0, ("Public test labels.", f"Those of {file} were read as they are, to test models on."))
        else:
            limits.insert(0, ("Public labels.", f"Of {file}: {why}."))
    if run.certificate is not None and not is_private(run.certificate):
        limits.insert(
            0, ("Everything.", "The noise of this run can be replayed from its seed: no label is protected at all.")
        )
    return limits


def _advantage(run: Run) -> str:
    bound = (
        "The guarantee bounds what a label's own reports add for somebody who knows all other labels: a guess of it gains at "
        "most tanh(epsilon/4) in its chance to be right"
    )
    try:
        epsilon, delta = map(float, spent(run.certificate or {}))
    except ValueError:
        return f"{bound}."
    if delta or not run.certificate or not is_private(run.certificate) or not math.isfinite(epsilon):
        return f"{bound}."
    points = 100 * math.tanh(epsilon / 4)
    return f"{bound}, here {points:.0f} percentage points, over the best guess without them."
