"""Public maps, row by row, from labels to groups: the compact form of almost every local mechanism.

A map knows nothing of true labels. `OwnGroups` is shared by all rows, `Candidates` keeps one label per group and leaves the
others in none, `DealtGroups` puts every label in a group. The sampler, the likelihood and the law are in `channel`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument

Index = NDArray[np.int64]
NO_GROUP = -1


class Groups(ABC):
    """A map from the labels of each row to groups 0 .. size - 1; NO_GROUP marks a label left out."""

    kind: ClassVar[str]
    single_labels: ClassVar[bool]  # whether every group holds exactly one label

    n_rows: int
    n_classes: int

    @property
    @abstractmethod
    def sizes(self) -> Index:
        """The number of groups of each row."""

    @abstractmethod
    def leaves_labels_out(self, index: Index) -> NDArray[np.bool_]:
        """Whether some label of each row is in no group."""

    @abstractmethod
    def assignment(self, index: Index) -> NDArray[np.integer[Any]]:
        """Return the group of every label, shape (len(index), n_classes), signed, NO_GROUP where there is none."""

    def own(self, index: Index, labels: NDArray[Any]) -> Index:
        """Return the group of one label per row."""
        return self.assignment(index)[np.arange(len(index)), labels].astype(np.int64)

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a file must hold to rebuild the map on any machine."""

    @classmethod
    @abstractmethod
    def join(cls, parts: Sequence[Any]) -> Groups:
        """Put maps of consecutive rows together."""


@dataclass(frozen=True)
class OwnGroups(Groups):
    """Every label is its own group, in every row."""

    n_rows: int
    n_classes: int

    kind: ClassVar[str] = "own"
    single_labels: ClassVar[bool] = True

    @property
    def sizes(self) -> Index:
        return np.broadcast_to(np.int64(self.n_classes), self.n_rows)

    def leaves_labels_out(self, index: Index) -> NDArray[np.bool_]:
        return np.zeros(len(index), dtype=np.bool_)

    def assignment(self, index: Index) -> NDArray[np.integer[Any]]:
        return np.broadcast_to(np.arange(self.n_classes), (len(index), self.n_classes))

    def own(self, index: Index, labels: NDArray[Any]) -> Index:  # noqa: ARG002 - every row is alike
        return labels.astype(np.int64)

    def labels_of(self, reports: NDArray[Any]) -> Index:
        return reports.astype(np.int64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    @classmethod
    def join(cls, parts: Sequence[OwnGroups]) -> OwnGroups:
        return cls(sum(part.n_rows for part in parts), parts[0].n_classes)


@dataclass(frozen=True, eq=False)
class Candidates(Groups):
    """Each row has a few candidate labels, each its own group in the order of the classes; the rest are in none.

    `members` lists the candidates of all rows one after the other, `counts` says how many each row has.
    """

    members: NDArray[Any]
    counts: Index
    n_classes: int

    kind: ClassVar[str] = "candidates"
    single_labels: ClassVar[bool] = True

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.counts)

    @property
    def sizes(self) -> Index:
        return self.counts

    @cached_property
    def _starts(self) -> Index:
        return np.cumsum(self.counts) - self.counts

    def leaves_labels_out(self, index: Index) -> NDArray[np.bool_]:
        return self.counts[index] < self.n_classes

    def assignment(self, index: Index) -> NDArray[np.integer[Any]]:
        counts = self.counts[index]
        row = np.repeat(np.arange(len(index)), counts)
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        groups = np.full((len(index), self.n_classes), NO_GROUP, dtype=_signed(self.n_classes))
        groups[row, self.members[np.repeat(self._starts[index], counts) + place]] = place
        return groups

    def own(self, index: Index, labels: NDArray[Any]) -> Index:
        if len(index) != index[-1] - index[0] + 1:
            return super().own(index, labels)
        start, stop = self._starts[index[0]], self._starts[index[-1]] + self.counts[index[-1]]
        corner = np.arange(len(index)) * self.n_classes
        places = np.full(len(index) * self.n_classes, NO_GROUP, dtype=np.int32)  # one table of rows x labels, flat
        places[np.repeat(corner, self.counts[index]) + self.members[start:stop]] = np.arange(
            stop - start, dtype=np.int32
        )
        place = places[corner + labels].astype(np.int64)
        return np.where(place == NO_GROUP, NO_GROUP, place - (self._starts[index] - start))

    def labels_of(self, reports: NDArray[Any]) -> Index:
        return self.members[self._starts + reports.astype(np.int64)].astype(np.int64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"members": self.members, "counts": self.counts}

    @classmethod
    def join(cls, parts: Sequence[Candidates]) -> Candidates:
        if len(parts) == 1:
            return parts[0]
        return cls(_joined(parts, "members"), _joined(parts, "counts"), parts[0].n_classes)


@dataclass(frozen=True, eq=False)
class DealtGroups(Groups):
    """Every label of every row is in one of a few groups: `groups[i, y]` is where label y of row i was dealt."""

    groups: NDArray[Any]
    counts: Index

    kind: ClassVar[str] = "dealt"
    single_labels: ClassVar[bool] = False

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.groups)

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        return int(self.groups.shape[1])

    @property
    def sizes(self) -> Index:
        return self.counts

    def leaves_labels_out(self, index: Index) -> NDArray[np.bool_]:
        return np.zeros(len(index), dtype=np.bool_)

    def assignment(self, index: Index) -> NDArray[np.integer[Any]]:
        return self.groups[index].astype(_signed(int(self.counts.max(initial=1))))

    def own(self, index: Index, labels: NDArray[Any]) -> Index:
        return self.groups[index, labels].astype(np.int64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"groups": self.groups, "counts": self.counts}

    @classmethod
    def join(cls, parts: Sequence[DealtGroups]) -> DealtGroups:
        if len(parts) == 1:
            return parts[0]
        return cls(_joined(parts, "groups"), _joined(parts, "counts"))


def check_well_formed(groups: Groups, *, n_rows: int, n_classes: int) -> None:
    """Refuse a map that is not one: the privacy of everything drawn from it rests on this.

    Only the three kinds of map above are accepted, and not their subclasses, which would be handed true labels. Every row
    has at least one group; candidates are existing labels in ascending order; every dealt label is in an existing group.
    """
    if type(groups) not in (OwnGroups, Candidates, DealtGroups):
        raise InvalidArgument("a map from labels to groups must be OwnGroups, Candidates or DealtGroups.")
    fits = groups.n_rows == n_rows and groups.n_classes == n_classes
    if isinstance(groups, Candidates):
        fits = fits and _are_integers(groups.members, groups.counts) and _candidates_fit(groups)
    elif isinstance(groups, DealtGroups):
        fits = fits and _are_integers(groups.groups, groups.counts) and _dealt_fit(groups)
    if not fits:
        raise InvalidArgument(
            f"a map from labels to groups must return groups for {n_rows} rows and {n_classes} classes, at least one for each "
            "row, and name no label or group that does not exist."
        )


def _joined(parts: Sequence[Any], name: str) -> NDArray[Any]:
    whole = np.concatenate([getattr(part, name) for part in parts])
    whole.flags.writeable = False
    return whole


def own_copy(groups: Groups) -> Groups:
    """Return the same map in arrays that nobody else can write to."""
    if isinstance(groups, Candidates):
        return Candidates(_frozen(groups.members), _frozen(groups.counts, wide=True), groups.n_classes)
    if isinstance(groups, DealtGroups):
        return DealtGroups(_frozen(groups.groups), _frozen(groups.counts, wide=True))
    return groups


def _frozen(array: NDArray[Any], *, wide: bool = False) -> NDArray[Any]:
    copy = np.array(array)
    if copy.dtype.kind in "iu" and (wide or copy.dtype.itemsize == 8):
        copy = copy.astype(np.int64)  # what does not fit turns negative, and is refused
    copy.flags.writeable = False
    return copy


def _are_integers(*arrays: NDArray[Any]) -> bool:
    return all(type(array) is np.ndarray and array.dtype.kind in "iu" for array in arrays)


def _candidates_fit(groups: Candidates) -> bool:
    members, counts = groups.members, groups.counts
    if members.ndim != 1 or counts.ndim != 1 or (counts < 1).any() or (counts > groups.n_classes).any():
        return False
    if int(counts.sum()) != len(members):
        return False
    first = np.zeros(len(members), dtype=np.bool_)
    first[np.cumsum(counts) - counts] = True
    ascending = first[1:] | (members[1:] > members[:-1])
    return bool(ascending.all() and members.min() >= 0 and members.max() < groups.n_classes)


def _dealt_fit(groups: DealtGroups) -> bool:
    table, counts = groups.groups, groups.counts
    if table.ndim != 2 or counts.shape != (len(table),) or (counts < 1).any() or (counts > groups.n_classes).any():
        return False
    return bool(table.min() >= 0 and (table < counts[:, None]).all())


def groups_from(kind: str, n_rows: int, n_classes: int, arrays: Mapping[str, NDArray[Any]]) -> Groups:
    """Rebuild a map from a file's arrays, checking them as one checks a stranger's file."""
    groups: Groups
    if kind == OwnGroups.kind:
        groups = OwnGroups(n_rows, n_classes)
    elif kind == Candidates.kind:
        groups = Candidates(arrays["members"], arrays["counts"], n_classes)
    elif kind == DealtGroups.kind:
        groups = DealtGroups(arrays["groups"], arrays["counts"])
    else:
        raise InvalidArgument(f"unknown kind of groups {kind!r}: written by a newer labeldp?")
    check_well_formed(groups, n_rows=n_rows, n_classes=n_classes)
    return groups


def unsigned(count: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type that counts `count` things from 0."""
    return np.uint8 if count <= 2**8 else np.uint16 if count <= 2**16 else np.uint32


def _signed(count: int) -> type[np.signedinteger[Any]]:
    return np.int8 if count <= 2**7 else np.int16 if count <= 2**15 else np.int32


def rows_per_chunk(n_classes: int, *, cells: int = 2**18) -> int:
    """Return how many rows to work on at once, so that a chunk of rows x classes stays in the processor's cache."""
    return int(np.clip(cells // n_classes, 16, 2**14))
