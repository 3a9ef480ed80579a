"""SklearnLearner: the contract of all learners, EM written out by hand, and what is scikit-learn's own."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import skops.io
from learner_contract import N_CLASSES, N_ROWS, LearnerContract, features, release_of, true_labels
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import labeldp as ldp
from labeldp.learning import evidence
from labeldp.priors import projected
from labeldp.randomness import InsecureBits
from labeldp.sklearn import LabelDPClassifier, Rows, SklearnLearner
from labeldp.sklearn.calibration import stretch_of, temper_of
from labeldp.sklearn.learner import posterior


class OwnVersions(LearnerContract):
    """The contract, where a learner knows the number of its features and classes only once it is fitted."""

    def make_for(self, n_features, n_classes):
        return SklearnLearner(GaussianNB(), rounds=2)  # another kind: of one kind, all sizes can be loaded

    @pytest.mark.parametrize("kind", ["one dimension", "missing", "infinite", "text"])
    def test_it_refuses_features_that_do_not_fit_before_it_is_asked_to_learn(self, kind):
        """Any number of features and classes will do; what a classifier cannot read at all is refused."""
        X, learner = features(), self.make()
        learner.check(X, N_CLASSES + 1)
        learner.check(X[:, :-1], N_CLASSES - 1)
        with pytest.raises(ldp.InvalidArgument, match="cannot learn from these features"):
            learner.check(spoilt(X, kind), N_CLASSES)


def spoilt(X, kind):
    if kind == "one dimension":
        return X[:, 0]
    wrong = X.astype(object) if kind == "text" else X.copy()
    wrong[7, 2] = {"missing": np.nan, "infinite": np.inf, "text": "seven"}[kind]
    return wrong


class TestOnTheLikelihood(OwnVersions):
    def make(self):
        return SklearnLearner(LogisticRegression(), rounds=3)


class TestInAPipeline(OwnVersions):
    def make(self):
        return SklearnLearner(make_pipeline(StandardScaler(), LogisticRegression()), rounds=2)

    def test_only_the_rows_of_the_release_count(self):
        """For the classifier; its transformers see all rows, which are public, so that no later row is new to them."""
        X = features()
        release = release_of(X, rows=np.arange(0, N_ROWS, 2))
        other = X.copy()
        other[1::2] = X[::2]  # the same mean and spread as the rows of the release
        alone = SklearnLearner(make_pipeline(StandardScaler(), LogisticRegression()), rounds=2).fit(other, release)
        other[1::2] = X[::2][::-1]
        again = SklearnLearner(make_pipeline(StandardScaler(), LogisticRegression()), rounds=2).fit(other, release)
        assert alone.predict_proba(X) == pytest.approx(again.predict_proba(X), abs=1e-4)
        scaler = alone.model_.estimator[0]
        assert scaler.mean_ == pytest.approx(X[::2].mean(axis=0), abs=1e-6) and scaler.n_samples_seen_ == N_ROWS


# ---- EM, written out -------------------------------------------------------------------------------------------------


def small_release(n=60, n_classes=3, epsilon="2"):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    labels = np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), [-0.5, 0.5])
    vault = ldp.LabelVault(labels, classes=n_classes, budget=epsilon, bits=InsecureBits(3))
    return X, vault.release(ldp.GroupedResponse(epsilon))


def believed(prior, chances):
    """Bayes' rule, one row and one label after the other."""
    beliefs = []
    for row, own in zip(prior, chances, strict=True):
        joint = [p * chance for p, chance in zip(row, own, strict=True)]
        beliefs.append([each / sum(joint) for each in joint])
    return np.array(beliefs)


def fitted_to_beliefs(classifier, X, beliefs):
    """Fit to a copy of every row for every label that it may have, as heavy as the belief in it."""
    copies, labels, weights = [], [], []
    for features_of_row, row in zip(X, beliefs, strict=True):
        for label, belief in enumerate(row):
            if belief > 1e-4:
                copies.append(features_of_row)
                labels.append(label)
                weights.append(belief)
    return clone(classifier).fit(np.array(copies), np.array(labels), sample_weight=np.array(weights))


def em_by_hand(classifier, X, chances, rounds, folds):
    """Return the predictions for X of the last round that made the reports clearly likelier."""
    named = [[chance == max(row) for chance in row] for row in chances]  # reports at their word
    beliefs = np.array([[each / sum(row) for each in row] for row in named])
    fold_of_row = np.random.default_rng([0, 0xF01D]).permutation(len(X)) % folds
    made = []
    for number in range(rounds):
        predicted = np.zeros(chances.shape)
        for fold in range(folds):
            model = fitted_to_beliefs(classifier, X[fold_of_row != fold], beliefs[fold_of_row != fold])
            predicted[fold_of_row == fold] = model.predict_proba(X[fold_of_row == fold])
        trust = (temper_of if number else stretch_of)(predicted, chances, np.ones(len(X)))
        prior = trust(predicted)
        likely = [sum(p * c for p, c in zip(*pair, strict=True)) for pair in zip(prior, chances, strict=True)]
        gain = np.log(likely) - made[0] if made else None
        if gain is None or gain.mean() > gain.std() / len(X) ** 0.5:
            made = [np.log(likely), beliefs, trust]
        beliefs = believed(prior, chances)
    _, beliefs, trust = made
    return trust(fitted_to_beliefs(classifier, X, beliefs).predict_proba(X))


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_em_is_what_it_is_when_written_out(rounds):
    X, release = small_release()
    by_hand = em_by_hand(LogisticRegression(), X, release.likelihood(), rounds, 3)
    ours = SklearnLearner(LogisticRegression(), rounds=rounds).fit(X, release)
    assert ours.predict_proba(X) == pytest.approx(by_hand, abs=1e-5)


def test_a_round_that_makes_the_reports_less_likely_is_not_the_last_word():
    """Naive Bayes counts correlated features twice; its later rounds would drift towards clusters of X."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(2_000, 1))
    X = np.hstack([direction + 0.1 * rng.normal(size=(2_000, 12)), rng.normal(size=(2_000, 3))])
    labels = (rng.random(2_000) < 1 / (1 + np.exp(-2 * X[:, -1]))).astype(
        int
    )  # what most columns show is not the label
    vault = ldp.LabelVault(labels, classes=2, budget="1", bits=InsecureBits(1))
    release = vault.release(ldp.RandomizedResponse("1"))
    naive = GaussianNB().fit(X, release.label_numbers).predict(X)
    ours = SklearnLearner(GaussianNB()).fit(X, release).predict_proba(X).argmax(axis=1)
    assert (ours == labels).mean() > (naive == labels).mean() - 0.03


def test_beliefs_are_bayes_rule():
    rng = np.random.default_rng(0)
    prior, chances = rng.dirichlet(np.ones(4), size=20), rng.random((20, 4))
    assert posterior(prior, chances) == pytest.approx(believed(prior, chances))


def test_a_label_that_no_report_allows_is_not_believed():
    assert posterior(np.array([[0.2, 0.8]]), np.array([[1.0, 0.0]])).tolist() == [[1.0, 0.0]]


def test_learning_from_likelihoods_beats_believing_noisy_labels():
    """Five classes at epsilon 1, where reports are right 40 % of the time. All seeds are fixed: nothing here is chance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    labels = (X @ rng.normal(size=(4, 5)) * 3).argmax(axis=1)
    vault = ldp.LabelVault(labels, classes=5, budget="1", bits=InsecureBits(0))
    release = vault.release(ldp.RandomizedResponse("1"))
    naive = LogisticRegression().fit(X, release.labels).predict_proba(X)
    ours = SklearnLearner(LogisticRegression()).fit(X, release).predict_proba(X)
    assert log_loss(ours, labels) < 0.6 * log_loss(naive, labels)


def log_loss(predicted, labels):
    return -np.log(predicted[np.arange(len(labels)), labels]).mean()


class Remembering(GaussianNB):
    """Notes how many of the rows that it predicts are rows that it was fitted to."""

    overlaps: ClassVar[list[int]] = []

    def fit(self, X, y, sample_weight=None):
        self.rows_ = set(X[:, 0])
        return super().fit(X, y, sample_weight)

    def predict_proba(self, X):
        self.overlaps.append(len(self.rows_ & set(X[:, 0])))
        return super().predict_proba(X)


def test_beliefs_come_from_fits_to_other_rows():
    """A classifier that learns by heart would otherwise confirm its own noise."""
    X, release = small_release()
    Remembering.overlaps = []
    SklearnLearner(Remembering(), rounds=3, folds=4).fit(X, release)
    assert Remembering.overlaps == [0] * 12


# ---- weights, pipelines, warm starts ---------------------------------------------------------------------------------


def test_rows_without_weight_do_not_count():
    X, release = small_release()
    other = X.copy()
    other[::2] += 5
    weights = (np.arange(len(X)) % 2).astype(float)
    pair = [
        SklearnLearner(LogisticRegression(), rounds=2, sample_weight=weights).fit(each, release) for each in (X, other)
    ]
    assert pair[0].predict_proba(X) == pytest.approx(pair[1].predict_proba(X), abs=1e-4)
    unweighted = SklearnLearner(LogisticRegression(), rounds=2).fit(X, release)
    assert np.abs(unweighted.predict_proba(X) - pair[0].predict_proba(X)).max() > 1e-3


def test_weights_are_not_silently_ignored():
    X, _ = small_release()
    with pytest.raises(ldp.InvalidArgument, match="KNeighborsClassifier takes no sample_weight"):
        SklearnLearner(KNeighborsClassifier(), sample_weight=np.ones(len(X))).check(X, 3)


def test_a_pipelines_transformers_are_fitted_once_and_keep_their_names():
    X, release = small_release()
    pipeline = Pipeline([("last", CountingScaler()), ("nothing", "passthrough"), ("model", LogisticRegression())])
    CountingScaler.fits = 0
    learner = SklearnLearner(pipeline, rounds=2).fit(X, release)
    assert CountingScaler.fits == 1
    assert list(learner.model_.estimator.named_steps) == ["last", "nothing", "model"]
    assert not hasattr(pipeline[-1], "coef_")


class CountingScaler(StandardScaler):
    fits = 0

    def fit(self, X, y=None):
        CountingScaler.fits += 1
        return super().fit(X, y)


def test_a_pipeline_inside_a_pipeline_is_a_pipeline():
    X, release = small_release()
    nested = make_pipeline(StandardScaler(), make_pipeline(PCA(1), LogisticRegression()))
    flat = make_pipeline(StandardScaler(), PCA(1), LogisticRegression())
    pair = [SklearnLearner(each, rounds=1).fit(X, release).predict_proba(X) for each in (nested, flat)]
    assert pair[0] == pytest.approx(pair[1])


def test_a_transformer_that_reads_labels_sees_reports():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6))
    labels = (X[:, 4] > 0).astype(int)
    release = ldp.LabelVault(labels, classes=2, budget="3", bits=InsecureBits(0)).release(ldp.RandomizedResponse("3"))
    learner = SklearnLearner(make_pipeline(SelectKBest(k=1), LogisticRegression()), rounds=1).fit(X, release)
    assert learner.model_.estimator[0].get_support().tolist() == [False] * 4 + [True, False]


@pytest.mark.parametrize("classifier", [LogisticRegression(), MLPClassifier((3,), max_iter=30, random_state=0)])
def test_a_warm_start_goes_on_from_coefficients(classifier):
    X, release = small_release()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that MLPs have not converged
        start = SklearnLearner(clone(classifier).set_params(max_iter=200), rounds=1).fit(X, release)
        once = clone(classifier).set_params(max_iter=1)
        cold = SklearnLearner(once, rounds=1).fit(X, release)
        warm = SklearnLearner(once, rounds=1).fit(X, release, start=start)
    assert warm.model_.estimator.warm_start is once.warm_start

    def distance(learner):
        return np.abs(learner.model_.estimator.predict_proba(X) - start.model_.estimator.predict_proba(X)).mean()

    assert distance(warm) < distance(cold)


def test_a_warm_start_of_trees_grows_no_further_trees():
    X, release = small_release()
    forest = RandomForestClassifier(5, random_state=0)
    start = SklearnLearner(forest, rounds=1).fit(X, release)
    assert len(SklearnLearner(forest, rounds=1).fit(X, release, start=start).model_.estimator.estimators_) == 5


@pytest.mark.parametrize("classifier", [LogisticRegression(), MLPClassifier((3,), max_iter=20, random_state=0)])
def test_stages_that_make_different_features_do_not_go_on_from_each_other(classifier):
    """The number of categories that occur differs from stage to stage, and with it the number of coefficients."""
    X, release = small_release()
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), classifier)
    categories = np.arange(len(X))[:, None] // 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = SklearnLearner(pipeline, rounds=1).fit(categories, release)
        SklearnLearner(pipeline, rounds=1).fit(categories // 2, release, start=start)
        named = pd.DataFrame(X, columns=["a", "b"])
        start = SklearnLearner(classifier, rounds=1).fit(Rows(named), release)
        SklearnLearner(classifier, rounds=1).fit(Rows(named.rename(columns={"b": "c"})), release, start=start)


def test_a_class_that_nobody_reports_is_hardly_believed():
    X, _ = small_release()
    release = ldp.LabelVault.unprotected(np.arange(60) % 2, classes=3)
    predicted = SklearnLearner(GaussianNB(), rounds=1).fit(X, release).predict_proba(X)
    assert (predicted[:, 2] < 0.01).all() and predicted.sum(axis=1) == pytest.approx(np.ones(60))


def test_where_everybody_has_the_same_label_that_is_what_is_predicted():
    X, _ = small_release()
    release = ldp.LabelVault.unprotected(np.ones(60, dtype=int), classes=3)
    for classifier in (LogisticRegression(), KNeighborsClassifier()):
        assert (SklearnLearner(classifier, rounds=1).fit(X, release).predict_proba(X)[:, 1] > 0.99).all()


def test_a_histogram_is_fitted_to_as_the_shares_of_each_group():
    groups = np.arange(60) % 3
    X = np.eye(3)[groups]
    vault = ldp.LabelVault(groups, classes=3, budget="8", trust="curator")
    counts = vault.histogram(groups, "8")
    learner = SklearnLearner(LogisticRegression(C=100)).fit(X, counts)
    assert learner.predict_proba(np.eye(3)) == pytest.approx(projected(counts), abs=0.05)


def test_reports_beside_a_histogram_are_multiplied_into_it():
    rng = np.random.default_rng(3)
    vault = ldp.LabelVault(rng.integers(3, size=60), classes=3, budget="8", trust="curator")
    counts, reports = vault.histogram(np.arange(60) % 5, "2"), vault.release(ldp.RandomizedResponse("1"), np.arange(20))
    prior = projected(counts)[counts.groups]
    expected = np.array(prior)
    expected[:20] *= reports.likelihood()
    found = evidence.posterior(*evidence.apart(evidence.checked([counts, reports])))
    assert found.rows.tolist() == list(range(60))
    assert found.shares == pytest.approx(expected / expected.sum(axis=1, keepdims=True))
    X = rng.normal(size=(60, 2))
    both, alone = (SklearnLearner(LogisticRegression()).fit(X, each) for each in ([counts, reports], found))
    assert both.predict_proba(X) == pytest.approx(alone.predict_proba(X))


def test_what_takes_no_weights_learns_no_beliefs():
    counts = ldp.LabelVault(np.arange(60) % 3, classes=3, budget="8", trust="curator").histogram(np.arange(60) % 3, "8")
    with pytest.raises(ldp.InvalidArgument, match="takes no sample_weight"):
        SklearnLearner(KNeighborsClassifier()).fit(np.eye(3)[np.arange(60) % 3], counts)


# ---- the rehearsal ---------------------------------------------------------------------------------------------------


def wide_table(n=3000):
    return np.abs(np.random.default_rng(0).normal(size=(n, 3)))


def unsampled(n=3000, at_most=500):
    """A row that no evenly spread sample would hold."""
    return int(np.setdiff1d(np.arange(n), np.linspace(0, n - 1, at_most).astype(int))[1234])


SPOILERS = {"missing": np.nan, "infinite": np.inf, "minus infinite": -np.inf}


@pytest.mark.parametrize("spoiler", SPOILERS)
@pytest.mark.parametrize("kind", [lambda X: X, csr_array, lambda X: Rows(pd.DataFrame(X)), lambda X: Rows(X.tolist())])
def test_one_bad_value_among_thousands_of_rows_is_found(spoiler, kind):
    X = wide_table()
    X[unsampled(), 1] = SPOILERS[spoiler]
    with pytest.raises(ldp.InvalidArgument, match="cannot learn from these features"):
        SklearnLearner(LogisticRegression()).check(kind(X), 2)


def test_one_infinite_value_among_many_missing_ones_is_found():
    X = wide_table()
    X[::2, 0] = np.nan
    forest = SklearnLearner(RandomForestClassifier(2))
    forest.check(X, 2)  # missing values are fine
    X[unsampled(), 1] = np.inf
    with pytest.raises(ldp.InvalidArgument, match="infinity"):
        forest.check(X, 2)


def test_one_negative_value_is_found_where_none_may_be():
    X = wide_table()
    X[unsampled(), 1] = -3
    with pytest.raises(ldp.InvalidArgument, match="Negative"):
        SklearnLearner(MultinomialNB()).check(X, 2)


@pytest.mark.parametrize("as_frame", [False, True])
def test_one_text_in_a_column_of_numbers_is_found(as_frame):
    X = wide_table().astype(object)
    X[unsampled(), 1] = "text"
    with pytest.raises(ldp.InvalidArgument, match="could not convert"):
        SklearnLearner(LogisticRegression()).check(Rows(pd.DataFrame(X)) if as_frame else X, 2)


def test_columns_of_nullable_numbers_and_categories_can_be_rehearsed_on():
    X = pd.DataFrame({"a": pd.array([1, None, 3] * 20, dtype="Int64"), "b": pd.Categorical(["x", "y", None] * 20)})
    encoder = make_column_transformer((OneHotEncoder(), ["b"]), ("drop", ["a"]))
    SklearnLearner(make_pipeline(encoder, LogisticRegression())).check(Rows(X), 2)


def test_classifiers_without_probabilities_are_refused():
    with pytest.raises(ldp.InvalidArgument, match=r"LinearSVC has no predict_proba.*CalibratedClassifierCV"):
        SklearnLearner(LinearSVC()).check(features(), N_CLASSES)


@pytest.mark.parametrize("settings", [{"rounds": 0}, {"folds": 1}, {"seed": -1}, {"rounds": 1.5}])
def test_settings_are_checked(settings):
    with pytest.raises(ldp.InvalidArgument, match=next(iter(settings))):
        SklearnLearner(LogisticRegression(), **settings)


# ---- files -----------------------------------------------------------------------------------------------------------


class Stranger(ClassifierMixin, BaseEstimator):
    """A classifier of nobody's library."""


@pytest.mark.parametrize(
    "stranger",
    [
        Stranger(),
        make_pipeline(FunctionTransformer(np.testing.assert_equal), LogisticRegression()),
        Pipeline([("f", print)]),
    ],
)
def test_a_model_file_that_names_strange_types_or_functions_is_not_loaded(stranger, tmp_path):
    state = {"estimator": stranger, "seen": np.arange(2), "n_classes": 2}
    (tmp_path / "model").write_bytes(skops.io.dumps(state))
    with pytest.raises(ldp.InvalidArgument, match="does not hold"):
        SklearnLearner(LogisticRegression()).load(tmp_path / "model")


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(SelectKBest(k=1), StandardScaler(), LogisticRegression()),
        HistGradientBoostingClassifier(max_iter=2),
        RandomForestClassifier(2),
        MLPClassifier((2,), max_iter=5),
        KNeighborsClassifier(),
    ],
)
def test_models_of_many_kinds_are_saved_and_loaded(estimator, tmp_path):
    X, release = small_release()
    if isinstance(estimator, KNeighborsClassifier):
        release = ldp.LabelVault.unprotected(true_labels(features())[:60], classes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = SklearnLearner(estimator, rounds=1).fit(X, release)
    learner.save(tmp_path / "model")
    again = SklearnLearner(estimator).load(tmp_path / "model")
    assert (again.predict_proba(X) == learner.predict_proba(X)).all()


@pytest.mark.parametrize(
    "other",
    [
        {"estimator": make_pipeline(*[StandardScaler() for _ in range(30)], LogisticRegression(C=2))},
        {"sample_weight": np.arange(N_ROWS) % 2},
        {"rounds": 2},
        {"seed": 1},
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(other, tmp_path):
    """Also where the settings are so many that scikit-learn would print only some of them."""
    X = features()
    release = release_of(X)
    settings = {"estimator": make_pipeline(*[StandardScaler() for _ in range(30)], LogisticRegression()), "rounds": 1}
    SklearnLearner(**settings).fit(X, release, checkpoint=tmp_path / "c")
    with pytest.raises(ldp.InvalidArgument, match="other releases, settings"):
        SklearnLearner(**settings | other).fit(X, release, checkpoint=tmp_path / "c")


def test_a_broken_checkpoint_is_named(tmp_path):
    (tmp_path / "c").write_bytes(b"no checkpoint")
    X = features()
    with pytest.raises(ldp.InvalidArgument, match="not a whole checkpoint"):
        SklearnLearner(LogisticRegression()).fit(X, release_of(X), checkpoint=tmp_path / "c")


def test_the_learner_of_the_estimator_is_this_one():
    X = features()
    model = LabelDPClassifier(LogisticRegression(), epsilon=4, classes=N_CLASSES, rounds=2).fit(X, true_labels(X))
    learner = SklearnLearner(LogisticRegression(), rounds=2)
    again = learner.fit(
        X, model.releases_, start=SklearnLearner(LogisticRegression(), rounds=2).fit(X, model.releases_[0])
    )
    assert again.predict_proba(X) == pytest.approx(model.predict_proba(X), abs=1e-4)


def test_a_sparse_table_can_be_learned_from_in_stages():
    X = csr_array(np.eye(4)[np.arange(120) % 4])
    vault = ldp.LabelVault(np.arange(120) % 4 // 2, classes=2, budget="8")
    stages = ldp.MultiStage(SklearnLearner(LogisticRegression()), stages=2, mechanism=ldp.GroupedResponse)
    assert stages.fit(X, vault, "8").predict_proba(X).shape == (120, 2)
