"""One multi-stage run that can be killed anywhere, for processes of their own.

The processes are forked off a server that has imported torch once. Each opens the vault on the same ledger and goes on in
the same folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np

import labeldp as ldp

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch", "numpy.ma", "labeldp.learning", "labeldp.torch.learner", "pytest"])

N, K, WIDTH, STAGES, EPOCHS = 160, 3, 4, 3, 3
EPSILON = "2"
LONGEST_SECONDS = 60

KINDS = {
    "noisy labels": {"loss": "noisy-label", "filter": "floor", "mechanism": ldp.RRWithPrior},
    "groups": {"loss": "likelihood", "filter": None, "mechanism": ldp.GroupedResponse},
}


def data():
    X = np.random.default_rng(0).normal(size=(N, WIDTH)).astype(np.float32)
    return X, (X[:, 0] > 0.5).astype(int) + (X[:, 0] > -0.5)


def network():
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, K))


def multistage(kind, **settings):
    import torch

    from labeldp.learning import MultiStage
    from labeldp.torch import TorchLearner

    torch.set_num_threads(1)
    how = KINDS[kind]
    training = {"epochs": EPOCHS, "batch_size": 16, "learning_rate": 0.1, "mixup": 0.3, "averaging": 0.8}
    return MultiStage(
        TorchLearner(network(), loss=how["loss"], **training | settings.pop("training", {})),
        **{"stages": STAGES, "mechanism": how["mechanism"], "filter": how["filter"], "hold_out": 0.1} | settings,
    )


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step):
    """Arrange for this process's death. Return who must watch the training for it."""
    from labeldp.learning.stored import StageFiles
    from labeldp.torch import checkpoints

    if step is None:
        return None
    what, *where = step
    if what == "epoch":
        return lambda record: die() if [record.get("stage"), record.get("epoch")] == where else None
    if what == "answered":  # the vault has answered, and nothing is stored yet
        original = ldp.Release.save

        def save(self, path):
            if Path(path).name == where[0]:
                die()
            original(self, path)

        ldp.Release.save = save
    elif what == "half stored":  # one of the two files of the release is there
        original = os.replace

        def replace(source, target):
            original(source, target)
            if Path(target).name == f"{where[0]}.npz" and "spool" not in str(target):
                die()

        os.replace = replace
    elif what == "prior fixed":  # the priors are on disk, and the vault is not asked yet
        original = StageFiles.priors

        def priors(self, stage, compute, **about):
            found = original(self, stage, compute, **about)
            if stage == where[0]:
                die()
            return found

        StageFiles.priors = priors
    elif what == "in a checkpoint":  # written, and not yet in its place
        count = iter(range(10**6))
        original = checkpoints.torch.save

        def torch_save(state, file):
            original(state, file)
            if next(count) == where[0]:
                die()

        checkpoints.torch.save = torch_save
    else:
        raise AssertionError(what)
    return None


def run(kind, folder, ledger, step=None, settings=None, name="run"):
    """Go on with the run in the folder, or begin it, and die at a step; write the last model at the end."""
    X, labels = data()
    watch = arm(step)
    vault = ldp.LabelVault(labels, classes=K, ledger=ledger)
    multi = multistage(kind, **settings or {})
    multi.fit(X, vault, EPSILON, name=name, folder=folder, watch=watch or (lambda _: None))
    multi.model_.save(folder / "last-model")


def run_from_releases(kind, folder, out):
    """Train without interruption on the releases of a run, and write each stage's model."""
    multi = multistage(kind)
    multi.refit(data()[0], [ldp.Release.load(folder / f"release-{t}") for t in range(1, STAGES + 1)])
    for number, model in enumerate(multi.models_, start=1):
        model.save(out / f"model-{number}")


def start(act, *arguments):
    process = SERVER.Process(target=act, args=arguments)
    process.start()
    return process


def ended(process, seconds=LONGEST_SECONDS):
    """Wait for a process's end and return its exit code, negative for a signal."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("a process did not end")
    code = process.exitcode
    process.close()
    return code


def do(act, *arguments):
    return ended(start(act, *arguments))
