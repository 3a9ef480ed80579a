"""Runs: a recipe, a folder, and what happens between them."""

from labeldp.runs.folder import RunFolder
from labeldp.runs.loading import Run, load
from labeldp.runs.recipe import Recipe
from labeldp.runs.training import train, train_again

__all__ = ["Recipe", "Run", "RunFolder", "load", "train", "train_again"]
