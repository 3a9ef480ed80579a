"""Public datasets in their publishers' own files. Training labels are sealed on load; nothing is downloaded."""

from labeldp.datasets.catalogue import load, names
from labeldp.datasets.dataset import Dataset

__all__ = ["Dataset", "load", "names"]
