"""Shares from noisy counts, against naive loops and exact laws."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from counted import made_up, placed, seeded
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import labeldp as ldp
from labeldp.priors import normalised, projected, smoothed
from labeldp.priors.shares import noise_variance, over_sum
from labeldp.vault.aggregates import project_on_totals

K = 4
counts_of_groups = hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=st.integers(-40, 60))


def naive_normalised(counts):
    """Algorithm 4 of the paper, cell by cell."""
    table = []
    for row in counts:
        positive = [max(int(count), 0) for count in row]
        total = sum(positive)
        table.append([count / total if total else 1 / len(row) for count in positive])
    return np.array(table)


def naive_projection(row, total):
    """By bisection: x_j = max(c_j - s, 0) with the s that makes them add up."""
    low, high = min(row) - total - 1, max(row) + 1
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(value - middle, 0) for value in row) > total:
            low = middle
        else:
            high = middle
    return np.array([max(value - low, 0) for value in row])


# ---------------------------------------------------------------- the paper's


@given(counts_of_groups)
def test_normalised_is_the_papers_formula(counts):
    found = normalised(made_up(counts, [1] * len(counts)))
    assert found == pytest.approx(naive_normalised(counts))
    assert found.sum(axis=1) == pytest.approx(np.ones(len(counts)))


def test_where_no_count_is_positive_all_classes_are_alike():
    found = normalised(made_up([[-3, -1, 0, -7], [0, 0, 0, 0], [0, 5, -2, 5]], [2, 0, 9]))
    assert found.tolist() == [[0.25] * 4, [0.25] * 4, [0, 0.5, 0, 0.5]]


# ---------------------------------------------------------------- projected


@given(counts_of_groups, st.data())
def test_projected_shares_are_the_nearest_ones_that_can_be(counts, data):
    sizes = [data.draw(st.integers(1, 30)) for _ in counts]
    found = projected(made_up(counts, sizes))
    assert (found >= 0).all() and found.sum(axis=1) == pytest.approx(np.ones(len(counts)))
    for row, size, share in zip(counts, sizes, found, strict=True):
        assert share * size == pytest.approx(naive_projection(row.astype(float), size), abs=1e-6)
        other = np.array(data.draw(st.lists(st.integers(0, 20), min_size=len(row), max_size=len(row))), dtype=float)
        if other.sum():
            other *= size / other.sum()
            assert np.linalg.norm(share * size - row) <= np.linalg.norm(other - row) + 1e-9


def test_an_empty_group_has_equal_shares_however_loud_its_noise():
    found = projected(made_up([[90, -5, 3, 0], [5, 0, 0, 0]], [0, 5]))
    assert found[0].tolist() == [0.25] * 4 and found[1] == pytest.approx([1, 0, 0, 0])


# ---------------------------------------------------------------- smoothed


def naive_smoothed(histogram, clusters, neighbours):
    """Each cluster's own projected counts, and s rows more that are split as its neighbours are."""
    centres, own = clusters.centres.astype(float), []
    deviation = np.sqrt(noise_variance(histogram))
    for number, (counts, size) in enumerate(zip(histogram.counts, histogram.totals, strict=True)):
        away = [(np.sum((centre - centres[number]) ** 2), other) for other, centre in enumerate(centres)]
        near = [other for _, other in sorted(away) if other != number][:neighbours]
        pool = naive_projection(sum(histogram.counts[near]).astype(float), histogram.totals[near].sum())
        around = pool / pool.sum() if histogram.totals[near].sum() else np.full(len(counts), 1 / len(counts))
        parts = naive_projection(counts.astype(float), size) + deviation * around
        own.append(parts / (size + deviation))
    return np.array(own)


@pytest.mark.parametrize("neighbours", [1, 2, 5])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_smoothed_is_what_loops_give(epsilon, neighbours):
    rng = np.random.default_rng(2)
    sizes = [0, 1, 5, 40, 200, 0, 3, 17]
    histogram = made_up(rng.integers(-9, 80, size=(len(sizes), K)), sizes, epsilon)
    clusters = placed(rng.normal(size=(len(sizes), 3)))
    found = smoothed(histogram, clusters, neighbours=neighbours)
    assert found == pytest.approx(naive_smoothed(histogram, clusters, neighbours), abs=1e-6)
    assert (found >= 0).all() and found.sum(axis=1) == pytest.approx(np.ones(len(sizes)))


def test_an_empty_cluster_has_its_neighbours_share_whatever_its_noise_is():
    line = placed([[0.0], [1.0], [1.5], [9.0]])
    for noise in ([0, 0], [60, -60], [-500, 500]):
        histogram = made_up([noise, [30, 10], [10, 30], [0, 50]], [0, 40, 40, 50], "0.1")
        assert smoothed(histogram, line, neighbours=2)[0] == pytest.approx([0.5, 0.5])
        assert smoothed(histogram, line, neighbours=1)[0] == pytest.approx([0.75, 0.25])


def test_a_cluster_keeps_its_own_say_by_its_size_beside_the_noise():
    line, epsilon = placed([[0.0], [1.0]]), "0.5"
    for size in (1, 10, 1000, 10**5):
        histogram = made_up([[size, 0], [0, 50]], [size, 50], epsilon)
        deviation = np.sqrt(noise_variance(histogram))
        share = smoothed(histogram, line)[0]
        assert share == pytest.approx([size / (size + deviation), deviation / (size + deviation)])
    assert share == pytest.approx(projected(histogram)[0], abs=1e-4)


def test_one_cluster_alone_is_not_smoothed():
    histogram = made_up([[7, 5, -2, 0]], [10])
    assert (smoothed(histogram, placed([[0.0]])) == projected(histogram)).all()


def test_smoothing_helps_small_clusters():
    """Neighbours with the same labels: the expected squared error falls, by far more than chance (seeded noise)."""
    labels = np.repeat([0, 1], 300)
    groups = np.arange(600) // 5
    clusters = placed([[float(10 * (group >= 60)) + group / 1000] for group in range(120)])
    histogram = seeded(labels, groups, "0.5", classes=2)
    truth = np.eye(2)[labels[::5]]
    plain, better = (((shares - truth) ** 2).mean() for shares in (projected(histogram), smoothed(histogram, clusters)))
    assert better < 0.75 * plain


def test_a_histogram_of_other_groups_is_not_smoothed():
    with pytest.raises(ldp.InvalidArgument, match=r"must be of these clusters \(3\); it is of 2 groups"):
        smoothed(made_up([[1, 2], [3, 4]], [3, 7]), placed([[0.0], [1.0], [2.0]]))


# ---------------------------------------------------------------- the noise


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.3", "1", "2.5", "8", "20"])
def test_the_variance_of_the_noise_is_that_of_its_law(epsilon):
    """E[x^2] under P(x) = (1 - a) / (1 + a) a^|x|, a = exp(-epsilon / 2), summed in 60 digits until nothing is left."""
    with localcontext(prec=60):
        a = (-Decimal(epsilon) / 2).exp()
        weight, total, x = (1 - a) / (1 + a), Decimal(0), 0
        while True:
            x += 1
            weight *= a
            term = 2 * weight * x * x
            total += term
            if term < total * Decimal("1e-25") and x > 4 / Decimal(epsilon):
                break
    assert noise_variance(made_up([[1, 2]], [3], epsilon)) == pytest.approx(float(total), rel=1e-9)


def test_the_variance_of_the_noise_is_what_is_drawn():
    """Of 40,000 seeded draws; five standard errors of a variance whose fourth moment is below 30 variances squared."""
    histogram = seeded(np.zeros(1, int), np.zeros(1, int), "1", classes=2, n_groups=20_000)
    noise = histogram.counts[1:]
    assert noise.var() == pytest.approx(noise_variance(histogram), rel=5 * np.sqrt(30 / noise.size))


def test_for_small_epsilon_the_variance_is_8_over_its_square():
    variances = [noise_variance(made_up([[1, 2]], [3], epsilon)) for epsilon in ("0.001", "0.01", "1", "5", "20")]
    assert variances[0] == pytest.approx(8e6, rel=1e-6) and all(a > b > 0 for a, b in pairwise(variances))


def test_rows_over_their_sum_are_equal_where_it_is_zero():
    assert over_sum(np.array([[0.0, 0.0], [1.0, 3.0]])).tolist() == [[0.5, 0.5], [0.25, 0.75]]


def test_projecting_on_nothing_leaves_nothing():
    assert project_on_totals(np.array([[5.0, -3.0]]), np.array([0])).tolist() == [[0.0, 0.0]]
