"""What the tests of reproduce share: a quick recipe on the digits, in one thread, whose report nobody draws."""

from __future__ import annotations

import pytest
import torch

from labeldp import report
from labeldp.reproduce import Job, Results, clock, running
from labeldp.reproduce.cookbook import read

QUICK = """
trust = "local"
data = "digits"
model = "linear"
epsilons = ["1", "2"]
rows = 200
about = "Quick."

[training]
epochs = 2
batch_size = 64

[at."2".training]
epochs = 1
"""


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(report, "write_run", lambda *_, **__: None)
    for module in (clock, running):
        monkeypatch.setattr(module, "commit", lambda: "c0ffee+changes")  # whoever works on the checkout meanwhile
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def write(tmp_path):
    """Write a recipe and return its entry, in the table of MNIST."""

    def entry(text=QUICK, name="quick"):
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        return read(file, "mnist")

    return entry


@pytest.fixture
def job(write):
    return Job(write(), "2")


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results")


@pytest.fixture
def looks(results):
    """Return the lines of looks, as lists of cells."""
    return lambda: [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (results.looks_file.read_text().splitlines() if results.looks_file.exists() else [])
        if line.startswith("| 2")
    ]
