"""Public datasets in their publishers' own files, and tables of one's own. Labels are sealed on load; nothing is downloaded."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labeldp.datasets.catalogue import load, names
from labeldp.datasets.dataset import Dataset

if TYPE_CHECKING:
    from labeldp.datasets import table

__all__ = ["Dataset", "load", "names", "table"]


def __getattr__(name: str) -> Any:
    """Load `table` on first use: it needs pandas and pyarrow."""
    if name == "table":
        return import_module("labeldp.datasets.table")
    raise AttributeError(f"module 'labeldp.datasets' has no attribute {name!r}")
