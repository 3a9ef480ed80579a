from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.learning import Partition
from labeldp.learning.partition import check_shares


@st.composite
def splits(draw):
    parts = draw(st.lists(st.integers(1, 10), min_size=1, max_size=5))
    return tuple(part / sum(parts) for part in parts)


@given(
    shares=splits(), n_rows=st.integers(100, 400), hold_out=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 99)
)
def test_the_parts_are_disjoint_and_cover_all_rows_in_their_shares(shares, n_rows, hold_out, seed):
    rows = np.flatnonzero(np.random.default_rng(seed).random(n_rows * 2) < 0.6)
    parts = Partition.of(rows, shares, hold_out=hold_out, seed=seed)
    pieces = [parts.hold_out, *parts.stages]
    assert sorted(np.concatenate(pieces).tolist()) == rows.tolist()
    assert len(parts.stages) == len(shares)
    assert abs(len(parts.hold_out) - hold_out * len(rows)) <= 0.5
    for share, piece in zip(shares, parts.stages, strict=True):
        assert (np.diff(piece) > 0).all() and abs(len(piece) - share * (len(rows) - len(parts.hold_out))) <= 1
    again = Partition.of(rows, shares, hold_out=hold_out, seed=seed)
    assert all((a == b).all() for a, b in zip(pieces, [again.hold_out, *again.stages], strict=True))


def test_another_seed_is_another_partition():
    one, other = (Partition.of(np.arange(100), (0.5, 0.5), seed=seed) for seed in (0, 1))
    assert set(one.stages[0].tolist()) != set(other.stages[0].tolist())


def test_a_partition_looks_shuffled():
    """Each row is in the first half half the time, over 2,000 seeds; 7 standard deviations, 100 rows: 1e-9 in all."""
    counts = np.zeros(100)
    for seed in range(2_000):
        counts[Partition.of(np.arange(100), (0.5, 0.5), seed=seed).stages[0]] += 1
    assert (abs(counts - 1_000) < 7 * np.sqrt(500)).all()


def test_too_few_rows_are_refused():
    with pytest.raises(ldp.InvalidArgument, match="too few"):
        Partition.of(np.arange(3), (0.25,) * 4)
    with pytest.raises(ldp.InvalidArgument, match="too few"):
        Partition.of(np.arange(100), (0.999, 0.001))


@pytest.mark.parametrize("split", [(0.5,), (0.5, 0.6), (1.0, 0.0), (1.5, -0.5), (float("nan"), 1.0), ()])
def test_shares_are_positive_one_per_stage_and_sum_to_one(split):
    with pytest.raises(ldp.InvalidArgument, match="split must be 2 positive shares"):
        check_shares(split, 2)
    assert check_shares(None, 4) == (0.25,) * 4 and check_shares([0.65, 0.35], 2) == (0.65, 0.35)
