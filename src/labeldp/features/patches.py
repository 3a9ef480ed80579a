"""Features of images from small patches, clustered without labels: Coates, Lee and Ng (2011)."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.features.clusters import k_means
from labeldp.features.responses import Floats, Images, Responses
from labeldp.files import renamed_when_whole

FORMAT = "labeldp-patches-2"
"""Changes with anything that changes the features of given settings; caches are keyed by it.

It did not when images that are all alike were no longer told apart by their rounding, which had depended on the processor.
"""
EIGENVALUE_FLOOR = 0.1
"""Added to the variances that whitening makes equal: directions of next to no variance are mostly noise."""
STANDARDISED_ON = 4_096
"""Images whose features' mean and spread stand for those of all."""
SMALLEST_SPREAD = 0.05
"""No feature is enlarged by more than 1 / this of what the most variable one is: in new images it may wake up."""
ROUNDING = 5e-4
"""Of the largest mean: a spread that single precision may make of images that are all alike, which is not enlarged at all.

The most was found of copies of one noisy image whose patches are nearly as large as it is, by OpenBLAS's kernel for AVX-512. A
small object that comes and goes makes more; single levels of noise, averaged over a large region, may make less.
"""
FLAT = 1e-6
"""A spread that single precision may make of flat images, whose features are all 0 and have no mean to compare with."""

LARGEST_FLOOR = 1e6
SETTINGS = ("patch", "centroids", "pool", "rounds", "sample", "floor", "seed")

SAMPLED, SEEDED, STANDARDISED = range(3)  # what a seed is for


@dataclass(frozen=True, eq=False, slots=True)
class Learned:
    """What `fit` found out about the images."""

    shape: NDArray[np.int64]
    whitening: Floats
    centroids: Floats
    mean: Floats
    spread: Floats

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(eq=False)
class PatchFeatures:
    """Turn images into features: how near their patches are to typical ones, averaged over parts of the image.

    Each patch is normalised to mean 0 and variance 1, whitened, and compared with centroids that k-means found among random
    patches: a centroid answers max(0, mean distance of all centroids - its own distance). Answers are averaged over pool x
    pool regions of the image, and standardised by the mean and the spread of (at most) 4,096 random images of `fit`. No
    gradients: 60,000 images of 28 x 28 take less than a minute. A linear model on top is a strong baseline.

    Everything follows from the images and the seed: the same call gives the same bits on one machine with one number of
    threads. In another batch, a row's last bits may differ.

    Parameters
    ----------
    patch : the side of a patch, in pixels.
    centroids : how many typical patches; there are pool * pool * centroids features.
    pool : into how many parts the image is cut each way.
    rounds : of k-means.
    sample : how many patches whitening and k-means look at.
    floor : added to each patch's variance, in squared levels of 0 .. 255, so that a flat patch stays flat instead of showing
        its noise. 10 is Coates, Lee and Ng's; strokes on an empty ground, such as digits, want thousands.
    mirror : the mean of an image's features and those of its mirror image, for images that mean the same either way. It takes
        twice the time. Each of the two is standardised, so that their mean spreads less.
    seed : of the random patches, the first centroids and the images that are looked at; public.

    Privacy
    -------
    It sees no label. Features are as public as the images, and cost no epsilon.

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(256, size=(20, 1, 12, 12), dtype=np.uint8)
    >>> PatchFeatures(patch=4, centroids=5, pool=2, sample=500).fit_transform(images).shape
    (20, 20)
    """

    patch: int = 6
    centroids: int = 300
    pool: int = 3
    rounds: int = 12
    sample: int = 100_000
    floor: float = 10.0
    seed: int = 0
    mirror: bool = False
    learned: Learned | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.patch = checks.integer(patch=self.patch, at_least=2, at_most=256)
        self.centroids = checks.integer(centroids=self.centroids, at_least=2, at_most=100_000)
        self.pool = checks.integer(pool=self.pool, at_least=1, at_most=256)
        self.rounds = checks.integer(rounds=self.rounds, at_least=0)
        self.sample = checks.integer(sample=self.sample, at_least=self.centroids)
        self.seed = checks.integer(seed=self.seed, at_least=0)
        if isinstance(self.floor, str):
            raise InvalidArgument(f"floor must be a number, got {self.floor!r}.")
        self.floor = float(self.floor)
        if not isinstance(self.mirror, bool):
            raise InvalidArgument(f"mirror must be True or False, got {self.mirror!r}.")
        if not 0 < self.floor <= LARGEST_FLOOR:
            raise InvalidArgument(f"floor must be > 0 and at most {LARGEST_FLOOR:g}, got {self.floor}.")

    def description(self) -> dict[str, Any]:
        """Return the settings, as JSON values."""
        settings = {name: getattr(self, name) for name in SETTINGS}
        mirror = {"mirror": True} if self.mirror else {}  # which older files do not know
        return {"extractor": FORMAT, **settings, **mirror}

    @property
    def fingerprint(self) -> str | None:
        """A digest of the settings and of all that was learned; None until it is fitted."""
        if self.learned is None:
            return None
        digest = hashlib.sha256(json.dumps(self.description(), sort_keys=True).encode())
        for array in self.learned.arrays().values():
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def fit(self, images: Images) -> Self:
        """Learn whitening, centroids and standardisation.

        Parameters
        ----------
        images : uint8 (n, C, H, W), in memory or memory-mapped.
        """
        images = self._checked(images)
        if len(images) == 0:
            raise InvalidArgument("images must be at least one to learn from, got none.")
        patches = normalised(self._sampled(images), self.floor)
        if len(patches) < self.centroids:
            raise InvalidArgument(
                f"centroids must be no more than the patches that are looked at, {len(patches)} here; got {self.centroids}."
            )
        whitening = whitening_of(patches)
        centroids = k_means(patches @ whitening, clusters=self.centroids, rounds=self.rounds, seed=self._seed(SEEDED))
        mean, spread = self._standard(images, whitening, centroids)
        self.learned = Learned(np.array(images.shape[1:], np.int64), whitening, centroids, mean, spread)
        return self

    def transform(self, images: Images, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the features of images, float32 (n, pool * pool * centroids).

        Parameters
        ----------
        images : uint8 (n, C, H, W) of the shape that was learned from, in memory or memory-mapped; read in small batches.
        out : an array to fill, for instance a memory-mapped one; otherwise a new one is made.
        """
        images, learned = self._checked(images), self._fitted()
        if images.shape[1:] != tuple(learned.shape):
            raise InvalidArgument(
                f"images must be of the shape that was learned from, {tuple(learned.shape.tolist())}, got {images.shape[1:]}."
            )
        shape = (len(images), len(learned.mean))
        if out is None:
            out = np.empty(shape, np.float32)
        elif not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != np.float32:
            got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            raise InvalidArgument(f"out must be a float32 array of shape {shape}, got {got}.")
        responses = self._responses(images, learned.whitening, learned.centroids, mirror=self.mirror)
        responses.into(out, images, learned.mean, learned.spread)
        return out

    def fit_transform(self, images: Images, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Learn from images and return their features."""
        return self.fit(images).transform(images, out)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings and what was learned into one `.npz` file of exactly this name."""
        arrays = self._fitted().arrays()
        with renamed_when_whole(Path(path)) as file:
            np.savez(file, allow_pickle=False, description=np.array(json.dumps(self.description())), **arrays)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Take over what PatchFeatures of the same settings saved."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            description = json.loads(str(arrays.pop("description")))
            learned = Learned(**arrays)
        except FileNotFoundError:
            raise InvalidArgument(f"there is no file {path}.") from None
        except Exception as error:  # those of damaged archives derive from nothing narrower
            raise InvalidArgument(f"{path} does not hold saved PatchFeatures ({type(error).__name__}).") from None
        if description != self.description():
            raise InvalidArgument(
                f"{path} holds features of other settings: it says {description}, this extractor {self.description()}."
            )
        self._check_learned(learned, path)
        self.learned = learned
        return self

    def _fitted(self) -> Learned:
        if self.learned is None:
            raise InvalidArgument("these PatchFeatures have learned nothing yet: call fit, or load a saved file.")
        return self.learned

    def _checked(self, images: Any) -> Images:
        images = checks.array(images=images)
        if images.dtype != np.uint8:
            raise InvalidArgument(f"images must be uint8, levels 0 to 255, got dtype {images.dtype}.")
        if images.ndim != 4:
            raise InvalidArgument(
                f"images must have the shape (n, channels, height, width), got {images.shape}. "
                "Grey images without a channel axis need one: images[:, None]."
            )
        smallest = self.patch + self.pool - 1
        if images.shape[1] < 1 or min(images.shape[2:]) < smallest:
            raise InvalidArgument(
                f"images must be at least {smallest} pixels high and wide, so that {self.pool} x {self.pool} regions hold "
                f"patches of side {self.patch}; got shape {images.shape}. Use a smaller patch or pool."
            )
        return images

    def _check_learned(self, learned: Learned, path: Any) -> None:
        n_values = int(learned.shape[0]) * self.patch**2 if learned.shape.shape == (3,) else -1
        n_features = self.pool**2 * self.centroids
        shapes = {
            "whitening": (n_values, n_values),
            "centroids": (self.centroids, n_values),
            "mean": (n_features,),
            "spread": (n_features,),
        }
        for name, shape in shapes.items():
            array = getattr(learned, name)
            if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
                raise InvalidArgument(f"{path} is damaged: its {name} must be finite float32 of shape {shape}.")

    def _seed(self, purpose: int) -> list[int]:
        return [self.seed, purpose]

    def _sampled(self, images: Images) -> Floats:
        """Return random patches, (sample, C * patch * patch) levels; all there are, if they are fewer."""
        windows = sliding_window_view(images, (self.patch, self.patch), axis=(2, 3))
        places = (len(images), *windows.shape[2:4])
        total = math.prod(places)
        if total <= self.sample:
            chosen = np.arange(total)
        else:
            chosen = np.random.default_rng(self._seed(SAMPLED)).choice(total, self.sample, replace=False, shuffle=False)
            chosen.sort()  # images on disk are read in their order
        image, down, across = np.unravel_index(chosen, places)
        return windows[image, :, down, across].reshape(len(chosen), -1).astype(np.float32)

    def _standard(self, images: Images, whitening: Floats, centroids: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the spread of raw features."""
        rng = np.random.default_rng(self._seed(STANDARDISED))
        chosen = np.sort(rng.choice(len(images), min(STANDARDISED_ON, len(images)), replace=False))
        responses = self._responses(images, whitening, centroids)
        raw = np.empty((len(chosen), responses.n_features), np.float32)
        responses.into(raw, images[chosen], np.zeros(1, np.float32), np.ones(1, np.float32))
        mean, spread = raw.mean(axis=0, dtype=np.float64), raw.std(axis=0, dtype=np.float64)
        return mean.astype(np.float32), _divisors(mean, spread).astype(np.float32)

    def _responses(self, images: Images, whitening: Floats, centroids: Floats, *, mirror: bool = False) -> Responses:
        channels, height, width = images.shape[1:]
        shape = (channels, height, width)
        return Responses(
            whitening,
            centroids,
            shape=shape,
            patch=self.patch,
            pool=self.pool,
            floor=self.floor,
            mirror=mirror,
        )


def _divisors(mean: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what features are divided by: their spread, but for what is too little of it, or none at all."""
    widest = spread.max()
    if widest <= max(FLAT, ROUNDING * mean.max()):
        return np.ones_like(spread)
    return np.maximum(spread, SMALLEST_SPREAD * widest)


def normalised(patches: Floats, floor: float) -> Floats:
    """Return patches of levels, one per row, with mean 0 and variance nearly 1, less in flat ones."""
    centred = patches - patches.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", centred, centred) / np.float32(patches.shape[1])
    return centred / np.sqrt(variance + np.float32(floor))[:, None]


def whitening_of(patches: Floats) -> Floats:
    """Return the symmetric matrix that makes all directions of normalised patches vary alike, and takes their mean level away.

    The mean patch is not taken away: only distances matter, and it would shift patches and centroids alike.
    """
    n_values = patches.shape[1]
    away = patches.astype(np.float64) - patches.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(away.T @ away / len(patches))
    whitening = (directions / np.sqrt(np.maximum(variances, 0) + EIGENVALUE_FLOOR)) @ directions.T
    level = np.full((n_values, n_values), 1 / n_values)
    centring = np.eye(n_values) - level
    return (centring @ whitening @ centring).astype(np.float32)
