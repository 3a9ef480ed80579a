"""No word is handed out twice: not after use, not to two threads, not to two processes, not by a copy.

Where words are compared for being different, two honest 64-bit words are equal with probability 2^-64; the tests below
compare at most 100,000 words at a time, which raises a false alarm with probability below 100,000^2 / 2^65 < 3e-10.
"""

import copy
import gc
import multiprocessing
import os
import pickle
import random
import signal
import sys
import threading
import weakref
from itertools import count
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.errors import InvalidArgument, LabelDPError
from labeldp.randomness import SYSTEM, InsecureBits, SystemBits, known_bits
from labeldp.randomness.bits import BUFFER_BYTES

BUFFER_WORDS = BUFFER_BYTES // 8

forking = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def all_different(*draws):
    words = np.concatenate(draws)
    return len(words) <= 100_000 and len(np.unique(words)) == len(words) and (words != 0).all()


# ---------------------------------------------------------------- one process, one thread


@pytest.mark.parametrize("n", [0, 1, 7, BUFFER_WORDS - 1, BUFFER_WORDS, BUFFER_WORDS + 1, 3 * BUFFER_WORDS])
@pytest.mark.parametrize("bits", [SystemBits(), InsecureBits(seed=1)], ids=["system", "insecure"])
def test_words_are_as_many_fresh_writable_unsigned_integers_as_asked_for(bits, n):
    first, second = bits.words(n), bits.words(n)
    assert first.shape == second.shape == (n,) and first.dtype == second.dtype == np.uint64
    assert first.flags.writeable
    assert all_different(first, second)


@pytest.mark.parametrize("bits", [SystemBits(), InsecureBits(seed=1)], ids=["system", "insecure"])
def test_every_one_of_the_64_digits_is_a_fair_coin(bits):
    # Hoeffding: the mean of 2^16 fair coins leaves 1/2 +- 0.015 with probability below 2 exp(-2 * 2^16 * 0.015^2) < 4e-13,
    # and one of 64 such means with less than 3e-11.
    words = bits.words(2**16)
    for digit in range(64):
        assert abs(((words >> np.uint64(digit)) & np.uint64(1)).mean() - 0.5) < 0.015


def test_the_used_part_of_the_buffer_is_wiped_and_the_rest_is_not():
    bits = SystemBits()
    for used, n in [(5, 5), (6, 1), (106, 100)]:
        words = bits.words(n)
        assert (words != 0).all()
        assert bits._used == 8 * used
        assert not any(bits._buffer[: 8 * used])
        assert any(bits._buffer[8 * used :])


def test_wiping_the_buffer_does_not_touch_the_words_handed_out():
    bits = SystemBits()
    held = [bits.words(3) for _ in range(2 * BUFFER_WORDS // 3)]
    assert all_different(*held)


def test_a_large_request_bypasses_the_buffer():
    bits = SystemBits()
    bits.words(BUFFER_WORDS + 1)
    assert len(bits._buffer) == 0


@given(requests=st.lists(st.integers(0, 40) | st.integers(BUFFER_WORDS - 3, BUFFER_WORDS + 3), max_size=12))
def test_every_word_handed_out_is_one_word_of_entropy_and_none_is_used_twice(requests):
    supply = count(1)

    def numbered(size):
        return np.array([next(supply) for _ in range(size // 8)], dtype=np.uint64).tobytes()

    bits = SystemBits()
    with patch("labeldp.randomness.bits.os.urandom", numbered):
        words = [word for n in requests for word in bits.words(n).tolist()]
    assert len(words) == sum(requests)
    assert len(set(words)) == len(words) and set(words) <= set(range(1, next(supply)))


def test_a_negative_count_is_refused_and_does_not_step_back_into_used_words():
    bits = SystemBits()
    first = bits.words(4)
    with pytest.raises(AssertionError, match="negative"):
        bits.words(-2)
    assert all_different(first, bits.words(4))


# ---------------------------------------------------------------- threads


def test_no_word_is_handed_to_two_threads():
    bits, drawn, start = SystemBits(), [[] for _ in range(8)], threading.Barrier(8)

    def draw(mine):
        start.wait()
        mine.extend(bits.words(1 + i % 7) for i in range(3000))

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
    finally:
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert sum(len(words) for mine in drawn for words in mine) == 8 * sum(1 + i % 7 for i in range(3000))
    assert all_different(*(words for mine in drawn for words in mine))


def test_a_thread_waits_while_another_draws():
    bits, got = SystemBits(), threading.Event()

    def draw():
        bits.words(1)
        got.set()

    with bits._lock:
        thread = threading.Thread(target=draw)
        thread.start()
        assert not got.wait(0.05)
    assert got.wait(10)
    thread.join()


# ---------------------------------------------------------------- forks


def fork_and_draw(draw, n):
    """Fork; return the words that `draw(n)` gives in the child, which dies at once, whatever happens in it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a deadlock ends here, not in the test runner
        try:
            os.write(writer, draw(n).tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        received = pipe.read()
    os.waitpid(child, 0)
    words = np.frombuffer(received, dtype=np.uint64)
    assert len(words) == n, "the child did not answer"
    return words


class TestAfterAFork:
    pytestmark = forking

    @pytest.mark.parametrize("bits", [SYSTEM, SystemBits()], ids=["the shared one", "one of our own"])
    def test_children_and_parent_draw_different_words_from_a_warm_buffer(self, bits):
        before = bits.words(16)
        if len(bits._buffer) - bits._used < 8 * 16:  # the shared one may be nearly used up by other tests: fill it anew
            before = bits.words(16)
        assert len(bits._buffer) - bits._used >= 8 * 16  # so that a copied buffer would serve both
        children = [fork_and_draw(bits.words, 16) for _ in range(4)]
        assert all_different(before, bits.words(16), *children)

    def test_a_grandchild_differs_from_its_parent_too(self):
        bits = SystemBits()
        bits.words(1)

        def draw(n):
            mine = bits.words(n // 2)
            return np.concatenate([mine, fork_and_draw(bits.words, n // 2)])

        assert all_different(fork_and_draw(draw, 16), bits.words(8))

    def test_the_parent_goes_on_with_its_own_buffer(self):
        bits = SystemBits()
        bits.words(1)
        upcoming = np.frombuffer(bytes(bits._buffer[8:64]), dtype=np.uint64)
        fork_and_draw(bits.words, 4)
        assert (bits.words(7) == upcoming).all()

    def test_the_childs_copy_of_the_buffer_is_dropped_before_it_draws(self):
        bits = SystemBits()
        bits.words(1)

        def what_is_buffered(n):
            return np.full(n, len(bits._buffer) + bits._used, dtype=np.uint64)

        assert fork_and_draw(what_is_buffered, 1).tolist() == [0]

    def test_a_child_born_while_another_thread_drew_does_not_wait_for_ever(self):
        bits = SystemBits()
        bits.words(1)
        with bits._lock:
            child = fork_and_draw(bits.words, 4)
        assert all_different(child, bits.words(4))

    def test_a_fork_that_ran_no_hook_is_noticed_by_the_process_id(self):
        bits = SystemBits()
        bits.words(1)
        upcoming = np.frombuffer(bytes(bits._buffer[8:64]), dtype=np.uint64)
        bits._pid -= 1  # as if this process were the child of the one that filled the buffer
        assert all_different(upcoming, bits.words(7))
        assert bits._pid == os.getpid()

    def test_processes_of_multiprocessing_draw_different_words(self):
        SYSTEM.words(1)
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        processes = [context.Process(target=lambda: answers.put(SYSTEM.words(16))) for _ in range(4)]
        for process in processes:
            process.start()
        children = [answers.get() for _ in processes]
        for process in processes:
            process.join()
        answers.close()
        assert all_different(SYSTEM.words(16), *children)


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("bits", [SYSTEM, SystemBits(), InsecureBits(seed=1)], ids=["shared", "system", "insecure"])
def test_bits_are_never_pickled(bits, protocol):
    with pytest.raises(LabelDPError, match="pickled"):
        pickle.dumps({"bits": bits}, protocol)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda bits: copy.deepcopy([bits])[0]])
def test_a_copy_of_system_bits_is_the_thing_itself(duplicate):
    bits = SystemBits()
    assert duplicate(bits) is bits


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda bits: copy.deepcopy([bits])])
def test_a_seeded_stream_is_not_copied(duplicate):
    with pytest.raises(LabelDPError, match="a copy would repeat it"):
        duplicate(InsecureBits(seed=1))


def test_system_bits_that_nobody_holds_are_freed():
    bits = SystemBits()
    gone = weakref.ref(bits)
    del bits
    gc.collect()
    assert gone() is None


# ---------------------------------------------------------------- what they say of themselves


def test_only_the_operating_system_is_called_private():
    assert SystemBits().private is True and repr(SystemBits()) == "SystemBits()"
    insecure = InsecureBits(seed=7)
    assert insecure.private is False
    assert "NOT PRIVATE" in repr(insecure)


def test_the_repr_shows_no_entropy():
    bits = SystemBits()
    word = int(bits.words(1)[0])
    assert str(word) not in repr(bits) and repr(bits) == "SystemBits()"


@given(seed=st.integers(0, 2**80), cuts=st.lists(st.integers(0, 20), max_size=6))
def test_a_seed_gives_the_same_stream_however_it_is_cut(seed, cuts):
    whole = InsecureBits(seed).words(sum(cuts)).tolist()
    bits = InsecureBits(seed)
    assert [word for n in cuts for word in bits.words(n).tolist()] == whole


def test_the_seeded_stream_is_the_same_on_every_machine_and_release():
    assert InsecureBits(seed=0).words(2).tolist() == [7106521602475165645, 16422101724900707500]


def test_different_seeds_give_different_words():
    assert all_different(*(InsecureBits(seed).words(100) for seed in range(50)))


@pytest.mark.parametrize("seed", [-1, True, 1.0, "1", None, b"1"])
def test_a_seed_must_be_a_whole_number_from_zero(seed):
    with pytest.raises(InvalidArgument, match=r"^seed must be "):
        InsecureBits(seed)


def test_a_seed_is_never_a_default():
    with pytest.raises(TypeError):
        InsecureBits()


# ---------------------------------------------------------------- known bits


class Subclass(SystemBits):
    def words(self, count):
        return np.zeros(count, dtype=np.uint64)


class LookAlike:
    private = True
    __class__ = SystemBits  # fools isinstance

    def words(self, count):
        return np.zeros(count, dtype=np.uint64)


def test_known_bits_pass_and_none_means_the_operating_system():
    system, insecure = SystemBits(), InsecureBits(seed=1)
    assert known_bits(None) is SYSTEM
    assert known_bits(system) is system and known_bits(insecure) is insecure
    assert type(SYSTEM) is SystemBits


impostors = [Subclass(), LookAlike(), type("Seeded", (InsecureBits,), {})(1), SystemBits, InsecureBits]
impostors += [np.random.default_rng(0), random.SystemRandom(), os.urandom, 0, 1, "system", False]


@pytest.mark.parametrize("impostor", impostors, ids=lambda impostor: type(impostor).__name__)
def test_subclasses_and_look_alikes_are_refused(impostor):
    with pytest.raises(
        InvalidArgument, match=r"^bits must be None \(the operating system\) or InsecureBits\(seed\), got "
    ):
        known_bits(impostor)


def test_the_look_alike_would_have_fooled_isinstance():
    assert isinstance(LookAlike(), SystemBits) and isinstance(Subclass(), SystemBits)


@pytest.mark.parametrize("bits", [SystemBits(), InsecureBits(seed=1)], ids=repr)
def test_no_instance_can_claim_another_privacy_or_other_words(bits):
    for name, value in (("private", not bits.private), ("words", lambda _: None)):
        with pytest.raises(AttributeError):
            setattr(bits, name, value)
