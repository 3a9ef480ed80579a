"""What anyone who holds labels can be asked: a vault in this process, or a service in another."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from labeldp.budget import Guarantee
from labeldp.mechanisms.local import LocalMechanism
from labeldp.mechanisms.normal import NormalResponse
from labeldp.vault.aggregates import AgreementRelease, HistogramRelease, SumRelease
from labeldp.vault.files import Stored
from labeldp.vault.passes import Pass
from labeldp.vault.release import Release
from labeldp.vault.source import Source


@runtime_checkable
class LabelHolder(Protocol):
    """The queries of `LabelVault`, whoever answers them. Learning takes any holder."""

    @property
    def classes(self) -> tuple[Any, ...]: ...

    @property
    def trust(self) -> str: ...

    @property
    def labelled(self) -> NDArray[np.bool_]: ...

    def __len__(self) -> int: ...

    def release(
        self,
        mechanism: LocalMechanism,
        rows: Any = None,
        *,
        priors: Any = None,
        source: Source = None,
        name: str | None = None,
    ) -> Release: ...

    def normal_pass(self, mechanism: NormalResponse, rows: Any = None, *, source: Source = None) -> Pass: ...

    def histogram(
        self,
        groups: Any,
        epsilon: Any,
        *,
        rows: Any = None,
        n_groups: int | None = None,
        source: Source = None,
        name: str | None = None,
    ) -> HistogramRelease: ...

    def sums(
        self,
        groups: Any,
        *,
        low: int,
        high: int,
        epsilon: Any,
        rows: Any = None,
        n_groups: int | None = None,
        source: Source = None,
        name: str | None = None,
    ) -> SumRelease: ...

    def agreement(
        self, predictions: Any, epsilon: Any, *, rows: Any = None, source: Source = None, name: str | None = None
    ) -> AgreementRelease: ...

    def spent(self, rows: Any = None) -> Guarantee: ...

    def remaining(self, rows: Any = None) -> Guarantee: ...

    def recognises(self, release: Stored) -> bool: ...

    def certificate(self) -> dict[str, Any]: ...
