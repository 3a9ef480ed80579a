"""Public noise for dealing labels into groups, expanded from a key by a documented hash.

Word number c of key s is SplitMix64's finaliser of s + (c + 1) x 0x9E3779B97F4A7C15 modulo 2^64. Row r of a release over K
classes uses words r x ceil(K/2) onward; each gives two 32-bit numbers v, the low half first, for two labels in a row, and
the label's noise is the exponential -ln((v + 1/2) / 2^32). Privacy noise never comes from here.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def words(self, n_classes: int) -> NDArray[np.uint32]:
        """Return one 32-bit number per row and label, all zero for key 0."""
        if self.key == 0:
            return np.zeros((len(self.rows), n_classes), dtype=np.uint32)
        pairs = (n_classes + 1) // 2
        row_part = self.rows.astype(np.uint64) * np.uint64(pairs) * _GOLDEN + np.uint64(self.key)
        states = row_part[:, None] + np.arange(1, pairs + 1, dtype=np.uint64) * _GOLDEN
        return _splitmix64(states).astype("<u8", copy=False).view("<u4")[:, :n_classes]

    def exponentials(self, words: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Return one exponential variable per word, all ones for key 0."""
        if self.key == 0:
            return np.ones(words.shape, dtype=np.float32)
        noise = words.astype(np.float32)
        noise += np.float32(0.5)
        noise *= np.float32(2.0**-32)  # the largest few round to 1, whose logarithm is 0
        return np.abs(np.log(noise, out=noise), out=noise)


def new_key() -> int:
    """Return a fresh dealing key, never 0."""
    return int(SYSTEM.words(1)[0]) or 1


def _splitmix64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finish SplitMix64 states in place; products wrap modulo 2^64."""
    high = np.empty_like(z)
    z ^= np.right_shift(z, np.uint64(30), out=high)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= np.right_shift(z, np.uint64(27), out=high)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= np.right_shift(z, np.uint64(31), out=high)
    return z
