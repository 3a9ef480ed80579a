"""The datasets by name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any

from labeldp.datasets import cifar, digits, idx, movielens, surveys
from labeldp.datasets.dataset import Dataset
from labeldp.errors import InvalidArgument, LabelDPError
from labeldp.vault.frames import guarded

Loader = Callable[[str, str | os.PathLike[str] | None], Dataset]

LOADERS: dict[str, Loader] = {
    "anes96-party": surveys.load,
    "anes96-vote": surveys.load,
    "breast-cancer": surveys.load,
    "cifar-10": cifar.load,
    "cifar-100": cifar.load,
    "digits": digits.load,
    "fair": surveys.load,
    "fashion-mnist": idx.load,
    "kmnist": idx.load,
    "mnist": idx.load,
    "movielens-100k": movielens.load,
    "movielens-1m": movielens.load,
    "randhie": surveys.load,
}
FILES = (".csv", ".parquet")


def names() -> tuple[str, ...]:
    """Return the names that `load` knows.

    >>> "mnist" in names()
    True
    """
    return tuple(LOADERS)


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Read a dataset from its publisher's files.

    Parameters
    ----------
    name : one of `names()`.
    data_dir : the folder that holds the dataset's own folder, such as `mnist/`. It is looked for here first, then in
        LABELDP_DATA, then in ~/.cache/labeldp. Nothing is ever downloaded; "digits" and "breast-cancer" come with
        scikit-learn, the surveys ("fair", "anes96-vote", "anes96-party", "randhie") with statsmodels.

    Privacy
    -------
    The training labels are sealed as they are read: they leave the Dataset through a vault, or NOT PRIVATE through
    `unprotected`. Features, classes, and the whole published test split are public.

    >>> from labeldp import datasets
    >>> data = datasets.load("digits")
    >>> data
    <Dataset digits: 1,437 rows, 10 classes, labels sealed>
    >>> release = data.vault(budget="1").release(ldp.RandomizedResponse(epsilon="1"))
    >>> len(release.labels)
    1437
    """
    check_known(name)
    return guarded(
        lambda: LOADERS[name](name, data_dir), f"{name} could not be read ({{}}).", passing=(LabelDPError, OSError)
    )


def check_known(name: Any, *, must_be: str = "the dataset's name must be") -> None:
    """Raise unless there is such a dataset; `must_be` begins the sentence that says so."""
    if not isinstance(name, str) or name not in LOADERS:
        raise InvalidArgument(_unknown(name, must_be))


def _unknown(name: Any, must_be: str) -> str:
    known = f"{must_be} one of {', '.join(map(repr, LOADERS))}, got "
    if not isinstance(name, str):
        return f"{known}{type(name).__name__}."
    if name.lower().endswith(FILES):
        return f"{known}{name[:80]!r}. A file of your own is read by datasets.table.load, which is told its label and classes."
    close = difflib.get_close_matches(name.lower().replace("_", "-"), LOADERS, n=1, cutoff=0.7)
    return f"{known}{name[:80]!r}." + (f" Did you mean {close[0]!r}?" if close else "")
