"""One mechanism, one file. A local mechanism deals public groups; the curator's add exact noise to aggregates."""

from labeldp.mechanisms.agreement import Agreement
from labeldp.mechanisms.cluster_rr import ClusterRR
from labeldp.mechanisms.grouped import GroupedResponse
from labeldp.mechanisms.histogram import Histogram
from labeldp.mechanisms.local import GroupMechanism, LocalMechanism
from labeldp.mechanisms.normal import NormalResponse
from labeldp.mechanisms.randomized_response import RandomizedResponse
from labeldp.mechanisms.sums import Sums
from labeldp.mechanisms.top_k import RRTopK
from labeldp.mechanisms.unbiased import UnbiasedResponse
from labeldp.mechanisms.with_prior import RRWithPrior

__all__ = [
    "Agreement",
    "ClusterRR",
    "GroupMechanism",
    "GroupedResponse",
    "Histogram",
    "LocalMechanism",
    "NormalResponse",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Sums",
    "UnbiasedResponse",
]
