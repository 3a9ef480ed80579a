"""Labels that scikit-learn can index and nobody can read: the y of labeldp's estimators."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget import Guarantee
from labeldp.errors import InvalidArgument, LabelDPError, TrustError
from labeldp.mechanisms.local import LocalMechanism
from labeldp.mechanisms.normal import NormalResponse
from labeldp.vault.aggregates import AgreementRelease, HistogramRelease, SumRelease
from labeldp.vault.files import Stored
from labeldp.vault.passes import ColumnPass
from labeldp.vault.release import Release
from labeldp.vault.source import Source

if TYPE_CHECKING:  # a vault makes columns of itself, so this file imports this one
    from labeldp.vault.holder import LabelHolder

Rows = NDArray[np.int64]

SEALED = (
    "These labels are sealed: they cannot be read, and only labeldp's own estimators can learn from them. A split may be any "
    "that does not read y, such as cv=KFold(5). What scores models against y, as cross_val_score and GridSearchCV do, cannot: "
    "hold rows out with hold_out=0.2 and say model.grade(), or choose settings with LabelDPSearchCV; both ask each label once, "
    "and have their figures from labeldp.metrics."
)


class SealedColumn:
    """Rows of a label holder, in any order: index them, split them, pass them as y, but do not read them.

    A column is itself a holder of the labels of its rows: its row i is the i-th of the column, as in the X that goes with it.

    Parameters
    ----------
    holder : the vault, or whoever else holds the labels.
    rows : the holder's row numbers, in any order and possibly repeated; None means all.

    Privacy
    -------
    Holds row numbers and no label. Whatever is asked through it, the holder charges and answers with noise.

    >>> vault = ldp.LabelVault([0, 1, 1, 0], classes=2, budget="1")
    >>> column = vault.sealed()[[3, 0]]
    >>> column, len(column)
    (<2 sealed labels>, 2)
    >>> column, order = column.in_order()
    >>> release = column.release(ldp.RandomizedResponse(epsilon="1"))
    >>> release.rows.tolist(), str(column.spent()), str(vault.spent(rows=[1, 2]))
    ([0, 1], 'epsilon 1', 'epsilon 0')
    """

    __slots__ = ("_holder", "_rows")

    def __init__(self, holder: LabelHolder, rows: Any = None) -> None:
        every = np.arange(len(holder), dtype=np.int64)
        self._holder = holder
        self._rows: Rows = every if rows is None else _chosen(every, rows)
        self._rows.flags.writeable = False

    # ---- what scikit-learn does with a y -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def ndim(self) -> int:
        return 1

    def __getitem__(self, key: Any) -> SealedColumn:
        """Return the column of these rows, in this order: numbers, a mask or a slice, as numpy reads them."""
        return SealedColumn(self._holder, _chosen(self._rows, key))

    def in_order(self) -> tuple[SealedColumn, Rows]:
        """Return the column in the holder's order, as queries need it, and the `order` for which it is self[order].

        The X that goes with it is X[order].
        """
        order = np.argsort(self._rows, kind="stable")
        ordered = self._rows[order]
        if (ordered[1:] == ordered[:-1]).any():
            raise InvalidArgument(
                "rows must each occur once in a column that is learned from: a bootstrap sample asks a label twice. Draw "
                "rows without replacement."
            )
        return SealedColumn(self._holder, ordered), order

    @property
    def name(self) -> Hashable:
        """The public name of the column that the holder's labels came as, if it had one."""
        return getattr(self._holder, "column", None)

    # ---- a holder of these rows' labels ------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Any, ...]:
        return self._holder.classes

    @property
    def trust(self) -> str:
        return self._holder.trust

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which rows of the column have a label."""
        return self._holder.labelled[self._rows]

    def release(
        self,
        mechanism: LocalMechanism,
        rows: Any = None,
        *,
        priors: Any = None,
        source: Source = None,
        name: str | None = None,
    ) -> Release:
        """Release one noisy report per row of the column; see `LabelVault.release`.

        Parameters
        ----------
        rows : a mask over the column, or its strictly increasing row numbers; None means all that have a label.
        priors : as the holder takes them; a function is called with row numbers of the column.

        Privacy
        -------
        As the holder's own release of these rows, which charges them.
        """
        own, theirs = self._asked(rows)
        given = self._of_own_rows(priors) if callable(priors) and not hasattr(priors, "__array__") else priors
        release = self._holder.release(mechanism, theirs, priors=given, source=source, name=name)
        return replace(release, rows=own)

    def normal_pass(self, mechanism: NormalResponse, rows: Any = None, *, source: Source = None) -> ColumnPass:
        """Charge rows of the column for a pass, whose row numbers are the column's; see `LabelVault.normal_pass`."""
        return ColumnPass(self._holder.normal_pass(mechanism, self._asked(rows)[1], source=source), self._rows)

    def histogram(
        self,
        groups: Any,
        epsilon: Any,
        *,
        rows: Any = None,
        n_groups: int | None = None,
        source: Source = None,
        name: str | None = None,
    ) -> HistogramRelease:
        own, theirs = self._asked(rows)
        counts = self._holder.histogram(groups, epsilon, rows=theirs, n_groups=n_groups, source=source, name=name)
        return replace(counts, rows=own)

    def sums(
        self,
        groups: Any,
        *,
        low: int,
        high: int,
        epsilon: Any,
        rows: Any = None,
        n_groups: int | None = None,
        source: Source = None,
        name: str | None = None,
    ) -> SumRelease:
        own, theirs = self._asked(rows)
        sums = self._holder.sums(
            groups, low=low, high=high, epsilon=epsilon, rows=theirs, n_groups=n_groups, source=source, name=name
        )
        return replace(sums, rows=own)

    def agreement(
        self, predictions: Any, epsilon: Any, *, rows: Any = None, source: Source = None, name: str | None = None
    ) -> AgreementRelease:
        return self._holder.agreement(predictions, epsilon, rows=self._asked(rows)[1], source=source, name=name)

    def spent(self, rows: Any = None) -> Guarantee:
        """Return the largest spending of any label of (these rows of) the column."""
        return self._holder.spent(self._accounted(rows))

    def remaining(self, rows: Any = None) -> Guarantee:
        """Return what every label of (these rows of) the column can still spend."""
        return self._holder.remaining(self._accounted(rows))

    def recognises(self, release: Stored) -> bool:
        """Return whether a release of rows of this column is one that the holder has charged and handed over."""
        given: Any = release
        rows = getattr(given, "rows", None)
        if rows is None:
            return self._holder.recognises(release)
        inside = len(rows) > 0 and rows.min() >= 0 and rows.max() < len(self)
        return bool(inside and self._holder.recognises(replace(given, rows=self._rows[rows])))

    def certificate(self) -> dict[str, Any]:
        """Return the holder's certificate, which is about all of its labels."""
        return self._holder.certificate()

    def _asked(self, rows: Any) -> tuple[Rows, Rows]:
        """Return the asked rows as numbers of this column, and as the holder's."""
        if (self._rows[1:] <= self._rows[:-1]).any():
            raise InvalidArgument(
                "the rows of a column that is asked must be in the holder's order, each once: ask the column that "
                "in_order() returns, and put X in the same order."
            )
        own = checks.rows(self.labelled if rows is None else rows, len(self))
        return own, self._rows[own]

    def _accounted(self, rows: Any) -> Rows:
        """Return the holder's rows whose spending is meant; their order and repetitions do not matter."""
        return np.unique(self._rows[checks.rows(rows, len(self))])

    def _of_own_rows(self, priors: Callable[[Rows], Any]) -> Callable[[Rows], Any]:
        return lambda theirs: priors(np.searchsorted(self._rows, theirs))

    # ---- nobody reads it ---------------------------------------------------------------------------------------------

    def _sealed(self, *_: Any, **__: Any) -> NoReturn:
        raise TrustError(SEALED)

    __array__ = __iter__ = __contains__ = _sealed
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __bytes__ = _sealed
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _sealed
    __hash__ = object.__hash__
    tolist = to_list = to_numpy = item = astype = _sealed
    data = values = flat = property(_sealed)

    def __copy__(self) -> SealedColumn:
        return self

    def __deepcopy__(self, memo: object) -> SealedColumn:
        return self

    def __reduce__(self) -> NoReturn:
        raise LabelDPError(
            "Sealed labels are never pickled: their vault holds true labels. Work in this process (n_jobs=1, or threads)."
        )

    __getstate__ = __reduce__

    def __repr__(self) -> str:
        return f"<{len(self)} sealed labels>"


def _chosen(rows: Rows, key: Any) -> Rows:
    """Index rows by numpy's rules; what would be one label, or more than a column, is refused."""
    chosen = rows[key]
    if np.ndim(chosen) == 0:
        raise TrustError(SEALED)
    if chosen.ndim != 1:
        raise InvalidArgument("sealed labels are one column: index them by row numbers, a mask or a slice.")
    return chosen
