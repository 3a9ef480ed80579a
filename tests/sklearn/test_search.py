"""LabelDPSearchCV: one release for all candidates, graded on noisy hold-outs."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeldp as ldp
from labeldp.metrics import accuracy, log_likelihood
from labeldp.randomness import InsecureBits
from labeldp.sklearn import LabelDPClassifier, LabelDPSearchCV

GRID = {"estimator__C": [1e-9, 1.0]}


def problem(n=400):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, np.digitize(X[:, 0], [-0.5, 0.5])


def vault_of(y, budget="4"):
    return ldp.LabelVault(y, classes=3, budget=budget, bits=InsecureBits(0))


def private(estimator=None, **settings):
    return LabelDPClassifier(estimator or LogisticRegression(), **{"epsilon": 4, "rounds": 1, "folds": 2} | settings)


@pytest.mark.parametrize("scoring", ["log_likelihood", "accuracy"])
def test_it_asks_once_and_picks_the_better_one(scoring):
    X, y = problem()
    vault = vault_of(y)
    search = LabelDPSearchCV(private(), GRID, scoring=scoring).fit(X, vault.sealed())
    assert vault.spent().epsilon == "4" and len(vault.certificate()["queries"]) == 3  # two stages and the hold-out
    assert search.best_params_ == {"estimator__C": 1.0} and search.best_index_ == 1
    assert search.best_estimator_.estimator.C == 1.0
    assert search.score(X, y) > 0.8 and search.predict(X).tolist() == search.best_estimator_.predict(X).tolist()
    assert search.predict_proba(X).shape == search.decision_function(X).shape == (400, 3)
    assert "everything that the vault" in search.certificate_["covers"]
    with pytest.raises(ldp.TrustError):
        search.score(X, vault.sealed())
    with pytest.raises(ldp.BudgetExhausted):
        search.fit(X, vault.sealed())
    assert vault.spent().epsilon == "4"


def test_raw_labels_are_sealed_in_fit():
    X, y = problem()
    names = np.array(["c", "a", "b"])[y]
    search = LabelDPSearchCV(private(classes=["c", "b", "a"]), GRID).fit(pd.DataFrame(X, columns=list("xyz")), names)
    assert search.classes_.tolist() == ["a", "b", "c"] and search.feature_names_in_.tolist() == list("xyz")
    assert search.best_estimator_.feature_names_in_.tolist() == list("xyz")
    assert search.score(pd.DataFrame(X, columns=list("xyz")), names) > 0.8
    assert "this fit alone" in search.certificate_["covers"] and search.certificate_["spent"]["epsilon"] == "4"
    with pytest.raises(ValueError, match="feature names"):
        search.predict(pd.DataFrame(X, columns=list("xzy")))


def test_the_hold_out_is_randomized_response_on_rows_of_its_own():
    X, y = problem()
    search = LabelDPSearchCV(private(), GRID, hold_out=0.25).fit(X, vault_of(y).sealed())
    best = search.best_estimator_
    assert best.hold_out_ is None  # it has learned from those rows, which cannot grade it any more
    assert search.hold_out_.receipt.mechanism["name"] == "RandomizedResponse" and len(search.hold_out_) == 100
    rows = np.concatenate([release.rows for release in [*best.releases_, search.hold_out_]])
    assert sorted(rows) == list(range(400))


def test_scores_are_those_of_fits_without_the_held_out_rows():
    X, y = problem()
    search = LabelDPSearchCV(private(GaussianNB()), {"rounds": [1, 2]}).fit(X, vault_of(y).sealed())
    best = search.best_estimator_
    for number, rounds in enumerate([1, 2]):
        learner = ldp.sklearn.SklearnLearner(GaussianNB(), rounds=rounds, folds=2).fit(X, best.releases_)
        predicted = learner.predict_proba(X[search.hold_out_.rows])
        expected = log_likelihood(search.hold_out_, predicted)
        assert search.cv_results_["mean_test_score"][number] == pytest.approx(expected.value)
        assert search.cv_results_["std_test_score"][number] == pytest.approx(expected.standard_error)
        assert search.cv_results_["accuracy"][number] == pytest.approx(accuracy(search.hold_out_, predicted).value)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert search.cv_results_["rank_test_score"][search.best_index_] == 1
    assert search.cv_results_["params"] == [{"rounds": 1}, {"rounds": 2}]


def test_the_best_model_is_fitted_to_all_rows_also_the_held_out_ones():
    X, y = problem()
    search = LabelDPSearchCV(private(GaussianNB()), {}).fit(X, vault_of(y).sealed())
    best = search.best_estimator_
    learner = ldp.sklearn.SklearnLearner(GaussianNB(), rounds=1, folds=2)
    everything = learner.fit(X, [*best.releases_, search.hold_out_]).predict_proba(X)
    assert best.predict_proba(X) == pytest.approx(everything)
    assert best.predict_proba(X) != pytest.approx(learner.fit(X, best.releases_).predict_proba(X))


@pytest.mark.parametrize(
    "grid",
    [
        {"epsilon": [1, 2]},
        {"classes": [3]},
        {"stages": [1, 2]},
        {"mechanism": [ldp.RRWithPrior]},
        {"split": [(0.5, 0.5)]},
        {"temperature": [0.5]},
        {"hold_out": [0.1]},
        {"seed": [0, 1]},
        {"warm_start": [True, False]},
        [{"estimator__C": [1]}, {"estimator__C": [1], "epsilon": [1]}],
    ],
)
def test_what_defines_the_release_cannot_be_searched(grid):
    X, y = problem()
    vault = vault_of(y)
    with pytest.raises(ldp.InvalidArgument, match="defines the release"):
        LabelDPSearchCV(private(), grid).fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize(
    ("grid", "options"),
    [
        ({"estimator__C": [1, -1]}, {}),
        ({"estimator__no_such": [1]}, {}),
        ({"estimator": [LogisticRegression(), KNeighborsClassifier()]}, {}),  # learns from no groups of labels
        ({"rounds": [0]}, {}),
        ([], {}),
        (GRID, {"hold_out": 0.0}),
        (GRID, {"hold_out": 1.0}),
        (GRID, {"hold_out": 0.001}),
        (GRID, {"scoring": "roc_auc"}),
        (GRID, {"estimator": LogisticRegression()}),
        (GRID, {"estimator": private(epsilon=None)}),
        (GRID, {"estimator": private(epsilon="4.1")}),
        (GRID, {"estimator": private(classes=4)}),
    ],
)
def test_whatever_cannot_work_is_refused_before_anything_is_charged(grid, options):
    X, y = problem()
    vault = vault_of(y)
    search = LabelDPSearchCV(**{"estimator": private(), "param_grid": grid} | options)
    with pytest.raises((ldp.LabelDPError, ValueError)):
        search.fit(X, vault.sealed())
    assert vault.spent().epsilon == "0"


def test_estimators_can_be_searched_among():
    X, y = problem()
    grid = [
        {"estimator": [make_pipeline(StandardScaler(), GaussianNB())]},
        {"estimator": [LogisticRegression()], "estimator__C": [1e-9]},
    ]
    search = LabelDPSearchCV(private(), grid).fit(X, vault_of(y).sealed())
    assert search.best_index_ == 0 and search.best_estimator_.estimator_[-1].__class__ is GaussianNB


def test_it_is_cloned_and_pickled_and_its_parts_stay_as_they_were():
    X, y = problem()
    inner = private(classes=3)
    search = LabelDPSearchCV(inner, GRID).fit(X, y)
    assert not hasattr(inner, "classes_") and inner.hold_out == 0 and inner.mechanism is None
    again = pickle.loads(pickle.dumps(search))
    assert (again.predict_proba(X) == search.predict_proba(X)).all()
    assert clone(search).get_params()["estimator__estimator__C"] == 1.0


def test_an_unfitted_search_says_so():
    X, _ = problem()
    with pytest.raises(ValueError, match="not fitted"):
        LabelDPSearchCV(private(), GRID).predict(X)


class Stopped(LogisticRegression):
    """Stops at the so-and-so-many-th fit after labels have been asked."""

    vault, fits = None, 0

    def fit(self, X, y, sample_weight=None):
        if Stopped.vault.spent().epsilon != "0":
            Stopped.fits -= 1
            if Stopped.fits == 0:
                raise KeyboardInterrupt
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("fits", [1, 4, 9])
def test_what_was_released_is_kept_where_learning_is_stopped(fits):
    X, y = problem(120)
    Stopped.vault, Stopped.fits = vault_of(y), fits
    search = LabelDPSearchCV(private(Stopped()), {"estimator__C": [0.1, 1.0, 10.0]})
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, Stopped.vault.sealed())
    assert len(search.hold_out_) == 24 and len(search.releases_) == (1 if fits == 1 else 2)
    assert search.certificate_["spent"]["epsilon"] == "4" and search.n_features_in_ == 3


def test_nothing_of_an_earlier_fit_stays_beside_what_a_stopped_one_released():
    X, y = problem(120)
    Stopped.vault, Stopped.fits = vault_of(y), -1
    search = LabelDPSearchCV(private(Stopped()), {"estimator__C": [0.1, 1.0]}).fit(X, Stopped.vault.sealed())
    found = {name for name in vars(search) if name.endswith("_")}
    Stopped.vault, Stopped.fits = vault_of(y), 1
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, Stopped.vault.sealed())
    kept = {"releases_", "hold_out_", "certificate_", "n_features_in_"}
    assert {name for name in vars(search) if name.endswith("_")} == kept < found


def test_the_best_model_says_why_it_cannot_be_graded():
    X, y = problem(120)
    search = LabelDPSearchCV(private(), GRID).fit(X, vault_of(y).sealed())
    with pytest.raises(ldp.InvalidArgument, match="has learned from the rows that chose it"):
        search.best_estimator_.grade()
