"""Models by name. The same seed gives the same weights, bit for bit, and leaves torch's own generator alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.torch.models.inputs import DESCRIPTIONS, Inputs, kind_of

Builder = Callable[[Inputs, int], nn.Module]


@dataclass(frozen=True)
class Entry:
    builder: Builder
    takes: tuple[str, ...]


_MODELS: dict[str, Entry] = {}


def register(name: str, *, takes: tuple[str, ...] = tuple(DESCRIPTIONS)) -> Callable[[Builder], Builder]:
    """Name a function from (inputs, n_classes) to a module of K logits, for `build`.

    Parameters
    ----------
    name : what `build` will know it by. It belongs to the module that registers it first, which may do so again (as a notebook
        cell that runs twice does); any other is refused.
    takes : the kinds of input it can read, out of "image", "ids" and "vector".
    """
    checks.text(name=name)
    for kind in takes:
        checks.one_of(tuple(DESCRIPTIONS), takes=kind)

    def add(builder: Builder) -> Builder:
        if name in _MODELS and _MODELS[name].builder.__module__ != builder.__module__:
            raise InvalidArgument(f"name must be new, and {name!r} is a model already: choose another.")
        _MODELS[name] = Entry(builder, tuple(takes))
        return builder

    return add


def names() -> tuple[str, ...]:
    """Return the names of all models, in alphabetical order."""
    return tuple(sorted(_MODELS))


def build(name: str, inputs: Inputs, n_classes: int, *, seed: int = 0) -> nn.Module:
    """Return a freshly initialised model that turns the described inputs into rows of K logits.

    Parameters
    ----------
    name : one of `names()`.
    inputs : {"kind": "image", "shape": [C, H, W]} for float32 images in [0, 1], {"kind": "vector", "size": d} for float32
        rows, or {"kind": "ids", "sizes": [n_users, n_items]} for int64 pairs.
    n_classes : K, the number of logits.
    seed : of the initial weights, which are drawn on the CPU.

    >>> model = build("linear", {"kind": "image", "shape": [1, 28, 28]}, 10)
    >>> sum(p.numel() for p in model.parameters())
    7850
    """
    model = _MODELS[checks.one_of(names(), **{"the model's name": name})]
    checks.integer(n_classes=n_classes, at_least=2, at_most=checks.MAX_CLASSES)
    checks.integer(seed=seed, at_least=0, at_most=2**63 - 1)
    if (kind := kind_of(inputs)) not in model.takes:
        taken = " or ".join(DESCRIPTIONS[each] for each in model.takes)
        raise InvalidArgument(f"{name} takes inputs {taken}, got kind {kind!r}.")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        module = model.builder(inputs, n_classes)
    if not isinstance(module, nn.Module):
        raise InvalidArgument(f"the function registered as {name!r} must return a torch.nn.Module.")
    return module
