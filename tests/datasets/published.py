"""Tiny files in the publishers' formats, and a search for labels in whatever an error could show."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import traceback

import numpy as np

SIDE = 28
FINE = [f"fine-{number}" for number in range(100)]


def idx(array):
    """Return an array of unsigned bytes as an idx file's content."""
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def images(n_rows, *, shape=(SIDE, SIDE), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n_rows, *shape), dtype=np.uint8)


def idx_files(n_rows=12, n_test=4, label=7):
    """Return the four files' arrays, by stem; all training labels are the same, so that a leak is easy to see."""
    return {
        "train-images-idx3-ubyte": images(n_rows),
        "train-labels-idx1-ubyte": np.full(n_rows, label, np.uint8),
        "t10k-images-idx3-ubyte": images(n_test, seed=1),
        "t10k-labels-idx1-ubyte": np.arange(n_test, dtype=np.uint8),
    }


def write_idx(root, name, files, *, zipped=False, rename=str):
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for stem, content in files.items():
        content = content if isinstance(content, bytes) else idx(content)
        file = folder / (rename(stem) + (".gz" if zipped else ""))
        file.write_bytes(gzip.compress(content, 1) if zipped else content)
    return root


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its str, and numpy's names as they were then: the way CIFAR's own files are."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_str_of_python_2(self, content):
        short = len(content) < 256
        head = (
            pickle.SHORT_BINSTRING + bytes([len(content)])
            if short
            else pickle.BINSTRING + struct.pack("<i", len(content))
        )
        self.write(head + content)
        self.memoize(content)

    dispatch[bytes] = save_str_of_python_2


def python_2(value):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def cifar_batches(n_classes, sizes, *, label=None):
    """Return (pixels, labels) of each batch."""
    labels = (np.arange(size) % n_classes if label is None else np.full(size, label) for size in sizes)
    return [(images(size, shape=(3072,), seed=size), numbers) for size, numbers in zip(sizes, labels, strict=True)]


def records(pixels, *label_columns):
    return np.column_stack([*label_columns, pixels]).astype(np.uint8).tobytes()


def write_cifar_10(root, batches, *, version):
    folder = root / {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}[version]
    folder.mkdir(parents=True)
    for stem, (pixels, labels) in zip([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"], batches, strict=True):
        if version == "binary":
            (folder / f"{stem}.bin").write_bytes(records(pixels, labels))
        else:
            names = [b"image_%d.png" % n for n in range(len(labels))]
            content = {b"batch_label": b"one", b"labels": labels.tolist(), b"data": pixels, b"filenames": names}
            (folder / stem).write_bytes(python_2(content))
    return folder


def write_cifar_100(root, batches, *, version):
    folder = root / {"binary": "cifar-100-binary", "python": "cifar-100-python"}[version]
    folder.mkdir(parents=True)
    for stem, (pixels, labels) in zip(["train", "test"], batches, strict=True):
        if version == "binary":
            (folder / f"{stem}.bin").write_bytes(records(pixels, labels // 5, labels))
        else:
            coarse = (labels // 5).tolist()
            (folder / stem).write_bytes(
                python_2({b"fine_labels": labels.tolist(), b"coarse_labels": coarse, b"data": pixels})
            )
    if version == "binary":
        (folder / "fine_label_names.txt").write_text("\n".join(FINE) + "\n")
    else:
        (folder / "meta").write_bytes(python_2({b"fine_label_names": [name.encode() for name in FINE]}))
    return folder


def everything_said(error):
    """What a handler, a logger or a debugger could show of an error, locals of our own frames included."""
    shown = "".join(traceback.format_exception(error)) + repr([error, error.__cause__, error.__context__, error.args])
    for frame in traceback.TracebackException.from_exception(error, capture_locals=True).stack:
        if "labeldp" in frame.filename and "tests" not in frame.filename:
            shown += str(frame.locals)
    return shown


def shows(label, text):
    """Tell whether a run of this label is in a text: as a list, an array, or bytes."""
    runs = (f"{label}, {label}", f"{label} {label}", repr(bytes([label, label]))[2:-1])
    return any(run in text for run in runs)
