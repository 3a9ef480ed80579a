"""The clusters of a run's [prior]: found once, kept whole in its folder before anything is asked, and read back from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument
from labeldp.learning.cluster_prior import ClusterPrior
from labeldp.learning.partition import Partition, check_shares
from labeldp.priors import Clusters, cluster_count
from labeldp.runs import inputs
from labeldp.runs.inputs import Once, Public, Watch
from labeldp.runs.recipe import Prior, Recipe


def prior_of(recipe: Recipe, clusters: Clusters) -> ClusterPrior:
    """Return what stage 0 asks."""
    assert recipe.prior is not None
    return ClusterPrior(clusters, recipe.prior.epsilon)


def found(
    recipe: Recipe,
    data: Dataset,
    read: Public,
    used: NDArray[np.int64],
    *,
    cache: Path | None = None,
    watch: Watch | None = None,
    once: Once | None = None,
) -> Clusters:
    """Cluster all rows of public data as a recipe's [prior] says.

    Parameters
    ----------
    data : the inputs as they are.
    read : the same as the model reads them, whose features are clustered unless [prior] names others.
    used : the rows that the run uses; how many of them are counted decides how many clusters there are.
    """
    prior = recipe.prior
    assert prior is not None
    features = _features(prior, data, read, cache=cache, watch=watch, once=once)
    count = counted_in(recipe, used) if prior.count is None else prior.count
    if watch is not None:
        watch({"kind": "clusters", "clusters": count, "rows": len(features)})

    def cluster() -> Clusters:
        return Clusters.of(features, count=count, components=prior.components)

    return cluster() if once is None else once(cluster)  # type: ignore[no-any-return]


def counted_in(recipe: Recipe, used: NDArray[np.int64]) -> int:
    """Return the public rule's number of clusters for the rows that are counted: all that are not held out."""
    plan, prior = recipe.release, recipe.prior
    assert prior is not None
    shares = check_shares(plan.split, max(plan.stages, 1))
    parts = Partition.of(used, shares, hold_out=plan.hold_out, seed=recipe.seed)
    return cluster_count(sum(map(len, parts.stages)), prior.epsilon or recipe.epsilon)


def _features(
    prior: Prior, data: Dataset, read: Public, *, cache: Path | None, watch: Watch | None, once: Once | None
) -> NDArray[Any]:
    """Return what is clustered: [prior]'s own features, the model's, patches of images, or rows of numbers as they are."""
    own = prior.features
    if own is None and read.facts is None and data.inputs["kind"] == "image":
        own = "patches"
    if own is not None and (read.facts is None or own != read.facts["spec"]):
        return inputs.public(data, own, cache=cache, watch=watch, once=once).data.X  # type: ignore[no-any-return]
    X, kind = read.data.X, read.data.inputs["kind"]
    is_numbers = kind == "table" and not read.data.inputs.get("categorical") and bool(np.isfinite(X).all())
    if kind != "vector" and not is_numbers:
        raise InvalidArgument(
            f"the rows of {data.name} cannot be clustered as they are: that takes numbers, none of them missing or a category. "
            "Give [prior] features that were made without labels: features=arrays:TRAIN.npy"
        )
    return X  # type: ignore[no-any-return]
