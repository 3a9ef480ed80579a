"""The unbiased randomizer of least variance, for labels that are known numbers.

Every epsilon-DP randomizer is a mixture of patterns (Kairouz, Oh, Viswanath 2014): a report worth z that favours a set S of
labels, each of which sends it e^epsilon times as often as the labels outside. Used at rate theta, a pattern adds theta w_y
to the law of label y, with w_y = 1 in S and e^-epsilon outside, and theta w_y (z - v_y)^2 to the variance of its report.
The rates must give every label a law of mass 1 and bias 0. That is a linear program over all z and S; its dual sets a price
a_y on mass and b_y on bias, and asks that no pattern cost less than it earns. The best z of a set is known, so

    slack(S) = min over z of  sum_y w_y ((z - v_y)^2 / L - a_y - b_y (z - v_y))  >=  0

is one concave quadratic per set. We maximize sum_y a_y by Newton's method with a logarithmic barrier: no grid of values is
needed, the rates are barrier/slack, and the prices prove how close to the optimum they are. Only sets of neighbouring labels
are searched; no other set was ever found to lower the variance (the tests compare with all randomizers).

What the floats found is then made exact. Rates become whole numbers; a trace of plain randomized response, 2^-20 of the
mass, tells any two labels apart; the reports are worth what the best linear unbiased estimator says of these whole numbers;
and its last rounding error is absorbed, in Fractions, by the worth of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.epsilon import Odds
from labeldp.errors import InvalidArgument

Floats = NDArray[np.float64]
Exact = NDArray[Any]  # Python integers and Fractions

MOST_LABELS = 128
LEAST_GAP, LEAST_EXCESS = Fraction(1, 10**6), Fraction(1, 10**4)  # the floats cannot tell closer labels, or odds, apart
TOTAL = 2**62  # the sum of a row of whole numbers, nearly
TRACE = 2**20  # one part in this many is plain randomized response
TICKS = 2**64  # reports are worth whole multiples of this part of half the labels' range, but for those of the trace
GAP, SMALLEST_RATE, RIDGE = 1e-8, 1e-7, 1e-15  # of the search in floats


@dataclass(frozen=True, slots=True, eq=False)
class UnbiasedTable:
    """The law of the report given every label, in whole numbers, and what every report is worth.

    >>> from labeldp.budget.epsilon import Epsilon
    >>> stars = unbiased_table(tuple(Fraction(star) for star in range(1, 6)), Odds.within(Epsilon.of(1)))
    >>> [int(mean) for mean in stars.means], [round(float(variance), 2) for variance in stars.variances]
    ([1, 2, 3, 4, 5], [17.39, 14.78, 15.0, 14.78, 17.39])
    """

    integers: NDArray[np.int64]
    outputs: tuple[Fraction, ...]

    @property
    def total(self) -> int:
        """The sum of every row of integers."""
        return int(self.integers[0].sum())

    @property
    def means(self) -> tuple[Fraction, ...]:
        """The mean of the report given every label, which is that label's value."""
        return tuple(self.integers.astype(object) @ np.array(self.outputs) / Fraction(self.total))

    @property
    def variances(self) -> tuple[Fraction, ...]:
        """The variance of the report given every label."""
        squares = self.integers.astype(object) @ np.array(self.outputs) ** 2 / Fraction(self.total)
        return tuple(squares - np.array(self.means) ** 2)


@lru_cache(maxsize=64)
def unbiased_table(values: tuple[Fraction, ...], odds: Odds) -> UnbiasedTable:
    """Return the randomizer whose report has the label as its mean, with the least variance on average over the labels.

    Privacy
    -------
    No report is more than keep/other times as likely for one label as for another: every column is compared in whole
    numbers before the table is returned. Public: everything here, for no label is seen.
    """
    if not 2 <= len(values) <= MOST_LABELS:
        raise InvalidArgument(f"values must be 2 to {MOST_LABELS} numbers, got {len(values)}.")
    if min(high - low for low, high in pairwise(values)) <= abs(values[-1] - values[0]) * LEAST_GAP:
        raise InvalidArgument("values must increase, by more than 1e-6 of their range each time.")
    if odds.excess < LEAST_EXCESS * odds.other:
        raise InvalidArgument("epsilon must be at least 1e-4 for an unbiased report.")
    middle, reach = (values[0] + values[-1]) / 2, (values[-1] - values[0]) / 2
    points = np.array([(value - middle) / reach for value in values])  # Fractions from -1 to 1
    favoured, rates, least = _best_mixture(points.astype(np.float64), odds)
    integers, trace_low, trace_step = _whole_numbers(favoured, rates, odds)
    worth = _unbiased_worth(integers, points, trace_low, trace_step)
    order = np.argsort(worth, kind="stable")
    table = UnbiasedTable(integers[:, order], tuple(middle + reach * worth[order]))
    table.integers.flags.writeable = False
    _check(table, values, odds, least * float(reach) ** 2)
    return table


def _best_mixture(points: Floats, odds: Odds) -> tuple[NDArray[np.bool_], Floats, float]:
    """Return the favoured sets in use, their rates, and an average variance that no rates can go below."""
    n_labels, low, shrink = len(points), odds.other / odds.keep, odds.excess / (odds.keep + odds.other)
    points = points * shrink  # the worth of reports now stays near -1 .. 1, however small epsilon is
    first, last = (ends[:, None] for ends in np.triu_indices(n_labels))
    favoured = (first <= np.arange(n_labels)) & (np.arange(n_labels) <= last)
    law = np.where(favoured, 1.0, low)
    two_point = 1 - np.mean(points**2)  # the variance of Duchi's mechanism, then that of randomized response
    response = points.var() * (((odds.keep + (n_labels - 1) * odds.other) / odds.excess) ** 2 - 1)
    unit = n_labels * min(two_point, response)
    curvature, centre = law.sum(axis=1) / unit, (law @ points / law.sum(axis=1))[:, None]
    lean, spread = law * (centre - points), (law * (centre - points) ** 2).sum(axis=1) / unit

    def stretched(rows: Floats) -> Floats:  # a basis of prices in which labels differ by 1, however small epsilon is
        average = rows.mean(axis=1, keepdims=True)
        return average + (rows - average) / (1 - low)

    law, lean = stretched(law), stretched(lean)
    goal = np.repeat([1.0, 0.0], n_labels)  # mass 1, bias 0

    def at(prices: Floats, barrier: float) -> tuple[Floats, Floats, float]:
        move = law @ prices[n_labels:] / (2 * curvature)  # of the best z, away from the centre of the set
        slack = spread - law @ prices[:n_labels] - lean @ prices[n_labels:] - curvature * move**2
        height = goal @ prices + barrier * np.log(slack).sum() if slack.min() > 0 else -np.inf
        return move, slack, float(height)

    prices, barrier = -goal, 1.0
    for _ in range(1000):
        move, slack, height = at(prices, barrier)
        rates = barrier / slack
        patterns = np.hstack([law, lean + move[:, None] * law])
        hessian = (patterns * (rates / slack)[:, None]).T @ patterns
        hessian[n_labels:, n_labels:] += (law * (rates / (2 * curvature))[:, None]).T @ law
        size = 1 / np.sqrt(np.diag(hessian))
        gradient = goal - patterns.T @ rates
        newton = size * np.linalg.solve(size[:, None] * hessian * size + RIDGE * np.eye(len(goal)), size * gradient)
        decrement = max(float(gradient @ newton) / barrier, 0.0) ** 0.5
        if decrement < 0.5 and barrier * len(slack) < GAP * (goal @ prices):
            rates = rates * (
                1 + patterns @ newton / slack
            )  # exact mass and bias; positive, as the decrement is below 1
            used = rates > SMALLEST_RATE
            return favoured[used], rates[used], float(goal @ prices) * unit / n_labels / shrink**2
        step, found = 1.0, at(prices + newton, barrier)[2]
        while found == -np.inf or (found <= height and step * (1 + decrement) > 1):
            step /= 2  # until the theory of self-concordant barriers promises a rise
            found = at(prices + step * newton, barrier)[2]
        prices = prices + step * newton
        barrier /= 4 if decrement < 0.5 else 1
    raise AssertionError("the search for the best unbiased table did not end")


def _whole_numbers(favoured: NDArray[np.bool_], rates: Floats, odds: Odds) -> tuple[NDArray[np.int64], int, int]:
    """Round the patterns, append the trace (a report of its own for every label), and shave the rows to one total."""
    n_labels = favoured.shape[1]
    step = TOTAL // TRACE * odds.excess // (odds.excess + n_labels * odds.other)
    step = 1 << (step.bit_length() - 1)  # a power of two keeps the Fractions short
    trace_low = -(-step * odds.other // odds.excess)
    low = np.array([int(rate * TOTAL) * odds.other // odds.keep for rate in rates], dtype=object)
    columns = np.where(favoured.T, low * odds.keep // odds.other, low)
    integers = np.hstack([columns, trace_low + step * np.eye(n_labels, dtype=object)]).astype(np.int64)
    surplus = integers.sum(axis=1) - integers.sum(axis=1).min()
    integers[np.arange(n_labels), (integers - integers.min(axis=0)).argmax(axis=1)] -= surplus
    return integers, trace_low, step


def _unbiased_worth(integers: NDArray[np.int64], points: Exact, trace_low: int, trace_step: int) -> Exact:
    """Return what every report is worth, such that the mean of every row is its point, exactly.

    Of all unbiased choices the one of smallest mean square has the least variance. Least squares, refined with exact
    residuals, find it in whole ticks; the trace, a constant plus a multiple of the identity, is then inverted by hand.
    """
    target, law = points * (integers[0].sum().item() * TICKS), integers / integers[0].sum()
    root = np.sqrt(law.mean(axis=0))
    ticks, missing = np.zeros(len(root), dtype=object), target
    for _ in range(4):
        share = (missing / target.max()).astype(np.float64)  # the largest point is 1
        worth = np.linalg.lstsq(law / root, share)[0] / root
        ticks += np.array([round(tick) for tick in (worth * TICKS).tolist()], dtype=object)
        missing = target - integers.astype(object) @ ticks
    common = missing.sum() * Fraction(trace_low, trace_step + len(points) * trace_low)
    ticks[-len(points) :] += (missing - common) / Fraction(trace_step)
    return ticks / Fraction(TICKS)


def _check(table: UnbiasedTable, values: tuple[Fraction, ...], odds: Odds, least: float) -> None:
    """Refuse a table that is not private, unbiased and optimal, as promised."""
    most, fewest = table.integers.max(axis=0).astype(object), table.integers.min(axis=0).astype(object)
    if fewest.min() < 1 or (most * odds.other > odds.keep * fewest).any():
        raise AssertionError("a report would betray its label by more than epsilon")
    if not (most * odds.other * 2 * 10**9 > odds.keep * fewest * (2 * 10**9 - 1)).any():
        raise AssertionError("the table would waste more than 5e-10 of epsilon")
    if {sum(row) for row in table.integers.tolist()} != {table.total} or table.total >= 2**63:
        raise AssertionError("the rows must share one total below 2^63")
    if table.means != values:
        raise AssertionError("a report would be biased")
    errors = np.array([[float(output - value) for output in table.outputs] for value in values])
    if not (table.integers * errors**2).sum() < (1 + 1e-4) * least * len(values) * table.total:
        raise AssertionError("the variance is not the least")
