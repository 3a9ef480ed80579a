"""The run folder: what is where, and how records are appended."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labeldp.errors import InvalidArgument
from labeldp.files import renamed_when_whole
from labeldp.learning.multistage import COUNTS
from labeldp.learning.questions import LONGEST_NAME
from labeldp.learning.records import Record
from labeldp.priors import Clusters
from labeldp.runs import specs
from labeldp.runs.families import MODEL_FILES, family_of
from labeldp.runs.inputs import Public
from labeldp.runs.recipe import Recipe
from labeldp.vault import HistogramRelease, Release

OLDER_FACTS: Record = {
    "processes": 1,
    "threads": None,
    "data_dir": None,
    "features": None,
    "unprotected": [],
    "ledger_is_beside": False,
    "reads": None,
    "cache": None,
}
"""What is meant where a run.json does not say it."""


class RunFolder:
    """A run's folder: its recipe, ledger, releases, metrics, model, certificate and report."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.recipe_file = self.path / "recipe.toml"
        self.facts_file = self.path / "run.json"
        self.certificate_file = self.path / "certificate.json"
        self.ledger_file = self.path / "ledger"
        self.metrics_file = self.path / "metrics.jsonl"
        self.clusters_file = self.path / "clusters.npz"
        self.student_file = self.path / "student.safetensors"
        self.report_file = self.path / "report.html"

    @property
    def model_file(self) -> Path:
        """The model's file, whose format is its library's."""
        return self.path / MODEL_FILES[family_of(self.recipe().model)]

    @property
    def exists(self) -> bool:
        return self.facts_file.exists()

    def check_can_be_made(self) -> None:
        """Raise unless a run can be written here, before anything is made or asked for it."""
        there = next(place for place in (self.path, *self.path.absolute().parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            what = "cannot be written to" if there.is_dir() else "is a file"
            raise InvalidArgument(
                f"a run needs a folder of its own, and {there} {what}: choose another one than {self.path}."
            )

    def create(self, recipe: Recipe, facts: Record) -> Record:
        """Make the folder of a new run and return its facts. `run.json` is written last: with it the run exists."""
        if self.exists:
            raise InvalidArgument(f"another run has just begun in {self.path}: choose another folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        number = secrets.token_hex(8)
        facts = {"id": number, "name": _name(self.path, number), **facts}
        write_whole(self.recipe_file, recipe.toml())
        self._write_facts(facts)
        return facts

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in the folder, which is itself the lock: its files are replaced."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidArgument(f"another process is training in {self.path}: wait until it is done.") from None
            yield
        finally:
            os.close(folder)

    def go_on(self, recipe: Recipe, public: Public, *, unprotected: list[str]) -> Record:
        """Take other features, another model or [training]: what was released stays, what was trained on it is done again.

        Public tests are added to all that the run's models were ever tested on. Returns the run's facts.
        """
        facts = self.facts()
        if set(unprotected) <= set(facts["unprotected"]) and public.facts == facts["reads"] and recipe == self.recipe():
            return facts
        with self.locked():
            facts = self.facts()  # another process may just have written it
            self._check_same_releases(recipe)
            facts["unprotected"] = list(dict.fromkeys(facts["unprotected"] + unprotected))
            self._write_facts(facts)  # first: no test is forgotten
            if recipe != self.recipe():
                self._train_otherwise(recipe)
            if public.facts != facts["reads"]:
                self.keep_extractor(public)
                facts["reads"] = public.facts
                self._write_facts(facts)  # last: it speaks of what is there
        return facts

    def keep_extractor(self, public: Public) -> None:
        """Store what a run's features are made by, so that the folder is all that is needed to predict."""
        if public.extractor is not None and public.facts is not None:
            public.extractor.save(self.path / str(specs.parse(public.facts["spec"]).file))

    def keep_clusters(self, clusters: Clusters) -> Clusters:
        """Return the run's clusters: those that are there, which may have been asked with, or these, stored from now on."""
        if not self.clusters_file.exists():
            clusters.save(self.clusters_file)
        return self.clusters()

    def clusters(self) -> Clusters:
        return Clusters.load(self.clusters_file)

    def counts(self) -> HistogramRelease | None:
        """Return the noisy counts of the run's clusters; None where it has no [prior]."""
        if self.recipe().prior is None:
            return None
        if not (self.path / f"{COUNTS}.json").exists():
            raise InvalidArgument(f"{self.path} lacks the counts of its clusters: resume that run first.")
        return HistogramRelease.load(self.path / COUNTS)

    def _write_facts(self, facts: Record) -> None:
        write_whole(self.facts_file, json.dumps(facts, indent=1) + "\n")

    def _check_same_releases(self, recipe: Recipe) -> None:
        before = self.recipe()
        fixed = recipe.other_releases_than(before) + (["seed"] if recipe.seed != before.seed else [])
        if fixed:
            raise InvalidArgument(
                f"{', '.join(fixed)} cannot be changed in {self.path}: it defines what this run asks. Features, model and "
                "[training] can."
            )

    def _train_otherwise(self, recipe: Recipe) -> None:
        models = [self.student_file, *(self.path / name for name in MODEL_FILES.values())]
        for trained in (*self.path.glob("checkpoint-*.pt"), self.metrics_file, *models, self.report_file):
            trained.unlink(missing_ok=True)
        write_whole(self.recipe_file, recipe.toml())

    def recipe(self) -> Recipe:
        self._must_exist()
        return Recipe.read(self.recipe_file)

    def facts(self) -> Record:
        """Return what run.json holds: id, name, ledger, threads, processes, the description and digest of inputs, classes.

        `reads` is what its model reads instead of the inputs, if it does; see `labeldp.runs.inputs.Public`.
        """
        self._must_exist()
        try:
            facts = json.loads(self.facts_file.read_text(encoding="utf-8"))
            assert isinstance(facts, dict)
        except (ValueError, AssertionError):
            raise InvalidArgument(f"{self.facts_file} is damaged: restore it from a copy.") from None
        facts = OLDER_FACTS | {"name": f"{self.path} (run {facts['id']})"} | facts
        tests = facts["unprotected"]  # of older runs: one, or None
        return facts | {"unprotected": tests if isinstance(tests, list) else [tests] * (tests is not None)}

    def certificate(self) -> Record:
        if not self.certificate_file.exists():
            raise InvalidArgument(f"{self.path} has no certificate yet: its run has asked nothing. Resume it.")
        certificate = json.loads(self.certificate_file.read_text(encoding="utf-8"))
        assert isinstance(certificate, dict)
        return certificate

    def releases(self) -> list[Release]:
        """Return the local releases of a finished run, stage by stage."""
        stages = self.recipe().release.stages
        missing = [n for n in range(1, stages + 1) if not (self.path / f"release-{n}.json").exists()]
        if missing:
            raise InvalidArgument(f"{self.path} lacks the release of stage {missing[0]}: resume that run first.")
        return [Release.load(self.path / f"release-{number}") for number in range(1, stages + 1)]

    def hold_out(self) -> Release | None:
        name = "release-hold-out"
        return Release.load(self.path / name) if (self.path / f"{name}.json").exists() else None

    def records(self) -> list[Record]:
        if not self.metrics_file.exists():
            return []
        return [json.loads(line) for line in self.metrics_file.read_text(encoding="utf-8").splitlines()]

    def note(self, record: Record) -> None:
        """Append a record; one that is noted again, after a resume, takes the place of the first."""
        noted = {_key(old): old for old in self.records()} | {_key(record): record}
        write_whole(self.metrics_file, "".join(json.dumps(each) + "\n" for each in noted.values()))

    def _must_exist(self) -> None:
        if not self.exists:
            raise InvalidArgument(
                f"{self.path} is not a run folder: it has no run.json. A run that was stopped before it had one is "
                "started again as before."
            )


def _name(path: Path, number: str) -> str:
    """Return what the ledger calls this run, wherever it is resumed from; `folder_named` reads it."""
    name = f"{os.path.abspath(path)} (run {number})"
    return name if len(name) <= LONGEST_NAME and name.isprintable() else f"run {number}"


def folder_named(name: str | None) -> Path | None:
    """Return the folder of the run that asked a query under a name."""
    folder, found, _ = (name or "").rpartition(" (run ")
    return Path(folder) if found else None


def _key(record: Record) -> tuple[Any, ...]:
    return record["kind"], record.get("stage"), record.get("epoch")


def write_whole(path: Path, text: str) -> None:
    """Write a file that is whole or not there at all."""
    with renamed_when_whole(path) as file:
        file.write(text.encode())
