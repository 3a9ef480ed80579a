"""From a recipe to a folder: what is in it, what it cost, and what is refused before it costs anything."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import labeldp as ldp
from labeldp import datasets, report, runs
from labeldp.errors import BudgetExhausted, InvalidArgument, LedgerError, MissingExtra
from labeldp.report import run as report_of_a_run
from labeldp.runs import RunFolder
from labeldp.runs.inputs import Public


def test_a_finished_run_has_everything(recipe, tmp_path, charges, keys, monkeypatch):
    monkeypatch.setattr(report, "write_run", report_of_a_run.write_run)
    told = []
    run = runs.train(recipe, tmp_path / "deep" / "run", watch=told.append)
    assert sorted(file.name for file in run.path.iterdir() if not file.name.startswith(("checkpoint", "ledger"))) == [
        *("certificate.json", "metrics.jsonl", "model.safetensors", "recipe.toml"),
        *("release-1.json", "release-1.npz", "release-2.json", "release-2.npz"),
        *("release-hold-out.json", "release-hold-out.npz", "report.html", "run.json"),
    ]
    assert run.recipe() == recipe and "epsilon 2" in run.report_file.read_text(encoding="utf-8")
    epochs = [[("stage", n, None), ("epoch", n, 1), ("epoch", n, 2), ("test", n, None)] for n in (1, 2)]
    assert keys(run) == [*epochs[0], *epochs[1], ("hold-out", None, None), ("done", None, None)]
    assert told == run.records()[:-1]
    assert len(charges(run.ledger_file)) == 3 and set(load_file(run.model_file)) == {"1.weight", "1.bias"}
    rows = np.concatenate([release.rows for release in (*run.releases(), run.hold_out())])
    assert sorted(rows) == list(range(200))
    assert all(release.private for release in run.releases())


def test_the_certificate_lists_every_query_and_where_its_prior_came_from(finished, charges):
    certificate = finished.certificate()
    held, first, second = certificate["queries"]
    assert (held["mechanism"]["name"], held["source"]) == ("RandomizedResponse", "none needed")
    assert (first["mechanism"]["name"], first["source"], first["priors"]) == ("GroupedResponse", "none needed", None)
    assert second["source"] == f"releases {first['entry']} of ledger {certificate['ledger']['id']}"
    assert second["priors"] is not None
    paid = [entry.number for entry in charges(certificate["ledger file"])]
    assert [query["entry"] for query in certificate["queries"]] == paid
    assert certificate["spent"]["epsilon"] == "2" and certificate["private"]
    assert [release.receipt.ledger["entry"] for release in finished.releases()] == [first["entry"], second["entry"]]


def test_the_certificate_says_which_ledger_was_charged(recipe, finished, tmp_path):
    assert finished.certificate()["ledger place"] == "given by its owner"
    assert not finished.ledger_file.exists()
    own = runs.train(recipe, tmp_path / "own")
    assert own.certificate()["ledger file"] == str(own.ledger_file)
    assert "goes by the name of a public benchmark: it covers this run alone" in own.certificate()["ledger place"]


def test_one_stage_without_a_hold_out_is_one_query(recipe, tmp_path, charges):
    plain = {"release.stages": 1, "release.hold_out": 0.0, "release.mechanism": "RandomizedResponse"}
    run = runs.train(recipe.changed(plain | {"training.loss": "noisy-label"}), tmp_path)
    (entry,) = charges(run.ledger_file)
    assert len(entry.runs) == 200 and run.hold_out() is None and len(run.releases()) == 1


def test_the_papers_own_settings_run(recipe, tmp_path):
    paper = {"release.mechanism": "RRWithPrior", "release.split": [0.6, 0.4], "release.temperature": 0.5}
    paper |= {"training.loss": "noisy-label", "training.filter": "round", "training.mixup": [4.0, 4.0]}
    run = runs.train(recipe.changed(paper), tmp_path)
    stages = [record for record in run.records() if record["kind"] == "stage"]
    assert stages[0]["filtered"] is None and stages[1]["filtered"]["rows"] == stages[0]["rows"] == 118
    assert len(runs.load(run.path).predict(datasets.load("digits").X_test)) == 360


def test_a_written_recipe_is_the_same_run_again(recipe, finished, tmp_path):
    again = runs.train(runs.Recipe.read(finished.recipe_file), tmp_path / "again")
    assert again.recipe_file.read_bytes() == finished.recipe_file.read_bytes()


def test_seed_releases_and_threads_decide_the_model(finished, tmp_path, recipe):
    first, second = (runs.train_again(recipe, finished.path, tmp_path / name) for name in "ab")
    other = runs.train_again(recipe.changed({"seed": 1}), finished.path, tmp_path / "c")
    model = finished.model_file.read_bytes()
    assert first.model_file.read_bytes() == second.model_file.read_bytes() == model
    assert other.model_file.read_bytes() != model


# ---------------------------------------------------------------- spent labels


def test_spent_labels_are_refused_before_there_is_a_folder(recipe, finished, tmp_path, monkeypatch):
    ledger = finished.path.parent / "owner.ledger"
    before = ledger.read_bytes()
    monkeypatch.chdir(finished.path.parent)
    with pytest.raises(BudgetExhausted) as refused:
        runs.train(recipe, tmp_path / "new", ledger=ledger)
    assert "needs epsilon 2 for every label, and epsilon 0 is left in" in str(refused.value)
    assert "at no cost: labeldp train --from run --out NEW" in str(refused.value)
    assert not (tmp_path / "new").exists() and ledger.read_bytes() == before
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BudgetExhausted, match=f"--from {finished.path} --out NEW"):
        runs.train(recipe, tmp_path / "new", ledger=ledger)


def test_the_folder_of_the_advice_can_be_pasted(recipe, tmp_path):
    ldp.create_ledger(tmp_path / "ledger", budget="2", n_rows=1437)
    runs.train(recipe, tmp_path / "it's mine (run 3)", ledger=tmp_path / "ledger")
    with pytest.raises(BudgetExhausted) as refused:
        runs.train(recipe, tmp_path / "new", ledger=tmp_path / "ledger")
    assert """/it'"'"'s mine (run 3)' --out NEW""" in str(refused.value)


def test_a_budget_too_small_from_the_start_speaks_of_no_earlier_run(recipe, tmp_path):
    ldp.create_ledger(tmp_path / "ledger", budget="1")
    with pytest.raises(BudgetExhausted, match="Nothing was released yet: ask for less") as refused:
        runs.train(recipe, tmp_path / "new", ledger=tmp_path / "ledger")
    assert "--from" not in str(refused.value) and not (tmp_path / "new").exists()


def test_a_ledger_with_room_for_two_runs_takes_two(recipe, tmp_path, charges):
    ldp.create_ledger(tmp_path / "ledger", budget="4")
    for name in "ab":
        runs.train(recipe, tmp_path / name, ledger=tmp_path / "ledger")
    assert len(charges(tmp_path / "ledger")) == 6
    assert RunFolder(tmp_path / "b").certificate()["spent"]["epsilon"] == "4"


def test_a_ledger_that_is_not_there_is_asked_for(recipe, tmp_path):
    with pytest.raises(InvalidArgument, match=r"labeldp vault create --ledger .*none --budget 2 --rows 1437"):
        runs.train(recipe, tmp_path / "new", ledger=tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_a_ledger_of_other_rows_is_refused(recipe, tmp_path):
    ldp.create_ledger(tmp_path / "ledger", budget="2", n_rows=300)
    with pytest.raises(LedgerError, match="for 300 rows, but the dataset has 1437"):
        runs.train(recipe, tmp_path / "new", ledger=tmp_path / "ledger")
    assert not (tmp_path / "new").exists()


def test_a_run_keeps_its_recipe_and_its_ledger(recipe, finished, tmp_path):
    with pytest.raises(InvalidArgument, match="holds a run of another recipe"):
        runs.train(recipe.changed({"training.epochs": 3}), finished.path)
    with pytest.raises(InvalidArgument, match="it cannot change its ledger"):
        runs.train(recipe, finished.path, ledger=tmp_path / "other")


# ---------------------------------------------------------------- refused before anything is spent

DOOMED = [
    ({"model": "tinyconv"}, "model must be one of 'inception-small', 'linear', 'medium-conv', 'mlp', "),
    ({"model": "tinyconv"}, "got 'tinyconv'. Did you mean 'tiny-conv'?"),
    ({"model": "ncf"}, "ncf takes inputs"),
    ({"data": "digit"}, "Did you mean 'digits'?"),
    ({"training.loss": "likely"}, "loss must be one of"),
    ({"training.loss": "noisy-label"}, "reports groups of labels, and this learner needs one noisy label per row"),
    ({"training.filter": "floor"}, "filter drops rows by looking at their reports"),
    ({"training.optimizer": "adagrad"}, "optimizer must be one of 'sgd', 'adam"),
    ({"training.schedule": "cosine"}, "schedule must be one of"),
    ({"training.epochs": 0}, "epochs must be at least 1"),
    ({"training.crop": -1}, "crop"),
    ({"release.stages": 0}, "stages must be at least 1"),
    ({"release.stages": 201}, "rows are too few to give each of 201 stages at least one"),
    ({"release.hold_out": 1.0}, "hold_out must lie in [0, 1)"),
    ({"release.hold_out": 0.999}, "200 rows are too few"),
    ({"release.split": [0.5, 0.6]}, "split must be 2 positive shares"),
    ({"rows": 0}, "rows must be between 1 and 1437"),
    ({"rows": 10**6}, "rows must be between 1 and 1437"),
    ({"seed": -1}, "seed must be"),
]


@pytest.mark.parametrize(("changes", "words"), DOOMED, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_what_cannot_be_trained_leaves_no_folder(recipe, tmp_path, changes, words):
    with pytest.raises(InvalidArgument) as refused:
        runs.train(recipe.changed(changes), tmp_path / "new")
    assert words in str(refused.value) and not (tmp_path / "new").exists()


def test_a_ledger_left_by_a_run_that_never_began_is_used(recipe, tmp_path, charges):
    (tmp_path / "run").mkdir()
    made = ldp.create_ledger(tmp_path / "run" / "ledger", budget="2", n_rows=1437)
    run = runs.train(recipe, tmp_path / "run")
    assert ldp.Ledger(run.ledger_file).id == made.id and len(charges(run.ledger_file)) == 3


def test_a_loss_that_grows_past_all_numbers_is_said_and_the_run_remains(recipe, tmp_path, charges):
    with pytest.raises(ldp.LabelDPError, match="lower learning_rate"):
        runs.train(recipe.changed({"training.learning_rate": 1e30, "release.hold_out": 0.0}), tmp_path)
    assert len(charges(tmp_path / "ledger")) == 1 and not RunFolder(tmp_path).model_file.exists()


# ---------------------------------------------------------------- around it


def test_a_run_without_matplotlib_is_whole_without_its_report(recipe, tmp_path, monkeypatch):
    def missing(*_, **__):
        raise MissingExtra("The report needs matplotlib.")

    monkeypatch.setattr(report, "write_run", missing)
    run = runs.train(recipe, tmp_path)
    assert run.model_file.exists() and not run.report_file.exists() and run.records()[-1]["kind"] == "done"


def test_training_leaves_torchs_own_generator_alone(recipe, tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    runs.train(recipe, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_ratings_are_graded_by_their_expected_value(tmp_path, recipe, monkeypatch):
    rng = np.random.default_rng(0)
    X, labels = rng.integers(0, 6, (300, 2)), rng.integers(0, 5, 300)
    ratings = datasets.dataset.Dataset(
        "movielens-1m",
        X=X[:200],
        labels=datasets.dataset.NumberedLabels(labels[:200].astype(np.int16)),
        classes=(1, 2, 3, 4, 5),
        X_test=X[200:],
        test_labels=labels[200:],
        inputs={"kind": "ids", "sizes": [6, 6]},
    )
    monkeypatch.setattr(datasets, "load", lambda *_, **__: ratings)
    run = runs.train(recipe.changed({"data": "movielens-1m", "model": "ncf"}), tmp_path)
    last = [record for record in run.records() if record["kind"] == "test"][-1]
    assert last["rows"] == 100 and 0 < last["rmse"] < 4 and "accuracy" not in last
    predicted = runs.load(tmp_path).predict_proba(ratings.X_test)
    error = predicted @ np.arange(1, 6) - (labels[200:] + 1)
    assert last["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)


def test_done_tells_the_time_of_all_epochs(finished):
    records = finished.records()
    assert records[-1]["seconds"] == pytest.approx(sum(r["seconds"] for r in records if r["kind"] == "epoch"))
    assert json.loads(finished.metrics_file.read_text().splitlines()[-1]) == records[-1]


# ---------------------------------------------------------------- a release and the certificate that speaks of it


def test_a_folder_with_releases_and_no_run_is_not_begun_in(recipe, finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "copy")
    RunFolder(tmp_path / "copy").facts_file.unlink()
    with pytest.raises(InvalidArgument, match="releases of a run that is not there any more"):
        runs.train(recipe, tmp_path / "copy")


def test_training_again_needs_a_certificate_of_the_very_releases(recipe, finished, tmp_path):
    """Entry numbers repeat from ledger to ledger; a ledger's id does not."""
    other = runs.train(recipe, tmp_path / "other")
    shutil.copytree(finished.path, tmp_path / "mixed")
    for ending in ("json", "npz"):
        shutil.copyfile(other.path / f"release-1.{ending}", tmp_path / "mixed" / f"release-1.{ending}")
    with pytest.raises(InvalidArgument, match="a release that its certificate does not know"):
        runs.train_again(recipe, tmp_path / "mixed", tmp_path / "again")
    with pytest.raises(InvalidArgument, match="not this vault's answer"):
        runs.train(recipe, tmp_path / "mixed")
    runs.train_again(recipe, finished.path, tmp_path / "good")
    unprotected = datasets.load("digits").unprotected(rows=other.releases()[0].rows)
    unprotected.save(tmp_path / "good" / "release-1")
    with pytest.raises(InvalidArgument, match="a release that its certificate does not know"):
        runs.train_again(recipe, finished.path, tmp_path / "good")


def test_the_first_rows_are_charged_to_the_ledger_of_all(recipe, tmp_path):
    """Two runs on the first rows, under one owner's ledger, spend on the same labels."""
    made = ldp.create_ledger(tmp_path / "ledger", budget="2", n_rows=1437)
    runs.train(recipe, tmp_path / "first", ledger=made.path)
    with pytest.raises(BudgetExhausted, match="epsilon 0 is left"):
        runs.train(recipe.changed({"rows": 100}), tmp_path / "second", ledger=made.path)


def test_two_processes_never_train_in_one_folder(recipe, finished):
    with finished.locked(), pytest.raises(InvalidArgument, match="another process is training"):
        runs.train(recipe, finished.path)


def test_a_folder_stays_locked_when_its_files_are_replaced(finished, tmp_path):
    run = RunFolder(shutil.copytree(finished.path, tmp_path / "run"))
    with run.locked():
        run._write_facts(run.facts())
        with pytest.raises(InvalidArgument, match="another process is training"), run.locked():
            pass


def test_what_another_process_has_just_noted_is_not_forgotten(recipe, finished, tmp_path, monkeypatch):
    run = RunFolder(shutil.copytree(finished.path, tmp_path / "run"))
    locked, before = RunFolder.locked, run.facts()["unprotected"]

    @contextmanager
    def just_after_another(folder):
        with locked(folder):
            folder._write_facts(folder.facts() | {"unprotected": [*before, "theirs"]})
            yield

    monkeypatch.setattr(RunFolder, "locked", just_after_another)
    run.go_on(recipe, Public(datasets.load("digits")), unprotected=["ours"])
    assert run.facts()["unprotected"] == [*before, "theirs", "ours"]
