"""LabelDPClassifier: the classifiers that it wraps, pandas, the order of classes, and rare labels."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, StackingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import labeldp as ldp
from labeldp.randomness import InsecureBits
from labeldp.sklearn import LabelDPClassifier
from labeldp.vault import LabelVault


def problem(n=150, seed=0):
    """Three classes, told apart by the first of three features."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, np.digitize(X[:, 0], [-0.5, 0.5])


def quick(estimator, **settings):
    return LabelDPClassifier(estimator, **{"epsilon": 8, "classes": 3, "rounds": 1, "folds": 2} | settings)


# ---- any classifier --------------------------------------------------------------------------------------------------


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=10, min_child_samples=5, verbose=-1, n_jobs=1)


def xgboost():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=10, n_jobs=1)


CLASSIFIERS = {
    "logistic regression": LogisticRegression,
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=5),
    "forest": lambda: RandomForestClassifier(10, min_samples_leaf=3, random_state=0),
    "network": lambda: MLPClassifier((8,), max_iter=40, learning_rate_init=0.05, random_state=0),
    "naive Bayes": GaussianNB,
    "calibrated": lambda: CalibratedClassifierCV(GaussianNB(), cv=2),
    "neighbours": lambda: KNeighborsClassifier(5),
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "grid search": lambda: GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2),
}


@pytest.mark.parametrize("in_a_pipeline", [False, True], ids=["alone", "in a pipeline"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_any_classifier_learns(name, in_a_pipeline):
    X, y = problem()
    estimator = CLASSIFIERS[name]()
    if in_a_pipeline:
        estimator = make_pipeline(StandardScaler(), SelectKBest(k=2), estimator)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=Warning, message=".*(converge|valid feature names).*")
        model = quick(estimator).fit(X, y)
        predicted = model.predict_proba(X)
        assert model.score(X, y) > 0.6  # by chance 0.38
    assert predicted.shape == (150, 3) and predicted.sum(axis=1) == pytest.approx(np.ones(150))
    assert len(model.releases_) == 2
    assert model.certificate_["spent"]["epsilon"] == "8"
    assert not any(attribute.endswith("_") for attribute in vars(estimator) if attribute != "_")


def test_a_classifier_without_weights_learns_from_single_labels():
    X, y = problem()
    model = quick(KNeighborsClassifier()).fit(X, y)
    assert {release.receipt.mechanism["name"] for release in model.releases_} == {"RRWithPrior"}
    assert all(len(release.labels) for release in model.releases_)
    with pytest.raises(ldp.InvalidArgument, match="reports groups of labels"):
        quick(KNeighborsClassifier(), mechanism=ldp.GroupedResponse, epsilon=1).fit(X, y)


def test_a_classifier_with_weights_learns_from_groups_unless_told_otherwise():
    X, y = problem()
    assert quick(GaussianNB()).fit(X, y).releases_[0].receipt.mechanism["name"] == "GroupedResponse"
    told = quick(GaussianNB(), mechanism=ldp.RandomizedResponse, stages=1).fit(X, y)
    assert told.releases_[0].receipt.mechanism["name"] == "RandomizedResponse"


@pytest.mark.parametrize(("n_classes", "stages", "expected"), [(2, None, 1), (3, None, 2), (3, 3, 3)])
def test_stages_ask_each_row_once(n_classes, stages, expected):
    X, y = problem()
    model = quick(GaussianNB(), classes=n_classes, stages=stages, hold_out=0.2).fit(X, np.minimum(y, n_classes - 1))
    rows = np.concatenate([release.rows for release in [*model.releases_, model.hold_out_]])
    assert len(model.releases_) == expected and sorted(rows) == list(range(150))
    assert model.hold_out_.receipt.mechanism["name"] == "RandomizedResponse" and len(model.hold_out_) == 30


@pytest.mark.parametrize("epsilon", [1, 1.5, "0.1", np.float64(2), np.int64(3)])
def test_epsilon_is_taken_in_all_its_forms(epsilon):
    X, y = problem(60)
    model = quick(GaussianNB(), epsilon=epsilon).fit(X, y)
    assert float(model.certificate_["spent"]["epsilon"]) == float(epsilon)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": None}, "epsilon must be given"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": 21}, "epsilon"),
        ({"classes": None}, "classes must be given"),
        ({"classes": 1}, "classes"),
        ({"stages": 0}, "stages"),
        ({"split": (0.5, 0.6)}, "split"),
        ({"temperature": 0}, "temperature"),
        ({"hold_out": 1.0}, "hold_out"),
        ({"rounds": 0}, "rounds"),
        ({"folds": 1}, "folds"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_are_checked_in_fit_before_anything_is_asked(settings, message):
    X, y = problem(60)
    with pytest.raises(ldp.InvalidArgument, match=message):
        quick(GaussianNB(), **settings).fit(X, y)
    if "classes" not in settings:
        vault = LabelVault(y, classes=3, budget="8")
        with pytest.raises(ldp.InvalidArgument, match=message):
            quick(GaussianNB(), **settings).fit(X, vault.sealed())
        assert vault.spent().epsilon == "0"


# ---- weights and what else fit takes ---------------------------------------------------------------------------------


def test_weights_reach_the_classifier():
    X, y = problem()
    heavy = np.where(X[:, 1] > 0, 1.0, 1e-6)
    X[:, 2] = np.where(X[:, 1] > 0, X[:, 0], -X[:, 0])  # what a light row says is the contrary
    model = quick(LogisticRegression(), epsilon=20).fit(X[:, 2:], y, sample_weight=heavy)
    assert model.score(X[heavy == 1, 2:], y[heavy == 1]) > 0.8


@pytest.mark.parametrize("weights", [np.full(60, np.nan), -np.ones(60), np.zeros(60), np.ones(59), np.ones((60, 2))])
def test_weights_that_make_no_sense_are_refused_before_anything_is_asked(weights):
    X, y = problem(60)
    vault = LabelVault(y, classes=3, budget="8")
    with pytest.raises(ValueError, match=r"(?i)weight"):
        quick(GaussianNB()).fit(X, vault.sealed(), sample_weight=weights)
    assert vault.spent().epsilon == "0"


def test_parameters_that_nobody_asked_for_are_refused():
    X, y = problem(60)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        quick(GaussianNB()).fit(X, y, groups=np.arange(60))


# ---- features of many kinds ------------------------------------------------------------------------------------------


def frame(n=120):
    X, y = problem(n)
    colours = np.array(["red", "green", "blue"])[y]
    table = pd.DataFrame({"size": X[:, 1], "colour": pd.Categorical(colours)}, index=np.arange(n)[::-1] * 7)
    return table, pd.Series(np.array(["small", "middle", "large"])[y], index=np.arange(n) + 3)


def test_frames_with_categories_and_text_labels_go_in_and_names_come_out():
    X, y = frame()
    boosting = HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5, categorical_features="from_dtype")
    model = quick(boosting, classes=["small", "middle", "large"]).fit(X, y)
    assert model.feature_names_in_.tolist() == ["size", "colour"] and model.n_features_in_ == 2
    assert model.classes_.tolist() == ["large", "middle", "small"]
    assert model.score(X, y) > 0.9
    assert set(model.predict(X)) == {"small", "middle", "large"}


@pytest.mark.parametrize(
    "wrong", [lambda X: X[["colour", "size"]], lambda X: X[["size"]], lambda X: X.rename(columns=str.upper)]
)
def test_other_columns_than_those_of_the_fit_are_refused(wrong):
    X, y = frame()
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = quick(make_pipeline(encoder, GaussianNB()), classes=["small", "middle", "large"]).fit(X, y)
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="feature"):
            method(wrong(X))


def test_a_number_of_features_other_than_that_of_the_fit_is_refused():
    X, y = problem(60)
    model = quick(GaussianNB()).fit(X, y)
    with pytest.raises(ValueError, match="X has 2 features, but LabelDPClassifier is expecting 3"):
        model.predict(X[:, :2])


def test_transformers_may_hand_on_frames():
    X, y = problem()
    scaler = StandardScaler().set_output(transform="pandas")
    model = quick(make_pipeline(scaler, LogisticRegression())).fit(pd.DataFrame(X, columns=list("abc")), y)
    assert model.predict(pd.DataFrame(X, columns=list("abc"))).shape == (150,)
    assert model.estimator_[-1].feature_names_in_.tolist() == list("abc")


@pytest.mark.parametrize("kind", [list, pd.Series, np.array])
def test_texts_may_be_features(kind):
    _, y = problem(90)
    words = kind([["low", "middle", "high"][label] + " " + str(number % 5) for number, label in enumerate(y)])
    model = quick(make_pipeline(CountVectorizer(), LogisticRegression()), epsilon=20).fit(words, y)
    assert model.score(words, y) > 0.9


@pytest.mark.parametrize(
    "form", [list, tuple, pd.Series, lambda y: pd.Series(y, dtype="category"), lambda y: pd.DataFrame({"y": y})["y"]]
)
def test_labels_come_in_many_forms(form):
    X, y = problem(60)
    assert quick(GaussianNB()).fit(X, form(y.tolist())).classes_.tolist() == [0, 1, 2]


# ---- classes ---------------------------------------------------------------------------------------------------------


def test_columns_follow_the_sorted_classes_whatever_the_declared_order():
    X, y = problem(300)
    names = np.array(["b", "c", "a"])[y]
    model = quick(LogisticRegression(), epsilon=20, classes=["c", "b", "a"]).fit(X, names)
    assert model.classes_.tolist() == ["a", "b", "c"]
    predicted = model.predict_proba(X)
    assert (model.predict(X) == model.classes_[predicted.argmax(axis=1)]).all()
    assert model.decision_function(X) == pytest.approx(np.log(predicted))
    assert (model.predict(X) == names).mean() > 0.9
    assert get_scorer("roc_auc_ovr")(model, X, names) > 0.95


def test_with_two_classes_the_decision_function_is_the_log_odds_of_the_second():
    X, y = problem(300)
    names = np.where(y > 0, "no", "yes")
    model = quick(LogisticRegression(), epsilon=20, classes=["yes", "no"]).fit(X, names)
    predicted = model.predict_proba(X)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.decision_function(X) == pytest.approx(np.log(predicted[:, 1] / predicted[:, 0]))
    scored = get_scorer("roc_auc")(model, X, names)
    assert scored > 0.95 and scored == roc_auc_score(names == "yes", predicted[:, 1])


def test_a_declared_class_that_never_occurs_has_a_column():
    X, y = problem(120)
    model = quick(LogisticRegression(), classes=[0, 1, 2, 9]).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 9] and model.predict_proba(X).shape == (120, 4)


# ---- an estimator among others ---------------------------------------------------------------------------------------


def test_it_is_cloned_pickled_and_set_as_any_estimator():
    X, y = problem(60)
    model = quick(LogisticRegression()).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(X) == model.predict_proba(X)).all() and again.certificate_ == model.certificate_
    fresh = clone(model).set_params(estimator__C=3, epsilon="2")
    assert fresh.estimator.C == 3 and fresh.epsilon == "2" and not hasattr(fresh, "classes_")
    assert "epsilon=8" in repr(model) and is_classifier(model)


def test_ordinary_cross_validation_works_on_labels_that_are_given_unsealed():
    X, y = problem()
    assert cross_val_score(quick(GaussianNB()), X, y, cv=3).mean() > 0.6


def test_no_two_fits_are_the_same():
    X, y = problem()
    model = quick(GaussianNB(), epsilon="0.5")
    assert (model.fit(X, y).predict_proba(X) != model.fit(X, y).predict_proba(X)).any()


# ---- rare labels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=4, early_stopping=False)],
    ids=["logistic", "boosting"],
)
def test_conversions_at_one_percent_are_predicted_with_calibrated_probabilities(estimator):
    """At epsilon 2 an eighth of the reports are false, ten times as many as there are conversions. All seeds are fixed."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    chance = 1 / (1 + np.exp(-(1.5 * X[:, 0] - 5.3)))
    y = (rng.random(20_000) < chance).astype(int)
    assert 0.005 < y.mean() < 0.02
    vault = LabelVault(y, classes=2, budget="2", bits=InsecureBits(0))
    response = ldp.RandomizedResponse  # as good as any for two classes, and its vault's bits are all of its chance
    model = LabelDPClassifier(estimator, epsilon=2, mechanism=response, rounds=2, folds=2).fit(X, vault.sealed())
    naive = clone(estimator).fit(X, model.releases_[0].labels)
    ours, theirs, constant = (log_loss(y, p) for p in (model.predict_proba(X), naive.predict_proba(X), rate_of(y)))
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.005)
    assert naive.predict_proba(X)[:, 1].mean() > 0.1
    assert ours < 0.5 * theirs
    assert ours < constant


def rate_of(y):
    """The best that can be said without any feature."""
    return np.tile([1 - y.mean(), y.mean()], (len(y), 1))


def test_a_category_that_only_later_stages_meet_stops_nothing():
    """Transformers that read no labels are fitted to all rows: a plain OneHotEncoder has seen every category."""
    rows = 90
    X = pd.DataFrame({"town": ["a"] * (rows - 1) + ["rare"], "age": np.arange(rows)})
    encode = ColumnTransformer([("town", OneHotEncoder(), ["town"])], remainder="passthrough")
    model = LabelDPClassifier(
        make_pipeline(encode, LogisticRegression(max_iter=2000)), epsilon=4, classes=3, stages=3, rounds=1
    )
    for seed in range(3):  # whichever stage has the rare one
        model.set_params(seed=seed).fit(X, np.arange(rows) % 3)
        assert model.predict_proba(X).shape == (rows, 3)


def test_boosting_that_decides_for_itself_does_not_stop_early_but_may_be_told_to():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    for given, used in (("auto", False), (True, True)):
        boosting = HistGradientBoostingClassifier(max_iter=3, early_stopping=given)
        model = LabelDPClassifier(boosting, epsilon=4, classes=2, rounds=1).fit(X, y)
        assert model.estimator_.early_stopping is used and boosting.early_stopping == given


@pytest.mark.parametrize("estimator", [None, "logistic", LogisticRegression])
def test_what_is_no_estimator_is_refused_before_labels_are_sealed(estimator):
    with pytest.raises(
        ldp.InvalidArgument, match="estimator must be one of scikit-learn's, such as LogisticRegression"
    ):
        LabelDPClassifier(estimator, epsilon=1, classes=2).fit(np.zeros((4, 2)), [0, 1, 0, 1])


def test_a_classifier_that_has_probabilities_once_it_is_fitted_is_one():
    X, y = problem()
    stacked = StackingClassifier([("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=2))], cv=2)
    assert quick(stacked).fit(X, y).predict_proba(X).shape == (150, 3)
