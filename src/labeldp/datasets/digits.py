"""scikit-learn's handwritten digits: small, and installed with it, so that a first try needs no files.

The split is fixed and public: the rows in the order of `numpy.random.RandomState(SPLIT_SEED).permutation`, the last 360 for
the test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets.dataset import RANDOM_SPLIT, Dataset, class_numbers, public_numbers
from labeldp.datasets.places import Place
from labeldp.errors import MissingExtra
from labeldp.vault.labels import Unsealed

SPLIT_SEED = 1998
"""Public. RandomState, because numpy promises that its stream never changes."""
N_TEST = 360
N_CLASSES = 10
BRIGHTEST = 16
SOURCE = "scikit-learn's digits"


def load(name: str, data_dir: Place) -> Dataset:  # noqa: ARG001 - the digits need no folder
    """Read the digits from scikit-learn."""
    pictures, labels = _bundled()
    images = (pictures.astype(np.int64) * 255 // BRIGHTEST).astype(np.uint8).reshape(-1, 1, 8, 8)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(images))
    train, test = np.split(order, [len(images) - N_TEST])
    return Dataset(
        name,
        X=images[train],
        labels=class_numbers(Unsealed(labels.labels[train]), n_classes=N_CLASSES, source=SOURCE),
        classes=tuple(range(N_CLASSES)),
        X_test=images[test],
        test_labels=public_numbers(Unsealed(labels.labels[test]), n_classes=N_CLASSES, source=SOURCE),
        inputs={"kind": "image", "shape": [1, 8, 8]},
        public_test=RANDOM_SPLIT,
    )


def _bundled() -> tuple[NDArray[Any], Unsealed]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("The digits come with scikit-learn: pip install 'labeldp[sklearn]'.") from None
    both = Unsealed(load_digits(return_X_y=True))
    return both.labels[0], Unsealed(both.labels[1])
