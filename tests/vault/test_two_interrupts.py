"""A second Ctrl-C while the first is handled carries it as its context: no frame of either may hold a label or noise."""

from __future__ import annotations

import sys
import traceback

import numpy as np
import pytest

import labeldp as ldp
from labeldp.errors import LabelDPError, VaultClosed
from labeldp.mechanisms import NormalResponse
from labeldp.mechanisms.channel import Response
from labeldp.mechanisms.histogram import Histogram
from labeldp.vault import frames

LABELS = np.arange(40) % 3
RESPONSE = NormalResponse(epsilon="1", delta="1e-6", dimension=1, squared_sensitivity=100)
TABLE = np.tile([[0], [5], [10]], (40, 1, 1))
HANDLERS = (frames.__file__, traceback.__file__)
SECRETS = ("true_labels", "noise", "labels", "answers", "taken")


def vault_of():
    return ldp.LabelVault(LABELS, classes=3, budget="4", delta="1e-3", trust="curator")


ASKED = {
    "pass": (NormalResponse, lambda: vault_of().normal_pass(RESPONSE).answer(None, TABLE)),
    "release": (Response, lambda: vault_of().release(ldp.RandomizedResponse("1"))),
    "histogram": (Histogram, lambda: vault_of().histogram(np.zeros(40, dtype=int), "1")),
}


class SecondInterrupt:
    """Interrupts at the n-th line that the handlers come to after the first failure."""

    def __init__(self, number):
        self.left, self.failed, self.done = number, False, False

    def call(self, frame, *_):
        return self.line if frame.f_code.co_filename in HANDLERS else None

    def line(self, _frame, event, _):
        if event == "line" and self.failed and not self.done:
            self.left -= 1
            if self.left < 0:
                self.done = True
                raise KeyboardInterrupt
        return self.line


def secrets_in(error):
    """The names of the secrets that the frames of an error hold, and of all errors that it carries."""
    found, waiting = set(), [error]
    while waiting:
        link = waiting.pop()
        waiting += [other for other in (link.__context__, link.__cause__) if other is not None]
        for frame, _ in traceback.walk_tb(link.__traceback__):
            found |= {name for name in SECRETS if name in frame.f_locals}
    return found


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("first", [KeyboardInterrupt, MemoryError])
def test_wherever_a_second_interrupt_comes_no_frame_holds_a_secret(asked, first, monkeypatch):
    where, ask = ASKED[asked]
    before, n_interrupts = sys.gettrace(), 0
    while True:
        second = SecondInterrupt(n_interrupts)

        def failing(*labels, second=second, **_):
            second.failed = True
            raise first(f"marker-6f1c {labels}")

        monkeypatch.setattr(where, {Response: "draw"}.get(where, "answer"), failing)
        sys.settrace(second.call)
        try:
            with pytest.raises((KeyboardInterrupt, LabelDPError)) as caught:
                ask()
        finally:
            sys.settrace(before)
        assert not secrets_in(caught.value) and "marker-6f1c" not in str(caught.value)
        if not second.done:
            break
        n_interrupts += 1
    assert n_interrupts > 10, "lines at which the second came"


def test_a_vault_closed_in_a_pass_is_said_anew_without_the_frames_that_held_noise():
    vault = vault_of()
    steps = vault.normal_pass(RESPONSE)
    vault.close()
    with pytest.raises(VaultClosed, match="closed") as caught:
        steps.answer(None, TABLE)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert "_drawn" not in names and caught.value.__context__ is None and not secrets_in(caught.value)


def test_noise_is_wiped_where_its_answer_fails(monkeypatch):
    held = []

    def failing(_labels, _table, noise):
        held.append(noise)
        raise ValueError

    monkeypatch.setattr(NormalResponse, "answer", staticmethod(failing))
    with pytest.raises(LabelDPError):
        vault_of().normal_pass(RESPONSE).answer(None, TABLE)
    assert len(held) == 1 and not held[0].any()
