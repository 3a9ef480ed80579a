"""RRWithPrior, Algorithm 2 of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labeldp.budget.epsilon import Epsilon, EpsilonLike, Odds
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.groups import Candidates, Index
from labeldp.mechanisms.local import GroupMechanism, Priors
from labeldp.mechanisms.top_k import most_likely


@dataclass(frozen=True)
class RRWithPrior(GroupMechanism):
    """Randomize a label over as many likely ones as make the answer most often right.

    k* maximises w_k = e^epsilon / (e^epsilon + k - 1) x (prior mass of the k most likely labels), which no epsilon-DP
    answer can beat (Theorem 3). Of equally good k the smallest is taken, of equally likely labels the first in the class
    list; both depend on the prior alone.

    Privacy
    -------
    epsilon-label-DP per row; neighbours differ in one label. Public: prior, epsilon. Secret: label.
    Proof: docs/proofs/response.md; k* and the candidates depend on the prior alone.

    >>> sorted(RRWithPrior(epsilon="0.5").law(0, [0.1] * 10)) == list(range(10))
    True
    """

    epsilon: EpsilonLike

    def deal(self, priors: Priors, dealing: Dealing) -> Candidates:  # noqa: ARG002 - nothing is left to chance
        ascending = np.sort(priors, axis=1)
        return most_likely(priors, ascending, self.best_k(ascending))

    def best_k(self, ascending: Priors) -> Index:
        """Return k* for each row of sorted priors.

        w_{k+1} > w_k exactly when p_(k+1) (e^epsilon + k - 1) > p_(1) + .. + p_(k). Once that fails it fails for all
        larger k: the sum over e^epsilon + k - 1 is an average to which no smaller p is ever equal again.
        """
        odds = Odds.within(Epsilon.of(self.epsilon))
        ratio = odds.keep / odds.other
        likeliest_first = ascending[:, ::-1].T
        mass = likeliest_first[0].astype(np.float64)
        k = np.ones(len(ascending), dtype=np.int64)
        for so_far, p in enumerate(likeliest_first[1:], start=1):
            grows = p.astype(np.float64) * (ratio + so_far - 1) > mass  # in 32 bits a ratio of 1 + 1e-8 would be 1
            if not grows.any():
                break
            k += grows
            mass += p
        return k
