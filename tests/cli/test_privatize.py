"""`labeldp privatize` in the shell: what it says, where it says it, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp as ldp
from labeldp.cli import main

MARKER = "zebra"


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with a ledger and two files; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    ldp.create_ledger("ads.ledger", budget="1")
    pq.write_table(pa.table({"row_id": [5, 6, 7], "clicked": ["no", MARKER, "no"]}), "in.parquet")
    (tmp_path / "in.csv").write_text(f"row_id,clicked\n5,no\n6,{MARKER}\n7,no\n")
    (tmp_path / "bad.csv").write_text(f"row_id,clicked\n5,no\n6,{MARKER},8\n")
    (tmp_path / "no-header.csv").write_text(f"5,{MARKER}\n6,no\n")
    (tmp_path / "twins.csv").write_text("row_id,clicked\n5,no\n5,no\n")
    (tmp_path / "text.txt").write_text("row_id,clicked\n5,no\n5,no\n")

    def run(**changes):
        options = {"data": "in.parquet", "label": "clicked", "classes": f"no,{MARKER}", "epsilon": "1"}
        options |= {"ledger": "ads.ledger", "out": "out.parquet"} | changes
        words = [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]
        monkeypatch.setattr(sys, "argv", ["labeldp", "privatize", *(word for word in words if word != "flag")])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def charges():
    return [entry for entry in ldp.Ledger("ads.ledger").entries() if entry.body["kind"] == "charge"]


def test_it_speaks_like_the_readme(shell):
    code, out, err = shell()
    assert (code, out) == (0, "")
    first, second = err.splitlines()
    assert first == "3 labels released at epsilon 1 (local, per label). Ledger ads.ledger: 0 of 1 left for these rows."
    assert "with chance 73.1%" in second and "Release.load('ads.ledger.spool/000003')" in second
    assert pq.read_schema("out.parquet").names == ["row_id", "noisy_clicked"]


def test_json_goes_to_stdout_and_words_to_stderr(shell):
    code, out, err = shell(epsilon="0.25", json="flag")
    answer = json.loads(out)
    assert code == 0 and "0.75 of 1 left for these rows" in err
    assert set(answer) == {"rows", "epsilon", "receipt", "left", "out", "release", "keep_chance"}
    assert (answer["rows"], answer["epsilon"], answer["left"], answer["out"]) == (3, "0.25", "0.75", "out.parquet")
    ldp.Ledger("ads.ledger").verify(answer["receipt"])


def test_the_same_command_again_is_done_already(shell):
    assert shell()[0] == 0
    code, _, err = shell()
    assert code == 0 and err.startswith("out.parquet is done already: 3 labels released") and len(charges()) == 1


def test_spent_labels_exit_3(shell):
    assert shell()[0] == 0
    code, out, err = shell(out="other.csv")
    assert (code, out) == (3, "") and "is left for these rows" in err and len(charges()) == 1
    assert not os.path.exists("other.csv")


def test_ids_and_column_name_are_taken(shell):
    assert shell(data="in.csv", id="row_id", **{"noisy-column": "answer"})[0] == 0
    assert pq.read_schema("out.parquet").names == ["row_id", "answer"]


FAILURES = [
    (1, {"data": "none.csv"}, "No such file or directory: none.csv"),
    (1, {"data": "bad.csv"}, "bad.csv cannot be read as CSV"),
    (1, {"data": "no-header.csv"}, "has no column 'clicked' among its 2 columns. The file needs a header line"),
    (1, {"label": "klicked"}, "no column 'klicked' among its 2 columns. Did you mean 'clicked'?"),
    (1, {"classes": "no,yes"}, "labels must all be among the declared classes; some are not."),
    (1, {"classes": "2"}, "labels must all be among the declared classes; some are not."),
    (1, {"ledger": "none.ledger"}, "none.ledger. A missing ledger is never replaced by an empty one"),
    (1, {"ledger": "in.csv"}, "not a labeldp ledger"),
    (1, {"data": "twins.csv", "id": "row_id"}, "ids must be unique"),
    (1, {"out": "in.parquet"}, "in.parquet exists; remove it or choose another --out."),
    (1, {"out": "nowhere/out.parquet"}, "No such file or directory: nowhere"),
    (2, {"data": "text.txt"}, "text.txt must end in one of .csv, .parquet."),
    (2, {"out": "out.xlsx"}, "out.xlsx must end in one of .csv, .parquet."),
    (2, {"classes": "no"}, "no,yes"),
    (2, {"classes": "no,no"}, "classes must name each class once."),
    (2, {"classes": "1"}, "classes must be"),
    (2, {"epsilon": "0"}, "epsilon must be > 0"),
    (2, {"epsilon": "much"}, "epsilon must be a finite number"),
    (2, {"missing": "secret"}, "'public'"),
    (2, {"label": None}, "--label"),
    (2, {"id": "clicked"}, "ids are public"),
]


@pytest.mark.parametrize(("code", "changes", "words"), FAILURES)
def test_failures_say_what_to_do_and_quote_no_label(shell, code, changes, words):
    before = sorted(os.listdir())
    found, out, err = shell(**changes)
    assert (found, out) == (code, "") and words in " ".join(err.split()), err
    assert MARKER not in err and "Traceback" not in err
    assert not charges() and sorted(set(os.listdir()) - {"ads.ledger-lock"}) == before


def test_a_terminal_sees_a_bar(shell, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    assert shell()[0] == 0
    assert "Writing" in screen.getvalue() and MARKER not in screen.getvalue()


def test_without_pyarrow_it_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['pyarrow'] = None; from labeldp.cli import main; main()"
    words = "privatize --data a.csv --label a --classes 2 --epsilon 1 --ledger l --out b.csv"
    done = subprocess.run(
        [sys.executable, "-c", script, *words.split()], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "Error: CSV and Parquet files need pyarrow: pip install 'labeldp[table]'.\n"


def test_help_needs_no_pyarrow():
    script = "import sys; sys.modules['pyarrow'] = None; from labeldp.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "privatize", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "--noisy-column" in done.stdout
