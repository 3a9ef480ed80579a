"""Threads around matrix products rather than within them: small products in many threads mostly wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

try:
    from threadpoolctl import ThreadpoolController
except ModuleNotFoundError:  # it comes with scikit-learn; without it the products keep their own threads
    ThreadpoolController = None

T = TypeVar("T")
ONE_AT_A_TIME = threading.Lock()
"""The limit holds for the whole process: of two callers at once, the second would take the first one's for the usual one."""


def in_threads(act: Callable[[T], None], items: Iterable[T]) -> None:
    """Act on each item, in as many threads as matrix products were allowed, each product being on one thread meanwhile."""
    if ThreadpoolController is None:
        for item in items:
            act(item)
        return
    with ONE_AT_A_TIME:
        libraries = ThreadpoolController().select(user_api="blas")
        threads = max((library["num_threads"] for library in libraries.info()), default=1)
        limit = partial(libraries.limit, limits=1)  # some libraries have a limit per thread, so each thread sets it
        with limit(), ThreadPoolExecutor(threads, initializer=limit) as pool:
            for _ in pool.map(act, items):  # a failure in a thread is raised here
                pass
