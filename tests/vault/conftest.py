"""What the vault's tests share: children that may die, a folder for their ledgers, and the world outside the vault."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from labeldp.randomness import SYSTEM

LONGEST_LIFE_SECONDS = 60
"""A child that hangs ends by itself, as a failure."""


@dataclass
class Child:
    """A forked process that does one thing; what it returns, as JSON, comes back through a pipe."""

    pid: int
    pipe: int
    ended: bool = False

    def join(self):
        """Wait for its end and return what it returned."""
        said, status = self.end()
        assert status == 0, said
        return json.loads(said)

    def end(self):
        """Wait for its end, however it comes; return what it wrote and its exit code, negative for a signal."""
        with open(self.pipe, encoding="utf-8") as pipe:
            said = pipe.read()
        status = os.waitpid(self.pid, 0)[1]
        self.ended = True
        return said, os.waitstatus_to_exitcode(status)


def start(act):
    """Fork a child off this process, which has drawn from the system's entropy, and let it act."""
    SYSTEM.words(1)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's idle threads do not mind
        pid = os.fork()
    if pid == 0:
        said, status = "", 1
        try:
            os.close(read)
            signal.alarm(LONGEST_LIFE_SECONDS)
            said, status = json.dumps(act()), 0
        except BaseException:
            said = traceback.format_exc()
        finally:  # never back into pytest
            with open(write, "w", encoding="utf-8") as pipe:
                pipe.write(said)
            os._exit(status)
    os.close(write)
    return Child(pid, read)


@pytest.fixture
def fork():
    """Start children; whoever is left when the test ends is killed."""
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    started = []

    def fork_and_keep(act):
        started.append(start(act))
        return started[-1]

    yield fork_and_keep
    for child in started:
        if not child.ended:
            os.kill(child.pid, signal.SIGKILL)
            child.end()


@pytest.fixture
def memory_folder():
    """A folder in memory where there is one. A killed process loses nothing that it wrote, synced or not."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


class Outside:
    """Everything that was ever handed out, noted the moment it was, by whichever process got it."""

    def __init__(self, path):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def see(self, release):
        ledger = release.receipt.ledger
        line = json.dumps([ledger["entry"], ledger["hash"], answer_of(release)]) + "\n"
        assert os.write(self._file, line.encode()) == len(line)

    def seen(self):
        """Return the answers seen, by entry number and hash; one that was seen twice is there once."""
        answers = {}
        for line in os.pread(self._file, 1 << 24, 0).decode().splitlines():
            number, digest, answer = json.loads(line)
            answers.setdefault((number, digest), set()).add(str(answer))
        return answers

    def close(self):
        os.close(self._file)


def answer_of(release):
    """Return what a release says, as JSON."""
    return (release.reports if hasattr(release, "reports") else release.counts).tolist()


@pytest.fixture
def outside(tmp_path):
    world = Outside(tmp_path / "outside")
    yield world
    world.close()
