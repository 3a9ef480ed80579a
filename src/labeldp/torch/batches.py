"""The order of an epoch: which rows, in which batches, on which process. Everything follows from (seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeldp.errors import InvalidArgument

SHUFFLE, MIXUP, TORCH = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Batches:
    """Equal batches of a shuffled training set; the rows that fill no batch wait for another epoch's shuffle.

    In a batch, example i is mixed with example size - 1 - i, and both go to the same process: any number of processes
    trains on the same pairs.
    """

    n_examples: int
    size: int
    processes: int = 1

    @classmethod
    def of(cls, n_examples: int, batch_size: int, processes: int = 1) -> Batches:
        size = min(batch_size, n_examples)
        if processes > 1:
            size -= size % (2 * processes)
        if size < 1:
            raise InvalidArgument(
                f"batches of {min(batch_size, n_examples)} of {n_examples} examples are too small for {processes} processes: "
                "each needs two examples of every batch."
            )
        return cls(n_examples, size, processes)

    @property
    def steps(self) -> int:
        return self.n_examples // self.size

    def epoch(self, seed: int, epoch: int, rank: int = 0) -> Iterator[np.ndarray]:
        """Yield the positions of this process's share of each batch."""
        order = np.random.default_rng([seed, epoch, SHUFFLE]).permutation(self.n_examples)
        place = np.arange(self.size)
        mine = np.minimum(place, place[::-1]) % self.processes == rank
        for step in range(self.steps):
            yield order[step * self.size : (step + 1) * self.size][mine]

    def mixing(self, seed: int, epoch: int, alpha: float) -> np.ndarray:
        """Return mixup's lam of each batch: Beta(alpha, alpha), one per batch as in the authors' code."""
        return np.random.default_rng([seed, epoch, MIXUP]).beta(alpha, alpha, size=self.steps)


def torch_seed(seed: int, epoch: int, rank: int) -> int:
    """Return a seed for torch's own generator, which dropout draws from."""
    return int(np.random.SeedSequence([seed, epoch, TORCH, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def gather(X: Any, rows: Any, device: torch.device) -> Tensor:
    """Return these rows of X as a tensor: bytes stay bytes, see `as_input`."""
    if isinstance(X, Tensor):
        return X[rows].to(device)
    taken = np.ascontiguousarray(X[rows])
    return torch.from_numpy(taken if taken.flags.writeable else taken.copy()).to(device)


def as_input(taken: Tensor) -> Tensor:
    """Return what the module reads: bytes are pixels, scaled to [0, 1]; numbers become float32; whole numbers are ids."""
    if taken.ndim == 4:
        taken = taken.contiguous(memory_format=torch.channels_last)
    if taken.dtype == torch.uint8:
        return taken.to(torch.float32).mul_(1 / 255)
    return taken.to(torch.float32) if taken.is_floating_point() else taken
