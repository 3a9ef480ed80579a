"""Killed anywhere, a run goes on: no label is paid for twice, and the last weights are the same to the last bit."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import resumable
from resumable import EPOCHS, EPSILON, KINDS, STAGES, K, do, ended, run, run_from_releases, start

import labeldp as ldp
from labeldp.budget import Ledger, create_ledger
from labeldp.vault import answering

DEAD = -signal.SIGKILL


@pytest.fixture
def place():
    """In memory where there is such a folder: a killed process loses nothing that it wrote, synced or not."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        create_ledger(Path(made) / "l.ledger", budget=EPSILON)
        yield Path(made) / "run", Path(made) / "l.ledger"


def charges(ledger):
    return [entry for entry in Ledger(ledger).entries() if entry.body["kind"] == "charge"]


def check_the_end(kind, folder, ledger, tmp_path):
    """One charge per stage and hold-out, within the budget, and the model of an uninterrupted training."""
    names = [entry.body["request"]["name"] for entry in charges(ledger)]
    assert names == ["run: release-hold-out", *(f"run: release-{t}" for t in range(1, STAGES + 1))]
    books = Ledger(ledger)
    books.verify()
    assert books.spent().epsilon == EPSILON  # the most that any row has paid
    reference = tmp_path / "reference"
    reference.mkdir()
    assert do(run_from_releases, kind, folder, reference) == 0
    assert (folder / "last-model").read_bytes() == (reference / f"model-{STAGES}").read_bytes()
    assert not list(folder.glob("*.priors.npz")), "priors are needed no more once the release is stored"


STEPS = [
    ("answered", "release-hold-out"),
    ("answered", "release-1"),
    ("half stored", "release-1"),
    ("epoch", 1, 1),
    ("in a checkpoint", 0),
    ("epoch", 1, 2),
    ("epoch", 1, EPOCHS),
    ("prior fixed", "release-2"),
    ("answered", "release-2"),
    ("epoch", 2, 1),
    ("in a checkpoint", 1),
    ("epoch", 2, EPOCHS),
    ("answered", "release-3"),
    ("half stored", "release-3"),
    ("in a checkpoint", 0),
    ("epoch", 3, EPOCHS),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_dies_at_every_step_in_turn_ends_as_if_it_had_not(kind, place, tmp_path):
    folder, ledger = place
    for step in STEPS if kind == "noisy labels" else STEPS[1::3]:
        before = len(charges(ledger))
        assert do(run, kind, folder, ledger, step) == DEAD, step
        assert before <= len(charges(ledger)) <= before + 2, "a hold-out and a stage at most"
        assert not (folder / "last-model").exists()
    assert do(run, kind, folder, ledger) == 0
    check_the_end(kind, folder, ledger, tmp_path)
    assert do(run, kind, folder, ledger) == 0, "a finished run can be run again"
    assert len(charges(ledger)) == STAGES + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_dies_at_random_moments_ends_as_if_it_had_not(kind, place, tmp_path):
    folder, ledger = place
    longest, deaths = 0.1, 0
    while True:
        process = start(run, kind, folder, ledger)
        deadline = time.monotonic() + random.uniform(0, longest)
        while process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        if process.is_alive():
            process.kill()
        code = ended(process)
        assert code in (0, DEAD), "it died of something else"
        if code == 0:
            break
        deaths += 1
        longest *= 1.15  # so that it comes to an end
        assert deaths < 100
    check_the_end(kind, folder, ledger, tmp_path)


def test_the_first_release_replayed_from_its_file_gives_the_same_second_model(place, tmp_path):
    folder, ledger = place
    assert do(run, "noisy labels", folder, ledger) == 0
    releases = [ldp.Release.load(folder / f"release-{t}") for t in range(1, STAGES + 1)]
    seen = []
    resumable.multistage("noisy labels").refit(resumable.data()[0], releases, watch=seen.append)
    one = tmp_path / "one"
    one.mkdir()
    assert do(run_from_releases, "noisy labels", folder, one) == 0
    again = resumable.multistage("noisy labels").refit(resumable.data()[0], releases)
    again.models_[1].save(tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == (one / "model-2").read_bytes()
    assert [record["stage"] for record in seen if record["kind"] == "stage"] == [1, 2, 3]


def test_without_a_name_an_answer_that_was_lost_stays_paid_for(place):
    """Never twice: the vault cannot know that the first answer was not seen."""
    folder, ledger = place
    lost = ("answered", "release-hold-out")
    assert do(run, "groups", folder, ledger, lost, None, None) == DEAD
    assert do(run, "groups", folder, ledger, None, None, None) == 1  # BudgetExhausted
    assert len(charges(ledger)) == 1 and Ledger(ledger).spent().epsilon == EPSILON


@pytest.mark.parametrize("name", ["run", None])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_query_that_was_interrupted_inside_the_vault_is_completed_under_its_charge(name, number, tmp_path):
    """Also without a name, and with nothing left: the vault knows that nobody has seen its answer."""
    X, labels = resumable.data()
    vault = ldp.LabelVault(labels, classes=K, ledger=create_ledger(tmp_path / "l.ledger", budget=EPSILON).path)
    draws, draw = iter(range(1, number + 1)), answering._drawn_and_spooled

    def interrupted(*asked):
        if next(draws) == number:
            raise KeyboardInterrupt
        return draw(*asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "_drawn_and_spooled", interrupted)
        with pytest.raises(KeyboardInterrupt):
            resumable.multistage("groups").fit(X, vault, EPSILON, name=name, folder=tmp_path / "run")
    assert len(charges(tmp_path / "l.ledger")) == number
    resumable.multistage("groups").fit(X, vault, EPSILON, name=name, folder=tmp_path / "run")
    assert len(charges(tmp_path / "l.ledger")) == STAGES + 1 and vault.spent().epsilon == EPSILON


# ---------------------------------------------------------------- in one process: what a folder refuses


def multi_and_vault(vault=None, **settings):
    X, labels = resumable.data()
    vault = vault or ldp.LabelVault(labels, classes=K, budget="20")
    return X, vault, resumable.multistage("noisy labels", **settings)


def asked(vault):
    return len(vault.certificate()["queries"])


@pytest.fixture
def vault():
    return multi_and_vault()[1]


@pytest.fixture
def finished(vault, tmp_path):
    X, _, multi = multi_and_vault()
    multi.fit(X, vault, EPSILON, folder=tmp_path / "deep" / "run")  # made where it is not there
    return tmp_path / "deep" / "run"


def test_a_finished_folder_asks_nothing_and_trains_nothing(vault, finished):
    X, _, multi = multi_and_vault()
    seen = []
    multi.fit(X, vault, EPSILON, folder=finished, watch=seen.append)
    assert asked(vault) == STAGES + 1 and {record["kind"] for record in seen} == {"stage"}
    files = {file.name for file in finished.iterdir()}
    stages = [f"release-{t}" for t in ("hold-out", *range(1, STAGES + 1))]
    assert files == {
        *(f"{stage}.{ending}" for stage in stages for ending in ("json", "npz")),
        *(f"checkpoint-{t}.pt" for t in range(1, STAGES + 1)),
    }


@pytest.mark.parametrize(
    "training",
    [{"learning_rate": 0.2}, {"epochs": 4}, {"mixup": 0.0}, {"seed": 1}, {"averaging": None}, {"batch_size": 8}],
)
def test_other_training_settings_refuse_the_checkpoint(vault, finished, training):
    X, _, multi = multi_and_vault(training=training)
    with pytest.raises(ldp.InvalidArgument, match=r"cannot be gone on from.*nothing is asked again"):
        multi.fit(X, vault, EPSILON, folder=finished)
    assert asked(vault) == STAGES + 1


@pytest.mark.parametrize(
    ("settings", "epsilon"),
    [
        ({"seed": 1}, EPSILON),
        ({"split": (0.5, 0.25, 0.25)}, EPSILON),
        ({"hold_out": 0.2}, EPSILON),
        ({"mechanism": ldp.RandomizedResponse}, EPSILON),
        ({}, "1"),
        ({}, "2.000001"),
    ],
)
def test_a_folder_of_other_questions_is_refused_and_nothing_is_asked(vault, finished, settings, epsilon):
    X, _, multi = multi_and_vault(**settings)
    with pytest.raises(ldp.InvalidArgument, match="is not this vault's answer to this question"):
        multi.fit(X, vault, epsilon, folder=finished)
    assert asked(vault) == STAGES + 1


def test_a_folder_of_other_classes_is_refused(finished):
    X, labels = resumable.data()
    vault = ldp.LabelVault(np.array(["a", "b", "c"])[labels], classes=["a", "b", "c"], budget="2")
    with pytest.raises(ldp.InvalidArgument, match="is not this vault's answer"):
        resumable.multistage("noisy labels").fit(X, vault, EPSILON, folder=finished)


def test_a_cold_start_refuses_the_checkpoints_of_a_warm_one(vault, finished):
    X, _, multi = multi_and_vault(warm_start=False)
    with pytest.raises(ldp.InvalidArgument, match="other releases, settings or starting weights"):
        multi.fit(X, vault, EPSILON, folder=finished)


def test_the_same_name_asks_the_same_or_is_refused():
    X, vault, multi = multi_and_vault()
    multi.fit(X, vault, EPSILON, name="run")
    spent = len(vault.certificate()["queries"])
    _, _, again = multi_and_vault()
    again.fit(X, vault, EPSILON, name="run")
    assert len(vault.certificate()["queries"]) == spent
    assert all((a.reports == b.reports).all() for a, b in zip(multi.releases_, again.releases_, strict=True))
    _, _, other = multi_and_vault(seed=5)
    with pytest.raises(ldp.InvalidArgument, match="belongs to another request"):
        other.fit(X, vault, EPSILON, name="run")


def test_a_damaged_release_or_checkpoint_is_a_clear_error(vault, finished):
    X, _, multi = multi_and_vault()
    (finished / "checkpoint-2.pt").write_bytes(b"half a chec")
    with pytest.raises(ldp.InvalidArgument, match="not a whole checkpoint"):
        multi.fit(X, vault, EPSILON, folder=finished)
    (finished / "release-1.npz").write_bytes(b"half a rel")
    with pytest.raises(ldp.InvalidArgument, match="is not the file"):
        multi.fit(X, vault, EPSILON, folder=finished)
    assert asked(vault) == STAGES + 1


@pytest.mark.parametrize("mechanism", [ldp.RRWithPrior, ldp.GroupedResponse, lambda e: ldp.RRTopK(e, k=2)])
def test_any_mechanism_is_known_again(mechanism, tmp_path):
    X, labels = resumable.data()
    prior = np.full((len(X), K), 1 / K)
    vault = ldp.LabelVault(labels, classes=K, budget="2")
    for _ in range(2):
        multi = resumable.multistage("groups", mechanism=mechanism, prior=prior)
        multi.fit(X, vault, "0.5", folder=str(tmp_path / "run"))
    assert asked(vault) == STAGES + 1


def test_a_table_of_numbers_is_known_again(tmp_path):
    X, labels = resumable.data()
    vault = ldp.LabelVault(labels, classes=[0, 1, 2], budget="2")
    for _ in range(2):
        make = resumable.multistage("groups", mechanism=lambda e: ldp.UnbiasedResponse(e, low=0, high=2, step=1))
        make.fit(X, vault, "0.5", folder=tmp_path / "run")
    assert asked(vault) == STAGES + 1


def test_a_release_that_another_vault_answered_is_refused_with_what_to_do(finished):
    """Or the new vault's certificate would say that nothing was released, of a model that was trained on it."""
    X, stranger, multi = multi_and_vault()
    with pytest.raises(ldp.InvalidArgument, match=r"not this vault's answer to this question. Train on it with refit"):
        multi.fit(X, stranger, EPSILON, folder=finished)
    assert asked(stranger) == 0


def test_a_release_of_seeded_noise_is_never_read_back_by_a_private_vault(tmp_path):
    X, labels = resumable.data()
    ledger = create_ledger(tmp_path / "l.ledger", budget="20").path
    seeded = ldp.LabelVault(labels, classes=K, ledger=ledger, bits=ldp.InsecureBits(0))
    resumable.multistage("groups").fit(X, seeded, EPSILON, folder=tmp_path / "run")
    private = ldp.LabelVault(labels, classes=K, ledger=ledger)
    with pytest.raises(ldp.InvalidArgument, match="not this vault's answer"):
        resumable.multistage("groups").fit(X, private, EPSILON, folder=tmp_path / "run")


def test_a_prior_on_disk_is_used_with_the_statement_it_was_made_under(vault, tmp_path):
    """A run killed after its prior was fixed, gone on with under another prior and source, would certify the wrong words."""
    X, _, multi = multi_and_vault(prior=np.full((160, K), 1 / K), prior_source="an old census", hold_out=0.0)
    (tmp_path / "run").mkdir()

    class Dies(Exception):
        pass

    def refuse(*_, **__):
        raise Dies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(vault), "release", refuse)
        with pytest.raises(Dies):
            multi.fit(X, vault, EPSILON, folder=tmp_path / "run")
    _, _, other = multi_and_vault(prior=np.full((160, K), 1 / K), prior_source="a new census", hold_out=0.0)
    with pytest.raises(ldp.InvalidArgument, match="made in another way"):
        other.fit(X, vault, EPSILON, folder=tmp_path / "run")
    assert asked(vault) == 0
