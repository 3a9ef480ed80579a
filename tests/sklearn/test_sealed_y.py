"""Sealed labels inside scikit-learn's own tools: whatever these do, no label spends more than its budget."""

from __future__ import annotations

import traceback
import warnings
from contextlib import suppress

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeldp as ldp
from labeldp.sklearn import LabelDPClassifier, LabelDPRegressor

N = 90
CLASSES = ["low", "middle", "high"]


def vault_of(budget="2"):
    return ldp.LabelVault(np.array(CLASSES)[labels()], classes=CLASSES, budget=budget)


def features():
    return np.random.default_rng(0).normal(size=(N, 2))


def labels():
    return np.digitize(features()[:, 0], [-0.5, 0.5])


def private(estimator=None, **settings):
    return LabelDPClassifier(estimator or GaussianNB(), **{"epsilon": 2, "rounds": 1, "folds": 2} | settings)


def by_row(vault):
    """What each row has spent."""
    return [float(vault.spent([row]).epsilon) for row in range(N)]


# ---- a fit charges the vault -----------------------------------------------------------------------------------------


def test_a_fit_charges_the_vault_and_a_second_one_is_refused():
    vault, X = vault_of(), features()
    model = private().fit(X, vault.sealed())
    assert vault.spent().epsilon == "2" and model.classes_.tolist() == sorted(CLASSES)
    assert "everything that the vault" in model.certificate_["covers"]
    before = model.predict_proba(X)
    for again in (model, private(epsilon="0.000000000001")):
        with pytest.raises(ldp.BudgetExhausted):
            again.fit(X, vault.sealed())
    assert (model.predict_proba(X) == before).all() and vault.spent().epsilon == "2"


def test_rows_may_come_in_any_order_with_their_features_weights_and_labels():
    """Light rows have contrary labels: the model is right where features, weights and labels have stayed together."""
    X, order = features(), np.random.default_rng(1).permutation(N)
    heavy = X[:, 1] > 0
    vault = ldp.LabelVault(np.where(heavy, labels(), 2 - labels()), classes=3, budget="20")
    weights = np.where(heavy, 1.0, 1e-9)
    model = private(LogisticRegression(C=100), epsilon=20)
    model.fit(X[order, :1], vault.sealed()[order], sample_weight=weights[order])
    assert model.score(X[heavy, :1], labels()[heavy]) > 0.85


def test_declared_classes_must_be_those_of_the_vault():
    vault, X = vault_of(), features()
    for wrong in (["low", "high"], 3):
        with pytest.raises(ldp.InvalidArgument, match="those of the vault"):
            private(classes=wrong).fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"
    private(classes=CLASSES[::-1]).fit(X, vault.sealed())


def test_scoring_against_sealed_labels_raises():
    vault, X = vault_of(), features()
    model = private().fit(X, vault.sealed())
    for against in (vault.sealed(), vault.sealed()[:10]):
        with pytest.raises(ldp.TrustError, match="sealed"):
            model.score(X[: len(against)], against)
        with pytest.raises(ldp.TrustError, match="sealed"):
            accuracy_score(against, model.predict(X[: len(against)]))


def test_training_rows_of_a_split_are_charged_and_the_others_are_not():
    vault, X = vault_of(), features()
    train, test, y_train, y_test = train_test_split(X, vault.sealed(), random_state=0, test_size=30)
    model = private().fit(train, y_train)
    assert y_train.spent().epsilon == "2" and y_test.spent().epsilon == "0" and sum(by_row(vault)) == 60 * 2
    assert model.predict(test).shape == (30,)
    with pytest.raises(ldp.TrustError):
        train_test_split(X, vault.sealed(), stratify=vault.sealed())


@pytest.mark.parametrize(
    "X", [np.ones(N), features()[:-1], np.full((N, 2), np.nan), features().astype(str), np.full((N, 2), 1j)]
)
def test_features_that_do_not_fit_charge_nothing(X):
    vault = vault_of()
    if X.dtype.kind == "U":
        X = np.char.add(X, "x")
    with pytest.raises(ldp.InvalidArgument):
        private(LogisticRegression()).fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize("estimator", [LogisticRegression(C=-1), KFold(3), "GaussianNB", StandardScaler()])
def test_an_estimator_that_cannot_learn_charges_nothing(estimator):
    vault = vault_of()
    with pytest.raises((ldp.InvalidArgument, TypeError, AttributeError)):
        LabelDPClassifier(estimator, epsilon=2).fit(features(), vault.sealed())
    assert vault.spent().epsilon == "0"


class FailsLate(GaussianNB):
    """Fails in its fourth fit, and then in all: after two rehearsals, one for each stage, and one fold."""

    fits = 0

    def fit(self, X, y, sample_weight=None):
        FailsLate.fits += 1
        if FailsLate.fits > 3:
            raise RuntimeError("out of luck")
        return super().fit(X, y, sample_weight)


def test_a_fit_that_fails_late_has_spent_no_more_than_epsilon():
    vault, X = vault_of(budget="3"), features()
    FailsLate.fits = 0
    model = private(FailsLate())
    with pytest.raises(RuntimeError, match="out of luck"):
        model.fit(X, vault.sealed())
    assert set(by_row(vault)) == {0, 2}  # the first stage was asked, the second was not
    assert not hasattr(model, "estimator_")
    assert [len(release) for release in model.releases_] == [by_row(vault).count(2)]  # it can be learned from, free
    assert model.certificate_["spent"]["epsilon"] == "2"


# ---- pipelines -------------------------------------------------------------------------------------------------------


def test_it_stands_at_the_end_of_a_pipeline():
    vault, X = vault_of(), features()
    pipeline = make_pipeline(StandardScaler(), private()).fit(X, vault.sealed())
    assert vault.spent().epsilon == "2" and pipeline.predict(X).shape == (N,)
    with pytest.raises(ldp.TrustError):
        pipeline.score(X, vault.sealed())
    with pytest.raises(ldp.BudgetExhausted):
        pipeline.fit(X, vault.sealed())


def test_a_transformer_before_it_that_reads_labels_is_refused_and_nothing_is_charged():
    vault, X = vault_of(), features()
    with pytest.raises(ldp.TrustError, match="sealed"):
        make_pipeline(SelectKBest(k=1), private()).fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"
    inside = private(make_pipeline(SelectKBest(k=1), GaussianNB())).fit(X, vault.sealed())
    assert inside.estimator_[0].get_support().sum() == 1 and vault.spent().epsilon == "2"


def test_bootstrap_samples_are_refused_and_nothing_is_charged():
    vault, X = vault_of(), features()
    with pytest.raises((ldp.TrustError, ldp.InvalidArgument)):
        BaggingClassifier(private(), n_estimators=2).fit(X, vault.sealed())
    with pytest.raises(ldp.InvalidArgument, match="bootstrap"):
        private().fit(X[[0, 1, 1, 2]], vault.sealed()[[0, 1, 1, 2]])
    assert vault.spent().epsilon == "0"


# ---- cross-validation and searches -----------------------------------------------------------------------------------


def score_of_nothing(model, X, y):
    """A score that reads no label."""
    return float(model.predict_proba(X).max())


def test_cross_validation_as_it_comes_reads_labels_and_is_refused():
    vault = vault_of()
    with pytest.raises(ldp.TrustError, match="LabelDPSearchCV"):
        cross_val_score(private(), features(), vault.sealed())
    assert vault.spent().epsilon == "0"


def test_of_overlapping_folds_only_the_first_is_learned_from():
    vault = vault_of()
    with pytest.warns(FitFailedWarning, match="2 fits failed"):
        scores = cross_val_score(private(), features(), vault.sealed(), cv=KFold(3), scoring=score_of_nothing)
    assert np.isnan(scores).tolist() == [False, True, True]
    assert vault.spent().epsilon == "2" and sum(by_row(vault)) == 60 * 2


def test_scores_against_sealed_labels_fail_inside_cross_validation_too():
    vault = vault_of()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = cross_val_score(private(), features(), vault.sealed(), cv=KFold(3))
    assert np.isnan(scores).all() and vault.spent().epsilon == "2"
    assert any("sealed" in str(each.message) for each in caught)


@pytest.mark.parametrize("scoring", [None, score_of_nothing])
def test_cross_validation_that_raises_on_errors_raises(scoring):
    vault = vault_of()
    with pytest.raises((ldp.TrustError, ldp.BudgetExhausted)):
        cross_val_score(private(), features(), vault.sealed(), cv=KFold(3), scoring=scoring, error_score="raise")
    assert vault.spent().epsilon == "2"


def test_a_budget_for_all_folds_is_spent_row_by_row():
    vault = vault_of(budget="6")
    found = cross_validate(
        private(), features(), vault.sealed(), cv=KFold(3), scoring=score_of_nothing, error_score="raise"
    )
    assert len(found["test_score"]) == 3
    assert vault.spent().epsilon == "4" and set(by_row(vault)) == {4.0}  # each row is trained on in two of three folds


REFUSED_AT_ONCE = {
    "as it comes": {},
    "without refit": {"refit": False},
    "in two processes": {"n_jobs": 2},
    "folds in two processes": {"cv": KFold(3), "scoring": score_of_nothing, "n_jobs": 2},
}
GOING_ON = {
    "folds that read nothing": {"cv": KFold(3), "scoring": score_of_nothing},
    "folds and no refit": {"cv": KFold(3), "scoring": score_of_nothing, "refit": False},
    "folds, raising": {"cv": KFold(3), "scoring": score_of_nothing, "error_score": "raise"},
    "folds, scoring against labels": {"cv": KFold(3)},
    "one split": {"cv": [(np.arange(60), np.arange(60, N))], "scoring": score_of_nothing},
}
GRID = {"estimator__var_smoothing": [1e-9, 1e-2], "epsilon": [1, 2]}


@pytest.mark.parametrize("how", REFUSED_AT_ONCE)
def test_searches_that_split_by_label_or_use_other_processes_are_refused_and_nothing_is_charged(how):
    vault = vault_of("4")
    with pytest.raises(Exception, match=r"(?i)sealed labels are never pickled|labels are sealed|could not pickle"):
        GridSearchCV(private(), GRID, **REFUSED_AT_ONCE[how]).fit(features(), vault.sealed())
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize("how", GOING_ON)
@pytest.mark.parametrize("budget", ["2", "4"])
def test_no_search_spends_more_than_the_budget(how, budget):
    vault = vault_of(budget)
    with warnings.catch_warnings(), suppress(ldp.BudgetExhausted, ldp.TrustError):
        warnings.simplefilter("ignore")  # fits that failed, and scores
        GridSearchCV(private(), GRID, **GOING_ON[how]).fit(features(), vault.sealed())
    spent = by_row(vault)
    assert 0 < max(spent) <= float(budget) and vault.spent().epsilon == f"{max(spent):g}"


def test_a_search_with_budget_enough_ends_and_says_what_it_cost():
    vault = vault_of("20")
    search = GridSearchCV(private(), {"epsilon": [1, 2]}, cv=KFold(3), scoring=score_of_nothing, error_score="raise")
    search.fit(features(), vault.sealed())
    assert vault.spent().epsilon == f"{2 * 1 + 2 * 2 + search.best_params_['epsilon']}"
    assert search.best_estimator_.certificate_["spent"]["epsilon"] == vault.spent().epsilon


def test_threads_spend_no_more_than_the_budget():
    vault = vault_of("2")
    with warnings.catch_warnings(), joblib.parallel_backend("threading"):
        warnings.simplefilter("ignore")
        scores = cross_val_score(private(), features(), vault.sealed(), cv=KFold(6), scoring=score_of_nothing, n_jobs=4)
    assert np.isnan(scores).sum() >= 5 and max(by_row(vault)) == 2


def test_learning_curves_and_predictions_out_of_fold_stay_within_the_budget():
    vault, X = vault_of("2"), features()
    with pytest.raises((ldp.TrustError, ldp.BudgetExhausted)):
        cross_val_predict(private(), X, vault.sealed(), cv=KFold(3))
    with pytest.raises(ldp.BudgetExhausted):
        learning_curve(private(), X, vault.sealed(), cv=KFold(2), train_sizes=[0.5, 1.0], error_score="raise")
    assert max(by_row(vault)) <= 2


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_a_regressor_charges_the_vault_too():
    vault = ldp.LabelVault(1 + 2 * labels(), classes=[1, 2, 3, 4, 5], budget="2")
    model = LabelDPRegressor(Ridge(), epsilon=2).fit(features(), vault.sealed())
    assert vault.spent().epsilon == "2" and "everything that the vault" in model.certificate_["covers"]
    with pytest.raises(ldp.TrustError):
        model.score(features(), vault.sealed())
    with pytest.raises(ldp.BudgetExhausted):
        model.fit(features(), vault.sealed())


# ---- rows, as the caller has them ------------------------------------------------------------------------------------


def test_held_out_rows_are_those_of_the_x_that_was_given():
    """The vault has an order of its own; graded by other rows, a model that is nearly always right would look like chance."""
    X, order = features(), np.random.default_rng(1).permutation(N)
    vault = ldp.LabelVault(np.array(["c", "b", "a"])[labels()], classes=["c", "b", "a"], budget="8")
    model = LabelDPClassifier(LogisticRegression(C=100), epsilon="8", hold_out=0.3, stages=1).fit(
        X[order], vault.sealed()[order]
    )
    graded = model.grade()
    truth = np.array(["c", "b", "a"])[labels()][order][model.hold_out_.rows]
    assert graded.value == pytest.approx((model.predict(X[order])[model.hold_out_.rows] == truth).mean(), abs=0.1)
    assert graded.value > 0.8 and model.grade(ldp.metrics.log_loss).value < 1
    with pytest.raises(ldp.InvalidArgument, match="no rows are held out"):
        private().fit(X, vault_of().sealed()).grade()


# ---- what a hasty caller may give ------------------------------------------------------------------------------------


def test_labels_in_the_place_of_weights_are_not_quoted():
    X, y = features(), np.array(["SECRET-A", "SECRET-B", "SECRET-C"])[labels()]
    for wrong in (y, y.tolist(), pd.Series(y)):
        with pytest.raises(ldp.InvalidArgument, match="sample_weight must be one finite number per row") as error:
            private(classes=sorted(set(y))).fit(X, np.ones(N), wrong)
        assert "SECRET" not in "".join(traceback.format_exception(error.value))


def test_features_that_hold_the_labels_by_name_are_refused():
    frame = pd.DataFrame(features(), columns=[f"x{i}" for i in range(features().shape[1])])
    frame["income"] = labels()
    with pytest.raises(ldp.InvalidArgument, match="must not hold the labels: its column 'income'"):
        private(classes=3).fit(frame, frame["income"])


def test_labels_under_a_mask_are_missing_and_not_released():
    masked = np.ma.array(labels(), mask=np.arange(N) < 5)
    with pytest.raises(ldp.InvalidLabels, match="must not be missing"):
        private(classes=3).fit(features(), masked)


def test_a_mechanism_that_spends_more_than_epsilon_is_refused():
    vault = vault_of(budget="10")
    with pytest.raises(ldp.InvalidArgument, match="must spend at most epsilon"):
        private(mechanism=lambda _: ldp.GroupedResponse("7")).fit(features(), vault.sealed())
    assert vault.spent().epsilon == "0"


def test_a_vault_in_the_place_of_its_sealed_labels_is_told_apart():
    with pytest.raises(ldp.InvalidArgument, match=r"give vault\.sealed\(\)"):
        private().fit(features(), vault_of())


def test_a_regressor_where_a_classifier_belongs_is_told_apart():
    vault = vault_of()
    with pytest.raises(ldp.InvalidArgument, match="use LabelDPRegressor"):
        private(Ridge()).fit(features(), vault.sealed())
    assert vault.spent().epsilon == "0"


def test_the_column_of_labels_is_not_learned_from_where_it_was_sealed_under_its_name():
    frame = pd.DataFrame({"a": np.arange(20.0), "bought": np.arange(20) % 2})
    vault = ldp.LabelVault(frame["bought"], classes=2, budget="1")
    assert vault.column == vault.sealed()[:3].name == "bought"
    with pytest.raises(ldp.InvalidArgument, match="X must not hold the labels: its column 'bought'"):
        LabelDPClassifier(LogisticRegression(), epsilon=1).fit(frame, vault.sealed())
    assert vault.spent().epsilon == "0"
    assert ldp.LabelVault(frame["bought"].to_numpy(), classes=2, budget="1").column is None


def test_a_fit_that_is_refused_leaves_the_model_that_was_paid_for():
    frame = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40) % 3})
    vault = ldp.LabelVault(np.arange(40) // 20, classes=2, budget="1")
    model = LabelDPClassifier(LogisticRegression(), epsilon=1).fit(frame, vault.sealed())
    before = model.predict_proba(frame)
    with pytest.raises(ldp.BudgetExhausted):
        model.fit(frame[["b"]], vault.sealed())
    with pytest.raises(ldp.InvalidArgument, match="inconsistent numbers of samples"):
        model.fit(frame[["b"]], vault.sealed()[:7])
    assert model.feature_names_in_.tolist() == ["a", "b"] and (model.predict_proba(frame) == before).all()
