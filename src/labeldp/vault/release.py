"""What leaves the vault for learning: noisy reports and their public noise law."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.budget import Epsilon, Odds
from labeldp.errors import InvalidArgument
from labeldp.mechanisms.channel import ReleasedChannel, Response, Table, Truth, channel_from
from labeldp.mechanisms.groups import NO_GROUP, Candidates, DealtGroups, Groups, OwnGroups
from labeldp.mechanisms.keep_or_draw import KeepOrDraw
from labeldp.vault.files import Arrays, Facts, Stored
from labeldp.vault.frequencies import ClassFrequencies, class_frequencies
from labeldp.vault.labels import Classes
from labeldp.vault.receipt import Receipt

KIND = "release"
NOTHING_TO_DEBIAS = "at an epsilon this small the reports say nothing: there is nothing to debias."


@dataclass(frozen=True, eq=False)
class Release(Stored):
    """One noisy report per row, with the exact law it was drawn from. Everything here is public.

    Attributes
    ----------
    reports : the reported group (or output) of each row.
    rows : the vault's row numbers, in order.
    classes : the declared class names.
    receipt : what was asked and what it cost.
    """

    reports: NDArray[Any]
    rows: NDArray[np.int64]
    classes: tuple[Any, ...]
    channel: ReleasedChannel
    outputs: tuple[Fraction, ...] | None
    receipt: Receipt

    def __post_init__(self) -> None:
        self.reports.flags.writeable = False
        self.rows.flags.writeable = False

    def __len__(self) -> int:
        return len(self.reports)

    @property
    def groups(self) -> Groups:
        """The public map from label to group, row by row."""
        if isinstance(self.channel, Table):
            raise InvalidArgument("this release was drawn from a table of outputs; it has `values`, not groups.")
        return self.channel.groups

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Between how many different reports each row's draw chose: the k or m of its groups, or a table's outputs."""
        if isinstance(self.channel, Table):
            return np.full(len(self), self.channel.weights.shape[1])
        return self.channel.groups.sizes

    @property
    def labels(self) -> NDArray[Any]:
        """One noisy label per row, as class names."""
        return Classes(self.classes).decode(self.label_numbers)

    @property
    def label_numbers(self) -> NDArray[np.int64]:
        """One noisy label per row, as class numbers 0 .. K - 1."""
        groups = self.groups
        if isinstance(groups, (OwnGroups, Candidates)):
            return groups.labels_of(self.reports)
        assert isinstance(groups, DealtGroups)
        members = groups.groups == self.reports[:, None]
        if not (members.sum(axis=1) == 1).all():
            raise InvalidArgument(
                "a report of this release is a group that may hold several labels, so there is no one noisy label per row. "
                "Train on release.likelihood(), or release with RRWithPrior for single labels."
            )
        return members.argmax(axis=1)

    @property
    def values(self) -> NDArray[np.float64]:
        """One number per row whose mean is the true value exactly (UnbiasedResponse)."""
        if self.outputs is None:
            raise InvalidArgument("only a release by UnbiasedResponse has unbiased values.")
        return np.array([float(value) for value in self.outputs])[self.reports]

    def likelihood(self, rows: Any = None) -> NDArray[np.float64]:
        """Return P(this report | true label = y) for every label y.

        Parameters
        ----------
        rows : positions within this release, in any order, or a mask over it; None means all.

        Returns
        -------
        array of shape (rows, K). Each row of it is a likelihood, not a distribution: it need not sum to 1.
        """
        return self.channel.likelihood(self.reports, self._positions(rows))

    def debiased_weights(self, rows: Any = None) -> NDArray[np.float64]:
        """Return c such that the sum of c_y loss(y) over labels y has mean loss(true label): the debiased loss of Appendix G.

        With k candidates and p = 1 / (e^epsilon + k - 1): c_y = (1[y is reported] - p) / (1 - k p) for the candidates, and 0
        for other labels. The mean is exact where the true label is a candidate. For reports of single labels only.
        ClusterRR: c_y = (1[y is reported] - lambda q_y) / (1 - lambda), with a mean that is exact for every label.
        """
        index = self._positions(rows)
        if isinstance(self.channel, KeepOrDraw):
            if not self.channel.reveals[index].all():
                raise InvalidArgument(NOTHING_TO_DEBIAS)
            return self.channel.debiased(self.reports, index)
        if not isinstance(self.channel, Response):
            raise InvalidArgument("only a release of noisy labels, drawn at some epsilon, can be debiased.")
        reported, odds = self.label_numbers[index], self.channel.odds
        if odds.excess == 0:
            raise InvalidArgument(NOTHING_TO_DEBIAS)
        total = (odds.excess + self.groups.sizes[index].astype(np.float64) * odds.other)[:, None]
        own = np.arange(len(self.classes)) == reported[:, None]
        groups = self.groups.assignment(index)
        if not self.groups.single_labels and (np.sort(groups, axis=1) != np.arange(len(self.classes))).any():
            raise InvalidArgument(
                "some groups of this release hold several labels, even if none of those was reported: it cannot be debiased. "
                "Train on release.likelihood()."
            )
        return np.where(groups != NO_GROUP, (own * total - odds.other) / odds.excess, 0.0)

    def _positions(self, rows: Any) -> NDArray[np.int64]:
        if rows is None:
            return np.arange(len(self))
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_ and chosen.shape == (len(self),):
            return np.flatnonzero(chosen)
        if (
            chosen.ndim != 1
            or chosen.dtype.kind not in "iu"
            or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self))
        ):
            raise InvalidArgument(
                f"rows must be positions from 0 to {len(self) - 1} within the release, or a mask over it."
            )
        return chosen.astype(np.int64)

    def class_frequencies(self) -> ClassFrequencies:
        """Estimate how often each class occurs, without bias; see `frequencies`."""
        shared = self.receipt.priors is None or self.receipt.priors["shared"]
        return class_frequencies(self.channel, self.reports, self.classes, own_maps=not shared)

    def contents(self) -> tuple[Facts, Arrays]:
        facts = {
            "kind": KIND,
            "private": self.private,
            "classes": list(self.classes),
            "channel": self.channel.description(),
            "outputs": None if self.outputs is None else [str(value) for value in self.outputs],
            "receipt": self.receipt.to_json(),
        }
        arrays = {f"channel_{name}": array for name, array in self.channel.arrays().items()}
        return facts, {"reports": self.reports, "rows": self.rows, **arrays}

    @classmethod
    def from_contents(cls, facts: Facts, arrays: Arrays) -> Release:
        if facts.get("kind") != KIND:
            raise InvalidArgument(f"the file holds a {facts.get('kind')}, not a release of noisy reports.")
        try:
            reports, rows = arrays["reports"], arrays["rows"]
            classes = Classes.declared(facts["classes"])
            channel = channel_from(
                facts["channel"],
                {name.removeprefix("channel_"): array for name, array in arrays.items() if name.startswith("channel_")},
                n_rows=len(reports),
                n_classes=len(classes),
            )
            outputs = None if facts["outputs"] is None else tuple(Fraction(text) for text in facts["outputs"])
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            raise InvalidArgument("the file is not a release of noisy reports.") from None
        sizes = channel.weights.shape[1] if isinstance(channel, Table) else channel.groups.sizes
        if reports.ndim != 1 or reports.dtype.kind != "u" or rows.shape != reports.shape or (reports >= sizes).any():
            raise InvalidArgument("the file's reports do not fit its channel.")
        receipt = Receipt.from_json(facts["receipt"])
        if isinstance(channel, Truth) and receipt.private:
            raise InvalidArgument("the file holds true labels but a receipt that calls them private.")
        if not isinstance(channel, Truth) and channel.odds != Odds.within(Epsilon.of(receipt.epsilon)):
            raise InvalidArgument("the file's noise is not that of its receipt's epsilon: one of them was altered.")
        return cls(reports, rows, classes.names, channel, outputs, receipt)

    def __repr__(self) -> str:
        return f"<Release of {len(self)} reports: {self.receipt}>"
