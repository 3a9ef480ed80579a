"""Scikit-learn classifiers by name, for tables and images. What is made of the columns is decided by their public description.

Nothing here depends on which rows a model is fitted to: columns keep their width from stage to stage, and a column that says
nothing in some rows is no obstacle. Fitted models are files of skops: no functions, and no types but scikit-learn's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.sklearn.rows import Rows

Inputs = Mapping[str, Any]

KINDS = ("frame", "table", "image", "vector")
BELOW_ALL = -1e38
"""What trees read where a number is missing: one split tells it from the others, and single precision holds it."""
NO_CATEGORY = -1


@dataclass(frozen=True)
class Columns:
    """The columns of X, by name or by number, and the categories of those that hold some: a list, or "auto" for codes."""

    numbers: list[Any]
    categories: dict[Any, Any]
    may_be_missing: bool

    @classmethod
    def of(cls, inputs: Inputs) -> Columns:
        kind = inputs.get("kind")
        if kind not in KINDS:
            raise InvalidArgument(f"scikit-learn's models read tables and images, not inputs of kind {kind!r}.")
        if kind == "image":
            return cls(list(range(math.prod(inputs["shape"]))), {}, may_be_missing=False)
        if kind == "vector":
            return cls(list(range(inputs["size"])), {}, may_be_missing=False)
        if kind == "table":
            codes = set(inputs.get("categorical", ()))
            numbered = list(enumerate(inputs["columns"]))
            categories = {number: "auto" for number, name in numbered if name in codes}
            return cls([number for number, name in numbered if name not in codes], categories, may_be_missing=True)
        numbers = [column["name"] for column in inputs["columns"] if column["kind"] == "number"]
        categories = {column["name"]: column["categories"] for column in inputs["columns"] if column.get("categories")}
        if not numbers and not categories:
            raise InvalidArgument("the table must have a column that says something: all of them are empty.")
        return cls(numbers, categories, may_be_missing=True)

    def of_categories(self, encoder: Any) -> list[tuple[str, Any, list[Any]]]:
        return [("categories", encoder, list(self.categories))] if self.categories else []

    @property
    def known(self) -> Any:
        """What an encoder should expect of each column."""
        listed = list(self.categories.values())
        return "auto" if "auto" in listed else listed


def boosting(columns: Columns, seed: int) -> Pipeline:
    """Gradient boosting of trees. It never stops early, which would take a split of the rows by what was reported of them."""
    classifier = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    return Pipeline([("columns", _for_trees(columns)), ("classifier", classifier)])


def forest(columns: Columns, seed: int) -> Pipeline:
    """Averaged trees whose leaves hold at least 5 rows: smaller ones would learn the noise by heart."""
    classifier = RandomForestClassifier(n_estimators=200, min_samples_leaf=5, random_state=seed)
    return Pipeline([("columns", _for_trees(columns)), ("classifier", classifier)])


def logistic(columns: Columns, seed: int) -> Pipeline:
    """A linear model of scaled numbers, of which numbers are missing, and of categories; strange ones count as none."""
    numbers = Pipeline([("fill", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler())])
    parts = [("numbers", numbers, columns.numbers)] if columns.numbers else []
    if columns.numbers and columns.may_be_missing:
        parts.append(("missing", MissingIndicator(features="all", error_on_new=False), columns.numbers))
    encoder = OneHotEncoder(categories=columns.known, handle_unknown="ignore", sparse_output=False)
    classifier = LogisticRegression(max_iter=1000, random_state=seed)
    encoded = ColumnTransformer(parts + columns.of_categories(encoder))
    return Pipeline([("columns", encoded), ("classifier", classifier)])


def _for_trees(columns: Columns) -> ColumnTransformer:
    """Numbers, and codes of categories, without anything missing: boosting cannot bin a column that says nothing."""
    fill: Any = SimpleImputer(strategy="constant", fill_value=BELOW_ALL, keep_empty_features=True)
    fill = fill if columns.may_be_missing else "passthrough"
    codes = OrdinalEncoder(
        categories=columns.known,
        handle_unknown="use_encoded_value",
        unknown_value=NO_CATEGORY,
        encoded_missing_value=NO_CATEGORY,
    )
    numbers = [("numbers", fill, columns.numbers)] if columns.numbers else []
    return ColumnTransformer(numbers + columns.of_categories(codes))


MODELS: dict[str, Callable[[Columns, int], Pipeline]] = {"boosting": boosting, "forest": forest, "logistic": logistic}


def names() -> tuple[str, ...]:
    """Return the names of all models, in alphabetical order."""
    return tuple(sorted(MODELS))


def build(name: str, inputs: Inputs, n_classes: int, *, seed: int = 0) -> Pipeline:
    """Return an unfitted pipeline from the described inputs to a classifier.

    Parameters
    ----------
    name : one of `names()`.
    inputs : `Dataset.inputs`, of kind "frame", "table", "image" or "vector"; what to fit to is `readable(X, inputs)`.
    n_classes : K, the number of classes.
    seed : of the training. No seed reaches privacy noise.

    >>> model = build("logistic", {"kind": "table", "columns": ["age", "height"]}, 2)
    >>> [name for name, _ in model.steps]
    ['columns', 'classifier']
    """
    checks.one_of(names(), name=name)
    checks.integer(n_classes=n_classes, at_least=2, at_most=checks.MAX_CLASSES)
    checks.integer(seed=seed, at_least=0, at_most=2**32 - 1)
    return MODELS[name](Columns.of(inputs), seed)


def readable(X: Any, inputs: Inputs) -> Any:
    """Return public features as these models read them: a frame by its rows, an image as a row of numbers."""
    if inputs["kind"] == "frame":
        return Rows(X)
    return X.reshape(len(X), -1) if inputs["kind"] == "image" else X
