"""`labeldp train`: from public features and sealed labels to a model, a certificate and a report."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from labeldp.budget.epsilon import Epsilon
from labeldp.cli.options import (
    ClassList,
    EpsilonText,
    Stopped,
    cache_option,
    features_words,
    json_option,
    print_json,
    usage,
)
from labeldp.cli.progress import TrainingProgress
from labeldp.errors import InvalidArgument, LabelDPError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from labeldp.runs import Recipe, RunFolder
    from labeldp.runs.learners import OneProcess

TABLES = {
    "label": "table",
    "classes": "table",
    "id": "table",
    "drop": "table",
    "missing": "table",
    "public_test": "table",
    "stages": "release",
    "mechanism": "release",
    "hold_out": "release",
    "loss": "training",
    "epochs": "training",
}
"""Where in a recipe an option stands."""
TELLS_NOTHING = 0.5
"""An interval of an accuracy that is wider says next to nothing of it."""


class TrainCommand(click.Command):
    """Takes one epsilon, and says what to type where a run is to be resumed and --out does not name it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            self._check_said_once(ctx, words)
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            options, others, _ = self.make_parser(ctx).parse_args(words)
            if not options.get("resume"):
                raise
            out = Path(others[0] if others else "RUN")
            raise click.UsageError(f"--resume goes on with the run that --out names: {_resume(out)}", ctx) from None

    def _check_said_once(self, ctx: click.Context, args: list[str]) -> None:
        """Raise where two epsilons are given: of other options the last one counts, but this one is charged."""
        given = [option.name for option in self.make_parser(ctx).parse_args(list(args))[2]]
        if given.count("epsilon") > 1:
            raise click.UsageError("--epsilon is said twice: say it once.", ctx)


@click.command(cls=TrainCommand)
@click.option(
    "--recipe", "recipe_file", type=click.Path(path_type=Path), help="A recipe in TOML; other options override it."
)
@click.option(
    "--data",
    help="A table of your own, .csv or .parquet; or a dataset: digits, mnist, fashion-mnist, cifar-10, fair, ..",
)
@click.option("--label", help="Of a table: the column of true labels.")
@click.option("--classes", type=ClassList(), help="Of a table: all that its labels may be, a count or a list of names.")
@click.option("--id", help="Of a table: a column of unique public ids, by which its ledger knows rows.")
@click.option(
    "--drop", multiple=True, help="Of a table: a column to leave out, as one that tells the label; repeatable."
)
@click.option(
    "--missing",
    type=click.Choice(["public"]),
    help="Of a table: public if it is no secret which labels are missing.",
)
@click.option(
    "--public-test",
    type=click.Path(),
    help="Of a table: a file of other rows whose true labels are public: nothing protects them.",
)
@click.option(
    "--model",
    help="Of tables: boosting, logistic, forest; of images also small-conv, tiny-conv, resnet18-v2, mlp, linear, ..; ncf.",
)
@click.option(
    "--features",
    metavar="SPEC",
    help=f"The model reads these features of the inputs instead: {features_words}, 'patches + simclr:..' joined, or your own, "
    "arrays:TRAIN.npy,TEST.npy.",
)
@click.option("--epsilon", type=EpsilonText(), help="What each label may spend.")
@click.option(
    "--prior",
    metavar="clusters[:KEY=VALUE,..]",
    help="A trusted label holder first counts the classes in public clusters, with noise, for epsilon=PART of epsilon, by "
    "default all of it. Keys: epsilon, count, features, components.",
)
@click.option("--stages", type=int, help="How many stages; 1 asks every label at once, as is best for two classes.")
@click.option("--mechanism", help="RandomizedResponse, RRWithPrior (the paper's) or GroupedResponse (the default).")
@click.option("--loss", help="Of torch models: likelihood (the default), noisy-label (the paper's) or debiased.")
@click.option("--epochs", type=int, help="Of torch models: how many epochs each stage is trained for.")
@click.option(
    "--hold-out",
    type=float,
    help="The share of the rows that is only used to grade models, noisily: 0.2 of a table, 0.02 of a dataset.",
)
@click.option(
    "--init",
    metavar="DATASET",
    help="Of torch models: start from weights learned from another dataset, whose labels are public and not protected.",
)
@click.option("--rows", type=int, help="Use only the first so many rows, for a quick try.")
@click.option("--seed", type=int, help="Of the training; no seed reaches privacy noise.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other value of the recipe: training.mixup=4.0"
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The run's folder.")
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="Charge this ledger; by default that of a table's earlier runs (or TABLE.ledger); of a dataset a new one in --out.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the run in --out; a changed model or training.* trains anew on what it released.",
)
@click.option("--from", "source", type=click.Path(path_type=Path), help="Train again on this run's releases, free.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets' files are.")
@cache_option
@click.option("--threads", type=click.IntRange(min=1), help="Of torch models: how many threads.")
@click.option("--accelerator", help="Of torch models: cpu (the default), cuda or auto. Only cpu has been tried.")
@click.option("--devices", type=click.IntRange(min=1), help="Of torch models: how many processes; 1 by default.")
@json_option
def train(
    recipe_file: Path | None,
    out: Path,
    ledger: Path | None,
    resume: bool,
    source: Path | None,
    data_dir: Path | None,
    cache: Path | None,
    threads: int | None,
    accelerator: str | None,
    devices: int | None,
    as_json: bool,
    settings: tuple[str, ...],
    **options: Any,
) -> None:
    """Train a model with label differential privacy.

    \b
    labeldp train --data table.csv --label income --classes low,high --epsilon 1 --model boosting --out runs/income
    labeldp train --data fashion-mnist --model small-conv --epsilon 2 --stages 2 --out runs/fm-e2
    labeldp train --data fashion-mnist --features patches --model linear --epsilon 1 --prior clusters --out runs/fm-counts
    labeldp train --recipe recipes/fashion-mnist-paper.toml --out runs/paper
    labeldp train --resume --out runs/fm-e2
    labeldp train --from runs/fm-e2 --model logistic --out runs/again
    """
    from labeldp.learning.multistage import COUNTS
    from labeldp.runs import Recipe, RunFolder, learners, training
    from labeldp.runs.toml import read_values, with_keys

    folder = RunFolder(out)
    with usage():
        changes = _changes(options, settings)
    if resume:
        if recipe_file or source or ledger:
            raise click.UsageError("--resume goes on with the recipe, releases and ledger of --out: give none of them.")
        facts = folder.facts()
        with usage():
            recipe, source = folder.recipe().changed(changes), Path(facts["from"]) if "from" in facts else None
        data_dir, cache = data_dir or _path(facts["data_dir"]), cache or _path(facts["cache"])
    else:
        if source and ledger:
            raise click.UsageError("--from asks nothing and charges no ledger: leave --ledger out.")
        if folder.exists and not _is_worker(devices or 1):
            raise click.UsageError(
                f"{out} holds a run already. To go on with it: {_resume(out)}. To train again on what it released, at no cost: "
                f"labeldp train --from {shlex.quote(str(out))} --out NEW"
            )
        base = RunFolder(source).recipe() if source and not recipe_file else None
        said = read_values(recipe_file) if recipe_file else {}
        origin = "the command line" if recipe_file is None else str(recipe_file)
        with usage():
            if base:
                recipe = base.changed(changes)
            else:
                values = with_keys(said, changes)
                _check_data(values)
                recipe = Recipe.of(values, source=origin)
        if source:
            facts = RunFolder(source).facts()
            data_dir, cache = data_dir or _path(facts["data_dir"]), cache or _path(facts["cache"])
    with usage():
        recipe = recipe.placed()
        learners.check_known(recipe.model)
    fabric = _processes(recipe, folder.facts() if resume else {}, threads, accelerator, devices)
    answers = {0: COUNTS} | {number: f"release-{number}" for number in range(1, recipe.release.stages + 1)}
    earlier = {n for n, name in answers.items() if source is not None or (out / f"{name}.json").exists()}
    progress = TrainingProgress(recipe, released_earlier=earlier) if fabric.is_global_zero else None
    how: Any = {
        "data_dir": data_dir,
        "cache": cache,
        "watch": progress,
        "fabric": None if isinstance(fabric, learners.OneProcess) else fabric,
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
    if options["prior"] is not None:
        options["prior"] = _prior(options["prior"])
    if options["public_test"] is not None:
        options["public_test"] = os.path.abspath(options["public_test"])  # a resumed run may be elsewhere
    changes = {
        f"{TABLES[name]}.{name}" if name in TABLES else name: str(value) if isinstance(value, Epsilon) else value
        for name, value in options.items()
        if value is not None and value != ()
    }
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise click.UsageError(f"--set must be KEY=VALUE, such as training.mixup=4.0; got {setting!r}.")
        if key in changes:
            raise click.UsageError(f"{key} is said twice, as {changes[key]} and as {text}: say it once.")
        try:
            changes[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            changes[key] = text
    return changes


def _check_data(values: dict[str, Any]) -> None:
    """Raise where an unknown dataset is named: that comes before what else a recipe lacks."""
    from labeldp.datasets.catalogue import FILES, check_known

    data = values.get("data")
    if isinstance(data, str) and values.get("table") is None and not data.lower().endswith(FILES):
        check_known(data, must_be=f"data must be a file of your own ({' or '.join(FILES)}), or")


def _prior(text: str) -> dict[str, Any]:
    """Return the [prior] that --prior describes. What is no key of it is a setting of the features before it."""
    from dataclasses import fields

    from labeldp.runs.plans import Prior

    kind, _, rest = text.strip().partition(":")
    if kind != "clusters":
        raise InvalidArgument(f"--prior must be clusters, or clusters:epsilon=0.1,count=300, ..; got {text[:80]!r}.")
    kinds = {item.name: str(item.type).split(" | ")[0] for item in fields(Prior)}
    said: dict[str, Any] = {}
    last = None
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if equals and key.strip() in kinds:
            last = key.strip()
            said[last] = value.strip()
        elif last == "features":
            said[last] += f",{item.strip()}"
        else:
            raise InvalidArgument(f"--prior clusters knows no {item[:80]!r}. It knows: {', '.join(kinds)}.")
    for key, value in said.items():
        try:
            said[key] = int(value) if kinds[key] == "int" else value
        except ValueError:
            raise InvalidArgument(f"--prior: {key} must be a whole number, got {value[:80]!r}.") from None
    return said


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _resume(out: Path) -> str:
    return f"labeldp train --resume --out {shlex.quote(str(out))}"


def _processes(
    recipe: Recipe, facts: dict[str, Any], threads: int | None, accelerator: str | None, devices: int | None
) -> Fabric | OneProcess:
    """Return the processes to train in; those and the threads of a resumed run are as at its start."""
    from labeldp.runs.families import family_of
    from labeldp.runs.learners import OneProcess

    if family_of(recipe.model) == "sklearn":
        if threads or accelerator or devices:
            raise click.UsageError(
                f"--threads, --accelerator and --devices are of torch models; {recipe.model} trains in one process, in as many "
                "threads as the environment variable OMP_NUM_THREADS says."
            )
        return OneProcess()
    import torch

    fabric = _launched(accelerator or "cpu", devices or facts.get("processes", 1))
    threads = threads or facts.get("threads")
    if threads is not None:
        torch.set_num_threads(threads)  # after Fabric has set its own number
    return fabric


def _launched(accelerator: str, devices: int) -> Fabric:
    from lightning_fabric import Fabric

    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, strategy="ddp" if devices > 1 else "auto")
    except (ValueError, RuntimeError, ImportError) as error:  # no labels are held yet: what it says is public
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
def _one_voice(fabric: Fabric | OneProcess) -> Iterator[None]:
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
        raise Stopped(
            f"Stopped. Nothing is lost: {_resume(folder.path)} goes on from the last epoch's end."
            if folder.exists
            else "Stopped before anything was asked. Run the same command again to start."
        ) from None


def _tell(recipe: Recipe, folder: RunFolder, as_json: bool) -> None:
    records = {record["kind"]: record for record in folder.records()}  # the last of each kind
    test, held = records.get("test", {}), records.get("hold-out", {})
    certificate = folder.certificate()
    if as_json:
        facts = {
            "run": str(folder.path),
            "epsilon": recipe.epsilon,
            "guarantee": certificate["guarantee"],
            "trust": certificate["trust"],
            "test": {key: value for key, value in test.items() if key in ("accuracy", "rmse", "rows")},
            "hold_out": {key: value for key, value in held.items() if key != "kind"},
            "unprotected": list(certificate.get("unprotected", {})),
        }
        print_json(facts)
        return
    if "accuracy" in test:
        _say(f"{test['accuracy']:.2%} right on {test['rows']:,} rows of public test data.{_unprotected(recipe)}")
    elif "rmse" in test:
        _say(f"RMSE {test['rmse']:.4f} on {test['rows']:,} rows of public test data.")
    elif held:
        _say(_held_out(held))
    else:
        _say("No rows were held out, and there is no public test: nothing is known of how good the model is.")
    _say(certificate["guarantee"])
    if certificate["trust"] == "curator":
        _say("Trust model: curator.")
    if recipe.init is not None:
        _say(f"It began with weights that were learned from the true labels of {recipe.init}, which nothing protects.")
    if "from" in folder.facts():
        _say(f"It was trained on what {folder.facts()['from']} released: nothing was asked, nothing was charged.")
    _say(f"Model, certificate and releases: {folder.path}")
    if folder.report_file.exists():
        _say(f"Report: {folder.report_file}")
    else:
        _say("No report was drawn: pip install 'labeldp[report]'.")


def _unprotected(recipe: Recipe) -> str:
    """Say whose labels a test figure comes from, where they are not those of a published dataset."""
    if recipe.table is None:
        return ""
    return f" That figure comes from the true labels of {recipe.table.public_test}, which nothing protects."


def _held_out(record: dict[str, Any]) -> str:
    """Say what noisy answers tell of a model. An estimate that noise put out of bounds is said as the bound."""

    def said(name: str, show: Callable[[float], str], unit: str) -> str | None:
        found = record.get(name)
        if found is None or None in (found["low"], found["high"]):
            return None
        value, low, high = (min(max(found[key], found["low"]), found["high"]) for key in ("value", "low", "high"))
        return f"{show(value)}{unit} (95 % interval {show(low)} to {show(high)})"

    right = said("accuracy", lambda share: f"{100 * share:.1f}", " % right")
    if right and record["accuracy"]["high"] - record["accuracy"]["low"] > TELLS_NOTHING:
        right = f"Too few or too noisy to say how good the model is: {right}"
    others = {name: said(key, "{:.3f}".format, "") for key, name in (("auc", "AUC"), ("log_loss", "log loss"))}
    more = "; ".join(f"{name} {words}" for name, words in others.items() if words)
    answers = f"{record['rows']:,} held-out answers that are noisy too"
    return f"{right or 'Nothing is known'}, estimated from {answers}." + (f" Likewise: {more}." if more else "")


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
