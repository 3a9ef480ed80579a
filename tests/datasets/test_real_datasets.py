"""The published files themselves, where LABELDP_DATA says that they are."""

import os
from pathlib import Path

import numpy as np
import pytest

import labeldp as ldp
from labeldp import datasets

ROOT = os.environ.get("LABELDP_DATA")

needs_files = pytest.mark.skipif(not ROOT, reason="LABELDP_DATA is not set, so there are no published files to read")

IMAGES = {
    "mnist": (60_000, (1, 28, 28), 10, ["mnist"]),
    "fashion-mnist": (60_000, (1, 28, 28), 10, ["fashion-mnist"]),
    "kmnist": (60_000, (1, 28, 28), 10, ["kmnist"]),
    "cifar-10": (50_000, (3, 32, 32), 10, ["cifar-10-batches-bin", "cifar-10-batches-py"]),
    "cifar-100": (50_000, (3, 32, 32), 100, ["cifar-100-binary", "cifar-100-python"]),
}
MNIST_TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
RATINGS = {"movielens-1m": (1_000_209, "ml-1m"), "movielens-100k": (100_000, "ml-100k")}


def load(name, folders):
    if not any((Path(ROOT) / folder).is_dir() for folder in folders):
        pytest.skip(f"LABELDP_DATA has no folder {' or '.join(folders)}")
    return datasets.load(name, data_dir=ROOT)


@needs_files
@pytest.mark.parametrize("name", IMAGES)
def test_published_images_are_as_published(name):
    n_rows, shape, n_classes, folders = IMAGES[name]
    data = load(name, folders)
    assert data.X.shape == (n_rows, *shape) and data.X_test.shape == (10_000, *shape)
    assert data.X.dtype == data.X_test.dtype == np.uint8
    assert data.X[::97].min() == 0 and data.X[::97].max() == 255
    assert len(data.classes) == n_classes and data.inputs == {"kind": "image", "shape": list(shape)}
    counts = np.bincount(data.test_labels, minlength=n_classes).tolist()
    assert counts == (MNIST_TEST_COUNTS if name == "mnist" else [10_000 // n_classes] * n_classes)
    release = data.subset(1_000).vault(budget="1").release(ldp.RandomizedResponse(epsilon="1"))
    assert len(release) == 1_000 and release.classes == data.classes


@needs_files
@pytest.mark.parametrize("name", RATINGS)
def test_published_ratings_are_as_published(name):
    n_ratings, folder = RATINGS[name]
    data = load(name, [folder])
    assert len(data.X_test) == n_ratings // 5 and data.n_rows == n_ratings - n_ratings // 5
    both = np.concatenate([data.X, data.X_test])
    users, items = data.inputs["sizes"]
    assert both.min(axis=0).tolist() == [0, 0] and both.max(axis=0).tolist() == [users - 1, items - 1]
    assert len(np.unique(both[:, 0])) == users
    assert len(np.unique(both[:, 0] * items + both[:, 1])) == n_ratings  # nobody rated a film twice
    assert np.bincount(data.test_labels, minlength=5).min() > 0.03 * len(data.X_test)
    vault = data.vault(budget="1")
    assert len(vault.release(ldp.RandomizedResponse(epsilon="1"))) == data.n_rows


@needs_files
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10"])
def test_images_and_labels_belong_together(name):
    """The mean image of each class, from rows and labels as sealed, tells test images apart far better than chance (0.1)."""
    data = load(name, IMAGES[name][3])
    few = data.subset(5_000)
    rows, labels = few.X.reshape(5_000, -1).astype(np.float32), few.unprotected().label_numbers
    means = np.stack([rows[labels == number].mean(axis=0) for number in range(10)])
    test = data.X_test[:1_000].reshape(1_000, -1).astype(np.float32)
    nearest = (np.einsum("kd,kd->k", means, means) - 2 * test @ means.T).argmin(axis=1)
    assert (nearest == data.test_labels[:1_000]).mean() > (0.2 if name == "cifar-10" else 0.6)
