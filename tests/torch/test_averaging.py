"""The moving average against a loop over numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from labeldp.torch.averaging import WeightAverage


def network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    module.register_buffer("flags", torch.tensor([True, False]))
    return module


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_the_average_is_a_loop_over_every_number(decay):
    module = network()
    average = WeightAverage(module, decay)
    expected = {name: value.flatten().tolist() for name, value in copy.deepcopy(module.state_dict()).items()}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(30):
        optimizer.zero_grad()
        module(torch.randn(8, 3, dtype=torch.float64)).square().mean().backward()
        optimizer.step()
        module.flags.logical_not_()
        average.follow(module, step)
        used = min(decay, (1 + step) / (10 + step))
        for name, value in module.state_dict().items():
            now = value.flatten().tolist()
            if value.is_floating_point():
                now = [used * old + (1 - used) * new for old, new in zip(expected[name], now, strict=True)]
            expected[name] = now
    found = average.module.state_dict()
    assert "1.running_var" in found and "1.num_batches_tracked" in found
    for name, value in found.items():
        if value.is_floating_point():
            assert value.flatten().tolist() == pytest.approx(expected[name], rel=1e-12, abs=1e-14)
        else:
            assert value.flatten().tolist() == expected[name], "whole numbers are copied"
    assert int(average.module[1].num_batches_tracked) == 30


def test_the_average_follows_and_leads_nobody():
    module = network()
    average = WeightAverage(module, 0.9)
    before = copy.deepcopy(module.state_dict())
    average.follow(module, 0)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.training and not average.module.training
    assert not any(parameter.requires_grad for parameter in average.module.parameters())
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_half_precision_and_channels_last_weights_are_averaged_too():
    module = nn.Conv2d(2, 3, 3).to(torch.bfloat16).to(memory_format=torch.channels_last)
    average = WeightAverage(module, 0.5)
    with torch.no_grad():
        module.weight.zero_()
    average.follow(module, 100)
    assert torch.isfinite(average.module.weight).all()
