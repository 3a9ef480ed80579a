"""What a run's folder holds: its recipe, its certificate and what its metrics recorded. All of it is public."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from labeldp.errors import InvalidArgument

Record = dict[str, Any]
T = TypeVar("T")

FIGURES = ("accuracy", "auc", "log_loss")
"""What may be told of held-out rows."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """How many rows of earlier stages a stage kept, because their report was among the last model's k likeliest classes."""

    rows: int
    kept: int
    k: int | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One release: how many rows, by which mechanism, and how many rows had how many candidates.

    Stage 0 are counts in so many clusters.
    """

    stage: int
    stages: int | None
    rows: int | None
    charged: int | None
    mechanism: str
    epsilon: str | None
    private: bool
    candidates: dict[int, int]
    clusters: int | None
    filtered: Filtered | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The accuracy on a noisy hold-out, with its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over a stage's rows. A student that is taught between stages 2 and 3 has stage 2.5."""

    stage: float
    epoch: int
    epochs: int
    loss: float | None
    hold_out: Estimate | None
    of_em: bool


@dataclass(frozen=True, slots=True)
class Test:
    """What a stage's model scored on public test data."""

    __test__ = False  # not a test of pytest's

    stage: int
    rows: int | None
    value: float
    is_accuracy: bool
    confusion: list[list[int]] | None


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure of the last model, estimated from noisy held-out answers, and the interval that holds the truth."""

    value: float
    standard_error: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class HoldOut:
    """What noisy held-out answers tell of the last model: figures by name, without those that the noise leaves untold."""

    rows: int
    confidence: float
    figures: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class Done:
    """The run came to its end."""

    seconds: float | None
    threads: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a report may tell."""

    folder: str
    recipe_text: str | None
    recipe: Record
    certificate: Record | None
    stages: list[Stage]
    epochs: list[Epoch]
    tests: list[Test]
    hold_out: HoldOut | None
    done: Done | None
    has_metrics: bool

    @property
    def counts(self) -> Stage | None:
        """Stage 0, if labels were counted in clusters."""
        return next((stage for stage in self.stages if stage.stage == 0), None)

    @property
    def responses(self) -> list[Stage]:
        """The stages in which labels answered one by one."""
        return [stage for stage in self.stages if stage.stage != 0]

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read a run's folder; any of its files may be missing."""
        if not folder.is_dir():
            raise InvalidArgument(f"folder must be a run's folder, and {folder} is none.")
        recipe_text = _text(folder / "recipe.toml")
        stages: dict[int, Stage] = {}
        epochs: dict[tuple[float, int], Epoch] = {}
        tests: dict[int, Test] = {}
        hold_out, done = None, None
        for where, record in _lines(
            folder / "metrics.jsonl"
        ):  # a resumed run may tell something twice: the last word holds
            match record.get("kind"):
                case "stage":
                    stage = _complete(where, record, _stage)
                    stages[stage.stage] = stage
                case "epoch":
                    epoch = _complete(where, record, _epoch)
                    epochs[epoch.stage, epoch.epoch] = epoch
                case "test":
                    test = _complete(where, record, _test)
                    if math.isfinite(test.value):
                        tests[test.stage] = test
                case "hold-out":
                    hold_out = _complete(where, record, _hold_out)
                case "done":
                    done = _complete(where, record, _done)
        certificate = _certificate(folder / "certificate.json")
        if certificate is not None and not all(stage.private for stage in stages.values()):
            certificate |= {"private": False, "stamp": "NOT PRIVATE: a model was trained on what protects nothing."}
        return cls(
            folder=folder.resolve().name,
            recipe_text=recipe_text,
            recipe=_toml(recipe_text),
            certificate=certificate,
            stages=[stages[key] for key in sorted(stages)],
            epochs=[epochs[key] for key in sorted(epochs)],
            tests=[tests[key] for key in sorted(tests)],
            hold_out=hold_out,
            done=done,
            has_metrics=(folder / "metrics.jsonl").is_file(),
        )


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None


def _toml(text: str | None) -> Record:
    try:
        return tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"recipe.toml must be TOML: {error}.") from None


def _certificate(file: Path) -> Record | None:
    text = _text(file)
    if text is None:
        return None
    try:
        certificate = json.loads(text)
    except ValueError:
        certificate = None
    if not isinstance(certificate, dict):
        raise InvalidArgument("certificate.json must be a JSON object, as vault.certificate() returns it.")
    return certificate


def _lines(file: Path) -> Iterator[tuple[str, Record]]:
    """Yield the records; a last line that was cut off by an interruption is left out."""
    lines = (_text(file) or "").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            if number == len(lines):
                return
            record = None
        if not isinstance(record, dict):
            raise InvalidArgument(f"metrics.jsonl, line {number}, must be a JSON object.")
        yield f"metrics.jsonl, line {number}", record


def _complete(where: str, record: Record, make: Callable[[Record], T]) -> T:
    try:
        return make(record)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidArgument(f"{where}, is not a complete record of kind {record['kind']!r}.") from None


def _stage(record: Record) -> Stage:
    filtered = record.get("filtered")
    return Stage(
        stage=int(record["stage"]),
        stages=_optional(int, record.get("stages")),
        rows=_optional(int, record.get("rows")),
        charged=_optional(int, record.get("charged")),
        mechanism=str(record.get("mechanism", "not stated")),
        epsilon=_optional(str, record.get("epsilon")),
        private=record.get("private") is not False,
        clusters=_optional(int, record.get("clusters")),
        candidates={int(k): int(rows) for k, rows in (record.get("groups") or {}).items()},
        filtered=filtered and Filtered(int(filtered["rows"]), int(filtered["kept"]), _optional(int, filtered.get("k"))),
    )


def _epoch(record: Record) -> Epoch:
    held = record.get("hold_out")
    estimate = held and Estimate(float(held["accuracy"]), float(held.get("standard_error") or 0))
    epoch = int(record["epoch"])
    return Epoch(
        stage=_whole(float(record["stage"])),
        epoch=epoch,
        epochs=int(record.get("epochs") or epoch),
        loss=_optional(float, record.get("loss")),
        hold_out=estimate if estimate and math.isfinite(estimate.value + estimate.standard_error) else None,
        of_em="learning_rate" in record and record["learning_rate"] is None,
    )


def _test(record: Record) -> Test:
    is_accuracy = "accuracy" in record
    confusion = record.get("confusion")
    if confusion is not None:
        confusion = [[int(count) for count in row] for row in confusion]
        if not confusion or any(len(row) != len(confusion) or min(row) < 0 for row in confusion):
            raise ValueError
    return Test(
        stage=int(record["stage"]),
        rows=_optional(int, record.get("rows")),
        value=float(record["accuracy"] if is_accuracy else record["rmse"]),
        is_accuracy=is_accuracy,
        confusion=confusion,
    )


def _hold_out(record: Record) -> HoldOut:
    figures = {}
    for name in FIGURES:
        found = record.get(name)
        if found is not None and None not in (found["value"], found["low"], found["high"]):
            numbers = (float(found["value"]), _optional(float, found.get("standard_error")))
            figures[name] = Interval(*numbers, float(found["low"]), float(found["high"]))
    return HoldOut(int(record["rows"]), float(record.get("confidence", 0.95)), figures)


def _done(record: Record) -> Done:
    return Done(_optional(float, record.get("seconds")), _optional(int, record.get("threads")))


def _whole(number: float) -> float:
    """Return a number as an int, where it is one."""
    return int(number) if number == int(number) else number


def _optional(kind: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else kind(value)
