"""Clusters of public features: groups of rows whose labels are likely the same, found without any label."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument, MissingExtra
from labeldp.files import renamed_when_whole

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

FORMAT = "labeldp-clusters-1"
NOISY_ROWS = 20
"""Rows per cluster and unit of 1 / epsilon. The noise of a count is about 3 / epsilon, so the label of most of such a
cluster's rows stands out of it; more clusters than that drown in noise, fewer mix labels."""
PRINCIPAL_ROWS = 10_000
"""Rows that principal components are found from."""
LARGEST_FEATURE = 1e12  # squares of larger ones, added up, would leave single precision
ROWS_AT_ONCE = 4_096
ROUNDS, FULL_ROUNDS = 20, 20
NEEDS_SKLEARN = "clusters need scikit-learn: pip install 'labeldp[sklearn]'."
STATED = "features that the caller states are public"
SAMPLED = 1  # what a seed is for


def cluster_count(n_rows: int, epsilon: Any) -> int:
    """Return the public rule's number of clusters: n epsilon / 20, at least 1.

    >>> cluster_count(60_000, "0.5")
    1500
    """
    rows = checks.integer(n_rows=n_rows, at_least=1)
    return max(1, min(rows, int(Fraction(rows) * Epsilon.of(epsilon).exact / NOISY_ROWS)))


@dataclass(frozen=True, eq=False)
class Clusters:
    """Which cluster each row is in, and what is needed to put other rows into them.

    Attributes
    ----------
    numbers : (n,) the public cluster of each row, 0 .. count - 1.
    centres : (count, d) in the space of `principal` and normalised rows.
    mean, principal : the mean feature, (D,), and the principal components, (D, d).
    origin : what was clustered, for the certificate: a caller's statement, which nothing checks.

    Privacy
    -------
    `of` looks at no label: clusters are as public as the features. If labels had a part in those, no epsilon covers it.
    """

    numbers: Numbers
    centres: Floats
    mean: Floats
    principal: Floats
    origin: str = STATED

    def __post_init__(self) -> None:
        whole = self.numbers.ndim == 1 and self.numbers.size > 0 and self.numbers.dtype.kind in "iu"
        fit = self.centres.ndim == 2 and self.principal.shape == (*self.mean.shape, self.centres.shape[1])
        if not whole or not fit or self.numbers.min() < 0 or self.numbers.max() >= self.count:
            raise InvalidArgument("numbers must be one whole number per row, from 0 to the number of centres less 1.")
        checks.text(origin=self.origin, at_most=5_000)

    @classmethod
    def of(cls, features: Any, *, count: int, components: int = 64, seed: int = 0, origin: str = STATED) -> Clusters:
        """Cluster rows of features by (mini-batch) k-means, on their first principal components, scaled to length 1.

        Parameters
        ----------
        features : (n, D) numbers, in memory or memory-mapped; read in pieces.
        count : how many clusters; `cluster_count` is the public rule. Some may end up without rows.
        components : how many principal components to keep; fewer where there are fewer.
        seed : of the rows looked at and of k-means; public.
        origin : what the features are, for the certificate.
        """
        features = _checked(features)
        count = checks.integer(count=count, at_least=1, at_most=len(features))
        components = checks.integer(components=components, at_least=1)
        seed = checks.integer(seed=seed, at_least=0, at_most=2**32 - 1)
        mean, principal = _principal(features, components, seed)
        points = np.concatenate(list(_points(features, mean, principal)))
        means = _k_means(points, count, seed)
        centres = np.ascontiguousarray(means.cluster_centers_, dtype=np.float32)
        return cls(means.labels_.astype(np.int64), centres, mean, principal, origin)

    @property
    def count(self) -> int:
        return len(self.centres)

    def assign(self, features: Any) -> Numbers:
        """Return the cluster of each row of other features: the nearest centre's."""
        features = _checked(features)
        if features.shape[1] != len(self.mean):
            raise InvalidArgument(
                f"features must have {len(self.mean)} columns, as those that were clustered; got {features.shape[1]}."
            )
        squares = np.einsum("ij,ij->i", self.centres, self.centres)
        parts = [
            np.argmin(squares - 2 * points @ self.centres.T, axis=1)
            for points in _points(features, self.mean, self.principal)
        ]
        return np.concatenate(parts)

    def neighbours(self, k: int) -> Numbers:
        """Return the k clusters whose centres are nearest to each cluster's own, (count, k); all others, if they are fewer."""
        k = min(checks.integer(k=k, at_least=1), self.count - 1)
        squares = np.einsum("ij,ij->i", self.centres, self.centres)
        parts = []
        for start in range(0, self.count, ROWS_AT_ONCE):
            own = np.arange(start, min(start + ROWS_AT_ONCE, self.count))
            away = squares - 2 * self.centres[own] @ self.centres.T
            away[own - start, own] = np.inf
            parts.append(np.argsort(away, axis=1, kind="stable")[:, :k])
        return np.concatenate(parts)

    def source(self) -> str:
        """Return what a certificate says of these groups."""
        digest = hashlib.sha256(np.ascontiguousarray(self.numbers, dtype="<i8").data).hexdigest()
        return f"{self.count} clusters (digest {digest[:16]}) of {self.origin}"

    def save(self, path: str | os.PathLike[str]) -> None:
        with renamed_when_whole(Path(path)) as file:
            arrays = {item.name: np.asarray(getattr(self, item.name)) for item in fields(self)}
            np.savez(file, allow_pickle=False, format=np.array(FORMAT), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Clusters:
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                if str(stored["format"]) != FORMAT:
                    raise ValueError
                arrays = {item.name: stored[item.name] for item in fields(cls)}
                return cls(**arrays | {"origin": str(arrays["origin"])})
        except FileNotFoundError:
            raise InvalidArgument(f"there are no clusters at {path}.") from None
        except Exception as error:
            raise InvalidArgument(f"{path} does not hold whole clusters ({type(error).__name__}).") from None

    def __repr__(self) -> str:
        return f"<Clusters: {len(self.numbers):,} rows in {self.count:,} clusters>"


def _checked(features: Any) -> NDArray[Any]:
    features = checks.array(features=features)
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "fiu":
        raise InvalidArgument(
            f"features must be numbers of shape (rows, columns), got dtype {features.dtype}, shape {features.shape}."
        )
    return features


def _principal(features: NDArray[Any], components: int, seed: int) -> tuple[Floats, Floats]:
    try:
        from sklearn.decomposition import PCA
    except ImportError:
        raise MissingExtra(NEEDS_SKLEARN) from None
    n_rows, n_columns = features.shape
    rng = np.random.default_rng([seed, SAMPLED])
    some = np.sort(rng.choice(n_rows, min(PRINCIPAL_ROWS, n_rows), replace=False))
    looked_at = _finite(features[some])
    with np.errstate(invalid="ignore"):  # features that are all alike have no variance to explain, and need none
        found = PCA(min(components, len(some), n_columns), random_state=seed).fit(looked_at)
    return found.mean_.astype(np.float32), np.ascontiguousarray(found.components_.T, dtype=np.float32)


def _points(features: NDArray[Any], mean: Floats, principal: Floats) -> Iterator[Floats]:
    """Yield principal components of features, each row scaled to length 1, a piece at a time."""
    for start in range(0, len(features), ROWS_AT_ONCE):
        piece = _finite(features[start : start + ROWS_AT_ONCE])
        points = (piece - mean) @ principal
        lengths = np.sqrt(np.einsum("ij,ij->i", points, points))[:, None]
        yield np.divide(points, lengths, out=points, where=lengths > 0)


def _finite(piece: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):
        numbers = np.asarray(piece, dtype=np.float32)
    if not (np.abs(numbers) <= LARGEST_FEATURE).all():  # NaN fails this comparison
        raise InvalidArgument(
            f"features must be finite and at most {LARGEST_FEATURE:g}; some are NaN, infinite or larger: replace or scale them."
        )
    return numbers


def _k_means(points: Floats, count: int, seed: int) -> Any:
    """Return k-means: quick rounds on batches, then a few on all points, which make clusters a little purer."""
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans
        from sklearn.exceptions import ConvergenceWarning
    except ImportError:
        raise MissingExtra(NEEDS_SKLEARN) from None
    quick = MiniBatchKMeans(
        count,
        init="random",
        n_init=1,
        max_iter=ROUNDS,
        batch_size=max(ROWS_AT_ONCE, 2 * count),
        init_size=3 * count,
        reassignment_ratio=0.0,  # the rounds on all points move centres without rows, and know better where to
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than clusters: some stay empty
        started = quick.fit(points).cluster_centers_
        return KMeans(count, init=started, n_init=1, max_iter=FULL_ROUNDS, random_state=seed).fit(points)
