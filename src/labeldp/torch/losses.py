"""What a release says about each row, as tensors, and the losses that read it.

Every loss returns one number per row, so that mixup is lam loss(report_i) + (1 - lam) loss(report_j) for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labeldp.learning import evidence
from labeldp.learning.learner import Examples, Filtered
from labeldp.vault import HistogramRelease, Release

Loss = Callable[[Tensor, Tensor], Tensor]

LOSSES = ("noisy-label", "debiased", "likelihood")


def on_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy on one noisy label per row."""
    return functional.cross_entropy(logits, labels, reduction="none")


def on_weights(logits: Tensor, weights: Tensor) -> Tensor:
    """Sum over labels of weight times cross entropy: soft targets, or debiased ones, which may be negative."""
    return -(weights * functional.log_softmax(logits, dim=1)).sum(dim=1)


def on_likelihood(logits: Tensor, log_likelihood: Tensor) -> Tensor:
    """-log sum_y softmax_y P(report | y), without ever leaving logarithms."""
    return -torch.logsumexp(functional.log_softmax(logits, dim=1) + log_likelihood, dim=1)


def on_likelihood_or_shares(logits: Tensor, targets: Tensor) -> Tensor:
    """The likelihood of local reports, and cross entropy on the shares of a histogram; the last column tells them apart."""
    given, shares = targets[:, :-1], targets[:, -1] > 0
    local = on_likelihood(logits, torch.where(shares[:, None], 0.0, given))
    return torch.where(shares, on_weights(logits, torch.where(shares[:, None], given, 0.0)), local)


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
    def of(cls, releases: Examples | Sequence[Examples], loss: str) -> TrainingSet:
        given = evidence.checked(releases)
        histograms = [each for each in given if isinstance(each, HistogramRelease)]
        local = [each for each in given if not isinstance(each, HistogramRelease)]
        if loss == "likelihood":
            return _of_likelihoods(local, histograms)
        return _of_labels(local, histograms, debiased=loss == "debiased")


def _of_labels(local: list[Release | Filtered], histograms: list[HistogramRelease], *, debiased: bool) -> TrainingSet:
    if not debiased and not histograms:
        noted, labels = evidence.noisy_labels(local)
        return TrainingSet(noted, torch.from_numpy(labels), on_labels, len(evidence.classes_of(local[0])))
    rows = [_release(each).rows[_kept(each)] for each in local] + [each.rows for each in histograms]
    weights = [_weights(each, debiased) for each in local] + [_shares(each) for each in histograms]
    targets = _tensor(np.concatenate(weights))
    return TrainingSet(np.concatenate(rows), targets, on_weights, targets.shape[1])


def _of_likelihoods(local: list[Release | Filtered], histograms: list[HistogramRelease]) -> TrainingSet:
    rows, logs = np.empty(0, dtype=np.int64), np.empty((0, 0))
    if local:
        rows, logs = evidence.log_likelihoods(local)
    if not histograms:
        return TrainingSet(rows, _tensor(logs), on_likelihood, logs.shape[1])
    shares = np.concatenate([_shares(each) for each in histograms])
    tables = [
        np.pad(table, ((0, 0), (0, 1)), constant_values=mark) for table, mark in ((logs, 0), (shares, 1)) if len(table)
    ]
    rows = np.concatenate([rows, *(each.rows for each in histograms)])
    return TrainingSet(rows, _tensor(np.concatenate(tables)), on_likelihood_or_shares, shares.shape[1])


def _release(each: Release | Filtered) -> Release:
    return each.release if isinstance(each, Filtered) else each


def _kept(each: Release | Filtered) -> np.ndarray:
    return each.kept if isinstance(each, Filtered) else np.ones(len(each), dtype=np.bool_)


def _weights(each: Release | Filtered, debiased: bool) -> np.ndarray:
    release = _release(each)
    if debiased:
        return release.debiased_weights(_kept(each))
    return np.eye(len(release.classes))[release.label_numbers[_kept(each)]]


def _shares(histogram: HistogramRelease) -> np.ndarray:
    """Return, for each row, the shares of the classes in its group; equal ones where the group is empty."""
    counts = histogram.projected()
    totals = counts.sum(axis=1, keepdims=True)
    uniform = np.full_like(counts, 1 / counts.shape[1])
    return np.divide(counts, totals, out=uniform, where=totals > 0)[histogram.groups]


def _tensor(table: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(table, dtype=np.float32))
