"""k-means: its rounds beside naive ones, its seeding, and clusters that lose their points."""

from __future__ import annotations

import numpy as np
import pytest

from labeldp.features import clusters
from labeldp.features.clusters import assign, k_means, means, spread_out


@pytest.fixture
def points():
    return np.random.default_rng(3).standard_normal((200, 4)).astype(np.float32)


def naive_round(points, centroids):
    nearest = [min(range(len(centroids)), key=lambda k: ((point - centroids[k]) ** 2).sum()) for point in points]
    return np.stack([points[[n == k for n in nearest]].mean(axis=0) for k in range(len(centroids))]), nearest


def test_a_round_moves_each_centroid_to_the_mean_of_the_points_nearest_to_it(points, monkeypatch):
    monkeypatch.setattr(clusters, "AT_ONCE", 64)
    moved, nearest = naive_round(points, points[:6])
    found, squares = assign(points, points[:6])
    assert found.tolist() == nearest
    np.testing.assert_allclose(squares, ((points - points[:6][nearest]) ** 2).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(means(points, found, 6), moved, atol=1e-5)


def test_its_rounds_are_those_rounds(points):
    centroids = spread_out(points, 5, np.random.default_rng(9))
    for _ in range(3):
        centroids, _ = naive_round(points, centroids)
    np.testing.assert_allclose(k_means(points, clusters=5, rounds=3, seed=9), centroids, atol=1e-4)


def test_it_finds_clumps_that_lie_apart():
    rng = np.random.default_rng(0)
    middles = 20 * np.eye(8, dtype=np.float32)
    points = np.concatenate([middle + rng.standard_normal((50, 8)).astype(np.float32) for middle in middles])
    found = k_means(points, clusters=8, rounds=5, seed=0)
    assert sorted(np.abs(found[:, None] - middles).sum(axis=2).argmin(axis=1)) == list(range(8))


def test_points_already_drawn_are_not_drawn_again():
    points = np.repeat(np.arange(10, dtype=np.float32)[:, None], 30, axis=0)
    for seed in range(20):
        drawn = spread_out(points, 10, np.random.default_rng(seed))
        assert sorted(drawn[:, 0]) == list(range(10))


def test_a_cluster_that_loses_its_points_gets_one_that_lies_far_out(monkeypatch):
    points = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]], np.float32)
    monkeypatch.setattr(clusters, "spread_out", lambda *_: np.array([[0.5], [10.5], [-1000.0]], np.float32))
    found = k_means(points, clusters=3, rounds=1, seed=0)
    np.testing.assert_allclose(found[:, 0], [0.5, (10 + 11 + 50) / 3, 50.0], rtol=1e-6)


def test_fewer_different_points_than_clusters_are_no_trouble():
    points = np.ones((20, 3), np.float32)
    found = k_means(points, clusters=5, rounds=3, seed=0)
    np.testing.assert_array_equal(found, np.ones((5, 3)))
