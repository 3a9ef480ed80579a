"""Small images, and patch features as the paper writes them down: one image, patch and centroid at a time."""

from __future__ import annotations

import numpy as np

SETTINGS = {"patch": 3, "centroids": 7, "pool": 2, "rounds": 4, "sample": 300}


def pictures(n=12, shape=(1, 9, 8), seed=0):
    """Smooth random images, some of them dark and some with flat parts."""
    rng = np.random.default_rng(seed)
    rough = rng.integers(256, size=(n, *shape))
    smooth = (rough + np.roll(rough, 1, axis=2) + np.roll(rough, 1, axis=3)) // 3
    smooth[::3, :, :4] = 17
    return smooth.astype(np.uint8)


def naive_features(extractor, images):
    """What `transform` must give, in double precision."""
    learned = extractor.learned
    raw = np.stack([naive_responses(extractor, image.astype(np.float64)) for image in images])
    return (raw - learned.mean) / learned.spread


def naive_responses(extractor, image):
    side, pool = extractor.patch, extractor.pool
    down, across = image.shape[1] - side + 1, image.shape[2] - side + 1
    pooled = np.zeros((pool, pool, extractor.centroids))
    counts = np.zeros((pool, pool, 1))
    for y in range(down):
        for x in range(across):
            row = max(i for i in range(pool) if i * down // pool <= y)
            column = max(i for i in range(pool) if i * across // pool <= x)
            pooled[row, column] += triangle(extractor, image[:, y : y + side, x : x + side].reshape(-1))
            counts[row, column] += 1
    return (pooled / counts).reshape(-1)


def triangle(extractor, patch):
    learned = extractor.learned
    normal = (patch - patch.mean()) / np.sqrt(patch.var() + extractor.floor)
    white = learned.whitening.astype(np.float64) @ normal
    distances = np.array([np.sqrt(((white - centroid) ** 2).sum()) for centroid in learned.centroids])
    return np.maximum(0, distances.mean() - distances)
