"""Where points stand in a figure against epsilon, and how its axes are told."""

from __future__ import annotations

import math

import pytest

from labeldp.report.epsilons import Series, _Places, against_epsilon
from labeldp.report.svg import BLUE, INK
from labeldp.report.words import ACCURACY, RMSE


def series(name, draws, colour=BLUE):
    return Series(name, draws, colour)


def test_a_single_method_of_several_draws_stands_at_its_epsilon_as_published_ones_do():
    ours, theirs = series("ours", {1.0: (0.9, 0.91), 2.0: (0.92, 0.93)}), series("theirs", {1.0: (0.8,)}, INK)
    places = _Places.of([ours, theirs], 400)
    assert places.at(1.0, "ours") == places.at(1.0, "theirs") == 1.0
    assert places.at(1.0, "ours", aside=0.45) < 1.0  # its draws stand beside their mean


def test_methods_of_several_draws_stand_side_by_side():
    both = [series(name, {1.0: (0.9, 0.91), 2.0: (0.92, 0.93)}) for name in "ab"]
    places = _Places.of(both, 400)
    left, right = (places.at(1.0, name) for name in "ab")
    assert left < 1.0 < right and math.log(left) == pytest.approx(-math.log(right))


def test_numbers_have_room_on_the_axis():
    crowded = _Places.of([series("ours", dict.fromkeys((0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0), (0.9,)))], 400)
    assert crowded.ticks()[1] == ["0.1", "0.5", "1", "2", "3", "4", "8"]
    narrow = _Places.of([series("ours", dict.fromkeys((0.1, 0.11, 0.5), (0.9,)))], 400)
    assert narrow.ticks()[1] == ["0.1", "0.5"]


def test_accuracies_near_one_are_spaced_by_their_errors():
    near = against_epsilon("near", "near", [series("ours", {1.0: (0.95,), 2.0: (0.992,)})], ACCURACY)
    assert (
        ">99\N{NO-BREAK SPACE}%<" in near
        and ">95\N{NO-BREAK SPACE}%<" in near
        and ">96\N{NO-BREAK SPACE}%<" not in near
    )


@pytest.mark.parametrize("best", [0.96, 1.0])
def test_others_are_spaced_evenly_as_are_those_that_reach_one(best):
    far = against_epsilon("far", "far", [series("ours", {1.0: (best - 0.04,), 2.0: (best,)})], ACCURACY)
    assert f">{100 * best - 2:.0f}\N{NO-BREAK SPACE}%<" in far


def test_errors_have_two_digits():
    assert ">0.90<" in against_epsilon("rmse", "rmse", [series("ours", {1.0: (0.95,), 2.0: (0.87,)})], RMSE)
