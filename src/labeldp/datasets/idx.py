"""MNIST, Fashion-MNIST and KMNIST, in the idx format: plain or gzipped, whatever the file's name says."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets.dataset import Dataset, class_numbers, public_numbers
from labeldp.datasets.places import Place, Published, find
from labeldp.errors import InvalidArgument
from labeldp.vault.labels import Unsealed

SIDE = 28
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CLASSES: dict[str, tuple[str, ...] | tuple[int, ...]] = {
    "mnist": tuple(range(10)),
    "fashion-mnist": FASHION,
    "kmnist": tuple(range(10)),
}
PUBLISHERS = {
    "mnist": "Yann LeCun's site (yann.lecun.com/exdb/mnist)",
    "fashion-mnist": "Zalando Research (github.com/zalandoresearch/fashion-mnist)",
    "kmnist": "the ROIS-DS Center for Open Data in the Humanities (codh.rois.ac.jp/kmnist)",
}
UNSIGNED_BYTES = 0x08
GZIP = b"\x1f\x8b"
DENSEST = 1032
"""No deflate stream holds more than this many bytes per byte."""
AGAIN = "Get the file again from its publisher."


def load(name: str, data_dir: Place) -> Dataset:
    """Read one of the three datasets."""
    parts = [
        (f"{part}-{what}", n_dims) for part in ("train", "t10k") for what, n_dims in (("images", 3), ("labels", 1))
    ]
    form = Published(name, tuple(_names(stem, n_dims) for stem, n_dims in parts), note="each may be gzipped, as .gz")
    _, (images, labels, test_images, test_labels) = find(name, (form,), publisher=PUBLISHERS[name], data_dir=data_dir)
    n_classes = len(CLASSES[name])
    X, sealed = _read_pair(images, labels)
    X_test, unsealed_test = _read_pair(test_images, test_labels)
    return Dataset(
        name,
        X=X,
        labels=class_numbers(sealed, n_classes=n_classes, source=labels),
        classes=CLASSES[name],
        X_test=X_test,
        test_labels=public_numbers(unsealed_test, n_classes=n_classes, source=test_labels),
        inputs={"kind": "image", "shape": [1, SIDE, SIDE]},
    )


def _names(stem: str, n_dims: int) -> tuple[str, ...]:
    """Return the names a file goes by; plain ones first, because they can be mapped into memory."""
    official, mirrored = f"{stem}-idx{n_dims}-ubyte", f"{stem}.idx{n_dims}-ubyte"
    return official, mirrored, f"{official}.gz", f"{mirrored}.gz"


def _read_pair(images: Path, labels: Path) -> tuple[NDArray[np.uint8], Unsealed]:
    pictures = read(images, n_dims=3).labels
    numbers = read(labels, n_dims=1)
    if pictures.shape[1:] != (SIDE, SIDE):
        raise InvalidArgument(f"{images}: images must be of {SIDE} x {SIDE} pixels, got {pictures.shape[1:]}. {AGAIN}")
    if len(pictures) != len(numbers.labels):
        raise InvalidArgument(
            f"{images} holds {len(pictures):,} images but {labels} holds {len(numbers.labels):,} labels: there must be one "
            "label per image. Take both files from the same archive."
        )
    return pictures[:, None], numbers


def read(path: Path, *, n_dims: int) -> Unsealed:
    """Read an idx file of unsigned bytes with this many dimensions, wrapped because it may hold labels."""
    unsealed, problem = _try_to_read(path, n_dims)
    if unsealed is None:
        raise InvalidArgument(f"{path}: {problem}")
    return unsealed


def _try_to_read(path: Path, n_dims: int) -> tuple[Unsealed | None, str]:
    """Return the array, or in words why not; the traceback of what is then raised leads to no frame that held it."""
    with path.open("rb") as file:
        gzipped = file.read(2) == GZIP
        file.seek(0)
        stream: Any = gzip.GzipFile(fileobj=file) if gzipped else file
        try:
            shape, problem = _header(stream, n_dims)
            if shape is None:
                return None, problem
            size, offset = math.prod(shape), 4 + 4 * n_dims
            if gzipped:
                return _unzip(stream, shape, at_most=path.stat().st_size * DENSEST)
            if (difference := path.stat().st_size - offset - size) != 0:
                return None, _wrong_size(difference)
            # copy on write: the caller may write into the array, and the file stays as it is
            mapped = np.memmap(file, dtype=np.uint8, mode="c", offset=offset, shape=shape)
            return Unsealed(np.asarray(mapped)), ""
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return None, f"the gzip file is damaged or cut short. {AGAIN}"


def _header(stream: BinaryIO, n_dims: int) -> tuple[tuple[int, ...] | None, str]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        return None, f"this must be an idx file, and it does not begin like one. {AGAIN}"
    if magic[2] != UNSIGNED_BYTES:
        return None, f"an idx file of images or labels must hold unsigned bytes; this one does not. {AGAIN}"
    if magic[3] != n_dims:
        kinds = {1: "labels (one dimension)", 3: "images (three dimensions)"}
        found = kinds.get(magic[3], f"{magic[3]} dimensions")
        return (
            None,
            f"this must hold {kinds[n_dims]} but holds {found}. Were files swapped? Give each its published name.",
        )
    sizes = stream.read(4 * n_dims)
    if len(sizes) < 4 * n_dims:
        return None, f"the file is cut short. {AGAIN}"
    shape = tuple(np.frombuffer(sizes, dtype=">u4").tolist())
    return (shape, "") if all(shape) else (None, f"the file says that it is empty. {AGAIN}")


def _unzip(stream: Any, shape: tuple[int, ...], *, at_most: int) -> tuple[Unsealed | None, str]:
    size = math.prod(shape)
    if size > at_most:  # before any memory is asked for
        return None, _wrong_size(-1)
    body = np.empty(size, dtype=np.uint8)
    if stream.readinto(body) < size:
        return None, _wrong_size(-1)
    if stream.read(1):  # at the end this also verifies the checksum
        return None, _wrong_size(1)
    return Unsealed(body.reshape(shape)), ""


def _wrong_size(difference: int) -> str:
    return f"the file is {'cut short' if difference < 0 else 'longer than its header says'}. {AGAIN}"
