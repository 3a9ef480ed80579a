"""The command line: `labeldp VERB`. Data and --json go to stdout, words and progress to stderr.

Exit codes: 0 done, 1 failed, 2 usage, 3 budget exhausted.
"""

from labeldp.cli.main import main

__all__ = ["main"]
