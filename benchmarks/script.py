"""How a script ends where nothing is wrong with its code: by a message alone."""

from __future__ import annotations

import sys
from collections.abc import Callable

from labeldp.errors import LabelDPError

INTERRUPTED = 130
"""What shells say of a process that Ctrl-C ended."""


def run(main: Callable[[], None], *, stopped: str) -> None:
    """Run a script; an error of labeldp's, such as missing files, exits with 1, and Ctrl-C says how to go on."""
    try:
        main()
    except LabelDPError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        sys.exit(INTERRUPTED)
