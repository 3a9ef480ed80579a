"""Commands that may die: a fresh process has imported everything and runs each command in a child of its own.

A child can be stopped by a signal before or after a rename. All that a run keeps, but for the ledger's own commits, gets its
name by a rename, so that any two moments between the same two renames are alike.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass

LONGEST_LIFE_SECONDS = 60

QUICK = shlex.split(
    "--data digits --model tiny-conv --epsilon 2 --rows 200 --epochs 2 --threads 1 --set training.batch_size=32"
)


@dataclass(frozen=True)
class End:
    """How a command ended: its exit code, negative for a signal, and what it said."""

    code: int
    out: str
    err: str


class Lives:
    """Runs commands, one at a time."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments, cwd, stop_at=None, before=False, by=signal.SIGKILL):
        """Run `labeldp ARGUMENTS` in a folder.

        Parameters
        ----------
        stop_at : the number of a rename, from 1; or a file's name and which rename to that name, such as ("run.json", 1).
        before, by : whether it is stopped before that rename or right after it, and by which signal.
        """
        order = {"arguments": list(map(str, arguments)), "cwd": str(cwd), "stop_at": stop_at, "before": before}
        self._server.stdin.write(json.dumps(order | {"by": int(by)}) + "\n")
        self._server.stdin.flush()
        return End(**json.loads(self._server.stdout.readline()))

    def close(self):
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()


def assert_certified(folder):
    """Check that the certificate in a folder, which may have been left at any moment, covers every release in it."""
    releases = [json.loads(file.read_text()) for file in folder.path.glob("release-*.json")]
    if releases:
        certificate = folder.certificate()
        known = {query["entry"] for query in certificate["queries"]}
        entries = sorted(release["receipt"]["ledger"]["entry"] for release in releases)
        assert known >= set(entries) and certificate["ledger"]["entry"] >= entries[-1]
        said = certificate["covers"].partition("(ledger entries ")[2].partition(")")[0].split(", ")
        assert set(map(int, said)) >= set(entries)


def act(order):
    """Be the child: run one command."""
    os.chdir(order["cwd"])
    signal.alarm(LONGEST_LIFE_SECONDS)
    rename, targets = os.replace, []

    def counted(source, target):
        name = os.path.basename(target)
        targets.append(name)
        stopped = order["stop_at"] in (len(targets), [name, targets.count(name)])
        if stopped and order["before"]:
            os.kill(os.getpid(), order["by"])
        rename(source, target)
        if stopped and not order["before"]:
            os.kill(os.getpid(), order["by"])

    os.replace = counted
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["labeldp", *order["arguments"]]
    main()


def serve():
    import lightning_fabric  # noqa: F401

    import labeldp.runs
    import labeldp.sklearn.named
    import labeldp.torch
    from labeldp import report

    report.write_run = lambda *_, **__: None  # not what is tested here, and slow to draw
    labeldp.datasets.load("digits")
    _ = labeldp.datasets.table
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                sys.stdin.close()
                act(order)
                code = 0
            except SystemExit as stop:
                code = stop.code
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = {}
        for name in ("out", "err"):
            with open(os.path.join(order["cwd"], name), encoding="utf-8") as file:
                said[name] = file.read()
        print(json.dumps({"code": code, **said}), flush=True)


if __name__ == "__main__":
    from labeldp.cli import main

    serve()
