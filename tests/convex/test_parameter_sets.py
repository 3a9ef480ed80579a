"""Parameter sets: projections against their optimality conditions and against a solver, diameters against their corners."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from labeldp.convex import Ball, Box, Simplex
from labeldp.errors import InvalidArgument

SETS = [
    Ball(radius=1.5),
    Ball(radius=0.7, centre=[1.0, -2.0, 0.5]),
    Box(low=-1, high=0.5),
    Box(low=[-1.0, 0.0, 2.0], high=[1.0, 0.0, 3.0]),
    Simplex(),
    Simplex(total=2.5),
]
points = arrays(np.float64, 3, elements=st.floats(-1e6, 1e6))
each_set = pytest.mark.parametrize("space", SETS, ids=repr)


def members(space, rng, count):
    return space.project(rng.normal(size=(count, 3)) * 3)


@each_set
@given(point=points, seed=st.integers(0, 2**32 - 1))
def test_a_projection_is_a_member_and_turns_away_from_no_other(space, point, seed):
    """The condition <point - projection, member - projection> <= 0 for all members holds for the nearest point alone."""
    nearest = space.project(point)
    assert space.contains(nearest)
    others = members(space, np.random.default_rng(seed), 20)
    room = 1e-9 * (1 + np.abs(point).max()) * (1 + space.largest_norm(3))
    assert ((others - nearest) @ (point - nearest) <= room).all()


@each_set
@given(point=points, other=points)
def test_projecting_moves_no_two_points_apart_and_members_not_at_all(space, point, other):
    a, b = space.project(point), space.project(other)
    assert np.linalg.norm(a - b) <= np.linalg.norm(point - other) * (1 + 1e-9) + 1e-8
    assert space.project(a) == pytest.approx(a, abs=1e-9)


@each_set
def test_a_solver_finds_no_nearer_member(space):
    rng = np.random.default_rng(5)
    for point in rng.normal(size=(8, 3)) * 3:
        limits = {
            Ball: [{"type": "ineq", "fun": lambda w: space.radius**2 - ((w - space.centre) ** 2).sum()}],
            Simplex: [{"type": "eq", "fun": lambda w: w.sum() - space.total}],
            Box: [],
        }[type(space)]
        between = {
            Ball: None,
            Simplex: [(0, None)] * 3,
            Box: list(zip(*(np.broadcast_to(side, 3) for side in (space.low, space.high)), strict=True))
            if isinstance(space, Box)
            else None,
        }[type(space)]
        found = minimize(
            lambda w, point=point: ((w - point) ** 2).sum(),
            space.middle(3),
            constraints=limits,
            bounds=between,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert space.project(point) == pytest.approx(found.x, abs=1e-5)


@each_set
def test_many_points_are_projected_as_one_by_one(space):
    table = np.random.default_rng(1).normal(size=(4, 5, 3)) * 2
    one_by_one = [[space.project(point) for point in row] for row in table]
    assert space.project(table) == pytest.approx(np.array(one_by_one))
    assert space.contains(space.project(table)).all()


@each_set
def test_no_two_members_are_further_apart_than_the_diameter_nor_longer_than_the_largest_norm(space):
    some = members(space, np.random.default_rng(2), 300)
    apart = np.linalg.norm(some[:, None] - some[None], axis=-1)
    assert apart.max() <= space.diameter(3) * (1 + 1e-9)
    assert np.linalg.norm(some, axis=1).max() <= space.largest_norm(3) * (1 + 1e-9)
    assert space.contains(space.middle(3))


def test_diameters_and_largest_norms_are_attained():
    corners = np.array(list(itertools.product([-1, 0.5], repeat=3)))
    assert Box(low=-1, high=0.5).diameter(3) == pytest.approx(1.5 * math.sqrt(3))
    assert Box(low=-1, high=0.5).largest_norm(3) == pytest.approx(np.linalg.norm(corners, axis=1).max())
    assert Simplex(total=2.5).diameter(3) == pytest.approx(np.linalg.norm([2.5, -2.5, 0]))
    assert Ball(radius=2.0, centre=[3.0, 4.0]).largest_norm(2) == 7 and Ball(radius=2.0).diameter(10**6) == 4


def test_what_lies_outside_is_not_a_member():
    assert not Ball(radius=1.0).contains([1.0, 0.1])
    assert not Box(low=0, high=1).contains([0.5, 1.01])
    assert not Simplex().contains([0.5, 0.4]) and not Simplex().contains([1.5, -0.5])
    assert Simplex().contains([[0.5, 0.5], [0.0, 2.0]]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Ball(radius=0), "radius must be > 0"),
        (lambda: Ball(radius=-1.0), "radius must be > 0"),
        (lambda: Ball(radius=math.nan), "radius must be finite"),
        (lambda: Ball(radius="1"), "radius must be a number, got str"),
        (lambda: Ball(radius=True), "radius must be a number, got bool"),
        (lambda: Ball(radius=1, centre=[0.0, math.nan]), "centre must be finite"),
        (lambda: Ball(radius=1, centre=[[0.0]]), "centre must be one number or a vector"),
        (lambda: Box(low=0, high=math.inf), "high must be finite"),
        (lambda: Box(low=1, high=0), "low must be at most high"),
        (lambda: Box(low=1, high=1), "below it somewhere"),
        (lambda: Box(low=[0, 0], high=[1, 1, 1]), "one length, got 2 and 3"),
        (lambda: Box(low="a", high=1), "low must be numbers"),
        (lambda: Simplex(total=0), "total must be > 0"),
        (lambda: Simplex().check(1), "at least 2 coordinates"),
        (lambda: Ball(radius=1, centre=[0.0, 0.0]).check(3), r"one entry per parameter \(3\), got 2"),
        (lambda: Box(low=[0, 0], high=1).diameter(3), r"one entry per parameter \(3\), got 2"),
        (lambda: Ball(radius=1).contains([math.nan, 0.0]), "points must be finite"),
    ],
)
def test_a_set_that_is_none_is_refused(make, said):
    with pytest.raises(InvalidArgument, match=said):
        make()


def test_nobody_can_move_a_set_that_was_checked():
    centre = np.zeros(2)
    ball = Ball(radius=1.0, centre=centre)
    centre[:] = 5
    assert ball.middle(2).tolist() == [0, 0]
    ball.middle(2)[:] = 5
    assert ball.middle(2).tolist() == [0, 0]
