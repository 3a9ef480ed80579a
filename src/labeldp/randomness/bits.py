"""Random words: from the operating system, or from a seed for tests that say so."""

from __future__ import annotations

import os
import random
import threading
import weakref
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument, LabelDPError

Words = NDArray[np.uint64]

BUFFER_BYTES = 1 << 16


class WordSource(Protocol):
    """What samplers draw from."""

    def words(self, count: int) -> Words: ...


class SystemBits:
    """Operating-system entropy, buffered for small requests.

    The buffer is wiped as it is used, locked between threads, dropped in a forked child, and never pickled or copied.
    """

    __slots__ = ("__weakref__", "_buffer", "_lock", "_pid", "_used")

    private = True  # not a slot, so no instance can say otherwise

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._used = 0
        self._pid = os.getpid()
        _all_system_bits.add(self)

    def words(self, count: int) -> Words:
        """Return `count` fresh 64-bit words."""
        if count < 0:  # would step back into words already handed out
            raise AssertionError("a count must not be negative")
        size = 8 * count
        if size > BUFFER_BYTES:
            return np.frombuffer(bytearray(os.urandom(size)), dtype=np.uint64)
        with self._lock:
            if self._pid != os.getpid():
                self._forget()
            if self._used + size > len(self._buffer):
                self._buffer = bytearray(os.urandom(BUFFER_BYTES))
                self._used = 0
            start, self._used = self._used, self._used + size
            words = np.frombuffer(self._buffer[start : self._used], dtype=np.uint64)
            self._buffer[start : self._used] = bytes(size)
            return words

    def _forget(self) -> None:
        """Drop what was buffered: after a fork the same bytes sit in two processes."""
        self._buffer = bytearray()
        self._used = 0
        self._pid = os.getpid()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()  # the parent's may have been held by a thread that does not exist here
        self._forget()

    def __copy__(self) -> SystemBits:
        return self

    def __deepcopy__(self, memo: object) -> SystemBits:
        return self

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("Entropy is never pickled. Each process draws its own from the operating system.")

    def __repr__(self) -> str:
        return "SystemBits()"


class InsecureBits:
    """Words that follow from a seed, for tests alone: whatever they touch is stamped NOT PRIVATE.

    >>> InsecureBits(seed=1).words(2).tolist() == InsecureBits(seed=1).words(2).tolist()
    True
    """

    __slots__ = ("_generator", "_lock", "seed")

    private = False  # not a slot, so no instance can say otherwise

    def __init__(self, seed: int) -> None:
        self.seed = checks.integer(seed=seed, at_least=0)
        self._generator = random.Random(self.seed)
        self._lock = threading.Lock()

    def words(self, count: int) -> Words:
        """Return the next `count` words of the seeded stream."""
        with self._lock:
            return np.frombuffer(bytearray(self._generator.randbytes(8 * count)), dtype="<u8").astype(np.uint64)

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("A seeded stream is not pickled: a copy would repeat it.")

    def __repr__(self) -> str:
        return f"InsecureBits(seed={self.seed}, NOT PRIVATE)"


class Reserved:
    """So many words, taken at once: how many of them a sampler then uses cannot be seen. Where they do not do, more are."""

    __slots__ = ("_bits", "_used", "_words")

    def __init__(self, bits: SystemBits | InsecureBits, count: int) -> None:
        self._bits = bits
        self._words = bits.words(count)
        self._used = 0

    def words(self, count: int) -> Words:
        """Return the next `count` words, and wipe them here."""
        end = self._used + count
        if end > len(self._words):
            return self._bits.words(count)
        taken = self._words[self._used : end].copy()
        self._words[self._used : end] = 0
        self._used = end
        return taken


Bits = SystemBits | InsecureBits


def known_bits(bits: Bits | None) -> Bits:
    """Return bits that we can vouch for: a subclass or look-alike could claim to be private."""
    if bits is None:
        return SYSTEM
    if type(bits) not in (SystemBits, InsecureBits):
        raise InvalidArgument(
            f"bits must be None (the operating system) or InsecureBits(seed), got {type(bits).__name__}."
        )
    return bits


_all_system_bits: weakref.WeakSet[SystemBits] = weakref.WeakSet()


def _reset_after_fork() -> None:
    for bits in list(_all_system_bits):
        bits._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)

SYSTEM = SystemBits()
