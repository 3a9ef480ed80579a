"""What a caller gives to `fit`: features, and labels that are sealed already or are sealed here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from labeldp.errors import InvalidArgument, InvalidLabels, TrustError
from labeldp.sklearn.rows import Rows, taken
from labeldp.vault import LabelVault, Release, SealedColumn
from labeldp.vault.frames import guarded
from labeldp.vault.labels import Unsealed
from labeldp.vault.sealed import SEALED

THIS_FIT = (
    "this fit alone. The labels were given unsealed, and this library has no memory of them: another fit on the same labels "
    "adds its own epsilon. Seal them once, with LabelVault(...).sealed(), and every fit is charged to one budget."
)
THE_VAULT = "everything that the vault of these labels has released so far, this fit included."


@dataclass(frozen=True)
class Given:
    """Features and a holder of their labels, row by row, and public weights and parameters in the same order."""

    X: Rows
    labels: LabelVault | SealedColumn
    weights: NDArray[np.float64] | None
    params: dict[str, Any]
    covers: str
    features: dict[str, Any]
    """The names and number of features, as scikit-learn notes them."""
    order: NDArray[np.int64] | None = None
    """Which row of the caller's each row is, where labels came in another order than their vault's."""

    def told(self, release: Release) -> Release:
        """Return a release whose rows are the caller's own."""
        return release if self.order is None else replace(release, rows=self.order[release.rows])

    def noted_in(self, estimator: Any) -> None:
        """Note the features that a release goes with, and forget those of an earlier fit."""
        for name in ("feature_names_in_", "n_features_in_"):
            estimator.__dict__.pop(name, None)
        estimator.__dict__.update(self.features)

    def certificate(self) -> dict[str, Any]:
        return self.labels.certificate() | {"covers": self.covers}


def hidden(y: Any) -> Unsealed | SealedColumn | None:
    """Return y so that no frame of a traceback shows a label."""
    return y if y is None or isinstance(y, SealedColumn) else Unsealed(y)


class Wrapper(MetaEstimatorMixin):
    """What our estimators have in common: another one inside, whose features they pass on as they are."""

    estimator: Any

    def get_metadata_routing(self) -> MetadataRouter:
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add_self_request(self).add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of the estimator that this is mixed into
        tags.input_tags, tags.non_deterministic = get_tags(self.estimator).input_tags, True
        return tags

    def _check_features(self, X: Any) -> None:
        check_is_fitted(self, "estimator_")
        if getattr(X, "ndim", 2) != 1:  # of one row that is not a table the estimator says what to do
            validate_data(self, X, skip_check_array=True, reset=False)


@contextmanager
def opened(
    estimator: Any,
    X: Any,
    y: Unsealed | SealedColumn | None,
    sample_weight: Any,
    fit_params: dict[str, Any],
    seal: Callable[[Unsealed], LabelVault],
) -> Iterator[Given]:
    """Yield what was given, with labels that `seal` has sealed if they were not; a vault made here is closed again."""
    inner = estimator.estimator
    if isinstance(inner, type) or not hasattr(inner, "fit"):
        raise InvalidArgument(
            f"estimator must be one of scikit-learn's, such as LogisticRegression(), with brackets; got "
            f"{f'the class {inner.__name__}' if isinstance(inner, type) else type(inner).__name__}."
        )
    if y is None:
        raise InvalidArgument(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: give the labels, or vault.sealed()."
        )
    if isinstance(y, Unsealed) and isinstance(y.labels, LabelVault):
        raise InvalidArgument("y must be labels or a vault's sealed ones: give vault.sealed(), not the vault.")
    _check_not_in(X, y)
    kind = getattr(getattr(X, "dtype", None), "kind", "O")
    if getattr(X, "ndim", 2) == 0 or (getattr(X, "ndim", 2) == 1 and kind in "biufc"):
        raise InvalidArgument(
            "X must be a table, one row per label and one column per feature; it has fewer dimensions."
        )
    noted = BaseEstimator()  # not the caller's: where nothing is released, what it has learned before stays usable
    validate_data(noted, X, skip_check_array=True)
    params = _routed(estimator, fit_params)
    features = Rows(X)
    if kind == "c":
        raise InvalidArgument("X must be real: Complex data not supported.")
    if len(features) < 2:
        raise InvalidArgument(f"X must have at least two rows to learn from, got n_samples={len(features)}.")
    if isinstance(y, Unsealed):
        y = _column(y)
    n_rows = len(y) if isinstance(y, SealedColumn) else len(y.labels)
    if n_rows != len(features):
        raise InvalidArgument(f"X and y have inconsistent numbers of samples: {len(features)} and {n_rows}.")
    weights = None if sample_weight is None else _weights(sample_weight, len(features))
    if isinstance(y, SealedColumn):
        column, order = y.in_order()
        params = {name: taken(value, order, len(order)) for name, value in params.items()}
        weights = None if weights is None else weights[order]
        yield Given(Rows(features[order]), column, weights, params, THE_VAULT, vars(noted), order)
        return
    with seal(y) as vault:
        yield Given(features, vault, weights, params, THIS_FIT, vars(noted))


def refuse_sealed(y: Any) -> None:
    """Raise where a score is asked against labels that are sealed."""
    if isinstance(y, SealedColumn):
        raise TrustError(SEALED)


def _check_not_in(X: Any, y: Unsealed | SealedColumn) -> None:
    """Raise where the column of labels is also one of the features. Names are public."""
    name = y.column if isinstance(y, Unsealed) else y.name
    if name is not None and name in list(getattr(X, "columns", [])):
        raise InvalidArgument(f"X must not hold the labels: its column {name!r} has the name of y. Drop it from X.")


def _weights(sample_weight: Any, n_rows: int) -> NDArray[np.float64]:
    weights: NDArray[np.float64] | None = None
    with suppress(Exception):  # what it says could quote labels that were given in the place of weights
        weights = _check_sample_weight(sample_weight, np.empty((n_rows, 1)), dtype=np.float64, copy=True)
    if weights is None or (weights < 0).any() or not weights.any():
        raise InvalidArgument(
            f"sample_weight must be one finite number per row of X ({n_rows}), none of them negative, and not all zero."
        )
    return weights


def _column(y: Unsealed) -> Unsealed:
    """Return labels as scikit-learn reads them: a column, also from a table with one, of which it warns."""
    column, problem = guarded(lambda: _try_to_read(y), "y could not be read ({}).")
    if column is None:
        raise InvalidLabels(problem)
    if problem:
        warnings.warn(problem, DataConversionWarning, stacklevel=5)
    return column


def _try_to_read(y: Unsealed) -> tuple[Unsealed | None, str]:
    if hasattr(y.labels, "isna") and getattr(y.labels, "ndim", 0) == 1:
        return y, ""  # a pandas column, whose missing labels sealing knows
    if isinstance(y.labels, np.ma.MaskedArray):
        return y, ""  # as are those under a mask
    try:
        values = np.asarray(y.labels)
    except Exception:  # what it says could quote a label
        return None, "y should be a 1d array; this object cannot be read as one."
    if values.ndim == 2 and values.shape[1] == 1:
        return Unsealed(values[:, 0]), "A column-vector y was passed when a 1d array was expected: give y.ravel()."
    return (Unsealed(values), "") if values.ndim == 1 else (None, f"y should be a 1d array, got shape {values.shape}.")


def _routed(estimator: Any, fit_params: dict[str, Any]) -> dict[str, Any]:
    """Return what the wrapped estimator's `fit` is to be given."""
    _raise_for_params(fit_params, estimator, "fit")
    if not fit_params or not _routing_enabled():
        return {}
    return dict(process_routing(estimator, "fit", **fit_params).estimator.fit)
