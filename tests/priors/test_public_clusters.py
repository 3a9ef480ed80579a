"""Clusters of public features, against naive oracles, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.priors import Clusters, cluster_count, clusters
from labeldp.priors.clusters import LARGEST_FEATURE

N, WIDTH, COUNT = 300, 6, 9


def features(n=N, width=WIDTH, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


@pytest.fixture(scope="module")
def found():
    return Clusters.of(features(), count=COUNT, components=4)


def same(ours, theirs):
    return all(np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in vars(ours))


def naive_points(found, rows):
    """Centred, on the principal components, and of length 1, in double precision."""
    points = []
    for row in np.asarray(rows, dtype=np.float64):
        point = (row - found.mean.astype(np.float64)) @ found.principal.astype(np.float64)
        length = np.linalg.norm(point)
        points.append(point / length if length > 0 else point)
    return np.array(points)


def naive_squares(points, centres):
    return np.array([[((point - centre) ** 2).sum() for centre in centres.astype(np.float64)] for point in points])


# ---------------------------------------------------------------- what is found


def test_the_same_seed_finds_the_same_clusters_and_another_one_others(found):
    assert same(found, Clusters.of(features(), count=COUNT, components=4))
    assert not same(found, Clusters.of(features(), count=COUNT, components=4, seed=1))


def test_every_row_is_in_one_of_the_clusters(found):
    assert found.numbers.shape == (N,) and found.numbers.dtype == np.int64 and found.count == COUNT
    assert found.numbers.min() >= 0 and found.numbers.max() < COUNT
    assert found.centres.shape == (COUNT, 4) and found.principal.shape == (WIDTH, 4) and found.mean.shape == (WIDTH,)
    assert repr(found) == "<Clusters: 300 rows in 9 clusters>"


def test_a_row_of_the_training_set_is_assigned_to_its_own_cluster(found):
    assert np.mean(found.assign(features()) == found.numbers) > 0.99


def test_an_assigned_cluster_has_the_nearest_centre(found):
    others = features(n=200, seed=3)
    squares = naive_squares(naive_points(found, others), found.centres)
    chosen = squares[np.arange(len(others)), found.assign(others)]
    assert chosen == pytest.approx(squares.min(axis=1), abs=1e-5)
    assert np.mean(found.assign(others) == squares.argmin(axis=1)) > 0.99


def test_rows_in_the_same_direction_from_the_mean_are_in_the_same_cluster(found):
    away = features(n=50, seed=4)
    near, far = (found.mean + times * away for times in (0.5, 40.0))
    assert (found.assign(near) == found.assign(far)).all()


def test_clusters_of_clear_groups_are_these_groups():
    rng = np.random.default_rng(0)
    directions = np.eye(4)[rng.integers(4, size=400)]
    X = directions * rng.uniform(1, 9, size=(400, 1)) + rng.normal(scale=0.01, size=(400, 4))
    numbers = Clusters.of(X, count=40).numbers
    for number in range(40):
        assert len(np.unique(directions[numbers == number], axis=0)) <= 1


def test_the_components_are_the_principal_ones():
    """The naive way: eigenvectors of the covariance, up to their sign."""
    X = features(seed=8) * np.array([9, 5, 3, 1, 0.5, 0.1], dtype=np.float32)
    found = Clusters.of(X, count=2, components=3)
    values, vectors = np.linalg.eigh(np.cov(X.T.astype(np.float64)))
    overlap = np.abs(found.principal.T @ vectors[:, np.argsort(-values)[:3]])
    assert overlap == pytest.approx(np.eye(3), abs=1e-3)
    assert found.mean == pytest.approx(X.mean(axis=0), abs=1e-5)


def test_neighbours_are_the_clusters_with_the_nearest_centres(found):
    for k in (1, 3, COUNT - 1, COUNT + 5):
        near = found.neighbours(k)
        assert near.shape == (COUNT, min(k, COUNT - 1))
        for number in range(COUNT):
            squares = naive_squares(found.centres[number : number + 1].astype(float), found.centres)[0]
            expected = [other for other in np.argsort(squares, kind="stable") if other != number]
            assert near[number].tolist() == expected[:k]


def test_a_cluster_is_never_its_own_neighbour_even_beside_its_twin():
    twins = Clusters(
        np.array([0, 1, 2]), np.zeros((3, 2), np.float32), np.zeros(2, np.float32), np.eye(2, dtype=np.float32)
    )
    assert [sorted(row) for row in twins.neighbours(2).tolist()] == [[1, 2], [0, 2], [0, 1]]


def test_one_cluster_has_no_neighbours():
    assert Clusters.of(features(), count=1).neighbours(3).shape == (1, 0)


def test_pieces_of_the_rows_give_what_all_of_them_give(found, monkeypatch):
    whole, near = found.assign(features()), found.neighbours(4)
    monkeypatch.setattr(clusters, "ROWS_AT_ONCE", 7)
    assert (found.assign(features()) == whole).all() and (found.neighbours(4) == near).all()


# ---------------------------------------------------------------- all kinds of features


def test_features_on_disk_give_what_features_in_memory_give(found, tmp_path):
    np.save(tmp_path / "features.npy", features())
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    assert same(found, Clusters.of(mapped, count=COUNT, components=4))
    assert (found.assign(mapped) == found.assign(features())).all()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.uint8])
def test_any_numbers_will_do(kind):
    X = (np.abs(features()) * 20).astype(kind)
    assert same(Clusters.of(X, count=4), Clusters.of(X.astype(np.float32), count=4))
    assert same(Clusters.of(X.tolist(), count=4), Clusters.of(X, count=4))


def test_more_components_than_columns_or_rows_are_as_many_as_there_are():
    assert Clusters.of(features(), count=3, components=500).principal.shape == (WIDTH, WIDTH)
    assert Clusters.of(features(n=4), count=3, components=500).principal.shape == (WIDTH, 4)


@pytest.mark.parametrize("n", [1, 2, 40])
def test_features_that_are_all_alike_are_clustered_without_a_word(n):
    X = np.full((n, 3), 7.0)
    found = Clusters.of(X, count=min(n, 3))
    assert len(np.unique(found.numbers)) == 1 and np.isfinite(found.centres).all()
    assert (found.assign(X) == found.assign(X[:1])).all()


def test_a_cluster_per_row_is_the_most(found):
    assert Clusters.of(features(n=20), count=20).count == 20
    with pytest.raises(ldp.InvalidArgument, match="count must be between 1 and 20, got 21"):
        Clusters.of(features(n=20), count=21)


@pytest.mark.parametrize(
    "spoilt",
    [
        features()[:, 0],
        features()[None],
        features()[:0],
        features()[:, :0],
        features() > 0,
        features() + 0j,
        np.array([["a", "b"]]),
        np.array([[1, None]]),
        [[1.0], [1.0, 2.0]],
        3.0,
        None,
    ],
)
def test_what_is_no_table_of_numbers_is_refused(found, spoilt):
    with pytest.raises(ldp.InvalidArgument, match="features must be"):
        Clusters.of(spoilt, count=1)
    with pytest.raises(ldp.InvalidArgument, match="features must be"):
        found.assign(spoilt)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 10 * LARGEST_FEATURE, -1e300])
def test_one_value_that_is_not_finite_or_far_too_large_is_found(found, value, monkeypatch):
    X = features().astype(np.float64)
    X[211, 3] = value
    with pytest.raises(ldp.InvalidArgument, match="features must be finite"):
        found.assign(X)
    monkeypatch.setattr(clusters, "PRINCIPAL_ROWS", 2)  # so that it is not among the rows looked at first
    with pytest.raises(ldp.InvalidArgument, match="features must be finite"):
        Clusters.of(X, count=2)


def test_large_and_small_features_are_clustered_by_their_direction():
    X = features()
    for times in (LARGEST_FEATURE / 10, 1e-12):
        assert np.isfinite(Clusters.of(X * times, count=3).centres).all()


def test_features_of_another_width_are_not_assigned(found):
    with pytest.raises(ldp.InvalidArgument, match="must have 6 columns, as those that were clustered; got 5"):
        found.assign(features()[:, :5])


@pytest.mark.parametrize(
    "settings", [{"count": 0}, {"count": 2.0}, {"count": True}, {"components": 0}, {"seed": -1}, {"seed": 2**32}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ldp.InvalidArgument):
        Clusters.of(features(), **{"count": 2} | settings)


# ---------------------------------------------------------------- by hand, and on disk


@pytest.mark.parametrize(
    "wrong",
    [
        {"numbers": np.array([0, 9])},
        {"numbers": np.array([-1, 0])},
        {"numbers": np.array([0.0, 1.0])},
        {"numbers": np.array([], dtype=int)},
        {"numbers": np.zeros((2, 2), dtype=int)},
        {"centres": np.zeros(9, np.float32)},
        {"centres": np.zeros((9, 3), np.float32)},
        {"mean": np.zeros(5, np.float32)},
        {"principal": np.zeros((6, 5), np.float32)},
    ],
)
def test_clusters_that_do_not_fit_together_are_refused_by_hand_and_from_a_file(found, wrong, tmp_path):
    with pytest.raises(ldp.InvalidArgument, match="numbers must be"):
        Clusters(**vars(found) | wrong)
    np.savez(tmp_path / "c.npz", format=np.array(clusters.FORMAT), **vars(found) | wrong)
    with pytest.raises(ldp.InvalidArgument, match="does not hold whole clusters"):
        Clusters.load(tmp_path / "c.npz")


@pytest.mark.parametrize("name", ["clusters.npz", "clusters"])
def test_saved_clusters_are_read_back_whole(found, tmp_path, name):
    found.save(tmp_path / name)
    again = Clusters.load(tmp_path / name)
    assert same(found, again) and again.source() == found.source()
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_damaged_and_foreign_files_are_refused(found, tmp_path):
    file = tmp_path / "clusters.npz"
    with pytest.raises(ldp.InvalidArgument, match="there are no clusters at"):
        Clusters.load(file)
    found.save(file)
    whole = file.read_bytes()
    damaged = [whole[: len(whole) // 2], whole[:-1], b"", b"0" * 100, whole[:200] + b"\xff\xff" + whole[202:]]
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(ldp.InvalidArgument, match="does not hold whole clusters"):
            Clusters.load(file)
    np.savez(file, format=np.array("labeldp-clusters-0"), **vars(found))
    with pytest.raises(ldp.InvalidArgument, match="does not hold whole clusters"):
        Clusters.load(file)
    np.savez(file, **vars(found))
    with pytest.raises(ldp.InvalidArgument, match="does not hold whole clusters"):
        Clusters.load(file)
    np.savez(file, format=np.array(clusters.FORMAT), **vars(found) | {"mean": np.array([object()])})  # a pickle
    with pytest.raises(ldp.InvalidArgument, match="does not hold whole clusters"):
        Clusters.load(file)


def test_the_source_names_the_number_of_clusters_and_tells_them_apart(found):
    other = Clusters(np.roll(found.numbers, 1), found.centres, found.mean, found.principal)
    assert found.source().startswith("9 clusters (digest ") and found.source().endswith("caller states are public")
    assert other.source() != found.source() and other.source()[:12] == found.source()[:12]


# ---------------------------------------------------------------- the public rule


@given(st.integers(1, 10**9), st.integers(1, 20 * 10**12))
def test_the_rule_is_n_epsilon_over_20_exactly(n_rows, units):
    epsilon = Fraction(units, 10**12)
    exact = n_rows * epsilon / 20
    count = cluster_count(n_rows, f"{units // 10**12}.{units % 10**12:012d}")
    assert 1 <= count <= n_rows
    assert count == max(1, exact.numerator // exact.denominator)


def test_the_rule_does_not_lose_a_cluster_to_rounding():
    assert cluster_count(200, "0.1") == 1 and cluster_count(199, "0.1") == 1 and cluster_count(400, "0.1") == 2
    assert cluster_count(3, "20") == 3


@pytest.mark.parametrize(("n_rows", "epsilon"), [(0, "1"), (-5, "1"), (2.5, "1"), (100, "0"), (100, "-1"), (100, "21")])
def test_the_rule_takes_a_row_count_and_an_epsilon(n_rows, epsilon):
    with pytest.raises(ldp.InvalidArgument):
        cluster_count(n_rows, epsilon)


# ---------------------------------------------------------------- without scikit-learn


@pytest.mark.parametrize("missing", ["sklearn.decomposition", "sklearn.cluster"])
def test_without_scikit_learn_clustering_says_what_to_install(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ldp.MissingExtra, match=r"pip install 'labeldp\[sklearn\]'"):
        Clusters.of(features(), count=3)


def test_stored_clusters_are_used_without_scikit_learn(found, tmp_path):
    found.save(tmp_path / "c.npz")
    program = f"""
import sys
sys.modules["sklearn"] = None
import numpy as np
from labeldp.priors import Clusters, cluster_count
found = Clusters.load({str(tmp_path / "c.npz")!r})
found.assign(np.ones((3, {WIDTH})))
found.neighbours(2)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
