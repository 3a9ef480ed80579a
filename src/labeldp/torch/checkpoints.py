"""Checkpoints and weights: whole or not there at all, and read without executing anything."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from labeldp.errors import InvalidArgument
from labeldp.files import renamed_when_whole


def write(path: Path, state: dict[str, Any]) -> None:
    with renamed_when_whole(path) as file:
        torch.save(state, file)


def read(path: Path | None, fingerprint: str) -> dict[str, Any] | None:
    """Return the checkpoint at a path, None if there is none; raise if it is of another training."""
    if path is None or not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InvalidArgument(f"{path} is not a whole checkpoint ({type(error).__name__}): remove it.") from None
    if not isinstance(state, dict) or state.get("fingerprint") != fingerprint:
        raise InvalidArgument(
            f"{path} was made by a training with other releases, settings or starting weights, and cannot be gone on from. "
            "Resume with those it was made with (seed torch before you build a module), or remove it and the checkpoints "
            "beside it: what was released is then trained on anew, and nothing is asked again."
        )
    return state


def save_weights(path: str | os.PathLike[str], module: nn.Module, description: dict[str, Any] | None = None) -> None:
    """Write a module's weights as safetensors, into one file of exactly this name, with a description as metadata."""
    weights = {  # clones, because tied weights share memory, which the format does not allow
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in module.state_dict().items()
    }
    with renamed_when_whole(Path(path)) as file:
        file.write(to_bytes(weights, None if description is None else {"description": json.dumps(description)}))


def fingerprint_of(settings: dict[str, Any], tensors: Iterable[Tensor]) -> str:
    """Tell trainings apart by everything that decides their result."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for tensor in tensors:
        digest.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
