"""The public description of a model's inputs: plain values that go into a JSON file as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from labeldp import checks
from labeldp.errors import InvalidArgument

Inputs = Mapping[str, Any]

DESCRIPTIONS = {
    "image": '{"kind": "image", "shape": [C, H, W]}',
    "ids": '{"kind": "ids", "sizes": [n_users, n_items]}',
    "vector": '{"kind": "vector", "size": d}',
}


def kind_of(inputs: Inputs) -> str:
    """Return the kind of the described inputs, after checking the description."""
    if not isinstance(inputs, Mapping) or inputs.get("kind") not in tuple(DESCRIPTIONS):
        got = repr(inputs.get("kind")) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise InvalidArgument(f"inputs must be one of {'; '.join(DESCRIPTIONS.values())}. Got kind {got}.")
    kind: str = inputs["kind"]
    if kind == "image":
        image_shape(inputs)
    elif kind == "ids":
        id_sizes(inputs)
    else:
        _sizes(inputs, "size", 1)
    return kind


def image_shape(inputs: Inputs) -> tuple[int, int, int]:
    """Return channels, height and width."""
    channels, height, width = _sizes(inputs, "shape", 3)
    return channels, height, width


def id_sizes(inputs: Inputs) -> tuple[int, int]:
    """Return the number of users and of items."""
    n_users, n_items = _sizes(inputs, "sizes", 2)
    return n_users, n_items


def n_numbers(inputs: Inputs) -> int:
    """Return how many numbers one image or vector holds."""
    return math.prod(image_shape(inputs) if kind_of(inputs) == "image" else _sizes(inputs, "size", 1))


def _sizes(inputs: Inputs, key: str, length: int) -> list[int]:
    value = inputs.get(key)
    sizes = [value] if length == 1 else value
    if not isinstance(sizes, (list, tuple)) or len(sizes) != length:
        raise InvalidArgument(f"inputs must be {DESCRIPTIONS[inputs['kind']]}, got {key}={value!r}.")
    return [checks.integer(**{f"inputs[{key!r}]": size}, at_least=1) for size in sizes]
