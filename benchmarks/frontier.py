"""Which idea helps? Each is judged on noisy hold-outs alone: training rows that were only released by randomized response.

10,000 rows of the training set are set aside and released once, by randomized response at epsilon 4; what an idea gives on
the others is graded on these answers (accuracy without bias; the mean log-likelihood, which is quieter). Neither
true labels nor the test split are looked at. All ideas in a cache share its hold-out, and students of one draw share their
teacher's releases, so that differences are less noisy than the figures: answers are kept, with ledgers, in the cache, and
records name their ledgers. A new cache has a new hold-out, and a column of its own. Records go to
benchmarks/results/frontier.json as they come (a second run goes on where the first stopped), tables to docs/frontier.md.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import labeldp as ldp
from labeldp.errors import LedgerError
from labeldp.features import PatchFeatures, cached
from labeldp.files import renamed_when_whole
from labeldp.learning import Beliefs, ClusterPrior, Lesson, Pupil, together
from labeldp.learning.student import TEACHERS_SHARE
from labeldp.priors import Clusters
from labeldp.runs import specs
from labeldp.runs.inputs import extractor_of
from labeldp.torch import Augmentation, TorchLearner, models
from labeldp.vault import Release
from page import rewrite
from script import run

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "frontier.json"
PAGE = HERE.parent / "docs" / "frontier.md"
HELD, HELD_EPSILON = 10_000, "4"
FLOORS = {"fashion-mnist": 10.0, "mnist": 6500.0, "cifar-10": 10.0}
SIMCLR = "simclr:backbone=whitened-conv,epochs=20,flip=%s,precision=bfloat16"
"""`labeldp features --data cifar-10 --features ..` computes them beforehand, and shows how far it is."""
SHARES = (0.0, 0.25, 0.5)
"""Of the teacher, in what it and its student say together."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Teacher:
    """How labels are released, and the model of features that is trained on them."""

    mechanism: type = ldp.GroupedResponse
    split: tuple[float, ...] = (0.25, 0.25, 0.5)
    weight_decay: float = 3e-3
    loss: str = "likelihood"
    centroids: int = 300
    """0 for no patches: the model reads pixels."""
    mirror: bool = False
    """Features are means over an image and its mirror image."""
    simclr: str = ""
    """What SimCLR's features are for: "clusters" that are counted in, or "both", these and the model, beside its patches."""
    counts: float = 0.0
    """The share of epsilon that buys counts of clusters."""
    rows_by_epsilon: int = 20
    """Rows in a cluster, times the counts' epsilon."""
    bag_rounds: int = 3
    """On the likelihood of counts, where there is nothing else to learn from."""
    helper: Student | None = None
    """Who is taught after the second stage, helps to ask the third, and goes on learning after it: its only student."""

    def reads(self, inputs: Inputs) -> np.ndarray:
        X = inputs.features(self.centroids, mirror=self.mirror)
        return np.concatenate([X, inputs.simclr()], axis=1) if self.simclr == "both" else X

    def fit(self, inputs: Inputs, epsilon: str, draw: int, *, name: str) -> ldp.MultiStage:
        X = self.reads(inputs)
        module = models.build("linear", {"kind": "vector", "size": X.shape[1]}, inputs.n_classes, seed=draw)
        how = {"epochs": 8, "batch_size": 512, "learning_rate": 2e-3, "optimizer": "adam", "seed": draw}
        learner = TorchLearner(module, loss=self.loss, weight_decay=self.weight_decay, **how)
        how = {"stages": len(self.split), "split": self.split or None, "mechanism": self.mechanism}
        if self.counts:
            of_counts = Fraction(epsilon) * Fraction(str(self.counts))
            clustered = inputs.simclr() if self.simclr else X
            clusters = Clusters.of(clustered, count=int(len(inputs.train) * of_counts / self.rows_by_epsilon))
            how |= {"clusters": ClusterPrior(clusters, of_counts), "bag_rounds": 0 if self.split else self.bag_rounds}
        if self.helper is not None:
            learner_of = self.helper.learner(inputs, draw)
            how["pupil"] = Pupil(learner_of, inputs.data.X, share=0.0, loss=self.helper.lesson, first=2)
        multi = ldp.MultiStage(learner, **how)
        asked = inputs.asked(f"{name} {epsilon} {draw}", budget=epsilon)
        vault = inputs.data.vault(ledger=asked / "ledger", trust="curator" if self.counts else "local")
        return multi.fit(X, vault, epsilon, rows=inputs.train, name="teacher", folder=asked)


@dataclass(frozen=True)
class Student:
    """A convolutional net on the images, and what it learns."""

    lesson: str = "posterior"
    model: str = "small-conv"
    rounds: int = 1
    share: float = TEACHERS_SHARE
    epochs: int = 10
    batch_size: int = 256
    averaging: float | None = 0.998
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    smoothing: float = 0.0
    mixup: float = 0.0
    crop: int = 2
    """Twice as much where images are larger."""
    cutout: int = 0
    shift: int = 0
    consistency: float = 0.0
    precision: str = "float32"

    def learner(self, inputs: Inputs, draw: int) -> TorchLearner:
        flip = inputs.name != "mnist" and self.crop > 0
        crop = 2 * self.crop if inputs.name == "cifar-10" else self.crop
        return TorchLearner(
            models.build(self.model, inputs.data.inputs, inputs.n_classes, seed=draw),
            loss="likelihood",
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            averaging=self.averaging,
            smoothing=self.smoothing,
            mixup=self.mixup,
            consistency=self.consistency,
            augmentation=Augmentation(crop=crop, flip=flip, cutout=self.cutout),
            mirror=flip,
            shift=self.shift,
            precision=self.precision,
            seed=draw,
        )

    def fit(self, inputs: Inputs, teacher: ldp.MultiStage, X: np.ndarray, draw: int) -> TorchLearner:
        if isinstance(teacher.student_, TorchLearner):
            teacher.student_.shift = self.shift
            return teacher.student_
        learner = self.learner(inputs, draw)
        loss = "posterior" if self.lesson == "both" else self.lesson
        lesson = Lesson.of(teacher, X, rounds=self.rounds, share=self.share, loss=loss)
        if self.lesson != "both":
            return lesson.teach(learner, inputs.data.X)
        weights = np.full(len(lesson.rows), 0.3)
        taught = Beliefs(lesson.rows, lesson.taught, teacher.releases_, weights)
        return learner.fit(inputs.data.X, [*teacher.releases_, taught])


NARROW = Student(model="whitened-conv-narrow", precision="bfloat16", share=0.0)
ALONE = replace(NARROW, lesson="likelihood", epochs=20)
HELPER = replace(ALONE, epochs=14)
"""Half the rows, then all: as long as `ALONE`."""
TWICE = Student(model="whitened-conv", precision="bfloat16", rounds=2, shift=1)
WIDE = replace(NARROW, model="whitened-conv-wide", shift=1, epochs=8, learning_rate=0.2)
PUBLISHED = replace(
    WIDE,
    model="whitened-conv-published",
    batch_size=1024,
    learning_rate=1.5,
    momentum=0.85,
    weight_decay=1.33e-3,
    averaging=0.99,
    smoothing=0.2,
    crop=1,
)
"""The settings of airbench94, the code of Jordan 2024, in torch's terms: decay of 2e-3 a step, at the peak."""
HALF_THEN_ALL = (
    "the likelihood of the answers alone, whitened-conv-narrow in bfloat16, 14 epochs of half the rows and 14 of all"
)
FIVE = (0.15, 0.15, 0.2, 0.2, 0.3)
COUNTS = Teacher(counts=1.0, split=())
TEACHERS = {
    "randomized response, one stage": Teacher(ldp.RandomizedResponse, (1.0,)),
    "randomized response, one stage, answers taken at their word": Teacher(
        ldp.RandomizedResponse, (1.0,), loss="noisy-label"
    ),
    "randomized response, one stage, debiased": Teacher(ldp.RandomizedResponse, (1.0,), loss="debiased"),
    "balanced groups, one stage": Teacher(split=(1.0,)),
    "RRWithPrior, three stages": Teacher(ldp.RRWithPrior),
    "balanced groups, two stages": Teacher(split=(0.4, 0.6)),
    "balanced groups, three stages": Teacher(),
    "balanced groups, five stages": Teacher(split=FIVE),
    "three stages, weight decay 1e-3": Teacher(weight_decay=1e-3),
    "three stages, weight decay 6e-3": Teacher(weight_decay=6e-3),
    "three stages, weight decay 6e-3, a student helps to ask the third": Teacher(weight_decay=6e-3, helper=HELPER),
    "three stages, weight decay 6e-3, mirrored patches": Teacher(weight_decay=6e-3, mirror=True),
    "three stages, weight decay 6e-3, mirrored patches, a student helps to ask the third": Teacher(
        weight_decay=6e-3, mirror=True, helper=HELPER
    ),
    "three stages, weight decay 1.2e-2": Teacher(weight_decay=1.2e-2),
    "five stages, weight decay 6e-3": Teacher(split=FIVE, weight_decay=6e-3),
    "five stages, weight decay 1.2e-2": Teacher(split=FIVE, weight_decay=1.2e-2),
    "five stages, weight decay 2.4e-2": Teacher(split=FIVE, weight_decay=2.4e-2),
    "three stages, 1,000 centroids": Teacher(centroids=1000),
    "three stages, pixels for patches": Teacher(centroids=0),
    "three stages, pixels for patches, weight decay 1e-3": Teacher(centroids=0, weight_decay=1e-3),
    "counts of clusters (curator)": COUNTS,
    "counts, weight decay 1e-3 (curator)": replace(COUNTS, weight_decay=1e-3),
    "counts, weight decay 1e-3, mirrored patches (curator)": replace(COUNTS, weight_decay=1e-3, mirror=True),
    "counts of SimCLR's clusters, weight decay 1e-3, mirrored patches (curator)": replace(
        COUNTS, weight_decay=1e-3, mirror=True, simclr="clusters"
    ),
    "counts of SimCLR's clusters, weight decay 1e-3, mirrored patches and SimCLR (curator)": replace(
        COUNTS, weight_decay=1e-3, mirror=True, simclr="both"
    ),
    "three stages, weight decay 6e-3, mirrored patches and SimCLR": Teacher(
        weight_decay=6e-3, mirror=True, simclr="both"
    ),
    "three stages, weight decay 6e-3, mirrored patches and SimCLR, a student helps to ask the third": Teacher(
        weight_decay=6e-3, mirror=True, simclr="both", helper=HELPER
    ),
    "counts, weight decay 1e-3, no rounds on their likelihood (curator)": replace(
        COUNTS, weight_decay=1e-3, bag_rounds=0
    ),
    "counts, clusters of half the rows (curator)": replace(COUNTS, rows_by_epsilon=10),
    "counts, clusters of twice the rows (curator)": replace(COUNTS, rows_by_epsilon=40),
    "counts, clusters of twice the rows, weight decay 1e-3 (curator)": replace(
        COUNTS, rows_by_epsilon=40, weight_decay=1e-3
    ),
    "a twentieth on counts, then groups in two stages (curator)": Teacher(counts=0.05, split=(0.4, 0.6)),
    "a twentieth on counts, then groups in three stages (curator)": Teacher(counts=0.05),
    "a twentieth on counts, then groups in three stages, weight decay 6e-3 (curator)": Teacher(
        counts=0.05, weight_decay=6e-3
    ),
    "a quarter on counts, then groups in one stage (curator)": Teacher(counts=0.25, split=(1.0,)),
    "a quarter on counts, then groups in two stages (curator)": Teacher(counts=0.25, split=(0.4, 0.6)),
    "half on counts, then groups in two stages (curator)": Teacher(counts=0.5, split=(0.4, 0.6)),
}
STUDENTS = {
    "the likelihood of the answers alone": Student("likelihood"),
    "likelihood, and the teacher's word at weight 0.3": Student("both"),
    "posterior": Student(),
    "posterior, two rounds of half the length": Student(rounds=2, epochs=5),
    "posterior, two rounds": Student(rounds=2),
    "posterior, four rounds": Student(rounds=4),
    "posterior, four rounds, shifted images too": Student(rounds=4, shift=1),
    "posterior, five rounds of a fifth of the length": Student(rounds=5, epochs=2),
    "posterior, no averaging": Student(averaging=None),
    "posterior, averaging 0.99": Student(averaging=0.99),
    "posterior, batches of 128": Student(batch_size=128),
    "posterior, no crops or flips": Student(crop=0),
    "posterior, mixup 0.2": Student(mixup=0.2),
    "posterior, cutout 8": Student(cutout=8),
    "posterior, cutout 8, two rounds": Student(cutout=8, rounds=2),
    "posterior, cutout 8, five rounds of a fifth of the length": Student(cutout=8, rounds=5, epochs=2),
    "posterior, cutout 8, five rounds, the teacher in the first alone": Student(
        cutout=8, rounds=5, epochs=2, share=0.0
    ),
    "posterior, cutout 8, ten rounds of one epoch": Student(cutout=8, rounds=10, epochs=1),
    "posterior, consistency 1": Student(consistency=1.0),
    "posterior, medium-conv": Student(model="medium-conv"),
    "posterior, medium-conv, two rounds of half the length": Student(model="medium-conv", rounds=2, epochs=5),
    "posterior, medium-conv, cutout 8": Student(model="medium-conv", cutout=8),
    "posterior, whitened-conv-narrow in bfloat16, two rounds, the teacher in the first alone": replace(
        NARROW, rounds=2
    ),
    "posterior, whitened-conv-narrow in bfloat16, two rounds, shifted images too": replace(
        TWICE, model="whitened-conv-narrow"
    ),
    "posterior, whitened-conv in bfloat16, two rounds, shifted images too": TWICE,
    "the likelihood of the answers alone, whitened-conv-narrow in bfloat16, 20 epochs": ALONE,
    HALF_THEN_ALL: HELPER,
    f"{HALF_THEN_ALL}, shifted images too": replace(HELPER, shift=1),
    "posterior, whitened-conv in bfloat16": Student(model="whitened-conv", precision="bfloat16"),
    "posterior, whitened-conv-wide in bfloat16, 8 epochs at rate 0.2, shifted images too": WIDE,
    "posterior, whitened-conv-published in bfloat16, 8 epochs as published, shifted images too": PUBLISHED,
    "posterior, whitened-conv-published in bfloat16, 8 epochs as published but for smoothing, shifted images too": replace(
        PUBLISHED, smoothing=0.0
    ),
    "posterior, whitened-conv in bfloat16, cutout 8": Student(model="whitened-conv", precision="bfloat16", cutout=8),
}
USUAL = "balanced groups, three stages"
WITH_STUDENTS = (
    USUAL,
    "three stages, weight decay 6e-3",
    "three stages, weight decay 6e-3, a student helps to ask the third",
    "counts, weight decay 1e-3 (curator)",
    "three stages, weight decay 6e-3, mirrored patches",
    "three stages, weight decay 6e-3, mirrored patches, a student helps to ask the third",
    "counts, weight decay 1e-3, mirrored patches (curator)",
    "counts of SimCLR's clusters, weight decay 1e-3, mirrored patches (curator)",
    "counts of SimCLR's clusters, weight decay 1e-3, mirrored patches and SimCLR (curator)",
    "three stages, weight decay 6e-3, mirrored patches and SimCLR",
    "three stages, weight decay 6e-3, mirrored patches and SimCLR, a student helps to ask the third",
    "a twentieth on counts, then groups in three stages (curator)",
    "a twentieth on counts, then groups in three stages, weight decay 6e-3 (curator)",
)


@dataclass
class Inputs:
    """A dataset, its features, and the rows that are held out."""

    name: str
    data_dir: Path | None
    cache: Path
    _features: dict[tuple[int, bool], np.ndarray] = field(default_factory=dict)
    _simclr: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.data = ldp.datasets.load(self.name, data_dir=self.data_dir)
        order = np.random.default_rng(1).permutation(self.data.n_rows)
        self.held, self.train = np.sort(order[:HELD]), np.sort(order[HELD:])
        self.n_classes = len(self.data.classes)
        file = self.cache / f"frontier-hold-out-{self.name}"
        if not file.with_name(f"{file.name}.json").exists():
            vault = self.data.vault(ledger=self.asked("hold-out", budget=HELD_EPSILON) / "ledger")
            vault.release(ldp.RandomizedResponse(HELD_EPSILON), self.held, name="hold-out").save(file)
        self.hold_out = Release.load(file)
        self.hold_out_id: str = self.hold_out.receipt.ledger["id"]

    def asked(self, question: str, *, budget: str) -> Path:
        """Return the folder of a question's answers, with its ledger: whoever asks it again is given the same ones."""
        folder = self.cache / "frontier" / self.name / re.sub(r"[^a-z0-9]+", "-", question.lower())
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "ledger").exists():
            with suppress(LedgerError):  # another process was faster
                ldp.create_ledger(folder / "ledger", budget=budget)
        return folder

    def features(self, centroids: int = 300, *, mirror: bool = False) -> np.ndarray:
        if (centroids, mirror) not in self._features:
            extractor = (
                PatchFeatures(centroids=centroids, floor=FLOORS[self.name], mirror=mirror) if centroids else None
            )
            read = self._pixels() if extractor is None else np.array(cached(self.data.X, extractor, self.cache))
            self._features[centroids, mirror] = read
        return self._features[centroids, mirror]

    def simclr(self) -> np.ndarray:
        if self._simclr is None:
            extractor = extractor_of(
                specs.parse(SIMCLR % ("false" if self.name == "mnist" else "true")), self.data.inputs
            )
            self._simclr = np.array(cached(self.data.X, extractor, self.cache))
        return self._simclr

    def _pixels(self) -> np.ndarray:
        """Return the pixels, of mean 0 each, and of variance 1 all together."""
        pixels = self.data.X.reshape(self.data.n_rows, -1).astype(np.float32)
        pixels -= pixels.mean(axis=0)
        return pixels / pixels.std()

    def grade(self, probabilities: np.ndarray) -> Record:
        right, likely = (
            figure(self.hold_out, probabilities) for figure in (ldp.metrics.accuracy, ldp.metrics.log_likelihood)
        )
        return {
            "accuracy": 100 * right.value,
            "standard_error": 100 * right.standard_error,
            "log_likelihood": likely.value,
        }


def studied(inputs: Inputs, epsilon: str, draw: int, done: set[tuple[Any, ...]], *, teachers_alone: bool) -> Any:
    """Yield records of all ideas at an epsilon that are not done yet."""
    for name, idea in TEACHERS.items():
        students = STUDENTS if name in WITH_STUDENTS and not teachers_alone else {}
        if idea.counts:  # which have no likelihood row by row
            students = {each: how for each, how in students.items() if how.lesson == "posterior"}
        helps = idea.helper is not None
        students = {each: how for each, how in students.items() if (replace(how, shift=0) == HELPER) == helps}
        wanted = [each for each in students if (name, each) not in done]
        if wanted or (name, None) not in done:
            yield from _taught(inputs, epsilon, draw, name, idea, wanted)


def _taught(inputs: Inputs, epsilon: str, draw: int, name: str, idea: Teacher, students: Sequence[str]) -> Any:
    began = time.perf_counter()
    teacher = idea.fit(inputs, epsilon, draw, name=name)
    X = idea.reads(inputs)
    taught = teacher.predict_proba(X[inputs.held])
    about = {"dataset": inputs.name, "epsilon": epsilon, "draw": draw, "teacher": name, "hold_out": inputs.hold_out_id}
    answers = teacher.releases_[0] if teacher.releases_ else teacher.counts_
    about["asked"] = answers.receipt.ledger["id"]
    yield about | {"student": None, "seconds": time.perf_counter() - began} | inputs.grade(taught)
    for each in students:
        began = time.perf_counter()
        model = STUDENTS[each].fit(inputs, teacher, X, draw)
        learned = model.predict_proba(inputs.data.X[inputs.held])
        shares = {str(share): inputs.grade(together(taught, learned, share=share)) for share in SHARES}
        seconds = time.perf_counter() - began
        yield about | {"student": each, "seconds": seconds, "shares": shares} | shares[str(TEACHERS_SHARE)]


def table(records: list[Record]) -> str:
    """Return one row per idea: accuracy and log-likelihood on noisy hold-outs, by dataset and epsilon, mean over draws."""
    names = sorted({each["dataset"] for each in records})
    return "\n\n".join(_table_of(name, [each for each in records if each["dataset"] == name]) for name in names)


def _table_of(dataset: str, records: list[Record]) -> str:
    """Return a dataset's part of the table: the ideas that were tried on it."""
    cells = sorted({_of(each) for each in records}, key=lambda cell: (float(cell[1]), cell[2]))
    heads = [f"ε {epsilon}{f', hold-out {of[:4]}' if of else ''}" for _, epsilon, of in cells]
    lines = [f"| {dataset} | {' | '.join(heads)} |", "|---|" + "---|" * len(cells)]
    ideas = list(dict.fromkeys((each["teacher"], each["student"]) for each in records))
    order = {name: number for number, name in enumerate([*TEACHERS, *STUDENTS])}
    for teacher, taught in sorted(ideas, key=lambda idea: (idea[1] is not None, order[idea[0]], order.get(idea[1], 0))):
        words = teacher if taught is None else _student(taught) + (f", of {teacher}" if teacher != USUAL else "")
        shown = [
            _cell([r for r in records if (r["teacher"], r["student"]) == (teacher, taught) and _of(r) == cell])
            for cell in cells
        ]
        lines.append(f"| {words} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _student(name: str) -> str:
    return f"student{'' if STUDENTS[name].share else ' by itself'}: {name}"


def spent(records: list[Record]) -> str:
    """Return what all that was asked adds up to. Records that name no ledger are older: each teacher among them asked."""
    asked = {
        each.get("asked", number): each for number, each in enumerate(records) if "asked" in each or not each["student"]
    }
    names = list(dict.fromkeys(each["dataset"] for each in records))
    sums = {
        name: sum(Fraction(each["epsilon"]) for each in asked.values() if each["dataset"] == name) for name in names
    }
    told = ", ".join(f"{float(total):g} on {name}" for name, total in sums.items())
    held = [(name, {each.get("hold_out") for each in records if each["dataset"] == name}) for name in names]
    least = ", ".join(f"{float(HELD_EPSILON) * len(hold_outs):g} on {name}" for name, hold_outs in held)
    return (
        f"Per training label, the recorded teachers have spent epsilon {told}; per held-out label at least {least}, "
        "because older records do not say in how many caches they were made."
    )


def _of(record: Record) -> tuple[str, str, str]:
    """Return the column of a record: dataset, epsilon, hold-out."""
    return record["dataset"], record["epsilon"], record.get("hold_out", "")


def _told(record: Record) -> Record:
    """Return the figures of a record, of a student's with the share that its teacher has."""
    shares: dict[str, Record] = record.get("shares", {})
    return shares.get(str(STUDENTS[record["student"]].share), record) if shares else record


def _cell(records: list[Record]) -> str:
    if not records:
        return "–"
    told = [_told(each) for each in records]
    accuracy, likely = (statistics.mean(each[key] for each in told) for key in ("accuracy", "log_likelihood"))
    runs = f" ({len(records)} draws)" if len(records) > 1 else ""
    return f"{accuracy:.2f}, {likely:.4f}{runs}"


def read(out: Path) -> list[Record]:
    found: list[Record] = json.loads(out.read_text(encoding="utf-8"))["records"] if out.exists() else []
    return found


def add(out: Path, record: Record) -> None:
    """Append a record to those that are there, whoever wrote them."""
    with _locked(out.parent), renamed_when_whole(out) as file:
        told = {"held_epsilon": HELD_EPSILON, "held": HELD, "records": [*read(out), record]}
        file.write((json.dumps(told, indent=1) + "\n").encode())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    at = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(at, fcntl.LOCK_EX)
        yield
    finally:
        os.close(at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "labeldp" / "features")
    parser.add_argument("--data", action="append", choices=FLOORS, help="repeatable; by default all")
    parser.add_argument("--epsilon", action="append", help="repeatable; by default 1 and 2")
    parser.add_argument("--draw", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--teachers", action="store_true", help="no students, which take minutes each")
    parser.add_argument(
        "--idea", action="append", choices=TEACHERS, help="only this teacher, and its students; repeatable"
    )
    parser.add_argument("--student", action="append", choices=STUDENTS, help="only this student; repeatable")
    parser.add_argument("--page", action="store_true", help="run nothing: write the page from what is recorded")
    arguments = parser.parse_args()
    if not arguments.page:
        for name in arguments.data or FLOORS:
            inputs = Inputs(name, arguments.data_dir, arguments.cache)
            for epsilon in arguments.epsilon or ("1", "2"):
                cell = (name, epsilon, inputs.hold_out_id)
                same = [r for r in read(arguments.out) if _of(r) == cell and r["draw"] == arguments.draw]
                done = {(record["teacher"], record["student"]) for record in same}
                done |= {
                    (teacher, student)
                    for teacher in TEACHERS
                    for student in (None, *STUDENTS)
                    if (arguments.idea and teacher not in arguments.idea)
                    or (arguments.student and student and student not in arguments.student)
                }
                for record in studied(inputs, epsilon, arguments.draw, done, teachers_alone=arguments.teachers):
                    if (record["teacher"], record["student"]) not in done:
                        add(arguments.out, record)
                    print(
                        json.dumps({key: record[key] for key in record if key != "shares"}), file=sys.stderr, flush=True
                    )
    if arguments.out == RESULTS:
        records = read(arguments.out)
        rewrite(PAGE, {"ideas": table(records), "spent": spent(records)})


if __name__ == "__main__":
    run(main, stopped="Stopped; the same command resumes.")
