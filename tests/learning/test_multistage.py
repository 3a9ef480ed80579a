"""Algorithm 3, watched from both sides: what the vault is asked, and what the learner is given."""

from __future__ import annotations

import gc
import hashlib
import weakref
from functools import partial

import numpy as np
import pytest
from doubles import Scripted, WatchedVault, kept_of, softmax

import labeldp as ldp
from labeldp.learning import Filtered, MultiStage
from labeldp.learning.multistage import tempered
from labeldp.mechanisms import ClusterRR
from labeldp.metrics import accuracy

N, K = 300, 4
X = np.random.default_rng(0).normal(size=(N, K))
LABELS = np.random.default_rng(1).integers(K, size=N)


def open_vault(labels=LABELS, budget="3", **settings):
    return WatchedVault(ldp.LabelVault(labels, classes=K, budget=budget, **settings))


def fitted(vault=None, epsilon="1", learner=None, *, fit=None, **settings):
    vault = vault or open_vault()
    learner = learner or Scripted()
    multi = MultiStage(learner, **settings).fit(X, vault, epsilon, **(fit or {}))
    return multi, vault, (learner[0] if isinstance(learner, list) else learner).journal


# ---------------------------------------------------------------- who is asked what


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("hold_out", [0.0, 0.2])
def test_every_row_is_asked_exactly_once(stages, hold_out):
    _, vault, _ = fitted(stages=stages, hold_out=hold_out, split=None)
    asked = np.concatenate([question["rows"] for question in vault.asked])
    assert sorted(asked.tolist()) == list(range(N))
    assert len(vault.asked) == stages + (hold_out > 0)
    assert vault.spent().epsilon == "1"  # the most that any row paid
    assert len(vault.certificate()["queries"]) == len(vault.asked)


def test_the_split_says_how_many():
    multi, vault, _ = fitted(stages=3, split=(0.5, 0.3, 0.2))
    assert [len(question["rows"]) for question in vault.asked] == [150, 90, 60]
    assert [len(release) for release in multi.releases_] == [150, 90, 60]


def test_what_is_asked_of_whom_does_not_depend_on_labels():
    """Two vaults that differ in every label, in the first stage and with a model that looks at X alone."""
    _, one, _ = fitted(open_vault(LABELS), stages=3, hold_out=0.1)
    _, other, _ = fitted(open_vault((LABELS + 1) % K), stages=3, hold_out=0.1)
    for a, b in zip(one.asked, other.asked, strict=True):
        assert (a["rows"] == b["rows"]).all()
    _, third, _ = fitted(open_vault(LABELS), stages=3, hold_out=0.1, seed=1)
    assert any((a["rows"] != b["rows"]).any() for a, b in zip(one.asked, third.asked, strict=True))


def test_only_chosen_rows_are_asked():
    chosen = np.arange(0, N, 3)
    _, vault, _ = fitted(fit={"rows": chosen}, stages=2)
    assert sorted(np.concatenate([question["rows"] for question in vault.asked]).tolist()) == chosen.tolist()
    assert vault.spent(np.setdiff1d(np.arange(N), chosen)).epsilon == "0"
    _, masked, _ = fitted(fit={"rows": np.arange(N) % 3 == 0}, stages=2)
    assert all((a["rows"] == b["rows"]).all() for a, b in zip(vault.asked, masked.asked, strict=True))


def test_rows_without_a_label_are_left_out():
    labels = [None if row % 5 == 0 else int(label) for row, label in enumerate(LABELS)]
    _, vault, _ = fitted(open_vault(labels, missing="public"), stages=2)
    asked = np.concatenate([question["rows"] for question in vault.asked])
    assert sorted(asked.tolist()) == [row for row in range(N) if row % 5]
    again = open_vault(labels, missing="public")
    with pytest.raises(ldp.InvalidArgument, match="must all have a label"):
        MultiStage(Scripted()).fit(X, again, "1", rows=np.arange(100))
    assert again.spent().epsilon == "0" and not again.asked


def test_one_stage_of_the_papers_mechanism_is_plain_randomized_response():
    multi, vault, _ = fitted(stages=1)
    (release,) = multi.releases_
    assert vault.asked[0]["priors"] is None and (release.sizes == K).all()
    plain = ldp.RandomizedResponse("1")
    uniform = np.full(K, 1 / K)
    assert all(release.channel.law(0, label) == plain.law(label, uniform) for label in range(K))
    assert release.receipt.source == "none needed"


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.5])
@pytest.mark.parametrize("mechanism", [ldp.RRWithPrior, ldp.GroupedResponse])
def test_the_prior_of_a_stage_is_the_model_of_the_one_before(mechanism, temperature):
    learner = Scripted("likelihood")
    multi, vault, _ = fitted(learner=learner, stages=4, mechanism=mechanism, temperature=temperature)
    assert vault.asked[0]["priors"] is None
    for number in (2, 3, 4):
        question, release = vault.asked[number - 1], multi.releases_[number - 1]
        expected = softmax((number - 1) * X[question["rows"]] / temperature)  # M^(t-1), not M^(t)
        assert question["priors"] == pytest.approx(expected, rel=1e-9)
        digest = hashlib.sha256(np.ascontiguousarray(question["priors"]).data).hexdigest()
        assert release.receipt.priors == {"digest": digest, "shared": False}
        if mechanism is ldp.RRWithPrior:
            dealt = ldp.RRWithPrior("1").deal(question["priors"], None)
            assert (release.groups.counts == dealt.counts).all() and (release.groups.members == dealt.members).all()
        assert question["source"] == multi.releases_[: number - 1]
        entries = [each.receipt.ledger for each in multi.releases_[: number - 1]]
        words = ", ".join(f"{ledger['entry']} of ledger {ledger['id']}" for ledger in entries)
        assert release.receipt.source == f"releases {words}"


def test_temperature_is_that_of_the_logits():
    logits = np.random.default_rng(3).normal(scale=5, size=(50, K))
    for temperature in (0.1, 0.7, 1.0, 3.0):
        assert tempered(softmax(logits), temperature) == pytest.approx(
            softmax(logits / temperature), rel=1e-6, abs=1e-12
        )
    certain = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=np.float32)
    for temperature in (0.01, 0.5, 2.0, 100.0):
        assert tempered(certain, temperature) == pytest.approx(certain)  # no warning, no NaN


def test_each_stage_learns_from_everything_released_so_far():
    multi, _, journal = fitted(stages=3)
    assert [entry["releases"] for entry in journal] == [multi.releases_[:1], multi.releases_[:2], multi.releases_]
    assert [model.stage for model in multi.models_] == [1, 2, 3] and multi.model_ is multi.models_[-1]
    assert (multi.predict_proba(X) == multi.model_.predict_proba(X)).all()
    assert [entry["checkpoint"] for entry in journal] == [None] * 3


def test_a_warm_start_is_the_model_before_and_a_cold_one_is_none():
    multi, _, journal = fitted(stages=3)
    assert [entry["start"] for entry in journal] == [None, multi.models_[0], multi.models_[1]]
    _, _, journal = fitted(stages=3, warm_start=False)
    assert [entry["start"] for entry in journal] == [None, None, None]


def test_every_stage_may_have_its_own_learner():
    learners = [Scripted(tag=tag) for tag in ("first", "second", "third")]
    for learner in learners:
        learner.journal = learners[0].journal
    multi, _, journal = fitted(learner=learners, stages=3)
    assert [entry["tag"] for entry in journal] == ["first", "second", "third"]
    assert [model.tag for model in multi.models_] == ["first", "second", "third"]
    with pytest.raises(ldp.InvalidArgument, match=r"one per stage \(2\); got 3"):
        fitted(learner=learners, stages=2)


def test_learners_given_are_never_the_ones_that_are_fitted():
    """Fitting again, or giving one learner for several stages, leaves earlier models as they were."""
    learner = Scripted()
    multi, _, _ = fitted(learner=[learner] * 3, stages=3)
    assert [model.stage for model in multi.models_] == [1, 2, 3] and learner.stage == 0
    earlier = multi.models_
    multi.fit(X, open_vault(), "1")
    assert [model.stage for model in earlier] == [1, 2, 3]


# ---------------------------------------------------------------- the filter


@pytest.mark.parametrize("how", ["floor", "round"])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "3"])
def test_the_filter_keeps_the_rows_whose_report_is_among_the_models_top_k(how, epsilon):
    multi, _, journal = fitted(epsilon=epsilon, stages=3, filter=how)
    for number in (2, 3):
        given, release = journal[number - 1]["releases"], multi.releases_[number - 1]
        mean = float(np.mean(release.sizes))
        k = max(1, int(np.floor(mean)) if how == "floor" else int(np.round(mean)))
        assert given[-1] is release, "the newest release is not filtered"
        for filtered, earlier in zip(given[:-1], multi.releases_, strict=False):
            assert isinstance(filtered, Filtered) and filtered.release is earlier
            for place, row in enumerate(earlier.rows):
                order = np.argsort(-X[row])  # the model of the stage before has the logits (number - 1) X
                assert filtered.kept[place] == (earlier.label_numbers[place] in order[:k])
    assert 0 < kept_of(journal[1]["releases"][0]).mean() <= 1


def test_floor_and_round_differ_where_the_mean_lies_between():
    """At epsilon 1 and with these features the mean k of the second stage lies nearer to the larger number."""
    ks = {}
    for how in ("floor", "round"):
        records = []
        multi, _, _ = fitted(stages=2, filter=how, temperature=2.0, fit={"watch": records.append})
        ks[how] = [record["filtered"]["k"] for record in records if record["kind"] == "stage" and record["filtered"]]
        mean = float(np.mean(multi.releases_[1].sizes))
        assert mean % 1 > 0.5
    assert ks["round"][0] == ks["floor"][0] + 1


def test_without_a_filter_everything_is_kept():
    _, _, journal = fitted(stages=3)
    assert all(isinstance(each, ldp.Release) for entry in journal for each in entry["releases"])


# ---------------------------------------------------------------- external priors


EXTERNAL = np.random.default_rng(9).dirichlet(np.ones(K), size=N)


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("kind", ["array", "function"])
def test_an_external_prior_is_mixed_in_from_the_first_stage_on(weight, kind):
    prior = EXTERNAL if kind == "array" else lambda rows: EXTERNAL[rows]
    multi, vault, _ = fitted(stages=3, prior=prior, prior_weight=weight, temperature=0.5, prior_source="a survey")
    for number, question in enumerate(vault.asked, start=1):
        rows = question["rows"]
        model = np.full((len(rows), K), 1 / K) if number == 1 else softmax((number - 1) * X[rows] / 0.5)
        assert question["priors"] == pytest.approx((1 - weight) * model + weight * EXTERNAL[rows])
        source = multi.releases_[number - 1].receipt.source
        assert source.startswith(f"a survey (weight {weight:g})")
        for earlier in multi.releases_[: number - 1]:
            assert f"entry {earlier.receipt.ledger['entry']}" in source
    told = [query["source"] for query in vault.certificate()["queries"]]
    assert told == [release.receipt.source for release in multi.releases_]


def test_an_external_prior_of_unknown_origin_is_called_so():
    multi, _, _ = fitted(stages=1, prior=EXTERNAL)
    assert "origin not stated" in multi.releases_[0].receipt.source


def test_mechanisms_that_need_a_prior_get_the_external_one():
    multi, _, _ = fitted(stages=2, prior=EXTERNAL, mechanism=lambda epsilon: ldp.RRTopK(epsilon, k=2))
    assert all((release.sizes == 2).all() for release in multi.releases_)


# ---------------------------------------------------------------- the hold-out, and who watches


def test_the_hold_out_is_plain_randomized_response_on_rows_of_its_own():
    multi, vault, journal = fitted(stages=2, hold_out=0.2)
    held = multi.hold_out_
    assert held.receipt.mechanism["name"] == "RandomizedResponse" and held.receipt.epsilon == "1" and len(held) == 60
    assert vault.asked[0]["priors"] is None and held.receipt.source == "none needed"
    for release in multi.releases_:
        assert not np.isin(held.rows, release.rows).any()
    assert all(held is not each for entry in journal for each in entry["releases"]), "nobody trains on it"


def test_the_grades_are_the_models_on_the_hold_out():
    records = []
    multi, _, _ = fitted(stages=2, hold_out=0.2, fit={"watch": records.append})
    grades = [record["hold_out"] for record in records if record["kind"] == "epoch"]
    for model, grade in zip(multi.models_, grades, strict=True):
        found = accuracy(multi.hold_out_, model.predict_proba(X[multi.hold_out_.rows]))
        assert grade == {"accuracy": found.value, "standard_error": found.standard_error, "rows": 60}


def test_without_a_hold_out_there_is_no_grade_and_none_is_left_over():
    records = []
    multi, _, _ = fitted(stages=2, hold_out=0.2)
    again = MultiStage(Scripted(), stages=2).refit(X, multi.releases_, hold_out=multi.hold_out_)
    assert again.hold_out_ is multi.hold_out_
    again.fit(X, open_vault(), "1", watch=records.append)
    assert again.hold_out_ is None
    assert [record["hold_out"] for record in records if record["kind"] == "epoch"] == [None, None]


def test_records_hold_public_figures():
    records = []
    multi, _, _ = fitted(
        stages=2, filter="floor", hold_out=0.1, temperature=0.5,
        fit={"watch": records.append, "test": lambda model: {"stage_of_model": model.stage}},
    )  # fmt: skip
    assert [record["kind"] for record in records] == ["stage", "epoch", "test"] * 2
    first, second = (record for record in records if record["kind"] == "stage")
    assert first["temperature"] is None and second["temperature"] == 0.5 and first["filtered"] is None
    assert first["groups"] == {str(K): 135} and first["mean_groups"] == K and first["charged"] == first["rows"] == 135
    assert second["mean_groups"] == multi.releases_[1].sizes.mean()
    assert sum(second["groups"].values()) == second["rows"] and second["charged"] <= 135
    assert second["filtered"]["rows"] == 135 and 0 <= second["filtered"]["kept"] <= 135
    assert [r["stage_of_model"] for r in records if r["kind"] == "test"] == [1, 2]


# ---------------------------------------------------------------- refit


def test_refit_trains_again_and_asks_nothing():
    multi, vault, _ = fitted(stages=3, filter="round")
    asked = len(vault.asked)
    learner = Scripted()
    again = MultiStage(learner, stages=3, filter="round").refit(X, multi.releases_)
    assert len(vault.asked) == asked and vault.spent().epsilon == "1"
    assert (again.predict_proba(X) == multi.predict_proba(X)).all() and again.releases_ == multi.releases_
    for ours, theirs in zip(learner.journal, multi.learner.journal, strict=True):
        assert all((kept_of(a) == kept_of(b)).all() for a, b in zip(ours["releases"], theirs["releases"], strict=True))


def test_refit_refuses_what_it_cannot_train_on():
    multi, _, _ = fitted(stages=2)
    grouped, _, _ = fitted(learner=Scripted("likelihood"), stages=2, mechanism=ldp.GroupedResponse, epsilon="0.5")
    with pytest.raises(ldp.InvalidArgument, match=r"one per stage \(2\), got 1"):
        MultiStage(Scripted()).refit(X, multi.releases_[:1])
    with pytest.raises(ldp.InvalidArgument, match="RandomizedResponse"):
        MultiStage(Scripted()).refit(X, multi.releases_, hold_out=multi.releases_[0])
    with pytest.raises(ldp.InvalidArgument, match="group"):
        MultiStage(Scripted()).refit(X, grouped.releases_)
    with pytest.raises(ldp.InvalidArgument, match="one column per class"):
        MultiStage(Scripted()).refit(X[:, 1:], multi.releases_)


# ---------------------------------------------------------------- refused before anything is spent


NO_PRIOR = np.full((N, K), 0.5)
BAD_LAST = np.where(np.arange(N)[:, None] == N - 1, 0.9, EXTERNAL)


@pytest.mark.parametrize(
    ("settings", "features", "says"),
    [
        ({"mechanism": ldp.GroupedResponse}, X, "reports groups of labels"),
        ({}, X[:-1], r"one row per label \(300\), got 299"),
        ({}, X[:, 1:], "one column per class"),
        ({}, X[:, 0], "one column per class"),
        ({"mechanism": lambda epsilon: ldp.RRTopK(epsilon, k=2)}, X, "needs a prior"),
        ({"mechanism": lambda epsilon: ldp.RRTopK(epsilon, k=9), "prior": EXTERNAL}, X, "k must be at most"),
        ({"mechanism": lambda _: ldp.UnbiasedResponse("0.00005", low=0, high=3)}, X, "at least 1e-4"),
        ({"mechanism": lambda epsilon: ClusterRR(epsilon, tau="0.3"), "prior": EXTERNAL}, X, "at most 1 / classes"),
        ({"prior": EXTERNAL[:, 1:]}, X, "prior"),
        ({"prior": EXTERNAL[:-1]}, X, "prior"),
        ({"prior": NO_PRIOR}, X, "prior"),
        ({"prior": BAD_LAST}, X, "prior"),
        ({"prior": lambda rows: EXTERNAL[rows, 1:]}, X, "prior"),
        ({"stages": 290}, X, "too few"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_spent(settings, features, says):
    vault = open_vault()
    with pytest.raises(ldp.InvalidArgument, match=says):
        MultiStage(Scripted(), hold_out=0.1, **settings).fit(features, vault, "1")
    assert vault.spent().epsilon == "0" and not vault.asked


@pytest.mark.parametrize(
    ("fit", "says"),
    [
        ({"epsilon": "0"}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"rows": [3, 2, 1]}, "strictly increasing"),
        ({"rows": [0, N]}, "strictly increasing"),
        ({"rows": np.zeros(N, dtype=bool)}, "at least one row"),
    ],
)
def test_questions_that_make_no_sense_are_refused_before_anything_is_spent(fit, says):
    vault = open_vault()
    with pytest.raises(ldp.InvalidArgument, match=says):
        MultiStage(Scripted()).fit(X, vault, **({"epsilon": "1"} | fit))
    assert vault.spent().epsilon == "0" and not vault.asked


@pytest.mark.parametrize(
    "settings",
    [
        {"stages": 0},
        {"stages": 2.0},
        {"split": (0.5, 0.4)},
        {"split": (0.3, 0.3, 0.4)},
        {"temperature": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"hold_out": 1.0},
        {"hold_out": -0.1},
        {"prior_weight": 1.1},
        {"prior_weight": float("nan")},
        {"filter": "top-k"},
        {"filter": True},
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(settings):
    with pytest.raises(ldp.InvalidArgument):
        MultiStage(Scripted(), **settings)


def test_a_filter_and_the_likelihood_do_not_go_together():
    for learner in (Scripted("likelihood"), [Scripted("labels"), Scripted("likelihood")]):
        with pytest.raises(ldp.InvalidArgument, match="bias the likelihood"):
            MultiStage(learner, filter="floor")


def test_groups_are_no_labels_for_any_stage():
    vault = open_vault()
    learners = [Scripted("likelihood"), Scripted("labels")]
    with pytest.raises(ldp.InvalidArgument, match="reports groups of labels"):
        MultiStage(learners, mechanism=ldp.GroupedResponse).fit(X, vault, "1")
    assert vault.spent().epsilon == "0"
    fitted(vault, learner=Scripted("likelihood"), mechanism=ldp.GroupedResponse)


def test_a_budget_too_small_for_the_first_stage_spends_nothing():
    vault = open_vault(budget="0.5")
    with pytest.raises(ldp.BudgetExhausted):
        MultiStage(Scripted()).fit(X, vault, "1")
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize("high", [2, 4])
def test_a_grid_that_is_not_the_classes_is_refused_before_anything_is_spent(high):
    vault = open_vault()
    multi = MultiStage(Scripted("likelihood"), hold_out=0.1, mechanism=partial(ldp.UnbiasedResponse, low=0, high=high))
    with pytest.raises(ldp.InvalidArgument, match="must be the vault's classes"):
        multi.fit(X, vault, "1")
    assert vault.spent().epsilon == "0" and not vault.asked


def test_an_unfitted_one_says_so():
    with pytest.raises(ldp.InvalidArgument, match="has not been fitted"):
        MultiStage(Scripted()).predict_proba(X)


# ---------------------------------------------------------------- no way back to the labels


def test_a_fitted_one_lets_go_of_the_vault():
    vault = ldp.LabelVault(LABELS, classes=K, budget="3")
    gone = weakref.ref(vault)
    multi = MultiStage(Scripted(), stages=3, hold_out=0.1, filter="round")
    multi.fit(X, vault, "1", watch=lambda _: None, test=lambda _: {})
    del vault
    gc.collect()
    assert gone() is None and len(multi.releases_) == 3


def test_a_budget_that_lasts_for_some_rows_only_is_refused_before_the_first_stage():
    vault = open_vault(budget="1")
    vault.release(ldp.RandomizedResponse("0.5"), rows=[N - 1])
    before = len(vault.certificate()["queries"])
    with pytest.raises(ldp.BudgetExhausted, match=r"need epsilon 1 for every row, and epsilon 0\.5 is left for some"):
        fitted(vault, stages=3)
    assert len(vault.certificate()["queries"]) == before


@pytest.mark.parametrize("how", [{"name": "run"}, {"folder": "run"}, {"folder": "run", "name": "run"}])
def test_what_somebody_else_spent_is_missed_before_the_first_question(how, tmp_path):
    vault = open_vault(budget="1")
    last_asked = fitted(stages=3, hold_out=0.1)[0].releases_[-1].rows[:1]
    vault.release(ldp.RandomizedResponse("0.5"), rows=last_asked)
    keeping = {key: tmp_path / value if key == "folder" else value for key, value in how.items()}
    with pytest.raises(ldp.BudgetExhausted, match=r"need epsilon 1 for every row, and epsilon 0\.5 is left for some"):
        fitted(vault, stages=3, hold_out=0.1, fit=keeping)
    assert len(vault.certificate()["queries"]) == 1


@pytest.mark.parametrize("learner", [object(), [object(), object()], "linear"])
def test_what_cannot_learn_from_releases_is_no_learner(learner):
    with pytest.raises(ldp.InvalidArgument, match=r"learner must (learn from releases|be one)"):
        MultiStage(learner, stages=2).fit(np.zeros((4, 2)), ldp.LabelVault([0, 1, 0, 1], classes=2, budget="1"), "1")


@pytest.mark.parametrize("how", [{"mechanism": "RandomizedResponse"}, {"hold_out": "0.2"}, {"hold_out": 1.5}])
def test_settings_of_the_wrong_kind_say_what_they_must_be(how):
    (name,) = how
    with pytest.raises(ldp.InvalidArgument, match=f"{name} must"):
        MultiStage(object(), **how)


def test_a_name_that_would_be_too_long_for_a_later_stage_is_refused_at_once():
    vault = ldp.LabelVault([0, 1, 0, 1], classes=2, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="name must be 1 to 180 printable characters"):
        MultiStage(object(), stages=2).fit(np.zeros((4, 2)), vault, "1", name="n" * 181)
    assert vault.spent().epsilon == "0"
