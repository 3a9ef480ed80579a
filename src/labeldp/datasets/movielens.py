"""MovieLens 1M and 100K: who rated what is public, the rating is the label.

The published files have no test split of their own in common use. Ours is random and public: the rows in the order of
`numpy.random.RandomState(SPLIT_SEED).permutation`, the last fifth of them for the test. No rating has a say in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets.dataset import Dataset, randomly_split
from labeldp.datasets.places import Place, Published, find
from labeldp.errors import InvalidArgument, InvalidLabels
from labeldp.vault.labels import Unsealed

SPLIT_SEED = 1997
"""Public. RandomState, because numpy promises that its stream never changes."""
RATINGS = (1, 2, 3, 4, 5)
PUBLISHER = "GroupLens (grouplens.org/datasets/movielens)"
TAB, NEWLINE, ZERO, NINE = b"\t\n09"
MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Edition:
    """How one of the datasets is written, and the published ranges of its ids, which begin at 1."""

    published: Published
    separator: bytes
    n_users: int
    n_items: int


EDITIONS = {
    "movielens-1m": Edition(Published("ml-1m", (("ratings.dat",),)), b"::", n_users=6040, n_items=3952),
    "movielens-100k": Edition(Published("ml-100k", (("u.data",),)), b"\t", n_users=943, n_items=1682),
}


def load(name: str, data_dir: Place) -> Dataset:
    """Read one of the two datasets."""
    edition = EDITIONS[name]
    _, (path,) = find(name, (edition.published,), publisher=PUBLISHER, data_dir=data_dir)
    ids, ratings = read(path, edition)
    if len(ids) < 5:
        raise InvalidArgument(f"{path}: the file must hold at least 5 ratings to be split, got {len(ids)}.")
    inputs = {"kind": "ids", "sizes": [edition.n_users, edition.n_items]}
    return randomly_split(
        name, ids, ratings, classes=RATINGS, inputs=inputs, seed=SPLIT_SEED, n_test=len(ids) // 5, source=path
    )


def read(path: Path, edition: Edition) -> tuple[NDArray[np.int64], Unsealed]:
    """Return user and item numbers from 0, and ratings as class numbers from 0, in the file's order."""
    table = _try_to_parse(path, edition.separator)
    if table is None:
        line = edition.separator.decode().replace("\t", " (tab) ").join(("user", "item", "rating"))
        raise InvalidArgument(
            f"{path}: every line must be {line} in whole numbers, all lines with a timestamp after it or all without; some are "
            "not. Get the file again from its publisher."
        )
    ids = table.labels[:, :2] - 1
    if not ((ids >= 0) & (ids < [edition.n_users, edition.n_items])).all():
        raise InvalidArgument(
            f"{path}: users must be 1 to {edition.n_users} and items 1 to {edition.n_items}, as published; some are not."
        )
    ratings = Unsealed(table.labels[:, 2] - 1)
    if not ((ratings.labels >= 0) & (ratings.labels < len(RATINGS))).all():
        raise InvalidLabels(f"{path}: ratings must all be whole numbers from 1 to 5; some are not.")
    return ids, ratings


def _try_to_parse(path: Path, separator: bytes) -> Unsealed | None:
    """Return the first three fields of every line, or None; whoever then raises has no line in his frame."""
    content = path.read_bytes().replace(b"\r\n", b"\n").replace(separator, b"\t")
    table = _parse(np.frombuffer(content if content.endswith(b"\n") else content + b"\n", dtype=np.uint8))
    return None if table is None else Unsealed(table)


def _parse(text: NDArray[np.uint8]) -> NDArray[Any] | None:
    """Parse lines of 3 or 4 whole numbers with no Python step per line: find where fields end, then add up their digits."""
    ends = np.flatnonzero((text == TAB) | (text == NEWLINE))
    if len(ends) + np.count_nonzero((text >= ZERO) & (text <= NINE)) != len(text):
        return None
    last = np.flatnonzero(text[ends] == NEWLINE)
    n_fields = int(last[0]) + 1
    if n_fields not in (3, 4) or (np.diff(last) != n_fields).any() or last[-1] != len(ends) - 1:
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = (ends - starts).reshape(-1, n_fields)
    if lengths.min() < 1 or lengths[:, :3].max() > MOST_DIGITS:
        return None
    lengths, ends = lengths[:, :3], ends.reshape(-1, n_fields)[:, :3]
    table = np.zeros(lengths.shape, dtype=np.int64)
    for place in range(lengths.max()):
        there = lengths > place
        table[there] += (text[ends[there] - 1 - place] - ZERO).astype(np.int64) * 10**place
    return table
