"""What `labeldp train` does: from a recipe to a folder with a model, a certificate and a report."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

import labeldp
from labeldp import checks, datasets
from labeldp.budget import Guarantee, Ledger, create_ledger
from labeldp.errors import BudgetExhausted, InvalidArgument, MissingExtra
from labeldp.learning import Learner, MultiStage
from labeldp.runs.folder import Record, RunFolder, folder_named, write_whole
from labeldp.runs.recipe import Recipe
from labeldp.torch import Augmentation, TorchLearner, models
from labeldp.torch.losses import TrainingSet
from labeldp.torch.processes import on_first_process
from labeldp.vault import LabelVault, Release

Watch = Callable[[Record], None]

OWN_LEDGER = (
    "in the run folder, because the data goes by the name of a public benchmark: it covers this run alone. Labels that are not "
    "public need a ledger of their owner's"
)


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
    Every label is charged at most the recipe's epsilon, to `ledger`, or to a new one in the run folder. A stage whose release
    is in the folder is read back; only the first process holds labels. `command`, for the report, is public.
    With `otherwise` a run that is there may get another model or [training]: it is trained anew on what it released.
    """
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    folder = RunFolder(out)
    data = _load(recipe, data_dir, sealed=fabric.is_global_zero)
    multistage = stages_of(recipe, data, fabric)
    used = _used(recipe, data)
    multistage.check(data.X, np.ones(data.n_rows, dtype=np.bool_), len(data.classes), recipe.epsilon, rows=used)
    facts = _facts(data, data_dir, fabric) | {"command": command}
    facts = on_first_process(fabric, lambda: _begun(folder, recipe, data, ledger, facts, otherwise))
    with folder.locked() if fabric.is_global_zero else nullcontext():
        vault = data.vault(ledger=facts["ledger"]) if fabric.is_global_zero else None
        data = data.only_public()
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
            _finish(folder, multistage, vault.certificate() | _ledger_words(facts))
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
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    folder, earlier = RunFolder(out), RunFolder(source)
    if not folder.exists and (changed := recipe.other_releases_than(earlier.recipe())):
        raise InvalidArgument(
            f"{', '.join(changed)} cannot be changed: data, rows, epsilon and [release] define what {earlier.path} released; "
            "model, seed and [training] can."
        )
    data = _load(recipe, data_dir, sealed=False)
    multistage = stages_of(recipe, data, fabric)
    facts = _facts(data, data_dir, fabric) | {"command": command}
    for learner in multistage.learner:  # type: ignore[union-attr]  # one per stage
        learner.check(data.X, len(data.classes))
    facts = on_first_process(fabric, lambda: _begun_again(folder, recipe, earlier, facts, otherwise))
    first = fabric.is_global_zero
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
            _finish(folder, multistage, folder.certificate())
    return folder


def stages_of(recipe: Recipe, data: datasets.Dataset, fabric: Fabric | None = None) -> MultiStage:
    """Return the multi-stage training that a recipe describes."""
    plan, how = recipe.release, recipe.training
    learners = [
        TorchLearner(
            models.build(recipe.model, data.inputs, len(data.classes), seed=recipe.seed),
            loss=how.loss,
            epochs=how.epochs,
            batch_size=how.batch_size,
            learning_rate=how.learning_rate,
            optimizer=how.optimizer,
            momentum=how.momentum,
            weight_decay=how.weight_decay,
            schedule=how.schedule,
            mixup=recipe.mixup(stage),
            augmentation=Augmentation(crop=how.crop, flip=how.flip, cutout=how.cutout),
            averaging=how.averaging,
            seed=recipe.seed + stage,
            fabric=fabric,
        )
        for stage in range(plan.stages)
    ]
    return MultiStage(
        learners,
        stages=plan.stages,
        split=plan.split,
        mechanism=recipe.mechanism,
        temperature=plan.temperature,
        warm_start=how.warm_start,
        filter=how.filter,
        hold_out=plan.hold_out,
        seed=recipe.seed,
    )


def tested_on(data: datasets.Dataset) -> Callable[[Learner], Record]:
    """Return how a model does on the benchmark's public test split: accuracy, or the error of the expected rating."""

    def test(model: Learner) -> Record:
        predicted, truth = model.predict_proba(data.X_test), data.test_labels
        if data.inputs["kind"] == "ids":
            values = np.array(data.classes, dtype=np.float64)
            error = models.expected_value(predicted, values) - values[truth]
            return {"rows": len(truth), "rmse": float(np.sqrt(np.mean(error**2)))}
        confusion = np.zeros((len(data.classes),) * 2, dtype=np.int64)
        np.add.at(confusion, (truth, predicted.argmax(axis=1)), 1)
        return {
            "rows": len(truth),
            "accuracy": float(np.trace(confusion) / len(truth)),
            "confusion": confusion.tolist(),
        }

    return test


def _load(recipe: Recipe, data_dir: Path | None, *, sealed: bool) -> datasets.Dataset:
    checks.one_of(models.names(), model=recipe.model)
    data = datasets.load(recipe.data, data_dir=data_dir)
    if recipe.rows is not None:
        checks.integer(rows=recipe.rows, at_least=1, at_most=data.n_rows)
    return data if sealed else data.only_public()


def _used(recipe: Recipe, data: datasets.Dataset) -> NDArray[np.int64]:
    """Return the rows that a recipe uses: the first so many of a dataset whose ledger knows them all."""
    return np.arange(data.n_rows if recipe.rows is None else recipe.rows)


def _begun(
    folder: RunFolder,
    recipe: Recipe,
    data: datasets.Dataset,
    ledger: Path | None,
    new_facts: Record,
    otherwise: bool,
) -> Record:
    """Return the facts of the run in the folder, which is made if it is new."""
    if folder.exists:
        facts = _same_run(folder, recipe, otherwise)
        if facts["own_ledger"]:
            facts["ledger"] = str(folder.ledger_file.absolute())  # wherever the folder has been moved to
        if ledger is not None and ledger.absolute() != Path(facts["ledger"]):
            raise InvalidArgument(f"the run in {folder.path} charges {facts['ledger']}: it cannot change its ledger.")
        return facts
    if any(folder.path.glob("release-*")):
        raise InvalidArgument(
            f"{folder.path} holds releases of a run that is not there any more, whose charges a new certificate would not "
            "know: choose another folder."
        )
    if ledger is None:
        folder.path.mkdir(parents=True, exist_ok=True)
        if not folder.ledger_file.exists():  # a run may have been killed between its ledger and its run.json
            create_ledger(folder.ledger_file, budget=recipe.epsilon, n_rows=data.n_rows)
    elif not ledger.exists():
        raise InvalidArgument(
            f"there is no ledger at {ledger}. Its owner makes it once: "
            f"labeldp vault create --ledger {ledger} --budget {recipe.epsilon} --rows {data.n_rows}"
        )
    place = (folder.ledger_file if ledger is None else ledger).absolute()
    with data.vault(ledger=place) as vault:
        left = vault.remaining(_used(recipe, data))
        if not left >= Guarantee.of(recipe.epsilon, name="epsilon"):
            raise BudgetExhausted(
                f"this run needs epsilon {recipe.epsilon} for every label, and {left} is left in {place}. "
                + from_advice(place)
            )
    return folder.create(recipe, new_facts | {"ledger": str(place), "own_ledger": ledger is None})


def _begun_again(
    folder: RunFolder,
    recipe: Recipe,
    earlier: RunFolder,
    new_facts: Record,
    otherwise: bool,
) -> Record:
    if folder.exists:
        held = folder.hold_out()
        _check_certified(folder, [*folder.releases(), *([] if held is None else [held])])
        return _same_run(folder, recipe, otherwise)
    releases, hold_out = earlier.releases(), earlier.hold_out()  # all there, and whole
    _check_certified(earlier, [*releases, *([] if hold_out is None else [hold_out])])
    TrainingSet.of(releases, recipe.training.loss)  # raises where the loss cannot read them
    folder.path.mkdir(parents=True, exist_ok=True)
    for file in sorted(earlier.path.glob("release-*.npz")):
        for copied in (file, file.with_suffix(".json")):
            shutil.copyfile(copied, folder.path / copied.name)
    certificate = earlier.certificate() | {"trained again": f"on the releases of {earlier.path}; nothing was asked"}
    write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
    ledger = {key: earlier.facts()[key] for key in ("ledger", "own_ledger")}
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


def _facts(data: datasets.Dataset, data_dir: Path | None, fabric: Fabric) -> Record:
    return {
        "version": labeldp.__version__,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "threads": torch.get_num_threads(),
        "processes": fabric.world_size,
        "data_dir": None if data_dir is None else os.path.abspath(data_dir),
        "inputs": data.inputs,
        "classes": list(data.classes),
    }


def _ledger_words(facts: Record) -> Record:
    return {"ledger file": facts["ledger"], "ledger place": OWN_LEDGER if facts["own_ledger"] else "given by its owner"}


def _journal(folder: RunFolder, watch: Watch | None, vault: LabelVault | None, facts: Record) -> Watch:
    """Return what notes every record in the folder, with a fresh certificate as soon as something was released."""

    def note(record: Record) -> None:
        folder.note(record)
        if record["kind"] == "stage" and vault is not None:
            certificate = vault.certificate() | _ledger_words(facts)
            write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
        if watch is not None:
            watch(record)

    return note


def _finish(folder: RunFolder, multistage: MultiStage, certificate: Record) -> None:
    write_whole(folder.certificate_file, json.dumps(certificate, indent=1) + "\n")
    multistage.model_.save(folder.model_file)
    seconds = sum(record.get("seconds", 0.0) for record in folder.records() if record["kind"] == "epoch")
    folder.note({"kind": "done", "seconds": seconds, "threads": torch.get_num_threads()})
    try:
        from labeldp import report

        facts = folder.facts()
        report.write_run(folder.path, classes=[str(name) for name in facts["classes"]], command=facts.get("command"))
    except MissingExtra:
        pass  # the run is whole without its picture; `labeldp[report]` draws it


def from_advice(ledger: Path) -> str:
    """Name the run that spent a ledger's labels, whose releases can be trained on again; or the ledger's owner."""
    names = [entry.body["request"]["name"] for entry in Ledger(ledger).entries() if entry.body["kind"] == "charge"]
    runs = [folder for name in names if (folder := folder_named(name)) is not None]
    if not names:
        return "Nothing was released yet: ask for less, or ask the label owner to raise this ledger's limit."
    where = shlex.quote(_from_here(runs[-1])) if runs else "RUN"
    return f"To train again on what was already released, at no cost: labeldp train --from {where} --out NEW"


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
