"""Ratings from noisy sums, for a curator: sums over public pieces of items, then of users, and a linear model of them.

An item's raters are cut into pieces of raters who are alike by public coordinates, and so are a user's items. A sum's noise is
the same for a piece of one rating and of a thousand, so that pieces are as large as epsilon demands, and no larger: their
differences are what tells of tastes. All sums are then explained together by one Gaussian model, whose priors do the shrinking.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument, TrustError
from labeldp.learning.linear_ratings import Floats, Index, Numbers, Pieces, explained
from labeldp.learning.questions import Question, check_budget, is_stored, name_of
from labeldp.mechanisms import Sums
from labeldp.vault import LabelHolder, SumRelease

ROUNDS = (("items", 1), ("users", 0))
"""What is asked, in order, and the column of the pairs that owns the pieces."""
CODE_BITS = 8
SPREAD = 0.8
"""Variance of a rating around what a model can say of it: errors that are published for five stars are about 0.9."""


@dataclass(frozen=True, eq=False)
class Round:
    """One question: sums over the pieces of items, or of users."""

    kind: str
    side: int
    mechanism: Sums
    groups: Index

    @property
    def stage(self) -> str:
        return f"release-{self.kind}"

    def is_answer(self, release: SumRelease, rows: Index) -> bool:
        """Return whether sums, which may come from a file, answer this question."""
        same = np.array_equal(release.rows, rows) and np.array_equal(release.groups, self.groups)
        cost = release.receipt.epsilon == str(self.mechanism.epsilon) and release.receipt.query == "sums"
        return same and cost and (release.low, release.high) == (self.mechanism.low, self.mechanism.high)


@dataclass
class RatingSums:
    """Predicts ratings from sums over pieces of items and of users.

    Parameters
    ----------
    coordinates : of users and of items, as `labeldp.features.pairs.pair_coordinates` gives them. Public.
    share : of epsilon that the items' sums cost; the users' cost the rest.
    piece : the variance of a piece's ratings, taken together, over that of its sum's noise: how large pieces are.

    Privacy
    -------
    epsilon-label-DP per rating, not per person, for a curator: a rating is in one piece of an item, charged the share of
    epsilon, and in one piece of a user, charged the rest. Pieces depend on who rated what alone.
    """

    coordinates: tuple[Floats, Floats]
    share: float = 0.4
    piece: float = 0.5

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
        folder : where sums are kept, and read back from: a round whose sums are there asks nothing. Sums over other pieces than
            these pairs make are refused, before anything is asked.
        answered : called when the vault has answered, before that is stored in `folder`.
        """
        use = checks.rows(vault.labelled if rows is None else rows, len(vault))
        costs = self.epsilons(epsilon)
        self._check(pairs, vault)
        rounds = self.rounds(pairs[use], [Sums(cost, min(vault.classes), max(vault.classes)) for cost in costs])
        kept = _read_back(folder, rounds, vault, use)
        questions = [Question(each.stage, use, cost) for each, cost in zip(rounds, costs, strict=True)]
        check_budget(vault, questions, name=name, folder=folder)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)  # before anything is spent that must be stored in it
        self.sums_ = []
        for each in rounds:
            if (release := kept.get(each.stage)) is None:
                release = vault.sums(
                    each.groups,
                    low=each.mechanism.low,
                    high=each.mechanism.high,
                    epsilon=each.mechanism.epsilon,
                    rows=use,
                    source=f"pieces of {each.kind}: raters or items that are alike by who rated what, which is public",
                    name=name_of(name, each.stage),
                )
                answered(each.stage, release)
                if folder is not None:
                    release.save(folder / each.stage)
            self.sums_.append(release)
        told = [Pieces.of(each.groups, pairs[use], each.side, self.coordinates) for each in rounds]
        middle = (self.sums_[0].low + self.sums_[0].high) / 2
        sums = [release.sums - middle * each.sizes for release, each in zip(self.sums_, told, strict=True)]
        noises = [noise_variance(each.mechanism) for each in rounds]
        spreads = [SPREAD * each.sizes + noise for each, noise in zip(told, noises, strict=True)]
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

    def rounds(self, pairs: Index, mechanisms: list[Sums]) -> list[Round]:
        """Return what is asked, with its pieces: they are made from the pairs each time, and never believed from a file."""
        sizes = [self.piece * noise_variance(each) / SPREAD for each in mechanisms]
        pieces = [self.groups(pairs, side, size) for (_, side), size in zip(ROUNDS, sizes, strict=True)]
        return [Round(*of, how, groups) for of, how, groups in zip(ROUNDS, mechanisms, pieces, strict=True)]

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

    def _check(self, pairs: Index, vault: LabelHolder) -> None:
        """Raise whatever can be known to stop the rounds, before anything is asked."""
        if not 0 < self.piece < math.inf:
            raise InvalidArgument(f"piece must be a number above 0, got {self.piece}.")
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


def noise_variance(mechanism: Sums) -> float:
    """Return the variance of a sum's noise; that of the discrete Laplace is a little less than the 2 s^2 of the other."""
    return 2 * float(mechanism.scale) ** 2


def codes(coordinates: Floats) -> Index:
    """Return a number for each thing: those with the same number lie on the same side of the median in the leading coordinates.

    The first coordinate, how much there is of a thing, is left out. Nearby numbers differ in the later coordinates alone.
    """
    leading = coordinates[:, 1 : 1 + CODE_BITS]
    return np.packbits(leading > np.median(leading, axis=0), axis=1)[:, 0].astype(np.int64)


def _read_back(folder: Path | None, rounds: list[Round], vault: LabelHolder, rows: Index) -> dict[str, SumRelease]:
    """Return the sums that are in the folder, by stage; raise unless they are this vault's answers to these questions."""
    kept = {}
    for each in rounds:
        if folder is not None and is_stored(folder, each.stage):
            kept[each.stage] = SumRelease.load(folder / each.stage)
            if not each.is_answer(kept[each.stage], rows) or not vault.recognises(kept[each.stage]):
                raise InvalidArgument(
                    f"the {each.stage} in {folder} is not this vault's answer to what is asked: use another folder."
                )
    return kept
