"""Stand-ins that note what they are asked: a learner without training, and a door around a vault."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import labeldp as ldp
from labeldp.learning import Filtered


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class Journal(list):
    """What happened, in order; copies of a learner write in the same one."""

    def __deepcopy__(self, memo):
        return self


@dataclass
class Scripted:
    """A learner whose model after fit number t has the logits t * X: X has K columns."""

    learns_from: str = "labels"
    journal: Journal = field(default_factory=Journal)
    tag: Any = None
    stage: int = 0

    def check(self, X, n_classes):
        if np.ndim(X) != 2 or X.shape[1] != n_classes:
            raise ldp.InvalidArgument("X must have one column per class.")

    def fit(self, X, releases, *, start=None, checkpoint=None, watch=None):
        self.stage = len(self.journal) + 1
        self.journal.append({"releases": list(releases), "start": start, "checkpoint": checkpoint, "tag": self.tag})
        if watch is not None:
            watch({"epoch": 1, "epochs": 1, "loss": 0.0, "learning_rate": 0.0, "seconds": 0.0, "rows": 0})
        return self

    def logits(self, X):
        return self.stage * np.asarray(X, dtype=np.float64)

    def predict_proba(self, X):
        assert self.stage, "not fitted"
        return softmax(self.logits(X))

    def save(self, path):
        raise NotImplementedError

    def load(self, path):
        raise NotImplementedError

    def ask_once(self, ask):
        return ask()

    def __deepcopy__(self, memo):
        return copy.copy(self)


class WatchedVault:
    """A vault that notes every question."""

    def __init__(self, vault):
        self._vault = vault
        self.asked = []

    def __len__(self):
        return len(self._vault)

    def __getattr__(self, name):
        return getattr(self._vault, name)

    def release(self, mechanism, rows=None, *, priors=None, source=None, name=None):
        self.asked.append({"mechanism": mechanism, "rows": rows, "priors": priors, "source": source, "name": name})
        return self._vault.release(mechanism, rows, priors=priors, source=source, name=name)


def kept_of(examples):
    return examples.kept if isinstance(examples, Filtered) else np.ones(len(examples), dtype=bool)
