"""labeldp: machine learning with label differential privacy. Features are public; labels are not."""

from labeldp.budget import Epsilon, Guarantee, Ledger, create_ledger
from labeldp.errors import (
    BudgetExhausted,
    InvalidArgument,
    InvalidLabels,
    LabelDPError,
    LedgerError,
    MissingExtra,
    NotIdentifiable,
    TrustError,
    VaultClosed,
)
from labeldp.mechanisms import (
    GroupedResponse,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
    UnbiasedResponse,
)
from labeldp.randomness import InsecureBits
from labeldp.vault import HistogramRelease, LabelHolder, LabelVault, Release, SumRelease

__version__ = "0.1.0.dev0"

__all__ = [
    "BudgetExhausted",
    "Epsilon",
    "GroupedResponse",
    "Guarantee",
    "HistogramRelease",
    "InsecureBits",
    "InvalidArgument",
    "InvalidLabels",
    "LabelDPError",
    "LabelHolder",
    "LabelVault",
    "Ledger",
    "LedgerError",
    "MissingExtra",
    "NotIdentifiable",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Release",
    "SumRelease",
    "TrustError",
    "UnbiasedResponse",
    "VaultClosed",
    "create_ledger",
]
