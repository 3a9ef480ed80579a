"""A dataset whose training labels are sealed: everything else about it is public."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.errors import InvalidArgument, InvalidLabels, LabelDPError, VaultClosed
from labeldp.vault import LabelVault, Release
from labeldp.vault.labels import UNKNOWN, NumberedLabels, Unsealed

OWN_SPLIT = "the dataset's own public split"
RANDOM_SPLIT = "published rows drawn by a fixed seed, taken as public"


class Dataset:
    """Public features and sealed training labels, with a public test split.

    `labeldp.datasets.load` makes one of a published dataset, `labeldp.datasets.table.load` of a table of one's own.

    Attributes
    ----------
    name : the dataset's name.
    X : training features: images as uint8 (n, C, H, W), int64 (n, 2) of user and item numbers from 0, or float64 (n, d). Of a
        table of one's own it is a pandas DataFrame, whose rows are taken by X.iloc[rows].
    classes : the class names, in the order of the class numbers.
    X_test, test_labels : the public test split, if there is one; labels are int64 class numbers 0 .. K - 1.
    inputs : what a row of X is, as JSON values: {"kind": "image", "shape": [C, H, W]}, {"kind": "ids", "sizes": [..]},
        {"kind": "table", "columns": [names], "categorical": [names of those that hold codes, if any]} for a float64 table, or
        {"kind": "frame", "columns": [{"name": .., "kind": "number"}, {"name": .., "kind": "category", "categories": [..]}]}
        for a DataFrame.
    ids : public names of the training rows, by which a ledger knows them; None where it knows them by position.
    missing : "public" if some rows may have no label, and which ones is public.
    public_test : in words or as a file, where the test split is from; None if there is none, and X_test is empty.

    Privacy
    -------
    No repr, copy, pickle or traceback shows a training label, and no attribute returns one. As with the vault, that protects
    against mistakes in one process, not against hostile code. A forked child has its parent's memory: give workers
    `only_public()`.
    """

    __slots__ = (
        "X",
        "X_test",
        "_labels",
        "classes",
        "ids",
        "inputs",
        "missing",
        "name",
        "public_test",
        "test_labels",
    )

    def __init__(
        self,
        name: str,
        *,
        X: Any,
        labels: NumberedLabels | None,
        classes: tuple[str, ...] | tuple[int, ...],
        X_test: Any,
        test_labels: NDArray[np.int64],
        inputs: dict[str, Any],
        ids: list[str] | None = None,
        missing: str | None = None,
        public_test: str | None = OWN_SPLIT,
    ) -> None:
        self.name = name
        self.X = X
        self.classes = classes
        self.X_test = X_test
        self.test_labels = test_labels
        self.inputs = inputs
        self.ids = ids
        self.missing = missing
        self.public_test = public_test
        self._labels = labels
        if labels is not None and len(labels.numbers) != len(X):
            raise InvalidArgument(f"{name}: there must be one label per row of X ({len(X)}).")
        if len(X_test) != len(test_labels):
            raise InvalidArgument(f"{name}: there must be one test label per row of X_test ({len(X_test)}).")

    @property
    def n_rows(self) -> int:
        """How many training rows there are."""
        return len(self.X)

    def vault(
        self,
        *,
        budget: Any = None,
        ledger: str | os.PathLike[str] | None = None,
        trust: str = "local",
        bits: Any = None,
    ) -> LabelVault:
        """Open a vault on the training labels. The arguments are LabelVault's own.

        Privacy
        -------
        Every vault with `budget` has a ledger of its own, in memory; with `ledger`, spending adds up over vaults. Where rows
        belong to users, its certificate also says what one user may lose.
        """
        users = self.X[:, 0] if self.inputs["kind"] == "ids" else None
        return LabelVault(
            self._held(),
            classes=self.classes,
            budget=budget,
            ledger=ledger,
            ids=self.ids,
            owners=users,
            trust=trust,
            missing=self.missing,
            bits=bits,
        )

    def unprotected(self, rows: Any = None) -> Release:
        """Return the true labels as a release stamped NOT PRIVATE: the baseline without privacy."""
        labels = self._held()
        if self.missing is not None:
            labels, rows = _only_labelled(labels, rows)
        return LabelVault.unprotected(labels, classes=self.classes, rows=rows)

    def subset(self, n_rows: int) -> Dataset:
        """Return the first rows as a Dataset, for quick tries; a choice that looks at no label. The test split stays whole."""
        n_rows = checks.integer(n_rows=n_rows, at_least=1, at_most=self.n_rows)
        labels = None if self._labels is None else NumberedLabels(self._labels.numbers[:n_rows].copy())
        X = self.X.iloc[:n_rows] if hasattr(self.X, "iloc") else self.X[:n_rows]  # pandas is not imported here
        ids = None if self.ids is None else self.ids[:n_rows]
        return Dataset(labels=labels, **self._public_facts() | {"X": X, "ids": ids})

    def only_public(self, **changed: Any) -> Dataset:
        """Return the same Dataset having forgotten its training labels. It can be pickled and copied: hand it to workers.

        Parameters
        ----------
        changed : attributes that are to be others, such as X and X_test after a public transformation.
        """
        return Dataset(labels=None, **self._public_facts() | changed)

    def _public_facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "_labels"}

    def _held(self) -> NumberedLabels:
        if self._labels is None:
            raise VaultClosed(
                f"This Dataset holds no labels: only_public() forgot them. Open the vault on {self.name} as it was loaded, "
                "in the process that may hold labels."
            )
        return self._labels

    def __repr__(self) -> str:
        sealed = "no labels" if self._labels is None else "labels sealed"
        return f"<Dataset {self.name}: {self.n_rows:,} rows, {len(self.classes)} classes, {sealed}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._labels is not None:
            raise LabelDPError(
                "A Dataset is never pickled or copied while it holds labels. Pass on dataset.only_public(), or load it again."
            )
        return _public, (self._public_facts(),)


def _public(facts: dict[str, Any]) -> Dataset:
    return Dataset(labels=None, **facts)


def _only_labelled(labels: NumberedLabels, rows: Any) -> tuple[NumberedLabels, NDArray[np.int64]]:
    """Return labels with a placeholder where one is missing, and the asked rows, which lead to no placeholder."""
    labelled = labels.numbers != UNKNOWN
    asked = checks.rows(labelled if rows is None else rows, len(labelled))
    if not labelled[asked].all():
        raise InvalidArgument("rows must all have a label; some of these are missing (which ones is public).")
    return NumberedLabels(np.where(labelled, labels.numbers, 0)), asked


def randomly_split(
    name: str,
    X: Any,
    labels: Unsealed,
    *,
    classes: Any,
    inputs: dict[str, Any],
    seed: int,
    n_test: int,
    source: Path | str,
) -> Dataset:
    """Return rows in the order of `numpy.random.RandomState(seed).permutation`, the last n_test as the public test.

    No label has a say in it.
    """
    order = np.random.RandomState(seed).permutation(len(X))
    train, test = np.split(order, [len(X) - n_test])
    return Dataset(
        name,
        X=X[train],
        labels=class_numbers(Unsealed(labels.labels[train]), n_classes=len(classes), source=source),
        classes=classes,
        X_test=X[test],
        test_labels=public_numbers(Unsealed(labels.labels[test]), n_classes=len(classes), source=source),
        inputs=inputs,
        public_test=RANDOM_SPLIT,
    )


def class_numbers(labels: Unsealed, *, n_classes: int, source: Path | str) -> NumberedLabels:
    """Check a whole column of class numbers and wrap it, or raise InvalidLabels with the file's name and no more."""
    if not ((labels.labels >= 0) & (labels.labels < n_classes)).all():
        raise InvalidLabels(
            f"{source}: labels must all be among the declared classes; some are not. Get the file again from its publisher."
        )
    return NumberedLabels(labels.labels.astype(np.int16 if n_classes < 2**15 else np.int64))


def public_numbers(labels: Unsealed, *, n_classes: int, source: Path | str) -> NDArray[np.int64]:
    """Check and return the labels of a public test split."""
    return class_numbers(labels, n_classes=n_classes, source=source).numbers.astype(np.int64)
