"""Sets of rows as runs of consecutive numbers: small for ranges, and never worse than a bitmap when stored."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import LedgerError

Bounds = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows start[i] .. stop[i] - 1 for every i, ascending, not touching.

    >>> runs = Runs.of_rows(np.array([0, 1, 2, 7]))
    >>> runs.starts.tolist(), runs.stops.tolist(), len(runs)
    ([0, 7], [3, 8], 4)
    >>> Runs.decode(runs.encode()).rows().tolist()
    [0, 1, 2, 7]
    """

    starts: Bounds
    stops: Bounds

    @classmethod
    def of_rows(cls, rows: Bounds) -> Runs:
        """Take strictly increasing row numbers."""
        if len(rows) == 0:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        if (rows[1:] <= rows[:-1]).any():
            raise AssertionError("rows must be strictly increasing: a row named twice would be charged once")
        breaks = np.flatnonzero(np.diff(rows) != 1)
        starts = rows[np.concatenate(([0], breaks + 1))]
        stops = rows[np.concatenate((breaks, [len(rows) - 1]))] + 1
        return cls(starts.astype(np.int64), stops.astype(np.int64))

    def __len__(self) -> int:
        return int((self.stops - self.starts).sum())

    def rows(self) -> Bounds:
        lengths = self.stops - self.starts
        return np.repeat(self.starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())

    def holds(self, row: int) -> bool:
        place = int(np.searchsorted(self.starts, row, side="right")) - 1
        return place >= 0 and row < int(self.stops[place])

    def encode(self) -> bytes:
        """Return the form that is stored: runs where they are few, else a bitmap; compressed."""
        kind, body = self._plain()
        return kind + (zlib.compress(body) if body else b"")

    def digest(self) -> str:
        """Return a hash of the set of rows, the same on every machine: zlib's bytes differ between its versions."""
        return hashlib.sha256(b"".join(self._plain())).hexdigest()

    def _plain(self) -> tuple[bytes, bytes]:
        if len(self.starts) == 0:
            return b"R", b""
        span = int(self.stops[-1])
        if len(self.starts) * 16 <= span // 8 + 16:
            return b"R", np.stack([self.starts, self.stops]).astype("<i8").tobytes()
        member = np.zeros(span, dtype=np.uint8)
        member[self.rows()] = 1
        return b"B", np.packbits(member).tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Runs:
        """Read what `encode` wrote."""
        kind, body = data[:1], data[1:]
        try:
            plain = zlib.decompress(body) if body else b""
            if kind == b"R":
                starts, stops = np.frombuffer(plain, dtype="<i8").reshape(2, -1).astype(np.int64)
                return cls(starts, stops)
            if kind == b"B":
                return cls.of_rows(np.flatnonzero(np.unpackbits(np.frombuffer(plain, dtype=np.uint8))))
        except (zlib.error, ValueError):
            raise LedgerError("The ledger holds rows that cannot be read: it was altered or damaged.") from None
        raise LedgerError("The ledger holds rows in a form that this version of labeldp does not know.")


class Spending:
    """What each row has spent, as a step function over row numbers: exact integers, small where charges are ranges."""

    def __init__(self) -> None:
        self._bounds = np.array(
            [0], dtype=np.int64
        )  # step i covers bounds[i] .. bounds[i + 1] - 1, the last without end
        self._spent = np.zeros((3, 1), dtype=np.int64)  # epsilon units, delta units, charges

    def add(self, runs: Runs, epsilon_units: int, delta_units: int) -> None:
        """Charge every row of the runs."""
        bounds, spent, inside = self._cut(runs)
        spent += np.array([[epsilon_units], [delta_units], [1]]) * inside
        changes = np.concatenate(([True], (np.diff(spent, axis=1) != 0).any(axis=0)))
        self._bounds, self._spent = bounds[changes], spent[:, changes]

    def largest(self, runs: Runs | None = None) -> tuple[int, int]:
        """Return the largest epsilon and the largest delta spent by any row (of the runs)."""
        if runs is None:
            return int(self._spent[0].max()), int(self._spent[1].max())
        _, spent, inside = self._cut(runs)
        if not inside.any():
            return 0, 0
        return int(spent[0, inside].max()), int(spent[1, inside].max())

    def of_rows(self, rows: Bounds) -> NDArray[np.int64]:
        """Return what each of the rows has spent, shape (2, len(rows)): epsilon units, delta units."""
        return self._spent[:2, np.searchsorted(self._bounds, rows, side="right") - 1]

    def most_charged_row(self) -> int:
        """Return a row with the largest epsilon; of several, the first that was charged most often."""
        epsilons, _, charges = self._spent
        return int(self._bounds[int(np.where(epsilons == epsilons.max(), charges, -1).argmax())])

    def _cut(self, runs: Runs) -> tuple[Bounds, NDArray[np.int64], NDArray[np.bool_]]:
        """Return steps refined at the runs' ends, and which steps lie inside the runs."""
        ends = np.stack([runs.starts, runs.stops], axis=1).ravel()
        bounds = np.concatenate((self._bounds, ends))
        bounds.sort(kind="stable")  # merges two sorted halves
        bounds = bounds[np.concatenate(([True], bounds[1:] != bounds[:-1]))]
        spent = self._spent[:, np.searchsorted(self._bounds, bounds, side="right") - 1].copy()
        place = np.searchsorted(runs.starts, bounds, side="right") - 1
        inside = place >= 0
        inside[inside] = bounds[inside] < runs.stops[place[inside]]
        return bounds, spent, inside
