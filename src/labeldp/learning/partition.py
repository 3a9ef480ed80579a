"""Which rows each stage may ask about: chosen by a public seed, never by labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint rows: S^(1) .. S^(T), and those held out."""

    stages: tuple[Rows, ...]
    hold_out: Rows

    @classmethod
    def of(cls, rows: Rows, shares: Sequence[float], *, hold_out: float = 0.0, seed: int = 0) -> Partition:
        """Shuffle rows by a public seed, hold some out, and divide the others by `shares`."""
        order = np.random.default_rng([seed, 0x5E11]).permutation(rows)
        held = round(hold_out * len(rows))
        ends = held + np.round(np.cumsum(shares) / sum(shares) * (len(rows) - held)).astype(int)
        parts = [np.sort(part) for part in np.split(order, [held, *ends[:-1]])]
        if not all(len(part) for part in parts[1:]):
            raise InvalidArgument(f"{len(rows)} rows are too few to give each of {len(shares)} stages at least one.")
        return cls(tuple(parts[1:]), parts[0])


def check_shares(split: Sequence[float] | None, stages: int) -> tuple[float, ...]:
    """Return each stage's share of the rows."""
    if split is None:
        return (1 / stages,) * stages
    shares = tuple(float(share) for share in split)
    if len(shares) != stages or not all(share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise InvalidArgument(
            f"split must be {stages} positive shares, one per stage, that sum to 1; got {list(split)}."
        )
    return shares
