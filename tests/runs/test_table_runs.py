"""Runs on a table of one's own: its held-out rows are private too, and its labels are charged to the ledger beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import people
import pytest

import labeldp as ldp
from labeldp import datasets, metrics, runs
from labeldp.errors import BudgetExhausted, InvalidArgument, LedgerError
from labeldp.runs import RunFolder, training

pd = pytest.importorskip("pandas")


def recipe_for(path, **changes):
    values = {"data": str(path), "model": "logistic", "epsilon": "1", "table": people.CHOSEN}
    return runs.Recipe.of(values).changed({"training.rounds": 2} | changes)


@pytest.fixture(params=["csv", "parquet"])
def file(request, tmp_path):
    return people.write(tmp_path / f"people.{request.param}", people.columns())


@pytest.fixture
def table(tmp_path):
    return people.write(tmp_path / "people.csv", people.columns())


@pytest.fixture
def public_test(tmp_path):
    return people.write(tmp_path / "public.csv", people.columns(60, seed=8))


# ---------------------------------------------------------------- a run


def test_every_row_is_asked_once_and_a_fifth_is_only_held_out(file, tmp_path, charges, keys):
    told = []
    run = runs.train(recipe_for(file, **{"table.id": "who"}), tmp_path / "run", watch=told.append)
    held, (release,) = run.hold_out(), run.releases()
    assert sorted([*held.rows, *release.rows]) == list(range(people.N_ROWS)) and len(held) == 40
    assert held.receipt.mechanism["name"] == "RandomizedResponse"
    assert len(charges(f"{file}.ledger")) == 2
    epochs = [("epoch", 1, 1), ("epoch", 1, 2)]
    assert keys(run) == [("stage", 1, None), *epochs, ("hold-out", None, None), ("done", None, None)]
    assert told == [{"kind": "ledger", "file": f"{file}.ledger", "budget": "1"}, *run.records()[:-1]]
    assert [each["learning_rate"] for each in run.records() if each["kind"] == "epoch"] == [None, None]
    assert run.model_file.name == "model.skops" and run.model_file.exists()


def test_its_figures_are_those_of_the_metrics_on_held_out_answers(table, tmp_path):
    run = runs.train(recipe_for(table), tmp_path / "run")
    (found,) = (record for record in run.records() if record["kind"] == "hold-out")
    held = run.hold_out()
    X = datasets.table.read_features(table, run.facts()["inputs"])
    predicted = ldp.load(run.path).predict_proba(X.iloc[held.rows])
    for name in ("accuracy", "log_loss", "auc"):
        estimate = getattr(metrics, name)(held, predicted)
        low, high = estimate.interval(0.95)
        assert (found[name]["value"], found[name]["low"], found[name]["high"]) == (estimate.value, low, high)
    assert (found["rows"], found["confidence"]) == (40, 0.95)


def test_no_figure_on_true_labels_exists_without_a_public_test(table, tmp_path):
    run = runs.train(recipe_for(table), tmp_path / "run")
    assert not [record for record in run.records() if record["kind"] == "test"]
    assert "unprotected" not in run.certificate()


def test_a_public_test_file_is_scored_and_listed_as_unprotected(table, public_test, tmp_path):
    run = runs.train(recipe_for(table, **{"table.public_test": str(public_test)}), tmp_path / "run")
    (test,) = (record for record in run.records() if record["kind"] == "test")
    X = datasets.table.read_features(public_test, run.facts()["inputs"])
    right = ldp.load(run.path).predict_proba(X).argmax(axis=1) == people.labels(60, seed=8)
    assert test["rows"] == 60 and test["accuracy"] == right.mean()
    (listed,) = run.certificate()["unprotected"].items()
    assert listed[0] == str(public_test) and "its labels are public: they were read as they are" in listed[1]


def test_three_classes_are_asked_in_two_stages(tmp_path, charges):
    table = people.columns() | {"income": [("a", "b", "c")[number % 3] for number in range(people.N_ROWS)]}
    file = people.write(tmp_path / "three.csv", table)
    run = runs.train(recipe_for(file, **{"table.classes": ["a", "b", "c"], "release.stages": None}), tmp_path / "run")
    assert len(run.releases()) == 2 and len(charges(f"{file}.ledger")) == 3
    (found,) = (record for record in run.records() if record["kind"] == "hold-out")
    assert "auc" not in found and found["accuracy"]["low"] >= 0


def test_rows_whose_missing_label_is_public_are_never_asked(tmp_path):
    table = people.columns()
    table["income"][3] = table["income"][150] = None
    file = people.write(tmp_path / "gaps.csv", table)
    with pytest.raises(ldp.InvalidLabels):
        runs.train(recipe_for(file), tmp_path / "run")
    run = runs.train(recipe_for(file, **{"table.missing": "public", "rows": 100}), tmp_path / "run")
    asked = np.concatenate([run.hold_out().rows, run.releases()[0].rows])
    assert sorted(asked) == [row for row in range(100) if row != 3]


def test_a_named_survey_and_images_train_scikit_learn_models_too(tmp_path):
    quick = {"training.rounds": 1, "rows": 150}
    survey = runs.train(runs.Recipe(data="breast-cancer", model="logistic", epsilon="2").changed(quick), tmp_path / "a")
    assert survey.ledger_file.exists() and survey.recipe().release.hold_out == 0.02
    assert ldp.load(survey.path).predict(datasets.load("breast-cancer").X_test[:3]).shape == (3,)
    images = runs.train(runs.Recipe(data="digits", model="logistic", epsilon="4").changed(quick), tmp_path / "b")
    assert ldp.load(images.path).predict_proba(datasets.load("digits").X_test).shape == (360, 10)


# ---------------------------------------------------------------- its report


def page_of(run, tmp_path, **held):
    """Return the report of a run as if its noise had told other figures of the held-out rows."""
    from labeldp.report.run import write_run

    records = [record | held if record["kind"] == "hold-out" else record for record in run.records()]
    shutil.copytree(run.path, tmp_path / "copy")
    (tmp_path / "copy" / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    page = write_run(tmp_path / "copy", classes=list(people.CLASSES)).read_text(encoding="utf-8")
    return page.replace("\u00a0", " ")


def test_the_report_tells_what_noisy_answers_tell_and_by_how_much_they_may_be_wrong(table, tmp_path):
    run = runs.train(recipe_for(table), tmp_path / "run")
    right = {"value": 1.043, "standard_error": 0.1, "low": 0.8, "high": 1.0}
    loss = {"value": 0.5, "standard_error": None, "low": 0.25, "high": 0.75}
    page = page_of(run, tmp_path, accuracy=right, log_loss=loss, auc=None)
    assert "<h1>100.0 % right at epsilon 1, by 40 noisy held-out answers</h1>" in page  # not 104 %
    assert "95 % interval 80.0 % to 100.0 %" in page and "log loss</td><td>0.500</td><td>not known</td>" in page
    assert "0.250 to 0.750" in page and "AUC" not in page and "No true label was looked at" in page
    assert "The table " in page and "An epoch is a round of expectation maximisation" in page


def test_the_report_lists_public_test_labels_as_unprotected(table, public_test, tmp_path):
    run = runs.train(recipe_for(table, **{"table.public_test": str(public_test)}), tmp_path / "run")
    page = page_of(run, tmp_path)
    assert f"Those of {public_test} were read as they are" in page and "on public test data at epsilon 1</h1>" in page
    assert '<section id="hold-out">' in page and "Estimated from 40 rows" in page


# ---------------------------------------------------------------- the ledger beside the data


def test_a_second_run_on_the_file_is_refused_and_told_of_the_first(table, tmp_path, charges):
    runs.train(recipe_for(table), tmp_path / "first")
    before = (tmp_path / "people.csv.ledger").read_bytes()
    (tmp_path / "link.csv").symlink_to(table)
    for path in (table, tmp_path / "link.csv"):
        with pytest.raises(BudgetExhausted, match=r"epsilon 0 is left in .*people\.csv\.ledger.*--from .*first"):
            runs.train(recipe_for(path), tmp_path / "second")
    assert not (tmp_path / "second").exists() and (tmp_path / "people.csv.ledger").read_bytes() == before


def test_the_certificate_says_where_the_ledger_is(table, tmp_path):
    certificate = runs.train(recipe_for(table), tmp_path / "run").certificate()
    assert certificate["ledger file"] == f"{table}.ledger" and certificate["spent"]["epsilon"] == "1"
    assert certificate["ledger place"].startswith("beside the data. The book beside them")


def test_a_table_that_gained_rows_needs_ids(tmp_path):
    for name, chosen in (("plain", {}), ("named", {"table.id": "who"})):
        file = people.write(tmp_path / f"{name}.csv", people.columns())
        runs.train(recipe_for(file, **chosen), tmp_path / name)
        people.write(file, people.columns(people.N_ROWS + 1))
        refusal = LedgerError if name == "plain" else BudgetExhausted
        with pytest.raises(refusal, match=r"needs ids|epsilon 0 is left"):
            runs.train(recipe_for(file, **chosen), tmp_path / "more")
    assert not (tmp_path / "more").exists()


def test_an_owners_ledger_is_charged_if_there_is_none_beside_the_data(table, tmp_path, charges):
    with pytest.raises(InvalidArgument, match=r"labeldp vault create --ledger .*owner --budget 1 --rows 200"):
        runs.train(recipe_for(table), tmp_path / "run", ledger=tmp_path / "owner")
    ldp.create_ledger(tmp_path / "owner", budget="2")
    run = runs.train(recipe_for(table), tmp_path / "run", ledger=tmp_path / "owner")
    place = run.certificate()["ledger place"]
    assert place.startswith("given by its owner. The book beside the data") and len(charges(tmp_path / "owner")) == 2
    again = runs.train(recipe_for(table), tmp_path / "again")  # the book knows whom to charge
    assert again.certificate()["spent"]["epsilon"] == "2" and len(charges(tmp_path / "owner")) == 4
    covers = again.certificate()["covers"]
    assert (
        covers.startswith("the releases of this run (ledger entries 5, 6) and 2 other queries: ")
        and "entry 6. W" in covers
    )
    assert again.certificate()["ledger place"] == place and not Path(f"{table}.ledger").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"table.label": "wage"}, "has no column 'wage'"),
        ({"table.classes": ["low", "middle"]}, "declared"),
        ({"training.rounds": 0}, "rounds must be at least 1"),
        ({"rows": 300}, "rows must be between 1 and 200"),
        ({"table.drop": ["age", "job", "empty", "who"]}, "at least one column"),
        ({"table.drop": ["age", "job", "who"]}, "a column that says something"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_makes_no_ledger_and_no_folder(table, tmp_path, changes, words):
    with pytest.raises(InvalidArgument) as refused:
        runs.train(recipe_for(table, **changes), tmp_path / "run")
    assert words in str(refused.value) and [file.name for file in tmp_path.iterdir()] == ["people.csv"]


# ---------------------------------------------------------------- again


@pytest.fixture
def no_labels(monkeypatch):
    """From here on nobody reads a column of labels."""

    def fail(*_, **__):
        raise AssertionError("labels were read")

    monkeypatch.setattr(datasets.table, "read_labels", fail)
    monkeypatch.setattr(training, "LabelVault", fail)


def test_another_model_is_trained_without_looking_at_the_labels(table, tmp_path, request):
    first = runs.train(recipe_for(table), tmp_path / "first")
    request.getfixturevalue("no_labels")
    again = runs.train_again(first.recipe().changed({"training.rounds": 1}), first.path, tmp_path / "again")
    assert again.certificate()["trained again"] and ldp.load(again.path).recipe.training.rounds == 1
    assert again.hold_out().reports.tolist() == first.hold_out().reports.tolist()
    changed = first.recipe().changed({"table.label": "job", "table.drop": ["who"]})
    with pytest.raises(InvalidArgument, match=r"table\.label, table\.drop cannot be changed"):
        runs.train_again(changed, first.path, tmp_path / "no")


def test_public_tests_come_and_go_and_none_is_forgotten(table, public_test, tmp_path):
    other = people.write(tmp_path / "other.csv", people.columns(40, seed=9))
    first = runs.train(recipe_for(table, **{"training.rounds": 1}), tmp_path / "first")
    with_test, with_other = (first.recipe().changed({"table.public_test": str(each)}) for each in (public_test, other))
    tested = runs.train_again(with_test, first.path, tmp_path / "tested")
    assert list(tested.certificate()["unprotected"]) == [str(public_test)]
    untested = runs.train_again(first.recipe(), tested.path, tmp_path / "untested")
    assert list(untested.certificate()["unprotected"]) == [str(public_test)]  # its settings may have been chosen by it
    assert not [record for record in untested.records() if record["kind"] == "test"]
    both = [str(public_test), str(other)]
    again = runs.train_again(with_other, first.path, tested.path, otherwise=True)
    assert list(again.certificate()["unprotected"]) == again.facts()["unprotected"] == both
    for recipe, known in ((with_test, both[:1]), (with_other, both), (first.recipe(), both)):
        resumed = runs.train(recipe, first.path, otherwise=True)
        assert list(resumed.certificate()["unprotected"]) == resumed.facts()["unprotected"] == known


def test_the_public_test_of_an_older_run_folder_is_still_known(table, public_test, tmp_path):
    run = runs.train(recipe_for(table, **{"table.public_test": str(public_test)}), tmp_path / "run")
    for written, known in ((str(public_test), [str(public_test)]), (None, [])):
        run.facts_file.write_text(json.dumps(run.facts() | {"unprotected": written}))
        assert run.facts()["unprotected"] == known


@pytest.mark.parametrize("how", ["swapped", "changed", "grown"])
def test_features_that_are_not_those_of_the_asked_rows_are_refused(table, tmp_path, how):
    """Their noisy labels would be those of other rows."""
    first = runs.train(recipe_for(table, **{"table.id": "who"}), tmp_path / "first")
    columns = people.columns(people.N_ROWS + (how == "grown"))
    if how == "swapped":
        columns = {name: cells[::-1] for name, cells in columns.items()}
    elif how == "changed":
        columns["job"][0] = "cook" if columns["job"][0] != "cook" else "nurse"
    people.write(table, columns)
    with pytest.raises(InvalidArgument, match="are not those of the rows whose labels this run asked"):
        runs.train_again(first.recipe(), first.path, tmp_path / "again")
    with pytest.raises(InvalidArgument, match="are not those of the rows whose labels this run asked"):
        runs.train(first.recipe(), first.path)
    assert not (tmp_path / "again").exists()


def test_a_run_goes_on_where_its_table_and_ledger_were_moved_to(table, tmp_path, charges):
    recipe = recipe_for("people.csv")
    first = runs.train(recipe, tmp_path / "run", data_dir=tmp_path)
    (tmp_path / "moved").mkdir()
    for file in tmp_path.glob("people.csv*"):
        shutil.move(file, tmp_path / "moved" / file.name)
    again = runs.train(recipe, first.path, data_dir=tmp_path / "moved")
    assert len(charges(tmp_path / "moved" / "people.csv.ledger")) == 2
    assert again.certificate()["ledger file"] == str(tmp_path / "moved" / "people.csv.ledger")


# ---------------------------------------------------------------- no label leaves


def test_what_is_written_is_the_same_whatever_the_labels(tmp_path):
    shown = []
    for number, truth in enumerate((np.zeros(people.N_ROWS, int), np.ones(people.N_ROWS, int))):
        (tmp_path / str(number)).mkdir()
        people.write(tmp_path / str(number) / "people.csv", people.columns(truth=truth))
        run = runs.train(recipe_for("people.csv"), tmp_path / str(number) / "run", data_dir=tmp_path / str(number))
        facts, certificate = run.facts(), run.certificate()
        own = ("id", "name", "started", "ledger", "data_dir")
        for query in certificate["queries"]:
            query.update(name=None, time=None)
        kept = {key: value for key, value in certificate.items() if not key.startswith("ledger")}
        public = {key: value for key, value in facts.items() if key not in own}
        shown.append((public, kept, run.records()[0], run.recipe_file.read_text()))
    assert shown[0] == shown[1]


def test_no_file_of_a_run_nor_of_its_ledger_holds_the_labels(tmp_path):
    from labeldp.report.run import write_run

    table = people.write(tmp_path / "data.csv", people.columns())
    run = runs.train(recipe_for(table), tmp_path / "run")
    write_run(run.path)
    held, (release,) = run.hold_out(), run.releases()
    truth = people.labels()
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != table]
    assert {"run.json", "model.skops", "data.csv.ledger", "report.html", "checkpoint-1.pt"} <= {
        file.name for file in files
    }
    for file in files:
        content = file.read_bytes()
        for rows in (np.arange(people.N_ROWS), held.rows, release.rows):
            column = truth[rows[-40:]]
            forms = [column.astype(kind).tobytes() for kind in ("?", "i2", "i4", "i8", "f4", "f8")]
            for cells in (column, [people.CLASSES[number] for number in column]):
                forms += [mark.join(map(str, cells)).encode() for mark in ("", ",", ", ", " ", "\n", '", "')]
            assert not any(form in content for form in forms), file


@pytest.mark.parametrize("where", ["fit", "check", "save", "predict_proba"])
def test_an_error_inside_training_shows_no_label(tmp_path, monkeypatch, where):
    from test_labels_stay_in import everything_said

    from labeldp.sklearn import SklearnLearner

    def fail(*_, **__):
        raise ZeroDivisionError("oh")

    table = people.write(tmp_path / "people.csv", people.columns(truth=np.ones(people.N_ROWS, int)))
    monkeypatch.setattr(SklearnLearner, where, fail)
    with pytest.raises(ZeroDivisionError) as failed:
        runs.train(recipe_for(table), tmp_path / "run")
    said = everything_said(failed.value)
    assert "recipe" in said  # locals were looked at
    for label in ("1", "high", "True"):
        assert not any(mark.join([label] * 3) in said for mark in (", ", " ", ",", "\n", "', '"))


def test_a_label_outside_the_classes_is_in_no_error(tmp_path):
    columns = people.columns()
    columns["income"][77] = "zebra-label"
    file = people.write(tmp_path / "people.csv", columns)
    with pytest.raises(ldp.InvalidLabels) as refused:
        runs.train(recipe_for(file), tmp_path / "run")
    from test_labels_stay_in import everything_said

    said = everything_said(refused.value)
    assert "zebra" not in said and "77" not in str(refused.value)
    assert [file.name for file in tmp_path.iterdir()] == ["people.csv"]


# ---------------------------------------------------------------- what must not be installed

WITHOUT_TORCH = """
import sys
BLOCKED = ("torch", "lightning_fabric", "safetensors")

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from pathlib import Path
import labeldp as ldp
from labeldp import datasets, report, runs
report.write_run = lambda *_, **__: None
recipe = runs.Recipe.read(Path("recipe.toml"))
run = runs.train(recipe, Path("run"))
again = runs.train_again(recipe, run.path, Path("again"))
X = datasets.table.read_features("people.csv", run.facts()["inputs"])
print(len(ldp.load("again").predict(X)))
for model in ("linear", "bosting"):
    try:
        runs.train(runs.Recipe(data="digits", model=model, epsilon="1"), Path("no"))
    except ldp.LabelDPError as error:
        print(type(error).__name__, error)
"""

WITHOUT_SKLEARN = """
import sys
sys.modules.update({"sklearn": None, "skops": None})
from pathlib import Path
import numpy as np
import labeldp as ldp
from labeldp import runs
from labeldp.runs import RunFolder, learners
for model in ("linear", "boosting"):
    try:
        learners.check_known(model)
        print(model, "is there")
    except ldp.LabelDPError as error:
        print(type(error).__name__, error)
print(runs.load(sys.argv[1]).predict_proba(np.zeros((2, 1, 8, 8), np.uint8)).shape)
try:
    runs.load(sys.argv[2])
except ldp.LabelDPError as error:
    print(type(error).__name__, error)
"""


def said_by(script, *arguments, cwd):
    words = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_tables_need_no_torch(table, tmp_path):
    (tmp_path / "recipe.toml").write_text(recipe_for("people.csv").toml())
    rows, missing, meant = said_by(WITHOUT_TORCH, cwd=tmp_path)
    assert rows == "200" and missing.startswith("MissingExtra linear needs torch: pip install 'labeldp[torch]'.")
    assert meant.startswith("InvalidArgument model must be one of 'boosting', ") and meant.endswith("mean 'boosting'?")


def test_torch_models_need_no_scikit_learn(finished, table, tmp_path):
    other = runs.train(recipe_for(table), tmp_path / "run")
    there, missing, shape, not_loaded = said_by(WITHOUT_SKLEARN, finished.path, other.path, cwd=tmp_path)
    assert (there, shape) == ("linear is there", "(2, 10)")
    assert missing == "MissingExtra boosting needs scikit-learn and skops: pip install 'labeldp[sklearn]'."
    assert not_loaded == missing.replace("boosting", "logistic")


# ---------------------------------------------------------------- a loaded run


def test_a_loaded_run_reads_any_frame_with_the_columns(table, tmp_path):
    run = ldp.load(runs.train(recipe_for(table, **{"table.drop": ["who"]}), tmp_path / "run").path)
    assert repr(run) == f"<Run {tmp_path / 'run'}: logistic on {table}, epsilon 1>"
    read = datasets.table.read_features(table, run.inputs)
    plain = pd.read_csv(table, keep_default_na=True)[["income", "job", "empty", "age"]]  # other order, other types
    assert run.predict_proba(plain).tobytes() == run.predict_proba(read).tobytes()
    assert set(run.predict(plain)) <= set(people.CLASSES)
    with pytest.raises(InvalidArgument, match="it lacks 'job', 'empty'"):
        run.predict(plain[["age"]])
    with pytest.raises(InvalidArgument, match="X must be a DataFrame with the table's columns, got ndarray"):
        run.predict(plain.to_numpy())
    for cells in ([[1]] * len(plain), [1, "a"] * (len(plain) // 2), ["a"] * len(plain)):
        with pytest.raises(InvalidArgument, match=r"column 'age' .*must (be|hold) numbers"):
            run.predict(plain.assign(age=cells))


def test_rows_of_another_shape_are_refused(tmp_path):
    quick = {"training.rounds": 1, "rows": 100}
    survey = runs.train(runs.Recipe(data="breast-cancer", model="logistic", epsilon="2").changed(quick), tmp_path / "a")
    for X in (np.zeros((2, 3)), np.zeros(30), [[0.0] * 30], np.array([["a"] * 30])):
        with pytest.raises(InvalidArgument, match=r"X must be an array of numbers, \(n, 30\); got"):
            ldp.load(survey.path).predict(X)


def test_an_older_run_folder_says_less_and_is_read(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "old")
    old = RunFolder(tmp_path / "old")
    facts = json.loads(old.facts_file.read_text())
    for key in ("features", "unprotected", "ledger_is_beside"):
        facts.pop(key)
    old.facts_file.write_text(json.dumps(facts))
    assert runs.train(finished.recipe(), old.path).model_file.read_bytes() == finished.model_file.read_bytes()
