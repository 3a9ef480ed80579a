import sys

import numpy as np
import pytest

import labeldp as ldp
from labeldp import datasets


def test_the_digits_are_images_in_a_fixed_split():
    sklearn = pytest.importorskip("sklearn.datasets")
    data = datasets.load("digits")
    assert data.X.shape == (1437, 1, 8, 8) and data.X_test.shape == (360, 1, 8, 8)
    assert data.X.dtype == np.uint8 and data.X.min() == 0 and data.X.max() == 255
    assert data.classes == tuple(range(10)) and data.inputs == {"kind": "image", "shape": [1, 8, 8]}
    raw = sklearn.load_digits()
    order = np.random.RandomState(1998).permutation(1797)
    scaled = (raw.images.astype(int) * 255 // 16)[order]
    assert np.array_equal(np.concatenate([data.X, data.X_test])[:, 0], scaled)
    assert np.array_equal(data.unprotected().label_numbers, raw.target[order[:1437]])
    assert np.array_equal(data.test_labels, raw.target[order[1437:]])


def test_the_split_is_the_same_on_every_machine():
    pytest.importorskip("sklearn")
    assert np.random.RandomState(1998).permutation(1797)[:5].tolist() == [1498, 519, 1511, 148, 1013]


def test_a_first_try_needs_no_files():
    pytest.importorskip("sklearn")
    release = datasets.load("digits").subset(100).vault(budget="1").release(ldp.RandomizedResponse(epsilon="1"))
    assert len(release) == 100 and release.receipt.private


def test_without_scikit_learn_the_digits_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ldp.MissingExtra, match=r"pip install 'labeldp\[sklearn\]'"):
        datasets.load("digits")
