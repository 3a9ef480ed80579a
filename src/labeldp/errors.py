"""Everything that labeldp raises.

LabelDPError
├── InvalidArgument (ValueError)      an argument is not what it must be
│   └── InvalidLabels                 the labels are not what was declared; never says which
├── BudgetExhausted (RuntimeError)    a label would be charged past its budget; nothing was drawn
├── LedgerError (RuntimeError)        the ledger is missing, foreign, damaged or an old copy
│   └── TakenOver                     another process went on with this query: the ledger's lock did not hold
├── TrustError (RuntimeError)         the vault's trust model does not allow this query
├── VaultClosed (RuntimeError)        this vault no longer holds labels (closed, or copied by a fork)
├── NotIdentifiable (ValueError)      the released noise cannot answer this question
└── MissingExtra (ImportError)        an optional dependency is not installed
"""

from __future__ import annotations


class LabelDPError(Exception):
    """Base of all errors of this library."""


class InvalidArgument(LabelDPError, ValueError):
    """An argument is not what it must be."""


class InvalidLabels(InvalidArgument):
    """The labels are not what was declared. The message points at no label and no row."""


class BudgetExhausted(LabelDPError, RuntimeError):
    """A label would be charged past its budget. Nothing was drawn and nothing was charged."""


class LedgerError(LabelDPError, RuntimeError):
    """The ledger is missing, belongs to other data, is damaged, or is an old copy."""


class TakenOver(LedgerError):
    """Another process went on with the query while it was drawn for here, because the ledger's lock did not hold."""


class TrustError(LabelDPError, RuntimeError):
    """The vault's trust model does not allow this query."""


class VaultClosed(LabelDPError, RuntimeError):
    """This vault no longer holds labels."""


class NotIdentifiable(LabelDPError, ValueError):
    """The released noise cannot answer this question."""


class MissingExtra(LabelDPError, ImportError):
    """An optional dependency is not installed."""
