from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Epsilon
from labeldp.mechanisms import Histogram
from labeldp.vault.aggregates import project_on_totals


def curator(labels, classes=3, budget="2"):
    return ldp.LabelVault(labels, classes=classes, budget=budget, trust="curator")


@given(
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=20),
    place=st.integers(0, 19),
    new=st.integers(0, 2),
    epsilon=st.decimals("0.000001", "20", places=6),
)
def test_one_changed_label_costs_at_most_epsilon_exactly(labels, place, new, epsilon):
    """P(counts) is proportional to exp(-|noise|/scale), so the loss is the cells' change over the scale: a fraction."""
    place %= len(labels)
    groups = np.arange(len(labels)) % 4
    neighbour = [*labels[:place], new, *labels[place + 1 :]]

    def cells(column):
        return np.bincount(groups * 3 + np.array(column), minlength=12)

    change = int(np.abs(cells(labels) - cells(neighbour)).sum())
    assert Fraction(change) / Histogram(epsilon).scale <= Epsilon.of(epsilon).exact
    assert Histogram(epsilon).scale == 2 / Fraction(str(epsilon))


def test_counts_are_right_on_average_and_as_noisy_as_promised():
    """Mean and variance over 40,000 cells, within 6 standard errors (false alarm 4e-9)."""
    n_groups = 20_000
    labels = np.zeros(n_groups, dtype=int)
    release = curator(labels, classes=2).histogram(np.arange(n_groups), epsilon="0.5")
    noise = release.counts - np.array([[1, 0]])
    ratio = np.exp(-0.25)
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(noise.mean()) < 6 * np.sqrt(variance / noise.size)
    assert abs(noise.var() / variance - 1) < 6 * np.sqrt(5.2 / noise.size)


def test_thousands_of_groups_cost_what_one_costs():
    vault = curator(np.zeros(5_000, dtype=int))
    vault.histogram(np.arange(5_000), epsilon="0.1")
    assert vault.spent().epsilon == "0.1"


def test_empty_groups_are_answered_too_and_their_size_is_known():
    release = curator([0, 1]).histogram([0, 3], epsilon="1", n_groups=6)
    assert release.counts.shape == (6, 3)
    assert release.totals.tolist() == [1, 0, 0, 1, 0, 0]
    assert (release.projected()[release.totals == 0] == 0).all()


@given(
    counts=st.lists(st.lists(st.integers(-50, 50), min_size=3, max_size=3), min_size=1, max_size=5),
    total=st.integers(0, 40),
)
def test_projected_counts_are_the_nearest_that_fit_the_public_sizes(counts, total):
    counts = np.array(counts, dtype=float)
    projected = project_on_totals(counts, np.full(len(counts), total))
    assert (projected >= 0).all()
    assert projected.sum(axis=1) == pytest.approx(total, abs=1e-9)
    rng = np.random.default_rng(0)
    for rival in rng.dirichlet(np.ones(3), size=20) * total:
        assert (((counts - projected) ** 2).sum(axis=1) <= ((counts - rival) ** 2).sum(axis=1) + 1e-9).all()


def test_a_local_vault_never_aggregates():
    vault = ldp.LabelVault([0, 1], classes=2, budget="1")
    for ask in (
        lambda: vault.histogram([0, 0], epsilon="1"),
        lambda: vault.sums([0, 0], low=0, high=1, epsilon="1"),
        lambda: vault.agreement([0, 1], epsilon="1"),
    ):
        with pytest.raises(ldp.TrustError, match="trust='curator'"):
            ask()
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize(
    "groups", [[0], [0, -1, 0], [0.5, 1, 2], ["a", "b", "c"], None, [[0, 0, 0]], [0, 0, 9], [0, 0, 2**40]]
)
def test_wrong_groups_are_refused_and_cost_nothing(groups):
    vault = curator([0, 1, 2])
    with pytest.raises(ldp.InvalidArgument):
        vault.histogram(groups, epsilon="1", n_groups=3)
    assert vault.spent().epsilon == "0"


def test_a_release_survives_its_file(tmp_path):
    release = curator([0, 1, 2]).histogram([0, 0, 1], epsilon="1")
    release.save(tmp_path / "h")
    again = ldp.HistogramRelease.load(tmp_path / "h")
    assert (again.counts == release.counts).all() and again.receipt == release.receipt and again.classes == (0, 1, 2)
    with pytest.raises(ldp.InvalidArgument, match="histogram"):
        ldp.Release.load(tmp_path / "h")
