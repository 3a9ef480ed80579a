"""Counts and sums that come from a file must fit together, as a stranger's file may not."""

from __future__ import annotations

import numpy as np
import pytest

import labeldp as ldp
from labeldp.errors import InvalidArgument
from labeldp.vault.aggregates import AgreementRelease, HistogramRelease, SumRelease
from labeldp.vault.files import write_release


@pytest.fixture(scope="module")
def vault():
    return ldp.LabelVault([0, 1, 2, 1, 0, 2], classes=3, budget="9", trust="curator")


@pytest.fixture(scope="module")
def released(vault):
    groups = [0, 0, 1, 1, 3, 3]
    return {
        HistogramRelease: vault.histogram(groups, "1", n_groups=4),
        SumRelease: vault.sums(groups, low=0, high=2, epsilon="1", n_groups=4),
        AgreementRelease: vault.agreement([0] * 6, "1"),
    }


def changed_file(release, path, *, without=None, **arrays):
    facts, known = release.contents()
    write_release(path, {key: value for key, value in facts.items() if key != without}, known | arrays)
    return path


@pytest.mark.parametrize("kind", [HistogramRelease, SumRelease])
def test_what_was_stored_whole_comes_back(released, kind, tmp_path):
    release = released[kind]
    again = kind.load(changed_file(release, tmp_path / "file"))
    assert again.totals.tolist() == [2, 2, 0, 2] and again.receipt == release.receipt


@pytest.mark.parametrize("kind", [HistogramRelease, SumRelease])
@pytest.mark.parametrize(
    "arrays",
    [
        {"groups": np.array([0, 0, 1, 1, 3])},
        {"rows": np.arange(5)},
        {"groups": np.array([0, 0, 1, 1, 3, 4])},
        {"groups": np.array([0, 0, 1, 1, 3, -1])},
        {"groups": np.array([0, 0, 1, 1, 3, 2**64 - 1], dtype=np.uint64)},
        {"groups": np.array([0, 0, 1, 1, 3, 2])},
        {"totals": np.array([2, 2, 1, 1])},
    ],
    ids=str,
)
def test_groups_that_do_not_fit_are_refused(released, kind, arrays, tmp_path):
    with pytest.raises(InvalidArgument, match="the file's groups do not fit its rows and their totals"):
        kind.load(changed_file(released[kind], tmp_path / "file", **arrays))


@pytest.mark.parametrize(("kind", "array"), [(HistogramRelease, "counts"), (SumRelease, "sums")])
def test_as_many_figures_as_groups_are_expected(released, kind, array, tmp_path):
    fewer = {array: getattr(released[kind], array)[:3]}
    with pytest.raises(InvalidArgument, match=f"the file's {array} do not fit its groups"):
        kind.load(changed_file(released[kind], tmp_path / "file", **fewer))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *((HistogramRelease, key) for key in ("classes", "receipt")),
        *((SumRelease, key) for key in ("low", "high", "receipt")),
        *((AgreementRelease, key) for key in ("count", "n_rows", "receipt")),
    ],
)
def test_a_missing_fact_is_named(released, kind, key, tmp_path):
    with pytest.raises(InvalidArgument, match=f"the file lacks what a {kind.KIND} must say: {key}"):
        kind.load(changed_file(released[kind], tmp_path / "file", without=key))
