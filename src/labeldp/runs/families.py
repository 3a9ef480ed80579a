"""The two families of models, torch's and scikit-learn's. Neither library is imported to tell them apart."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal

Family = Literal["torch", "sklearn"]

SKLEARN_MODELS = ("boosting", "forest", "logistic")
MODEL_FILES: dict[Family, str] = {"torch": "model.safetensors", "sklearn": "model.skops"}
SKLEARN_SETTINGS = ("rounds", "folds", "warm_start", "bag_rounds", "learn_counts")
NOT_TORCH_SETTINGS = ("rounds", "folds")


def family_of(model: str) -> Family:
    """Return the library that a model is of; whatever is not scikit-learn's is looked for in torch's registry."""
    return "sklearn" if model in SKLEARN_MODELS else "torch"


def means_nothing(model: str, setting: str) -> bool:
    """Return whether a setting of [training] has no meaning for a model."""
    return setting not in SKLEARN_SETTINGS if family_of(model) == "sklearn" else setting in NOT_TORCH_SETTINGS


def unknown_model(model: str, known: Iterable[str]) -> str:
    """Say that there is no such model, and which one may have been meant."""
    known = list(known)
    close = difflib.get_close_matches(model.lower().replace("_", "-"), known, n=1, cutoff=0.7)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    return f"model must be one of {', '.join(map(repr, known))}, got {model[:80]!r}.{meant}"
