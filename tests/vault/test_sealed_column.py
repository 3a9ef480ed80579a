import copy
import io
import operator
import pickle
import traceback

import joblib
import numpy as np
import pandas as pd
import pytest
from doubles import Scripted
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import _safe_indexing, resample, shuffle
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

import labeldp as ldp
from labeldp.vault import SealedColumn

RR = ldp.RandomizedResponse
CLASSES = ["secret-no", "secret-yes"]
N = 30


def vault_of(n=N, budget="1", **options):
    return ldp.LabelVault([CLASSES[i % 2] for i in range(n)], classes=CLASSES, budget=budget, **options)


def features(n=N):
    """One row per label, whose first column is the row's number."""
    return np.stack([np.arange(n), np.ones(n)], axis=1).astype(float)


def rows_of(column):
    return column._rows.tolist()


def everything_said(error):
    """What any handler or debugger could show of an error, locals of our own frames included."""
    shown = "".join(traceback.format_exception(error)) + repr(error.args)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if "labeldp" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            shown += repr(frame.f_locals)
    return shown


# ---- nobody can read it ----------------------------------------------------------------------------------------------

WAYS_TO_READ = {
    "asarray": np.asarray,
    "array without copy": lambda y: np.array(y, copy=None),
    "array of text": lambda y: np.asarray(y, dtype=str),
    "array of objects": lambda y: np.asarray(y, dtype=object),
    "array of columns": lambda y: np.array([y]),
    "array protocol": lambda y: y.__array__(),
    "unique": np.unique,
    "mean": np.mean,
    "concatenate": lambda y: np.concatenate([y, y]),
    "take": lambda y: np.take(y, [0]),
    "bincount": np.bincount,
    "pandas series": pd.Series,
    "pandas frame": lambda y: pd.DataFrame({"y": y}),
    "list": list,
    "tuple": tuple,
    "set": set,
    "iter": iter,
    "next": lambda y: next(iter(y)),
    "unpacking": lambda y: [*y],
    "sorted": sorted,
    "sum": sum,
    "max": max,
    "enumerate": enumerate,
    "reversed": lambda y: list(reversed(y)),
    "contains": lambda y: "guess" in y,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "bytes": bytes,
    "first": lambda y: y[0],
    "last": lambda y: y[-1],
    "numpy integer": lambda y: y[np.int64(1)],
    "integer of no dimension": lambda y: y[np.array(1)],
    "integer and ellipsis": lambda y: y[1, ...],
    "equal": lambda y: y == "guess",
    "equal to itself": lambda y: y == y,
    "unequal": lambda y: y != 0,
    "equal from the left": lambda y: "guess" == y,  # noqa: SIM300
    "equal to an array": lambda y: np.array(["guess"]) == y,
    "equal to a numpy scalar": lambda y: np.float64(1) == y,
    "equal to a series": lambda y: pd.Series([1] * len(y)) == y,
    "less": lambda y: y < 1,
    "greater from the left": lambda y: np.arange(len(y)) > y,
    "at most": lambda y: y <= 1,
    "at least": lambda y: y >= 1,
    "ufunc": lambda y: np.equal(y, 1),
    "plus an array": lambda y: np.zeros(len(y)) + y,
    "isnan": np.isnan,
    "in a list of others": lambda y: y in [1],
    "tolist": lambda y: y.tolist(),
    "to_list": lambda y: y.to_list(),
    "to_numpy": lambda y: y.to_numpy(),
    "astype": lambda y: y.astype(str),
    "item": lambda y: y.item(0),
    "data": lambda y: y.data,
    "values": lambda y: y.values,
    "flat": lambda y: y.flat,
    "type_of_target": type_of_target,
    "check_array": lambda y: check_array(y, ensure_2d=False),
    "column_or_1d": column_or_1d,
    "LabelEncoder": lambda y: LabelEncoder().fit(y),
    "accuracy_score": lambda y: accuracy_score(y, ["guess"] * len(y)),
}


@pytest.mark.parametrize("way", WAYS_TO_READ)
def test_every_way_of_reading_raises_one_clear_error(way):
    vault = vault_of(4)
    with pytest.raises(
        ldp.TrustError, match=r"sealed.*labeldp's own estimators.*cv=KFold\(5\).*labeldp.metrics"
    ) as caught:
        WAYS_TO_READ[way](vault.sealed())
    assert not any(name in everything_said(caught.value) for name in CLASSES)
    assert vault.spent().epsilon == "0"


def test_what_it_shows_and_holds_is_no_label():
    column = vault_of(4).sealed()
    held = [getattr(column, name) for name in SealedColumn.__slots__]
    shown = repr([column, held]) + str(column) + f"{column}" + repr(dir(column))
    assert repr(column) == "<4 sealed labels>" and repr(column[:1]) == "<1 sealed labels>"
    assert not any(name in shown for name in CLASSES)
    assert not hasattr(column, "__dict__")


def test_an_array_that_is_made_around_it_is_opaque():
    box = np.empty(1, dtype=object)
    box[0] = vault_of(4).sealed()
    assert repr(box) == "array([<4 sealed labels>], dtype=object)"


@pytest.mark.parametrize("write", [pickle.dumps, lambda y: joblib.dump(y, io.BytesIO()), joblib.hash])
def test_it_is_never_pickled(write):
    with pytest.raises(ldp.LabelDPError, match="never pickled") as caught:
        write(vault_of(4).sealed())
    assert not any(name in everything_said(caught.value) for name in CLASSES)


def test_copies_and_clones_are_itself():
    column = vault_of(4).sealed()
    assert copy.copy(column) is column and copy.deepcopy([column])[0] is column
    assert clone(column, safe=False) is column
    assert {column: 1}[column] == 1


# ---- indexing --------------------------------------------------------------------------------------------------------


def test_it_has_the_shape_of_a_column():
    column = vault_of(4).sealed()
    assert len(column) == 4 and column.shape == (4,) and column.ndim == 1
    check_consistent_length(features(4), column)


@pytest.mark.parametrize(
    "key",
    [
        np.array([3, 0, 2]),
        np.array([3, 0, 2], dtype=np.uint8),
        np.array([-1, 0]),
        [1, 1, 3],
        [],
        np.array([True, False, True, True]),
        [True, False, True, True],
        slice(1, 3),
        slice(None, None, -1),
        pd.Series([2, 1]),
        (np.array([3, 1]), Ellipsis),
        ([True, False, False, True], Ellipsis),
        (slice(2), Ellipsis),
        Ellipsis,
    ],
    ids=str,
)
def test_indexing_chooses_rows_as_numpy_does(key):
    numbers = np.array([7, 2, 9, 4])
    chosen = SealedColumn(vault_of(10), numbers)[key]
    assert type(chosen) is SealedColumn and rows_of(chosen) == numbers[key].tolist()


@pytest.mark.parametrize(
    "key", [[4], [-5], np.array([0, 99]), [True, False], "x", [0.5], (0, 1), np.array([0.0, 1.0]), 4, (4, Ellipsis)]
)
def test_what_numpy_cannot_index_raises_an_index_error(key):
    with pytest.raises(IndexError):
        vault_of(4).sealed()[key]


@pytest.mark.parametrize("key", [None, (slice(None), None), [[0, 1]], True])
def test_what_is_more_than_a_column_is_refused(key):
    with pytest.raises(ldp.InvalidArgument, match="one column"):
        vault_of(4).sealed()[key]


def test_a_column_cannot_be_written_to():
    column = vault_of(4).sealed()
    with pytest.raises(TypeError):
        column[0] = "secret-yes"
    with pytest.raises(ValueError, match="read-only"):
        column[[1, 2]]._rows[:] = 0


# ---- in scikit-learn's hands -----------------------------------------------------------------------------------------


def test_splitting_and_shuffling_keep_x_and_y_together():
    X, column = features(), vault_of().sealed()
    X_train, X_test, train, test = train_test_split(X, column, shuffle=True, random_state=0)
    assert rows_of(train) == X_train[:, 0].tolist() and rows_of(test) == X_test[:, 0].tolist()
    assert sorted(rows_of(train) + rows_of(test)) == list(range(N)) and rows_of(train) != sorted(rows_of(train))
    for shuffled, y in (shuffle(X, column, random_state=1), resample(X, column, random_state=1)):
        assert rows_of(y) == shuffled[:, 0].tolist()


@pytest.mark.parametrize("cv", [KFold(5), KFold(5, shuffle=True, random_state=0), ShuffleSplit(3, random_state=0)])
def test_splits_that_do_not_read_y_work(cv):
    X, column = features(), vault_of().sealed()
    for train, test in cv.split(X, column):
        assert rows_of(_safe_indexing(column, train)) == train.tolist()
        assert rows_of(_safe_indexing(column, test)) == test.tolist()
    assert len(list(GroupKFold(3).split(X, column, groups=np.arange(N) % 3))) == 3


@pytest.mark.parametrize("key", [[2, 0], (2, 0), np.array([2, 0]), slice(1, 3), np.array([True, False, True, False])])
def test_safe_indexing_is_indexing(key):
    expected = np.arange(4)[list(key) if isinstance(key, tuple) else key]
    assert rows_of(_safe_indexing(vault_of(4).sealed(), key)) == expected.tolist()


READERS = {
    "cross_val_score of a classifier": lambda X, y: cross_val_score(DummyClassifier(), X, y),
    "cross_val_score in strata": lambda X, y: cross_val_score(DummyClassifier(), X, y, cv=StratifiedKFold(3)),
    "grid search": lambda X, y: GridSearchCV(DummyClassifier(), {"strategy": ["prior", "uniform"]}).fit(X, y),
    "strata": lambda X, y: list(StratifiedKFold(3).split(X, y)),
    "a stratified hold-out": lambda X, y: train_test_split(X, y, stratify=y),
    "feature selection": lambda X, y: SelectKBest(k=1).fit(X, y),
    "another library's classifier": lambda X, y: LogisticRegression().fit(X, y),
    "a dummy": lambda X, y: DummyClassifier().fit(X, y),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_would_read_y_raises_and_charges_nothing(reader):
    vault = vault_of()
    with pytest.raises(ldp.TrustError, match="sealed") as caught:
        READERS[reader](features(), vault.sealed())
    assert not any(name in everything_said(caught.value) for name in CLASSES)
    assert vault.spent().epsilon == "0"


def test_a_fit_that_fails_within_cross_validation_says_why():
    vault = vault_of()
    with pytest.raises(ValueError, match="These labels are sealed") as caught:
        cross_val_score(DummyClassifier(), features(), vault.sealed(), cv=KFold(3))
    assert not any(name in everything_said(caught.value) for name in CLASSES)
    assert vault.spent().epsilon == "0"


class OneRelease(ClassifierMixin, BaseEstimator):
    """The least an estimator can do with a column: ask for it once."""

    def fit(self, X, y):
        assert isinstance(y, SealedColumn)
        column, order = y.in_order()
        self.release_ = column.release(RR("1"))
        assert rows_of(column) == X[order, 0].tolist()
        return self


def test_every_fit_of_a_cross_validation_is_charged():
    vault = vault_of(budget="5")
    cv = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(OneRelease(), features(), vault.sealed(), cv=cv, scoring=lambda *Xy: len(Xy[2]))
    assert scores.tolist() == [10, 10, 10]
    assert vault.spent().epsilon == "2" and vault.remaining().epsilon == "3"


# ---- a holder of labels ----------------------------------------------------------------------------------------------


def test_a_column_holds_labels_as_a_vault_does():
    vault = vault_of(missing="public", trust="curator")
    column = vault.sealed()
    assert isinstance(column, ldp.LabelHolder)
    assert (column.classes, column.trust, len(column)) == (vault.classes, "curator", N)
    assert column.certificate() == vault.certificate()


def fit(column, **options):
    """Put a column in order and learn from it in stages, as an estimator does."""
    ordered, order = column.in_order()
    stages = ldp.MultiStage(Scripted(), mechanism=RR, **options)  # which charges every row
    return stages.fit(features()[rows_of(column)][order], ordered, epsilon="1")


def test_stages_on_a_column_speak_of_its_rows_and_charge_the_vaults():
    vault = vault_of()
    rows = np.array([17, 3, 29, 4, 11, 8])
    trained = fit(vault.sealed()[rows], hold_out=0.2)
    released = np.concatenate([release.rows for release in (trained.hold_out_, *trained.releases_)])
    assert sorted(released) == [0, 1, 2, 3, 4, 5]
    for row in range(N):
        assert vault.spent(rows=[row]).epsilon == ("1" if row in rows else "0")
    column, _ = vault.sealed()[rows].in_order()
    assert all(column.recognises(release) for release in trained.releases_)
    assert not any(vault.recognises(release) for release in trained.releases_)  # its rows have other numbers


def test_a_second_fit_is_past_the_budget():
    column = vault_of().sealed()[[17, 3, 29, 4]]
    fit(column)
    with pytest.raises(ldp.BudgetExhausted):
        fit(column)
    with pytest.raises(ldp.BudgetExhausted):
        column.in_order()[0].release(RR("0.1"), rows=[0])


def test_disjoint_columns_compose_in_parallel():
    vault = vault_of()
    train, test = train_test_split(vault.sealed(), random_state=0)
    fit(train)
    fit(test)
    assert vault.spent().epsilon == train.spent().epsilon == test.spent().epsilon == "1"


def test_a_stage_that_was_stored_is_read_back(tmp_path):
    vault = vault_of()
    column = vault.sealed()[5:25]
    ldp.MultiStage(Scripted()).fit(features(20), column, "1", folder=tmp_path)
    again = ldp.MultiStage(Scripted()).fit(features(20), column, "1", folder=tmp_path)
    assert len(again.releases_) == 2 and vault.spent().epsilon == "1"


def test_a_named_release_is_answered_again_with_the_columns_own_rows():
    vault = vault_of()
    first = vault.sealed()[10:20].release(RR("1"), rows=[2, 5], name="n")
    again = vault.sealed()[12:].release(RR("1"), rows=[0, 3], name="n")
    assert (first.reports == again.reports).all()
    assert first.rows.tolist() == [2, 5] and again.rows.tolist() == [0, 3]
    assert vault.spent(rows=[12, 15]).epsilon == "1"


def test_the_reports_are_those_of_the_columns_rows():
    """Row i is released as a class that only row i has; at epsilon 20 over 30 classes the reports are true but for 1e-7."""
    vault = ldp.LabelVault(np.arange(N), classes=N, budget="20", bits=ldp.InsecureBits(seed=1))
    column, order = vault.sealed()[[17, 3, 29, 4]].in_order()
    release = column.release(RR("20"), rows=[True, False, True, True])
    assert order.tolist() == [1, 3, 0, 2] and release.rows.tolist() == [0, 2, 3]
    assert release.labels.tolist() == [3, 17, 29]


def test_a_prior_function_is_asked_for_rows_of_the_column():
    asked = []

    def priors(rows):
        asked.extend(rows.tolist())
        rows[:] = 0  # its own array
        return np.full((len(rows), 2), 0.5)

    column = vault_of().sealed()[10:20]
    release = column.release(ldp.GroupedResponse("1"), rows=[0, 3, 9], priors=priors)
    assert asked == [0, 3, 9] == release.rows.tolist()
    table = np.tile([0.9, 0.1], (2, 1))
    assert len(column.release(ldp.GroupedResponse("1"), rows=[1, 2], priors=table)) == 2


def test_rows_without_a_label_are_left_out():
    labels = [None if i in (2, 5) else CLASSES[i % 2] for i in range(8)]
    vault = ldp.LabelVault(labels, classes=CLASSES, budget="1", missing="public")
    column = vault.sealed()[[1, 2, 4, 5, 7]]
    assert column.labelled.tolist() == [True, False, True, False, True]
    assert column.release(RR("1")).rows.tolist() == [0, 2, 4]
    with pytest.raises(ldp.InvalidArgument, match="must all have a label"):
        column.release(RR("1"), rows=[1])


def test_spending_is_that_of_the_columns_rows():
    vault = vault_of(budget="2")
    vault.release(RR("1"), rows=[3, 4])
    vault.release(RR("0.5"), rows=[4])
    column = vault.sealed()[[9, 3, 3, 0]]
    assert column.spent().epsilon == "1" and column.remaining().epsilon == "1"
    assert column.spent(rows=[0, 3]).epsilon == "0" and column.remaining(rows=[0, 3]).epsilon == "2"
    assert column[[0]].remaining().epsilon == "2" and vault.spent().epsilon == "1.5"


def test_a_column_out_of_order_is_not_answered():
    vault = vault_of(trust="curator")
    for column in (vault.sealed()[[2, 1]], vault.sealed()[[1, 1]]):
        for ask in (
            lambda y: y.release(RR("1")),
            lambda y: y.histogram([0, 0], "1"),
            lambda y: y.agreement(CLASSES, "1"),
        ):
            with pytest.raises(ldp.InvalidArgument, match="in_order"):
                ask(column)
    assert vault.spent().epsilon == "0"


def test_a_row_that_occurs_twice_is_not_learned_from():
    column = resample(vault_of().sealed(), random_state=0)
    with pytest.raises(ldp.InvalidArgument, match="bootstrap"):
        column.in_order()


def test_an_empty_column_is_not_answered():
    column = vault_of().sealed()[[]]
    assert len(column) == 0 and len(column.in_order()[0]) == 0
    with pytest.raises(ldp.InvalidArgument, match="at least one row"):
        column.release(RR("1"))


def test_aggregates_are_of_the_columns_rows():
    vault = ldp.LabelVault(np.arange(N) % 3, classes=3, budget="20", trust="curator", bits=ldp.InsecureBits(seed=1))
    column = vault.sealed()[10:20]
    counts = column.histogram([0, 1, 1], "20", rows=[2, 5, 8])  # the vault's rows 12, 15, 18: label 0
    sums = column.sums([0, 0], low=0, high=2, epsilon="20", rows=[1, 4])  # 11 and 14: label 2
    agreement = column.agreement([1, 1, 0], "20", rows=[0, 3, 6])  # 10, 13, 16: label 1
    assert counts.rows.tolist() == [2, 5, 8] and counts.counts.tolist() == [[1, 0, 0], [2, 0, 0]]
    assert sums.rows.tolist() == [1, 4] and sums.sums.tolist() == [4]
    assert agreement.count == 2
    assert [row for row in range(N) if vault.spent(rows=[row]).epsilon != "0"] == [10, 11, 12, 13, 14, 15, 16, 18]


def test_a_column_of_a_column_is_a_column():
    vault = vault_of()
    inner = SealedColumn(vault.sealed()[10:20])[[4, 2]].in_order()[0]
    assert inner.release(RR("1")).rows.tolist() == [0, 1]
    assert vault.spent(rows=[12, 14]).epsilon == "1" and vault.spent(rows=[13]).epsilon == "0"


def test_a_column_of_a_closed_vault_answers_nothing():
    vault = vault_of()
    column = vault.sealed()
    vault.close()
    with pytest.raises(ldp.VaultClosed):
        column.release(RR("1"))
