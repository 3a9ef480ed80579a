"""Answers of real people, installed with statsmodels or scikit-learn: small tables that need no files.

The data is public, and its training labels are sealed and used as if they were secret. The split is fixed and public: the rows
in the order of `numpy.random.RandomState(SPLIT_SEED).permutation`, the last fifth for the test. No label has a say in it.

* fair: 6,366 women answered Redbook magazine (Fair, 1978). Label: any time spent in an affair, "no" or "yes".
* anes96-vote, anes96-party: 944 voters of the American National Election Study of 1996. Label: the expected vote, from all
  other answers; or the party identification in 7 steps, from all answers but the vote.
* randhie: 20,190 person-years of the RAND Health Insurance Experiment. Label: outpatient visits to a doctor, 0 to 20, where 20
  stands for 20 or more: clipped on load, by a bound that is declared here and not learned. A person has several rows, and the
  table does not say which: a guarantee is per label, not per person, and the test rows are other years, not other people.
* breast-cancer: 569 tumours, 30 measures of their cells' nuclei (Wolberg et al., 1995). Label: "malignant" or "benign".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets.dataset import Dataset, randomly_split
from labeldp.datasets.places import Place
from labeldp.errors import MissingExtra
from labeldp.vault.labels import Unsealed

SPLIT_SEED = 1978
"""Public. RandomState, because numpy promises that its stream never changes."""
MOST_VISITS = 20
PARTIES = (
    "strong Democrat",
    "weak Democrat",
    "independent Democrat",
    "independent",
    "independent Republican",
    "weak Republican",
    "strong Republican",
)

Bundled = tuple[NDArray[np.float64], tuple[str, ...], Unsealed]
"""The features, their names, and the class numbers, in the order of the table."""


@dataclass(frozen=True, slots=True)
class Survey:
    """One question of one table: where it is, what was asked, what may be answered."""

    read: Callable[[], Bundled]
    classes: tuple[str, ...] | tuple[int, ...]
    categorical: tuple[str, ...] = ()
    """Columns whose numbers are codes of categories rather than a scale."""


def load(name: str, data_dir: Place) -> Dataset:  # noqa: ARG001 - the surveys need no folder
    """Read one of the surveys from the package that it comes with."""
    survey = SURVEYS[name]
    X, columns, labels = survey.read()
    inputs: dict[str, Any] = {"kind": "table", "columns": list(columns)}
    if survey.categorical:
        inputs["categorical"] = list(survey.categorical)
    return randomly_split(
        name, X, labels, classes=survey.classes, inputs=inputs, seed=SPLIT_SEED, n_test=len(X) // 5, source=name
    )


def _from_statsmodels(
    module: str, label: str, class_of: Callable[[NDArray[Any]], NDArray[Any]], left_out: tuple[str, ...] = ()
) -> Bundled:
    try:
        from statsmodels import datasets as bundled
    except ImportError:
        raise MissingExtra("The surveys come with statsmodels: pip install 'labeldp[survey]'.") from None
    table = Unsealed(getattr(bundled, module).load_pandas().data)
    columns = [column for column in table.labels.columns if column not in (label, *left_out)]
    X = table.labels[columns].to_numpy(dtype=np.float64)
    return X, tuple(columns), Unsealed(class_of(table.labels[label].to_numpy()).astype(np.int64))


def _breast_cancer() -> Bundled:
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise MissingExtra("breast-cancer comes with scikit-learn: pip install 'labeldp[sklearn]'.") from None
    table = Unsealed(load_breast_cancer())
    return table.labels.data, tuple(map(str, table.labels.feature_names)), Unsealed(table.labels.target)


def _any(time_spent: NDArray[Any]) -> NDArray[Any]:
    return time_spent > 0


def _clipped(visits: NDArray[Any]) -> NDArray[Any]:
    return np.minimum(visits, MOST_VISITS)


SURVEYS = {
    "fair": Survey(
        partial(_from_statsmodels, "fair", "affairs", _any),
        classes=("no", "yes"),
        categorical=("occupation", "occupation_husb"),
    ),
    "anes96-vote": Survey(partial(_from_statsmodels, "anes96", "vote", np.asarray), classes=("Clinton", "Dole")),
    "anes96-party": Survey(partial(_from_statsmodels, "anes96", "PID", np.asarray, ("vote",)), classes=PARTIES),
    "randhie": Survey(partial(_from_statsmodels, "randhie", "mdvis", _clipped), classes=tuple(range(MOST_VISITS + 1))),
    "breast-cancer": Survey(_breast_cancer, classes=("malignant", "benign")),
}
