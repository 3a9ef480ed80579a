"""`labeldp train`: from public features and sealed labels to a model, a certificate and a report."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from labeldp.budget.epsilon import Epsilon
from labeldp.cli.options import EpsilonText, json_option, print_json
from labeldp.cli.progress import TrainingProgress
from labeldp.errors import BudgetExhausted, InvalidArgument, LabelDPError, MissingExtra

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from labeldp.runs import Recipe, RunFolder


@click.command()
@click.option(
    "--recipe", "recipe_file", type=click.Path(path_type=Path), help="A recipe in TOML; other options override it."
)
@click.option("--data", help="A dataset: digits, mnist, fashion-mnist, kmnist, cifar-10, cifar-100, movielens-1m, ..")
@click.option("--model", help="A model: small-conv, tiny-conv, inception-small, resnet18-v2, ncf, mlp, linear, ..")
@click.option("--epsilon", type=EpsilonText(), help="What each label may spend.")
@click.option("--stages", type=int, help="How many stages; 1 asks every label at once.")
@click.option("--mechanism", help="RandomizedResponse, RRWithPrior (the paper's) or GroupedResponse (the default).")
@click.option("--loss", help="likelihood (the default), noisy-label (the paper's) or debiased.")
@click.option("--epochs", type=int, help="How many epochs each stage is trained for.")
@click.option("--hold-out", type=float, help="The share of the rows that is only used to grade models, noisily.")
@click.option("--rows", type=int, help="Use only the first so many rows, for a quick try.")
@click.option("--seed", type=int, help="Of the training; no seed reaches privacy noise.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other value of the recipe: training.mixup=4.0"
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The run's folder.")
@click.option(
    "--ledger", type=click.Path(path_type=Path), help="Charge this ledger; by default a new one in the folder."
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the run in --out; a changed model or training.* trains anew on what it released.",
)
@click.option("--from", "source", type=click.Path(path_type=Path), help="Train again on this run's releases, free.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets' files are.")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads torch may use.")
@click.option("--accelerator", default="cpu", show_default=True, help="cpu, cuda or auto. Only cpu has been tried.")
@click.option("--devices", type=click.IntRange(min=1), help="How many processes; 1 by default.")
@json_option
def train(
    recipe_file: Path | None,
    out: Path,
    ledger: Path | None,
    resume: bool,
    source: Path | None,
    data_dir: Path | None,
    threads: int | None,
    accelerator: str,
    devices: int | None,
    as_json: bool,
    settings: tuple[str, ...],
    **options: Any,
) -> None:
    """Train a model with label differential privacy.

    \b
    labeldp train --data fashion-mnist --model small-conv --epsilon 2 --stages 2 --out runs/fm-e2
    labeldp train --recipe recipes/fashion-mnist-paper.toml --out runs/paper
    labeldp train --resume --out runs/fm-e2
    labeldp train --from runs/fm-e2 --model mlp --out runs/again
    """
    with _needs_torch():
        import torch

        from labeldp.runs import Recipe, RunFolder, training
        from labeldp.runs.recipe import with_keys
    folder = RunFolder(out)
    changes = _changes(options, settings)
    if resume:
        if recipe_file or source or ledger:
            raise click.UsageError("--resume goes on with the recipe, releases and ledger of --out: give none of them.")
        facts = folder.facts()
        with _usage():
            recipe, source = folder.recipe().changed(changes), Path(facts["from"]) if "from" in facts else None
        threads = threads or facts["threads"]
        devices = devices or facts["processes"]
        data_dir = data_dir or _path(facts["data_dir"])
    else:
        if source and ledger:
            raise click.UsageError("--from asks nothing and charges no ledger: leave --ledger out.")
        if folder.exists and not _is_worker(devices or 1):
            raise BudgetExhausted(
                f"{out} holds a run already. To go on with it: {_resume(out)}. To train again on what it released, at no cost: "
                f"labeldp train --from {shlex.quote(str(out))} --out NEW"
            )
        base = Recipe.read(recipe_file) if recipe_file else RunFolder(source).recipe() if source else None
        with _usage():
            recipe = base.changed(changes) if base else Recipe.of(with_keys({}, changes), source="the command line")
        data_dir = data_dir or (_path(RunFolder(source).facts()["data_dir"]) if source else None)
    fabric = _launched(accelerator, devices or 1)
    if threads is not None:
        torch.set_num_threads(threads)  # after Fabric has set its own number
    numbers = range(1, recipe.release.stages + 1)
    earlier = {n for n in numbers if source is not None or (out / f"release-{n}.json").exists()}
    progress = TrainingProgress(recipe, released_earlier=earlier) if fabric.is_global_zero else None
    how: Any = {
        "data_dir": data_dir,
        "watch": progress,
        "fabric": fabric,
        "command": shlex.join(["labeldp", *sys.argv[1:]]),
        "otherwise": resume,
    }
    with _one_voice(fabric), _resumable(folder), progress or contextlib.nullcontext():
        if source is not None:
            training.train_again(recipe, source, out, **how)
        else:
            training.train(recipe, out, ledger=ledger, **how)
    if fabric.is_global_zero:
        _tell(recipe, folder, as_json)


def _changes(options: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """Return what the command line says, under the recipe's keys."""
    tables = {
        "stages": "release",
        "mechanism": "release",
        "hold_out": "release",
        "loss": "training",
        "epochs": "training",
    }
    changes = {
        f"{tables[name]}.{name}" if name in tables else name: str(value) if isinstance(value, Epsilon) else value
        for name, value in options.items()
        if value is not None
    }
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set must be KEY=VALUE, such as training.mixup=4.0; got {setting!r}.")
        try:
            changes[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = text.strip()
    return changes


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _resume(out: Path) -> str:
    return f"labeldp train --resume --out {shlex.quote(str(out))}"


def _launched(accelerator: str, devices: int) -> Fabric:
    from lightning_fabric import Fabric

    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, strategy="ddp" if devices > 1 else "auto")
    except (ValueError, RuntimeError) as error:  # no labels are held yet: what it says is public
        raise InvalidArgument(f"--accelerator {accelerator} with {devices} devices cannot be used: {error}") from None
    log = logging.getLogger("lightning_fabric")
    level = log.level
    log.setLevel(logging.WARNING)  # it would introduce every process
    fabric.launch()
    log.setLevel(level)
    return fabric


def _is_worker(devices: int) -> bool:
    """Tell whether Fabric started this process beside the first one; with one device it starts none, in any cluster."""
    return devices > 1 and int(os.environ.get("LOCAL_RANK", "0")) > 0


@contextlib.contextmanager
def _one_voice(fabric: Fabric) -> Iterator[None]:
    """Let the first process alone say what went wrong on all of them, and end with its own exit code."""
    try:
        yield
    except (LabelDPError, click.ClickException):
        if not fabric.is_global_zero:
            sys.exit(0)  # at another code Fabric would kill the first process, perhaps before it has spoken
        raise


@contextlib.contextmanager
def _resumable(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise click.ClickException(
            f"Stopped. Nothing is lost: {_resume(folder.path)} goes on from the last epoch's end."
            if folder.exists
            else "Stopped before anything was asked. Run the same command again to start."
        ) from None


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """What is wrong with a recipe here is what the command line says."""
    try:
        yield
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


@contextlib.contextmanager
def _needs_torch() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise MissingExtra("Training needs torch: pip install 'labeldp[torch]'.") from None


def _tell(recipe: Recipe, folder: RunFolder, as_json: bool) -> None:
    tests = [record for record in folder.records() if record["kind"] == "test"]
    certificate = folder.certificate()
    figures = {key: value for key, value in tests[-1].items() if key in ("accuracy", "rmse", "rows")} if tests else {}
    if as_json:
        facts = {
            "run": str(folder.path),
            "epsilon": recipe.epsilon,
            "guarantee": certificate["guarantee"],
            "test": figures,
        }
        print_json(facts)
        return
    if "accuracy" in figures:
        _say(f"{figures['accuracy']:.2%} right on {figures['rows']:,} rows of public test data.")
    elif "rmse" in figures:
        _say(f"RMSE {figures['rmse']:.4f} on {figures['rows']:,} rows of public test data.")
    _say(certificate["guarantee"])
    if "from" in folder.facts():
        _say(f"It was trained on what {folder.facts()['from']} released: nothing was asked, nothing was charged.")
    _say(f"Model, certificate and releases: {folder.path}")
    if folder.report_file.exists():
        _say(f"Report: {folder.report_file}")
    else:
        _say("No report was drawn: pip install 'labeldp[report]'.")


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
