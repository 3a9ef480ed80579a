"""Which code and which data a record comes from."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import labeldp
from labeldp import datasets
from labeldp.features.cache import content_digest
from labeldp.runs import Recipe, RunFolder, specs

CHANGED = "+changes"
DIGITS = 16
"""Hexadecimal ones, of a record's digest of data."""


def commit() -> str:
    """Return the commit that this process has loaded: files that are edited or committed since are not what it runs."""
    return _LOADED


def checked_out() -> str:
    """Return the commit of the checkout that this package is run from, with +changes if its code has any, or its version."""
    package = Path(labeldp.__file__).resolve().parent
    top, head = _git(package, "rev-parse", "--show-toplevel"), _git(package, "rev-parse", "HEAD")
    if not top or not head or Path(top).resolve() / "src" / "labeldp" != package:
        return f"version {labeldp.__version__}"
    return head if _git(package, "status", "--porcelain", "--", ".") == "" else head + CHANGED


def digest_of_inputs(recipe: Recipe, data_dir: Path | None) -> str:
    """Return a digest of all public inputs that a run of a recipe reads, training and test ones; labels have no part in it."""
    digest = hashlib.sha256()
    for name in filter(None, (recipe.data, recipe.init)):
        data = datasets.load(name, data_dir=data_dir).only_public()
        for inputs in (data.X, data.X_test):
            about = f"{inputs.dtype.str} {inputs.shape} " + (content_digest(inputs) if len(inputs) else "")
            digest.update(f"{about}\n".encode())
    return digest.hexdigest()


def digest_as_read(inputs: str, folder: RunFolder) -> str:
    """Return a short digest of what a run's model and clusters read: of its inputs, and of features that came from files.

    What made other features is in the recipe, and the bits that it learned differ between machines: they are not in it.
    """
    recipe, parts = folder.recipe(), [inputs]
    if _is_from_files(recipe.features):
        parts.append(folder.facts()["reads"]["digest"])
    if recipe.prior is not None and _is_from_files(recipe.prior.features):
        parts.append(folder.clusters().origin)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]


def _is_from_files(features: str | None) -> bool:
    return features is not None and bool(specs.parse(features).names)


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says, None where it says nothing or is not there."""
    try:
        said = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()


_LOADED = checked_out()
