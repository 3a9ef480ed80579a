import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest
from published import everything_said, idx_files, shows, write_idx

import labeldp as ldp
from labeldp import datasets
from labeldp.datasets.dataset import Dataset
from labeldp.vault.labels import NumberedLabels

LABEL = 7
N_ROWS = 12


@pytest.fixture
def fashion(tmp_path):
    return datasets.load("fashion-mnist", data_dir=write_idx(tmp_path, "fashion-mnist", idx_files(N_ROWS, label=LABEL)))


def test_a_repr_counts_rows_and_classes_and_says_that_labels_are_sealed(fashion):
    assert repr(fashion) == "<Dataset fashion-mnist: 12 rows, 10 classes, labels sealed>"
    assert repr(fashion.only_public()) == "<Dataset fashion-mnist: 12 rows, 10 classes, no labels>"


def test_nothing_that_prints_or_describes_a_dataset_shows_a_label(fashion):
    held = {slot: getattr(fashion, slot) for slot in Dataset.__slots__ if slot not in ("X", "X_test")}
    for shown in (repr(fashion), str([fashion]), f"{fashion}", repr(held), repr(dir(fashion))):
        assert not shows(LABEL, shown)
    assert not hasattr(fashion, "__dict__")
    assert not dataclasses.is_dataclass(fashion)
    assert not shows(LABEL, repr(fashion.__getstate__()[1]["_labels"]))


@pytest.mark.parametrize(
    "attempt", [copy.copy, copy.deepcopy, pickle.dumps, lambda data: pickle.dumps(data.__getstate__())]
)
def test_a_dataset_with_labels_is_neither_copied_nor_pickled(fashion, attempt):
    with pytest.raises(ldp.LabelDPError) as caught:
        attempt(fashion)
    assert not shows(LABEL, everything_said(caught.value))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_dataset_that_forgot_its_labels_travels_to_workers(fashion, again):
    content = pickle.dumps(fashion.only_public())
    assert bytes([LABEL]) * N_ROWS not in content and np.full(N_ROWS, LABEL, np.int16).tobytes() not in content
    arrived = again(fashion.only_public())
    assert repr(arrived) == repr(fashion.only_public())
    assert np.array_equal(arrived.X, fashion.X) and np.array_equal(arrived.test_labels, fashion.test_labels)
    assert arrived.inputs == fashion.inputs and arrived.classes == fashion.classes


@pytest.mark.parametrize("ask", [lambda data: data.vault(budget="1"), lambda data: data.unprotected()])
def test_a_dataset_that_forgot_its_labels_opens_no_vault(fashion, ask):
    for forgetful in (fashion.only_public(), fashion.only_public().subset(3)):
        with pytest.raises(ldp.VaultClosed, match=r"only_public\(\) forgot them"):
            ask(forgetful)
    assert len(fashion.vault(budget="1")) == N_ROWS  # the one it was made from has them still


def test_an_error_on_the_way_to_a_vault_shows_no_label(fashion):
    for arguments in ({}, {"budget": "1", "trust": "everybody"}, {"budget": "-1"}, {"ledger": 3}):
        with pytest.raises(ldp.InvalidArgument) as caught:
            fashion.vault(**arguments)
        assert not shows(LABEL, everything_said(caught.value))


def test_a_vault_on_a_subset_releases_within_its_budget(fashion):
    few = fashion.subset(5)
    vault = few.vault(budget="20", trust="curator", bits=ldp.InsecureBits(1))
    release = vault.release(ldp.RandomizedResponse(epsilon="20"))
    assert vault.classes == fashion.classes and vault.trust == "curator"
    assert release.labels.tolist() == ["Sneaker"] * 5  # at epsilon 20 a report errs once in ten million
    assert not release.receipt.private
    with pytest.raises(ldp.BudgetExhausted):
        vault.release(ldp.RandomizedResponse(epsilon="1"))


def test_a_vault_by_a_ledger_remembers_what_another_one_spent(fashion, tmp_path):
    path = tmp_path / "fashion.ledger"
    ldp.create_ledger(path, budget="2")
    fashion.vault(ledger=path).release(ldp.RandomizedResponse(epsilon="1.5"))
    assert str(fashion.vault(ledger=path).spent()) == "epsilon 1.5"


def test_the_unprotected_baseline_is_stamped_not_private(fashion):
    release = fashion.unprotected(rows=[0, 2])
    assert release.label_numbers.tolist() == [LABEL, LABEL] and not release.receipt.private
    assert len(fashion.unprotected()) == N_ROWS


def test_a_subset_is_the_first_rows_with_the_whole_test_split(fashion):
    few = fashion.subset(5)
    assert few.n_rows == 5 and np.array_equal(few.X, fashion.X[:5])
    assert few.X_test is fashion.X_test and few.test_labels is fashion.test_labels
    for wrong in (0, N_ROWS + 1, 2.0, True):
        with pytest.raises(ldp.InvalidArgument, match="n_rows must be"):
            fashion.subset(wrong)


def test_inputs_are_json(fashion):
    assert json.loads(json.dumps(fashion.inputs)) == {"kind": "image", "shape": [1, 28, 28]}


def test_a_dataset_needs_a_label_per_row(fashion):
    parts = {"X": fashion.X, "X_test": fashion.X_test, "test_labels": fashion.test_labels}
    short = NumberedLabels(np.full(3, LABEL, np.int16))
    with pytest.raises(ldp.InvalidArgument, match="one label per row") as caught:
        Dataset("tiny", labels=short, classes=fashion.classes, inputs={}, **parts)
    assert not shows(LABEL, everything_said(caught.value))
    with pytest.raises(ldp.InvalidArgument, match="one test label per row"):
        Dataset("tiny", labels=None, classes=fashion.classes, inputs={}, **parts | {"X_test": fashion.X})
