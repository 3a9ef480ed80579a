"""Runs with a [prior]: a curator counts labels in public clusters, which are kept before anything is asked of them."""

from __future__ import annotations

import shlex
import shutil
import signal

import numpy as np
import people
import pytest
from lives import assert_certified

import labeldp as ldp
from labeldp import datasets, runs
from labeldp.datasets import dataset
from labeldp.errors import BudgetExhausted, InvalidArgument
from labeldp.features import PatchFeatures
from labeldp.priors import Clusters
from labeldp.runs import RunFolder
from labeldp.runs.clusters import counted_in
from labeldp.runs.training import stages_of
from labeldp.vault import HistogramRelease, LabelVault

PATCHES = "patches:patch=3,centroids=8,pool=2,sample=500"
PART = {"epsilon": "1", "prior.epsilon": "0.1", "prior.count": 5, "release.stages": 1}
ALL = {"epsilon": "1", "prior.count": 20, "release.stages": 0}


@pytest.fixture(scope="module")
def run(on_patches, cache, one_thread, tmp_path_factory):
    """A finished run of counts and a response. Nobody changes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labeldp.report.write_run", lambda *_, **__: None)
        return runs.train(on_patches.changed(PART), tmp_path_factory.mktemp("runs") / "run", cache=cache)


@pytest.fixture
def other_clusters(monkeypatch):
    """From here on k-means finds other clusters every time, as it may in another number of threads."""
    find, calls = Clusters.of, []

    def shuffled(features, **settings):
        calls.append(settings)
        found = find(features, **settings)
        order = np.random.default_rng(len(calls)).permutation(found.count)
        return Clusters(order[found.numbers], found.centres, found.mean, found.principal)

    monkeypatch.setattr(Clusters, "of", shuffled)
    return calls


# ---------------------------------------------------------------- what is asked, and what it costs


def test_how_the_paper_uses_counts_reaches_the_stages(on_patches):
    papers = on_patches.changed(PART | {"prior.shares": "normalised", "training.learn_counts": False})
    digits = datasets.load("digits")
    clusters = Clusters(np.zeros(200, int), np.zeros((5, 2)), np.zeros(2), np.eye(2))
    for recipe, told in ((on_patches.changed(PART), (True, "smoothed")), (papers, (False, "normalised"))):
        stages = stages_of(recipe, digits, clusters=clusters)
        assert (stages.learn_counts, stages.clusters.shares) == told
    assert papers.other_releases_than(on_patches.changed(PART)) == ["prior.shares"]


def test_counts_and_responses_add_up_to_epsilon_for_each_label(run, charges):
    certificate = run.certificate()
    assert certificate["dearest label"] == "epsilon 0.1 (entry 4, Histogram) + 0.9 (entry 5, GroupedResponse) = 1"
    assert (certificate["spent"]["epsilon"], certificate["trust"], certificate["interaction"]) == (
        "1",
        *["curator"] * 2,
    )
    assert "(ledger entries 3, 4, 5)" in certificate["covers"]
    costs = [(entry.body["request"]["query"], entry.body["cost"]["epsilon"]) for entry in charges(run.ledger_file)]
    assert costs == [("release", "1"), ("histogram", "0.1"), ("release", "0.9")]
    counts, (release,) = run.counts(), run.releases()
    assert np.array_equal(counts.rows, release.rows) and not np.isin(run.hold_out().rows, counts.rows).any()
    assert np.array_equal(counts.groups, run.clusters().numbers[counts.rows])


def test_its_metrics_begin_with_the_counts(run, keys):
    first, second, *_ = run.records()
    assert (first["stage"], first["clusters"], first["epsilon"], first["rows"]) == (0, 5, "0.1", 196)
    assert (second["kind"], second["stage"], second["epsilon"]) == ("stage", 1, "0.9")
    assert keys(run)[-2:] == [("hold-out", None, None), ("done", None, None)]


def test_all_of_epsilon_on_counts_trains_one_model(on_patches, cache, keys, charges, tmp_path):
    run = runs.train(on_patches.changed(ALL), tmp_path / "run", cache=cache)
    epochs = [("epoch", 0, number) for number in range(1, 5)]  # one, and one for each round on the counts
    trained = [("stage", 0, None), *epochs, ("test", 0, None), ("hold-out", None, None), ("done", None, None)]
    assert keys(run) == trained and run.releases() == [] and len(charges(run.ledger_file)) == 2
    assert run.certificate()["spent"]["epsilon"] == "1"
    again = runs.train_again(run.recipe().changed({"model": "logistic"}), run.path, tmp_path / "again", cache=cache)
    images = datasets.load("digits").X_test
    assert runs.load(again.path).predict_proba(images).shape == (360, 10)


def test_a_run_without_a_prior_opens_a_local_vault(recipe, cache, tmp_path, monkeypatch):
    opened = []
    seal = LabelVault.__init__
    monkeypatch.setattr(
        LabelVault, "__init__", lambda self, *a, trust, **b: opened.append(trust) or seal(self, *a, trust=trust, **b)
    )
    assert runs.train(recipe, tmp_path / "local").certificate()["trust"] == "local" and set(opened) == {"local"}
    with_prior = recipe.changed(ALL | {"prior.features": PATCHES})
    assert runs.train(with_prior, tmp_path / "curator", cache=cache).certificate()["trust"] == "curator"
    assert opened[-1] == "curator"


def test_every_label_must_have_all_of_epsilon_left(on_patches, cache, charges, tmp_path):
    ldp.create_ledger(tmp_path / "owner.ledger", budget="0.95")
    with pytest.raises(BudgetExhausted, match="this run needs epsilon 1 for every label"):
        runs.train(on_patches.changed(PART), tmp_path / "run", ledger=tmp_path / "owner.ledger", cache=cache)
    assert not charges(tmp_path / "owner.ledger") and not (tmp_path / "run").exists()


def test_the_number_of_clusters_follows_from_the_counted_rows_and_their_epsilon(on_patches):
    rows = np.arange(1000)
    assert counted_in(on_patches.changed({"epsilon": "1", "prior.epsilon": None, "release.stages": 0}), rows) == 49
    assert counted_in(on_patches.changed({"prior.epsilon": "0.5", "release.stages": 1}), rows) == 24


# ---------------------------------------------------------------- what is clustered


def told_clusters(told):
    return [record for record in told if record["kind"] == "clusters"]


def test_images_are_clustered_by_their_patches(recipe, cache, tmp_path, monkeypatch):
    small = PatchFeatures(patch=3, centroids=8, pool=2, sample=500)
    monkeypatch.setattr("labeldp.runs.inputs.extractor_of", lambda *_, **__: small)
    told = []
    run = runs.train(recipe.changed(ALL), tmp_path / "run", cache=cache, watch=told.append)
    assert told_clusters(told) == [{"kind": "clusters", "clusters": 20, "rows": 1437}]
    assert [record["spec"] for record in told if record["kind"] == "features"][-1] == "patches"
    assert run.facts()["reads"] is None and len(run.clusters().mean) == 32  # the model reads images all the same
    assert run.recipe().prior.features == "patches"


def test_rows_of_numbers_are_clustered_as_they_are(recipe, tmp_path):
    table = recipe.changed({"data": "breast-cancer", "model": "logistic", "training.rounds": 1} | ALL)
    run = runs.train(table, tmp_path / "run")
    assert run.clusters().count == 20 and run.certificate()["trust"] == "curator"
    np.save(tmp_path / "other.npy", np.random.default_rng(1).normal(size=(datasets.load("breast-cancer").n_rows, 3)))
    other = run.recipe().changed({"features": f"arrays:{tmp_path}/other.npy"})
    with pytest.raises(InvalidArgument, match=r"prior\.features cannot be changed"):  # it would seem to be of these
        runs.train_again(other, run.path, tmp_path / "again")


def test_rows_that_are_no_numbers_need_features(recipe, tmp_path):
    survey = recipe.changed({"data": "fair", "model": "logistic"} | ALL)
    with pytest.raises(InvalidArgument, match=r"features=arrays:TRAIN\.npy"):
        runs.train(survey, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_table_of_ones_own_is_clustered_by_arrays(tmp_path):
    pytest.importorskip("pandas")
    table = people.write(tmp_path / "people.csv", people.columns())
    np.save(tmp_path / "numbers.npy", np.random.default_rng(1).normal(size=(people.N_ROWS, 6)))
    values = {"data": str(table), "model": "logistic", "epsilon": "1", "table": people.CHOSEN}
    with pytest.raises(InvalidArgument, match=r"prior\.features=arrays:TRAIN\.npy"):
        runs.Recipe.of(values | {"prior": {}})
    with pytest.raises(InvalidArgument, match=r"people\.csv is a table"):
        runs.Recipe.of(values | {"prior": {"features": "patches"}})
    prior = {"epsilon": "0.5", "count": 4, "features": f"arrays:{tmp_path}/numbers.npy"}
    run = runs.train(runs.Recipe.of(values | {"prior": prior}), tmp_path / "run")
    assert run.certificate()["dearest label"].endswith("= 1") and run.facts()["reads"] is None
    assert runs.train_again(run.recipe(), run.path, tmp_path / "again").model_file.exists()


# ---------------------------------------------------------------- again, and on


def test_a_new_run_counts_in_no_clusters_but_its_own(on_patches, run, cache, charges, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copyfile(run.clusters_file, tmp_path / "run" / "clusters.npz")
    with pytest.raises(InvalidArgument, match="holds clusters of a run that is not there any more"):
        runs.train(on_patches.changed(PART), tmp_path / "run", cache=cache)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["clusters.npz"]


def test_the_recipe_says_what_was_clustered_whatever_the_model_reads_later(on_patches, run, cache, tmp_path):
    assert run.recipe().prior.features == PATCHES and on_patches.changed(PART).prior.features is None
    again = runs.train_again(run.recipe().changed({"features": None}), run.path, tmp_path / "again", cache=cache)
    assert (again.recipe().features, again.recipe().prior.features) == (None, PATCHES)
    shutil.copytree(run.path, tmp_path / "run")
    recipe = run.recipe().changed({"features": None})
    resumed = runs.train(recipe, tmp_path / "run", otherwise=True, cache=cache)
    assert (resumed.recipe().features, resumed.recipe().prior.features) == (None, PATCHES)
    with pytest.raises(InvalidArgument, match=r"prior\.features cannot be changed"):
        runs.train_again(on_patches.changed(PART | {"features": None}), run.path, tmp_path / "third", cache=cache)


def doctored(clusters, change):
    numbers, centres = clusters.numbers, clusters.centres
    if change == "other rows":
        numbers = np.roll(numbers, 1)
    elif change == "fewer rows":
        numbers = numbers[:50]
    else:
        centres = np.concatenate([centres, centres[:1]])
    return Clusters(numbers, centres, clusters.mean, clusters.principal)


@pytest.mark.parametrize("change", ["other rows", "fewer rows", "one cluster more"])
def test_counts_are_trained_on_with_the_clusters_that_they_are_of(run, cache, tmp_path, change):
    shutil.copytree(run.path, tmp_path / "run")
    doctored(run.clusters(), change).save(tmp_path / "run" / "clusters.npz")
    with pytest.raises(InvalidArgument, match="does not hold the clusters that the counts beside it are of"):
        runs.train_again(run.recipe(), tmp_path / "run", tmp_path / "again", cache=cache)
    assert not (tmp_path / "again").exists()


def test_clusters_are_whole_in_the_folder_before_anything_is_asked(on_patches, cache, tmp_path, monkeypatch):
    seen = []

    def noted(ask):
        return lambda self, *a, **b: seen.append(Clusters.load(tmp_path / "run" / "clusters.npz")) or ask(self, *a, **b)

    for query in ("release", "histogram"):
        monkeypatch.setattr(LabelVault, query, noted(getattr(LabelVault, query)))
    run = runs.train(on_patches.changed(PART), tmp_path / "run", cache=cache)
    assert len(seen) == 3 and all(np.array_equal(each.numbers, run.clusters().numbers) for each in seen)


def test_what_was_counted_is_never_clustered_or_charged_again(
    on_patches, cache, charges, other_clusters, tmp_path, monkeypatch
):
    recipe = on_patches.changed(PART)
    with monkeypatch.context() as patch:
        patch.setattr(HistogramRelease, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            runs.train(recipe, tmp_path / "run", cache=cache)
    ledger = tmp_path / "run" / "ledger"
    assert len(charges(ledger)) == 2 and len(other_clusters) == 1  # answered, and not in the folder
    run = runs.train(recipe, tmp_path / "run", cache=cache)
    assert len(charges(ledger)) == 3 and len(other_clusters) == 1
    assert run.certificate()["spent"]["epsilon"] == "1"


def test_clusters_that_another_process_stored_meanwhile_are_the_ones(run, other_clusters):
    stored = run.clusters()
    found = Clusters.of(np.random.default_rng(0).normal(size=(200, 4)), count=5)
    assert np.array_equal(run.keep_clusters(found).numbers, stored.numbers)


def test_training_again_needs_no_vault_and_no_clustering(run, cache, other_clusters, tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "LabelVault", None)
    before = run.ledger_file.read_bytes()
    again = runs.train_again(run.recipe(), run.path, tmp_path / "again", cache=cache)
    assert again.model_file.read_bytes() == run.model_file.read_bytes() and not other_clusters
    assert again.counts().counts.tolist() == run.counts().counts.tolist()
    assert run.ledger_file.read_bytes() == before
    second = runs.train_again(run.recipe().changed({"model": "mlp"}), again.path, tmp_path / "second", cache=cache)
    assert second.certificate()["queries"] == run.certificate()["queries"]


@pytest.mark.parametrize(
    "change",
    [{"prior.epsilon": "0.2"}, {"prior.count": 6}, {"prior.features": "patches"}, {"prior.components": 3}],
    ids=str,
)
def test_what_defines_the_counts_cannot_be_changed(run, cache, tmp_path, change):
    (key,) = change
    changed = run.recipe().changed(change)
    with pytest.raises(InvalidArgument, match=f"{key} cannot be changed: .* define what"):
        runs.train_again(changed, run.path, tmp_path / "again", cache=cache)
    with pytest.raises(InvalidArgument, match=f"{key} cannot be changed in"):
        runs.train(changed, run.path, otherwise=True, cache=cache)


def test_another_model_where_the_run_is_keeps_counts_and_clusters(run, cache, charges, other_clusters, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    folder = runs.train(run.recipe().changed({"model": "mlp"}), tmp_path / "run", otherwise=True, cache=cache)
    assert len(charges(folder.ledger_file)) == 3 and not other_clusters
    assert folder.counts().receipt == run.counts().receipt and folder.recipe().model == "mlp"


@pytest.mark.parametrize("file", ["release-clusters.json", "clusters.npz"])
def test_a_run_that_lacks_its_counts_or_clusters_is_no_source(run, cache, tmp_path, file):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / file).unlink()
    with pytest.raises(InvalidArgument, match=r"lacks the counts of its clusters|there are no clusters at"):
        runs.train_again(run.recipe(), tmp_path / "run", tmp_path / "again", cache=cache)
    assert not (tmp_path / "again").exists()


def test_counts_of_another_run_are_not_certified(on_patches, run, cache, tmp_path):
    other = runs.train(on_patches.changed(PART), tmp_path / "other", cache=cache)
    shutil.copytree(run.path, tmp_path / "run")
    for ending in ("npz", "json"):
        shutil.copyfile(other.path / f"release-clusters.{ending}", tmp_path / "run" / f"release-clusters.{ending}")
    with pytest.raises(InvalidArgument, match="holds a release that its certificate does not know"):
        runs.train_again(run.recipe(), tmp_path / "run", tmp_path / "again", cache=cache)


# ---------------------------------------------------------------- killed

QUICK = shlex.split(
    f"--data digits --features {PATCHES} --model linear --epsilon 1 --prior clusters:epsilon=0.1,count=5 --rows 200 "
    "--epochs 1 --threads 1 --set training.batch_size=32"
)
MOMENTS = [
    ("extractor.npz", "after"),  # before there is a run
    ("clusters.npz", "before"),
    ("clusters.npz", "after"),  # before anything was asked
    ("000004.json", "before"),  # the counts are charged, and not yet spooled
    ("release-clusters.npz", "before"),  # answered, and not yet in the folder
    ("release-clusters.json", "after"),  # certified before
    ("release-1.priors.npz", "after"),
    ("000005.json", "before"),  # the response is charged
    ("release-1.json", "after"),
]


@pytest.mark.parametrize(("file", "when"), MOMENTS, ids=str)
def test_a_killed_run_is_never_charged_twice(lives, cache, charges, tmp_path, file, when):
    how = (*QUICK, "--cache", cache, "--out", "run")
    killed = lives.run("train", *how, cwd=tmp_path, stop_at=(file, 1), before=when == "before")
    assert killed.code == -signal.SIGKILL, killed.err
    folder = RunFolder(tmp_path / "run")
    assert_certified(folder)
    spent_before = [entry.hash for entry in charges(folder.ledger_file)]
    how = ("--resume", "--out", "run") if folder.exists else how
    ended = lives.run("train", *how, cwd=tmp_path)
    assert ended.code == 0, ended.err
    names = [entry.body["request"]["name"].split(": ")[-1] for entry in charges(folder.ledger_file)]
    assert names == ["release-hold-out", "release-clusters", "release-1"]
    assert [entry.hash for entry in charges(folder.ledger_file)][: len(spent_before)] == spent_before
    assert folder.certificate()["spent"]["epsilon"] == "1" and folder.model_file.exists()


@pytest.mark.parametrize(
    "moment", [("checkpoint-0.pt", 1), ("checkpoint-0-1.pt", 1), ("checkpoint-0-2.pt", 2)], ids=str
)
def test_a_run_that_is_killed_in_a_round_on_counts_goes_on_alike(lives, cache, keys, tmp_path, moment):
    quick = (
        f"--data digits --features {PATCHES} --model linear --epsilon 1 --prior clusters:count=20 --rows 200 --epochs 2"
    )
    more = "--threads 1 --set training.batch_size=32 --set training.bag_rounds=2"
    how = (*shlex.split(f"{quick} {more}"), "--cache", cache, "--out", "run")
    assert lives.run("train", *how, cwd=tmp_path, stop_at=moment).code == -signal.SIGKILL
    ended = lives.run("train", "--resume", "--out", "run", cwd=tmp_path)
    assert ended.code == 0, ended.err
    again = lives.run("train", "--from", "run", "--out", "again", "--threads", 1, cwd=tmp_path)
    assert again.code == 0, again.err
    first, whole = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "again")
    assert first.model_file.read_bytes() == whole.model_file.read_bytes()
    for folder in (first, whole):
        told = [(record["epoch"], record["epochs"]) for record in folder.records() if record["kind"] == "epoch"]
        assert told == [(number, 6) for number in range(1, 7)]
