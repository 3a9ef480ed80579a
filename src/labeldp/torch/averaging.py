"""An exponential moving average of a module's weights and statistics."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class WeightAverage:
    """Follows a module: after each step, average = decay * average + (1 - decay) * module."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(module).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def follow(self, module: nn.Module, step: int) -> None:
        """Take one step; in the first ones the decay is smaller, so that the starting weights are soon forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        ours, theirs = list(self.module.state_dict().values()), list(module.state_dict().values())
        floats = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.is_floating_point()]
        torch._foreach_lerp_([a for a, _ in floats], [b for _, b in floats], 1 - decay)
        for a, b in zip(ours, theirs, strict=True):
            if not a.is_floating_point():
                a.copy_(b)

    @torch.no_grad()
    def tells(self, inputs: Tensor) -> Tensor:
        """Return the class probabilities of inputs, by the average."""
        return torch.softmax(self.module(inputs), dim=1)
