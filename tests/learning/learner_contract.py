"""What every learner must satisfy, whatever it is made of."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest

import labeldp as ldp
from labeldp.learning import Beliefs, Learner
from labeldp.priors import projected

N_ROWS, N_FEATURES, N_CLASSES = 240, 4, 3


def features():
    return np.random.default_rng(5).normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)


def true_labels(X):
    """Three classes that a linear model can tell apart."""
    return (X[:, 0] > 0.5).astype(int) + (X[:, 0] > -0.5)


def release_of(X, mechanism=None, rows=None):
    vault = ldp.LabelVault(true_labels(X), classes=N_CLASSES, budget="4")
    return vault.release(mechanism or ldp.RandomizedResponse("4"), rows)


def counts_of(X, epsilon="8", rows=None):
    """Counts of the classes in groups of rows that look alike, two of which mix classes."""
    rows = np.arange(N_ROWS) if rows is None else rows
    vault = ldp.LabelVault(true_labels(X), classes=N_CLASSES, budget="8", trust="curator")
    return vault.histogram(np.digitize(X[rows, 0], [-1, -0.25, 0.25, 1]), epsilon, rows=rows, n_groups=6)


def beliefs_of(X, rows=None, weights=None):
    """Beliefs that lean towards the true labels: as if from a good release."""
    rows = np.arange(N_ROWS) if rows is None else rows
    shares = 0.1 / N_CLASSES + 0.9 * np.eye(N_CLASSES)[true_labels(X)[rows]]
    return Beliefs(rows, shares, counts_of(X), weights)


class Stop(Exception):
    """Ends a training at an epoch's end."""


class LearnerContract:
    """Subclass and say how to make a learner of N_FEATURES numbers and N_CLASSES classes, always the same one.

    It must reach 70 % on `true_labels` from releases without noise, and make at least two epochs.
    """

    def make(self):
        raise NotImplementedError

    def make_for(self, n_features, n_classes):
        """Return a learner of other sizes."""
        raise NotImplementedError

    def test_it_is_a_learner(self):
        assert isinstance(self.make(), Learner)
        assert self.make().learns_from in ("labels", "likelihood")

    def test_fit_returns_the_learner_itself(self):
        X, learner = features(), self.make()
        assert learner.fit(X, release_of(X)) is learner

    def test_predictions_are_one_row_of_probabilities_per_row(self):
        X = features()
        learner = self.make().fit(X, release_of(X))
        for some in (X, X[:1], X[:0]):
            predicted = learner.predict_proba(some)
            assert predicted.shape == (len(some), N_CLASSES) and predicted.dtype.kind == "f"
            assert (predicted >= 0).all()
            assert predicted.sum(axis=1) == pytest.approx(np.ones(len(some)), abs=1e-5)
        assert learner.predict_proba(X)[7:9] == pytest.approx(learner.predict_proba(X[7:9]), abs=1e-6)

    def test_it_learns(self):
        X = features()
        release = ldp.LabelVault.unprotected(true_labels(X), classes=N_CLASSES)
        assert (self.make().fit(X, release).predict_proba(X).argmax(axis=1) == true_labels(X)).mean() > 0.7

    def test_the_same_releases_give_the_same_model(self):
        X = features()
        release = release_of(X)
        first = self.make().fit(X, release).predict_proba(X)
        assert (self.make().fit(X, [release]).predict_proba(X) == first).all()
        learner = self.make().fit(X, release)
        assert (learner.fit(X, (release,)).predict_proba(X) == first).all()

    def test_only_the_rows_of_the_release_count(self):
        X = features()
        release = release_of(X, rows=np.arange(0, N_ROWS, 2))
        other = X.copy()
        other[1::2] = 100
        assert (self.make().fit(X, release).predict_proba(X) == self.make().fit(other, release).predict_proba(X)).all()

    def test_an_unfitted_learner_says_so(self, tmp_path):
        with pytest.raises(ldp.InvalidArgument, match="has not been fitted"):
            self.make().predict_proba(features())
        with pytest.raises(ldp.InvalidArgument, match="has not been fitted"):
            self.make().save(tmp_path / "model")

    def test_a_saved_model_predicts_the_same(self, tmp_path):
        X = features()
        learner = self.make().fit(X, release_of(X))
        learner.save(tmp_path / "model")
        again = self.make()
        assert again.load(tmp_path / "model") is again
        assert (again.predict_proba(X) == learner.predict_proba(X)).all()
        assert [file.name for file in tmp_path.iterdir()] == ["model"]

    def test_what_is_not_its_model_is_not_loaded(self, tmp_path):
        X = features()
        with pytest.raises(ldp.InvalidArgument, match="no model"):
            self.make().load(tmp_path / "nowhere")
        (tmp_path / "stranger").write_bytes(b"0" * 100)
        with pytest.raises(ldp.InvalidArgument, match="does not hold"):
            self.make().load(tmp_path / "stranger")
        other = self.make_for(N_FEATURES + 1, N_CLASSES).fit(np.c_[X, X[:, :1]], release_of(X))
        other.save(tmp_path / "other")
        with pytest.raises(ldp.InvalidArgument, match="does not hold"):
            self.make().load(tmp_path / "other")

    def test_a_copy_lives_its_own_life(self):
        X = features()
        learner = self.make().fit(X, release_of(X))
        before = learner.predict_proba(X)
        twin = copy.deepcopy(learner)
        assert (twin.predict_proba(X) == before).all()
        twin.fit(X, release_of(X, rows=np.arange(60)))
        assert (twin.predict_proba(X) != before).any()
        assert (learner.predict_proba(X) == before).all()

    def test_a_copy_of_an_unfitted_learner_does_not_fit_the_original(self):
        X, learner = features(), self.make()
        copy.deepcopy(learner).fit(X, release_of(X))
        with pytest.raises(ldp.InvalidArgument):
            learner.predict_proba(X)

    def test_starting_from_a_model_leaves_that_model_alone(self):
        X = features()
        start = self.make().fit(X, release_of(X))
        before = start.predict_proba(X)
        self.make().fit(X, release_of(X, rows=np.arange(100)), start=start)
        assert (start.predict_proba(X) == before).all()

    def test_it_asks_once(self):
        asked = []
        assert self.make().ask_once(lambda: asked.append(1) or "answer") == "answer"
        assert asked == [1]
        with pytest.raises(ldp.BudgetExhausted, match="all spent"):
            self.make().ask_once(self._refuse)

    @staticmethod
    def _refuse():
        raise ldp.BudgetExhausted("all spent")

    @pytest.mark.parametrize(
        "disguise",
        [
            np.asarray,
            list,
            tuple,
            pd.Series,
            lambda labels: [labels],
            lambda labels: pd.DataFrame({"label": labels}),
            lambda labels: np.eye(N_CLASSES)[labels],
            lambda labels: int(labels[0]),
            lambda labels: iter(labels),
            lambda _: None,
            lambda _: [],
            lambda labels: ldp.LabelVault(labels, classes=N_CLASSES, budget="1"),
        ],
    )
    def test_it_takes_no_labels(self, disguise):
        X = features()
        with pytest.raises(ldp.InvalidArgument, match="a learner takes no labels"):
            self.make().fit(X, disguise(true_labels(X)))

    def test_it_refuses_features_that_do_not_fit_before_it_is_asked_to_learn(self):
        X, learner = features(), self.make()
        learner.check(X, N_CLASSES)
        for wrong, n_classes in ((X, N_CLASSES + 1), (X, N_CLASSES - 1), (X[:, :-1], N_CLASSES), (X[:, 0], N_CLASSES)):
            with pytest.raises(ldp.InvalidArgument):
                learner.check(wrong, n_classes)
            vault = ldp.LabelVault(np.arange(N_ROWS) % n_classes, classes=n_classes, budget="1")
            release = vault.release(ldp.RandomizedResponse("1"))
            with pytest.raises(ldp.InvalidArgument):
                learner.fit(wrong, release)

    @pytest.mark.parametrize("kind", [lambda X: X.tolist(), pd.DataFrame])
    def test_features_that_cannot_be_taken_row_by_row_are_refused_by_the_check(self, kind):
        X = kind(features())
        learner = self.make()
        with pytest.raises(ldp.InvalidArgument):
            learner.check(X, N_CLASSES)

    def test_features_with_fewer_rows_than_the_vault_are_refused(self):
        X = features()
        with pytest.raises(ldp.InvalidArgument, match="one row per row of the vault"):
            self.make().fit(X[:-1], release_of(X))

    def test_releases_of_different_classes_are_not_learned_from_together(self):
        X = features()
        other = ldp.LabelVault(np.zeros(N_ROWS, dtype=int), classes=N_CLASSES + 1, budget="1")
        with pytest.raises(ldp.InvalidArgument, match="same classes"):
            self.make().fit(X, [release_of(X), other.release(ldp.RandomizedResponse("1"))])

    def test_whoever_watches_sees_public_figures_and_can_predict(self):
        X, learner, seen = features(), self.make(), []

        def watch(record):
            seen.append(record)
            assert learner.predict_proba(X).shape == (N_ROWS, N_CLASSES)

        learner.fit(X, release_of(X), watch=watch)
        assert [record["epoch"] for record in seen] == list(range(1, seen[0]["epochs"] + 1))
        assert set(seen[0]) - {"precision"} == {"epoch", "epochs", "loss", "learning_rate", "seconds", "rows"}
        assert all(record["rows"] == N_ROWS and np.isfinite(record["loss"]) for record in seen)

    def test_watching_changes_nothing(self):
        X, learner = features(), self.make()
        release = release_of(X)
        learner.fit(X, release, watch=lambda _: learner.predict_proba(X))
        assert (learner.predict_proba(X) == self.make().fit(X, release).predict_proba(X)).all()

    def test_it_goes_on_from_its_checkpoint_as_if_nothing_had_happened(self, tmp_path):
        X = features()
        release = release_of(X)

        def stop(record):
            if record["epoch"] == 2:
                raise Stop

        with pytest.raises(Stop):
            self.make().fit(X, release, checkpoint=tmp_path / "c", watch=stop)
        seen = []
        resumed = self.make().fit(X, release, checkpoint=tmp_path / "c", watch=seen.append)
        assert seen[0]["epoch"] == 2  # the last one that is safely stored is the first
        assert (resumed.predict_proba(X) == self.make().fit(X, release).predict_proba(X)).all()
        finished = self.make().fit(X, release, checkpoint=tmp_path / "c", watch=lambda _: pytest.fail("trained"))
        assert (resumed.predict_proba(X) == finished.predict_proba(X)).all()

    def test_a_checkpoint_of_other_releases_is_refused(self, tmp_path):
        X = features()
        self.make().fit(X, release_of(X), checkpoint=tmp_path / "c")
        with pytest.raises(ldp.InvalidArgument, match="other releases, settings or starting weights"):
            self.make().fit(X, release_of(X, rows=np.arange(100)), checkpoint=tmp_path / "c")

    def test_fitting_changes_no_feature(self):
        X = features()
        X.flags.writeable = False
        self.make().fit(X, release_of(X))
        assert (features() == X).all()

    # ---- beliefs and counts of groups --------------------------------------------------------------------------------

    def test_it_learns_from_beliefs(self):
        X = features()
        learner = self.make().fit(X, beliefs_of(X))
        assert (learner.predict_proba(X).argmax(axis=1) == true_labels(X)).mean() > 0.7

    def test_it_learns_from_counts_of_groups_as_from_their_shares(self):
        X = features()
        counts = counts_of(X)
        learner = self.make().fit(X, counts)
        assert (learner.predict_proba(X).argmax(axis=1) == true_labels(X)).mean() > 0.6
        shares = Beliefs(counts.rows, projected(counts)[counts.groups], counts)
        for same in (shares, [counts], (shares,)):
            assert (self.make().fit(X, same).predict_proba(X) == learner.predict_proba(X)).all()

    def test_a_row_without_weight_may_be_believed_to_be_anything(self):
        X = features()
        weights = (np.arange(N_ROWS) % 3 > 0).astype(float)
        leaning = beliefs_of(X, weights=weights)
        turned = Beliefs(leaning.rows, leaning.shares.copy(), leaning.releases, weights)
        turned.shares[::3] = turned.shares[::3, ::-1]
        one, other, heavy = (
            self.make().fit(X, each).predict_proba(X)
            for each in (leaning, turned, Beliefs(turned.rows, turned.shares, turned.releases))
        )
        assert one == pytest.approx(other, abs=1e-6)
        assert np.abs(one - heavy).max() > 1e-3

    def test_it_learns_from_reports_and_counts_together(self):
        X = features()
        reports = release_of(X, rows=np.arange(0, N_ROWS, 2))
        counts = counts_of(X)
        both = self.make().fit(X, [reports, counts])
        assert (both.predict_proba(X).argmax(axis=1) == true_labels(X)).mean() > 0.6
        assert (both.predict_proba(X) != self.make().fit(X, reports).predict_proba(X)).any()
        assert (both.predict_proba(X) != self.make().fit(X, counts).predict_proba(X)).any()

    def test_it_goes_on_from_a_model_with_beliefs(self):
        X = features()
        start = self.make().fit(X, release_of(X))
        before = start.predict_proba(X)
        predicted = self.make().fit(X, beliefs_of(X), start=start).predict_proba(X)
        assert predicted.shape == before.shape and (start.predict_proba(X) == before).all()

    def test_beliefs_are_learned_the_same_with_a_checkpoint_and_a_watcher(self, tmp_path):
        X, seen = features(), []
        alone = self.make().fit(X, counts := counts_of(X)).predict_proba(X)
        for _ in range(2):
            watched = self.make().fit(X, counts, checkpoint=tmp_path / "c", watch=seen.append)
            assert (watched.predict_proba(X) == alone).all()
        assert set(seen[0]) - {"precision"} == {"epoch", "epochs", "loss", "learning_rate", "seconds", "rows"}
        assert all(record["rows"] == N_ROWS and np.isfinite(record["loss"]) for record in seen)

    def test_beliefs_about_rows_that_x_does_not_have_are_refused(self):
        X = features()
        for each in (beliefs_of(X), counts_of(X)):
            with pytest.raises(ldp.InvalidArgument, match="one row per row of the vault"):
                self.make().fit(X[:-1], each)

    def test_beliefs_in_other_classes_are_not_learned_beside_a_release(self):
        X = features()
        named = ldp.LabelVault(list("ab"), classes=list("abc"), budget="1").release(ldp.RandomizedResponse("1"))
        other = Beliefs(np.arange(2), np.full((2, N_CLASSES), 1 / N_CLASSES), named)
        with pytest.raises(ldp.InvalidArgument, match="same classes"):
            self.make().fit(X, [release_of(X), other])
