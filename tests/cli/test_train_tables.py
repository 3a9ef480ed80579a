"""`labeldp train` and `labeldp predict` on a table of one's own: what is said, what it costs, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import labeldp as ldp
from labeldp import report
from labeldp.cli import progress
from labeldp.runs import Recipe, RunFolder
from labeldp.runs.plans import Table

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

N_ROWS = 160


def person(number, younger=0):
    """One line of the table: the job tells most of the income, and every seventh age is missing."""
    job, income = ("cook", "low") if number % 2 else ("nurse", "high")
    age = "" if number % 7 == 0 else 20 + number % 40 - younger
    return [f"p{number}", age, "" if number % 11 == 0 else job, income]


def write(name, numbers, **how):
    with open(name, "w", newline="", encoding="utf-8") as file:
        rows = [person(number, **how) for number in numbers]
        csv.writer(file).writerows([["who", "age", "job", "income"], *rows])


QUICK = "--data people.csv --label income --classes low,high --drop who --epsilon 2 --model logistic --set training.rounds=1"


@pytest.fixture
def shell(tmp_path, monkeypatch, command):
    """Run `labeldp ...` in a folder with a table and new rows; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_run", lambda *_, **__: None)
    write("people.csv", range(N_ROWS))
    write("new.csv", range(1000, 1010), younger=0.5)

    return lambda text: command(*shlex.split(text))


def charges(path="people.csv.ledger"):
    return [entry for entry in ldp.Ledger(path).entries() if entry.body["kind"] == "charge"]


def everything():
    return {str(file): file.read_bytes() for file in sorted(Path().rglob("*")) if file.is_file()}


FIGURE = r"\d+\.\d+"
CLOSING = (
    rf"{FIGURE} % right \(95 % interval {FIGURE} to {FIGURE}\), estimated from 32 held-out answers that are noisy too\."
    rf"( Likewise: (AUC {FIGURE} \(.*\); )?log loss {FIGURE} \(95 % interval {FIGURE} to {FIGURE}\)\.)?"
)


def test_a_run_says_which_ledger_it_made_and_what_noisy_answers_tell(shell, tmp_path):
    code, out, err = shell(f"train {QUICK} --out runs/income")
    assert (code, out) == (0, ""), err
    made, stage, figure, promise, place, _ = err.splitlines()
    assert made == (
        f"Ledger {tmp_path}/people.csv.ledger made, with a budget of epsilon 2 for each label: every later run on this file is "
        "charged to it."
    )
    assert stage.startswith("Stage 1: 128 labels released by GroupedResponse at epsilon 2; 2 possible answers to each")
    assert re.fullmatch(CLOSING, figure), figure
    assert promise.startswith("Label differential privacy with epsilon 2 for every label;")
    assert place == "Model, certificate and releases: runs/income"
    assert [len(entry.runs) for entry in charges()] == [32, 128]


def test_json_tells_the_held_out_figures(shell):
    code, out, _ = shell(f"train {QUICK} --json --out run")
    facts = json.loads(out)
    assert code == 0 and facts["test"] == {} and facts["hold_out"]["rows"] == 32
    assert facts["hold_out"]["accuracy"]["low"] <= facts["hold_out"]["accuracy"]["high"]


def test_a_second_run_exits_3_names_the_first_and_leaves_nothing(shell):
    assert shell(f"train {QUICK} --out runs/income")[0] == 0
    before = everything()
    code, out, err = shell(f"train {QUICK} --model forest --out runs/more")
    assert (code, out) == (3, "") and everything() == before and not Path("runs/more").exists()
    named = re.search(r"labeldp (train --from runs/income) --out NEW", err)[1]
    code, _, err = shell(f"{named} --set training.rounds=2 --out runs/more")
    assert code == 0 and "nothing was asked, nothing was charged" in err, err
    assert {name: content for name, content in everything().items() if "more" not in name} == before


def test_public_test_labels_are_asked_for_by_name_and_certified_as_unprotected(shell, tmp_path):
    code, _, err = shell(f"train {QUICK} --public-test new.csv --out run")
    assert code == 0 and re.search(r"^\d+\.\d\d% right on 10 rows of public test data\. That", err, re.M), err
    assert f" That figure comes from the true labels of {tmp_path}/new.csv, which nothing protects.\n" in err
    assert list(RunFolder("run").certificate()["unprotected"]) == [str(tmp_path / "new.csv")]
    assert shell("predict run --out p.csv")[0] == 0 and len(Path("p.csv").read_text().splitlines()) == 11
    code, out, _ = shell("train --resume --json --out run")
    assert code == 0 and json.loads(out)["unprotected"] == [str(tmp_path / "new.csv")]
    code, _, err = shell("train --from run --public-test people.csv --out again")
    assert code == 1 and "public_test must be another file" in err


def test_a_run_is_resumed_from_another_folder_with_another_model_of_its_kind(shell, monkeypatch):
    assert shell(f"train {QUICK} --out run")[0] == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    code, _, err = shell("train --resume --set training.rounds=2 --out ../run")
    assert code == 0 and "Stage 1: 128 labels released earlier by" in err, err
    assert RunFolder("../run").recipe().training.rounds == 2 and len(charges("../people.csv.ledger")) == 2
    code, _, err = shell("train --resume --missing public --out ../run")
    assert code == 1 and "table.missing cannot be changed in ../run: it defines what this run asks" in err


def test_options_stand_in_the_recipe_which_is_the_same_run_again(shell):
    more = "--id who --missing public --hold-out 0.25 --seed 3"
    assert shell(f"train {QUICK.replace('--drop who', '')} {more} --out run")[0] == 0
    recipe = RunFolder("run").recipe()
    assert (recipe.table.id, recipe.table.drop, recipe.table.missing) == ("who", (), "public")
    assert (recipe.release.hold_out, recipe.release.stages, recipe.seed) == (0.25, 1, 3)
    Path("people.csv.ledger").unlink()
    Path("people.csv.ledger.spool").rename("spool")
    code, _, err = shell("train --recipe run/recipe.toml --out again")
    assert code == 1 and "A missing ledger is never replaced by an empty one: restore it" in err
    Path("people.csv.labels.json").unlink()
    assert shell("train --recipe run/recipe.toml --out again")[0] == 0
    assert RunFolder("again").recipe() == recipe


def test_a_recipe_may_leave_the_defaults_to_the_command_line(shell):
    Path("mine.toml").write_text('data = "digits"\nmodel = "logistic"\nepsilon = "1"\n[training]\nrounds = 1\n')
    words = "--data people.csv --label income --classes low,high --drop who"
    assert shell(f"train --recipe mine.toml {words} --out run")[0] == 0
    plan = RunFolder("run").recipe().release
    assert (plan.stages, plan.hold_out) == (1, 0.2)


USAGE = [
    ("--data people.csv --epsilon 1 --model forest", "needs its label column and its classes: --label and --classes"),
    ("--data people.csv --label income --epsilon 1 --model forest", "must say classes."),
    ("--data people.csv --classes low,high --epsilon 1 --model forest", "must say label."),
    ("--data digits --label income --epsilon 1 --model forest", "'digits' is a dataset's name"),
    ("--data digits --public-test new.csv --epsilon 1 --model forest", "'digits' is a dataset's name"),
    (f"{QUICK} --model bosting", "'forest', 'logistic', got 'bosting'. Did you mean 'boosting'?"),
    (f"{QUICK} --model small-conv", "got 'small-conv'. Other models do not read tables."),
    (f"{QUICK} --epochs 3", "training.epochs means nothing to logistic: leave it out."),
    (f"{QUICK} --loss likelihood", "training.loss means nothing to logistic"),
    ("--data digits --model linear --epsilon 1 --set training.folds=3", "training.folds means nothing to linear"),
    (f"{QUICK} --threads 1", "--threads, --accelerator and --devices are of torch models"),
    (f"{QUICK} --devices 2", "--threads, --accelerator and --devices are of torch models"),
    (f"{QUICK} --missing secret", "--missing"),
]


@pytest.mark.parametrize(("words", "says"), USAGE, ids=[words for words, _ in USAGE])
def test_a_wrong_use_is_told_before_anything_is_charged(shell, words, says):
    before = sorted(os.listdir())
    code, out, err = shell(f"train {words} --out run")
    assert (code, out) == (2, "") and says in " ".join(err.split()), err
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"{QUICK} --label wage", "people.csv has no column 'wage' among its 4 columns."),
        (f"{QUICK} --classes low,middle", "declared classes"),
        (f"{QUICK} --data none.csv", "No such file or directory: none.csv"),
        (f"{QUICK} --id job --drop who", "id"),
        (
            "--data fair --model small-conv --epsilon 1",
            "small-conv does not read tables: choose one of boosting, forest",
        ),
    ],
)
def test_failures_say_what_must_hold_and_leave_nothing(shell, words, says):
    before = sorted(os.listdir())
    code, out, err = shell(f"train {words} --out run")
    assert (code, out) == (1, "") and says in err and "Traceback" not in err, err
    assert sorted(os.listdir()) == before


def test_a_stranger_among_the_labels_is_not_quoted(shell):
    text = Path("people.csv").read_text()
    Path("people.csv").write_text(text.replace("p79,59,cook,low", "p79,59,cook,zebra-label"))
    code, out, err = shell(f"train {QUICK} --out run")
    assert (code, out) == (1, "") and "zebra" not in err and "79" not in err and not Path("run").exists()


def test_help_shows_an_example_on_a_table(shell):
    _, out, _ = shell("train --help")
    assert "labeldp train --data table.csv --label income --classes low,high --epsilon 1 --model boosting" in out


def test_a_terminal_sees_rounds_and_finished_bars(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None, highlight=False)
    monkeypatch.setattr(progress, "words", console)
    recipe = Recipe(data="a.csv", model="forest", epsilon="2", table=Table("y", ("a", "b")))
    released = {"rows": 300, "mechanism": "GroupedResponse", "epsilon": "2", "mean_groups": 2.0, "filtered": None}
    with progress.TrainingProgress(recipe) as watch:
        watch({"kind": "stage", "stage": 1, **released})
        watch({"kind": "epoch", "stage": 1, "epoch": 3, "epochs": 5, "loss": 0.48, "hold_out": None})
        watch._progress.refresh()
        watch({"kind": "hold-out", "rows": 10})
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "round 3/5" in text and "round 5/5" in text and "epoch" not in text


# ---------------------------------------------------------------- the book beside the table


def refused(shell, words, says):
    """Run a command that is refused before anything is charged or written."""
    before = everything()
    code, out, err = shell(words)
    assert (code, out) == (1, "") and says in " ".join(err.split()), err
    assert everything() == before


def test_the_same_labels_get_no_second_ledger_from_train_or_privatize(shell, tmp_path):
    for name in ("own", "other"):
        assert shell(f"vault create --ledger {name}.ledger --budget 4")[0] == 0
    assert shell(f"train {QUICK} --ledger own.ledger --out a")[0] == 0
    says = f"the labels of people.csv are charged to {tmp_path}/own.ledger, not to other.ledger: say --ledger {tmp_path}/own"
    refused(shell, f"train {QUICK} --ledger other.ledger --out b", says)
    privatize = "privatize --data people.csv --label income --classes low,high --epsilon 2 --out noisy.csv"
    refused(shell, f"{privatize} --ledger other.ledger", says)
    assert shell(f"train {QUICK} --out b")[0] == 0
    assert len(charges("own.ledger")) == 4 and not Path("people.csv.ledger").exists()
    code, _, err = shell(f"{privatize} --ledger own.ledger")
    assert code == 3 and "epsilon 0 of epsilon 4 is left" in err


def test_the_same_labels_get_no_fresh_epsilon_under_other_ids(shell):
    named = QUICK.replace("--drop who", "--id who")
    assert shell(f"train {named} --out a")[0] == 0
    refused(
        shell, f"train {QUICK} --out b", "the ledger knows the rows of people.csv by the column 'who': say --id who"
    )
    write("people.csv", range(500, 500 + N_ROWS))
    refused(shell, f"train {named} --out b", "ids that were charged are gone from people.csv: were they rewritten?")


def test_a_column_is_not_public_once_it_was_a_label_nor_a_label_once_it_was_public(shell):
    assert shell("vault create --ledger people.csv.ledger --budget 4")[0] == 0
    assert shell(f"train {QUICK} --out a")[0] == 0
    jobs = "--data people.csv --label job --classes cook,nurse --missing public --epsilon 2"
    model = "--model logistic --set training.rounds=1 --out b"
    refused(
        shell,
        f"train {jobs} --drop who --drop income {model}",
        "'job' of people.csv cannot be a label: an earlier run or",
    )
    refused(shell, f"privatize {jobs} --ledger people.csv.ledger --out n.csv", "'job' of people.csv cannot be a label")
    whos = f"--data people.csv --label who --classes p0,{','.join(f'p{n}' for n in range(1, N_ROWS))} --epsilon 2"
    refused(shell, f"train {whos} {model}", "'income' of people.csv was charged as a label in an earlier run")
    refused(shell, f"privatize {whos} --ledger people.csv.ledger --out n.csv", "leave it out with --drop income")


@pytest.mark.parametrize("rows", [range(N_ROWS), range(100, N_ROWS), [5]], ids=len)
def test_training_rows_are_refused_as_a_public_test(shell, rows):
    write("copy.csv", rows)
    refused(shell, f"train {QUICK} --public-test copy.csv --out a", "these look like training rows")
    named = QUICK.replace("--drop who", "--id who")
    refused(shell, f"train {named} --public-test copy.csv --out a", "copy.csv has rows with ids of training rows")
    assert shell(f"train {QUICK} --out a")[0] == 0
    refused(shell, "train --from a --public-test copy.csv --out b", "these look like training rows")


def test_a_first_row_without_a_header_line_is_not_quoted(shell):
    assert shell(f"train {QUICK} --out run")[0] == 0
    Path("bare.csv").write_text("anna,nurse,HIVpositive\nbob,cook,HIVnegative\n")
    choice = "--data bare.csv --label status --classes ill,well --epsilon 1"
    lacks = "bare.csv has no column {} among its 3 columns. The file needs a header line with the names of its columns."
    refused(shell, f"train {choice} --model logistic --out a", lacks.format("'status'"))
    assert shell("vault create --ledger l --budget 1")[0] == 0
    refused(shell, f"privatize {choice} --ledger l --out b.csv", lacks.format("'status'"))
    refused(shell, "predict run --data bare.csv --out p.csv", lacks.format("'age', 'job'"))


# ---------------------------------------------------------------- predicting


@pytest.fixture
def run(shell):
    assert shell(f"train {QUICK} --out run")[0] == 0
    return "run"


def test_new_rows_are_predicted_from_csv_and_parquet_whatever_else_is_in_them(shell, run):
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    code, out, err = shell("predict run --data new.csv --out p.csv")
    assert (code, out, err) == (0, "", "10 rows predicted by logistic (epsilon 2): p.csv\n")
    header, *rows = csv.reader(Path("p.csv").read_text().splitlines())
    assert header == ["row", "predicted", "p(low)", "p(high)"] and {row[1] for row in rows} <= {"low", "high"}
    new = arrow_csv.read_csv("new.csv")
    parquet.write_table(new.drop_columns(["income"]).append_column("more", pa.array(range(10))), "new.parquet")
    assert shell("predict run --data new.parquet --out q.csv")[0] == 0
    assert Path("q.csv").read_bytes() == Path("p.csv").read_bytes()  # the label column was not looked at
    text = Path("new.csv").read_text()
    Path("other.csv").write_text(text.replace(",high", ",nobody knows").replace(",low", ","))
    assert shell("predict run --data other.csv --out r.csv")[0] == 0
    assert Path("r.csv").read_bytes() == Path("p.csv").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--data few.csv", 1, "few.csv has no column 'age' beside its only one. The file needs a header line"),
        ("--data words.csv", 1, "column 'age' must hold numbers only"),
        ("--data none.csv", 1, "No such file or directory: none.csv"),
        ("", 2, "say which rows to predict: --data FILE, a table with the columns of people.csv."),
        ("--data digits", 1, "X must be a DataFrame with the table's columns"),
    ],
)
def test_rows_that_cannot_be_predicted_are_told(shell, run, words, code, says):
    Path("few.csv").write_text("job\ncook\n")
    Path("words.csv").write_text("age,job\nold,cook\n")
    found, out, err = shell(f"predict run {words} --out p.csv")
    assert (found, out) == (code, "") and says in " ".join(err.split()) and not Path("p.csv").exists()


def test_a_named_survey_predicts_rows_of_a_file_with_its_columns(shell):
    code, _, err = shell(
        "train --data breast-cancer --model logistic --epsilon 3 --rows 200 --set training.rounds=1 --out run"
    )
    assert code == 0, err
    assert shell("predict run --out test.csv")[0] == 0
    names, X = RunFolder("run").facts()["inputs"]["columns"], ldp.datasets.load("breast-cancer").X_test
    with open("rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([[*names, "more"], *([*row, "x"] for row in X.tolist())])
    assert shell("predict run --data rows.csv --out rows-predicted.csv")[0] == 0
    assert Path("rows-predicted.csv").read_bytes() == Path("test.csv").read_bytes()
    assert (
        shell("train --data digits --rows 200 --model logistic --epsilon 3 --set training.rounds=1 --out images")[0]
        == 0
    )
    code, _, err = shell("predict images --data rows.csv --out no.csv")
    assert code == 1 and "reads rows of kind 'image': give a .npy file" in err


# ---------------------------------------------------------------- without torch

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "lightning_fabric", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from labeldp import report
from labeldp.cli import main
report.write_run = lambda *_, **__: None
for words in sys.argv[1].split(";"):
    sys.argv = ["labeldp", *words.split()]
    main()
"""


def test_tables_are_trained_on_and_predicted_where_there_is_no_torch(shell, tmp_path):
    words = f"train {QUICK} --out run;predict run --data new.csv --out p.csv"
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, words], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and done.stderr.endswith("10 rows predicted by logistic (epsilon 2): p.csv\n"), (
        done.stderr
    )


def test_predictions_carry_the_ids_of_the_table(shell):
    assert shell(f"train {QUICK.replace('--drop who', '--id who')} --out run")[0] == 0
    assert shell("predict run --data new.csv --out p.csv")[0] == 0
    with open("p.csv", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header[:3] == ["row", "who", "predicted"]
    assert [row[:2] for row in rows] == [[str(number), f"p{1000 + number}"] for number in range(10)]


@pytest.mark.parametrize("name", ["row", "predicted", "p(low)"])
def test_ids_whose_name_is_taken_keep_a_column_of_their_own(shell, name):
    for file in ("people.csv", "new.csv"):
        Path(file).write_text(Path(file).read_text().replace("who", name, 1))
    assert shell(f"train {QUICK.replace('--drop who', f'--id {shlex.quote(name)}')} --out run")[0] == 0
    assert shell("predict run --data new.csv --out p.csv")[0] == 0
    with open("p.csv", newline="", encoding="utf-8") as file:
        header, first, *_ = csv.reader(file)
    assert header == ["row", f"id:{name}", "predicted", "p(low)", "p(high)"] and first[:2] == ["0", "p1000"]


@pytest.mark.parametrize("said", ["epsilon=8", "training.rounds=2"])
def test_a_value_that_is_said_twice_is_refused(shell, said):
    code, _, err = shell(f"train {QUICK} --set {said} --out run")
    key, _, value = said.partition("=")
    assert code == 2 and f"{key} is said twice, as " in err and f" and as {value}: say it once." in err
    assert not Path("people.csv.ledger").exists()


def test_a_folder_that_cannot_be_made_is_refused_before_a_ledger_is(shell):
    Path("file").write_text("mine")
    for out in ("file", "file/run"):
        code, _, err = shell(f"train {QUICK} --out {out}")
        assert code == 1 and "a run needs a folder of its own, and" in err and "file is a file" in err
    assert not Path("people.csv.ledger").exists() and not Path("people.csv.labels.json").exists()


def test_a_folder_that_holds_a_run_is_another_mistake_than_a_spent_budget(shell):
    assert shell(f"train {QUICK} --out run")[0] == 0
    code, _, err = shell(f"train {QUICK} --out run")
    assert code == 2 and "holds a run already. To go on with it: labeldp train --resume --out run" in err
    assert shell(f"train {QUICK} --out other")[0] == 3


def test_a_class_in_quotes_keeps_its_spaces_and_is_named_once(shell):
    Path("spaces.csv").write_text("x,y\n" + "".join(f"{n},{'yes' if n % 2 else ' no'}\n" for n in range(60)))
    how = "--data spaces.csv --label y --epsilon 2 --model logistic --set training.rounds=1 --out run"
    assert "Case and spaces count" in shell(f"train --classes no,yes {how}")[2]
    assert "stands in quotes" in shell(f"train --classes '\"no,yes' {how}")[2]
    assert shell(f"train --classes '\" no\" , yes ' {how}")[0] == 0
    assert "name each class once" in shell(f"train --classes yes,yes {how}")[2]


def test_a_misspelt_setting_is_answered_with_the_one_that_was_meant(shell):
    code, _, err = shell(f"train {QUICK} --set training.ruonds=3 --out run")
    assert code == 2 and "knows no 'ruonds'. Did you mean 'rounds'?" in err


def test_cells_between_semicolons_are_pointed_out(shell):
    Path("semi.csv").write_text(Path("people.csv").read_text().replace(",", ";"))
    err = shell(f"train {QUICK.replace('people.csv', 'semi.csv')} --out run")[2]
    assert "Cells are separated by commas, not by semicolons or tabs." in err


def test_epsilon_is_given_once(shell):
    code, _, err = shell(f"train {QUICK} --epsilon 8 --out run")
    assert code == 2 and "--epsilon is said twice: say it once." in err
    assert not Path("people.csv.ledger").exists()
