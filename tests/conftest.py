"""What all tests share: strategies for priors and epsilons, and the statistics' false-alarm rate."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import labeldp

settings.register_profile(
    "labeldp",
    deadline=None,  # machines are shared and noisy
    max_examples=60,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.differing_executors,  # contract classes are inherited on purpose
    ],
)
settings.load_profile("labeldp")

# In a shell's background SIGINT is ignored, and children would be deaf to Ctrl-C too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _names_in_doctests(doctest_namespace):
    doctest_namespace["ldp"] = labeldp
    doctest_namespace["np"] = np
