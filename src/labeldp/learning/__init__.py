"""Learning from releases: what a learner is, multi-stage training, choosing on noisy hold-outs. No torch here."""

from labeldp.learning.learner import Examples, Filtered, Learner
from labeldp.learning.multistage import MultiStage
from labeldp.learning.partition import Partition
from labeldp.learning.selection import Choice, select

__all__ = ["Choice", "Examples", "Filtered", "Learner", "MultiStage", "Partition", "select"]
