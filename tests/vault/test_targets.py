import pickle
import traceback
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.randomness import bits as randomness_bits
from labeldp.vault.labels import NumberedLabels
from labeldp.vault.targets import PARTS, _chances, _finite_numbers, _read_as_grid_values, grid, on_grid

SECRET = 86_753.25


def rounded(targets, low=0, high=4, step=1, **options):
    """The grid values that targets were moved to."""
    return np.array(grid(low, high, step))[on_grid(targets, low=low, high=high, step=step, **options).numbers]


def everything_said(error):
    """What any handler or debugger could show of an error, locals of our own frames included."""
    shown = "".join(traceback.format_exception(error)) + repr(error.args)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if "labeldp" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            shown += repr(frame.f_locals)
    return shown


# ---- the grid --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "step", "kind"),
    [
        (1, 5, 1, int),
        (-3.0, 3, "1.5", float),
        (0, 1, 0.1, float),
        ("0", "1", "0.01", float),
        (-0.5, 0.5, 0.5, float),
        (0, 100, 1, int),
        (1e6, 1_000_001, "0.125", float),
        (2**53 - 2, 2**53 - 1, 1, int),
        ("1e-9", "3e-9", "1e-9", float),
    ],
)
def test_the_grid_as_classes_is_exactly_that_of_the_response(low, high, step, kind):
    classes = grid(low, high, step)
    response = ldp.UnbiasedResponse("1", low=low, high=high, step=step)
    vault = ldp.LabelVault(on_grid([float(classes[0])], low=low, high=high, step=step), classes=classes, budget="1")
    assert {type(name) for name in classes} == {kind}
    assert vault._classes.exact_values() == response.values
    assert vault.classes == classes


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [
        (0, 1, Fraction(1, 3)),
        (2**53 - 1, 2**53, 1),
        (0, 10**20, 10**19),
        (0, "0.2000000000000000000002", "0.1000000000000000000001"),
    ],
)
def test_a_grid_that_its_classes_could_not_name_exactly_is_refused(low, high, step):
    with pytest.raises(ldp.InvalidArgument, match="a decimal that a float can hold"):
        grid(low, high, step)


@pytest.mark.parametrize(("low", "high", "step"), [(0, 1, 0), (1, 0, 1), (0, 1, 0.3), (0, 101, 1), (True, 2, 1)])
def test_a_grid_that_the_response_refuses_is_refused(low, high, step):
    with pytest.raises(ldp.InvalidArgument):
        on_grid([0.5], low=low, high=high, step=step)


# ---- the law of the rounding -----------------------------------------------------------------------------------------


@given(
    target=st.floats(min_value=-2, max_value=3, allow_nan=False),
    step=st.sampled_from(["0.1", "0.05", "0.5", "1", "2.5"]),
)
def test_the_mean_of_the_rounding_is_the_target(target, step):
    """In fractions, to within 4 units of 2^-53 of the largest number around."""
    points = np.array(grid(-2, 3, step), dtype=np.float64)
    (lower,), (parts_up,) = _chances(np.array([target]), points)
    exact = ldp.UnbiasedResponse("1", -2, 3, step).values
    mean = exact[lower] + Fraction(int(parts_up), PARTS) * (exact[lower + 1] - exact[lower])
    assert 0 <= parts_up <= PARTS
    assert abs(mean - Fraction(target)) <= 4 * Fraction(3, 2**53)


def test_simulated_roundings_go_up_as_often_as_they_should():
    """Within 6.2 standard deviations: a false alarm in 1e-9 runs, and the seed is fixed besides."""
    n = 40_000
    for target, below_it, chance in [(0.25, 0, 0.25), (1.5, 1, 0.5), (3.9, 3, 0.9), (2.001, 2, 0.001)]:
        values = rounded(np.full(n, target), bits=ldp.InsecureBits(seed=5))
        assert set(values) <= {below_it, below_it + 1}
        assert abs((values - below_it).mean() - chance) < 6.2 * np.sqrt(chance * (1 - chance) / n)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.longdouble, list, pd.Series])
def test_targets_on_the_grid_never_move(kind):
    """Chances of 0 and 1, not only small ones."""
    points = np.array(grid(0, "0.9", "0.1"))
    targets = points.tolist() if kind is list else kind(points)
    lower, parts_up = _chances(_read_as_grid_values(_finite_numbers(targets), points), points)
    assert lower.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8] and parts_up.tolist() == [0] * 9 + [PARTS]
    assert (rounded(targets, 0, "0.9", "0.1") == points).all()


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_the_bounds_written_at_a_low_precision_are_the_bounds(kind):
    for high in ("0.1", "0.3", "0.7"):
        assert rounded(kind([-float(high), float(high)]), f"-{high}", high, high).tolist() == [
            -float(high),
            float(high),
        ]


def test_whole_numbers_on_a_whole_grid_never_move():
    column = np.tile(np.arange(-3, 98), 500)
    for given_as in (column, column.tolist(), column.astype(np.int8), pd.Series(column, dtype="Int64")):
        assert (rounded(given_as, -3, 97, 1) == column).all()


def test_what_lies_between_is_moved_to_a_neighbour_and_not_always_to_the_same():
    targets = np.linspace(0, 4, 50_000)
    values = rounded(targets)
    assert (np.abs(values - targets) < 1).all()
    assert 0.2 < (values > targets).mean() < 0.8


class CountingBits:
    """Counts what is asked of the seeded bits it stands before."""

    private = False

    def __init__(self):
        self.counts = []

    def words(self, count):
        self.counts.append(count)
        return randomness_bits.InsecureBits(seed=1).words(count)


def test_the_number_of_words_drawn_does_not_depend_on_the_targets(monkeypatch):
    drawn = []
    for targets in ([0, 0, 0], [0.5, 1.5, 3.999], [4, 4, 0.1], [9.0, -9.0, 2.0]):
        bits = CountingBits()
        monkeypatch.setattr("labeldp.vault.targets.known_bits", lambda _, counting=bits: counting)
        on_grid(targets, low=0, high=4, step=1, clip=True)
        drawn.append(bits.counts)
    assert drawn == [[3]] * 4


def test_only_known_bits_round():
    with pytest.raises(ldp.InvalidArgument, match="bits"):
        on_grid([0.5], low=0, high=1, step=1, bits=CountingBits())


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "targets",
    [
        [SECRET, 1.0],
        np.array([SECRET, 1.0]),
        np.array([-SECRET]),
        np.array([4.000001]),
        np.float32([4.000001]),
        [10**30],
        pd.Series([SECRET, 1.0]),
        np.array([2**63], dtype=np.uint64),
    ],
    ids=lambda targets: str(targets)[:30],
)
def test_targets_outside_are_refused_without_a_word_about_which(targets):
    with pytest.raises(ldp.InvalidLabels) as caught:
        on_grid(targets, low=0, high=4, step=1)
    assert str(caught.value) == (
        "targets must all lie between low=0 and high=4; some do not (say clip=True to move them to the nearer bound)."
    )
    assert "86753" not in everything_said(caught.value).replace("_", "")
    assert caught.value.__cause__ is None and caught.value.__context__ is None


class Quoting:
    """Fails, quoting what it holds, as pandas and numpy do."""

    def isna(self):
        raise ValueError(f"could not convert {SECRET!r}")

    to_numpy = isna


@pytest.mark.parametrize(
    "targets",
    [
        [SECRET, np.nan],
        [SECRET, None],
        [SECRET, "x"],
        [SECRET, True],
        [SECRET, np.True_],
        [[SECRET]],
        np.array([[SECRET]]),
        np.array(SECRET),
        np.array([SECRET, np.inf]),
        np.array([SECRET, -np.inf]),
        np.array([str(SECRET)]),
        np.array([True, False]),
        np.array([SECRET + 0j]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.ma.array([SECRET, 1.0], mask=[False, True]),
        pd.Series([SECRET, None]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([True, False]),
        pd.Series([True, False], dtype="boolean"),
        pd.Series([str(SECRET)]),
        pd.DataFrame({"x": [SECRET]}),
        {SECRET: 1},
        {SECRET},
        b"12",
        str(SECRET),
        SECRET,
        None,
        [],
        np.array([]),
        [10**400],
        Quoting(),
        NumberedLabels(np.array([1])),
    ],
    ids=lambda targets: str(targets)[:30],
)
@pytest.mark.parametrize("clip", [False, True])
def test_what_is_not_a_column_of_finite_numbers_is_refused(targets, clip):
    with pytest.raises(ldp.InvalidLabels, match="column of finite numbers") as caught:
        on_grid(targets, low=0, high=4, step=1, clip=clip)
    assert "86753" not in everything_said(caught.value).replace("_", "")
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_clipping_moves_what_lies_outside_to_the_nearer_bound():
    targets = [-1e300, -0.001, 0.0, 4.0, 4.001, 1e300, 10**30]
    assert rounded(targets, clip=True).tolist() == [0, 0, 0, 4, 4, 4, 4]


def test_rounded_targets_are_neither_shown_nor_pickled():
    labels = on_grid([0.5, 3.0], low=0, high=4, step=1)
    assert repr(labels) == "<labels>"
    with pytest.raises(ldp.LabelDPError, match="never pickled"):
        pickle.dumps(labels)


# ---- end to end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high", "step"), [(0, 4, 1), (0, 4, "0.5"), (-1, 5, "0.25")])
def test_released_values_average_to_the_mean_of_the_targets(low, high, step):
    """Within 5 standard errors of their mean; with the seeds fixed, it either holds or not."""
    targets = np.linspace(0.123, 3.777, 20_000) ** 1.1 / 1.2
    labels = on_grid(pd.Series(targets), low=low, high=high, step=step, bits=ldp.InsecureBits(seed=3))
    vault = ldp.LabelVault(labels, classes=grid(low, high, step), budget="2", bits=ldp.InsecureBits(seed=4))
    release = vault.release(ldp.UnbiasedResponse("2", low=low, high=high, step=step))
    errors = release.values - targets
    assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(len(errors))
    assert vault.spent().epsilon == "2"


def test_the_vault_refuses_a_response_on_another_grid():
    vault = ldp.LabelVault(on_grid([0.5, 3], low=0, high=4, step=1), classes=grid(0, 4, 1), budget="1")
    with pytest.raises(ldp.InvalidArgument, match="grid"):
        vault.release(ldp.UnbiasedResponse("1", low=0, high=4, step="0.5"))
    assert vault.spent().epsilon == "0"
