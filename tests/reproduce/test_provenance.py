"""A record says which commit and which data it comes from, and whether the code was as committed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

import labeldp
from labeldp.reproduce.provenance import checked_out, commit, digest_of_inputs
from labeldp.runs import Recipe


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A committed checkout that the package seems to be run from."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    package = tmp_path / "src" / "labeldp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(labeldp, "__file__", str(package / "__init__.py"))
    as_us = ("-c", "user.name=us", "-c", "user.email=us@example.org")
    for words in (("init", "-q"), ("add", "."), (*as_us, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_clean_checkout_is_its_commit_whatever_is_recorded_beside_the_code(checkout):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True)
    (checkout / "results.json").write_text("{}")
    assert checked_out() == head.stdout.strip()


@pytest.mark.parametrize("file", ["__init__.py", "new.py"])
def test_changed_or_new_code_is_told(checkout, file):
    (checkout / "src" / "labeldp" / file).write_text("x = 1\n")
    assert checked_out().endswith("+changes") and len(checked_out()) == 40 + len("+changes")


def test_an_installed_package_is_its_version_even_inside_somebody_elses_checkout(checkout, monkeypatch):
    elsewhere = checkout / "lib" / "labeldp"
    elsewhere.mkdir(parents=True)
    monkeypatch.setattr(labeldp, "__file__", str(elsewhere / "__init__.py"))
    assert checked_out() == f"version {labeldp.__version__}"


def test_the_commit_is_the_one_that_was_loaded_whatever_becomes_of_the_files(checkout):
    """Edited code that is undone, or committed, while a process goes on is what that process runs."""
    before = commit()
    (checkout / "src" / "labeldp" / "__init__.py").write_text("x = 1\n")
    assert checked_out().endswith("+changes") and commit() == before


LOADED_WITH_CHANGES = """
import sys
from pathlib import Path
import labeldp
labeldp.__file__ = sys.argv[1]
code = Path(sys.argv[1])
kept = code.read_text()
code.write_text("x = 1")
from labeldp import reproduce
code.write_text(kept)
from labeldp.reproduce.provenance import checked_out, commit
print(commit().endswith("+changes"), checked_out().endswith("+changes"))
"""


def test_changes_that_are_undone_after_they_were_loaded_are_told(checkout):
    words = [sys.executable, "-c", LOADED_WITH_CHANGES, str(checkout / "src" / "labeldp" / "__init__.py")]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.split() == ["True", "False"]


def images(folder, *, train, test):
    folder.mkdir(parents=True)
    for stem, pixels in (("train", train), ("t10k", test)):
        for name, array in (("images-idx3", pixels), ("labels-idx1", np.zeros(len(pixels), np.uint8))):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            (folder / f"{stem}-{name}-ubyte").write_bytes(head + array.tobytes())


def test_the_digest_of_inputs_knows_every_row_their_order_and_the_test_rows(tmp_path):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (n_rows, 28, 28), dtype=np.uint8) for n_rows in (6, 3))
    versions = {
        "first": (train, test),
        "again": (train, test),
        "fewer": (train[:5], test),
        "reversed": (train[::-1], test),
        "other-tests": (train, test[::-1]),
    }
    recipe, digests = Recipe(data="mnist", model="linear", epsilon="1"), {}
    for name, (rows, tests) in versions.items():
        images(tmp_path / name / "mnist", train=rows, test=tests)
        digests[name] = digest_of_inputs(recipe, tmp_path / name)
    assert digests["first"] == digests["again"] and len(set(digests.values())) == 4
    images(tmp_path / "first" / "kmnist", train=train[:2], test=test)
    begun = recipe.changed({"model": "small-conv", "init": "kmnist"})
    assert digest_of_inputs(begun, tmp_path / "first") != digests["first"]  # its weights come from there
