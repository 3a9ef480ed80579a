"""CIFAR's "python version" files are pickles. They are read here without running anything that they ask for."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InvalidArgument
from labeldp.vault.labels import Unsealed

LARGEST_FILE = 2**29
REFUSED = (
    "this pickle is damaged, or asks for more than lists, text and plain arrays. It was not read, and nothing in it was run. "
    "Get the file again from its publisher, or use the binary version."
)

# What a plain pickle of dictionaries, lists, text and arrays is written in. Missing on purpose: INST, OBJ, NEWOBJ (make an
# instance of a class), EXT and PERSID (look things up elsewhere), floats, sets, out-of-band buffers.
ADMITTED = frozenset(
    """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG1 STRING BINSTRING SHORT_BINSTRING BINBYTES
    SHORT_BINBYTES BINBYTES8 BINUNICODE SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS
    EMPTY_DICT DICT SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE
    BUILD""".split()  # noqa: SIM905 - forty lines of one word each would say no more
)


class Inert:
    """Stands for something that a pickle may name. Calling it builds plain data; nothing can be set on it."""

    __slots__ = ()

    def __call__(self, *_: Any) -> Any:
        raise pickle.UnpicklingError

    def __setstate__(self, state: Any) -> NoReturn:
        raise pickle.UnpicklingError


class ReadArray:
    """What a pickle says about an array: not an array yet."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def uint8(self) -> NDArray[np.uint8] | None:
        """Return the array if it is a plain table of unsigned bytes."""
        if type(self.state) is not tuple or len(self.state) != 5:
            return None
        _, shape, dtype, by_column, content = self.state
        plain = type(dtype) is ReadDtype and dtype.code in (b"u1", "u1") and type(content) is bytes
        if not plain or type(shape) is not tuple or len(shape) != 2 or not set(map(type, shape)) <= {int}:
            return None
        if min(shape) < 1 or shape[0] * shape[1] != len(content):
            return None
        return np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if by_column else "C")


class ReadDtype:
    """What a pickle says about a dtype."""

    __slots__ = ("code",)

    def __init__(self, code: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment say nothing about single bytes."""


class Reconstruct(Inert):
    """numpy's maker of empty arrays, which are then given their state."""

    __slots__ = ()

    def __call__(self, *_: Any) -> ReadArray:
        return ReadArray()


class Dtype(Inert):
    """numpy.dtype."""

    __slots__ = ()

    def __call__(self, code: Any, *_: Any) -> ReadDtype:
        return ReadDtype(code)


class Encode(Inert):
    """How Python 3 writes bytes into old pickles. The real _codecs.encode would also offer decompression."""

    __slots__ = ()

    def __call__(self, text: Any, encoding: Any) -> bytes:
        if type(text) is not str or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError
        return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Inert] = {
    ("numpy.core.multiarray", "_reconstruct"): Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): Reconstruct(),
    ("numpy", "ndarray"): Inert(),
    ("numpy", "dtype"): Dtype(),
    ("_codecs", "encode"): Encode(),
}


class PlainUnpickler(pickle.Unpickler):
    """Unpickles plain data and arrays of bytes.

    Why this runs no foreign code: the machine of pickle calls only what `find_class` returns (REDUCE) and sets state only on
    what was made by that (BUILD). `find_class` imports nothing; it returns one of five stand-ins of this file, by exact name,
    and they only note their arguments. numpy itself never sees the pickle: `ReadArray.uint8` checks each part of an array's
    description, so no object dtype and no shape larger than its bytes can come to life.
    """

    def find_class(self, module: str, name: str) -> Inert:
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError
        return STAND_INS[module, name]


def read(path: Path) -> Unsealed:
    """Return the dictionary in a pickle, its keys as text, wrapped because it may hold labels."""
    if path.stat().st_size > LARGEST_FILE:
        raise InvalidArgument(f"{path}: the file is larger than any that CIFAR's publisher made; {REFUSED}")
    content = _try_to_read(path)
    if content is None:
        raise InvalidArgument(f"{path}: {REFUSED}")
    return content


def _try_to_read(path: Path) -> Unsealed | None:
    try:
        content = path.read_bytes()
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name not in ADMITTED:
                return None
            if opcode.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(
                content
            ):  # would ask for that much memory
                return None
        found = PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        if type(found) is not dict:
            return None
        return Unsealed({key.decode("latin1") if type(key) is bytes else key: value for key, value in found.items()})
    except OSError:
        raise
    except Exception:  # whatever pickle says could quote the file
        return None
