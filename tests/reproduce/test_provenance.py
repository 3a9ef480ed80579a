"""A record says which commit it comes from, and whether the code was as committed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import labeldp
from labeldp.reproduce.provenance import commit


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
    assert commit() == head.stdout.strip()


@pytest.mark.parametrize("file", ["__init__.py", "new.py"])
def test_changed_or_new_code_is_told(checkout, file):
    (checkout / "src" / "labeldp" / file).write_text("x = 1\n")
    assert commit().endswith("+changes") and len(commit()) == 40 + len("+changes")


def test_an_installed_package_is_its_version_even_inside_somebody_elses_checkout(checkout, monkeypatch):
    elsewhere = checkout / "lib" / "labeldp"
    elsewhere.mkdir(parents=True)
    monkeypatch.setattr(labeldp, "__file__", str(elsewhere / "__init__.py"))
    assert commit() == f"version {labeldp.__version__}"
