"""RRTop-k, Algorithm 1 of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.epsilon import EpsilonLike
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.groups import Candidates, Index, unsigned
from labeldp.mechanisms.local import GroupMechanism, Priors


@dataclass(frozen=True)
class RRTopK(GroupMechanism):
    """Randomize a label over the k most likely ones; any other label answers uniformly.

    Ties between equally likely labels go to the one that comes first in the class list.

    Privacy
    -------
    epsilon-label-DP per row; neighbours differ in one label. Public: prior, k, epsilon. Secret: label.
    Proof: docs/proofs/response.md; the candidates depend on the prior alone.

    >>> law = RRTopK(epsilon="1", k=2).law(2, [0.5, 0.3, 0.2])
    >>> {report: str(chance) for report, chance in law.items()}
    {0: '1/2', 1: '1/2'}
    """

    epsilon: EpsilonLike
    k: int

    needs_priors = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer(k=self.k, at_least=1, at_most=checks.MAX_CLASSES)

    def deal(self, priors: Priors, dealing: Dealing) -> Candidates:  # noqa: ARG002 - nothing is left to chance
        n_rows, n_classes = priors.shape
        if self.k > n_classes:
            raise InvalidArgument(f"k must be at most the number of classes ({n_classes}), got {self.k}.")
        return most_likely(priors, np.sort(priors, axis=1), np.full(n_rows, self.k, dtype=np.int64))


def most_likely(priors: Priors, ascending: Priors, k: Index) -> Candidates:
    """Return the k[i] most likely labels of each row i, given the priors and the same priors sorted."""
    n_rows, n_classes = priors.shape
    row = np.arange(n_rows)
    least = ascending[row, n_classes - k]
    chosen = priors >= least[:, None]
    tied = np.flatnonzero((k < n_classes) & (ascending[row, np.maximum(n_classes - k - 1, 0)] == least))
    if len(tied):
        chosen[tied] = _first_of_tied(priors[tied], k[tied])
    members = np.flatnonzero(chosen) % n_classes
    return Candidates(members.astype(unsigned(n_classes)), k, n_classes)


def _first_of_tied(priors: Priors, k: Index) -> NDArray[np.bool_]:
    order = np.argsort(-priors, axis=1, kind="stable")
    chosen = np.zeros(priors.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, np.arange(priors.shape[1]) < k[:, None], axis=1)
    return chosen
