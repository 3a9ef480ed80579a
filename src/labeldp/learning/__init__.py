"""Learning from releases: what a learner is, multi-stage training, choosing on noisy hold-outs. No torch here."""

from labeldp.learning.bags import fit_bags
from labeldp.learning.cluster_prior import ClusterPrior
from labeldp.learning.learner import Beliefs, Examples, Filtered, Learner
from labeldp.learning.multistage import MultiStage
from labeldp.learning.partition import Partition
from labeldp.learning.selection import Choice, select
from labeldp.learning.student import Lesson, Pupil, together

__all__ = [
    "Beliefs",
    "Choice",
    "ClusterPrior",
    "Examples",
    "Filtered",
    "Learner",
    "Lesson",
    "MultiStage",
    "Partition",
    "Pupil",
    "fit_bags",
    "select",
    "together",
]
