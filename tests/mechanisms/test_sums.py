from fractions import Fraction

import numpy as np
import pytest

import labeldp as ldp
from labeldp.mechanisms import Sums


def curator(labels, classes):
    return ldp.LabelVault(labels, classes=classes, budget="2", trust="curator")


def test_the_scale_is_range_over_epsilon_exactly():
    assert Sums("0.3", low=1, high=5).scale == Fraction(4) / Fraction(3, 10)


def test_sums_are_right_on_average():
    """Mean noise over 20,000 groups, within 6 standard errors (false alarm 2e-9)."""
    n = 20_000
    release = curator(np.full(n, 4), classes=[1, 2, 3, 4, 5]).sums(np.arange(n), low=1, high=5, epsilon="2")
    ratio = np.exp(-0.5)
    assert abs((release.sums - 4).mean()) < 6 * np.sqrt(2 * ratio / (1 - ratio) ** 2 / n)


def test_means_stay_within_the_bounds_and_empty_groups_get_the_middle():
    release = curator([1, 5], classes=[1, 2, 3, 4, 5]).sums([0, 0], low=1, high=5, epsilon="1", n_groups=2)
    assert 1 <= release.means()[0] <= 5 and release.means()[1] == 3


@pytest.mark.parametrize(("low", "high"), [(2, 5), (1, 4), (5, 1), (3, 3), (0.5, 5), ("1", 5)])
def test_bounds_must_hold_all_declared_classes(low, high):
    vault = curator([1, 5], classes=[1, 2, 3, 4, 5])
    with pytest.raises(ldp.InvalidArgument):
        vault.sums([0, 0], low=low, high=high, epsilon="1")
    assert vault.spent().epsilon == "0"


def test_text_labels_have_no_sum():
    vault = curator(["a", "b"], classes=["a", "b"])
    with pytest.raises(ldp.InvalidArgument, match="integer classes"):
        vault.sums([0, 0], low=0, high=1, epsilon="1")


def test_a_scale_too_fine_to_draw_exactly_is_refused():
    with pytest.raises(ldp.InvalidArgument, match="fewer digits"):
        Sums("0.123456789123", low=0, high=1_000_000)


def test_a_release_survives_its_file(tmp_path):
    release = curator([1, 5], classes=[1, 5]).sums([0, 1], low=1, high=5, epsilon="1")
    release.save(tmp_path / "s")
    again = ldp.SumRelease.load(tmp_path / "s")
    assert (again.sums == release.sums).all() and (again.low, again.high) == (1, 5)
