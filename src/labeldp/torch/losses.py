"""What a release says about each row, as tensors, and the losses that read it.

Every loss returns one number per row, so that mixup is lam loss(report_i) + (1 - lam) loss(report_j) for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labeldp.learning import evidence
from labeldp.learning.learner import Beliefs, Examples, Filtered
from labeldp.vault import Release

Loss = Callable[[Tensor, Tensor], Tensor]

LOSSES = ("noisy-label", "debiased", "likelihood")


def on_labels(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Cross entropy on one noisy label per row."""
    return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)


def on_weights(logits: Tensor, weights: Tensor) -> Tensor:
    """Sum over labels of weight times cross entropy: soft targets, or debiased ones, which may be negative."""
    return -(weights * functional.log_softmax(logits, dim=1)).sum(dim=1)


def on_likelihood(logits: Tensor, log_likelihood: Tensor) -> Tensor:
    """-log sum_y softmax_y P(report | y), without ever leaving logarithms."""
    return -torch.logsumexp(functional.log_softmax(logits, dim=1) + log_likelihood, dim=1)


def on_likelihood_and_beliefs(logits: Tensor, targets: Tensor) -> Tensor:
    """The likelihood of a row's reports, and cross entropy on what is believed of it otherwise, times its weight.

    The first K columns are log P(reports | label), 0 where there are none; the others are weighted beliefs, likewise 0.
    """
    log_likelihood, weights = targets.chunk(2, dim=1)
    return on_likelihood(logits, log_likelihood) + on_weights(logits, weights)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Which rows to train on, what is known about each, and the loss that reads it."""

    rows: np.ndarray
    targets: Tensor
    loss: Loss
    n_classes: int

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, releases: Examples | Sequence[Examples], loss: str, *, smoothing: float = 0.0) -> TrainingSet:
        """Read releases for a loss; `smoothing` is the share of each target that goes to all classes alike."""
        local, beliefs = evidence.apart(evidence.checked(releases))
        if loss == "likelihood":
            return _of_likelihoods(local, beliefs, smoothing)
        return _of_labels(local, beliefs, smoothing, debiased=loss == "debiased")


def _of_labels(
    local: list[Release | Filtered], beliefs: list[Beliefs], smoothing: float, *, debiased: bool
) -> TrainingSet:
    if not debiased and not beliefs:
        noted, labels = evidence.noisy_labels(local)
        loss = partial(on_labels, smoothing=smoothing)
        return TrainingSet(noted, torch.from_numpy(labels), loss, len(evidence.classes_of(local[0])))
    rows = [_release(each).rows[_kept(each)] for each in local] + [each.rows for each in beliefs]
    weights = [_weights(each, debiased) for each in local] + [each.weighted for each in beliefs]
    targets = _tensor(smoothed(np.concatenate(weights), smoothing))
    return TrainingSet(np.concatenate(rows), targets, on_weights, targets.shape[1])


def _of_likelihoods(local: list[Release | Filtered], beliefs: list[Beliefs], smoothing: float) -> TrainingSet:
    if not local:
        return _of_labels(local, beliefs, smoothing, debiased=False)
    reported, logs = evidence.log_likelihoods(local)
    n_classes = logs.shape[1]
    if not beliefs:
        return TrainingSet(reported, _tensor(logs), on_likelihood, n_classes)
    rows = np.unique(np.concatenate([reported, *(each.rows for each in beliefs)]))
    targets = np.zeros((len(rows), 2 * n_classes))
    targets[np.searchsorted(rows, reported), :n_classes] = logs
    for each in beliefs:
        targets[np.searchsorted(rows, each.rows), n_classes:] += smoothed(each.weighted, smoothing)
    return TrainingSet(rows, _tensor(targets), on_likelihood_and_beliefs, n_classes)


def smoothed(weights: np.ndarray, share: float) -> np.ndarray:
    """Return soft targets of which a share is taken from each row's labels and dealt to all alike: label smoothing."""
    return (1 - share) * weights + share * weights.mean(axis=1, keepdims=True)


def _release(each: Release | Filtered) -> Release:
    return each.release if isinstance(each, Filtered) else each


def _kept(each: Release | Filtered) -> np.ndarray:
    return each.kept if isinstance(each, Filtered) else np.ones(len(each), dtype=np.bool_)


def _weights(each: Release | Filtered, debiased: bool) -> np.ndarray:
    release = _release(each)
    if debiased:
        return release.debiased_weights(_kept(each))
    return np.eye(len(release.classes))[release.label_numbers[_kept(each)]]


def _tensor(table: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(table, dtype=np.float32))
