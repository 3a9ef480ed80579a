"""The clusters of a run's [prior]: found once, kept whole in its folder before anything is asked, and read back from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument
from labeldp.learning.cluster_prior import SHARES, ClusterPrior
from labeldp.learning.partition import Partition, check_shares
from labeldp.learning.records import Record, Watch
from labeldp.priors import Clusters, cluster_count
from labeldp.runs import inputs
from labeldp.runs.inputs import Once, Public
from labeldp.runs.plans import Prior
from labeldp.runs.recipe import Recipe
from labeldp.vault import HistogramRelease


def prior_of(recipe: Recipe, clusters: Clusters) -> ClusterPrior:
    """Return what stage 0 asks."""
    assert recipe.prior is not None
    return ClusterPrior(clusters, recipe.prior.epsilon, recipe.prior.shares or SHARES[0])


def settled(recipe: Recipe, data_inputs: Record) -> Recipe:
    """Return a recipe whose [prior] says what is clustered: the model's features, or patches of images.

    The model may get other features later, and the counts stay what they are. Rows of numbers as they are have no name.
    """
    if recipe.prior is None or recipe.prior.features is not None:
        return recipe
    features = recipe.features or ("patches" if data_inputs["kind"] == "image" else None)
    return replace(recipe, prior=replace(recipe.prior, features=features))


def check_counted(clusters: Clusters, counts: HistogramRelease, file: Path) -> None:
    """Raise unless counts are of these clusters, which come from a file."""
    rows = counts.rows
    fit = clusters.count == len(counts.totals) and bool(((rows >= 0) & (rows < len(clusters.numbers))).all())
    if not fit or not np.array_equal(clusters.numbers[rows], counts.groups):
        raise InvalidArgument(
            f"{file} does not hold the clusters that the counts beside it are of: it is of another run, or was changed. Copy "
            "the file back."
        )


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
    """Cluster all rows of public data as a settled recipe's [prior] says.

    Parameters
    ----------
    data : the inputs as they are.
    read : the same as the model reads them; what its features are need not be made twice.
    used : the rows that the run uses; how many of them are counted decides how many clusters there are.
    """
    prior = recipe.prior
    assert prior is not None
    features, origin = _features(prior, data, read, cache=cache, watch=watch, once=once)
    count = counted_in(recipe, used) if prior.count is None else prior.count
    if watch is not None:
        watch({"kind": "clusters", "clusters": count, "rows": len(features)})

    def cluster() -> Clusters:
        return Clusters.of(features, count=count, components=prior.components, origin=origin)

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
) -> tuple[NDArray[Any], str]:
    """Return what is clustered, and what that is: the features that [prior] names, or rows of numbers as they are."""
    own = prior.features
    if own is not None and (read.facts is None or own != read.facts["spec"]):
        found = inputs.public(data, own, cache=cache, watch=watch, once=once)
        return found.data.X, inputs.origin_of(found)
    X, kind = read.data.X, read.data.inputs["kind"]
    is_numbers = kind == "table" and not read.data.inputs.get("categorical") and bool(np.isfinite(X).all())
    if kind != "vector" and not is_numbers:
        raise InvalidArgument(
            f"the rows of {data.name} cannot be clustered as they are: that takes numbers, none of them missing or a category. "
            "Give [prior] features that were made without labels: features=arrays:TRAIN.npy"
        )
    return X, inputs.origin_of(read)
