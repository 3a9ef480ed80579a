"""No file of a run, no error and no object that training hands on shows a training label."""

from __future__ import annotations

import functools
import json
import traceback
import types

import numpy as np
import pytest

from labeldp import datasets, runs
from labeldp.datasets.dataset import Dataset
from labeldp.runs import training
from labeldp.torch import TorchLearner
from labeldp.vault import LabelVault
from labeldp.vault.labels import NumberedLabels, SealedLabels, Unsealed

N_ROWS = 200


def labelled(labels):
    """Return the first digits with other labels."""
    digits = datasets.load("digits")
    return Dataset(
        "digits",
        X=digits.X[: len(labels)],
        labels=NumberedLabels(np.asarray(labels, dtype=np.int16)),
        classes=digits.classes,
        X_test=digits.X_test,
        test_labels=digits.test_labels,
        inputs=digits.inputs,
    )


@pytest.fixture
def train_on(monkeypatch, recipe):
    """Train on the digits with any labels."""

    def train(labels, out, **options):
        with monkeypatch.context() as patch:
            data = labelled(labels)
            patch.setattr(datasets, "load", lambda *_, **__: data)
            return runs.train(recipe, out, **options)

    return train


def written(folder, *forgotten):
    values = json.loads(folder.facts_file.read_text())
    return {key: value for key, value in values.items() if key not in forgotten}


def test_what_is_written_of_a_run_is_the_same_whatever_the_labels(train_on, tmp_path):
    rng = np.random.default_rng(3)
    one, other = (train_on(rng.integers(0, 10, N_ROWS), tmp_path / name) for name in "ab")
    assert one.recipe_file.read_bytes() == other.recipe_file.read_bytes()
    own = ("id", "name", "started", "ledger")
    assert written(one, *own) == written(other, *own)
    shown = [run.certificate() for run in (one, other)]
    for certificate in shown:
        for key in ("ledger", "ledger file"):
            certificate.pop(key)
        for query in certificate["queries"]:
            for key in ("name", "time", "source", "priors"):  # priors: a digest of what stage 1 released
                query.pop(key)
    assert shown[0] == shown[1]
    assert one.records()[0] == other.records()[0]  # what is told of the first stage before training


def test_no_file_holds_the_labels(train_on, tmp_path):
    labels = np.random.default_rng(4).integers(0, 10, N_ROWS)
    run = train_on(labels, tmp_path)
    asked = [np.arange(N_ROWS), *(release.rows for release in (*run.releases(), run.hold_out()))]
    for file in (file for file in tmp_path.rglob("*") if file.is_file()):
        content = file.read_bytes()
        for rows in asked:
            column = labels[rows[-40:]] if len(rows) >= 40 else labels[asked[0][:40]]
            forms = [column.astype(kind).tobytes() for kind in ("u1", "i2", "i4", "i8", "f4", "f8")]
            forms += [separator.join(map(str, column)).encode() for separator in ("", ",", ", ", " ", "\n")]
            assert not any(form in content for form in forms), file


def reachable(start):
    """Yield everything that an object leads to by attributes, items and closures."""
    seen, waiting = set(), [start]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (str, bytes, int, float, type, types.ModuleType)):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting += item
        elif isinstance(item, types.FunctionType):
            waiting += [cell.cell_contents for cell in item.__closure__ or ()] + list(item.__defaults__ or ())
        elif isinstance(item, types.MethodType):
            waiting.append(item.__self__)
        elif isinstance(item, functools.partial):
            waiting += [item.func, item.args, item.keywords]
        waiting.append(getattr(item, "__dict__", None))
        slots = [slot for kind in type(item).__mro__ for slot in getattr(kind, "__slots__", ())]
        waiting += [getattr(item, slot, None) for slot in slots if isinstance(slot, str)]


HOLDERS = (LabelVault, NumberedLabels, SealedLabels, Unsealed)


def test_training_hands_on_nothing_that_leads_to_labels(train_on, tmp_path, monkeypatch):
    """Not the stages' trainer, not what it is told to test with, not the folder; the journal alone knows the vault."""
    handed_on = []
    stages_of, tested_on = training.stages_of, training.tested_on
    monkeypatch.setattr(training, "stages_of", lambda *given: handed_on.append(stages_of(*given)) or handed_on[-1])
    monkeypatch.setattr(training, "tested_on", lambda data: handed_on.append(tested_on(data)) or handed_on[-1])
    fit = TorchLearner.fit

    def watched(self, X, releases, *, start=None, checkpoint=None, watch=None):
        assert not [each for each in reachable([X, releases, start, checkpoint]) if isinstance(each, HOLDERS)]
        return fit(self, X, releases, start=start, checkpoint=checkpoint, watch=watch)

    monkeypatch.setattr(TorchLearner, "fit", watched)
    handed_on.append(train_on(np.zeros(N_ROWS, int), tmp_path))
    assert len(handed_on) == 3
    assert not [each for each in reachable(handed_on) if isinstance(each, HOLDERS)]
    assert [each for each in reachable(labelled([0])) if isinstance(each, HOLDERS)]  # so that it can be found at all


LABEL = 7


def everything_said(error):
    """What a handler or a debugger could show of an error, locals of our own frames included."""
    shown = "".join(traceback.format_exception(error)) + repr([error, error.__cause__, error.__context__, error.args])
    for frame in traceback.TracebackException.from_exception(error, capture_locals=True).stack:
        if "labeldp" in frame.filename and "tests" not in frame.filename:
            shown += str(frame.locals)
    return shown


@pytest.mark.parametrize("where", ["_epoch", "check", "save", "predict_proba"])
def test_an_error_inside_training_shows_no_label(train_on, tmp_path, monkeypatch, where):
    def fail(*_, **__):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(TorchLearner, where, fail)
    with pytest.raises(ZeroDivisionError) as failed:
        train_on(np.full(N_ROWS, LABEL), tmp_path)
    said = everything_said(failed.value)
    assert "recipe" in said  # locals were looked at
    assert not any(separator.join([str(LABEL)] * 3) in said for separator in (", ", " ", ",", "\n"))
    assert "\\x07\\x07\\x07" not in said and "\\x07\\x00\\x07" not in said


def test_an_error_inside_the_vault_shows_no_label_and_the_run_goes_on(train_on, tmp_path, monkeypatch, charges):
    from labeldp.mechanisms.channel import Response

    def fail(self, true_labels, bits):
        raise ValueError(f"labels {true_labels}")

    labels = np.full(N_ROWS, LABEL)
    with monkeypatch.context() as patch:
        patch.setattr(Response, "draw", fail)
        with pytest.raises(Exception, match="failed inside the vault") as failed:
            train_on(labels, tmp_path)
    assert f"{LABEL} {LABEL}" not in everything_said(failed.value)
    run = train_on(labels, tmp_path)
    assert len(charges(run.ledger_file)) == 3
