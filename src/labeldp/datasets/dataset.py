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
from labeldp.vault.labels import NumberedLabels, Unsealed


class Dataset:
    """Public features and sealed training labels, with a public test split. Made by `labeldp.datasets.load`.

    Attributes
    ----------
    name : the dataset's name.
    X : training features: images as uint8 (n, C, H, W), or int64 (n, 2) of user and item numbers from 0.
    classes : the class names, in the order of the class numbers.
    X_test, test_labels : the benchmark's public test split; labels are int64 class numbers 0 .. K - 1.
    inputs : what a row of X is, as JSON values: {"kind": "image", "shape": [C, H, W]} or {"kind": "ids", "sizes": [..]}.

    Privacy
    -------
    No repr, copy, pickle or traceback shows a training label, and no attribute returns one. As with the vault, that protects
    against mistakes in one process, not against hostile code. A forked child has its parent's memory: give workers
    `only_public()`.
    """

    __slots__ = ("X", "X_test", "_labels", "classes", "inputs", "name", "test_labels")

    def __init__(
        self,
        name: str,
        *,
        X: NDArray[Any],
        labels: NumberedLabels | None,
        classes: tuple[str, ...] | tuple[int, ...],
        X_test: NDArray[Any],
        test_labels: NDArray[np.int64],
        inputs: dict[str, Any],
    ) -> None:
        self.name = name
        self.X = X
        self.classes = classes
        self.X_test = X_test
        self.test_labels = test_labels
        self.inputs = inputs
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
            self._held(), classes=self.classes, budget=budget, ledger=ledger, owners=users, trust=trust, bits=bits
        )

    def unprotected(self, rows: Any = None) -> Release:
        """Return the true labels as a release stamped NOT PRIVATE: the baseline without privacy."""
        return LabelVault.unprotected(self._held(), classes=self.classes, rows=rows)

    def subset(self, n_rows: int) -> Dataset:
        """Return the first rows as a Dataset, for quick tries; a choice that looks at no label. The test split stays whole."""
        n_rows = checks.integer(n_rows=n_rows, at_least=1, at_most=self.n_rows)
        labels = None if self._labels is None else NumberedLabels(self._labels.numbers[:n_rows].copy())
        return self._with(self.X[:n_rows], labels)

    def only_public(self) -> Dataset:
        """Return the same Dataset having forgotten its training labels. It can be pickled and copied: hand it to workers."""
        return self._with(self.X, None)

    def _with(self, X: NDArray[Any], labels: NumberedLabels | None) -> Dataset:
        return Dataset(
            self.name,
            X=X,
            labels=labels,
            classes=self.classes,
            X_test=self.X_test,
            test_labels=self.test_labels,
            inputs=self.inputs,
        )

    def _held(self) -> NumberedLabels:
        if self._labels is None:
            raise VaultClosed(
                f"This Dataset holds no labels: only_public() forgot them. Open the vault on datasets.load({self.name!r}), "
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
        return _public, (self.name, self.X, self.classes, self.X_test, self.test_labels, self.inputs)


def _public(name: str, X: Any, classes: Any, X_test: Any, test_labels: Any, inputs: Any) -> Dataset:
    return Dataset(name, X=X, labels=None, classes=classes, X_test=X_test, test_labels=test_labels, inputs=inputs)


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
