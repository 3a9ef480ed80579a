"""Releases on disk: arrays in `.npz`, everything else in `.json`, never a pickle; whole or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.budget.storage import sync_folder
from labeldp.errors import InvalidArgument
from labeldp.files import renamed_when_whole
from labeldp.vault.receipt import Receipt

FORMAT = "labeldp-release-1"

Facts = dict[str, Any]
Arrays = dict[str, NDArray[Any]]


class Stored(ABC):
    """Something released, which can be written to a file and read back."""

    receipt: Receipt

    @property
    def private(self) -> bool:
        """False for what protects nothing: seeded noise, or an unprotected baseline."""
        return self.receipt.private

    @abstractmethod
    def contents(self) -> tuple[Facts, Arrays]:
        """Return what the file must hold."""

    @classmethod
    @abstractmethod
    def from_contents(cls, facts: Facts, arrays: Arrays) -> Self:
        """Rebuild from a file's contents, checking them as one checks a stranger's file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write PATH.npz and PATH.json."""
        write_release(Path(path), *self.contents())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        facts, arrays = read_release(Path(path))
        return cls.from_contents(facts, arrays)


def write_release(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write PATH.npz and then PATH.json, which names the digest of the first; return the digest of the second.

    Each is written under another name, synced and renamed: the `.json` appears last, and only if both are whole.
    """
    data, text = (path.with_name(path.name + ending) for ending in (".npz", ".json"))
    with renamed_when_whole(data) as file:
        np.savez(file, allow_pickle=False, **arrays)
    written = json.dumps({"format": FORMAT, "arrays": file_digest(data), **facts}, indent=1).encode()
    with renamed_when_whole(text) as file:
        file.write(written)
    sync_folder(path.parent)
    return hashlib.sha256(written).hexdigest()


def read_release(path: Path) -> tuple[Facts, Arrays]:
    """Return facts and arrays of PATH.json and PATH.npz, or say what is wrong with them."""
    try:
        facts = json.loads(path.with_name(path.name + ".json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidArgument(
            f"there is no release at {path} (its .json is missing): give the name that it was saved under, without an ending."
        ) from None
    except ValueError:
        raise InvalidArgument(f"{path}.json is not JSON.") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InvalidArgument(f"{path}.json is not a release of format {FORMAT}.")
    data = path.with_name(path.name + ".npz")
    if not data.is_file() or file_digest(data) != facts.get("arrays"):
        raise InvalidArgument(f"{data} is missing or is not the file that {path.name}.json was written with.")
    try:
        with np.load(data, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile):
        raise InvalidArgument(f"{data} cannot be read as arrays of numbers.") from None
    return facts, arrays


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
