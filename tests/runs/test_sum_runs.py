"""Runs on sums of ratings: what they ask of a curator, what they leave in the folder, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from labeldp import runs
from labeldp.errors import InvalidArgument
from labeldp.runs import Recipe

RECIPE = Recipe.of(
    {"data": "movielens-1m", "model": "rating-sums", "epsilon": "2", "sums": {}, "release": {"hold_out": 0}}
)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A thousand ratings of thirty users, whose later items are better."""
    place, rng = tmp_path_factory.mktemp("data") / "ml-1m", np.random.default_rng(0)
    place.mkdir()
    pairs = rng.integers(1, [31, 41], (1000, 2))
    stars = np.clip(pairs[:, 1] // 10 + 1 + rng.integers(0, 2, 1000), 1, 5)
    lines = [f"{user}::{item}::{star}::0\n" for (user, item), star in zip(pairs, stars, strict=True)]
    (place / "ratings.dat").write_text("".join(lines))
    return place.parent


@pytest.fixture(scope="module")
def finished(data_dir, one_thread, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labeldp.report.write_run", lambda *_, **__: None)
        return runs.train(RECIPE, tmp_path_factory.mktemp("sums") / "run", data_dir=data_dir)


def test_two_rounds_cost_epsilon_together_and_trust_a_curator(finished):
    certificate = finished.certificate()
    assert (certificate["trust"], certificate["spent"]["epsilon"]) == ("curator", "2")
    assert [(query["query"], query["epsilon"]) for query in certificate["queries"]] == [
        ("sums", "0.8"),
        ("sums", "1.2"),
    ]
    first, second = (query["entry"] for query in certificate["queries"])
    assert f"ledger entries {first}, {second})" in certificate["covers"]
    assert {file.stem for file in finished.path.glob("release-*.json")} == {"release-items", "release-users"}


def test_the_model_is_tested_and_predicts_from_its_file(finished, data_dir):
    (test,) = (record for record in finished.records() if record["kind"] == "test")
    assert test["rows"] == 200 and test["rmse"] < 1.2
    better = runs.load(finished.path).predict_proba(np.array([[0, 39], [0, 0]])) @ np.arange(1, 6)
    assert better[0] > better[1] + 0.5


def test_a_run_that_is_gone_on_with_asks_nothing(finished, data_dir):
    before = finished.certificate()
    again = runs.train(RECIPE, finished.path, data_dir=data_dir)
    assert again.certificate()["queries"] == before["queries"]


def test_the_recipe_comes_back_from_toml():
    assert Recipe.parse(RECIPE.toml()) == RECIPE and RECIPE.release.stages == 0
    assert RECIPE.other_releases_than(RECIPE.changed({"sums.share": 0.5})) == ["sums"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"release.hold_out": 0.1}, "take all of epsilon"),
        ({"release.stages": 1}, "take all of epsilon"),
        ({"sums.share": 1.0}, "between 0 and 1"),
    ],
)
def test_what_does_not_go_with_sums_is_refused(change, message):
    with pytest.raises(InvalidArgument, match=message):
        RECIPE.changed(change)


def test_sums_are_of_ratings(tmp_path):
    with pytest.raises(InvalidArgument, match=r"\[sums\] are of ratings"):
        runs.train(RECIPE.changed({"data": "digits", "model": "linear"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sums_are_not_trained_on_again(finished, tmp_path):
    with pytest.raises(InvalidArgument, match="nothing to train again"):
        runs.train_again(RECIPE, finished.path, tmp_path / "again")


def test_unbiased_reports_of_ratings_train_a_model(data_dir, tmp_path):
    values = {"data": "movielens-1m", "model": "ratings", "epsilon": "3"}
    values["release"] = {"mechanism": "UnbiasedResponse", "stages": 1, "hold_out": 0}
    values["training"] = {"optimizer": "adam", "learning_rate": 0.05, "weight_decay": 0, "epochs": 2}
    run = runs.train(Recipe.of(values), tmp_path / "run", data_dir=data_dir)
    assert run.certificate()["queries"][0]["mechanism"]["name"] == "UnbiasedResponse"
    assert run.certificate()["trust"] == "local"


def test_an_epsilon_too_small_for_unbiased_reports_costs_no_hold_out(data_dir, tmp_path):
    values = {"data": "movielens-1m", "model": "ratings", "epsilon": "0.00005"}
    values["release"] = {"mechanism": "UnbiasedResponse", "stages": 1, "hold_out": 0.1}
    with pytest.raises(InvalidArgument, match="at least 1e-4"):
        runs.train(Recipe.of(values), tmp_path / "run", data_dir=data_dir)
    assert not (tmp_path / "run").exists()


def test_unbiased_reports_need_labels_that_are_numbers(tmp_path):
    recipe = Recipe(data="fair", model="logistic", epsilon="1").changed({"release.mechanism": "UnbiasedResponse"})
    with pytest.raises(InvalidArgument, match="labels that are numbers"):
        runs.train(recipe, tmp_path / "run")
