"""What `features` of a recipe says: which extractor, with which settings, from which files. It imports nothing heavy."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labeldp.errors import InvalidArgument

Setting = Callable[[str], Any]


def yes_or_no(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


SELF_SUPERVISED: dict[str, Setting] = {
    **dict.fromkeys(("backbone", "optimizer", "schedule", "precision"), str),
    **dict.fromkeys(("epochs", "batch_size", "projection", "hidden", "seed"), int),
    **dict.fromkeys(("learning_rate", "momentum", "weight_decay"), float),
    "flip": yes_or_no,
}
SETTINGS: dict[str, dict[str, Setting]] = {
    "patches": {
        **dict.fromkeys(("patch", "centroids", "pool", "rounds", "sample", "seed"), int),
        "floor": float,
        "mirror": yes_or_no,
    },
    "byol": {**SELF_SUPERVISED, "decay": float},
    "simclr": {**SELF_SUPERVISED, "temperature": float},
    "pretrained": {"size": int, "batch_size": int, "interpolation": str},
    "arrays": {},
}
EXAMPLES = {
    "patches": "patches:patch=6,centroids=300",
    "byol": "byol:backbone=small-conv,epochs=20",
    "simclr": "simclr:backbone=whitened-conv-narrow,epochs=20",
    "pretrained": "pretrained:vit-small-16,weights.pth",
    "arrays": "arrays:TRAIN.npy,TEST.npy",
}
JOINABLE = ("patches", "simclr")
"""What may stand side by side, "patches:mirror=true + simclr:epochs=20": their columns are of about the same size."""
NAMED = {"pretrained": (2, 2), "arrays": (1, 2)}
"""How many names stand before the settings, at least and at most."""
EXTRACTOR_FILES = {
    "patches": "extractor.npz",
    "byol": "extractor.safetensors",
    "simclr": "extractor.safetensors",
    "joined": "extractor.zip",
    "pretrained": "extractor.safetensors",
}
"""What a run keeps of what made its features."""
WORDS: dict[Setting, str] = {int: "a whole number", float: "a number", str: "a name", yes_or_no: "true or false"}


@dataclass(frozen=True)
class Spec:
    """An extractor, or a user's own arrays.

    Attributes
    ----------
    kind : "patches", "byol", "simclr", "pretrained" or "arrays"; or "joined", of several parts.
    names : of "pretrained", a module's name and its file; of "arrays", the files of training and test rows.
    settings : by name.
    """

    kind: str
    names: tuple[str, ...]
    settings: dict[str, Any]
    parts: tuple[Spec, ...] = ()

    @property
    def is_of_files(self) -> bool:
        """Whether arrays or weights are a user's own, of which nobody else can know whether labels had a part in them."""
        return self.kind in NAMED

    @property
    def file(self) -> str | None:
        """The name that a fitted extractor has in a run's folder; None of arrays, which nothing extracted."""
        return EXTRACTOR_FILES.get(self.kind)


def parse(text: str, *, name: str = "features") -> Spec:
    """Read what a recipe says of features.

    >>> parse("patches:patch=3,pool=2").settings
    {'patch': 3, 'pool': 2}
    >>> [part.kind for part in parse("patches + simclr:epochs=20").parts]
    ['patches', 'simclr']
    """
    if len(pieces := joined(text)) > 1:
        parts = tuple(parse(piece, name=name) for piece in pieces)
        if not all(part.kind in JOINABLE for part in parts):
            raise InvalidArgument(f"of {name}, only {' and '.join(JOINABLE)} can be joined by +, got {text[:80]!r}.")
        return Spec("joined", (), {}, parts)
    kind, _, rest = text.strip().partition(":")
    if kind not in SETTINGS:
        close = difflib.get_close_matches(kind.lower(), SETTINGS, n=1, cutoff=0.6)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise InvalidArgument(
            f"{name} must be one of {', '.join(SETTINGS)}, such as {EXAMPLES['patches']!r}; got {text[:80]!r}.{meant}"
        )
    items = [item.strip() for item in rest.split(",")] if rest else []
    least, most = NAMED.get(kind, (0, 0))
    names = items[: next((place for place, item in enumerate(items) if _is_setting(kind, item)), len(items))][:most]
    if not least <= len(names) or not all(names):
        raise InvalidArgument(f"{name} must be like {EXAMPLES[kind]!r}, got {text[:80]!r}.")
    settings = [_setting(kind, item, name) for item in items[len(names) :]]
    if len(dict(settings)) < len(settings):
        raise InvalidArgument(f"{name} must say each setting once, got {text[:80]!r}.")
    return Spec(kind, tuple(names), dict(settings))


def joined(text: str) -> list[str]:
    """Return the specs that stand side by side in one. Pluses in numbers, and in names of files, join nothing.

    >>> joined("patches:floor=1e+3 + simclr")
    ['patches:floor=1e+3', 'simclr']
    """
    if text.strip().partition(":")[0] in NAMED:
        return [text]
    return [piece.strip() for piece in re.split(r"\+(?=\s*[a-z])", text)]


def placed(text: str) -> str:
    """Return the same with absolute paths, for a run that may be gone on with elsewhere."""
    spec = parse(text)
    first_file = 1 if spec.kind == "pretrained" else 0
    if not spec.names:
        return text
    files = map(os.path.abspath, map(os.path.expanduser, spec.names[first_file:]))
    settings = [f"{key}={value}" for key, value in spec.settings.items()]
    return f"{spec.kind}:{','.join([*spec.names[:first_file], *files, *settings])}"


def _is_setting(kind: str, item: str) -> bool:
    """Tell a setting from a file, whose name may hold an equals sign."""
    return item.partition("=")[0].strip() in SETTINGS[kind]


def _setting(kind: str, item: str, name: str) -> tuple[str, Any]:
    key, equals, value = (part.strip() for part in item.partition("="))
    known = SETTINGS[kind]
    if not equals or key not in known:
        knows = f"It knows {', '.join(known)}." if known else f"It takes no settings: {EXAMPLES[kind]}."
        raise InvalidArgument(f"{name}: {kind} knows no setting {item[:80]!r}. {knows}")
    try:
        return key, known[key](value)
    except ValueError:
        raise InvalidArgument(f"{name}: {key} of {kind} must be {WORDS[known[key]]}, got {value[:80]!r}.") from None
