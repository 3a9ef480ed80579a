"""The frame of every local mechanism: a public map dealt from the prior; the rest is written once.

A new mechanism is one frozen dataclass with an `epsilon` and a method `deal`. It never sees a label, so it cannot break the
guarantee: the vault reads `epsilon` once, makes the odds from it, and draws over whatever groups were dealt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget.epsilon import Epsilon, EpsilonLike, Odds
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.channel import Report, Response
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.groups import Groups

Priors = NDArray[np.floating[Any]]


class LocalMechanism(ABC):
    """Randomizes each label on its own. Final subclasses are frozen dataclasses with an `epsilon`."""

    needs_priors: ClassVar[bool] = False
    deals_at_random: ClassVar[bool] = False
    cells_at_once: ClassVar[int] = 2**18  # rows x classes that `deal` is given in one call

    epsilon: EpsilonLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", Epsilon.of(self.epsilon))

    @abstractmethod
    def law(self, label: int, prior: Any, *, dealing: int = 0) -> dict[Report, Fraction]:
        """Return the exact distribution of the report of a row with this label and prior.

        Parameters
        ----------
        label : the true label, from 0 to K - 1.
        prior : a row of K probabilities.
        dealing : the dealing key, where the dealing is random; 0 means no noise in the order.
        """

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters as JSON values, for receipts and certificates."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    @property
    def realised_epsilon(self) -> float:
        """The epsilon of the integer odds that are drawn with: at most the one asked for, and less than 1e-9 below it."""
        return Odds.within(Epsilon.of(self.epsilon)).realised_epsilon


class GroupMechanism(LocalMechanism):
    """Randomized response over the groups that `deal` makes from public things alone."""

    @abstractmethod
    def deal(self, priors: Priors, dealing: Dealing) -> Groups:
        """Return the groups of each row, from its prior and the public dealing noise."""

    def response(self, priors: Priors, *, dealing: int = 0) -> Response:
        """Return the channel of rows 0, 1, .. with these priors under a dealing key: for studies and plans, without labels."""
        groups = self.deal(priors, Dealing.of_rows(dealing, np.arange(len(priors))))
        return Response(groups, Odds.within(Epsilon.of(self.epsilon)))

    def law(self, label: int, prior: Any, *, dealing: int = 0) -> dict[Report, Fraction]:
        row = np.asarray(prior)
        if row.ndim != 1:
            raise InvalidArgument(f"prior must be one row of probabilities, got shape {row.shape}.")
        n_classes = checks.integer(at_least=2, at_most=checks.MAX_CLASSES, **{"the length of prior": len(row)})
        checks.integer(label=label, at_least=0, at_most=n_classes - 1)
        return self.response(checks.probabilities(row[None], 1, n_classes), dealing=dealing).law(0, label)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, str, type(None))) else str(value)
