"""What an extractor is: something that turns public inputs into features, without seeing a label."""

from __future__ import annotations

import os
from typing import Any, Protocol, Self, runtime_checkable

from numpy.typing import NDArray


@runtime_checkable
class Extractor(Protocol):
    """Learns a representation from inputs alone, then gives one row of features per input.

    Privacy
    -------
    It never sees a label or a release, so its features are as public as the inputs, and cost no epsilon.
    """

    @property
    def fingerprint(self) -> str | None:
        """A digest of the settings and of all that was learned; None until it is fitted."""
        ...

    def description(self) -> dict[str, Any]:
        """Return what decides what `fit` learns, as JSON values. Extractors that would learn differently differ in it."""
        ...

    def fit(self, inputs: Any) -> Self:
        """Learn from public inputs, one per row."""
        ...

    def transform(self, inputs: Any) -> NDArray[Any]:
        """Return the features of each input, (n, d). A row depends on its own input alone, but for last bits."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned into one file of exactly this name."""
        ...

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Take over what an extractor of the same description saved; InvalidArgument if the file holds anything else."""
        ...
