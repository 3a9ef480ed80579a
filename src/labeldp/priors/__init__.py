"""Priors from public inputs: clusters of features, private histograms of the labels in each, rows of probabilities out."""

from labeldp.priors.bags import bag_posterior
from labeldp.priors.clusters import Clusters, cluster_count
from labeldp.priors.joint import joint_accuracy
from labeldp.priors.shares import normalised, projected, smoothed

__all__ = [
    "Clusters",
    "bag_posterior",
    "cluster_count",
    "joint_accuracy",
    "normalised",
    "projected",
    "smoothed",
]
