"""Ratings from noisy sums, for a curator: sums over public pieces of items, then of users, and a linear model of them.

An item's raters are cut into pieces of raters who are alike by public coordinates, and so are a user's items. A sum's noise is
the same for a piece of one rating and of a thousand, so that pieces are as large as epsilon demands, and no larger: their
differences are what tells of tastes. All sums are then explained together by one Gaussian model, whose priors do the shrinking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labeldp import checks
from labeldp.budget import Epsilon, Guarantee
from labeldp.errors import BudgetExhausted, InvalidArgument, TrustError
from labeldp.files import renamed_when_whole
from labeldp.learning.linear_ratings import Floats, Index, Numbers, Pieces, explained
from labeldp.mechanisms import Sums
from labeldp.vault import LabelHolder, SumRelease

ROUNDS = (("items", 1), ("users", 0))
"""What is asked, in order, and the column of the pairs that owns the pieces."""
CODE_BITS = 8
SPREAD = 0.8
"""Variance of a rating around what a model can say of it: errors that are published for five stars are about 0.9."""
PIECE = 0.5
"""The variance of a piece's ratings, taken together, over that of its sum's noise."""


@dataclass
class RatingSums:
    """Predicts ratings from sums over pieces of items and of users.

    Parameters
    ----------
    coordinates : of users and of items, as `labeldp.features.pairs.pair_coordinates` gives them. Public.
    share : of epsilon that the items' sums cost; the users' cost the rest.

    Privacy
    -------
    epsilon-label-DP per rating, not per person, for a curator: a rating is in one piece of an item, charged the share of
    epsilon, and in one piece of a user, charged the rest. Pieces depend on who rated what alone.
    """

    coordinates: tuple[Floats, Floats]
    share: float = 0.4

    sums_: list[SumRelease] = field(default_factory=list, init=False, repr=False)
    numbers_: Numbers | None = field(default=None, init=False, repr=False)

    def epsilons(self, epsilon: Any) -> tuple[Epsilon, Epsilon]:
        """Return what each round costs: together all of epsilon, exactly."""
        whole = Epsilon.of(epsilon).units
        if not 0 < self.share < 1 or not 0 < (part := round(self.share * whole)) < whole:
            raise InvalidArgument(f"share must be a part of epsilon between 0 and 1, got {self.share}.")
        return Epsilon(part), Epsilon(whole - part)

    def fit(
        self,
        pairs: Index,
        vault: LabelHolder,
        epsilon: Any,
        *,
        rows: Any = None,
        name: str | None = None,
        folder: Path | None = None,
        answered: Callable[[str, SumRelease], None] = lambda stage, release: None,  # noqa: ARG005
    ) -> RatingSums:
        """Ask for the sums of both rounds and fit the model to them.

        Parameters
        ----------
        pairs : (n, 2) user and item numbers, one row per row of the vault.
        rows : which rows to use; by default all that have a label. Public.
        name : under which the vault can be asked again, at no cost, after a crash.
        folder : where pieces and sums are kept, and read back from: a round whose sums are there asks nothing.
        answered : called when the vault has answered, before that is stored in `folder`.
        """
        use = checks.rows(vault.labelled if rows is None else rows, len(vault))
        costs = self.epsilons(epsilon)
        self._check(pairs, vault, use, Guarantee.of(epsilon), may_be_paid=name is not None)
        mechanisms = [Sums(cost, min(vault.classes), max(vault.classes)) for cost in costs]
        chosen, self.sums_, told = pairs[use], [], []
        for (kind, side), mechanism in zip(ROUNDS, mechanisms, strict=True):
            size = PIECE * noise_variance(mechanism) / SPREAD
            groups = _kept(folder, f"pieces-{kind}", lambda s=side, n=size: self.groups(chosen, s, n))  # type: ignore[misc]
            stage = f"release-{kind}"
            if folder is not None and (folder / f"{stage}.json").exists():
                release = SumRelease.load(folder / stage)
            else:
                release = vault.sums(
                    groups,
                    low=mechanism.low,
                    high=mechanism.high,
                    epsilon=mechanism.epsilon,
                    rows=use,
                    source=f"pieces of {kind}: raters or items that are alike by who rated what, which is public",
                    name=None if name is None else f"{name}: {stage}",
                )
                answered(stage, release)
                if folder is not None:
                    release.save(folder / stage)
            _check_ours(vault, release, mechanism, use, groups)
            self.sums_.append(release)
            told.append(Pieces.of(groups, chosen, side, self.coordinates))
        middle = (mechanisms[0].low + mechanisms[0].high) / 2
        sums = [release.sums - middle * each.sizes for release, each in zip(self.sums_, told, strict=True)]
        spreads = [SPREAD * each.sizes + noise_variance(how) for each, how in zip(told, mechanisms, strict=True)]
        found = explained(told, sums, spreads, self.coordinates)
        self.numbers_ = found._replace(mean=found.mean + middle)
        return self

    def predict(self, pairs: Index) -> Floats:
        """Return expected ratings, within the bounds."""
        if self.numbers_ is None:
            raise InvalidArgument("this RatingSums has not been fitted: call fit(pairs, vault, epsilon) first.")
        found = np.arange(len(pairs))  # every row a piece of its own
        rows = Pieces.of(found, pairs, 0, self.coordinates)
        return np.clip(rows.sums(self.numbers_), self.sums_[0].low, self.sums_[0].high)

    def groups(self, pairs: Index, side: int, size: float) -> Index:
        """Return the piece of every row: a thing's rows by the code of the other side, in even parts of about a size."""
        own, code = pairs[:, side], codes(self.coordinates[1 - side])[pairs[:, 1 - side]]
        order = np.lexsort((pairs[:, 1 - side], code, own))
        counts = np.bincount(own, minlength=len(self.coordinates[side]))
        parts = np.maximum(1, np.rint(counts / size)).astype(np.int64)
        sorted_own = own[order]
        place = np.arange(len(own)) - (np.cumsum(counts) - counts)[sorted_own]
        part = (np.cumsum(parts) - parts)[sorted_own] + place * parts[sorted_own] // counts[sorted_own]
        groups = np.empty(len(own), dtype=np.int64)
        groups[order] = np.unique(part, return_inverse=True)[1]  # things without rows have no piece
        return groups

    def _check(self, pairs: Index, vault: LabelHolder, use: Index, cost: Guarantee, *, may_be_paid: bool) -> None:
        """Raise whatever can be known to stop the rounds, before anything is asked."""
        if vault.trust != "curator":
            raise TrustError(
                "sums aggregate labels before adding noise, which a local vault never does. If the label holder is trusted "
                "with that, open it with trust='curator'."
            )
        if not all(type(rating) is int for rating in vault.classes):
            raise InvalidArgument("the classes of the vault must be whole numbers, such as ratings from 1 to 5.")
        if np.shape(pairs) != (len(vault), 2) or not np.issubdtype(pairs.dtype, np.integer):
            raise InvalidArgument(f"pairs must be two whole numbers for each of {len(vault)} rows of the vault.")
        sizes = [len(each) for each in self.coordinates]
        if not ((pairs >= 0) & (pairs < sizes)).all():
            raise InvalidArgument(f"pairs must number {sizes[0]} users and {sizes[1]} items, from 0.")
        if may_be_paid and vault.spent(use) != Guarantee(0):
            return
        if not (left := vault.remaining(use)) >= cost:
            raise BudgetExhausted(f"both rounds together need {cost} for every row, and {left} is left for some.")


def noise_variance(mechanism: Sums) -> float:
    """Return the variance of a sum's noise; that of the discrete Laplace is a little less than the 2 s^2 of the other."""
    return 2 * float(mechanism.scale) ** 2


def codes(coordinates: Floats) -> Index:
    """Return a number for each thing: those with the same number lie on the same side of the median in the leading coordinates.

    The first coordinate, how much there is of a thing, is left out. Nearby numbers differ in the later coordinates alone.
    """
    leading = coordinates[:, 1 : 1 + CODE_BITS]
    return np.packbits(leading > np.median(leading, axis=0), axis=1)[:, 0].astype(np.int64)


def _kept(folder: Path | None, name: str, make: Callable[[], Index]) -> Index:
    """Return groups as they were first made: after a crash the vault must be asked the very same again."""
    if folder is None:
        return make()
    file = folder / f"{name}.npz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with renamed_when_whole(file) as out:
            np.savez_compressed(out, allow_pickle=False, groups=make())
    with np.load(file, allow_pickle=False) as stored:
        return stored["groups"]  # type: ignore[no-any-return]


def _check_ours(vault: LabelHolder, release: SumRelease, mechanism: Sums, rows: Index, groups: Index) -> None:
    """Raise unless sums, which may come from a file, are this vault's answer to this question."""
    same = np.array_equal(release.rows, rows) and np.array_equal(release.groups, groups)
    cost = release.receipt.epsilon == str(mechanism.epsilon) and release.receipt.query == "sums"
    bounds = (release.low, release.high) == (mechanism.low, mechanism.high)
    if not (same and cost and bounds and vault.recognises(release)):
        raise InvalidArgument(
            "the sums in the folder are not this vault's answer to what is asked: use another folder."
        )
