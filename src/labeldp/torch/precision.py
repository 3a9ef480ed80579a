"""What is computed in while training: bfloat16 where the processor is quicker at it, and no subnormal numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
"""Of processors, each of which is enough. Without them bfloat16 is emulated, and slower than float32."""


def computed_in(asked: str, device: torch.device) -> str:
    """Return the precision that was asked for, or "float32" on processors without instructions for bfloat16."""
    emulated = device.type == "cpu" and not any(has_instructions(name) for name in INSTRUCTIONS)
    return "float32" if emulated else asked


def has_instructions(name: str) -> bool:
    return bool(torch.cpu.get_capabilities().get(name, False))


@contextmanager
def subnormal_as_zero() -> Iterator[None]:
    """Take numbers below 1e-38 for 0: where a penalty has all but erased weights, their products make steps far slower."""
    was = bool(torch.tensor(1e-40) * 1 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was)


def forward_in(precision: str, module: Any) -> Callable[[Tensor], Tensor]:
    """Return what computes a module's logits, as float32, in a precision."""
    return module if precision == "float32" else partial(_in_bfloat16, module)  # type: ignore[no-any-return]


def _in_bfloat16(module: Any, inputs: Tensor) -> Tensor:
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        logits: Tensor = module(inputs)
    return logits.float()
