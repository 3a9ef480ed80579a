"""`init`: a network starts from weights that another dataset's public labels taught, and the certificate says so."""

from __future__ import annotations

import json

import numpy as np
import pytest

from labeldp import datasets, report
from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument
from labeldp.runs import Recipe, initial, train
from labeldp.runs.training import train_again

ROWS = 60
TESTED_ON = "the test split of fashion-mnist (the dataset's own public split)"
READ = [TESTED_ON, "the training labels of mnist"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """MNIST, Fashion-MNIST and, under the name of KMNIST, Fashion-MNIST again; made up."""
    root = tmp_path_factory.mktemp("files")
    for name, seed in (("mnist", 1), ("fashion-mnist", 2), ("kmnist", 2)):
        rng = np.random.default_rng(seed)
        (root / name).mkdir()
        for stem, n_rows in (("train", ROWS), ("t10k", 10)):
            pixels = rng.integers(0, 256, (n_rows, 28, 28), dtype=np.uint8)
            (root / name / f"{stem}-images-idx3-ubyte").write_bytes(idx(pixels))
            (root / name / f"{stem}-labels-idx1-ubyte").write_bytes(idx(rng.integers(0, 10, n_rows, dtype=np.uint8)))
    return root


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture
def place(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_run", lambda *_, **__: None)
    return {"data_dir": data_dir, "cache": tmp_path / "cache"}


def recipe(**other):
    usual = {"data": "fashion-mnist", "model": "tiny-conv", "epsilon": "2", "init": "mnist"}
    return Recipe.of(usual | {"training": {"epochs": 1, "batch_size": 30}, "release": {"hold_out": 0.0}} | other)


def test_nets_start_from_the_other_datasets_weights_but_for_the_last_layer(place, tmp_path):
    from labeldp.runs.learners import learners_of

    data = datasets.load("fashion-mnist", data_dir=place["data_dir"]).only_public()
    nets, plain = (learners_of(recipe(), data, None) for _ in range(2))
    initial.begin(nets, recipe(), data, watch=None, once=lambda ask: ask(), **place)
    before, after = plain[0].module.state_dict(), nets[0].module.state_dict()
    same = [name for name in before if before[name].equal(after[name])]
    last = [name for name in before if name.startswith(list(before)[-1].rpartition(".")[0])]
    assert same == last and len(last) == 2
    assert all(after[name].equal(nets[1].module.state_dict()[name]) for name in after)


def test_weights_are_learned_once_and_found_again_by_all_draws(place, tmp_path):
    told = []
    for seed in (0, 100):
        train(recipe(seed=seed), tmp_path / f"run-{seed}", watch=told.append, **place)
    begun = [each for each in told if each["kind"] == "initial" and each["epoch"] == 0]
    assert [each["computed"] for each in begun] == [True, False]
    (file,) = place["cache"].iterdir()
    assert file.suffix == ".safetensors"


def test_the_certificate_says_whose_labels_nothing_protects(place, tmp_path):
    run = train(recipe(), tmp_path / "run", **place)
    certificate = run.certificate()
    assert list(certificate["unprotected"]) == READ
    assert all("nothing protects them" in why for why in certificate["unprotected"].values())
    assert certificate["private"] is True and certificate["spent"]["epsilon"] == "2"
    assert list(train(recipe(init=None), tmp_path / "plain", **place).certificate()["unprotected"]) == [TESTED_ON]


def test_who_trains_again_without_it_still_says_what_the_releases_were_made_with(place, tmp_path):
    train(recipe(), tmp_path / "run", **place)
    again = train_again(recipe(init=None), tmp_path / "run", tmp_path / "again", **place)
    assert list(again.certificate()["unprotected"]) == READ
    plain = train(recipe(init=None), tmp_path / "plain", **place)
    later = train_again(recipe(), plain.path, tmp_path / "later", **place)
    assert list(later.certificate()["unprotected"]) == READ


def test_the_report_says_so_too(place, tmp_path):
    from labeldp.report.run import write_run

    page = write_run(train(recipe(), tmp_path / "run", **place).path).read_text(encoding="utf-8")
    assert (
        "Of the training labels of mnist: they are public" in page
        and "Those of the test split of fashion-mnist" in page
    )


def test_only_the_other_datasets_labels_are_read_in_the_open(place, tmp_path, monkeypatch):
    read, unprotected = [], Dataset.unprotected
    monkeypatch.setattr(Dataset, "unprotected", lambda data, *rows: read.append(data.name) or unprotected(data, *rows))
    train(recipe(), tmp_path / "run", **place)
    assert read == ["mnist"]


def test_a_recipe_without_it_is_written_as_before():
    assert "init" not in recipe(init=None).toml() and Recipe.parse(recipe().toml()) == recipe()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"init": "fashion-mnist"}, "init must be another dataset than fashion-mnist"),
        ({"init": "mnst"}, "init must be one of"),
        ({"features": "patches", "model": "linear"}, "reads the inputs themselves"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_the_recipe(other, says):
    with pytest.raises(InvalidArgument, match=says):
        recipe(**other)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"init": "kmnist"}, "hold 60 of 60 training rows of fashion-mnist"),
        ({"init": "digits"}, "init must be a dataset with the inputs of fashion-mnist"),
        ({"model": "linear"}, "networks of several layers"),
        ({"model": "whitened-conv"}, "init is not for whitened-conv: it takes in its own data's inputs"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(place, tmp_path, other, says):
    with pytest.raises(InvalidArgument, match=says):
        train(recipe(**other), tmp_path / "run", **place)
    assert not (tmp_path / "run").exists() and not place["cache"].exists()


def images(n_rows, seed):
    return np.random.default_rng(seed).integers(0, 256, (n_rows, 1, 28, 28), dtype=np.uint8)


def pictures(X, X_test):
    usual = {"labels": None, "classes": tuple(range(10)), "test_labels": np.zeros(len(X_test), dtype=np.int64)}
    return Dataset("pictures", X=X, X_test=X_test, inputs={"kind": "image", "shape": [1, 28, 28]}, **usual)


OURS, TESTED, THEIRS = images(300, 1), images(200, 2), images(300, 3)


@pytest.mark.parametrize(
    ("init", "rows", "says"),
    [
        (OURS[::-1], None, "300 of 300 training rows"),
        (np.concatenate([THEIRS, OURS[:4]]), None, "4 of 300 training rows"),
        (np.concatenate([THEIRS, OURS[:2]]), 100, "2 of 100 training rows"),
        (np.concatenate([THEIRS, OURS[200:]]), 100, "100 of 300 training rows"),
        (np.concatenate([THEIRS[:40], OURS[7:8]]), None, "1 of 300 training rows"),
        (np.concatenate([TESTED[5:8], THEIRS]), None, "3 of 200 test rows"),
    ],
    ids=["another order", "some", "some of the used", "the unused", "of a small one", "tested"],
)
def test_a_dataset_that_holds_rows_of_this_one_is_refused_whatever_their_order(init, rows, says):
    with pytest.raises(InvalidArgument, match=f"hold {says} of fashion-mnist"):
        initial._of_init_alone(pictures(init, THEIRS), pictures(OURS, TESTED), recipe(rows=rows))


def test_a_few_inputs_may_be_in_both_and_are_left_out():
    init = np.concatenate([OURS[:3], THEIRS, TESTED[:2]])
    kept = initial._of_init_alone(pictures(init, OURS), pictures(OURS, TESTED), recipe())
    np.testing.assert_array_equal(kept, np.arange(3, 303))


def test_labels_of_rows_in_both_are_not_read(place, data_dir, tmp_path, monkeypatch):
    for name, shared in (("fashion-mnist", 0), ("mnist", 1)):  # MNIST's first row becomes Fashion-MNIST's
        (tmp_path / name).mkdir()
        for file in (data_dir / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
        if shared:
            ours = (tmp_path / "fashion-mnist" / "train-images-idx3-ubyte").read_bytes()
            theirs = (tmp_path / name / "train-images-idx3-ubyte").read_bytes()
            end = len(theirs) - (ROWS - 1) * 28 * 28
            (tmp_path / name / "train-images-idx3-ubyte").write_bytes(ours[:end] + theirs[end:])
    monkeypatch.setattr(initial, "MOST_SHARED", 0.02)  # of so few rows
    read, unprotected = [], Dataset.unprotected
    monkeypatch.setattr(Dataset, "unprotected", lambda data, rows: read.extend(rows) or unprotected(data, rows))
    for folder in (data_dir, tmp_path):
        train(recipe(), tmp_path / f"run-{len(read)}", data_dir=folder, cache=place["cache"])
    assert read == [*range(ROWS), *range(1, ROWS)]
    assert len(list(place["cache"].iterdir())) == 2  # weights of other rows are other weights


def test_a_training_that_was_stopped_is_gone_on_with(place, tmp_path):
    def stop(record):
        if record["kind"] == "initial" and record["epoch"] == 2:
            raise KeyboardInterrupt

    longer = recipe(training={"epochs": 3, "batch_size": 30})
    with pytest.raises(KeyboardInterrupt):
        train(longer, tmp_path / "run", watch=stop, **place)
    told = []
    train(longer, tmp_path / "run", watch=told.append, **place)
    assert [each["epoch"] for each in told if each["kind"] == "initial"] == [0, 2, 3]


def test_facts_are_plain(place, tmp_path):
    run = train(recipe(), tmp_path / "run", **place)
    assert json.loads(run.facts_file.read_text())["unprotected"] == READ
