"""What `labeldp train` does: from a recipe to a folder with a model, a certificate and a report."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import labeldp
from labeldp import checks, datasets
from labeldp.budget import Guarantee
from labeldp.errors import BudgetExhausted, InvalidArgument, MissingExtra
from labeldp.learning import MultiStage
from labeldp.learning.records import Record, Watch, nobody
from labeldp.priors import Clusters
from labeldp.runs import certificates, initial, inputs, learners, ledgers, ratings, students, tables
from labeldp.runs import clusters as stage_0
from labeldp.runs.epochs import TestedEachEpoch
from labeldp.runs.folder import RunFolder, write_whole
from labeldp.runs.grades import held_out, tested_on
from labeldp.runs.inputs import Once, Public
from labeldp.runs.learners import OneProcess
from labeldp.runs.recipe import Recipe
from labeldp.runs.students import FinalModel
from labeldp.vault import LabelVault

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from labeldp.bulk.book import Book


def train(
    recipe: Recipe,
    out: Path,
    *,
    ledger: Path | None = None,
    data_dir: Path | None = None,
    cache: Path | None = None,
    watch: Watch | None = None,
    fabric: Fabric | None = None,
    command: str | None = None,
    otherwise: bool = False,
    each_epoch: bool = False,
) -> RunFolder:
    """Run a recipe in a folder, or go on with the run that is there.

    Privacy
    -------
    Every label is charged at most the recipe's epsilon: to `ledger`; else, of a file of one's own, to the ledger that its book
    names, or the one beside it, which is made if there is none; else to a new one in the run folder. The book lies beside a
    file of one's own and keeps it on one ledger, under one column of ids; a column that was a label is never a feature
    afterwards, nor the other way round. A stage whose release is in the folder is read back; only the first process holds
    labels. `command`, for the report, is public. With a [prior] the label holder is a curator, who aggregates; its clusters
    are public, and are in the folder before anything is asked.
    With `otherwise` a run that is there may get another model or [training]: it is trained anew on what it released.
    Features, and what they are made by, are kept in `cache`; see `labeldp.runs.inputs`. With `each_epoch` models are tested on
    public test rows at each epoch's end, not only at each stage's.
    """
    learners.check_known(recipe.model)
    processes = learners.processes(recipe.model, fabric)
    once = partial(learners.once, processes)
    first, folder = processes.is_global_zero, RunFolder(out)
    folder.check_can_be_made()
    sealed = _load(recipe, data_dir)
    sealed = sealed if first else sealed.only_public()
    recipe = stage_0.settled(recipe, sealed.inputs)
    public = _read(recipe, sealed.only_public(), folder, cache, watch, once)
    data = learners.readable(recipe.model, public.data)
    labelled = _labelled(sealed)
    used = np.flatnonzero(labelled[: recipe.rows])  # the first so many: a ledger knows all rows of a dataset
    clusters = _clusters(recipe, sealed.only_public(), public, used, folder, cache, watch, once)
    multistage, test = stages_of(recipe, data, processes, clusters), tested_on(data)
    multistage.pupil = students.of(recipe, unlabelled := sealed.only_public(), processes)
    multistage.check(data.X, labelled, len(data.classes), recipe.epsilon, rows=used)
    initial.begin(multistage.learner, recipe, data, data_dir=data_dir, cache=cache, watch=watch, once=once)  # type: ignore[arg-type]
    if each_epoch and test is not None and recipe.sums is None:
        multistage.learner = [TestedEachEpoch(each, test) for each in multistage.learner]  # type: ignore[union-attr]
    facts = _facts(recipe, sealed, public, data_dir, cache, processes) | {"command": command}
    facts = once(lambda: _begun(folder, recipe, sealed, public, used, ledger, data_dir, facts, otherwise, watch))
    once(lambda: tables.note_public_test(recipe, data_dir))
    with folder.locked() if first else nullcontext():
        if clusters is not None and first:
            multistage.clusters = stage_0.prior_of(recipe, folder.keep_clusters(clusters))
        vault = sealed.vault(ledger=facts["ledger"], trust=_trust(recipe)) if first else None
        sealed = sealed.only_public()
        journal = _journal(folder, watch, vault, facts) if vault is not None else None
        multistage.fit(
            data.X,
            vault,  # type: ignore[arg-type]  # None on other processes, which never ask
            recipe.epsilon,
            rows=used,
            name=facts["name"],
            folder=folder.path,
            watch=journal,
            test=test,
        )
        model = students.final(multistage, data, unlabelled, journal)
        if vault is not None:
            _finish(folder, multistage, model, certificates.of_run(folder, vault, facts), watch)
            vault.close()
    return folder


def train_again(
    recipe: Recipe,
    source: Path,
    out: Path,
    *,
    data_dir: Path | None = None,
    cache: Path | None = None,
    watch: Watch | None = None,
    fabric: Fabric | None = None,
    command: str | None = None,
    otherwise: bool = False,
) -> RunFolder:
    """Train on the releases of an earlier run. Free: no vault is opened, and nothing is asked."""
    if recipe.sums is not None:
        raise InvalidArgument(
            "a run on [sums] has one model, which follows from them: there is nothing to train again."
        )
    folder, earlier = RunFolder(out), RunFolder(source)
    holder = folder if folder.exists else earlier  # a run needs nothing but its own folder
    known = holder.facts()
    recipe = stage_0.settled(recipe, known["inputs"])
    if not folder.exists and (changed := recipe.other_releases_than(earlier.recipe())):
        raise InvalidArgument(
            f"{', '.join(changed)} cannot be changed: data, rows, epsilon, [table], [prior] and [release] define what "
            f"{earlier.path} released; features, model, seed and [training] can."
        )
    learners.check_known(recipe.model)
    processes = learners.processes(recipe.model, fabric)
    once = partial(learners.once, processes)
    unlabelled = _load_public(recipe, data_dir, known)
    public = _read(recipe, unlabelled, holder, cache, watch, once)
    public.check_same(known["reads"])
    facts = _facts(recipe, unlabelled, public, data_dir, cache, processes) | {"command": command}
    data = learners.readable(recipe.model, public.data)
    multistage = stages_of(recipe, data, processes, _counted_clusters(recipe, holder))
    for learner in multistage.learner:  # type: ignore[union-attr]  # one per stage
        learner.check(data.X, len(data.classes))
    initial.begin(multistage.learner, recipe, data, data_dir=data_dir, cache=cache, watch=watch, once=once)  # type: ignore[arg-type]
    multistage.pupil = students.of(recipe, unlabelled, processes)
    facts = once(lambda: _begun_again(folder, recipe, public, earlier, facts, otherwise))
    once(lambda: tables.note_public_test(recipe, data_dir))
    first = processes.is_global_zero
    with folder.locked() if first else nullcontext():
        journal = _journal(folder, watch, None, facts) if first else None
        multistage.refit(
            data.X,
            folder.releases(),
            counts=folder.counts(),
            hold_out=folder.hold_out(),
            folder=folder.path,
            watch=journal,
            test=tested_on(data),
        )
        model = students.final(multistage, data, unlabelled, journal)
        if first:
            certificate = certificates.of_model(folder.certificate(), folder, facts)
            _finish(folder, multistage, model, certificate, watch)
    return folder


def stages_of(
    recipe: Recipe,
    data: datasets.Dataset,
    fabric: Fabric | OneProcess | None = None,
    clusters: Clusters | None = None,
) -> MultiStage:
    """Return the multi-stage training that a recipe describes; `clusters` are those of its [prior]."""
    if recipe.sums is not None:
        return ratings.SumStages(recipe, data, fabric)  # type: ignore[return-value]  # it has a MultiStage's face
    plan, how = recipe.release, recipe.training
    return MultiStage(
        learners.learners_of(recipe, data, fabric),
        stages=plan.stages,
        split=plan.split,
        mechanism=ratings.mechanism_of(recipe, data.classes),
        temperature=plan.temperature,
        warm_start=how.warm_start,
        filter=how.filter,
        clusters=None if clusters is None else stage_0.prior_of(recipe, clusters),
        learn_counts=how.learn_counts is not False,
        bag_rounds=how.bag_rounds or 0,
        hold_out=plan.hold_out,
        seed=recipe.seed,
    )


def _load(recipe: Recipe, data_dir: Path | None) -> datasets.Dataset:
    own_file = recipe.table is not None
    data = tables.load(recipe, data_dir) if own_file else datasets.load(recipe.data, data_dir=data_dir)
    if recipe.rows is not None:
        checks.integer(rows=recipe.rows, at_least=1, at_most=data.n_rows)
    return data


def _load_public(recipe: Recipe, data_dir: Path | None, known: Record) -> datasets.Dataset:
    """Return the data without its labels, which must be the data that an earlier run of these facts saw."""
    if recipe.table is None:
        return _load(recipe, data_dir).only_public()
    data = tables.load_features(recipe, data_dir, known)
    _check_same_features(recipe, known, tables.digest(data))
    return data


def _read(
    recipe: Recipe,
    data: datasets.Dataset,
    holder: RunFolder,
    cache: Path | None,
    watch: Watch | None,
    once: Once,
) -> Public:
    """Return public data as the recipe's model reads it, by the extractor in a run's folder, if that is of this recipe."""
    if recipe.features is not None:
        inputs.check_readable(recipe.model, data)
    return inputs.public(
        data,
        recipe.features,
        cache=cache,
        saved=holder.path if holder.exists else None,
        watch=watch,
        once=once,
    )


def _clusters(
    recipe: Recipe,
    data: datasets.Dataset,
    public: Public,
    used: NDArray[np.int64],
    folder: RunFolder,
    cache: Path | None,
    watch: Watch | None,
    once: Once,
) -> Clusters | None:
    """Return the clusters of a recipe's [prior]: those that are in the run's folder, once it has some."""
    if recipe.prior is None:
        return None
    if folder.exists and folder.clusters_file.exists():
        return folder.clusters()
    return stage_0.found(recipe, data, public, used, cache=cache, watch=watch, once=once)


def _counted_clusters(recipe: Recipe, holder: RunFolder) -> Clusters | None:
    """Return the clusters that a run has counted in."""
    counts = holder.counts()
    if recipe.prior is None or counts is None:
        return None
    clusters = holder.clusters()
    stage_0.check_counted(clusters, counts, holder.clusters_file)
    return clusters


def _trust(recipe: Recipe) -> str:
    """Return whom labels are entrusted to: only counts of clusters and sums aggregate them."""
    return "local" if recipe.prior is None and recipe.sums is None else "curator"


def _labelled(data: datasets.Dataset) -> NDArray[np.bool_]:
    """Return which rows have a label, where that is public."""
    if data.missing is None:
        return np.ones(data.n_rows, dtype=np.bool_)
    with data.vault(budget="1") as vault:  # in memory, and asked nothing
        return vault.labelled


def _begun(
    folder: RunFolder,
    recipe: Recipe,
    data: datasets.Dataset,
    public: Public,
    used: NDArray[np.int64],
    ledger: Path | None,
    data_dir: Path | None,
    new_facts: Record,
    otherwise: bool,
    watch: Watch | None,
) -> Record:
    """Return the facts of the run in the folder, which is made if it is new."""
    with tables.open_book(recipe, data_dir) as book:
        if book is not None:
            book.check(tables.columns_of(recipe, data))
        if folder.exists:
            return _gone_on(folder, recipe, data, public, ledger, new_facts, otherwise, book)
        if any(folder.path.glob("release-*")):
            raise InvalidArgument(
                f"{folder.path} holds releases of a run that is not there any more, whose charges a new certificate would not "
                "know: choose another folder."
            )
        if folder.clusters_file.exists():
            raise InvalidArgument(
                f"{folder.path} holds clusters of a run that is not there any more, and a new run counts in none but its own: "
                "choose another folder."
            )
        place = ledgers.charged(folder, recipe, data, book=book, given=ledger, watch=watch or nobody)
        if book is not None:
            book.check_ids(place, data.ids)
        with data.vault(ledger=place) as vault:
            left = vault.remaining(used)
            if not left >= Guarantee.of(recipe.epsilon, name="epsilon"):
                raise BudgetExhausted(
                    f"this run needs epsilon {recipe.epsilon} for every label, and {left} is left in {place}. "
                    + ledgers.advice(place)
                )
        if book is not None:
            book.note(tables.columns_of(recipe, data), place, data.ids)
        beside = book is not None and place == tables.ledger_beside(book)
        whose = {"own_ledger": place == folder.ledger_file.absolute(), "ledger_is_beside": beside}
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.keep_extractor(public)
        return folder.create(recipe, new_facts | {"ledger": str(place)} | whose)


def _gone_on(
    folder: RunFolder,
    recipe: Recipe,
    data: datasets.Dataset,
    public: Public,
    ledger: Path | None,
    new_facts: Record,
    otherwise: bool,
    book: Book | None,
) -> Record:
    """Return the facts of the run that is in the folder, whose ledger may have been moved with it or with its data."""
    facts = folder.facts()
    _check_same_features(recipe, facts, new_facts["features"])
    public.check_same(facts["reads"])
    place = Path(facts["ledger"])
    if facts["own_ledger"]:
        place = folder.ledger_file.absolute()
    elif facts["ledger_is_beside"] and book is not None:
        place = tables.ledger_beside(book)
    if ledger is not None and ledger.absolute() != place:
        raise InvalidArgument(f"the run in {folder.path} charges {place}: it cannot change its ledger.")
    if book is not None:
        book.ledger_for(place)
        book.check_ids(place, data.ids)
        book.note(tables.columns_of(recipe, data), place, data.ids)
    return _same_run(folder, recipe, public, new_facts, otherwise) | {"ledger": str(place)}


def _begun_again(
    folder: RunFolder,
    recipe: Recipe,
    public: Public,
    earlier: RunFolder,
    new_facts: Record,
    otherwise: bool,
) -> Record:
    if folder.exists:
        certificates.check(folder)
        return _same_run(folder, recipe, public, new_facts, otherwise)
    certificates.check(earlier)
    counts = earlier.counts()
    learners.check_readable(recipe, [*earlier.releases(), *([] if counts is None else [counts])])
    known = earlier.facts()
    facts = new_facts | {key: known[key] for key in ("ledger", "own_ledger", "ledger_is_beside")}
    facts["unprotected"] = list(dict.fromkeys(known["unprotected"] + new_facts["unprotected"]))
    certificate = earlier.certificate() | {"trained again": f"on the releases of {earlier.path}; nothing was asked"}
    certificate = certificates.of_model(certificate, earlier, facts)
    folder.path.mkdir(parents=True, exist_ok=True)
    write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")  # before what it speaks of
    copied = [earlier.clusters_file] if counts is not None else []
    for file in sorted(earlier.path.glob("release-*.json")):
        copied += [file.with_suffix(".npz"), file]
    for file in copied:
        shutil.copyfile(file, folder.path / file.name)
    folder.keep_extractor(public)
    return folder.create(recipe, facts | {"from": str(earlier.path)})


def _same_run(folder: RunFolder, recipe: Recipe, public: Public, new_facts: Record, otherwise: bool) -> Record:
    """Return the facts of the run that is there, which must be of this recipe, or may be trained otherwise."""
    if folder.recipe() != recipe and not otherwise:
        raise InvalidArgument(f"{folder.path} holds a run of another recipe: choose another folder.")
    return folder.go_on(recipe, public, unprotected=new_facts["unprotected"])


def _check_same_features(recipe: Recipe, known: Record, features: str | None) -> None:
    if known["features"] != features:
        raise InvalidArgument(
            f"the features of {recipe.data} are not those of the rows whose labels this run asked: cells, rows or their order "
            "have changed. Go on with the file as it was."
        )


def _facts(
    recipe: Recipe,
    data: datasets.Dataset,
    public: Public,
    data_dir: Path | None,
    cache: Path | None,
    processes: Fabric | OneProcess,
) -> Record:
    own_file = recipe.table is not None
    return {
        "version": labeldp.__version__,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "threads": learners.threads(recipe.model),
        "processes": processes.world_size,
        "data_dir": os.path.abspath(data_dir or "") if own_file or data_dir is not None else None,
        "cache": None if cache is None else os.path.abspath(cache),
        "inputs": data.inputs,
        "reads": public.facts,
        "classes": list(data.classes),
        "features": tables.digest(data) if own_file else None,
        "unprotected": _tests(recipe, data) + initial.read_by(recipe),
    }


def _tests(recipe: Recipe, data: datasets.Dataset) -> list[str]:
    """Name what models are tested on, whose labels are read as they are."""
    if data.public_test is None:
        return []
    named = f"the test split of {data.name} ({data.public_test})"
    return [named if recipe.table is None else os.path.abspath(data.public_test)]


def _journal(folder: RunFolder, watch: Watch | None, vault: LabelVault | None, facts: Record) -> Watch:
    """Return what notes every record in the folder, and certifies every answer before its release is stored there."""

    def note(record: Record) -> None:
        if record["kind"] == "answer":
            assert vault is not None
            certificate = certificates.of_run(folder, vault, facts, [record["entry"]])
            write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
            return
        folder.note(record)
        if watch is not None:
            watch(record)

    return note


def _finish(
    folder: RunFolder, multistage: MultiStage, model: FinalModel, certificate: Record, watch: Watch | None
) -> None:
    write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
    model.save(folder)
    if multistage.hold_out_ is not None:
        found = held_out(multistage.hold_out_, model.predict_proba(multistage.hold_out_.rows))
        folder.note(found)
        (watch or nobody)(found)
    timed = ("epoch", "sums")
    seconds = sum(record.get("seconds", 0.0) for record in folder.records() if record["kind"] in timed)
    folder.note({"kind": "done", "seconds": seconds, "threads": learners.threads(folder.recipe().model)})
    try:
        from labeldp import report

        facts = folder.facts()
        report.write_run(folder.path, classes=[str(name) for name in facts["classes"]], command=facts.get("command"))
    except MissingExtra:
        pass  # the run is whole without its picture; `labeldp[report]` draws it
