"""Appendix B: what the paper's table of joint clustering asks, charges and counts."""

from __future__ import annotations

import numpy as np
import pytest

import labeldp as ldp
from labeldp.priors import Clusters, joint_accuracy

N, N_TEST, K, COUNT = 240, 80, 3, 12
EPSILON = "0.5"


def data():
    rng = np.random.default_rng(4)
    labels = rng.integers(K, size=N + N_TEST)
    X = 3 * np.eye(K)[labels] + rng.normal(size=(N + N_TEST, K))
    return Clusters.of(X, count=COUNT), labels[:N], labels[N:]


def curator(labels, **settings):
    return ldp.LabelVault(labels, classes=K, budget="1", trust="curator", **settings)


def test_it_is_the_share_of_test_rows_with_their_clusters_noisy_majority():
    clusters, labels, test_labels = data()
    found = joint_accuracy(clusters, curator(labels, bits=ldp.InsecureBits(7)), EPSILON, test_labels)
    again = curator(labels, bits=ldp.InsecureBits(7))
    counts = again.histogram(clusters.numbers[:N], EPSILON, n_groups=COUNT).counts
    right = 0
    for number, label in zip(clusters.numbers[N:], test_labels, strict=True):
        right += list(counts[number]).index(max(counts[number])) == label
    assert found == right / N_TEST
    assert 1 / 3 < found < 1, "the clusters tell something, and not all"


def test_it_charges_every_training_label_once_for_one_histogram():
    clusters, labels, test_labels = data()
    vault = curator(labels)
    joint_accuracy(clusters, vault, EPSILON, test_labels, name="table 5")
    (query,) = vault.certificate()["queries"]
    assert (query["query"], query["epsilon"], query["labels charged"]) == ("histogram", EPSILON, N)
    assert query["source"] == clusters.source() and query["name"] == "table 5"
    assert vault.spent().epsilon == EPSILON
    once_more = joint_accuracy(clusters, vault, EPSILON, test_labels, name="table 5")
    assert once_more == joint_accuracy(clusters, vault, EPSILON, test_labels, name="table 5")
    assert vault.spent().epsilon == EPSILON, "the same name asks for the same answer, free"


def test_the_groups_do_not_depend_on_test_labels():
    clusters, labels, test_labels = data()
    asked = []
    for given in (test_labels, (test_labels + 1) % K):
        vault = curator(labels)
        joint_accuracy(clusters, vault, EPSILON, given)
        asked.append(vault.certificate()["queries"][0]["groups"])
    assert asked[0] == asked[1]


def test_a_local_vault_never_answers_and_is_not_charged():
    clusters, labels, test_labels = data()
    vault = ldp.LabelVault(labels, classes=K, budget="1")
    with pytest.raises(ldp.TrustError, match="curator"):
        joint_accuracy(clusters, vault, EPSILON, test_labels)
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda labels: labels[:-1],
        lambda labels: np.r_[labels, labels[:1]],
        lambda labels: labels[:0],
        lambda labels: labels[:, None],
        lambda labels: np.array(["no", "maybe", "yes"])[labels],
        lambda labels: labels.astype(float),
        lambda labels: labels + 1,
        lambda labels: labels - 1,
        lambda _: None,
        lambda _: 3,
    ],
)
def test_test_labels_that_do_not_fit_are_refused_before_anything_is_charged(wrong):
    clusters, labels, test_labels = data()
    vault = curator(labels)
    with pytest.raises(ldp.InvalidArgument, match=r"test_labels must be|one per test label"):
        joint_accuracy(clusters, vault, EPSILON, wrong(test_labels))
    assert vault.spent().epsilon == "0" and vault.certificate()["queries"] == []


def test_a_budget_too_small_is_not_touched():
    clusters, labels, test_labels = data()
    vault = curator(labels)
    with pytest.raises(ldp.BudgetExhausted):
        joint_accuracy(clusters, vault, "1.5", test_labels)
    assert vault.spent().epsilon == "0"
