"""Public priors on their way into a query: checked, dealt and digested chunk by chunk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget import Odds
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.channel import Channel, Response
from labeldp.mechanisms.cluster_rr import ClusterRR
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.groups import check_well_formed, own_copy, rows_per_chunk
from labeldp.mechanisms.keep_or_draw import KeepOrDraw
from labeldp.mechanisms.local import GroupMechanism, LocalMechanism, Priors
from labeldp.mechanisms.unbiased import UnbiasedResponse

Rows = NDArray[np.int64]


class GivenPriors:
    """Priors as given: None (uniform), one row for all rows, one row per asked row, or a function of row numbers."""

    def __init__(self, priors: Any, rows: Rows, n_classes: int) -> None:
        self._rows = rows
        self._n_classes = n_classes
        self._function: Callable[[Rows], Any] | None = None
        self._array: NDArray[Any] | None = None
        if callable(priors) and not hasattr(priors, "__array__"):
            self._function = priors
        elif priors is not None:
            self._array = checks.array(priors=priors)
            if self._array.ndim == 1:
                self._array = checks.probabilities(self._array[None], 1, n_classes)
            elif self._array.shape != (len(rows), n_classes):
                raise InvalidArgument(
                    f"priors must have one row per asked row, shape ({len(rows)}, {n_classes}), or be one row for all; "
                    f"got shape {self._array.shape}."
                )
        self.given = priors is not None
        self.shared = self._function is None and (self._array is None or len(self._array) == 1 != len(rows))

    def chunks(self, cells: int) -> Iterator[tuple[Rows, Priors]]:
        """Yield row numbers and their checked priors, in order."""
        step = rows_per_chunk(self._n_classes, cells=cells)
        for start in range(0, len(self._rows), step):
            rows = self._rows[start : start + step].copy()  # a stranger's function may write to it
            priors = self._chunk(rows.copy(), start).view()
            priors.flags.writeable = False
            yield rows, priors

    def _chunk(self, rows: Rows, start: int) -> Priors:
        if self._function is not None:
            return checks.probabilities(self._function(rows), len(rows), self._n_classes)
        if self._array is None:
            return np.broadcast_to(np.float32(1 / self._n_classes), (len(rows), self._n_classes))
        if self.shared:
            return np.broadcast_to(self._array, (len(rows), self._n_classes))
        return checks.probabilities(self._array[start : start + len(rows)], len(rows), self._n_classes)

    def deal(self, mechanism: LocalMechanism, odds: Odds, key: int) -> tuple[Channel, dict[str, Any] | None]:
        """Return the channel that a mechanism makes of these priors at given odds, and what the ledger notes about them.

        The mechanism may be a stranger's: its map, or its table, is checked here, before anything is charged or drawn.
        """
        if mechanism.needs_priors and not self.given:
            raise InvalidArgument(f"{type(mechanism).__name__} needs priors: one row of probabilities per row.")
        if type(mechanism) is UnbiasedResponse:
            return self._ours(UnbiasedResponse.channel(mechanism, len(self._rows)), odds), None
        digest = hashlib.sha256()
        if type(mechanism) is ClusterRR:
            chunks = self._digested_chunks(mechanism.cells_at_once, digest)
            weighed = KeepOrDraw.join([ClusterRR.channel(mechanism, priors, odds) for _, priors in chunks])
            return self._ours(weighed, odds), self._noted(digest)
        if not isinstance(mechanism, GroupMechanism):
            raise InvalidArgument(
                f"{type(mechanism).__name__} must be UnbiasedResponse itself, ClusterRR itself or a GroupMechanism: a table "
                "of a stranger's is not drawn from."
            )
        parts = []
        for rows, priors in self._digested_chunks(mechanism.cells_at_once, digest):
            parts.append(own_copy(mechanism.deal(priors, Dealing(key, rows))))
            check_well_formed(parts[-1], n_rows=len(rows), n_classes=self._n_classes)
        if len({type(part) for part in parts}) != 1:
            raise InvalidArgument("deal must return the same kind of map for all rows.")
        return Response(type(parts[0]).join(parts), odds), self._noted(digest)

    def _ours(self, channel: Channel, odds: Odds) -> Channel:
        """Return a channel that is for the asked rows, at the odds that are charged for."""
        if channel.odds != odds or channel.n_rows != len(self._rows) or channel.n_classes != self._n_classes:
            raise InvalidArgument("the mechanism's table is not for these rows, classes and odds.")
        return channel

    def _digested_chunks(self, cells: int, digest: hashlib._Hash) -> Iterator[tuple[Rows, Priors]]:
        """Yield the chunks, each digested meanwhile: that takes about as long as sorting it."""
        with ThreadPoolExecutor(max_workers=1) as beside:
            for rows, priors in self.chunks(cells):
                digested = beside.submit(digest.update, np.ascontiguousarray(priors).data) if self.given else None
                yield rows, priors
                if digested is not None:
                    digested.result()  # before a function of rows may reuse its array

    def _noted(self, digest: hashlib._Hash) -> dict[str, Any] | None:
        return {"digest": digest.hexdigest(), "shared": self.shared} if self.given else None
