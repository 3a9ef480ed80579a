"""Commands that may die: a fresh process has imported everything and runs each command in a child of its own.

A child can be stopped by a signal before or after its n-th rename. All that a run keeps, but for the ledger's own commits, gets
its name by a rename, so that every moment between two of them is the same moment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

LONGEST_LIFE_SECONDS = 60


@dataclass(frozen=True)
class End:
    """How a command ended: its exit code, negative for a signal, what it said, and how many renames it had made."""

    code: int
    out: str
    err: str
    renames: int


class Lives:
    """Runs commands, one at a time."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments, cwd, stop_at=None, before=False, by=signal.SIGKILL):
        """Run `labeldp ARGUMENTS` in a folder, stopped before or after its rename number `stop_at`, from 1."""
        order = {"arguments": list(map(str, arguments)), "cwd": str(cwd), "stop_at": stop_at, "before": before}
        self._server.stdin.write(json.dumps(order | {"by": int(by)}) + "\n")
        self._server.stdin.flush()
        return End(**json.loads(self._server.stdout.readline()))

    def close(self):
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()


def act(order):
    """Be the child: run one command."""
    os.chdir(order["cwd"])
    signal.alarm(LONGEST_LIFE_SECONDS)
    rename, renames = os.replace, os.open("renames", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def counted(source, target):
        number = os.stat("renames").st_size + 1
        stopped = number == order["stop_at"]
        if stopped and order["before"]:
            os.kill(os.getpid(), order["by"])
        rename(source, target)
        os.write(renames, b".")
        if stopped and not order["before"]:
            os.kill(os.getpid(), order["by"])

    os.replace = counted
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["labeldp", *order["arguments"]]
    main()


def serve():
    import labeldp.runs
    from labeldp import report

    report.write_run = lambda *_, **__: None  # not what is tested here, and slow to draw
    labeldp.datasets.load("digits")
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
        print(json.dumps({"code": code, "renames": os.stat(os.path.join(order["cwd"], "renames")).st_size, **said}))
        sys.stdout.flush()


if __name__ == "__main__":
    from labeldp.cli import main

    serve()
