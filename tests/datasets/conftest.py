"""Tests on tiny files look nowhere else: not in the caller's LABELDP_DATA, not in the caller's home."""

import pytest


@pytest.fixture(autouse=True)
def _nowhere_else(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("LABELDP_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
