import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.torch.schedules import SCHEDULES, constant, linear, official, piecewise

JUST_BELOW = 1e-9


def test_linear_rises_to_15_percent_and_falls_to_nothing():
    assert linear(0) == 0
    assert linear(0.075) == pytest.approx(0.5)
    assert linear(0.15 - JUST_BELOW) == pytest.approx(1, abs=1e-7) and linear(0.15) == pytest.approx(1)
    assert linear(0.575) == pytest.approx(0.5)
    assert linear(1 - JUST_BELOW) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize(
    ("done", "rate"),
    [
        (0, 0),
        (0.03, 0.2),
        (0.15, 1),
        (0.30 - JUST_BELOW, 1),
        (0.30, 0.1),
        (0.60 - JUST_BELOW, 0.1),
        (0.60, 0.01),
        (0.90 - JUST_BELOW, 0.01),
        (0.90, 0.001),
        (1 - JUST_BELOW, 0.001),
    ],
)
def test_piecewise_falls_tenfold_at_30_60_and_90_percent(done, rate):
    assert piecewise(done) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("done", "rate"),
    [
        (0, 0),
        (0.075, 0.5),
        (0.15, 1),
        (0.45 - JUST_BELOW, 1),
        (0.45, 0.1),
        (0.75 - JUST_BELOW, 0.1),
        (0.75, 0.01),
        (0.90, 0.01),
        (1 - JUST_BELOW, 0.01),
    ],
)
def test_the_official_code_falls_at_45_and_75_percent(done, rate):
    assert official(done) == pytest.approx(rate)


@given(done=st.floats(0, 1, exclude_max=True))
def test_no_schedule_leaves_0_to_1(done):
    assert set(SCHEDULES) == {"linear", "piecewise", "official", "constant"}
    assert all(0 <= schedule(done) <= 1 for schedule in SCHEDULES.values())
    assert constant(done) == 1
