"""Features on disk, found again by the content of the inputs and by what made them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.features.extractor import Extractor
from labeldp.features.files import remove_abandoned
from labeldp.files import fresh_name, renamed_when_whole

FORMAT = "labeldp-features-1"
ROWS_AT_ONCE = 2_048
"""Rows computed and written between two calls of `progress`."""
BYTES_AT_ONCE = 1 << 24

Progress = Callable[[int, int], None]
"""Called with the rows that are done and the rows there are."""


def cached(
    inputs: Any, extractor: Extractor, folder: str | os.PathLike[str], *, progress: Progress | None = None
) -> np.memmap[Any, Any]:
    """Return the features of public inputs, read-only and mapped from a file in the folder; compute them only if it is missing.

    The file's name is a digest of the inputs (shape, type and every byte) and of the extractor (settings and what it learned),
    so other inputs or settings never meet it; a `.json` beside it says what it is. It gets its name once it is whole: a run
    that is killed leaves nothing that is believed, and runs at the same time do not disturb each other. Remove files, or the
    folder, whenever you like.

    Parameters
    ----------
    inputs : an array with one input per row, in memory or memory-mapped.
    extractor : if it is not fitted, it is fitted on these inputs, or takes over what one of the same description learned from
        them before; afterwards it is fitted, and can be given other inputs, such as a test split.
    folder : made if it is missing.
    progress : called with (rows done, all rows) as features are written; once, at the end, if nothing had to be computed.

    Privacy
    -------
    Labels have no part in this. Features in the folder are as public as the inputs.
    """
    inputs = checks.array(inputs=inputs)
    if inputs.ndim == 0 or len(inputs) == 0 or inputs.dtype.hasobject:
        raise InvalidArgument(
            f"inputs must be an array of numbers with at least one row, got dtype {inputs.dtype}, shape {inputs.shape}."
        )
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    about = {"dtype": inputs.dtype.str, "shape": list(inputs.shape), "sha256": content_digest(inputs)}
    fingerprint = _fit_once(extractor, inputs, about, place)
    says = {"format": FORMAT, "inputs": about, "extractor": extractor.description(), "fingerprint": fingerprint}
    path = place / f"{_key(says)}.npy"
    if (found := _believed(path, says)) is None:
        remove_abandoned(place)
        _write(path, says, inputs, extractor, progress or _nobody)
        found = _believed(path, says)
        if found is None:
            raise InvalidArgument(f"{path} was changed by something else while it was written: try again.")
    elif progress is not None:
        progress(len(inputs), len(inputs))
    return found


def content_digest(inputs: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's bytes in C order, a piece at a time."""
    digest = hashlib.sha256()
    row_bytes = max(1, inputs.nbytes // len(inputs))
    for rows in _pieces(len(inputs), max(1, BYTES_AT_ONCE // row_bytes)):
        digest.update(np.ascontiguousarray(inputs[rows]).data)
    return digest.hexdigest()


def _fit_once(extractor: Extractor, inputs: NDArray[Any], about: dict[str, Any], folder: Path) -> str:
    """Fit the extractor unless it is, by what is stored if it is; return its fingerprint."""
    if extractor.fingerprint is None:
        description = extractor.description()
        path = folder / f"{_key({'format': FORMAT, 'fitted on': about, 'extractor': description})}.fitted"
        if not _loaded(extractor, path):
            extractor.fit(inputs)
            fresh = fresh_name(path)
            try:
                extractor.save(fresh)
                os.replace(fresh, path)
            finally:
                fresh.unlink(missing_ok=True)
    if extractor.fingerprint is None:
        raise InvalidArgument(f"{type(extractor).__name__} must have a fingerprint once it is fitted; it has none.")
    return extractor.fingerprint


def _loaded(extractor: Extractor, path: Path) -> bool:
    """Let the extractor take over what is stored; False if there is nothing that it accepts."""
    if not path.exists():
        return False
    try:
        extractor.load(path)
    except InvalidArgument:
        return False
    return True


def _believed(path: Path, says: dict[str, Any]) -> np.memmap[Any, Any] | None:
    """Return the features if the file and the `.json` beside it are both there and fit together."""
    try:
        told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # numpy says EOFError of an empty file
        return None
    whole = isinstance(told, dict) and isinstance(found, np.memmap)
    expected = {**says, "features": {"dtype": found.dtype.str, "shape": list(found.shape)}}
    return found if whole and told == expected else None


def _write(path: Path, says: dict[str, Any], inputs: NDArray[Any], extractor: Extractor, progress: Progress) -> None:
    n_rows = len(inputs)
    progress(0, n_rows)
    with renamed_when_whole(path) as file:
        shape: tuple[int, ...] | None = None
        for rows in _pieces(n_rows, ROWS_AT_ONCE):
            features = np.ascontiguousarray(extractor.transform(inputs[rows]))
            if shape is None:
                shape, dtype = (n_rows, *features.shape[1:]), features.dtype
                _write_header(file, shape, dtype)
            if features.shape != (rows.stop - rows.start, *shape[1:]) or features.dtype != dtype:
                raise InvalidArgument(
                    f"{type(extractor).__name__}.transform must give one row of equal shape and dtype per input."
                )
            file.write(features.data)
            progress(rows.stop, n_rows)
    about = {"dtype": dtype.str, "shape": list(shape or ())}
    with renamed_when_whole(path.with_suffix(".json")) as file:
        file.write(json.dumps({**says, "features": about}, indent=1).encode())


def _write_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, header)


def _pieces(n_rows: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def _key(says: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(says, sort_keys=True).encode()).hexdigest()[:32]


def _nobody(done: int, rows: int) -> None:
    """Take no notice of progress."""
