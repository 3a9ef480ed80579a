"""Public noise for dealing labels into groups, expanded from a key by a documented hash.

Word number c of key s is SplitMix64's finaliser of s + (c + 1) x 0x9E3779B97F4A7C15 modulo 2^64. Row r of a release over K
classes uses words r x ceil(K/2) onward; each gives two 32-bit numbers v, the low half first, for two labels in a row, and
the label's noise is the exponential -ln((v + 1/2) / 2^32). Privacy noise never comes from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.randomness import SYSTEM

LARGEST_KEY = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Dealing:
    """The dealing key of a release and the row numbers it is used for; key 0 means no noise."""

    key: int
    rows: NDArray[np.int64]

    @classmethod
    def of_rows(cls, key: int, rows: NDArray[np.int64]) -> Dealing:
        return cls(checks.integer(dealing=key, at_least=0, at_most=LARGEST_KEY), rows)

    def exponentials(self, n_classes: int) -> NDArray[np.float32]:
        """Return one exponential variable per row and label, all ones for key 0."""
        if self.key == 0:
            return np.ones((len(self.rows), n_classes), dtype=np.float32)
        pairs = (n_classes + 1) // 2
        counters: Any = self.rows.astype(np.uint64)[:, None] * np.uint64(pairs) + np.arange(
            1, pairs + 1, dtype=np.uint64
        )
        halves = _splitmix64(counters, self.key).astype("<u8", copy=False).view("<u4")[:, :n_classes]
        noise = halves.astype(np.float32)
        noise += np.float32(0.5)
        noise *= np.float32(2.0**-32)
        np.minimum(noise, np.float32(1 - 2**-24), out=noise)
        return np.negative(np.log(noise, out=noise), out=noise)


def new_key() -> int:
    """Return a fresh dealing key, never 0."""
    return int(SYSTEM.words(1)[0]) or 1


def _splitmix64(counters: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Hash counters in place; sums and products wrap modulo 2^64."""
    z = counters
    z *= _GOLDEN
    z += np.uint64(key)
    high = np.empty_like(z)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z ^= np.right_shift(z, np.uint64(shift), out=high)
        if factor != 1:
            z *= np.uint64(factor)
    return z
