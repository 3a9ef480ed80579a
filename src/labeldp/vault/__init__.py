"""True labels in, noise out. The only room that holds a true label."""

from labeldp.vault.aggregates import AgreementRelease, HistogramRelease, SumRelease
from labeldp.vault.frequencies import ClassFrequencies
from labeldp.vault.holder import LabelHolder
from labeldp.vault.passes import NormalPass, Pass
from labeldp.vault.receipt import Receipt
from labeldp.vault.release import Release
from labeldp.vault.sealed import SealedColumn
from labeldp.vault.vault import LabelVault

__all__ = [
    "AgreementRelease",
    "ClassFrequencies",
    "HistogramRelease",
    "LabelHolder",
    "LabelVault",
    "NormalPass",
    "Pass",
    "Receipt",
    "Release",
    "SealedColumn",
    "SumRelease",
]
