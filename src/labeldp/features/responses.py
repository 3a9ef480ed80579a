"""The quick pass over images: every patch's distance to every centroid, as a triangle, averaged over regions of the image.

The work that cannot be avoided is two matrix products: patches by the whitening, whitened patches by the centroids. What else
there is, is kept small: patches lie in columns, so that each of numpy's loops is long; means and variances of patches come
from the image; the rest of a squared distance rides in the second product; and the one large array, the distances, is small
enough to stay in a core's cache until it is pooled.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.features.threads import in_threads

Floats = NDArray[np.float32]
Images = NDArray[np.uint8]

MIDDLE = np.float32(128)
"""Whitening takes the level of a patch away; it has less to round if levels lie about 0."""
CACHED_FLOATS = 175_000
"""How many distances to hold at once: 700 kB, which stay in the cache of a current core."""
NEARS = 4
"""Patches of so many times more images are cut and whitened at once, because each of numpy's calls has its price."""


@dataclass(frozen=True, slots=True)
class Span:
    """One of the regions that an axis of patch positions is cut into."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @classmethod
    def cut(cls, positions: int, pool: int) -> tuple[Span, ...]:
        edges = [i * positions // pool for i in range(pool + 1)]
        return tuple(map(cls, edges[:-1], edges[1:]))


class Responses:
    """Averages of max(0, mean distance - distance) over the patches of each region, for given whitening and centroids.

    With x the whitened patch, |x - c|^2 = (x, |x|^2, 1) . (-2c, 1, |c|^2): one product gives squared distances. Rounding could
    make one negative where x is very near c, so |c|^2 is enlarged by a hair more than what rounding can take away there:
    n terms of at most 4 |c|^2 in all, with |x|^2 rounded before, lose at most 5 n |c|^2 / 2^24.

    Parameters
    ----------
    whitening : (d, d), for patches as columns of d = C * patch * patch levels 0 .. 255; it takes the mean of a patch away.
    centroids : (k, d), whitened.
    shape : of one image, (C, H, W).
    floor : added to each patch's variance.
    mirror : average over each image and its mirror image.
    """

    def __init__(
        self,
        whitening: Floats,
        centroids: Floats,
        *,
        shape: tuple[int, int, int],
        patch: int,
        pool: int,
        floor: float,
        mirror: bool = False,
    ) -> None:
        _, height, width = shape
        self.mirror = mirror
        self.whitening = whitening
        self.patch = patch
        self.floor = np.float32(floor)
        self.rows = Span.cut(height - patch + 1, pool)
        self.columns = Span.cut(width - patch + 1, pool)
        self.n_centroids, self.n_values = centroids.shape
        self.factors = _factors(centroids)
        self.mean = np.full(self.n_centroids, 1 / self.n_centroids, np.float32)
        self.total = np.ones(self.n_values, np.float32)
        self.band_down = _band(height, patch)
        self.band_across = _band(width, patch).T
        self.widest = max(s.length for s in self.rows) * max(s.length for s in self.columns)
        self.near = max(1, CACHED_FLOATS // (self.n_centroids * self.widest))  # images whose distances are held
        self.at_once = self.near * NEARS

    @property
    def n_features(self) -> int:
        return len(self.rows) * len(self.columns) * self.n_centroids

    def into(self, out: NDArray[Any], images: Images, mean: Floats, spread: Floats) -> None:
        """Fill the rows of `out` with the images' responses, less the mean, over the spread."""
        own, scale = threading.local(), 1 / spread

        def fill(start: int) -> None:
            if not hasattr(own, "room"):
                own.room = _Room(self)
            rows = slice(start, start + self.at_once)
            responses = self._of(images[rows], own.room)
            if self.mirror:
                responses += self._of(images[rows, :, :, ::-1], own.room)
                responses *= np.float32(0.5)
            out[rows] = (responses - mean) * scale

        in_threads(fill, range(0, len(images), self.at_once))

    def _of(self, images: Images, room: _Room) -> Floats:
        pixels = images.astype(np.float32)
        scale = self._scale(pixels)
        pixels -= MIDDLE
        pooled = np.empty((len(self.rows), len(self.columns), self.n_centroids, len(images)), np.float32)
        means = np.empty((len(self.rows), len(self.columns), len(images)), np.float32)
        for column, across in enumerate(self.columns):
            strip = self._strip(pixels, across)
            for row, down in enumerate(self.rows):
                patches = self._patches(strip, down, room)
                patches = self._whitened(patches, scale[:, down.start : down.stop, across.start : across.stop], room)
                self._pool(patches, means[row, column], pooled[row, column], room)
        features = np.subtract(means.transpose(2, 0, 1)[..., None], pooled.transpose(3, 0, 1, 2), order="C")
        return features.reshape(len(images), -1)

    def _scale(self, pixels: Floats) -> Floats:
        """Return 1 / sqrt(variance + floor) of each patch, shape (n, positions down, positions across)."""
        n, _, height, width = pixels.shape
        levels = np.empty((2, n, height, width), np.float32)
        np.sum(pixels, axis=1, out=levels[0])
        np.einsum("nchw,nchw->nhw", pixels, pixels, out=levels[1])
        across = levels.reshape(-1, width) @ self.band_across
        sums, squares = self.band_down @ across.reshape(2, n, height, -1)
        exact = sums.astype(np.float64)  # whole numbers, of which float32 holds those below 2^24
        exact *= exact
        variance = (squares * np.float64(self.n_values) - exact).astype(np.float32)
        variance *= np.float32(1 / self.n_values**2)
        np.maximum(variance, 0, out=variance)
        variance += self.floor
        return np.reciprocal(np.sqrt(variance, out=variance), out=variance)

    def _strip(self, pixels: Floats, across: Span) -> Floats:
        """Return (C, patch, n, H, length): for each offset within a patch, the columns that a span of patches meets there."""
        n, channels, height, _ = pixels.shape
        strip = np.empty((channels, self.patch, n, height, across.length), np.float32)
        by_channel = pixels.transpose(1, 0, 2, 3)
        for offset in range(self.patch):
            strip[:, offset] = by_channel[..., across.start + offset : across.stop + offset]
        return strip

    def _patches(self, strip: Floats, down: Span, room: _Room) -> Floats:
        """Return the patches of a region as columns, image by image: (d, n * positions)."""
        channels, _, n, _, length = strip.shape
        patches = room.patches(n * down.length * length)
        into = patches.reshape(channels, self.patch, self.patch, n, down.length, length)
        for offset in range(self.patch):
            into[:, offset] = strip[..., down.start + offset : down.stop + offset, :]
        return patches

    def _whitened(self, patches: Floats, scale: Floats, room: _Room) -> Floats:
        """Return whitened patches as columns, with |x|^2 and 1 below each."""
        columns = room.columns(patches.shape[1])
        whitened = np.matmul(self.whitening, patches, out=columns[:-2])
        whitened *= scale.reshape(-1)
        squares = np.multiply(whitened, whitened, out=patches)
        np.matmul(self.total, squares, out=columns[-2])
        columns[-1] = 1
        return columns

    def _pool(self, columns: Floats, means: Floats, pooled: Floats, room: _Room) -> None:
        """Average over a region: the mean distance into `means`, the smaller of it and each distance into `pooled`.

        Their difference is the average of max(0, mean distance - distance).
        """
        n_images = len(means)
        positions = columns.shape[1] // n_images
        average = np.full(positions, 1 / positions, np.float32)
        for start in range(0, n_images, self.near):
            stop = min(start + self.near, n_images)
            near = columns[:, start * positions : stop * positions]
            distances = np.matmul(self.factors, near, out=room.distances(near.shape[1]))
            np.sqrt(distances, out=distances)
            mean = np.matmul(self.mean, distances)
            np.minimum(distances, mean, out=distances)
            np.matmul(mean.reshape(-1, positions), average, out=means[start:stop])
            pooled[:, start:stop] = (distances.reshape(-1, positions) @ average).reshape(-1, stop - start)


class _Room:
    """A thread's own arrays: asking for fresh ones would cost more than much of the arithmetic on them."""

    def __init__(self, of: Responses) -> None:
        self._of = of
        self._patches = np.empty(of.n_values * of.at_once * of.widest, np.float32)
        self._columns = np.empty((of.n_values + 2) * of.at_once * of.widest, np.float32)
        self._distances = np.empty(of.n_centroids * of.near * of.widest, np.float32)

    def patches(self, n_patches: int) -> Floats:
        return _first(self._patches, self._of.n_values, n_patches)

    def columns(self, n_patches: int) -> Floats:
        return _first(self._columns, self._of.n_values + 2, n_patches)

    def distances(self, n_patches: int) -> Floats:
        return _first(self._distances, self._of.n_centroids, n_patches)


def _first(floats: Floats, n_rows: int, n_columns: int) -> Floats:
    return floats[: n_rows * n_columns].reshape(n_rows, n_columns)


def _factors(centroids: Floats) -> Floats:
    exact = centroids.astype(np.float64)
    n_terms = exact.shape[1] + 2
    squares = (exact**2).sum(axis=1, keepdims=True) * (1 + 6 * n_terms * 2.0**-24)
    return np.hstack([-2 * exact, np.ones_like(squares), squares]).astype(np.float32)


def _band(length: int, patch: int) -> Floats:
    """Return the matrix that adds up `patch` neighbours: (length - patch + 1, length)."""
    starts, places = np.arange(length - patch + 1)[:, None], np.arange(length)
    return ((places >= starts) & (places < starts + patch)).astype(np.float32)
