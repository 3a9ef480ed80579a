"""The vault: the one room that holds true labels. They leave it as noise, after the ledger was charged."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget import Epsilon, Guarantee, Ledger, Odds, People, Runs, certificate, dp_event
from labeldp.errors import InvalidArgument, LabelDPError, TrustError, VaultClosed
from labeldp.mechanisms.aggregate import Aggregate
from labeldp.mechanisms.agreement import Agreement
from labeldp.mechanisms.channel import Truth
from labeldp.mechanisms.dealing import new_key
from labeldp.mechanisms.groups import OwnGroups, unsigned
from labeldp.mechanisms.histogram import Histogram
from labeldp.mechanisms.local import LocalMechanism
from labeldp.mechanisms.normal import NormalResponse
from labeldp.mechanisms.sums import Sums
from labeldp.mechanisms.unbiased import UnbiasedResponse
from labeldp.randomness import Bits, known_bits
from labeldp.vault.aggregates import AgreementRelease, HistogramRelease, SumRelease, public_groups
from labeldp.vault.answering import Prepared, Question, answer
from labeldp.vault.files import Stored
from labeldp.vault.labels import Classes, Unsealed, ids_as_text, people_numbers, seal
from labeldp.vault.passes import ANSWERS, QUERY, NormalPass, charged_once, notes_of
from labeldp.vault.priors import GivenPriors
from labeldp.vault.receipt import Receipt
from labeldp.vault.release import Release
from labeldp.vault.sealed import SealedColumn
from labeldp.vault.source import Source, source_words
from labeldp.vault.spool import Spool

Rows = NDArray[np.int64]
T = TypeVar("T", bound=Stored)


class LabelVault:
    """Holds true labels and answers queries about them with noise, within a budget per label.

    Parameters
    ----------
    labels : a column of integers, booleans, text or numbers: an array, a list or a pandas Series.
    classes : the declared classes, a count (labels are then 0 .. count - 1) or a list of names. Never learned from labels.
    budget, delta : the most that any label may spend, for a vault whose ledger lives as long as it does.
    ledger : instead of a budget, the path of a ledger made with `create_ledger`: spending then survives this process.
    ids : public names of the rows, unique, by which the ledger knows them; without ids it knows them by position.
    owners : public person ids, one per row; the certificate then also says what one person may lose.
    trust : "local" answers only per-label randomization; "curator" also aggregates before adding noise.
    missing : "public" if which labels are missing may be known; their rows are never released. Otherwise none may be.
    bits : None for operating-system entropy. `InsecureBits(seed)` is for tests and stamps everything NOT PRIVATE.

    Privacy
    -------
    Every answer is charged to the ledger, durably, before its noise is drawn. In one process the vault protects against
    mistakes, not against hostile code, which can read any memory: see docs/sharp-edges.md.

    >>> vault = LabelVault([0, 1, 1, 0], classes=2, budget="1")
    >>> release = vault.release(ldp.RandomizedResponse(epsilon="1"))
    >>> len(release.labels), str(vault.spent())
    (4, 'epsilon 1')
    """

    def __init__(
        self,
        labels: Any,
        *,
        classes: Any,
        budget: Any = None,
        delta: Any = 0,
        ledger: str | os.PathLike[str] | None = None,
        ids: Any = None,
        owners: Any = None,
        trust: str = "local",
        missing: str | None = None,
        bits: Bits | None = None,
    ) -> None:
        labels = Unsealed(labels)
        self._classes = Classes.declared(classes)
        self._trust = checks.one_of(("local", "curator"), trust=trust)
        self._bits = known_bits(bits)
        if missing is not None:
            checks.one_of(("public",), missing=missing)
        if (budget is None) == (ledger is None):
            raise InvalidArgument(
                "a vault needs either a budget, such as budget='2', or the path of a ledger, and not both."
            )
        if ledger is not None and delta != 0:
            raise InvalidArgument("delta belongs to a budget; a ledger has its own.")
        limit = None if budget is None else Guarantee.of(budget, delta=delta, name="budget")
        if isinstance(ledger, Ledger) or not isinstance(ledger, (str, os.PathLike, type(None))):
            raise InvalidArgument(f"ledger must be the path of a ledger, got {type(ledger).__name__}.")
        self._column = labels.column
        self._labels = seal(labels, self._classes, missing=missing)
        n_rows = len(self._labels)
        names = None if ids is None else ids_as_text(ids, n_rows)
        people = None if owners is None else people_numbers(owners, n_rows)
        if limit is not None:
            self._ledger = Ledger.in_memory(budget=limit, n_rows=n_rows)
        else:
            assert ledger is not None
            self._ledger = Ledger(Path(ledger))
        self._ledger_rows = self._ledger.bind(n_rows=n_rows, ids=names)
        self._classes_digest = hashlib.sha256(json.dumps(self._classes.names).encode()).hexdigest()
        self._in_order = bool((np.diff(self._ledger_rows) > 0).all())
        self._all_rows = np.flatnonzero(self._labels.labelled)
        self._all_rows.flags.writeable = False  # releases share it
        self._all_runs = Runs.of_rows(np.sort(self._ledger_rows[self._all_rows]))
        self._spool = Spool(self._ledger.path)
        self._people = None if people is None else People(people, self._ledger_rows)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        _open_vaults.add(self)

    # ---- local queries -----------------------------------------------------------------------------------------------

    def release(
        self,
        mechanism: LocalMechanism,
        rows: Any = None,
        *,
        priors: Any = None,
        source: Source = None,
        name: str | None = None,
    ) -> Release:
        """Release one noisy report per row.

        Parameters
        ----------
        mechanism : what to draw, such as RandomizedResponse(epsilon="1").
        rows : a boolean mask, or strictly increasing row numbers; None means all rows that have a label.
        priors : one row of K probabilities per asked row, in their order; or one row for all; or a function from row numbers
            to such an array; None means uniform. Public: made from features and earlier releases, never from labels.
        source : where the priors came from, for the certificate: the releases behind them, or a sentence.
        name : a name under which the same request can be asked again, for instance after a crash: it is then answered from
            the spool, with no second charge and no second draw. Without a name only a request that was interrupted before
            its release was handed over is completed so; otherwise the same request again is a new query.

        Privacy
        -------
        epsilon-label-DP for every asked row whose report depends on its label; other rows are not charged.
        """
        if not isinstance(mechanism, LocalMechanism):
            raise InvalidArgument(f"mechanism must be one of labeldp's local mechanisms, got {_kind(mechanism)}.")
        epsilon = Epsilon.of(mechanism.epsilon)
        asked = self._asked(rows)
        outputs = self._numeric_outputs(mechanism)
        given = GivenPriors(priors, asked, len(self._classes))
        key = new_key() if mechanism.deals_at_random else 0
        first_channel, noted = given.deal(mechanism, Odds.within(epsilon), key)
        parameters = mechanism.parameters() | {"name": type(mechanism).__name__, "epsilon": str(epsilon)}
        request = self._request("release", parameters, asked, name, priors=noted)

        def prepare(dealing: int) -> Prepared[Release]:
            channel, again = (
                (first_channel, noted) if dealing == key else given.deal(mechanism, Odds.within(epsilon), dealing)
            )
            if again != noted:
                raise InvalidArgument("priors as a function must return the same for the same rows.")

            def draw(receipt: Receipt) -> Release:
                reports = channel.draw(self._open(asked), self._bits)
                return Release(reports, asked, self._classes.names, channel, outputs, receipt)

            return Prepared(self._runs(asked if channel.reveals.all() else asked[channel.reveals]), draw)

        extra = {
            "trust": "local",
            "dealing": key,
            "source": self._source(source, given.given),
            "realised_epsilon": Odds.within(epsilon).realised_epsilon,
        }
        release = self._answer(request, extra, Guarantee(epsilon.units), prepare, Release)
        return replace(release, rows=asked.copy())  # this vault's numbers, in the caller's own array

    def _numeric_outputs(self, mechanism: LocalMechanism) -> tuple[Any, ...] | None:
        if not isinstance(mechanism, UnbiasedResponse):
            return None
        if self._classes.exact_values() != mechanism.values:
            raise InvalidArgument(
                "UnbiasedResponse's grid (low, low + step, .. high) must be the vault's classes, in order: declare the classes "
                "as that list of numbers."
            )
        return mechanism.outputs

    def normal_pass(self, mechanism: NormalResponse, rows: Any = None, *, source: Source = None) -> NormalPass:
        """Charge rows, once, for a pass in which each may be answered once: its label's public vector plus Gaussian noise.

        Parameters
        ----------
        mechanism : how much noise, on which lattice, such as NormalResponse(epsilon="1", delta="1e-6", ..).
        rows : a boolean mask, or strictly increasing row numbers; None means all rows that have a label.
        source : what the tables are made from besides public inputs and the pass's own answers, for the certificate.

        Privacy
        -------
        (epsilon, delta)-label-DP for every row, charged here, answered or not. A pass is not resumed: after a crash its
        rows stay charged, and another pass is another charge.
        """
        if type(mechanism) is not NormalResponse:
            raise InvalidArgument(f"mechanism must be a NormalResponse, got {_kind(mechanism)}.")
        mechanism = replace(mechanism)  # our own, checked anew: what is charged is what is drawn
        asked = self._asked(rows)
        parameters = mechanism.parameters() | {"name": "NormalResponse", "answers": ANSWERS}
        request = self._request(QUERY, parameters, asked, None)
        notes = notes_of(mechanism, None if source is None else self._source(source, True))
        with self._lock, self._ledger.exclusive():
            self._check_open()
            receipt = charged_once(self._ledger, request, notes, self._runs(asked), mechanism.guarantee)
        shape = {"n_rows": len(self), "n_classes": len(self._classes)}
        return NormalPass(mechanism, asked, receipt, **shape, bits=self._bits, read=self._read)

    def _read(self, rows: Rows) -> NDArray[Any]:
        """Return the true labels of a pass's rows, to the pass alone."""
        self._check_open()
        return self._labels.open(rows)

    # ---- a curator's queries -----------------------------------------------------------------------------------------

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
        """Count the labels of each class in each public group, with noise. Needs trust="curator".

        Parameters
        ----------
        groups : one public group number per asked row, from 0.
        n_groups : how many groups there are; by default one more than the largest.
        source : where the groups came from, for the certificate.
        """
        mechanism = Histogram(epsilon)
        self._need_curator(mechanism)
        asked = self._asked(rows)
        group_of_row, totals = public_groups(groups, n_groups, n_rows=len(asked), n_classes=len(self._classes))
        n_classes = len(self._classes)

        def draw(receipt: Receipt) -> HistogramRelease:
            counts = mechanism.answer(
                self._open(asked), group_of_row, n_groups=len(totals), n_classes=n_classes, bits=self._bits
            )
            return HistogramRelease(counts, totals, group_of_row, asked, self._classes.names, receipt)

        public = np.append(group_of_row, len(totals))
        return self._aggregate(mechanism, asked, public, source, name, draw, HistogramRelease)

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
        """Add the integer labels of each public group, with noise. Needs trust="curator"; classes must lie in low .. high."""
        mechanism = Sums(epsilon, low, high)
        names: tuple[Any, ...] = self._classes.names
        if self._classes.kind is not int or not low <= min(names) <= max(names) <= high:
            raise InvalidArgument(f"sums need integer classes that all lie between low={low} and high={high}.")
        self._need_curator(mechanism)
        asked = self._asked(rows)
        group_of_row, totals = public_groups(groups, n_groups, n_rows=len(asked), n_classes=len(self._classes))

        def draw(receipt: Receipt) -> SumRelease:
            values = self._classes.decode(self._open(asked)).astype(np.int64)
            sums = mechanism.answer(values, group_of_row, n_groups=len(totals), bits=self._bits)
            return SumRelease(sums, totals, group_of_row, asked, int(low), int(high), receipt)

        public = np.append(group_of_row, len(totals))
        return self._aggregate(mechanism, asked, public, source, name, draw, SumRelease)

    def agreement(
        self, predictions: Any, epsilon: Any, *, rows: Any = None, source: Source = None, name: str | None = None
    ) -> AgreementRelease:
        """Count the rows whose label equals a public prediction, with noise. Needs trust="curator"."""
        mechanism = Agreement(epsilon)
        self._need_curator(mechanism)
        asked = self._asked(rows)
        predicted = self._classes.encode_public(predictions)
        if len(predicted) != len(asked):
            raise InvalidArgument(
                f"predictions must have one entry per asked row ({len(asked)}), got {len(predicted)}."
            )

        def draw(receipt: Receipt) -> AgreementRelease:
            count = mechanism.answer(self._open(asked), predicted, bits=self._bits)
            return AgreementRelease(count, len(asked), receipt)

        return self._aggregate(mechanism, asked, predicted, source, name, draw, AgreementRelease)

    def _need_curator(self, mechanism: Aggregate) -> None:
        if self._trust != "curator":
            raise TrustError(
                f"A {mechanism.name} query aggregates labels before adding noise, which a local vault never does. "
                "If the label holder is trusted with that, open it with LabelVault(..., trust='curator')."
            )

    def _aggregate(
        self,
        mechanism: Aggregate,
        asked: Rows,
        public: NDArray[np.int64],
        source: Source,
        name: str | None,
        draw: Callable[[Receipt], T],
        kind: type[T],
    ) -> T:
        epsilon = Epsilon.of(mechanism.epsilon)
        parameters = mechanism.parameters() | {"name": type(mechanism).__name__, "epsilon": str(epsilon)}
        request = self._request(mechanism.name, parameters, asked, name, groups=_digest(public))
        notes = {"dealing": 0, "source": self._source(source, True), "realised_epsilon": float(epsilon)}
        cost, prepared = Guarantee(epsilon.units), Prepared(self._runs(asked), draw)
        release: Any = self._answer(request, {"trust": "curator", **notes}, cost, lambda _: prepared, kind)
        return replace(release, rows=asked.copy()) if hasattr(release, "rows") else release  # this vault's numbers

    # ---- charge durably, draw, spool, hand over ----------------------------------------------------------------------

    def _answer(
        self,
        request: dict[str, Any],
        extra: dict[str, Any],
        cost: Guarantee,
        prepare: Callable[[int], Prepared[T]],
        kind: type[T],
    ) -> T:
        with self._lock, self._ledger.exclusive():
            self._check_open()
            return answer(self._ledger, self._spool, Question(request, extra, cost, prepare, kind))

    def _open(self, asked: Rows) -> NDArray[Any]:
        return self._labels.open(None if asked is self._all_rows and len(asked) == len(self) else asked)

    def _runs(self, rows: Rows) -> Runs:
        """Return the ledger's rows for rows of this vault."""
        return self._all_runs if rows is self._all_rows else Runs.of_rows(np.sort(self._ledger_rows[rows]))

    def _digest_of_rows(self, rows: Rows) -> str:
        """Tell sets of rows, and their order in this dataset, apart."""
        if self._in_order:
            return self._runs(rows).digest()
        return _digest(self._ledger_rows[rows])

    def _request(
        self,
        query: str,
        mechanism: dict[str, Any],
        asked: Rows,
        name: str | None,
        *,
        priors: dict[str, Any] | None = None,
        groups: str | None = None,
    ) -> dict[str, Any]:
        """Describe a request by public things alone; two equal descriptions are the same request."""
        if name is not None:
            checks.text(name=name)
        return {
            "query": query,
            "mechanism": mechanism,
            "classes": self._classes_digest,
            "rows": {"count": len(asked), "digest": self._digest_of_rows(asked)},
            "priors": priors,
            "groups": groups,
            "name": name,
            "private": self._bits.private,
        }

    def _source(self, source: Source, needed: bool) -> str:
        return source_words(source, needed=needed, private=self._bits.private, ledger_id=self._ledger.id)

    def _asked(self, rows: Any) -> Rows:
        self._check_open()
        labelled = self._labels.labelled
        if rows is None:
            return self._all_rows
        asked = checks.rows(rows, len(self))
        if not labelled[asked].all():
            raise InvalidArgument(
                "rows must all have a label; some of these are missing (which ones is public: vault.labelled)."
            )
        asked.flags.writeable = False  # what was checked is what is charged and drawn
        return asked

    # ---- the budget --------------------------------------------------------------------------------------------------

    def spent(self, rows: Any = None) -> Guarantee:
        """Return the largest spending of any label (of these rows)."""
        return self._ledger.spent(None if rows is None else self._runs(checks.rows(rows, len(self))))

    def remaining(self, rows: Any = None) -> Guarantee:
        """Return what every one of these rows can still spend."""
        spent, budget = self.spent(rows), self._ledger.budget()
        return Guarantee(
            max(0, budget.epsilon_units - spent.epsilon_units), max(0, budget.delta_units - spent.delta_units)
        )

    def recognises(self, release: Stored) -> bool:
        """Tell whether this vault's ledger handed over a release with this receipt and these rows; reports are not compared."""
        try:
            self._ledger.verify(release.receipt.to_json())
            known = Receipt.of_entry(self._ledger.entries()[release.receipt.ledger["entry"] - 1], self._ledger.id)
        except LabelDPError:
            return False
        rows = getattr(release, "rows", None)  # a file may hold another release's rows beside this receipt
        if rows is not None and not self._are_its_rows(rows, release.receipt.rows["digest"]):
            return False
        return release.receipt == known and (release.private or not self._bits.private)

    def _are_its_rows(self, rows: Rows, digest: str) -> bool:
        try:
            return self._digest_of_rows(checks.rows(rows, len(self))) == digest
        except InvalidArgument:
            return False

    def certificate(self) -> dict[str, Any]:
        """Return, as JSON values, everything that this vault's ledger has released and promises."""
        return certificate(self._ledger, self._people)

    def dp_event(self, row: int | None = None) -> Any:
        """Return one label's queries as a dp_accounting event (replace-one): of a row, or of the label with the largest sum.

        At delta > 0 an accountant may price another label, with fewer and larger charges, higher than that one.
        """
        if row is not None:
            checks.integer(row=row, at_least=0, at_most=len(self) - 1)
        return dp_event(self._ledger, None if row is None else int(self._ledger_rows[row]))

    # ---- what is public about it -------------------------------------------------------------------------------------

    @property
    def column(self) -> Hashable:
        """The public name of the column that the labels came as, if it had one."""
        return self._column

    @property
    def classes(self) -> tuple[Any, ...]:
        return self._classes.names

    @property
    def trust(self) -> str:
        return self._trust

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which rows have a label."""
        return self._labels.labelled.copy()

    def __len__(self) -> int:
        return len(self._labels)

    def sealed(self) -> SealedColumn:
        """Return the labels as a column that scikit-learn can index and nobody can read: the y of labeldp's estimators."""
        return SealedColumn(self)

    # ---- its life ----------------------------------------------------------------------------------------------------

    @classmethod
    def unprotected(cls, labels: Any, *, classes: Any, rows: Any = None) -> Release:
        """Return the true labels as a release stamped NOT PRIVATE: the baseline without privacy, and the only one."""
        labels = Unsealed(labels)
        declared = Classes.declared(classes)
        sealed = seal(labels, declared, missing=None)
        asked = checks.rows(rows, len(sealed))
        receipt = Receipt.unprotected({"count": len(asked), "digest": _digest(asked)})
        reports = sealed.open(asked).astype(unsigned(len(declared)))
        return Release(reports, asked, declared.names, Truth(OwnGroups(len(asked), len(declared))), None, receipt)

    def close(self) -> None:
        """Forget the labels. Every later query raises VaultClosed."""
        self._labels.destroy()
        _open_vaults.discard(self)

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            self._labels.destroy()
            raise VaultClosed(
                "This vault was copied by a fork, which closes it here. Open one in this process, by its ledger."
            )
        if self not in _open_vaults:
            raise VaultClosed("This vault is closed.")

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._labels.destroy()

    def __enter__(self) -> LabelVault:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __copy__(self) -> LabelVault:
        return self

    def __deepcopy__(self, memo: object) -> LabelVault:
        return self

    def __reduce__(self) -> NoReturn:
        raise LabelDPError(
            "A vault is never pickled: it holds true labels. Open it, by its ledger, where the labels are."
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_pid"):
            return "<LabelVault, not open>"
        stamp = "" if self._bits.private else ", NOT PRIVATE"
        return f"<LabelVault of {len(self)} labels, {len(self._classes)} classes, {self._trust}{stamp}>"


def _digest(numbers: NDArray[np.int64]) -> str:
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<i8").data).hexdigest()


def _kind(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__


_open_vaults: weakref.WeakSet[LabelVault] = weakref.WeakSet()


def _close_after_fork() -> None:
    for vault in list(_open_vaults):
        vault._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_after_fork)
