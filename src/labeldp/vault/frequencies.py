"""Class frequencies from noisy reports: unbiased, with standard errors, or an honest refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import NotIdentifiable
from labeldp.mechanisms.channel import Channel, ReleasedChannel, Response, Table, Truth
from labeldp.mechanisms.groups import OwnGroups, rows_per_chunk

Floats = NDArray[np.float64]

LARGEST_INVERSION = 2_000
SINGULAR = 1e-9


@dataclass(frozen=True, eq=False)
class ClassFrequencies:
    """The share of each class among the released rows.

    The estimates are unbiased, so they may be negative, and sum to 1 only on average where reports are groups. The
    standard errors are those of the rows as a random
    sample of a population; for these very rows the error is somewhat smaller.

    Attributes
    ----------
    classes, estimates, standard_errors : one of each per class.
    assumes : what must hold for the estimates to be unbiased, None if nothing: where rows have maps of their own (their own
        priors), a row's label must not depend on which map it got.
    """

    classes: tuple[Any, ...]
    estimates: Floats
    standard_errors: Floats
    assumes: str | None


def class_frequencies(
    channel: ReleasedChannel, reports: NDArray[Any], classes: tuple[Any, ...], *, own_maps: bool
) -> ClassFrequencies:
    """Invert the channel averaged over rows: E[likelihood of the report] = (average of P P^T) x frequencies.

    With one map for all rows this is the textbook inversion. With maps dealt at random from one prior, the average over rows
    tells classes apart that no single row can. `own_maps` says that rows had priors of their own.
    """
    n_classes = channel.n_classes
    if isinstance(channel, Truth):
        shares = np.bincount(reports, minlength=n_classes) / len(reports)
        return ClassFrequencies(classes, shares, np.zeros(n_classes), None)
    if isinstance(channel, Response) and isinstance(channel.groups, OwnGroups):
        return _of_randomized_response(channel, reports, classes)
    if n_classes > LARGEST_INVERSION:
        raise NotIdentifiable(f"frequencies of more than {LARGEST_INVERSION} classes need plain RandomizedResponse.")
    mean, second, average = _moments(channel, reports)
    eigenvalues, vectors = np.linalg.eigh(average)
    if eigenvalues[0] <= SINGULAR * eigenvalues[-1]:
        raise NotIdentifiable(_which_classes(vectors[:, eigenvalues <= SINGULAR * eigenvalues[-1]], classes))
    inverse = np.linalg.inv(average)
    spread = inverse @ (second - np.outer(mean, mean)) @ inverse.T / len(reports)
    estimates = inverse @ mean
    return ClassFrequencies(
        classes, estimates, np.sqrt(np.diag(spread)), "a row's label does not depend on its map" if own_maps else None
    )


def _of_randomized_response(channel: Response, reports: NDArray[Any], classes: tuple[Any, ...]) -> ClassFrequencies:
    n, n_classes = len(reports), len(classes)
    total = channel.total(n_classes)
    gain, floor = channel.odds.excess / total, channel.odds.other / total
    if gain == 0:
        raise NotIdentifiable(
            "epsilon is so small that the reports do not depend on the labels: no class can be told apart."
        )
    shares = np.bincount(reports, minlength=n_classes) / n
    return ClassFrequencies(classes, (shares - floor) / gain, np.sqrt(shares * (1 - shares) / n) / gain, None)


def _moments(channel: Channel, reports: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """Return mean and second moment of the likelihood vectors, and the channel's average Gram matrix."""
    n, n_classes = len(reports), channel.n_classes
    mean, second, gram = np.zeros(n_classes), np.zeros((n_classes, n_classes)), np.zeros((n_classes, n_classes))
    step = rows_per_chunk(n_classes)
    for start in range(0, n, step):
        index = np.arange(start, min(start + step, n))
        likelihood = channel.likelihood(reports, index)
        mean += likelihood.sum(axis=0)
        second += likelihood.T @ likelihood
        gram += _gram(channel, index)
    return mean / n, second / n, gram / n


def _gram(channel: Channel, index: NDArray[np.int64]) -> Floats:
    """Return the sum over rows and possible reports r of P(r | .) P(r | .)^T."""
    if isinstance(channel, Table):
        chances = np.array([[int(w) / channel.total for w in row] for row in channel.weights])
        return len(index) * (chances @ chances.T)
    gram = np.zeros((channel.n_classes, channel.n_classes))
    sizes = channel.groups.sizes[index]
    for report in range(int(sizes.max())):
        rows = index[sizes > report]
        likelihood = channel.likelihood(np.broadcast_to(np.int64(report), channel.n_rows), rows)
        gram += likelihood.T @ likelihood
    return gram


def _which_classes(null_space: Floats, classes: tuple[Any, ...]) -> str:
    involved = [str(classes[place]) for place in np.flatnonzero((np.abs(null_space) > 1e-6).any(axis=1))]
    shown = ", ".join(involved[:20]) + (", .." if len(involved) > 20 else "")
    return (
        f"these classes cannot be told apart from this release: {shown}. "
        "Release with RandomizedResponse, or GroupedResponse with one prior for all rows."
    )
