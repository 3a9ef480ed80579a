"""`labeldp train` in the shell: what it says, where it says it, what it leaves, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import labeldp as ldp
from labeldp import report
from labeldp.cli import progress
from labeldp.cli import train as command
from labeldp.runs import Recipe, RunFolder, training

QUICK = "--data digits --model linear --epsilon 2 --rows 200 --epochs 1 --threads 1"


@pytest.fixture
def shell(tmp_path, monkeypatch, command):
    """Run `labeldp train ...` in an empty folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_run", lambda *_, **__: None)
    threads = torch.get_num_threads()

    yield lambda text: command("train", *shlex.split(text))
    torch.set_num_threads(threads)


def charges(path):
    return [entry for entry in ldp.Ledger(path).entries() if entry.body["kind"] == "charge"]


def everything():
    return {str(file): file.read_bytes() for file in sorted(Path().rglob("*")) if file.is_file()}


# ---------------------------------------------------------------- a run


def test_a_run_says_what_was_released_and_what_it_is_worth(shell):
    code, out, err = shell(f"{QUICK} --out run")
    assert (code, out) == (0, "")
    first, between, second, figure, promise, place, report_words = err.splitlines()
    assert first == (
        "Stage 1: 98 labels released by GroupedResponse at epsilon 2; 5 possible answers to each, on average."
    )
    assert re.fullmatch(r"Stage 1: \d+\.\d\d% right on public test data\.", between)
    assert second.startswith("Stage 2: 98 labels released by GroupedResponse at epsilon 2; ")
    assert re.fullmatch(r"\d+\.\d\d% right on 360 rows of public test data\.", figure)
    assert promise.startswith("Label differential privacy with epsilon 2 for every label;")
    assert (place, report_words) == (
        "Model, certificate and releases: run",
        "No report was drawn: pip install 'labeldp[report]'.",
    )
    assert RunFolder("run").facts()["threads"] == 1 and len(charges("run/ledger")) == 3


def test_json_is_all_there_is_on_stdout(shell):
    code, out, err = shell(f"{QUICK} --json --out run")
    facts = json.loads(out)
    assert code == 0 and set(facts) == {"run", "epsilon", "guarantee", "trust", "test", "hold_out", "unprotected"}
    assert (facts["run"], facts["epsilon"], facts["test"]["rows"]) == ("run", "2", 360)
    assert facts["trust"] == "local"
    assert "Stage 1: 98 labels released" in err and "Label differential privacy" not in err


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture
def fashion(tmp_path):
    """A few rows in Fashion-MNIST's files."""
    folder, rng = tmp_path / "files" / "fashion-mnist", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for stem, n_rows in (("train", 120), ("t10k", 20)):
        (folder / f"{stem}-images-idx3-ubyte").write_bytes(idx(rng.integers(0, 256, (n_rows, 28, 28), dtype=np.uint8)))
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(idx(rng.integers(0, 10, n_rows, dtype=np.uint8)))
    return tmp_path / "files"


def test_the_command_of_the_readme_and_the_same_as_a_recipe(shell, fashion, monkeypatch):
    words = "--data fashion-mnist --model small-conv --epsilon 2 --stages 2"
    assert shell(f"{words} --epochs 1 --threads 1 --data-dir files --out runs/fm-e2")[0] == 0
    recipe = RunFolder("runs/fm-e2").recipe()
    assert (recipe.data, recipe.model, recipe.epsilon, recipe.release.stages) == ("fashion-mnist", "small-conv", "2", 2)
    code, _, err = shell("--recipe runs/fm-e2/recipe.toml --data-dir files --threads 1 --out runs/again")
    assert code == 0 and RunFolder("runs/again").recipe() == recipe, err
    (Path("runs/fm-e2/model.safetensors")).unlink()  # a resumed run, and one from it, know where their data was
    monkeypatch.chdir("runs")
    assert shell("--resume --out fm-e2")[0] == 0
    assert shell("--from fm-e2 --model linear --threads 1 --out from")[0] == 0


def test_options_override_a_recipe(shell):
    Path("mine.toml").write_text('data = "digits"\nmodel = "mlp"\nepsilon = "1"\nrows = 200\n[training]\nepochs = 9\n')
    more = "--model linear --epsilon 2 --epochs 1 --stages 1 --hold-out 0 --seed 3 --mechanism RRWithPrior"
    settings = "--loss noisy-label --set training.mixup=1 --set 'training.schedule = constant' --set about='a try'"
    assert shell(f"--recipe mine.toml {more} {settings} --threads 1 --out run")[0] == 0
    recipe = RunFolder("run").recipe()
    assert (recipe.model, recipe.epsilon, recipe.seed, recipe.about, recipe.rows) == ("linear", "2", 3, "a try", 200)
    assert (recipe.release.stages, recipe.release.hold_out, recipe.release.mechanism) == (1, 0.0, "RRWithPrior")
    assert (recipe.training.loss, recipe.training.epochs) == ("noisy-label", 1)
    assert (recipe.training.mixup, recipe.training.schedule) == (1.0, "constant")
    assert len(charges("run/ledger")) == 1


def test_a_folder_may_be_called_anything(shell):
    code, _, err = shell(f"{QUICK} --out 'my [/bold] :smile: run'")
    assert code == 0 and "releases: my [/bold] :smile: run\n" in err


# ---------------------------------------------------------------- spent labels


def test_the_same_folder_again_is_refused_and_names_what_to_do(shell):
    assert shell(f"{QUICK} --out 'my run'")[0] == 0
    before = everything()
    code, out, err = shell(f"{QUICK} --out 'my run'")
    assert (code, out) == (2, "") and everything() == before
    assert "To go on with it: labeldp train --resume --out 'my run'." in err
    assert "labeldp train --from 'my run' --out NEW" in err


def test_spent_labels_exit_3_name_the_run_and_leave_nothing(shell):
    ldp.create_ledger("owner.ledger", budget="2")
    assert shell(f"{QUICK} --ledger owner.ledger --out runs/first")[0] == 0
    before = everything()
    code, out, err = shell(f"{QUICK} --ledger owner.ledger --out runs/second")
    assert (code, out) == (3, "") and "labeldp train --from runs/first --out NEW" in err
    assert everything() == before and not Path("runs/second").exists()
    named = re.search(r"labeldp train (--from .*) --out NEW", err)[1]
    assert shell(f"{named} --threads 1 --out runs/second")[0] == 0
    assert {name: content for name, content in everything().items() if "second" not in name} == before


def test_a_clusters_rank_silences_nobody_who_trains_alone(shell, monkeypatch):
    assert shell(f"{QUICK} --out run")[0] == 0
    monkeypatch.setenv("LOCAL_RANK", "1")
    code, _, err = shell(f"{QUICK} --out run")
    assert code == 2 and "holds a run already" in err


# ---------------------------------------------------------------- going on


def test_a_finished_run_may_be_resumed_at_no_cost(shell):
    assert shell(f"{QUICK} --out run")[0] == 0
    before = everything()
    code, _, err = shell("--resume --out run")
    assert code == 0 and "Stage 2: 98 labels released earlier by" in err
    changed = {name for name, content in everything().items() if before[name] != content}
    assert changed <= {"run/metrics.jsonl", "run/model.safetensors"} and len(charges("run/ledger")) == 3
    assert before["run/model.safetensors"] == Path("run/model.safetensors").read_bytes()


@pytest.mark.parametrize("other", ["--ledger l", "--from run", "--recipe run/recipe.toml"])
def test_a_resumed_run_takes_no_other_recipe_releases_or_ledger(shell, other):
    code, _, err = shell(f"--resume --out run {other}")
    assert code == 2 and "--resume goes on with the recipe, releases and ledger of --out" in err and not os.listdir()


@pytest.mark.parametrize("other", ["--epsilon 1", "--seed 1", "--stages 3", "--hold-out 0.1", "--rows 100"])
def test_a_resumed_run_keeps_what_defines_its_releases(shell, other):
    assert shell(f"{QUICK} --out run")[0] == 0
    before = everything()
    code, _, err = shell(f"--resume --out run {other}")
    assert code == 1 and "cannot be changed in run: it defines what this run asks" in err and everything() == before


def test_a_run_that_diverged_goes_on_with_other_training(shell):
    code, _, err = shell(
        f"{QUICK} --hold-out 0 --set training.batch_size=16 --set training.learning_rate=1e30 --out run"
    )
    assert code == 1 and "lower learning_rate" in err and len(charges("run/ledger")) == 1
    code, _, err = shell("--resume --set training.learning_rate=0.1 --model mlp --out run")
    assert code == 0 and "Stage 1: 100 labels released earlier by" in err and len(charges("run/ledger")) == 2
    assert RunFolder("run").recipe().training.learning_rate == 0.1 and ldp.load("run").recipe.model == "mlp"


def test_a_resumed_run_has_the_threads_processes_and_data_of_its_start(shell, monkeypatch):
    recipe = Recipe(data="digits", model="linear", epsilon="2")
    facts = {"threads": 1, "processes": 2, "data_dir": "/data", "ledger": "", "own_ledger": True}
    RunFolder("run").create(recipe, facts)
    seen = {}
    launched = command._launched
    monkeypatch.setattr(command, "_launched", lambda kind, devices: seen.update(n=devices) or launched(kind, 1))
    monkeypatch.setattr(training, "train", lambda *_, **how: seen.update(how, threads=torch.get_num_threads()) or 1 / 0)
    torch.set_num_threads(2)
    assert shell("--resume --out run")[0] == 1
    assert (seen["n"], seen["threads"], seen["data_dir"], seen["ledger"]) == (2, 1, Path("/data"), None)
    shell("--resume --out run --devices 1 --threads 2 --data-dir here")
    assert (seen["n"], seen["threads"], seen["data_dir"]) == (1, 2, Path("here"))


def test_another_model_from_the_same_releases(shell):
    assert shell(f"{QUICK} --out run")[0] == 0
    before = everything()
    code, _, err = shell("--from run --model mlp --epochs 2 --threads 1 --out again")
    assert code == 0 and "Stage 1: 98 labels released earlier by GroupedResponse" in err
    assert "It was trained on what run released: nothing was asked, nothing was charged." in err
    assert shell("--from again --model linear --threads 1 --out 'and again'")[0] == 0
    assert {name: content for name, content in everything().items() if name.startswith("run/")} == before
    assert RunFolder("and again").recipe().training.epochs == 2
    for other, words in (
        ("--epsilon 1", "epsilon cannot be changed"),
        ("--stages 3", "release.stages cannot be changed"),
        ("--mechanism RRWithPrior --hold-out 0.5", "release.mechanism, release.hold_out cannot be changed"),
        ("--data mnist --rows 3", "data, rows cannot be changed"),
        ("--loss noisy-label", "no one noisy label per row"),
    ):
        code, _, err = shell(f"--from run {other} --out no")
        assert code == 1 and words in err and not Path("no").exists()
    code, _, err = shell("--from run --ledger run/ledger --out no")
    assert code == 2 and "--from asks nothing and charges no ledger" in err


# ---------------------------------------------------------------- failures

FAILURES = [
    (2, "--data digits --model linear --out run", "the command line must say epsilon."),
    (2, "--out run", "the command line must say data, model, epsilon."),
    (2, f"{QUICK}", "Missing option '--out'"),
    (2, f"{QUICK.replace('--epsilon 2', '--epsilon 0')} --out run", "epsilon must be > 0"),
    (2, f"{QUICK.replace('--epsilon 2', '--epsilon much')} --out run", "epsilon must be a finite number"),
    (2, f"{QUICK} --mechanism RR --out run", "'RRWithPrior', 'GroupedResponse', 'UnbiasedResponse', got 'RR'"),
    (
        2,
        f"{QUICK} --set training.epoch=3 --out run",
        "[training] knows no 'epoch'. Did you mean 'epochs'? It knows: loss, epochs",
    ),
    (2, f"{QUICK} --set data.rows=3 --out run", "data is a value, not a table"),
    (2, f"{QUICK} --set training.batch_size=many --out run", "batch_size must be a whole number, got 'many'"),
    (2, f"{QUICK} --set training.epochs --out run", "--set must be KEY=VALUE"),
    (2, f"{QUICK} --set training.learning_rate=inf --out run", "learning_rate must be a finite number"),
    (2, f"{QUICK} --threads 0 --out run", "--threads"),
    (2, f"{QUICK} --model tinyconv --out run", "got 'tinyconv'. Did you mean 'tiny-conv'?"),
    (
        1,
        f"{QUICK} --loss likely --out run",
        "loss must be one of 'noisy-label', 'debiased', 'likelihood', got 'likely'",
    ),
    (1, f"{QUICK} --loss noisy-label --out run", "reports groups of labels"),
    (2, f"{QUICK} --data digit --out run", "Did you mean 'digits'?"),
    (
        2,
        "--data fashionmnist --epsilon 1 --out run",
        "data must be a file of your own (.csv or .parquet), or one of 'anes96",
    ),
    (2, "--data fashionmnist --epsilon 1 --out run", "got 'fashionmnist'. Did you mean 'fashion-mnist'?"),
    (2, "--data fashion-mnist --epsilon 1 --out run", "the command line must say model."),
    (2, "--data a.tsv --label a --epsilon 1 --out run", "are for a file of one's own (.csv or .parquet); 'a.tsv' is"),
    (1, f"{QUICK} --data kmnist --data-dir here --out run", "Put that folder into here"),
    (1, f"{QUICK} --stages 0 --out run", "stages must be at least 1"),
    (1, f"{QUICK} --ledger none --out run", "labeldp vault create --ledger none --budget 2 --rows 1437"),
    (1, f"{QUICK} --accelerator tpus --out run", "--accelerator tpus with 1 devices cannot be used"),
    (1, "--recipe none.toml --out run", "there is no recipe at none.toml"),
    (1, "--from none --out run", "none is not a run folder"),
    (1, "--resume --out run", "run is not a run folder: it has no run.json"),
    (2, "--resume runs/x", "--resume goes on with the run that --out names: labeldp train --resume --out runs/x"),
    (2, "--epochs 2 'my runs/x' --resume", "labeldp train --resume --out 'my runs/x'"),
    (2, "--resume --epochs 2", "labeldp train --resume --out RUN"),
]


@pytest.mark.parametrize(("code", "words", "says"), FAILURES, ids=[words for _, words, _ in FAILURES])
def test_failures_say_what_must_hold_and_leave_nothing(shell, code, words, says):
    found, out, err = shell(words)
    assert (found, out) == (code, ""), err
    assert says in " ".join(err.split()) and "Traceback" not in err
    assert not os.listdir()


def test_what_nobody_expected_is_not_quoted(shell, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("secret")

    monkeypatch.setattr(ldp.torch.TorchLearner, "_epoch", fail)
    code, out, err = shell(f"{QUICK} --out run")
    assert (code, out) == (1, "")
    assert re.search(
        r"An unexpected RuntimeError stopped the command \(labeldp\.torch\.learner, line \d+\)\. That is a", err
    )
    assert "secret" not in err


# ---------------------------------------------------------------- how it looks


def record(kind, stage, **figures):
    return {"kind": kind, "stage": stage, **figures}


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_sees_a_line_per_stage_that_fits(monkeypatch, width):
    screen = io.StringIO()
    monkeypatch.setattr(
        progress, "words", Console(file=screen, force_terminal=True, width=width, color_system=None, highlight=False)
    )
    recipe = Recipe(data="digits", model="linear", epsilon="2").changed({"training.epochs": 200})
    with progress.TrainingProgress(recipe) as watch:
        for stage in (1, 2):
            released = {"rows": 30_000, "mechanism": "GroupedResponse", "epsilon": "2", "mean_groups": 2.368}
            watch(record("stage", stage, **released, filtered={"rows": 10_000, "kept": 9_000, "k": 2}))
            watch._progress.refresh()
            grade = {"accuracy": 1.0, "standard_error": 0.239}
            watch(record("epoch", stage, epoch=199, epochs=200, loss=0.48, hold_out=grade))
            watch._progress.refresh()
            watch(record("test", stage, accuracy=0.5, rows=10))
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n").splitlines()
    bars = [line.rstrip() for line in lines if line.startswith("stage ")]
    assert bars and all(len(bar) <= width and "…" not in bar for bar in bars)
    assert any(bar.startswith("stage 1 of 2") and "epoch   0/200" in bar for bar in bars)  # before its first epoch ends
    assert any("199/200" in bar and bar.endswith("loss 0.480, hold-out 100.0% ± 23.9%") for bar in bars)
    assert "Stage 1: 50.00% right on public test data." in [line.rstrip() for line in lines]
    assert not [line for line in lines if line.startswith("Stage 2: 50.00%")]  # the last figure is said at the end
    (first,) = [line.rstrip() for line in lines if line.startswith("Stage 1: 30")]
    assert first.endswith("2.37 possible answers to each, on average; 9,000 of 10,000 earlier rows kept (top 2).")


def test_a_pipe_sees_a_sentence_now_and_then(monkeypatch):
    page, now = io.StringIO(), iter([0.0, 0.0, 10.0, 31.0, 31.0, 40.0])
    monkeypatch.setattr(progress, "words", Console(file=page, width=200, highlight=False))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    recipe = Recipe(data="digits", model="linear", epsilon="2").changed({"training.epochs": 200})
    watch = progress.TrainingProgress(recipe)
    released = {"rows": 30_000, "mechanism": "GroupedResponse", "epsilon": "2", "mean_groups": 2.368}
    watch(record("stage", 1, **released, filtered=None))
    for epoch in (10, 31, 40):  # one a second
        watch(record("epoch", 1, epoch=epoch, epochs=200, loss=0.48, hold_out=None))
    first, *others = page.getvalue().splitlines()
    assert first.startswith("Stage 1: 30,000 labels released")
    assert others == ["Stage 1 of 2: epoch 31 of 200, loss 0.480."]


def run_script(script, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=100, **options
    )


def test_help_loads_neither_torch_nor_scipy():
    script = (
        "import sys; from labeldp.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'scipy', 'sklearn', 'lightning_fabric', 'matplotlib'} & set(sys.modules)))"
    )
    shown = run_script(script, "train", "--help")
    *text, loaded = shown.stdout.splitlines()
    assert loaded == "[]" and any("--from" in line for line in text), shown.stderr


def test_without_torch_it_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['torch'] = None; from labeldp.cli import main; main()"
    done = run_script(script, "train", *shlex.split(QUICK), "--out", "run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "") and not os.listdir(tmp_path)
    assert done.stderr.startswith(
        "Error: linear needs torch: pip install 'labeldp[torch]'. Models that do without: boosting"
    )


# ---------------------------------------------------------------- two processes

ONE_VAULT = """
import os

if os.environ.get("LOCAL_RANK", "0") != "0":
    from labeldp.datasets import dataset

    class NoVault:
        def __init__(self, *_, **__):
            raise SystemExit("a vault was opened beside the first process")

    dataset.LabelVault = NoVault

from labeldp import report
from labeldp.cli import main

report.write_run = lambda *_, **__: None

main()
"""


def test_two_processes_ask_once(tmp_path):
    """Fabric starts the same script again for the second process, which has no vault to open."""
    (tmp_path / "script.py").write_text(ONE_VAULT)
    words = [sys.executable, "script.py", "train", *shlex.split(QUICK), "--devices", "2", "--json", "--out", "run"]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == "run" and "GLOBAL_RANK" not in done.stderr
    assert done.stderr.count("Stage 1: 98 labels released") == 1
    run = RunFolder(tmp_path / "run")
    assert len(charges(run.ledger_file)) == 3 and run.facts()["processes"] == 2
    kinds = [(each["kind"], each.get("stage")) for each in run.records()]
    assert kinds == [(kind, n) for n in (1, 2) for kind in ("stage", "epoch", "test")] + [
        ("hold-out", None),
        ("done", None),
    ]
    assert ldp.load(run.path).predict_proba(np.zeros((1, 1, 8, 8), np.uint8)).shape == (1, 10)
