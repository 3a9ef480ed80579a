"""pyarrow, which may be missing, and which may quote a cell when it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from labeldp.errors import InvalidArgument, MissingExtra

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet
except ImportError:
    raise MissingExtra("CSV and Parquet files need pyarrow: pip install 'labeldp[table]'.") from None

__all__ = ["csv", "pa", "parquet", "pc", "unquoted"]

T = TypeVar("T")


def unquoted(call: Callable[[], T], problem: str) -> T:
    """Call pyarrow; where it fails, say `problem` and nothing of its own message, which could quote a label.

    The operating system's errors (no such file, disk full) pass as they are: they speak of files only.
    """
    try:
        return call()
    except MemoryError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise
    except Exception:  # told below, where it is no longer the context of what is raised
        pass
    raise InvalidArgument(problem)
