"""The published points are what was published."""

from itertools import pairwise

import pytest

from labeldp.report import published


@pytest.mark.parametrize("name", ["Fashion-MNIST", "fashion_mnist", "FASHION MNIST", "fmnist"])
def test_data_is_known_however_it_is_spelled(name):
    assert published.known(name) == "Fashion-MNIST"


def test_other_data_is_not_known():
    assert published.known("digits") is None and published.known("") is None and published.known("cifar") is None


def test_every_method_has_its_source():
    assert {method for points in published.POINTS.values() for method in points} == set(published.SOURCES)


@pytest.mark.parametrize("dataset", published.POINTS)
def test_two_stages_beat_one_and_more_epsilon_never_hurts(dataset):
    better = (lambda a, b: a <= b) if published.is_rmse(dataset) else (lambda a, b: a >= b)
    one, two = (published.values(dataset, method) for method in (published.ONE_STAGE, published.TWO_STAGES))
    assert one.keys() == two.keys()
    assert sum(not better(two[epsilon], one[epsilon]) for epsilon in one) <= (dataset == "CIFAR-10")  # at epsilon 8
    for points in (one, two):
        values = [points[epsilon] for epsilon in sorted(points, key=float)]
        assert all(better(b, a) for a, b in pairwise(values))


def test_accuracies_are_shares_of_one():
    assert published.values("CIFAR-10", "LP-2ST")["6"] == 0.9426
    assert published.values("MovieLens-1M", "LP-1ST")["8"] == 0.867
