"""What `labeldp train` does: from a recipe to a folder with a model, a certificate and a report."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import labeldp
from labeldp import checks, datasets
from labeldp.budget import Guarantee
from labeldp.errors import BudgetExhausted, InvalidArgument, MissingExtra
from labeldp.learning import MultiStage
from labeldp.runs import learners, ledgers, tables
from labeldp.runs.folder import Record, RunFolder, Watch, write_whole
from labeldp.runs.grades import held_out, tested_on
from labeldp.runs.learners import OneProcess
from labeldp.runs.recipe import Recipe
from labeldp.vault import LabelVault, Release

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PUBLIC_LABELS = "its labels are public: they were read as they are, to test models on, and nothing protects them"


def train(
    recipe: Recipe,
    out: Path,
    *,
    ledger: Path | None = None,
    data_dir: Path | None = None,
    watch: Watch | None = None,
    fabric: Fabric | None = None,
    command: str | None = None,
    otherwise: bool = False,
) -> RunFolder:
    """Run a recipe in a folder, or go on with the run that is there.

    Privacy
    -------
    Every label is charged at most the recipe's epsilon: to `ledger`; else, of a file of one's own, to the ledger beside it,
    which is made if there is none; else to a new one in the run folder. A stage whose release is in the folder is read back;
    only the first process holds labels. `command`, for the report, is public.
    With `otherwise` a run that is there may get another model or [training]: it is trained anew on what it released.
    """
    learners.check_known(recipe.model)
    processes = learners.processes(recipe.model, fabric)
    first, folder = processes.is_global_zero, RunFolder(out)
    sealed = _load(recipe, data_dir)
    sealed = sealed if first else sealed.only_public()
    data = learners.readable(recipe.model, sealed.only_public())
    multistage = stages_of(recipe, data, processes)
    labelled = _labelled(sealed)
    used = _used(recipe, labelled)
    multistage.check(data.X, labelled, len(data.classes), recipe.epsilon, rows=used)
    facts = _facts(recipe, sealed, data_dir, processes) | {"command": command}
    facts = learners.once(processes, lambda: _begun(folder, recipe, sealed, used, ledger, facts, otherwise, watch))
    with folder.locked() if first else nullcontext():
        vault = sealed.vault(ledger=facts["ledger"]) if first else None
        sealed = sealed.only_public()
        multistage.fit(
            data.X,
            vault,  # type: ignore[arg-type]  # None on other processes, which never ask
            recipe.epsilon,
            rows=used,
            name=facts["name"],
            folder=folder.path,
            watch=_journal(folder, watch, vault, facts) if vault is not None else None,
            test=tested_on(data),
        )
        if vault is not None:
            _finish(folder, multistage, data, vault.certificate() | _around(facts), watch)
            vault.close()
    return folder


def train_again(
    recipe: Recipe,
    source: Path,
    out: Path,
    *,
    data_dir: Path | None = None,
    watch: Watch | None = None,
    fabric: Fabric | None = None,
    command: str | None = None,
    otherwise: bool = False,
) -> RunFolder:
    """Train on the releases of an earlier run. Free: no vault is opened, and nothing is asked."""
    folder, earlier = RunFolder(out), RunFolder(source)
    if not folder.exists and (changed := recipe.other_releases_than(earlier.recipe())):
        raise InvalidArgument(
            f"{', '.join(changed)} cannot be changed: data, rows, epsilon, [table] and [release] define what {earlier.path} "
            "released; model, seed and [training] can."
        )
    learners.check_known(recipe.model)
    processes = learners.processes(recipe.model, fabric)
    known = (folder if folder.exists else earlier).facts()  # a run needs nothing but its own folder
    public = _load_public(recipe, data_dir, known)
    facts = _facts(recipe, public, data_dir, processes) | {"command": command}
    data = learners.readable(recipe.model, public)
    multistage = stages_of(recipe, data, processes)
    for learner in multistage.learner:  # type: ignore[union-attr]  # one per stage
        learner.check(data.X, len(data.classes))
    facts = learners.once(processes, lambda: _begun_again(folder, recipe, earlier, facts, otherwise))
    first = processes.is_global_zero
    with folder.locked() if first else nullcontext():
        multistage.refit(
            data.X,
            folder.releases(),
            hold_out=folder.hold_out(),
            folder=folder.path,
            watch=_journal(folder, watch, None, facts) if first else None,
            test=tested_on(data),
        )
        if first:
            _finish(folder, multistage, data, _without_test(folder.certificate()) | _unprotected(facts), watch)
    return folder


def stages_of(recipe: Recipe, data: datasets.Dataset, fabric: Fabric | OneProcess | None = None) -> MultiStage:
    """Return the multi-stage training that a recipe describes."""
    plan, how = recipe.release, recipe.training
    return MultiStage(
        learners.learners_of(recipe, data, fabric),
        stages=plan.stages,
        split=plan.split,
        mechanism=recipe.mechanism,
        temperature=plan.temperature,
        warm_start=how.warm_start,
        filter=how.filter,
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


def _labelled(data: datasets.Dataset) -> NDArray[np.bool_]:
    """Return which rows have a label, where that is public."""
    if data.missing is None:
        return np.ones(data.n_rows, dtype=np.bool_)
    with data.vault(budget="1") as vault:  # in memory, and asked nothing
        return vault.labelled


def _used(recipe: Recipe, labelled: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the rows that a recipe uses: the first so many of a dataset whose ledger knows them all."""
    return np.flatnonzero(labelled[: recipe.rows])


def _begun(
    folder: RunFolder,
    recipe: Recipe,
    data: datasets.Dataset,
    used: NDArray[np.int64],
    ledger: Path | None,
    new_facts: Record,
    otherwise: bool,
    watch: Watch | None,
) -> Record:
    """Return the facts of the run in the folder, which is made if it is new."""
    beside = new_facts.pop("ledger_beside")
    if folder.exists:
        _check_same_features(recipe, folder.facts(), new_facts["features"])
        facts = _same_run(folder, recipe, otherwise) | {"unprotected": new_facts["unprotected"]}
        if facts["own_ledger"]:
            facts["ledger"] = str(folder.ledger_file.absolute())  # wherever the folder has been moved to
        elif facts["ledger_is_beside"]:
            facts["ledger"] = str(beside)  # wherever the data has been moved to
        if ledger is not None and ledger.absolute() != Path(facts["ledger"]):
            raise InvalidArgument(f"the run in {folder.path} charges {facts['ledger']}: it cannot change its ledger.")
        return facts
    if any(folder.path.glob("release-*")):
        raise InvalidArgument(
            f"{folder.path} holds releases of a run that is not there any more, whose charges a new certificate would not "
            "know: choose another folder."
        )
    place = ledgers.charged(folder, recipe, data, beside=beside, given=ledger, watch=watch or _nobody)
    with data.vault(ledger=place) as vault:
        left = vault.remaining(used)
        if not left >= Guarantee.of(recipe.epsilon, name="epsilon"):
            raise BudgetExhausted(
                f"this run needs epsilon {recipe.epsilon} for every label, and {left} is left in {place}. "
                + ledgers.advice(place)
            )
    whose = {"own_ledger": place == folder.ledger_file.absolute(), "ledger_is_beside": place == beside}
    return folder.create(recipe, new_facts | {"ledger": str(place)} | whose)


def _begun_again(
    folder: RunFolder,
    recipe: Recipe,
    earlier: RunFolder,
    new_facts: Record,
    otherwise: bool,
) -> Record:
    new_facts.pop("ledger_beside")
    if folder.exists:
        held = folder.hold_out()
        _check_certified(folder, [*folder.releases(), *([] if held is None else [held])])
        return _same_run(folder, recipe, otherwise) | {"unprotected": new_facts["unprotected"]}
    releases, hold_out = earlier.releases(), earlier.hold_out()  # all there, and whole
    _check_certified(earlier, [*releases, *([] if hold_out is None else [hold_out])])
    learners.check_readable(recipe, releases)
    folder.path.mkdir(parents=True, exist_ok=True)
    for file in sorted(earlier.path.glob("release-*.npz")):
        for copied in (file, file.with_suffix(".json")):
            shutil.copyfile(copied, folder.path / copied.name)
    certificate = earlier.certificate() | {"trained again": f"on the releases of {earlier.path}; nothing was asked"}
    write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
    ledger = {key: earlier.facts()[key] for key in ("ledger", "own_ledger", "ledger_is_beside")}
    return folder.create(recipe, new_facts | ledger | {"from": str(earlier.path)})


def _check_certified(folder: RunFolder, releases: list[Release]) -> None:
    """Raise unless a folder's certificate speaks of these very releases."""
    certificate = folder.certificate()
    known = {(certificate["ledger"]["id"], query["entry"], query["private"]) for query in certificate["queries"]}
    told = {(each.receipt.ledger["id"], each.receipt.ledger["entry"], each.private) for each in releases}
    if not known >= told:
        raise InvalidArgument(
            f"{folder.path} holds a release that its certificate does not know: it was stopped before that was certified "
            "(resume that run first), or the file is of another run."
        )


def _same_run(folder: RunFolder, recipe: Recipe, otherwise: bool) -> Record:
    """Return the facts of the run that is there, which must be of this recipe, or may be trained otherwise."""
    if folder.recipe() != recipe and otherwise:
        folder.train_otherwise(recipe)
    elif folder.recipe() != recipe:
        raise InvalidArgument(f"{folder.path} holds a run of another recipe: choose another folder.")
    return folder.facts()


def _check_same_features(recipe: Recipe, known: Record, features: str | None) -> None:
    if known["features"] != features:
        raise InvalidArgument(
            f"the features of {recipe.data} are not those of the rows whose labels this run asked: cells, rows or their order "
            "have changed. Go on with the file as it was."
        )


def _facts(recipe: Recipe, data: datasets.Dataset, data_dir: Path | None, processes: Fabric | OneProcess) -> Record:
    own_file = recipe.table is not None
    return {
        "version": labeldp.__version__,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "threads": learners.threads(recipe.model),
        "processes": processes.world_size,
        "data_dir": os.path.abspath(data_dir or "") if own_file or data_dir is not None else None,
        "inputs": data.inputs,
        "classes": list(data.classes),
        "features": tables.digest(data) if own_file else None,
        "unprotected": os.path.abspath(data.public_test) if own_file and data.public_test is not None else None,
        "ledger_beside": tables.ledger_beside(recipe, data_dir) if own_file else None,
    }


def _around(facts: Record) -> Record:
    """Return what a certificate should say of things that its ledger does not know."""
    return {"ledger file": facts["ledger"], "ledger place": ledgers.in_words(facts)} | _unprotected(facts)


def _unprotected(facts: Record) -> Record:
    file = facts["unprotected"]
    return {} if file is None else {"unprotected": {file: PUBLIC_LABELS}}


def _without_test(certificate: Record) -> Record:
    """Return a certificate of the same releases for a model that may be tested on something else."""
    return {key: value for key, value in certificate.items() if key != "unprotected"}


def _nobody(record: Record) -> None:
    """Nobody watches."""


def _journal(folder: RunFolder, watch: Watch | None, vault: LabelVault | None, facts: Record) -> Watch:
    """Return what notes every record in the folder, with a fresh certificate as soon as something was released."""

    def note(record: Record) -> None:
        folder.note(record)
        if record["kind"] == "stage" and vault is not None:
            certificate = vault.certificate() | _around(facts)
            write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
        if watch is not None:
            watch(record)

    return note


def _finish(
    folder: RunFolder, multistage: MultiStage, data: datasets.Dataset, certificate: Record, watch: Watch | None
) -> None:
    write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
    multistage.model_.save(folder.model_file)
    if multistage.hold_out_ is not None:
        found = held_out(multistage.hold_out_, multistage.model_, data.X)
        folder.note(found)
        (watch or _nobody)(found)
    seconds = sum(record.get("seconds", 0.0) for record in folder.records() if record["kind"] == "epoch")
    folder.note({"kind": "done", "seconds": seconds, "threads": learners.threads(folder.recipe().model)})
    try:
        from labeldp import report

        facts = folder.facts()
        report.write_run(folder.path, classes=[str(name) for name in facts["classes"]], command=facts.get("command"))
    except MissingExtra:
        pass  # the run is whole without its picture; `labeldp[report]` draws it
