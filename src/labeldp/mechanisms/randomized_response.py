"""Randomized response (Warner 1965): the label itself, or another one."""

from __future__ import annotations

from dataclasses import dataclass

from labeldp.budget.epsilon import EpsilonLike
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.groups import OwnGroups
from labeldp.mechanisms.local import GroupMechanism, Priors


@dataclass(frozen=True)
class RandomizedResponse(GroupMechanism):
    """Answer with the true label at odds e^epsilon : 1 against each other label.

    Privacy
    -------
    epsilon-label-DP per row; neighbours differ in one label. Public: epsilon, class list. Secret: label.
    Proof: docs/proofs/response.md; every label is its own group, whatever the label.

    >>> law = RandomizedResponse(epsilon="1").law(0, [0.5, 0.5])
    >>> {report: round(float(chance), 3) for report, chance in law.items()}
    {0: 0.731, 1: 0.269}
    """

    epsilon: EpsilonLike

    cells_at_once = 2**24  # the priors are not looked at, so they need not fit a cache

    def deal(self, priors: Priors, dealing: Dealing) -> OwnGroups:  # noqa: ARG002 - only the shape of the prior counts
        return OwnGroups(*priors.shape)
