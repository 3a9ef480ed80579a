"""One cell's run: a folder of its own, gone on with where it stopped, then one record."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import labeldp
from labeldp.budget import Ledger
from labeldp.errors import InvalidArgument
from labeldp.learning.records import Watch
from labeldp.reproduce.clock import Clock
from labeldp.reproduce.cookbook import Entry, hash_of, is_figure
from labeldp.reproduce.pooling import HASH_DIGITS, on_latest_data
from labeldp.reproduce.provenance import commit, digest_as_read, digest_of_inputs
from labeldp.reproduce.results import Results, now
from labeldp.runs import Recipe, RunFolder, clusters, train

Record = dict[str, Any]

SEEDS_APART = 100
"""Between the training seeds of two draws: stages have seeds of their own, which count up."""
INSTEAD = "Remove that folder, or name another by --out."
STATED = "which the caller states are public"


@dataclass(frozen=True)
class Job:
    """A recipe at an epsilon, and the number of a draw, from 1: of noise, and of all that training draws."""

    entry: Entry
    epsilon: str
    draw: int = 1
    rows: int | None = None

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe as all its draws share it."""
        return self.entry.at(self.epsilon, rows=self.rows)

    @cached_property
    def hash(self) -> str:
        return hash_of(self.recipe)

    @property
    def drawn(self) -> Recipe:
        """The recipe with this draw's training seed; no seed reaches privacy noise."""
        return self.recipe.changed({"seed": self.recipe.seed + SEEDS_APART * (self.draw - 1)}).placed()

    def folder(self, out: Path) -> RunFolder:
        name = f"{self.entry.name.replace(':', '-')}-epsilon-{self.recipe.epsilon}-{self.hash[:10]}"
        return RunFolder(out / self.entry.table / name / f"draw-{self.draw}")

    @property
    def command(self) -> str:
        """What does this run again, wherever data and results are."""
        words = [
            "labeldp",
            "reproduce",
            self.entry.table,
            "--recipe",
            self.entry.named,
            "--epsilon",
            self.recipe.epsilon,
        ]
        words += [word for each in self.entry.variant_words for word in ("--only", each)]
        words += ["--draws", str(self.draw)] if self.draw > 1 else []
        return shlex.join(words + (["--rows", str(self.rows)] if self.rows is not None else []))

    @property
    def facts(self) -> Record:
        """What names the run, in records and in looks."""
        named = {"table": self.entry.table, "dataset": self.recipe.data, "recipe": self.entry.name}
        subset = {} if self.recipe.rows is None else {"rows": self.recipe.rows}
        variant: Record = {"variant": dict(self.entry.variant)} if is_figure(self.entry.table) else {}
        variant |= {} if self.recipe.init is None else {"init": self.recipe.init}
        return named | variant | {"recipe_hash": self.hash, "epsilon": self.recipe.epsilon, "draw": self.draw} | subset

    @property
    def look(self) -> Record:
        """What names the run in a line of looks."""
        varied = f" ({', '.join(self.entry.variant_words)})" if self.entry.variant else ""
        return self.facts | {"recipe": self.entry.name + varied, "hash": self.hash[:HASH_DIGITS]}


def recorded(job: Job, results: Results, out: Path) -> Record | None:
    """Return the record of a job whose run is done and noted; of a figure, wherever it was run, if the figure shows it.

    That is on the data of the recipe's latest run; whether the files here are those is not looked at.
    """
    table, folder = job.entry.table, job.folder(out)
    known = results.of_run(table, folder.facts()["id"]) if folder.exists else None
    if known is not None or not is_figure(table):
        return known
    runs = [each for each in results.records(table) if each["kind"] == "run" and each["recipe_hash"] == job.hash]
    return next((each for each in on_latest_data(runs) if each["draw"] == job.draw), None)


def has_asked(job: Job, out: Path) -> bool:
    """Tell whether a job's run has charged any label yet; a ledger that it shares may have charges of others."""
    folder = job.folder(out)
    if not folder.exists or not folder.facts()["own_ledger"]:
        return folder.exists
    return any(entry.body["kind"] == "charge" for entry in Ledger(folder.ledger_file).entries())


def performed(
    job: Job,
    results: Results,
    *,
    out: Path,
    data_dir: Path | None = None,
    cache: Path | None = None,
    watch: Watch | None = None,
) -> Record:
    """Run a job, or go on with its run, and return its record, which is in the results.

    Privacy
    -------
    Each draw asks labels anew under a ledger in its own folder: a study of a method on published labels. Every label is
    charged at most the recipe's epsilon in each.
    """
    known = recorded(job, results, out)
    if known is not None:
        return known
    folder = job.folder(out)
    clock, is_done = Clock(folder), _is_done(folder)
    if folder.exists:
        _check_recipe(job, folder)
    data = _data_of(folder, clock) if is_done else _same_data(job, folder, clock, data_dir)
    why = "read back" if is_done else "resumed" if folder.exists else "begun"
    why += ", tested at each epoch's end" if job.entry.each_epoch else ""
    results.look(**job.look | {"commit": commit(), "why": why})
    if not is_done:
        with clock.session(watch, data=data) as tell:
            train(
                job.drawn,
                folder.path,
                data_dir=data_dir,
                cache=cache,
                watch=tell,
                command=job.command,
                each_epoch=job.entry.each_epoch,
            )
    with folder.locked():  # nobody trains it otherwise meanwhile
        record = _record(job, folder, clock)
    results.append(job.entry.table, record)
    return record


def _is_done(folder: RunFolder) -> bool:
    return folder.exists and any(record["kind"] == "done" for record in folder.records())


def _check_recipe(job: Job, folder: RunFolder) -> None:
    """Raise unless the run in a folder is of the job's recipe: it may have been trained otherwise since."""
    settled = clusters.settled(job.drawn, folder.facts()["inputs"])
    if hash_of(folder.recipe()) != hash_of(settled):
        raise InvalidArgument(
            f"the run in {folder.path} must be of {job.entry.named} as it is at epsilon {job.recipe.epsilon}, draw {job.draw}; "
            f"its recipe.toml says otherwise. {INSTEAD}"
        )


def _data_of(folder: RunFolder, clock: Clock) -> str:
    """Return the digest of the inputs that every session of the run in a folder read."""
    noted = {session.get("data") for session in clock.sessions()}
    if len(noted) != 1 or None in noted:
        raise InvalidArgument(
            f"the run in {folder.path} must be one of labeldp reproduce, which notes in {clock.file.name} what data a run "
            f"reads; nothing is noted of this one. {INSTEAD}"
        )
    return str(noted.pop())


def _same_data(job: Job, folder: RunFolder, clock: Clock, data_dir: Path | None) -> str:
    """Return the digest of a job's inputs, which must be those that its run was begun with, if it was."""
    data = digest_of_inputs(job.recipe, data_dir)
    if folder.exists and _data_of(folder, clock) != data:
        raise InvalidArgument(
            f"the run in {folder.path} must be gone on with on the data that it was begun with; the files of {job.recipe.data} "
            f"are others. Bring those back, or begin anew. {INSTEAD}"
        )
    return data


def _check_certificate(job: Job, folder: RunFolder, certificate: Record) -> None:
    """Raise unless a run is private, and has spent what its record will say."""
    if certificate.get("private") is not True:
        raise InvalidArgument(f"the run in {folder.path} is not private: it is no result.")
    spent = certificate["spent"]
    if (spent["epsilon"], spent["delta"]) != (job.recipe.epsilon, "0"):
        raise InvalidArgument(
            f"the run in {folder.path} must have spent epsilon {job.recipe.epsilon} and delta 0; its certificate says epsilon "
            f"{spent['epsilon']} and delta {spent['delta']}. {INSTEAD}"
        )


def _record(job: Job, folder: RunFolder, clock: Clock) -> Record:
    _check_recipe(job, folder)
    by_kind = {record["kind"]: record for record in folder.records()}  # the last of each kind
    test, certificate, sessions = by_kind.get("test"), folder.certificate(), clock.sessions()
    if "done" not in by_kind:
        raise InvalidArgument(f"the run in {folder.path} is being trained again: the same command goes on with it.")
    if test is None:
        raise InvalidArgument(f"{job.recipe.data} has no public test rows: there is nothing to compare it by.")
    _check_certificate(job, folder, certificate)
    is_accuracy = "accuracy" in test
    commits = list(dict.fromkeys(session["commit"] for session in sessions))
    record = {
        "kind": "run",
        **job.facts,
        "trust": certificate["trust"],
        "metric": "accuracy" if is_accuracy else "rmse",
        "value": round(100 * test["accuracy"], 4) if is_accuracy else round(test["rmse"], 6),
        "test_rows": test["rows"],
        "seconds": round(sum(session["seconds"] for session in sessions), 1) if sessions else None,
        "threads": by_kind["done"].get("threads"),
        "seed": job.drawn.seed,
        "guarantee": certificate["guarantee"],
        "commit": commits[-1] if commits else commit(),
        "version": labeldp.__version__,
        "time": now(),
        "command": job.command,
        "run": folder.facts()["id"],
        "data": digest_as_read(_data_of(folder, clock), folder),
        **_stated(certificate),
    }
    if len(sessions) > 1:
        record |= {"sessions": len(sessions), "seconds_are": "of all sessions, a killed one up to its last record"}
    if len(commits) > 1:
        record["commits"] = commits
    epochs = [each for each in folder.records() if each["kind"] == "epoch"]
    if precisions := dict.fromkeys(each["precision"] for each in epochs if "precision" in each):
        record["precisions"] = list(precisions)
    if job.recipe.features or job.recipe.prior or job.recipe.init:
        record["computed_features"] = any(session["computed_features"] for session in sessions)
    return record | (_on_the_way(folder) if is_figure(job.entry.table) else {})


def _stated(certificate: Record) -> Record:
    """Return what a certificate lists besides its promise: features that are public by a caller's word, unprotected labels."""
    sources = [certificate.get("features"), *(query["source"] for query in certificate["queries"])]
    features = [each for each in dict.fromkeys(sources) if each is not None and STATED in each]
    found: Record = {"features": "; ".join(features)} if features else {}
    return found | ({"unprotected": certificate["unprotected"]} if "unprotected" in certificate else {})


def _on_the_way(folder: RunFolder) -> Record:
    """Return what figures show besides the last figure: how each stage's model did, and after each epoch if it was tested."""
    records = folder.records()
    candidates = {each["stage"]: each["mean_groups"] for each in records if each["kind"] == "stage"}
    tests = [each for each in records if each["kind"] == "test" and "accuracy" in each]
    epochs = [each for each in records if each["kind"] == "epoch" and each.get("test")]
    found: Record = {
        "stages": [{"stage": e["stage"], "mean_k": candidates.get(e["stage"]), **_in_percent(e)} for e in tests]
    }
    if epochs:
        found["curve"] = [{"stage": e["stage"], "epoch": e["epoch"], **_in_percent(e["test"])} for e in epochs]
    return found


def _in_percent(test: Record) -> Record:
    return {"accuracy": round(100 * test["accuracy"], 4), "top_k": [round(100 * k, 2) for k in test["top_k"]]}
