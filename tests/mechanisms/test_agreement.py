import numpy as np
import pytest

import labeldp as ldp


def test_accuracy_against_true_labels_is_answered_with_noise_and_a_charge():
    labels = np.arange(1_000) % 4
    vault = ldp.LabelVault(labels, classes=4, budget="1", trust="curator")
    answer = vault.agreement(np.zeros(1_000, dtype=int), epsilon="0.5")
    assert abs(answer.count - 250) < 60  # 30 scales: false alarm below 1e-12
    assert answer.share == answer.count / 1_000
    assert vault.spent().epsilon == "0.5"


def test_predictions_are_classes_one_per_row():
    vault = ldp.LabelVault(["a", "b"], classes=["a", "b"], budget="1", trust="curator")
    for wrong in (["a"], ["a", "c"], [0, 1], "ab", None):
        with pytest.raises(ldp.InvalidArgument):
            vault.agreement(wrong, epsilon="1")
    assert vault.spent().epsilon == "0"
    assert 0 <= vault.agreement(["a", "b"], epsilon="1").share <= 1
