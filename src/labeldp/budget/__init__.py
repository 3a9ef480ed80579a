"""What a release costs and what every label has spent: guarantees, the ledger, certificates."""

from labeldp.budget.certificate import People, certificate
from labeldp.budget.epsilon import Epsilon, Odds
from labeldp.budget.events import dp_event
from labeldp.budget.guarantee import Guarantee
from labeldp.budget.history import Entry
from labeldp.budget.ledger import Ledger, create_ledger
from labeldp.budget.runs import Runs

__all__ = [
    "Entry",
    "Epsilon",
    "Guarantee",
    "Ledger",
    "Odds",
    "People",
    "Runs",
    "certificate",
    "create_ledger",
    "dp_event",
]
