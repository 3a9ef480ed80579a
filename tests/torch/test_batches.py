"""The order of an epoch and the pairs of mixup: the same for any number of processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import labeldp as ldp
from labeldp.torch.batches import Batches, torch_seed
from labeldp.torch.learner import mixed_loss
from labeldp.torch.losses import on_labels, on_likelihood, on_weights

SIZES = st.integers(1, 300)
SEEDS = st.integers(0, 2**63 - 1)


def epoch(n_examples, size, processes, seed, number):
    """Return, batch by batch, each process's share."""
    batches = Batches.of(n_examples, size, processes)
    shares = [list(batches.epoch(seed, number, rank)) for rank in range(processes)]
    return list(zip(*shares, strict=True))


def pairs_of(share):
    return [tuple(pair) for pair in zip(share.tolist(), share[::-1].tolist(), strict=True)]


@given(n_examples=st.integers(8, 300), size=st.sampled_from([8, 16, 64]), seed=SEEDS, number=st.integers(1, 1000))
def test_one_two_and_four_processes_train_on_the_same_pairs(n_examples, size, seed, number):
    size = min(size, n_examples // 8 * 8)
    alone = epoch(n_examples, size, 1, seed, number)
    for processes in (2, 4):
        together = epoch(n_examples, size, processes, seed, number)
        assert len(together) == len(alone)
        for one, many in zip(alone, together, strict=True):
            assert sorted(pairs_of(one[0])) == sorted(pair for share in many for pair in pairs_of(share))


@given(n_examples=SIZES, size=SIZES, processes=st.sampled_from([1, 2, 3, 4]), seed=SEEDS)
def test_every_example_comes_at_most_once_an_epoch_in_equal_shares(n_examples, size, processes, seed):
    try:
        batches = Batches.of(n_examples, size, processes)
    except ldp.InvalidArgument:
        assert min(n_examples, size) < 2 * processes
        return
    shares = [list(batches.epoch(seed, 1, rank)) for rank in range(processes)]
    seen = np.concatenate([share for rank in shares for share in rank])
    assert len(set(seen.tolist())) == len(seen) and seen.min() >= 0 and seen.max() < n_examples
    assert {len(share) for rank in shares for share in rank} == {batches.size // processes}
    assert [len(rank) for rank in shares] == [batches.steps] * processes and batches.steps >= 1
    assert n_examples - len(seen) < batches.size  # only what fills no batch waits
    assert min(size, n_examples) - (2 * processes - 1) * (processes > 1) <= batches.size <= min(size, n_examples)


@given(n_examples=st.integers(20, 300), seed=SEEDS, number=st.integers(1, 1000))
def test_the_order_follows_from_seed_and_epoch_alone(n_examples, seed, number):
    """Two shuffles of 20 or more are equal by chance once in 20! times."""
    first = np.concatenate(list(Batches.of(n_examples, n_examples).epoch(seed, number)))
    assert (first == np.concatenate(list(Batches.of(n_examples, n_examples).epoch(seed, number)))).all()
    for other_seed, other in ((seed, number + 1), (seed + 1, number)):
        assert (first != np.concatenate(list(Batches.of(n_examples, n_examples).epoch(other_seed, other)))).any()


def test_rows_that_wait_are_others_in_another_epoch():
    batches = Batches.of(100, 64)
    seen = set()
    for number in range(1, 40):
        seen.update(np.concatenate(list(batches.epoch(0, number))).tolist())
    assert len(seen) == 100  # missing one has a chance of 100 * 0.36^39


@pytest.mark.parametrize(("n_examples", "size", "processes"), [(3, 256, 2), (500, 3, 2), (500, 7, 4), (0, 8, 1)])
def test_too_small_batches_are_refused(n_examples, size, processes):
    with pytest.raises(ldp.InvalidArgument, match="too small"):
        Batches.of(n_examples, size, processes)


def test_mixing_is_one_number_a_batch_from_seed_and_epoch():
    batches = Batches.of(1000, 10)
    lam = batches.mixing(1, 2, 0.4)
    assert lam.shape == (100,) and ((lam >= 0) & (lam <= 1)).all() and len(set(lam.tolist())) == 100
    assert (lam == batches.mixing(1, 2, 0.4)).all() and (lam != batches.mixing(1, 3, 0.4)).any()
    assert (lam == Batches(1000, 10, processes=5).mixing(1, 2, 0.4)).all()
    # Beta(0.4, 0.4) has mean 1/2 and variance 1 / (4 * 1.8); 6.2 standard errors have a false-alarm rate of 1e-9
    many = Batches.of(100_000, 1).mixing(3, 1, 0.4)
    assert abs(many.mean() - 0.5) < 6.2 * np.sqrt(1 / 7.2 / 100_000)
    assert many.var() == pytest.approx(1 / 7.2, rel=0.02)


def test_torchs_seeds_differ_by_seed_epoch_and_process():
    seeds = {torch_seed(seed, number, rank) for seed in range(5) for number in range(1, 6) for rank in range(4)}
    assert len(seeds) == 100 and all(0 <= seed < 2**63 for seed in seeds)
    assert torch_seed(2**63 - 1, 10**6, 63) == torch_seed(2**63 - 1, 10**6, 63)


# ---------------------------------------------------------------- mixup


@pytest.mark.parametrize("n_rows", [1, 2, 7, 8])
@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("loss", [on_labels, on_weights, on_likelihood])
def test_mixup_is_its_formula_row_by_row(n_rows, lam, loss):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    inputs = torch.randn(n_rows, 4, dtype=torch.float64)
    targets = torch.randint(3, (n_rows,)) if loss is on_labels else torch.randn(n_rows, 3, dtype=torch.float64)
    found = mixed_loss(module, inputs, targets, lam, loss)
    for i in range(n_rows):
        j = n_rows - 1 - i
        logits = module((lam * inputs[i] + (1 - lam) * inputs[j])[None])
        one, other = (loss(logits, targets[place][None])[0] for place in (i, j))
        assert found[i].item() == pytest.approx((lam * one + (1 - lam) * other).item(), rel=1e-12)
