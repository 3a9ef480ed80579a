"""Two processes on CPUs: the same model as one, one voice to the vault, and an error that ends both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from torch import nn

import labeldp as ldp
from labeldp.torch import TorchLearner

LONGEST_SECONDS = 240

SHARED = '''
import numpy as np
import torch
from torch import nn

import labeldp as ldp
from labeldp.learning import MultiStage, Pupil
from labeldp.torch import TorchLearner

N, WIDTH, K = 240, 4, 3
X = np.random.default_rng(0).normal(size=(N, WIDTH)).astype(np.float32)
LABELS = (X[:, 0] > 0.5).astype(int) + (X[:, 0] > -0.5)


def plain(fabric=None):
    """No batch statistics, so that shares of a batch are as good as the batch."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, K))
    learner = TorchLearner(
        module, loss="likelihood", epochs=4, batch_size=32, mixup=0.4, averaging=0.9, learning_rate=0.2, fabric=fabric
    )
    return MultiStage(learner, stages=2, mechanism=ldp.GroupedResponse)
'''

SCRIPT = (
    SHARED
    + '''
import json
import sys
from pathlib import Path

from lightning_fabric import Fabric

torch.set_num_threads(1)
out = Path(sys.argv[1])
fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
rank = fabric.global_rank


class Forbidden:
    """No vault at all: whoever asks it anything is wrong."""

    def __getattribute__(self, name):
        raise AssertionError(f"the vault of process {rank} was asked for {name}")

    def __len__(self):
        raise AssertionError(f"the vault of process {rank} was asked for its length")


def vault(budget="4"):
    return ldp.LabelVault(LABELS, classes=K, budget=budget) if rank == 0 else Forbidden()


def with_statistics():
    """Weights that differ between processes until they are shared, batch statistics, an average, and a filter."""
    torch.manual_seed(rank)
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, K))
    learner = TorchLearner(module, epochs=3, batch_size=16, averaging=0.8, fabric=fabric)
    return MultiStage(learner, stages=3, filter="round", hold_out=0.1)


# 1: as one process would
multi = plain(fabric).fit(X, vault(), "2", folder=out / "plain")
np.save(out / f"plain-{rank}.npy", multi.predict_proba(X))

# 2: both end with one and the same model, and both go on from the same checkpoints
counts = []
holder = vault()
for attempt in (1, 2):
    records = []
    multi = with_statistics().fit(X, holder, "2", folder=out / "statistics", watch=records.append)
    counts.append([record["filtered"] for record in records if record["kind"] == "stage"])
    np.save(out / f"statistics-{attempt}-{rank}.npy", multi.predict_proba(X))
(out / f"facts-{rank}.json").write_text(json.dumps(counts))

# 3: a student that helps to ask is one and the same student too, of one and the same questions
pupil = Pupil(with_statistics().learner, X, loss="likelihood", first=1)
multi = MultiStage(with_statistics().learner, stages=2, pupil=pupil).fit(X, vault(), "2", folder=out / "pupil")
np.save(out / f"pupil-{rank}.npy", multi.student_.predict_proba(X))
np.save(out / f"asked-{rank}.npy", np.concatenate([each.reports for each in multi.releases_]))

# 4: batches that cannot be shared are refused before anything is asked
holder = vault()
try:
    MultiStage(TorchLearner(nn.Linear(WIDTH, K), batch_size=3, fabric=fabric)).fit(X, holder, "1")
except ldp.InvalidArgument as error:
    spent = holder.spent().epsilon if rank == 0 else "0"
    (out / f"refused-{rank}").write_text(f"{spent} {error}")

# 5: an error of the vault is everybody's, and ends everybody
try:
    plain(fabric).fit(X, vault(budget="0.5"), "2")
except BaseException as error:
    (out / f"ended-{rank}").write_text(type(error).__name__)
    raise
'''
)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Run the script once, and return the folder that it wrote to."""
    out = tmp_path_factory.mktemp("both")
    (out / "script.py").write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_PORT", "PYTHONWARNINGS"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, str(out / "script.py"), str(out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        said = process.communicate()[0]
        pytest.fail(f"the processes hang:\n{said[-4000:]}")
    (out / "said").write_text(said)
    (out / "code").write_text(str(process.returncode))
    return out


def said(both):
    return (both / "said").read_text()[-4000:]


def test_a_vault_that_refuses_ends_both(both):
    assert (both / "code").read_text() != "0"
    for rank in (0, 1):
        assert (both / f"ended-{rank}").read_text() == "BudgetExhausted", said(both)


def test_two_processes_learn_what_one_does(both):
    """Mixup, a moving average, groups, two stages; only the order of additions differs."""
    one = {}
    exec(SHARED, one)
    releases = [ldp.Release.load(both / "plain" / f"release-{t}") for t in (1, 2)]
    expected = one["plain"]().refit(one["X"], releases).predict_proba(one["X"])
    for rank in (0, 1):
        assert np.load(both / f"plain-{rank}.npy") == pytest.approx(expected, abs=1e-4), said(both)
    assert expected.std(axis=0).min() > 0.05  # something was learned


def test_both_processes_end_with_the_same_model(both):
    """Batch statistics, averages and what the filter keeps are the first process's, bit for bit, and after a resume too."""
    predictions = [np.load(both / f"statistics-{attempt}-{rank}.npy") for attempt in (1, 2) for rank in (0, 1)]
    assert all((each == predictions[0]).all() for each in predictions), said(both)
    facts = [json.loads((both / f"facts-{rank}.json").read_text()) for rank in (0, 1)]
    assert facts[0] == facts[1] and facts[0][0] == facts[0][1] and facts[0][0][1]["kept"] > 0


def test_both_processes_ask_by_the_same_student_and_end_with_it(both):
    for what in ("asked", "pupil"):
        one, two = (np.load(both / f"{what}-{rank}.npy") for rank in (0, 1))
        assert one.size and (one == two).all(), said(both)


def test_batches_that_cannot_be_shared_cost_nothing(both):
    for rank in (0, 1):
        spent, _, error = (both / f"refused-{rank}").read_text().partition(" ")
        assert spent == "0" and "too small for 2 processes" in error


def test_the_number_of_processes_is_one_of_the_settings():
    """Dropout differs between processes, so another number of them cannot go on bit for bit."""
    assert TorchLearner(nn.Linear(2, 2))._settings()["processes"] == 1
