"""A record is what it says: of its recipe, its epsilon, and data that it names. Whatever is not is refused, and told."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from labeldp import runs
from labeldp.budget import Guarantee, Ledger, create_ledger
from labeldp.errors import InvalidArgument
from labeldp.reproduce import Job, Results, performed, running
from labeldp.reproduce.clock import Clock

TRAINED = "[training]\nepochs = 1\n"
QUICK = 'data = "digits"\nmodel = "linear"\nepsilons = ["2"]\nrows = 200\n'
OTHERWISE = {"training.epochs": 3}
PATCHES = 'features = "patches:patch=3,centroids=8,pool=2,sample=500"'


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def refused(job, results, looks, out):
    """Check that a job is refused with these words, that nothing is recorded, and that it was no further look."""

    def check(says, job=job, results=results, **named):
        before = len(looks()), results.records("mnist")
        with pytest.raises(InvalidArgument, match=says) as error:
            performed(job, results, out=out, **named)
        assert (len(looks()), results.records("mnist")) == before
        return str(error.value)

    return check


def stop(record):
    if record["kind"] == "epoch":
        raise KeyboardInterrupt


def begun(job, results, out):
    with pytest.raises(KeyboardInterrupt):
        performed(job, results, out=out, watch=stop)
    return job.folder(out)


# ---------------------------------------------------------------- its recipe


def test_a_run_that_was_trained_otherwise_is_not_read_back(job, results, refused, out, tmp_path):
    performed(job, results, out=out)
    folder = job.folder(out)
    runs.train(folder.recipe().changed(OTHERWISE), folder.path, otherwise=True)
    says = refused("its recipe.toml says otherwise", results=Results(tmp_path / "others"))
    assert str(folder.path) in says and "quick.toml" in says and "--out" in says


def test_a_run_that_is_to_be_trained_otherwise_is_not_gone_on_with(job, results, refused, out):
    folder = begun(job, results, out)
    folder.recipe_file.write_text(folder.recipe().changed(OTHERWISE).toml())
    refused("its recipe.toml says otherwise")


@pytest.mark.parametrize("changes", [OTHERWISE, {}], ids=["otherwise", "again"])
def test_a_run_that_is_trained_anew_between_its_end_and_its_record_is_not_recorded(
    job, results, out, monkeypatch, changes
):
    train = running.train

    def and_again(recipe, path, **named):
        folder = train(recipe, path, **named)
        train(recipe.changed(OTHERWISE), path, otherwise=True)
        with suppress(KeyboardInterrupt):
            train(recipe.changed(changes), path, otherwise=True, watch=stop)
        return folder

    monkeypatch.setattr(running, "train", and_again)
    with pytest.raises(InvalidArgument, match="is being trained again" if not changes else "says otherwise"):
        performed(job, results, out=out)
    assert results.records("mnist") == []


def test_a_run_that_another_process_trains_is_not_recorded(job, results, out, monkeypatch):
    train = running.train

    def and_hold(*given, **named):
        folder = train(*given, **named)
        held.enter_context(folder.locked())
        return folder

    monkeypatch.setattr(running, "train", and_hold)
    with ExitStack() as held, pytest.raises(InvalidArgument, match="another process is training"):
        performed(job, results, out=out)
    assert results.records("mnist") == []
    assert performed(job, results, out=out) == results.records("mnist")[0]


def test_a_prior_whose_features_are_settled_by_the_run_is_the_recipes(write, results, out, tmp_path):
    job = Job(write(f"{QUICK}{PATCHES}\n[prior]\ncount = 5\n{TRAINED}bag_rounds = 0\n"), "2")
    performed(job, results, out=out, cache=tmp_path)
    assert job.folder(out).recipe().prior.features == job.recipe.features and job.recipe.prior.features is None
    assert performed(job, Results(tmp_path / "others"), out=out)["trust"] == "curator"


# ---------------------------------------------------------------- its epsilon


def test_a_ledger_with_another_budget_is_not_a_new_runs_own(job, refused, out):
    folder = job.folder(out)
    folder.path.mkdir(parents=True)
    create_ledger(folder.ledger_file, budget="4", n_rows=1437)
    with pytest.raises(
        InvalidArgument, match=r"a budget of epsilon 2; .* has 0, and a budget of epsilon 4.*another folder"
    ):
        runs.train(job.drawn, folder.path)
    assert Ledger(folder.ledger_file).spent() == Guarantee(0) and not folder.exists


def test_a_ledger_with_charges_is_not_a_new_runs_own(job, results, out):
    folder = begun(job, results, out)
    for file in (folder.facts_file, *folder.path.glob("release-*")):
        file.unlink()
    charged = Ledger(folder.ledger_file).head()
    Ledger(folder.ledger_file).raise_budget(Guarantee.of("4"), reason="room for another run")
    with pytest.raises(InvalidArgument, match=r"must have no charges.*Nothing was asked"):
        runs.train(job.drawn, folder.path)
    assert Ledger(folder.ledger_file).head()[0] == charged[0] + 1


@pytest.mark.parametrize("spent", [{"epsilon": "4", "delta": "0"}, {"epsilon": "2", "delta": "0.000001"}])
def test_a_run_that_spent_something_else_is_not_recorded(job, results, out, tmp_path, spent):
    performed(job, results, out=out)
    folder = job.folder(out)
    folder.certificate_file.write_text(json.dumps(folder.certificate() | {"spent": spent}))
    others = Results(tmp_path / "others")
    with pytest.raises(InvalidArgument, match="must have spent epsilon 2 and delta 0; its certificate says"):
        performed(job, others, out=out)
    assert others.records("mnist") == []


# ---------------------------------------------------------------- its data


@pytest.fixture
def on_mnist(write, tmp_path):
    """Return a job on MNIST, and two folders with other files of that name."""
    rng = np.random.default_rng(0)
    for place in ("a", "b"):
        (tmp_path / place / "mnist").mkdir(parents=True)
        for stem, n_rows in (("train", 60), ("t10k", 20)):
            for name, shape in (("images-idx3", (n_rows, 28, 28)), ("labels-idx1", (n_rows,))):
                head = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
                pixels = rng.integers(0, 10, shape, dtype=np.uint8).tobytes()
                (tmp_path / place / "mnist" / f"{stem}-{name}-ubyte").write_bytes(head + pixels)
    text = QUICK.replace("digits", "mnist").replace("rows = 200\n", "")
    return Job(write(text + TRAINED), "2"), tmp_path / "a", tmp_path / "b"


def test_runs_on_other_data_are_told_apart(on_mnist, results, tmp_path):
    job, a, b = on_mnist
    records = [performed(job, results, out=tmp_path / place.name / "runs", data_dir=place) for place in (a, b)]
    records.append(performed(Job(job.entry, "2", 2), results, out=tmp_path / "runs", data_dir=a))
    digests = [record["data"] for record in records]
    assert digests[0] != digests[1] and digests[0] == digests[2]
    assert all(re.fullmatch("[0-9a-f]{16}", digest) for digest in digests)


def test_a_run_is_gone_on_with_on_its_own_data_alone(on_mnist, results, refused, out):
    job, a, b = on_mnist
    with pytest.raises(KeyboardInterrupt):
        performed(job, results, out=out, data_dir=a, watch=stop)
    refused("on the data that it was begun with; the files of mnist are others", job=job, data_dir=b)
    whole = performed(job, results, out=out, data_dir=a)
    assert whole["sessions"] == 2


def test_a_run_is_read_back_with_the_data_that_it_read(on_mnist, results, out, tmp_path):
    job, a, b = on_mnist
    first = performed(job, results, out=out, data_dir=a)
    assert performed(job, Results(tmp_path / "others"), out=out, data_dir=b)["data"] == first["data"]


def test_what_an_extractor_learned_is_not_part_of_the_data(write, results, out, tmp_path):
    """Its last bits are another machine's or another number of threads', and its settings are in the recipe's hash."""
    plain = performed(Job(write(QUICK + TRAINED), "2"), results, out=out / "plain")
    job = Job(write(f"{QUICK}{PATCHES}\n{TRAINED}"), "2")
    assert performed(job, results, out=out / "patches", cache=tmp_path)["data"] == plain["data"]


def test_features_from_files_are_part_of_the_data(write, results, out, tmp_path):
    arrays = {}
    for name, shift in (("first", 0.0), ("other", 1.0)):
        for part, n_rows in (("train", 1437), ("test", 360)):
            np.save(tmp_path / f"{name}-{part}.npy", np.random.default_rng(0).normal(shift, 1, (n_rows, 4)))
        shutil.copy(tmp_path / f"{name}-train.npy", tmp_path / "train.npy")
        shutil.copy(tmp_path / f"{name}-test.npy", tmp_path / "test.npy")
        features = f'features = "arrays:{tmp_path}/train.npy,{tmp_path}/test.npy"'
        job = Job(write(f"{QUICK}{features}\n{TRAINED}"), "2")
        arrays[name] = performed(job, results, out=out / name)
    assert arrays["first"]["recipe_hash"] == arrays["other"]["recipe_hash"]  # the files have the same names
    assert arrays["first"]["data"] != arrays["other"]["data"]
    assert "which the caller states are public" in arrays["first"]["features"]


def test_a_run_of_which_no_data_is_noted_is_not_taken_over(job, results, refused, out):
    runs.train(job.drawn, job.folder(out).path)
    refused("must be one of labeldp reproduce, which notes in draw-1.clock.json what data a run reads")


def test_a_run_of_an_older_version_that_noted_no_data_is_not_gone_on_with(job, results, refused, out):
    clock = Clock(begun(job, results, out))
    clock.file.write_text(json.dumps([{"seconds": 3.0, "commit": "c0ffee", "computed_features": False}]))
    refused("nothing is noted of this one")


def test_labels_that_nothing_protects_are_listed(on_mnist, write, results, out, tmp_path):
    _, a, b = on_mnist
    shutil.copytree(b / "mnist", a / "kmnist")
    text = 'data = "mnist"\ninit = "kmnist"\nmodel = "tiny-conv"\nepsilons = ["2"]\n'
    record = performed(Job(write(text + TRAINED), "2"), results, out=out, data_dir=a, cache=tmp_path)
    assert list(record["unprotected"]) == [
        "the test split of mnist (the dataset's own public split)",
        "the training labels of kmnist",
    ]
    assert all("nothing protects them" in why for why in record["unprotected"].values()) and "features" not in record
