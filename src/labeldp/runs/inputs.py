"""From public inputs to what a model reads: the inputs themselves, or features of them, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.datasets import Dataset
from labeldp.errors import InvalidArgument, MissingExtra
from labeldp.features import Extractor, Joined, PatchFeatures, cached, given
from labeldp.features.cache import content_digest
from labeldp.learning.records import Record, Watch, nobody
from labeldp.runs import specs
from labeldp.runs.specs import Spec

Once = Callable[[Callable[[], Any]], Any]
"""Does something on the first process alone, and hands the result to all."""

ENVIRONMENT = "LABELDP_CACHE"
CACHE = "~/.cache/labeldp/features"
BACKBONE = "small-conv"
PRECISIONS: dict[str, Any] = {"float32": "32-true", "bfloat16": "bf16-mixed"}
"""Of learning, in Fabric's words; features are computed in float32. Processors round differently, in bfloat16 more."""


@dataclass(frozen=True)
class Public:
    """Public data as a model reads it, and what made it so.

    Attributes
    ----------
    data : without labels; where there are features, rows of them, of kind "vector".
    facts : what a run notes of its features: their spec, what a row of them is, and a digest; None without features.
    extractor : fitted; None where nothing was extracted.
    """

    data: Dataset
    facts: Record | None = None
    extractor: Extractor | None = None

    def check_same(self, known: Record | None) -> None:
        """Raise where a run of these facts read other features under the same spec."""
        if self.facts is None or known is None or known["spec"] != self.facts["spec"]:
            return
        if known["digest"] != self.facts["digest"]:
            raise InvalidArgument(
                f"the features {self.facts['spec']} are not those that this run was begun with: the inputs, the arrays or "
                "what was learned from them have changed. Go on with the files as they were."
            )


def origin_of(read: Public) -> str:
    """Say what features are, for a certificate: what we made of the inputs, or what a user states."""
    if read.facts is None:
        return f"the public inputs of {read.data.name}, as they are"
    made = f"the features {read.facts['spec']} (digest {read.facts['digest'][:16]})"
    if specs.parse(read.facts["spec"]).is_of_files:
        return f"{made}, which the caller states are public"
    return f"{made}, computed from public inputs without labels"


def cache_folder(folder: Path | None) -> Path:
    """Return where features are kept: the given folder, LABELDP_CACHE, or ~/.cache/labeldp/features."""
    return Path(os.path.expanduser(folder or os.environ.get(ENVIRONMENT) or CACHE))


def public(
    data: Dataset,
    features: str | None,
    *,
    cache: Path | None = None,
    saved: Path | None = None,
    watch: Watch | None = None,
    once: Once | None = None,
) -> Public:
    """Return data as a model reads it that was told to read these features.

    Parameters
    ----------
    features : what a recipe says, None for the inputs themselves.
    cache : where features are kept; see `cache_folder`.
    saved : a run's folder, whose fitted extractor is taken if it is of the same spec.
    watch : called with records of kind "features".

    Privacy
    -------
    Labels have no part in this: extractors see inputs alone. Arrays of a user's own must be public, which nothing can check.
    """
    if features is None:
        return Public(data)
    spec = specs.parse(features)
    _check_kind(spec, data.inputs)
    if spec.kind == "arrays":
        X, X_test = _arrays(spec, data)
        digest = hashlib.sha256("".join(content_digest(array) for array in (X, X_test) if len(array)).encode())
        return Public(_of_vectors(data, X, X_test), _facts(features, X, digest.hexdigest()))
    extractor = fitted(spec, data.inputs, saved / str(spec.file) if saved is not None else None)
    X, X_test = extracted(data, extractor, features, cache=cache, watch=watch, once=once)
    assert extractor.fingerprint is not None
    return Public(_of_vectors(data, X, X_test), _facts(features, X, extractor.fingerprint), extractor)


def extracted(
    data: Dataset,
    extractor: Extractor,
    features: str,
    *,
    cache: Path | None = None,
    watch: Watch | None = None,
    once: Once | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the features of training and test inputs, mapped from the cache, where they are computed if they are missing.

    Joined ones are kept part by part, so that each is computed once, whatever it stands beside, and are put together in memory.
    """
    if isinstance(extractor, Joined):
        texts = specs.joined(features)
        found = [
            extracted(data, part, text, cache=cache, watch=watch, once=once)
            for part, text in zip(extractor.parts, texts, strict=True)
        ]
        X, X_test = (np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))
        return X, X_test
    folder, tell = cache_folder(cache), watch or nobody
    watched, computed = Watched(extractor, folder, tell), set()

    def compute(part: str, inputs: Any) -> NDArray[Any]:
        def progress(done: int, rows: int) -> None:
            if done < rows:
                computed.add(part)
            if part in computed:
                tell({"kind": "features", "part": part, "done": done, "rows": rows})

        found: NDArray[Any] = cached(inputs, watched, folder, progress=progress)
        return found

    if once is not None:
        once(lambda: compute("training", data.X) is None)  # others find it on disk; nobody sends so much
    X = compute("training", data.X)
    X_test = compute("test", data.X_test) if len(data.X_test) else np.empty((0, X.shape[1]), X.dtype)
    watched.forget()
    about = {"part": None, "spec": features, "rows": len(X) + len(X_test), "size": X.shape[1]}
    tell({"kind": "features", **about, "computed": bool(computed), "folder": str(folder)})
    return X, X_test


def fitted(spec: Spec, inputs: Record, file: Path | None) -> Extractor:
    """Return an extractor, which has taken over what is in the file, if that is there and of the same settings."""
    if file is not None and file.exists():
        extractor = extractor_of(spec, inputs, weights=file)
        try:
            return extractor.load(file)
        except InvalidArgument:
            pass  # of a run that had other features before
    return extractor_of(spec, inputs)


def kept(folder: Path, reads: Record, inputs: Record) -> Extractor | None:
    """Return the extractor that a run's folder holds; None where its features are arrays of a user's own.

    Parameters
    ----------
    reads : the facts that the run notes of its features; the extractor must be the one that they are of.
    """
    spec = specs.parse(reads["spec"])
    if spec.file is None:
        return None
    file = folder / spec.file
    if not file.exists():
        raise InvalidArgument(f"{file} is not there, and this run's model reads what it makes of inputs: copy it back.")
    extractor = extractor_of(spec, inputs, weights=file).load(file)
    if extractor.fingerprint != reads["digest"]:
        raise InvalidArgument(f"{file} is not what made the features that this run's model learned from: copy it back.")
    return extractor


def extractor_of(spec: Spec, inputs: Record, *, weights: Path | None = None) -> Extractor:
    """Return the extractor that a spec describes.

    Parameters
    ----------
    inputs : what a row of the data is.
    weights : a file that has the weights of a pretrained network, if the spec's own may be gone.
    """
    if spec.kind == "joined":
        return Joined(tuple(extractor_of(part, inputs) for part in spec.parts))
    if spec.kind == "patches":
        return PatchFeatures(**spec.settings)
    try:
        from labeldp.torch import BYOL, Pretrained, SimCLR
        from labeldp.torch.views import Views
    except ImportError:
        raise MissingExtra(f"{spec.kind} needs torch: pip install 'labeldp[torch]'.") from None
    if spec.kind == "pretrained":
        module, file = spec.names
        return Pretrained(module, weights or file, **spec.settings)
    settings = dict(spec.settings)
    backbone = _backbone(spec, settings.pop("backbone", BACKBONE), inputs, settings.get("seed", 0))
    fabric = _fabric(settings.pop("precision", "float32"))
    methods: dict[str, Any] = {"byol": BYOL, "simclr": SimCLR}
    return methods[spec.kind](backbone, views=Views(flip=settings.pop("flip", False)), fabric=fabric, **settings)


def check_readable(model: str, data: Dataset) -> None:
    """Raise where a model of torch's reads no rows of numbers; before anything is computed."""
    from labeldp.runs.families import family_of

    if family_of(model) == "sklearn":
        return
    from labeldp.torch import models

    try:
        models.build(model, {"kind": "vector", "size": 2}, len(data.classes))
    except InvalidArgument:
        raise InvalidArgument(
            f"{model} does not read features: choose linear, mlp or logistic, or leave features out."
        ) from None


def _fabric(precision: str) -> Any:
    """Return what trains an extractor: one CPU, in a precision."""
    from lightning_fabric import Fabric

    checks.one_of(tuple(PRECISIONS), precision=precision)
    log = logging.getLogger("lightning_fabric")
    level = log.level
    log.setLevel(logging.WARNING)  # it would say of bfloat16 that it uses it
    try:
        return Fabric(accelerator="cpu", devices=1, precision=PRECISIONS[precision])
    finally:
        log.setLevel(level)


class Watched:
    """An extractor whose fitting is told of; one that learns by epochs goes on from its checkpoint in the cache."""

    def __init__(self, extractor: Extractor, folder: Path, tell: Watch) -> None:
        self.extractor, self.folder, self.tell = extractor, folder, tell
        self._checkpoint: Path | None = None

    @property
    def fingerprint(self) -> str | None:
        return self.extractor.fingerprint

    def description(self) -> Record:
        return self.extractor.description()

    def fit(self, inputs: Any) -> Self:
        name = type(self.extractor).__name__
        self.tell({"kind": "features", "part": "fitting", "by": name, "rows": len(inputs), "epoch": 0, "epochs": 0})
        if isinstance(self.extractor, PatchFeatures):
            self.extractor.fit(inputs)
            return self
        about = json.dumps([self.description(), content_digest(inputs)], sort_keys=True)
        self._checkpoint = self.folder / f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.checkpoint"

        def epoch_ended(record: Record) -> None:
            epochs = {key: record[key] for key in ("epoch", "epochs")}
            self.tell({"kind": "features", "part": "fitting", "by": name, "rows": len(inputs), **epochs})

        self.extractor.fit(inputs, checkpoint=self._checkpoint, watch=epoch_ended)  # type: ignore[call-arg]
        return self

    def transform(self, inputs: Any) -> NDArray[Any]:
        return self.extractor.transform(inputs)

    def save(self, path: str | os.PathLike[str]) -> None:
        self.extractor.save(path)

    def load(self, path: str | os.PathLike[str]) -> Self:
        self.extractor.load(path)
        return self

    def forget(self) -> None:
        """Remove the checkpoint of a training that is done, and whose result is stored."""
        if self._checkpoint is not None:
            self._checkpoint.unlink(missing_ok=True)


def _backbone(spec: Spec, name: str, inputs: Record, seed: int) -> Any:
    """Return a model of the registry without its last layer, which is for classes.

    SimCLR's ends in a norm without weights instead, so that all features are of about the same size.
    """
    from torch import nn

    from labeldp.torch import models

    if name not in models.names():
        raise InvalidArgument(f"{spec.kind}'s backbone must be one of {', '.join(models.names())}, got {name[:80]!r}.")
    model = models.build(name, inputs, 2, seed=seed)
    is_sequence = isinstance(model, nn.Sequential) and isinstance(model[-1], nn.Linear)
    layers = list(model)[:-1] if is_sequence else []  # type: ignore[call-overload]
    if not any(list(layer.parameters()) for layer in layers):
        raise InvalidArgument(
            f"{spec.kind}'s backbone must be a sequence of layers that ends in a linear one, which is left out, and learns "
            f"something before it; {name} does not: choose another, such as {BACKBONE}."
        )
    if spec.kind == "simclr":
        layers.append(nn.BatchNorm1d(model[-1].in_features, affine=False))  # type: ignore[index]
    return nn.Sequential(*layers)


def _check_kind(spec: Spec, inputs: Record) -> None:
    kind = inputs["kind"]
    if kind == "ids":
        raise InvalidArgument(
            "features are of images and of rows of numbers; this data has ids: leave features out, and train ncf."
        )
    if spec.kind != "arrays" and kind != "image":
        raise InvalidArgument(
            f"{spec.kind} makes features of images, and the rows of this data are of kind {kind!r}: compute features yourself, "
            "without labels, and give them as arrays:TRAIN.npy,TEST.npy."
        )


def _arrays(spec: Spec, data: Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a user's own features of training and test rows; of the latter none, if none are given."""
    X = as_floats(given(spec.names[0], rows=data.n_rows))
    if len(spec.names) == 1 or not len(data.X_test):
        return X, np.empty((0, X.shape[1]), X.dtype)
    X_test = as_floats(given(spec.names[1], rows=len(data.X_test)))
    if X_test.shape[1] != X.shape[1]:
        raise InvalidArgument(
            f"{spec.names[1]} must have {X.shape[1]} numbers per row, as {spec.names[0]} has; it has {X_test.shape[1]}."
        )
    return X, X_test


def as_floats(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers that no model takes for ids or for levels of pixels."""
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def _of_vectors(data: Dataset, X: NDArray[Any], X_test: NDArray[Any]) -> Dataset:
    return data.only_public(
        X=X,
        X_test=X_test,
        test_labels=data.test_labels[: len(X_test)],
        inputs={"kind": "vector", "size": int(X.shape[1])},
        public_test=data.public_test if len(X_test) else None,
    )


def _facts(features: str, X: NDArray[Any], digest: str) -> Record:
    return {"spec": features, "inputs": {"kind": "vector", "size": int(X.shape[1])}, "digest": digest}
