"""What the tests of commands share: a command run in this process."""

from __future__ import annotations

import sys

import pytest

from labeldp.cli import main


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `labeldp WORDS`; return exit code, stdout and stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["labeldp", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run
