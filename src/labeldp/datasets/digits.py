"""scikit-learn's handwritten digits: small, and installed with it, so that a first try needs no files.

The split is fixed and public: the rows in the order of `numpy.random.RandomState(SPLIT_SEED).permutation`, the last 360 for
the test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets.dataset import Dataset, randomly_split
from labeldp.datasets.places import Place
from labeldp.errors import MissingExtra
from labeldp.vault.labels import Unsealed

SPLIT_SEED = 1998
"""Public. RandomState, because numpy promises that its stream never changes."""
N_TEST = 360
BRIGHTEST = 16
SOURCE = "scikit-learn's digits"


def load(name: str, data_dir: Place) -> Dataset:  # noqa: ARG001 - the digits need no folder
    """Read the digits from scikit-learn."""
    pictures, labels = _bundled()
    images = (pictures.astype(np.int64) * 255 // BRIGHTEST).astype(np.uint8).reshape(-1, 1, 8, 8)
    inputs = {"kind": "image", "shape": [1, 8, 8]}
    return randomly_split(
        name, images, labels, classes=tuple(range(10)), inputs=inputs, seed=SPLIT_SEED, n_test=N_TEST, source=SOURCE
    )


def _bundled() -> tuple[NDArray[Any], Unsealed]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("The digits come with scikit-learn: pip install 'labeldp[sklearn]'.") from None
    both = Unsealed(load_digits(return_X_y=True))
    return both.labels[0], Unsealed(both.labels[1])
