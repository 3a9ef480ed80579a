"""`labeldp reproduce` in the shell: what it says, where it says it, what it leaves, and its exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import torch

from labeldp import datasets, report
from labeldp.cli.progress import TrainingProgress
from labeldp.reproduce import estimate as timing
from labeldp.reproduce import running
from labeldp.vault import LabelVault

QUICK = """
trust = "local"
data = "digits"
model = "linear"
epsilons = ["1", "2"]
about = "Quick."
[release]
stages = 1
[training]
epochs = 1
"""


@pytest.fixture
def shell(tmp_path, monkeypatch, command):
    """Run `labeldp reproduce ...` in a folder with a quick recipe; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABELDP_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(report, "write_run", lambda *_, **__: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    Path("quick.toml").write_text(QUICK)

    yield lambda text: command("reproduce", *shlex.split(text))
    torch.set_num_threads(threads)


def looks():
    return [line for line in Path("results/test-looks.md").read_text().splitlines() if line.startswith("| 2")]


def test_a_table_is_run_recorded_and_printed(shell):
    code, out, err = shell("mnist --recipe quick.toml --rows 200 --draws 2")
    assert code == 0 and "Results: results" in err and "mnist, own:quick at epsilon 2, draw 2, 200 rows" in err
    records = json.loads(Path("results/mnist.json").read_text())["records"]
    assert [(r["epsilon"], r["draw"], r["rows"]) for r in records] == [
        ("1", 1, 200),
        ("2", 1, 200),
        ("1", 2, 200),
        ("2", 2, 200),
    ]
    assert records[-1]["command"] == "labeldp reproduce mnist --recipe quick.toml --epsilon 2 --draws 2 --rows 200"
    assert "95.82" in out and "no run yet" in out  # the paper's, and ours
    subsets = [
        line for line in out.splitlines() if line.startswith("Of a subset, not comparable: own:quick at epsilon")
    ]
    assert len(subsets) == 2 and "on 200 rows" in subsets[0] and len(looks()) == 4
    assert "epsilon" not in out.partition("digits, local: ")[2].partition("Of a subset")[0]  # it has no table


def test_what_a_run_gives_is_told_with_where_it_stands(shell, monkeypatch):
    run = "mnist --recipe quick.toml --epsilon 2 --rows 200 --json"
    _, out, said = shell(run)
    (record,) = json.loads(out)
    assert f"Done: {record['value']:.2f} % right in {record['seconds']} s, recorded in results/mnist.json.\n" in said
    assert "Report:" not in said  # none was drawn
    monkeypatch.setattr(report, "write_run", lambda folder, **_: (Path(folder) / "report.html").write_text(""))
    said = shell(f"{run} --draws 2")[2]
    (drawn,) = Path("runs").glob("reproduce/mnist/*/draw-2/report.html")
    assert said.count("Done: ") == 1 and f"recorded in results/mnist.json. Report: {drawn}\n" in said


def test_the_same_command_again_goes_on_and_runs_nothing_twice(shell):
    command = "mnist --recipe quick.toml --epsilon 2 --json"
    first = json.loads(shell(command)[1])
    code, out, err = shell(f"{command} --draws 2")
    assert code == 0 and "draw 1 is done and recorded: " in err
    both = json.loads(out)
    assert both[0] == first[0] and [record["draw"] for record in both] == [1, 2] and len(looks()) == 2


def test_an_epsilon_that_the_recipe_does_not_list_is_run_and_said(shell):
    code, _, err = shell("mnist --recipe quick.toml --epsilon 3 --rows 100")
    assert code == 0 and "own:quick lists epsilon 1, 2: at 3 it is run with its base settings." in err


def test_the_recipes_there_are_can_be_listed(shell):
    code, out, _ = shell("--list")
    lines = out.splitlines()
    assert code == 0 and lines.count("movielens-1m") == 1 and max(map(len, lines)) <= 60
    assert " ".join(lines[lines.index("movielens-1m") + 1].split()) == "best-curator curator epsilon 0.1 0.5 1 2"
    assert lines[lines.index("figure-mixup") + 2] == "    varies training.mixup.0 training.mixup.1"
    entries = json.loads(shell("mnist --list --json")[1])
    assert {"best-local", "paper-2st"} <= {entry["name"] for entry in entries}
    assert all(entry["about"] and entry["epsilons"] for entry in entries)


def test_results_are_shown_pooled_and_drawn(shell):
    assert shell("mnist --recipe quick.toml --epsilon 2 --draws 2")[0] == 0
    code, out, err = shell("mnist --show --html page.html")
    assert code == 0 and "digits, local: test accuracy in percent" in out and "2 runs, " in out
    assert "Plot: results/mnist.svg" in err and "Page: page.html" in err
    assert "own:quick" in Path("results/mnist.svg").read_text() and "2 runs, " in Path("page.html").read_text()
    (cell,) = json.loads(shell("mnist --show --json")[1])["cells"]
    assert cell["runs"] == 2 and cell["mean"] == sum(cell["values"]) / 2 and cell["hashes"] == 1
    assert (cell["recipe"], cell["commits"], cell["data_versions"]) == ("own:quick", 1, 1) and len(cell["data"]) == 16


FIGURE = QUICK.replace('["1", "2"]', '["2"]').replace("stages = 1", 'mechanism = "RRWithPrior"')
FIGURE += 'loss = "noisy-label"\n[vary]\n"release.stages" = [1, 2]\n'


def test_a_figure_is_run_point_by_point_and_drawn(shell):
    Path("stages.toml").write_text(FIGURE)
    code, out, err = shell("figure-stages --recipe stages.toml --rows 200 --only release.stages=2")
    assert code == 0 and "figure-stages, own:stages at epsilon 2, release.stages=2, draw 1, 200 rows" in err
    assert "1 records of other versions" in out  # a subset is not the figure's
    code, out, err = shell("figure-stages --recipe stages.toml")
    assert code == 0 and "points without a run" not in out and "Plot: results/figure-stages.svg" in err
    assert "release.stages=1" in out and "(1 run)" in out
    records = json.loads(Path("results/figure-stages.json").read_text())["records"]
    assert [record["variant"] for record in records] == [{"release.stages": stages} for stages in (2, 1, 2)]
    assert "own:stages, epsilon 2" in Path("results/figure-stages.svg").read_text() and len(looks()) == 3
    code, _, err = shell("figure-stages --recipe stages.toml --out elsewhere")
    assert code == 0 and err.count("is done and recorded: ") == 2 and len(looks()) == 3


def test_a_figure_without_runs_is_shown_with_what_it_lacks(shell):
    code, out, err = shell("figure-mixup --show")
    assert code == 0 and "9 of 9 points without a run." in out and "There are no results" in err
    points = json.loads(shell("figure-mixup --show --json")[1])["points"]
    assert len(points) == 9 and points[0]["variant"] == {"training.mixup.0": 1.0, "training.mixup.1": 1.0}
    assert not Path("results").exists()


def test_an_estimate_of_a_figure_is_of_each_point_and_summed(shell):
    Path("stages.toml").write_text(FIGURE.replace("epochs = 1", "epochs = 900"))
    code, out, err = shell("figure-stages --recipe stages.toml --estimate")
    records = json.loads(Path("results/figure-stages.json").read_text())["records"]
    assert (
        code == 0 and err.count("timing an epoch") == 1 and [r["variant"]["release.stages"] for r in records] == [1, 2]
    )
    assert "2 of 2 points without a run; 2 of them were estimated, about" in out and " h together." in out
    assert not Path("results/test-looks.md").exists()


def test_nothing_to_show_is_said_with_the_papers_figures(shell):
    code, out, err = shell("kmnist --show")
    assert (
        code == 0 and "There are no results of kmnist in results yet" in err and "81.26" in out and "no run yet" in out
    )
    assert not Path("results").exists()


def test_who_has_no_results_is_told_where_shipped_ones_are(shell):
    shipped = "those shipped are in benchmarks/results of the repository: name it by --results."
    assert shipped in shell("kmnist --show")[2]
    Path("mine").mkdir()
    assert shipped not in shell("kmnist --show --results mine")[2]  # another folder was named already
    Path("benchmarks/results").mkdir(parents=True)
    assert shipped not in shell("kmnist --show")[2]


def test_an_estimate_times_every_network_that_a_recipe_has_at_some_epsilon(shell):
    Path("wider.toml").write_text(QUICK + '[at."2".training]\nepochs = 3\n')
    assert shell("mnist --recipe wider.toml --estimate")[2].count("timing an epoch") == 1
    Path("wider.toml").write_text(QUICK + '[at."2"]\nmodel = "mlp"\n')
    assert shell("mnist --recipe wider.toml --estimate")[2].count("timing an epoch") == 2


def test_an_estimate_is_recorded_without_a_look(shell):
    code, out, err = shell("mnist --recipe quick.toml --epsilon 2 --estimate --json")
    (record,) = json.loads(out)
    assert code == 0 and "timing an epoch on digits, with made-up labels" in err
    assert record["kind"] == "estimate" and record["timed_rows"] == 1437
    assert "own:quick at epsilon 2: about " in err and "here, recorded in results/mnist.json." in err
    assert json.loads(Path("results/mnist.json").read_text())["records"] == [record]
    assert not Path("results/test-looks.md").exists()


def test_missing_files_are_told_before_anything_is_noted(shell):
    code, out, err = shell("kmnist --epsilon 1")
    assert (code, out) == (1, "") and "The files of kmnist were not found." in err
    assert not Path("results").exists() and not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "Name a table: mnist, fashion-mnist"),
        ("fashion_mnist", "Did you mean fashion-mnist"),
        ("mnist --recipe best-locl", "Did you mean best-local"),
        ("mnist --show --list", "Give one of --list, --show and --estimate"),
        ("mnist --show --estimate", "Give one of --list, --show and --estimate"),
        ("figure-mixup --show --only training.mixup.0=4.0", "--only, --rows and --draws are for runs"),
        ("mnist --show --results of-mnist.toml", "--results must be a folder, and of-mnist.toml is a file"),
        ("mnist --epsilon 1 --results of-mnist.toml", "--results must be a folder, and of-mnist.toml is a file"),
        ("mnist --show --results mine", "no folder mine to show. To fill it: labeldp reproduce mnist --results mine"),
        ("mnist --html page.html", "--html goes with --show"),
        ("mnist --show --html nowhere/page.html", "--html: there is no folder nowhere."),
        ("mnist --show --html .", "--html: . is a folder. Name a file, such as page.html."),
        (
            "mnist --recipe nowhere.toml",
            "no recipe at nowhere.toml. The packaged ones of mnist are named so: best-curator",
        ),
        (
            "fashion-mnist --recipe of-mnist.toml",
            "is of mnist, and the table fashion-mnist is of fashion-mnist: labeldp",
        ),
        ("figure-stages --recipe of-mnist.toml", "is of mnist, and the figure figure-stages is of fashion-mnist: give"),
        ("mnist --epsilon -1", "must be > 0 and at most 20, got -1"),
        ("mnist --draws 0", "--draws"),
        ("mnist --only release.stages=1", "mnist is a table: leave it out, name a figure (figure-curves"),
        ("figure-stages --only release.stages", "--only must be KEY=VALUE"),
        ("figure-stages --only release.stages=9", "there are: release.stages=1; release.stages=2; release.stages=3;"),
        ("figure-stages --only release.stage=2", "must name what varies, which is release.stages; got release.stage."),
        ("figure-stage", "Did you mean figure-stages"),
    ],
)
def test_what_cannot_be_meant_exits_2_and_says_what_can(shell, words, says):
    Path("of-mnist.toml").write_text(QUICK.replace("digits", "mnist"))
    code, out, err = shell(words)
    assert (code, out) == (2, "") and says in err and err.count("release.stages=1") <= 1
    assert not Path("results").exists()


def test_figures_of_data_without_a_table_are_said_not_to_stand_beside_a_tables(shell):
    code, out, err = shell("ssl-prior --recipe quick.toml --epsilon 2")
    beside = "its figures do not stand beside those of cifar-10 and fashion-mnist."
    assert code == 0 and f"quick.toml is of digits: {beside}" in err
    assert "Priors from self-supervised features: digits, local: test accuracy in percent" in out
    assert out.index("CIFAR-10, ") < out.index("digits, local") < out.index("own:quick")
    assert "do not stand beside" not in shell("mnist --recipe best-local --estimate")[2]


def stop(*_, **__):
    raise KeyboardInterrupt


def test_a_run_that_is_stopped_before_it_asks_says_so(shell, monkeypatch):
    monkeypatch.setattr(running, "train", stop)
    code, out, err = shell("mnist --recipe quick.toml --epsilon 2 --rows 200")
    assert (code, out) == (130, "") and "Stopped before any label was asked." in err
    assert "Error" not in err and "Nothing is lost" not in err
    monkeypatch.setattr(datasets, "load", stop)
    assert shell("mnist --recipe quick.toml --epsilon 2 --rows 200")[0] == 130


def test_a_run_that_is_stopped_after_it_asked_says_how_it_goes_on(shell, monkeypatch):
    run = "mnist --recipe quick.toml --epsilon 2 --rows 200"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingProgress, "__call__", lambda _, record: stop() if record["kind"] == "epoch" else None)
        code, out, err = shell(run)
    assert (code, out) == (130, "") and "Nothing is lost: the same command goes on" in err and "Error" not in err
    assert shell(run)[0] == 0


def test_a_run_that_has_only_a_folder_has_asked_nothing(shell, monkeypatch):
    run = "mnist --recipe quick.toml --epsilon 2 --rows 200"
    with monkeypatch.context() as patch:
        patch.setattr(LabelVault, "release", stop)
        code, _, err = shell(run)
    assert code == 130 and len(list(Path("runs").glob("reproduce/mnist/*/draw-1/run.json"))) == 1
    assert "Stopped before any label was asked." in err and shell(run)[0] == 0


def test_an_estimate_that_is_stopped_exits_as_a_run_does(shell, monkeypatch):
    monkeypatch.setattr(timing, "measured", stop)
    code, out, err = shell("mnist --recipe quick.toml --epsilon 2 --estimate")
    assert (code, out) == (130, "") and err.endswith("Stopped. Estimates that were made before are recorded.\n")


def test_too_many_rows_are_told_before_anything_is_noted(shell):
    code, _, err = shell("mnist --recipe quick.toml --epsilon 2 --rows 5000")
    assert code == 1 and "rows must be" in err and not Path("results").exists()


def test_a_run_that_train_has_changed_since_is_refused_with_what_to_do(shell, command):
    run = "mnist --recipe quick.toml --epsilon 2 --rows 200"
    assert shell(run)[0] == 0
    (folder,) = Path("runs/reproduce/mnist").glob("own-quick-*/draw-1")
    assert command("train", "--resume", "--out", str(folder), "--set", "training.epochs=2")[0] == 0
    code, out, err = shell(f"{run} --results others")
    assert (code, out) == (1, "") and "recipe.toml says otherwise. Remove that folder, or name another by --out." in err
    assert not Path("others").exists()


def test_a_recipe_of_ones_own_by_the_name_of_ours_is_not_ours(shell):
    Path("best-local.toml").write_text(QUICK)
    code, out, err = shell("mnist --recipe best-local.toml --epsilon 2 --rows 200")
    assert (
        code == 0
        and "mnist, own:best-local at epsilon 2" in err
        and "without a record: best-curator, best-local" in out
    )
    (record,) = json.loads(Path("results/mnist.json").read_text())["records"]
    assert record["recipe"] == "own:best-local" and "own:best-local" in Path("results/test-looks.md").read_text()


def test_sums_are_not_estimated(shell):
    code, out, err = shell("movielens-1m --recipe best-curator --estimate")
    assert (code, out) == (1, "") and "has no epochs to time: run it" in err and not Path("results").exists()
