"""Ctrl-C, or too little memory, at any line while labels are read, rounded or sealed: no frame of ours still holds one."""

from __future__ import annotations

import re
import sys
import traceback
from itertools import count

import numpy as np
import pytest

import labeldp as ldp
from labeldp import datasets
from labeldp.bulk import declared, labels, tables
from labeldp.datasets import dataset, digits, table
from labeldp.vault import labels as sealing
from labeldp.vault import targets
from labeldp.vault.frames import guarded

LABELS = ["no", "yes", "no", "yes", "yes", "no"]
SECRETS = ("no,yes,no,yes", "0,1,0,1", "86753.25", "0,1,2,3,4,5,6,7,8,9,0,1,2", "3,3,8,8,7,2,2,4")
"""Labels, their class numbers, a target, and digits as they come and as they are split, as any list, array or column of them is
shown, without quotes and spaces."""
WRAPPING = ("__init__", "on_grid")
"""Their first line takes the labels out of the arguments that the caller gave; before that, they are the caller's."""


def sealed(_folder):
    return ldp.LabelVault(LABELS, classes=["no", "yes"], budget="1")


def rounded(_folder):
    return targets.on_grid([1.5, 86_753.25, 2.5], low=0, high=100_000, step=1000)


def read(folder):
    (folder / "t.csv").write_text("x,y\n" + "".join(f"{number},{label}\n" for number, label in enumerate(LABELS)))
    return table.load(folder / "t.csv", label="y", classes=["no", "yes"])


def loaded(_folder):
    return datasets.load("digits")


READERS = {
    sealed: (sealing,),
    loaded: (digits, dataset),
    rounded: (targets,),
    read: (labels, declared, tables),
}


class Failure:
    """Fails at the n-th line of some modules."""

    def __init__(self, kind, modules, number):
        self.kind, self.files, self.left, self.done = kind, [each.__file__ for each in modules], number, False

    def call(self, frame, *_):
        code = frame.f_code
        return self.line if code.co_filename in self.files and code.co_name not in WRAPPING else None

    def line(self, _frame, event, _):
        if event == "line" and not self.done:
            self.left -= 1
            if self.left < 0:
                self.done = True
                raise self.kind
        return self.line


def held(error):
    """Everything that frames of the library hold in the tracebacks of an error and of those that it carries."""
    found, waiting = "", [error]
    while waiting:
        link = waiting.pop()
        waiting += [other for other in (link.__context__, link.__cause__) if other is not None]
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if "labeldp" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
                found += " ".join(_shown(value) for value in frame.f_locals.values())
    return re.sub(r"[\s'\"]", "", found)


def _shown(value):
    return str(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("reader", READERS)
def test_no_frame_of_a_failure_on_the_way_in_holds_a_label(tmp_path, reader, kind):
    if reader is read:
        pytest.importorskip("pyarrow")
    for number in count():
        failure, seen = Failure(kind, READERS[reader], number), ""
        sys.settrace(failure.call)
        try:
            reader(tmp_path)
        except (kind, ldp.LabelDPError) as error:
            sys.settrace(None)
            seen = held(error)
        finally:
            sys.settrace(None)
        if not failure.done:
            break
        assert not any(secret in seen for secret in SECRETS)
    assert not seen and number > 10  # the last one went through, and every line before it failed once


def test_a_process_that_is_told_to_end_ends_with_its_code():
    with pytest.raises(SystemExit) as ended:
        guarded(lambda: sys.exit(143), "failed ({})")
    assert ended.value.code == 143


def test_a_failure_of_the_callers_own_keeps_its_frames():
    def fail():
        mine = "mine"
        raise ValueError(mine)

    def work():
        raise RuntimeError

    try:
        fail()
    except ValueError as error:
        with pytest.raises(ldp.LabelDPError, match=r"failed \(RuntimeError\)"):
            guarded(work, "failed ({})")
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        assert frame.f_locals["mine"] == "mine"


def test_a_file_that_is_gone_is_named():
    with pytest.raises(FileNotFoundError, match="No such file") as error:
        guarded(lambda: open("no/such/file"), "failed ({})", passing=(OSError,))  # noqa: SIM115
    assert error.value.filename == "no/such/file"
