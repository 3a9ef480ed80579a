"""Which code a record comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import labeldp

CHANGED = "+changes"


def commit() -> str:
    """Return the commit of the checkout that this package is run from, with +changes if its code has any, or its version."""
    package = Path(labeldp.__file__).resolve().parent
    top, head = _git(package, "rev-parse", "--show-toplevel"), _git(package, "rev-parse", "HEAD")
    if not top or not head or Path(top).resolve() / "src" / "labeldp" != package:
        return f"version {labeldp.__version__}"
    return head if _git(package, "status", "--porcelain", "--", ".") == "" else head + CHANGED


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says, None where it says nothing or is not there."""
    try:
        said = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()
