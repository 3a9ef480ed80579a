"""The paper's tables again, and ours beside them: packaged recipes, runs, records, every look at a test set."""

from labeldp.reproduce.cookbook import Entry, figures, find, recipes_of, tables
from labeldp.reproduce.estimate import Estimate, estimated
from labeldp.reproduce.points import Figure, Point, figure_of
from labeldp.reproduce.pooling import Cell, pooled
from labeldp.reproduce.results import Results, default_folder
from labeldp.reproduce.running import Job, performed
from labeldp.reproduce.sheets import Sheet, sheets_of

__all__ = [
    "Cell",
    "Entry",
    "Estimate",
    "Figure",
    "Job",
    "Point",
    "Results",
    "Sheet",
    "default_folder",
    "estimated",
    "figure_of",
    "figures",
    "find",
    "performed",
    "pooled",
    "recipes_of",
    "sheets_of",
    "tables",
]
