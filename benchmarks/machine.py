"""What a benchmark was run on."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np

from labeldp.features.threads import ThreadpoolController


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": _threads(),
        "load_average": os.getloadavg(),
    }


def _threads() -> int | None:
    """Return how many threads BLAS uses; None where nothing can tell."""
    if ThreadpoolController is None:
        return None
    return max(library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info())
