from fractions import Fraction

import numpy as np
import pytest
from contract import FALSE_ALARM, assert_counts_follow, exact_bound
from hypothesis import given, settings
from hypothesis import strategies as st

import labeldp as ldp


@settings(max_examples=20)
@given(low=st.integers(-3, 3), width=st.integers(1, 6), epsilon=st.sampled_from(["0.1", "0.5", "1", "2", "6"]))
def test_no_report_betrays_any_pair_of_labels_and_the_mean_is_the_label_exactly(low, width, epsilon):
    mechanism = ldp.UnbiasedResponse(epsilon, low=low, high=low + width)
    laws = [mechanism.law(label) for label in range(width + 1)]
    bound = exact_bound(epsilon)
    for report in laws[0]:
        chances = [law[report] for law in laws]
        assert max(chances) <= bound * min(chances)
    for label, law in enumerate(laws):
        assert sum(law.values()) == 1
        assert sum(chance * mechanism.outputs[report] for report, chance in law.items()) == low + label


def test_real_labels_on_a_grid():
    mechanism = ldp.UnbiasedResponse("1", low=0, high=1, step="0.25")
    assert mechanism.values == tuple(Fraction(i, 4) for i in range(5))
    law = mechanism.law(1)
    assert sum(chance * mechanism.outputs[report] for report, chance in law.items()) == Fraction(1, 4)


def test_the_sampler_follows_its_law():
    """Chi-square over 40,000 draws; false alarm 1e-9."""
    vault = ldp.LabelVault(np.full(40_000, 4), classes=[1, 2, 3, 4, 5], budget="1")
    mechanism = ldp.UnbiasedResponse("1", low=1, high=5)
    release = vault.release(mechanism)
    law = mechanism.law(3)
    expected = np.array([float(law[report]) * 40_000 for report in range(len(law))])
    assert_counts_follow(expected, np.bincount(release.reports, minlength=len(law)), FALSE_ALARM)
    assert release.likelihood([0])[0, 3] == pytest.approx(float(law[int(release.reports[0])]))
    deviation = release.values.std()
    assert abs(release.values.mean() - 4) < 6 * deviation / 200


def test_the_vaults_classes_must_be_the_grid():
    vault = ldp.LabelVault([0, 1], classes=2, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="must be the vault's classes"):
        vault.release(ldp.UnbiasedResponse("1", low=1, high=2))
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize(
    "arguments",
    [
        {"low": 1, "high": 1},
        {"low": 2, "high": 1},
        {"low": 0, "high": 1, "step": "0.3"},
        {"low": 0, "high": 1, "step": 0},
        {"low": 0, "high": 1_000},
        {"low": "nan", "high": 1},
        {"low": None, "high": 1},
    ],
)
def test_a_wrong_grid_is_a_clear_error(arguments):
    with pytest.raises(ldp.InvalidArgument):
        ldp.UnbiasedResponse("1", **arguments)


def test_a_release_survives_its_file(tmp_path):
    vault = ldp.LabelVault([1, 2, 3], classes=[1, 2, 3], budget="1")
    release = vault.release(ldp.UnbiasedResponse("1", low=1, high=3))
    release.save(tmp_path / "u")
    again = ldp.Release.load(tmp_path / "u")
    assert again.outputs == release.outputs and (again.values == release.values).all()
    assert (again.likelihood() == release.likelihood()).all()
    with pytest.raises(ldp.InvalidArgument, match="values"):
        _ = release.labels
