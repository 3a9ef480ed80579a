"""A marker label goes through every entry point and is searched for in everything that comes out."""

import copy
import io
import logging
import pickle
import sys
import traceback

import numpy as np
import pandas as pd
import pytest

import labeldp as ldp

MARKER = "marker-6f1c"
NUMBER = 86_753


class Boom:
    """Fails, quoting what it holds, as pandas and numpy do."""

    def __init__(self, label):
        self.label = label

    def __array__(self, *_, **__):
        raise ValueError(f"could not convert string to float: {self.label!r}")

    def __iter__(self):
        raise ValueError(f"could not convert string to float: {self.label!r}")


WRONG_LABELS = {
    "stranger": lambda m: [m, "no"],
    "stranger array": lambda m: np.array([m, "no"]),
    "stranger object": lambda m: np.array([m, "no"], dtype=object),
    "mixed": lambda m: [m, 1.5, None],
    "nested": lambda m: [[m], ["no"]],
    "pandas": lambda m: pd.Series([m, "no"]),
    "category": lambda m: pd.Series([m, "no"], dtype="category"),
    "frame": lambda m: pd.DataFrame({"x": [m, "no"]}),
    "raising": lambda m: Boom(m),
    "missing": lambda m: [m, None],
    "bytes": lambda m: np.array([m.encode()]),
}


def everything_said(error):
    """What any handler, logger or debugger could show of an error, locals of our own frames included."""
    shown = "".join(traceback.format_exception(error))
    ours = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in ours.stack:
        if "labeldp" in frame.filename and "tests" not in frame.filename:
            shown += str(frame.locals)
    chain = [error.__cause__, error.__context__, *error.args, getattr(error, "__notes__", None)]
    return shown + repr(error) + repr(chain)


@pytest.mark.parametrize("kind", WRONG_LABELS)
@pytest.mark.parametrize("classes", [["no", "yes"], 3])
@pytest.mark.parametrize("door", ["vault", "unprotected"])
def test_a_refused_label_is_not_in_the_error(kind, classes, door, capsys, caplog):
    caplog.set_level(logging.DEBUG)
    enter = {"vault": lambda labels: ldp.LabelVault(labels, classes=classes, budget="1")}.get(
        door, lambda labels: ldp.LabelVault.unprotected(labels, classes=classes)
    )
    with pytest.raises(ldp.InvalidLabels) as caught:
        enter(WRONG_LABELS[kind](MARKER))
    out, err = capsys.readouterr()
    assert MARKER not in everything_said(caught.value) + out + err + caplog.text


def test_a_refused_number_is_not_in_the_error():
    for labels in (
        [NUMBER, 0],
        np.array([NUMBER, 0]),
        pd.Series([NUMBER, 0], dtype="Int64"),
        np.array([float(NUMBER)]),
    ):
        with pytest.raises(ldp.InvalidLabels) as caught:
            ldp.LabelVault(labels, classes=10, budget="1")
        assert str(NUMBER) not in everything_said(caught.value)


def test_what_a_vault_shows_stores_and_copies_holds_no_label(tmp_path, capsys, caplog):
    """With noise at epsilon 1e-12 the reports are independent of the labels, so a marker outside can only be a leak."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "marker.ledger"
    ldp.create_ledger(path, budget="1")
    secret = np.full(4_000, 7)
    vault = ldp.LabelVault(secret, classes=200, ledger=path, trust="curator")
    shown = io.StringIO()
    for thing in (vault, vars(vault), vault._labels, vault.certificate(), vault.spent(), [vault], {"v": vault}):
        print(repr(thing), thing, file=shown)
    for attempt in (pickle.dumps, copy.deepcopy, vars, dir, repr):
        try:
            shown.write(str(attempt(vault)))
        except ldp.LabelDPError as error:
            shown.write(everything_said(error))
    release = vault.release(ldp.RandomizedResponse("1e-12"))
    release.save(tmp_path / "r")
    counts = np.bincount(release.label_numbers, minlength=200)
    assert counts[7] < 20 + 9 * np.sqrt(20)  # 9 standard deviations above the blind share
    out, err = capsys.readouterr()
    text = shown.getvalue() + out + err + caplog.text
    assert "[7, 7" not in text and "7, 7, 7" not in text and "7 7 7" not in text
    true_bytes = [secret[:8].astype(kind).tobytes() for kind in ("u1", "<u2", "<i4", "<i8", "<f8")]
    for file in (f for f in tmp_path.rglob("*") if f.is_file()):
        content = file.read_bytes()
        assert not any(run * 4 in content for run in true_bytes), file


def test_text_labels_never_reach_a_file_unless_reported(tmp_path):
    """The marker is a declared class, so the class list may name it, once; the column of labels may not."""
    path = tmp_path / "text.ledger"
    ldp.create_ledger(path, budget="1")
    vault = ldp.LabelVault([MARKER] * 300, classes=["no", MARKER], ledger=path)
    vault.release(ldp.RandomizedResponse("1"))
    found = sum(file.read_bytes().count(MARKER.encode()) for file in tmp_path.rglob("*") if file.is_file())
    assert found == 1  # in the spooled release's class list


def test_a_failure_inside_a_draw_shows_no_label(monkeypatch, capsys):
    from labeldp.mechanisms.channel import Response

    def quoting_draw(self, true_labels, bits):
        raise ValueError(f"bad value {true_labels.tolist()}")

    vault = ldp.LabelVault([7] * 50, classes=10, budget="1")
    monkeypatch.setattr(Response, "draw", quoting_draw)
    with pytest.raises(ldp.LabelDPError) as caught:
        vault.release(ldp.RandomizedResponse("1"))
    said = everything_said(caught.value)
    assert "7, 7" not in said and "7 7" not in said


def test_an_uncaught_error_prints_no_label(capsys):
    try:
        ldp.LabelVault([MARKER, "no"], classes=["no", "yes"], budget="1")
    except ldp.InvalidLabels:
        kind, value, _ = sys.exc_info()
        sys.excepthook(kind, value, None)
    assert MARKER not in capsys.readouterr().err
