"""Export to dp_accounting: the ledger's promise, priced by somebody else's accountant."""

from __future__ import annotations

import math
from typing import Any

from labeldp.budget.history import guarantee_of
from labeldp.budget.ledger import Ledger
from labeldp.errors import LabelDPError, MissingExtra


def dp_event(ledger: Ledger, row: int | None = None) -> Any:
    """Return the events of the most-charged label as one composed dp_accounting event, for replace-one adjacency.

    Every query recorded with delta = 0 is exported as binary randomized response with its epsilon, which dominates every
    epsilon-DP mechanism; so an accountant's answer is an upper bound for the label, and at delta = 0 it is the ledger's sum.
    Compose it once: dp_accounting (0.6) ignores a count given for randomized response.
    """
    try:
        from dp_accounting import dp_event as events
    except ImportError:
        raise MissingExtra("dp_accounting is not installed: pip install 'labeldp[accounting]'.") from None
    costs = [guarantee_of(entry.body["cost"]) for entry in ledger.charges_of(row)]
    if any(cost.delta_units for cost in costs):
        raise LabelDPError(
            "Queries with delta > 0 have no exact dp_accounting event here; export their own mechanisms."
        )
    return events.ComposedDpEvent(
        [
            events.RandomizedResponseDpEvent(noise_parameter=2 / (1 + math.exp(float(cost.epsilon))), num_buckets=2)
            for cost in costs
        ]
    )
