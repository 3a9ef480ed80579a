"""labeldp: machine learning with label differential privacy. Features are public; labels are not."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from labeldp.learning import ClusterPrior, Learner, MultiStage
    from labeldp.mechanisms import (
        ClusterRR,
        GroupedResponse,
        NormalResponse,
        RandomizedResponse,
        RRTopK,
        RRWithPrior,
        UnbiasedResponse,
    )
    from labeldp.randomness import InsecureBits
    from labeldp.runs import load
    from labeldp.vault import HistogramRelease, LabelHolder, LabelVault, Release, SumRelease

__version__ = "0.1.0.dev0"

__all__ = [
    "BudgetExhausted",
    "ClusterPrior",
    "ClusterRR",
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
    "Learner",
    "Ledger",
    "LedgerError",
    "MissingExtra",
    "MultiStage",
    "NormalResponse",
    "NotIdentifiable",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Release",
    "SumRelease",
    "TrustError",
    "UnbiasedResponse",
    "VaultClosed",
    "convex",
    "create_ledger",
    "datasets",
    "features",
    "load",
    "metrics",
    "priors",
    "sklearn",
    "torch",
]


def __getattr__(name: str) -> Any:
    """Load a public name's room on first use, so that importing labeldp is quick."""
    if name in ("convex", "datasets", "features", "metrics", "priors"):
        return import_module(f"labeldp.{name}")
    if name == "load":
        return import_module("labeldp.runs").load
    if name == "torch":
        return _on_torch()
    if name == "sklearn":
        return _on_sklearn()
    if name in __all__:
        for room in ("errors", "budget", "randomness", "mechanisms", "vault", "learning"):
            module = import_module(f"labeldp.{room}")
            if name in vars(module):
                return globals().setdefault(name, vars(module)[name])
    raise AttributeError(f"module 'labeldp' has no attribute {name!r}")


def _on_torch() -> Any:
    try:
        return import_module("labeldp.torch")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "lightning_fabric", "safetensors"):
            raise
        from labeldp.errors import MissingExtra

        raise MissingExtra("labeldp.torch needs torch: pip install 'labeldp[torch]'.") from None


def _on_sklearn() -> Any:
    try:
        return import_module("labeldp.sklearn")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("sklearn", "skops"):
            raise
        from labeldp.errors import MissingExtra

        raise MissingExtra("labeldp.sklearn needs scikit-learn and skops: pip install 'labeldp[sklearn]'.") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
