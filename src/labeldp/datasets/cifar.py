"""CIFAR-10 and CIFAR-100 (fine labels), from the binary version or, without running its pickles, the python version.

CIFAR's file names of single images and its coarse labels tell the label, so they are dropped as they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets import pickles
from labeldp.datasets.dataset import Dataset, class_numbers, public_numbers
from labeldp.datasets.places import Place, Published, find
from labeldp.errors import InvalidArgument
from labeldp.vault.labels import Unsealed

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
PUBLISHER = "Alex Krizhevsky's site (www.cs.toronto.edu/~kriz/cifar.html)"
AGAIN = "Get the file again from its publisher."
CIFAR_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

Batch = tuple[NDArray[np.uint8], Unsealed]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one of the two: its training files, its test file, then its class names if they are in a file."""

    published: Published
    n_training_files: int
    read_batch: Callable[[Path], Batch]
    read_classes: Callable[[Path], tuple[str, ...]] | None


def load(name: str, data_dir: Place) -> Dataset:
    """Read one of the two datasets; the binary version where both are."""
    versions = VERSIONS[name]
    form, paths = find(name, tuple(v.published for v in versions), publisher=PUBLISHER, data_dir=data_dir)
    version = next(v for v in versions if v.published is form)
    classes = CIFAR_10 if version.read_classes is None else version.read_classes(paths[-1])
    test = paths[version.n_training_files]
    X, labels = _join([version.read_batch(path) for path in paths[: version.n_training_files]])
    X_test, test_labels = _join([version.read_batch(test)])
    return Dataset(
        name,
        X=X,
        # named by folder: which of its files has a stranger among its labels would be said of some rows only
        labels=class_numbers(labels, n_classes=len(classes), source=test.parent),
        classes=classes,
        X_test=X_test,
        test_labels=public_numbers(test_labels, n_classes=len(classes), source=test),
        inputs={"kind": "image", "shape": list(SHAPE)},
    )


def _join(batches: list[Batch]) -> Batch:
    """Return all images in an array of their own, which shares no memory with the labels."""
    images = np.concatenate([images for images, _ in batches])
    return images.reshape(-1, *SHAPE), Unsealed(np.concatenate([labels.labels for _, labels in batches]))


def _binary_batch(path: Path, *, n_label_bytes: int) -> Batch:
    """Read records of one or two label bytes (coarse, fine) and the pixels."""
    length, size = n_label_bytes + PIXELS, path.stat().st_size
    if size == 0 or size % length:
        raise InvalidArgument(
            f"{path}: the file must be whole records of {length} bytes; it has {size:,} bytes, so it was cut short or is "
            f"another file. {AGAIN}"
        )
    return _map_records(path, length)


def _map_records(path: Path, length: int) -> Batch:
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, length)
    return np.asarray(records[:, -PIXELS:]), Unsealed(np.array(records[:, -PIXELS - 1]))


def _pickled_batch(path: Path, *, key: str) -> Batch:
    batch = _table_and_labels(pickles.read(path), key)
    if batch is None:
        raise InvalidArgument(
            f"{path}: the file must hold 'data', {PIXELS} unsigned bytes per image, and '{key}', one integer per image. {AGAIN}"
        )
    return batch


def _table_and_labels(content: Unsealed, key: str) -> Batch | None:
    data, numbers = content.labels.get("data"), content.labels.get(key)
    images = data.uint8() if type(data) is pickles.ReadArray else None
    if images is None or images.shape[1] != PIXELS or type(numbers) is not list or len(numbers) != len(images):
        return None
    if not set(map(type, numbers)) <= {int} or not all(-(2**31) <= number < 2**31 for number in numbers):
        return None
    return images, Unsealed(np.array(numbers, dtype=np.int32))


def _names_in_text(path: Path) -> tuple[str, ...]:
    return _hundred(path, path.read_text("latin1").split())


def _names_in_pickle(path: Path) -> tuple[str, ...]:
    return _hundred(path, pickles.read(path).labels.get("fine_label_names"))


def _hundred(path: Path, names: Any) -> tuple[str, ...]:
    texts = [name.decode("latin1") if type(name) is bytes else name for name in names] if type(names) is list else []
    if not set(map(type, texts)) <= {str} or len(set(texts)) != 100 or len(texts) != 100:
        raise InvalidArgument(f"{path}: the file must list the 100 fine class names, each once. {AGAIN}")
    return tuple(texts)


def _files(*names: str) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


FIVE = [f"data_batch_{number}" for number in range(1, 6)]
VERSIONS = {
    "cifar-10": (
        Version(
            Published("cifar-10-batches-bin", _files(*(f"{stem}.bin" for stem in FIVE), "test_batch.bin")),
            n_training_files=5,
            read_batch=partial(_binary_batch, n_label_bytes=1),
            read_classes=None,
        ),
        Version(
            Published("cifar-10-batches-py", _files(*FIVE, "test_batch")),
            n_training_files=5,
            read_batch=partial(_pickled_batch, key="labels"),
            read_classes=None,
        ),
    ),
    "cifar-100": (
        Version(
            Published("cifar-100-binary", _files("train.bin", "test.bin", "fine_label_names.txt")),
            n_training_files=1,
            read_batch=partial(_binary_batch, n_label_bytes=2),
            read_classes=_names_in_text,
        ),
        Version(
            Published("cifar-100-python", _files("train", "test", "meta")),
            n_training_files=1,
            read_batch=partial(_pickled_batch, key="fine_labels"),
            read_classes=_names_in_pickle,
        ),
    ),
}
