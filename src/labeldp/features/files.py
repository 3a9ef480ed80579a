"""What killed processes leave behind."""

from __future__ import annotations

import time
from pathlib import Path

from labeldp.files import UNFINISHED

ABANDONED_AFTER_SECONDS = 24 * 3600.0


def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left unfinished: files that nobody has written to for a day."""
    for file in folder.glob(f"*{UNFINISHED}"):
        try:
            if time.time() - file.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                file.unlink()
        except FileNotFoundError:  # another process was quicker
            continue
