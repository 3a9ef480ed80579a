"""Learning-rate schedules: from the share of training done, in [0, 1), to the share of the peak rate."""

from __future__ import annotations

from collections.abc import Callable

Schedule = Callable[[float], float]

RAMP = 0.15


def linear(done: float) -> float:
    """Grow from 0 for 15 % of training, then fall to 0 in a straight line: the paper's for MNIST and its kin."""
    return done / RAMP if done < RAMP else (1 - done) / (1 - RAMP)


def piecewise(done: float) -> float:
    """Grow from 0 for 15 % of training, then fall tenfold at 30, 60 and 90 %: the paper's for CIFAR-10."""
    return done / RAMP if done < RAMP else _tenfold(done, (0.30, 0.60, 0.90))


def official(done: float) -> float:
    """As `piecewise`, with the falls where the authors' code has them.

    It counts 30, 60 and 90 % from the end of the ramp, so they come at 45 and 75 %, and the third one never.
    """
    return done / RAMP if done < RAMP else _tenfold(done, (0.45, 0.75))


def constant(done: float) -> float:  # noqa: ARG001 - the same throughout
    return 1.0


def _tenfold(done: float, falls: tuple[float, ...]) -> float:
    return float(0.1 ** sum(done >= fall for fall in falls))


SCHEDULES: dict[str, Schedule] = {
    "linear": linear,
    "piecewise": piecewise,
    "official": official,
    "constant": constant,
}
