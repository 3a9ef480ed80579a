"""Killed at any point, the same command completes: one charge, the same noise, no half file."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import labeldp as ldp
from labeldp.cli import main

ROWS = 300

KILLED_AT = {
    "before the charge": ("labeldp.vault.vault.Ledger", "charge", "before"),
    "after the charge": ("labeldp.vault.vault.Ledger", "charge", "after"),
    "after the spool": ("labeldp.vault.spool.Spool", "write", "after"),
    "after it is handed over": ("labeldp.vault.vault.Ledger", "mark_handed_over", "after"),
    "in the middle of writing": ("labeldp.bulk.sinks.ParquetSink", "_write_group", "after"),
    "before the rename": ("labeldp.bulk.draft", "refuse_existing", "before"),
    "after the rename": ("labeldp.bulk.draft", "sync_folder", "before"),
}

CHILD = """
import importlib, os, signal, sys
place, name, when, number = sys.argv[1:5]
sys.argv[1:] = sys.argv[5:]
from labeldp.bulk import sinks, tables
from labeldp.cli import main
tables.ROWS_PER_BATCH, sinks.ROWS_PER_GROUP = 64, 64
try:
    owner = importlib.import_module(place)
except ImportError:
    module, _, attribute = place.rpartition(".")
    owner = getattr(importlib.import_module(module), attribute)
wrapped = getattr(owner, name)

def deadly(*arguments, **more):
    if when == "before":
        os.kill(os.getpid(), int(number))
    answer = wrapped(*arguments, **more)
    os.kill(os.getpid(), int(number))
    return answer

setattr(owner, name, deadly)
main()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ldp.create_ledger("ads.ledger", budget="1")
    (tmp_path / "in.csv").write_text(
        "n,clicked\n" + "".join(f"{i},{'zebra' if i % 3 else 'no'}\n" for i in range(ROWS))
    )
    return tmp_path


def arguments(out="out.parquet"):
    words = "privatize --data in.csv --label clicked --classes no,zebra --epsilon 1 --ledger ads.ledger --out"
    return [*words.split(), out]


def struck(folder, point, number):
    """Run the command in a process that signals itself at a point."""
    command = [sys.executable, "-c", CHILD, *point, str(int(number)), *arguments()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def run_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["labeldp", *arguments()])
    main()


def charges():
    return [entry for entry in ldp.Ledger("ads.ledger").entries() if entry.body["kind"] == "charge"]


def spooled():
    return [ldp.Release.load(file.with_suffix("")).label_numbers for file in Path("ads.ledger.spool").glob("*.json")]


@pytest.mark.parametrize("moment", KILLED_AT)
def test_a_killed_run_is_completed_by_the_same_command(folder, monkeypatch, capsys, moment):
    killed = struck(folder, KILLED_AT[moment], signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    renamed = moment == "after the rename"
    assert (folder / "out.parquet").exists() == renamed
    assert len(charges()) == (0 if moment == "before the charge" else 1)
    drawn = spooled()
    assert len(drawn) == (0 if moment.endswith("the charge") else 1)
    assert len(list(folder.glob(".out.parquet.*.part"))) == (0 if renamed else 1)

    run_again(monkeypatch)
    told = capsys.readouterr().err
    assert ("is done already" in told) == renamed and "300 labels released at epsilon 1 (local, per label)." in told
    assert len(charges()) == 1 and not list(folder.glob(".*"))
    table = pq.read_table(folder / "out.parquet")
    assert table["n"].to_pylist() == [str(i) for i in range(ROWS)]
    found = table["noisy_clicked"].to_pylist()
    (final,) = spooled()
    assert found == np.array(["no", "zebra"])[final].tolist()
    assert all(np.array_equal(final, earlier) for earlier in drawn)
    ldp.Ledger("ads.ledger").verify()


def test_ctrl_c_cleans_up_and_says_how_to_go_on(folder, monkeypatch, capsys):
    stopped = struck(folder, KILLED_AT["in the middle of writing"], signal.SIGINT)
    assert stopped.returncode == 130 and stopped.stdout == ""
    assert (
        "Error" not in stopped.stderr
        and "Run the same command again to finish; nothing is charged twice." in stopped.stderr
    )
    assert "zebra" not in stopped.stderr and "Traceback" not in stopped.stderr
    assert not list(folder.glob("*out.parquet*")) and len(charges()) == 1
    run_again(monkeypatch)
    assert pq.read_metadata(folder / "out.parquet").num_rows == ROWS and len(charges()) == 1


def test_two_runs_at_once_draw_one_noise(folder):
    command = [sys.executable, "-c", "from labeldp.cli import main; main()", *arguments()]
    runs = [subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [run.communicate(timeout=60)[1] for run in runs]
    assert any(run.returncode == 0 for run in runs), told
    assert all("labels released" in words or "another run" in words or "exists" in words for words in told), told
    assert len(charges()) == 1 and pq.read_metadata(folder / "out.parquet").num_rows == ROWS
    assert not list(folder.glob(".*"))
