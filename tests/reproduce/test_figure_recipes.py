"""A figure's recipe is run at each point of what it varies over; each point is a run like any other, with its variant."""

from __future__ import annotations

import json

import pytest
from made_up_records import of_figure

from labeldp.errors import InvalidArgument
from labeldp.reproduce import Job, figure_of, figures, find, performed, recipes_of
from labeldp.reproduce.cookbook import hash_of, narrowed, read
from labeldp.reproduce.running import recorded

QUICK = """
trust = "local"
data = "digits"
model = "linear"
epsilons = ["2"]
rows = 200

[vary]
"release.stages" = [1, 2]
"training.epochs" = [1, 2]

[release]
mechanism = "RRWithPrior"
hold_out = 0.0

[training]
loss = "noisy-label"
"""
FIGURES = [entry for name in figures() for entry in recipes_of(name)]


@pytest.fixture
def write_figure(tmp_path):
    def entry(text=QUICK, figure="figure-stages"):
        file = tmp_path / "quick.toml"
        file.write_text(text)
        return read(file, figure)

    return entry


@pytest.mark.parametrize("entry", FIGURES, ids=lambda entry: f"{entry.table}/{entry.name}")
def test_a_figures_recipe_is_the_papers_method_on_a_small_net(entry):
    variants = entry.variants()
    assert len(variants) <= 16 and f"Trust model: {entry.trust}" in entry.about and "chosen" in entry.about
    for recipe in (variant.at(epsilon) for variant in variants for epsilon in entry.epsilons):
        assert (recipe.data, recipe.model, recipe.release.mechanism) == ("fashion-mnist", "small-conv", "RRWithPrior")
        assert (recipe.training.loss, recipe.release.hold_out) == ("noisy-label", 0.0)
        if len(variants) > 4 or entry.table == "figure-top-k":
            assert (recipe.rows, recipe.training.epochs) == (20_000, 10)
    hashes = {hash_of(variant.at(epsilon)) for variant in variants for epsilon in entry.epsilons}
    assert len(hashes) == len(variants) * len(entry.epsilons)


def test_variants_are_the_grid_of_what_is_varied(write_figure):
    recipes = [variant.at("2") for variant in write_figure().variants()]
    assert [(r.release.stages, r.training.epochs) for r in recipes] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_one_of_a_list_can_be_varied_alone():
    (entry,) = find("figure-mixup")
    variant = next(v for v in entry.variants() if v.variant == {"training.mixup.0": 16.0, "training.mixup.1": 1.0})
    assert variant.at("2").training.mixup == (16.0, 1.0)


def test_all_recipes_of_a_figure_are_run_unless_one_is_named():
    assert [entry.name for entry in find("figure-curves")] == ["lp-1st", "lp-2st"]
    assert [entry.name for entry in find("figure-curves", ["lp-2st"])] == ["lp-2st"]


def test_a_part_of_a_grid_can_be_asked_for(write_figure):
    variants = write_figure().variants()
    assert [each.variant["training.epochs"] for each in narrowed(variants, {"release.stages": 2})] == [1, 2]
    (grid,) = find("figure-split-temperature")
    assert len(narrowed(grid.variants(), {"release.split": [0.2, 0.8], "release.temperature": 0.5})) == 1
    with pytest.raises(InvalidArgument, match=r"--only must leave a variant, .*: release\.stages=1"):
        narrowed(variants, {"release.stages": 5})
    with pytest.raises(
        InvalidArgument, match=r"what varies, which is release\.stages and training\.epochs; got stages"
    ):
        narrowed(variants, {"stages": 1})
    with pytest.raises(InvalidArgument, match="which is nothing; got release"):
        narrowed(find("figure-curves"), {"release.stages": 1})


@pytest.mark.parametrize(
    ("text", "figure", "says"),
    [
        (QUICK, "mnist", "vary and each_epoch are of figures"),
        (QUICK.replace("[1, 2]", "2"), "figure-stages", "vary must hold lists of values"),
        (QUICK.replace('"release.stages"', '"release.stage"'), "figure-stages", "knows no 'stage'"),
        (QUICK.replace('"training.epochs"', '"training.mixup.0"'), "figure-stages", "has no such place"),
        ("each_epoch = 3\n" + QUICK, "figure-stages", "each_epoch must be true or false"),
    ],
)
def test_a_mistake_in_a_figures_recipe_is_told(write_figure, text, figure, says):
    with pytest.raises(InvalidArgument, match=says):
        write_figure(text, figure)


def test_a_point_is_recorded_with_its_variant_and_what_its_stages_did(write_figure, results, looks, tmp_path):
    job = Job(write_figure().variants()[2], "2")
    record = performed(job, results, out=tmp_path / "runs")
    assert record["variant"] == {"release.stages": 2, "training.epochs": 1} and record["rows"] == 200
    assert record["command"].endswith("--epsilon 2 --only release.stages=2 --only training.epochs=1")
    first, second = record["stages"]
    assert first["mean_k"] == 10 and 1 <= second["mean_k"] <= 10 and second["accuracy"] == record["value"]
    assert first["top_k"] == sorted(first["top_k"]) and first["top_k"][-1] == 100 and len(first["top_k"]) == 10
    assert first["top_k"][0] == pytest.approx(first["accuracy"], abs=0.005) and "curve" not in record
    assert looks()[0][2] == "own:quick (release.stages=2, training.epochs=1)" and looks()[0][-1] == "begun"
    figure = figure_of("figure-stages", [write_figure()], results)
    assert [point.runs for point in figure.points] == [(), (), (record,), ()]
    json.dumps([point.plain() for point in figure.points])


def test_what_is_recorded_is_not_run_again_even_where_its_folder_is_gone(write_figure, results, looks, tmp_path):
    job = Job(write_figure().variants()[0], "2")
    record = performed(job, results, out=tmp_path / "runs")
    assert performed(job, results, out=tmp_path / "elsewhere") == record and len(looks()) == 1
    assert recorded(Job(job.entry, "2", draw=2), results, tmp_path / "elsewhere") is None


def test_what_a_figure_leaves_out_for_its_older_data_is_not_taken_as_done(write_figure, results, tmp_path):
    job, second = (Job(write_figure().variants()[0], "2", draw) for draw in (1, 2))
    older = of_figure(job.entry, "2", 70.0, data="d1", time="2026-01-01T00:00:00Z")
    newer = of_figure(job.entry, "2", 71.0, data="d2", time="2026-01-02T00:00:00Z", draw=2)
    results.append("figure-stages", older)
    assert recorded(job, results, tmp_path / "runs") == older
    results.append("figure-stages", newer)
    assert recorded(job, results, tmp_path / "runs") is None
    assert recorded(second, results, tmp_path / "runs") == newer


def test_a_model_is_tested_at_each_epochs_end_and_learns_as_it_would(write_figure, results, looks, tmp_path):
    lines = QUICK.replace('"release.stages" = [1, 2]\n"training.epochs" = [1, 2]\n', '"release.stages" = [2]\n')
    text = "each_epoch = true\n" + lines + "epochs = 3\n"
    entry = write_figure(text, "figure-curves").variants()[0]
    assert hash_of(entry.at("2")) == hash_of(write_figure(lines + "epochs = 3\n").variants()[0].at("2"))
    record = performed(Job(entry, "2"), results, out=tmp_path / "runs")
    assert [(each["stage"], each["epoch"]) for each in record["curve"]] == [(s, e) for s in (1, 2) for e in (1, 2, 3)]
    ends = [each["accuracy"] for each in record["curve"] if each["epoch"] == 3]
    assert ends == [stage["accuracy"] for stage in record["stages"]]  # what the stages' ends say
    assert looks()[0][-1] == "begun, tested at each epoch's end"
