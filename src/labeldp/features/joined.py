"""Several representations side by side: what one does not see of an input, another may."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.features.extractor import Extractor
from labeldp.files import renamed_when_whole

FORMAT = "labeldp-joined-1"


@dataclass(frozen=True, eq=False)
class Joined:
    """The features of several extractors of the same inputs, one after the other in each row.

    Their columns should be of about the same size, as those of patches are, and of SimCLR where its backbone ends in a norm
    (`labeldp train --features` sees to that): a model's weight decay is one for all.

    Privacy
    -------
    As public as each part's: extractors see no label.

    Examples
    --------
    >>> from labeldp.features import PatchFeatures
    >>> images = np.random.default_rng(0).integers(256, size=(20, 1, 12, 12), dtype=np.uint8)
    >>> small, large = (PatchFeatures(patch=side, centroids=5, pool=2, sample=500) for side in (3, 5))
    >>> Joined((small, large)).fit(images).transform(images).shape
    (20, 40)
    """

    parts: tuple[Extractor, ...]

    def __post_init__(self) -> None:
        if len(self.parts) < 2 or not all(isinstance(part, Extractor) for part in self.parts):
            raise InvalidArgument("parts must be at least two extractors.")

    @property
    def fingerprint(self) -> str | None:
        """A digest of the parts' fingerprints; None until all are fitted."""
        found = [part.fingerprint for part in self.parts]
        if None in found:
            return None
        return hashlib.sha256(json.dumps([FORMAT, *found]).encode()).hexdigest()

    def description(self) -> dict[str, Any]:
        return {"extractor": FORMAT, "parts": [part.description() for part in self.parts]}

    def fit(self, inputs: Any) -> Self:
        for part in self.parts:
            part.fit(inputs)
        return self

    def transform(self, inputs: Any) -> NDArray[Any]:
        return np.concatenate([part.transform(inputs) for part in self.parts], axis=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write each part's own file into one of exactly this name."""
        with (
            tempfile.TemporaryDirectory() as folder,
            renamed_when_whole(Path(path)) as file,
            zipfile.ZipFile(file, "w") as whole,
        ):
            for number, part in enumerate(self.parts):
                part.save(Path(folder) / str(number))
                whole.write(Path(folder) / str(number), str(number))

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Take over what extractors of the same descriptions saved, all or nothing."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                with zipfile.ZipFile(path) as whole:
                    files = [whole.extract(str(number), folder) for number in range(len(self.parts))]
            except FileNotFoundError:
                raise InvalidArgument(f"there is no file {path}.") from None
            except Exception as error:  # those of damaged archives derive from nothing narrower
                words = f"{path} does not hold {len(self.parts)} saved extractors ({type(error).__name__})."
                raise InvalidArgument(words) from None
            try:
                for parts in (map(copy.copy, self.parts), self.parts):  # on copies first: all take over, or none
                    for part, file in zip(parts, files, strict=True):
                        part.load(file)
            except InvalidArgument as error:
                raise InvalidArgument(str(error).replace(os.path.join(folder, ""), f"{path}: part ")) from None
        return self
