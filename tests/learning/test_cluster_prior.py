"""Algorithm 4, watched from both sides: counts of clusters first, then stages with what is left of epsilon."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import resumable
from doubles import Scripted, WatchedVault, softmax
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.budget import Epsilon, Ledger, create_ledger
from labeldp.learning import Beliefs, ClusterPrior, Lesson, MultiStage
from labeldp.learning.cluster_prior import labels_worth
from labeldp.learning.multistage import COUNTS
from labeldp.priors import Clusters, bag_posterior, normalised, projected, smoothed
from labeldp.priors.shares import noise_variance
from labeldp.vault.aggregates import MOST_CELLS

N, K, COUNT = 240, 3, 12
PART, REST, EPSILON = "0.1", "0.9", "1"
X = np.random.default_rng(0).normal(size=(N, K))
LABELS = np.random.default_rng(1).integers(K, size=N)
CLASSES = tuple(range(K))


def clusters_of(n_rows=N, count=COUNT, seed=2):
    """Made-up clusters; the last of them is empty."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, 2)).astype(np.float32)
    return Clusters(rng.integers(count - 1, size=n_rows), centres, np.zeros(2, np.float32), np.eye(2, dtype=np.float32))


CLUSTERS = clusters_of()


class Watched(WatchedVault):
    """A vault that notes every question, counts too."""

    def histogram(self, groups, epsilon, **how):
        self.asked.append({"groups": groups, "epsilon": epsilon, **how})
        return self._vault.histogram(groups, epsilon, **how)


def open_vault(labels=LABELS, budget="1", trust="curator", **settings):
    return Watched(ldp.LabelVault(labels, classes=K, budget=budget, trust=trust, **settings))


def staged(learner=None, part=PART, clusters=CLUSTERS, **settings):
    settings = {"mechanism": ldp.ClusterRR, "stages": 2} | settings
    return MultiStage(learner or Scripted(), clusters=ClusterPrior(clusters, part), **settings)


def fitted(vault=None, learner=None, *, fit=None, **settings):
    vault, learner = vault or open_vault(), learner or Scripted()
    return staged(learner, **settings).fit(X, vault, EPSILON, **(fit or {})), vault, learner.journal


def nothing_asked(vault):
    return vault.spent().epsilon == "0" and not vault.asked and vault.certificate()["queries"] == []


# ---------------------------------------------------------------- what epsilon is spent on


@given(st.integers(1, 20 * 10**12), st.integers(1, 20 * 10**12))
def test_the_parts_of_epsilon_add_up_exactly(one, other):
    total, part = Epsilon(max(one, other)), Epsilon(min(one, other))
    prior = ClusterPrior(CLUSTERS, part)
    if part == total:
        assert prior.split(total, 0) == (total, None)
        with pytest.raises(ldp.InvalidArgument, match="must take less than epsilon"):
            prior.split(total, 1)
    else:
        counts, stages = prior.split(total, 3)
        assert counts == part and counts.units + stages.units == total.units
        with pytest.raises(ldp.InvalidArgument, match="must take all of epsilon"):
            prior.split(total, 0)


def test_a_tenth_and_nine_tenths_are_one():
    counts, stages = ClusterPrior(CLUSTERS, "0.1").split("1", 2)
    assert (counts.units, stages.units, str(stages)) == (10**11, 9 * 10**11, "0.9")
    assert ClusterPrior(CLUSTERS, 0.1).split(1.0, 2) == (counts, stages)


@pytest.mark.parametrize(("part", "stages"), [(None, 1), ("1", 1), ("2", 1), (PART, 0)])
def test_stages_and_counts_must_share_epsilon_before_anything_is_spent(part, stages):
    vault = open_vault(budget="3")
    with pytest.raises(ldp.InvalidArgument, match="change stages, or the epsilon of clusters"):
        staged(part=part, stages=stages, hold_out=0.1).fit(X, vault, EPSILON)
    assert nothing_asked(vault)


@pytest.mark.parametrize("hold_out", [0.0, 0.2])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_every_label_pays_exactly_epsilon(stages, hold_out):
    _, vault, _ = fitted(stages=stages, hold_out=hold_out)
    assert {vault.spent([row]).epsilon for row in range(N)} == {EPSILON}
    assert len(vault.certificate()["queries"]) == stages + 1 + (hold_out > 0)


def test_all_of_epsilon_on_counts_is_one_question():
    multi, vault, journal = fitted(part=None, stages=0)
    assert {vault.spent([row]).epsilon for row in range(N)} == {EPSILON}
    (query,) = vault.certificate()["queries"]
    assert query["query"] == "histogram" and multi.releases_ == [] and len(journal) == 1 == len(multi.models_)
    ((beliefs,),) = [entry["releases"] for entry in journal]
    assert (beliefs.shares == projected(multi.counts_)[CLUSTERS.numbers]).all() and beliefs.weights is None


def test_the_certificate_spells_the_composition_out():
    multi, vault, _ = fitted(stages=1)
    told = vault.certificate()
    assert told["trust"] == "curator" and told["private"]
    entries = [release.receipt.ledger["entry"] for release in (multi.counts_, multi.releases_[0])]
    assert told["dearest label"] == (
        f"epsilon 0.1 (entry {entries[0]}, Histogram) + 0.9 (entry {entries[1]}, ClusterRR) = 1"
    )
    counted, reported = told["queries"]
    assert counted["source"] == CLUSTERS.source() and counted["trust"] == "curator" and reported["trust"] == "local"
    assert reported["source"] == f"releases {entries[0]} of ledger {told['ledger']['id']}"


def test_later_stages_name_the_counts_and_all_earlier_releases():
    multi, vault, _ = fitted(stages=3)
    for number, question in enumerate(vault.asked[1:]):
        assert question["source"] == [multi.counts_, *multi.releases_[:number]]


# ---------------------------------------------------------------- nothing is spent in vain


@pytest.mark.parametrize("fit", [{}, {"name": "run"}, {"folder": "here"}])
def test_a_local_vault_is_refused_before_the_hold_out_is_charged(fit, tmp_path):
    vault = open_vault(trust="local")
    if "folder" in fit:
        fit = {"folder": tmp_path / "run"}
    with pytest.raises(ldp.TrustError, match="trust='curator'"):
        fitted(vault, hold_out=0.2, fit=fit)
    assert nothing_asked(vault)


@pytest.mark.parametrize("fit", [{}, {"name": "run"}, {"folder": "here"}])
def test_a_budget_too_small_is_not_touched(fit, tmp_path):
    """Also for a run that could go on with answers that it has: this one has none."""
    vault = open_vault(budget="0.95")
    if "folder" in fit:
        fit = {"folder": tmp_path / "run"}
    with pytest.raises(ldp.BudgetExhausted, match="need epsilon 1 for every row"):
        fitted(vault, fit=fit)
    assert nothing_asked(vault)


def test_an_epsilon_too_fine_for_exact_noise_is_refused_before_anything_is_spent(monkeypatch):
    """Of those that a ledger can hold none is, so that the limit is lowered here."""
    monkeypatch.setattr("labeldp.mechanisms.aggregate.LARGEST_LAPLACE_SCALE", 10**6)
    vault = open_vault()
    with pytest.raises(ldp.InvalidArgument, match="too fine a fraction"):
        fitted(vault, part="0.123456789123", hold_out=0.1)
    assert nothing_asked(vault)
    with pytest.raises(ldp.InvalidArgument, match="the epsilon of clusters"):
        ClusterPrior(CLUSTERS, "0.1234567891234")


def test_more_clusters_than_a_histogram_has_cells_are_refused_before_anything_is_spent():
    vault = open_vault()
    centres = np.broadcast_to(np.float32(0), (MOST_CELLS // K + 1, 2))
    many = Clusters(CLUSTERS.numbers, centres, CLUSTERS.mean, CLUSTERS.principal)
    with pytest.raises(ldp.InvalidArgument, match="the number of clusters must be between"):
        fitted(vault, clusters=many, hold_out=0.1)
    assert nothing_asked(vault)


@pytest.mark.parametrize("n_rows", [N - 1, N + 1])
def test_clusters_of_other_rows_are_refused_before_anything_is_spent(n_rows):
    vault = open_vault()
    with pytest.raises(ldp.InvalidArgument, match=rf"of all rows of the vault \({N}\); they are of {n_rows}"):
        fitted(vault, clusters=clusters_of(n_rows), hold_out=0.1)
    assert nothing_asked(vault)


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ldp.InvalidArgument, match="two answers to one question"):
        staged(prior=np.full((N, K), 1 / K))
    with pytest.raises(ldp.InvalidArgument, match="stages must be at least 1"):
        MultiStage(Scripted(), stages=0)
    with pytest.raises(ldp.InvalidArgument, match="clusters must be a ClusterPrior, got Clusters"):
        MultiStage(Scripted(), clusters=CLUSTERS)
    with pytest.raises(ldp.InvalidArgument, match=r"must be labeldp.priors.Clusters, got ndarray"):
        ClusterPrior(CLUSTERS.numbers, PART)
    for epsilon in ("0", "-1", "much", "21"):
        with pytest.raises(ldp.InvalidArgument, match="the epsilon of clusters"):
            ClusterPrior(CLUSTERS, epsilon)


# ---------------------------------------------------------------- what is asked


def test_held_out_rows_are_in_neither_counts_nor_releases():
    multi, vault, journal = fitted(hold_out=0.25, stages=2)
    held = multi.hold_out_
    assert len(held) == 60 and held.receipt.epsilon == EPSILON
    for each in (multi.counts_, *multi.releases_, *journal[-1]["releases"]):
        assert not np.isin(held.rows, each.rows).any()
    assert sorted([*held.rows, *multi.counts_.rows]) == list(range(N))
    assert sorted(np.concatenate([each.rows for each in multi.releases_])) == multi.counts_.rows.tolist()
    assert vault.asked[1]["n_groups"] == COUNT and (multi.counts_.groups == CLUSTERS.numbers[multi.counts_.rows]).all()


def test_what_is_asked_does_not_depend_on_labels():
    """Two vaults that differ in every label, and draw the same noise: the noisy counts differ by the true ones."""
    seen = []
    for labels in (LABELS, (LABELS + 1) % K):
        multi, vault, _ = fitted(open_vault(labels, bits=ldp.InsecureBits(3)), hold_out=0.1)
        seen.append((multi, vault.asked))
    (one, ours), (other, theirs) = seen
    for a, b in zip(ours, theirs, strict=True):
        assert a.keys() == b.keys() and (a["rows"] == b["rows"]).all() and a["name"] == b["name"]
    assert (ours[1]["groups"] == theirs[1]["groups"]).all() and ours[1]["epsilon"] == theirs[1]["epsilon"]
    rows = one.counts_.rows
    cells = [np.zeros((COUNT, K), int), np.zeros((COUNT, K), int)]
    for cell, labels in zip(cells, (LABELS, (LABELS + 1) % K), strict=True):
        np.add.at(cell, (CLUSTERS.numbers[rows], labels[rows]), 1)
    assert (one.counts_.counts - cells[0] == other.counts_.counts - cells[1]).all()


def test_only_chosen_rows_that_have_a_label_are_counted():
    labels = [None if row % 5 == 0 else int(label) for row, label in enumerate(LABELS)]
    vault = open_vault(labels, missing="public")
    multi, _, _ = fitted(vault)
    assert multi.counts_.rows.tolist() == [row for row in range(N) if row % 5]
    chosen = np.arange(0, N, 3)
    multi, vault, _ = fitted(fit={"rows": chosen})
    assert (multi.counts_.rows == chosen).all() and vault.spent(np.setdiff1d(np.arange(N), chosen)).epsilon == "0"


@pytest.mark.parametrize("mechanism", [ldp.ClusterRR, ldp.RRWithPrior, ldp.GroupedResponse])
def test_the_first_prior_is_the_smoothed_shares_and_later_ones_the_models(mechanism):
    multi, vault, _ = fitted(learner=Scripted("likelihood"), mechanism=mechanism, stages=3, temperature=0.5)
    counted, first, *later = vault.asked
    assert str(counted["epsilon"]) == PART and str(first["mechanism"].epsilon) == REST
    assert (first["priors"] == smoothed(multi.counts_, CLUSTERS)[CLUSTERS.numbers[first["rows"]]]).all()
    for number, question in enumerate(later, start=1):
        assert question["priors"] == pytest.approx(softmax(number * X[question["rows"]] / 0.5))


def test_every_stage_learns_the_counts_beside_its_reports():
    multi, _, journal = fitted(stages=3)
    counts = multi.counts_
    for number, entry in enumerate(journal, start=1):
        *reports, beliefs = entry["releases"]
        assert reports == multi.releases_[:number] and isinstance(beliefs, Beliefs)
        assert (beliefs.rows == counts.rows).all() and beliefs.classes == CLASSES
        assert (beliefs.shares == smoothed(counts, CLUSTERS)[counts.groups]).all()  # the prior that was asked with
        assert (beliefs.weights == labels_worth(counts)[counts.groups]).all()


def test_whoever_watches_hears_of_the_counts_first():
    records = []
    fitted(fit={"watch": records.append}, hold_out=0.1)
    stages = [record for record in records if record["kind"] == "stage"]
    assert [(each["stage"], each["mechanism"], each["epsilon"]) for each in stages] == [
        (0, "Histogram", PART),
        (1, "ClusterRR", REST),
        (2, "ClusterRR", REST),
    ]
    assert stages[0]["clusters"] == COUNT and stages[0]["charged"] == stages[0]["rows"] == N - 24
    json.dumps(records)


@pytest.mark.parametrize(
    ("learns_from", "mechanism"),
    [
        ("labels", ldp.ClusterRR),
        ("labels", ldp.RRWithPrior),
        ("likelihood", ldp.ClusterRR),
        ("likelihood", ldp.RRWithPrior),
        ("likelihood", ldp.GroupedResponse),
        ("likelihood", lambda epsilon: ldp.RRTopK(epsilon, k=2)),
        ("labels", ldp.RandomizedResponse),
    ],
)
def test_mechanisms_and_learners_that_fit_work_together(learns_from, mechanism):
    multi, vault, _ = fitted(learner=Scripted(learns_from), mechanism=mechanism, hold_out=0.1)
    assert len(multi.releases_) == 2 and vault.spent().epsilon == EPSILON
    assert all(each.receipt.epsilon == REST for each in multi.releases_)


def test_reports_of_groups_are_not_for_learners_of_labels_and_nothing_is_spent_to_find_out():
    vault = open_vault()
    with pytest.raises(ldp.InvalidArgument, match="reports groups of labels"):
        fitted(vault, mechanism=ldp.GroupedResponse, hold_out=0.1)
    assert nothing_asked(vault)
    fitted(open_vault(), learner=Scripted("labels"), mechanism=ldp.GroupedResponse, part=None, stages=0)  # not used


def tiny(kind):
    from sklearn.linear_model import LogisticRegression

    from labeldp.sklearn import SklearnLearner

    if kind == "sklearn":
        return SklearnLearner(LogisticRegression())
    import torch
    from torch import nn

    from labeldp.torch import TorchLearner

    torch.manual_seed(0)
    return TorchLearner(nn.Linear(K, K), loss=kind, epochs=2, batch_size=64)


@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [("noisy-label", ldp.ClusterRR), ("likelihood", ldp.GroupedResponse), ("sklearn", ldp.RRWithPrior)],
)
@pytest.mark.parametrize("stages", [0, 2])
def test_real_learners_learn_from_counts_and_stages(kind, mechanism, stages):
    part = PART if stages else None
    multi = staged(tiny(kind), part=part, mechanism=mechanism, stages=stages, hold_out=0.1)
    predicted = multi.fit(X.astype(np.float32), open_vault(), EPSILON).predict_proba(X.astype(np.float32))
    assert predicted.shape == (N, K) and np.isfinite(predicted).all() and len(multi.models_) == max(stages, 1)


# ---------------------------------------------------------------- how much counts are worth


def histogram(totals, epsilon, seed=0):
    groups = np.repeat(np.arange(len(totals)), totals)
    labels = np.random.default_rng(seed).integers(K, size=len(groups))
    vault = ldp.LabelVault(labels, classes=K, budget="20", trust="curator", bits=ldp.InsecureBits(seed))
    return vault.histogram(groups, epsilon, n_groups=len(totals))


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any), st.integers(0, 50))
def test_labels_worth_is_the_documented_formula(totals, seed):
    counts = histogram(totals, "0.7", seed)
    weighted = 0.0
    for n, row in zip(totals, projected(counts), strict=True):
        shares = [(n * s + 1 / K) / (n + 1) for s in row]
        weighted += n * sum(s * (1 - s) for s in shares) / K
    v, t = weighted / sum(totals), noise_variance(counts)
    found = labels_worth(counts)
    assert found == pytest.approx([n * v / (n * v + t) for n in totals], rel=1e-6)
    assert ((found >= 0) & (found < 1)).all()


def test_counts_are_worth_more_the_larger_the_cluster_and_the_dearer_they_were():
    worth = [labels_worth(histogram([0, 1, 5, 50, 500], epsilon)) for epsilon in ("0.1", "1", "8")]
    for found in worth:
        assert found[0] == 0 and (np.diff(found) > 0).all()
    assert (worth[0][1:] < worth[1][1:]).all() and (worth[1][1:] < worth[2][1:]).all()
    assert worth[0][1] < 0.01 and worth[2][-1] > 0.99


def test_counts_of_pure_clusters_are_worth_something_too():
    vault = ldp.LabelVault(np.repeat([0, 1], 50), classes=2, budget="20", trust="curator")
    assert (labels_worth(vault.histogram(np.repeat([0, 1], 50), "20")) > 0.5).all()


def test_a_model_of_the_noise_agrees_with_what_counts_are_worth():
    """The error of a share: n v / (n v + t) of n labels would make the same one. Seeded; a fifth covers 2,000 draws."""
    n, epsilon, groups = 40, "1", 2000
    labels = np.random.default_rng(0).integers(2, size=n * groups)
    vault = ldp.LabelVault(labels, classes=2, budget="1", trust="curator", bits=ldp.InsecureBits(1))
    counts = vault.histogram(np.repeat(np.arange(groups), n), epsilon)
    error = np.mean((counts.counts[:, 0] / n - 0.5) ** 2)
    worth = labels_worth(counts)[0]
    assert error == pytest.approx(0.25 / (worth * n), rel=0.2)


# ---------------------------------------------------------------- again, free


def test_a_refit_asks_nothing_and_learns_the_same():
    multi, vault, journal = fitted(hold_out=0.1)
    asked = len(vault.asked)
    again = Scripted()
    other = staged(again).refit(X, multi.releases_, counts=multi.counts_, hold_out=multi.hold_out_)
    assert len(vault.asked) == asked and len(again.journal) == len(journal) == 2
    for a, b in zip(journal, again.journal, strict=True):
        assert a["releases"][:-1] == b["releases"][:-1]
        assert (a["releases"][-1].weighted == b["releases"][-1].weighted).all()
    assert other.counts_ is multi.counts_ and other.hold_out_ is multi.hold_out_
    alone, _, _ = fitted(part=None, stages=0)
    learner = Scripted()
    staged(learner, part=None, stages=0).refit(X, [], counts=alone.counts_)
    assert len(learner.journal) == 1 and learner.journal[0]["releases"][0].weights is None


def test_a_refit_takes_counts_exactly_where_there_are_clusters():
    multi, _, _ = fitted()
    with pytest.raises(ldp.InvalidArgument, match="counts must be given where there are clusters, and only there"):
        staged().refit(X, multi.releases_)
    with pytest.raises(ldp.InvalidArgument, match="counts must be given where there are clusters, and only there"):
        MultiStage(Scripted()).refit(X, multi.releases_, counts=multi.counts_)


def test_a_refit_refuses_a_hold_out_whose_rows_were_counted():
    multi, vault, _ = fitted(open_vault(budget="2"), part=None, stages=0)
    held = vault.release(ldp.RandomizedResponse("1"), np.arange(10))
    learner = Scripted()
    with pytest.raises(ldp.InvalidArgument, match="in none of the releases that are trained on"):
        staged(learner, part=None, stages=0).refit(X, [], counts=multi.counts_, hold_out=held)
    assert not learner.journal


def test_counts_are_kept_where_learning_fails_and_can_be_learned_from_again():
    class Clumsy(Scripted):
        def fit(self, X, releases, **how):
            raise RuntimeError("out of memory")

    multi, vault = staged(Clumsy(), part=None, stages=0), open_vault()
    with pytest.raises(RuntimeError):
        multi.fit(X, vault, EPSILON)
    learner = Scripted()
    staged(learner, part=None, stages=0).refit(X, [], counts=multi.counts_)
    assert len(learner.journal) == 1 and len(vault.asked) == 1


# ---------------------------------------------------------------- on disk


def test_a_finished_folder_asks_nothing_again(tmp_path):
    multi, vault, _ = fitted(open_vault(budget="5"), fit={"folder": tmp_path / "run"}, hold_out=0.1)
    asked = len(vault.asked)
    again, _, _ = fitted(vault, fit={"folder": tmp_path / "run"}, hold_out=0.1)
    assert len(vault.asked) == asked == 4 and vault.spent().epsilon == EPSILON
    assert (again.counts_.counts == multi.counts_.counts).all()
    files = {file.name for file in (tmp_path / "run").iterdir()}
    assert {f"{COUNTS}.json", f"{COUNTS}.npz"} <= files and not any("priors" in name for name in files)


def test_the_same_name_is_answered_again_for_free():
    multi, vault, _ = fitted(fit={"name": "run"})
    again, _, _ = fitted(vault, fit={"name": "run"})
    assert (again.counts_.counts == multi.counts_.counts).all() and vault.spent().epsilon == EPSILON
    assert [query["name"] for query in vault.certificate()["queries"]] == [
        f"run: {COUNTS}",
        "run: release-1",
        "run: release-2",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"part": "0.2"},
        {"clusters": clusters_of(seed=9)},
        {"clusters": clusters_of(count=COUNT + 3)},
        {"hold_out": 0.1},
    ],
)
def test_a_folder_of_other_counts_is_refused(settings, tmp_path):
    _, vault, _ = fitted(open_vault(budget="5"), fit={"folder": tmp_path / "run"})
    learner = Scripted()
    with pytest.raises(ldp.InvalidArgument, match=rf"the {COUNTS} in .* is not this vault's answer"):
        fitted(vault, learner, fit={"folder": tmp_path / "run"}, **settings)
    assert not learner.journal
    assert len([query for query in vault.certificate()["queries"] if query["query"] == "histogram"]) == 1


def test_counts_of_another_vault_are_refused(tmp_path):
    fitted(fit={"folder": tmp_path / "run"})
    stranger = open_vault()
    with pytest.raises(ldp.InvalidArgument, match="is not this vault's answer"):
        fitted(stranger, fit={"folder": tmp_path / "run"})
    assert nothing_asked(stranger)


def test_counts_of_the_same_groups_without_the_empty_last_one_are_refused(tmp_path):
    """They are this vault's, of the same rows and at the same epsilon, and do not fit the clusters' neighbours."""
    vault = open_vault(budget="5")
    (tmp_path / "run").mkdir()
    vault.histogram(CLUSTERS.numbers, PART).save(tmp_path / "run" / COUNTS)
    with pytest.raises(ldp.InvalidArgument, match="is not this vault's answer"):
        fitted(vault, fit={"folder": tmp_path / "run"})


def test_doctored_counts_are_refused(tmp_path):
    multi, vault, _ = fitted(open_vault(budget="5"), fit={"folder": tmp_path / "run"})
    counts, file = multi.counts_, tmp_path / "run" / COUNTS
    rolled, empty = np.roll(counts.groups, 1), np.zeros(COUNT, int)
    for change in ({"groups": rolled}, {"totals": empty}, {"rows": counts.rows + 1}, {"classes": ("a", "b", "c")}):
        replace(counts, **change).save(file)
        with pytest.raises(
            ldp.InvalidArgument, match=r"is not this vault's answer|do not fit its rows and their totals"
        ):
            fitted(vault, fit={"folder": tmp_path / "run"})
    counts.save(file)
    np.savez(file.with_suffix(".npz"), counts=counts.counts + 1, totals=counts.totals, groups=rolled, rows=counts.rows)
    with pytest.raises(ldp.InvalidArgument, match="is not the file"):
        fitted(vault, fit={"folder": tmp_path / "run"})
    multi.releases_[0].save(file)
    with pytest.raises(ldp.InvalidArgument, match="not a histogram"):
        fitted(vault, fit={"folder": tmp_path / "run"})
    counts.save(file)
    fitted(vault, fit={"folder": tmp_path / "run"})
    assert vault.spent().epsilon == EPSILON


def test_counts_of_seeded_noise_are_never_used_by_a_private_vault(tmp_path):
    ledger = create_ledger(tmp_path / "l.ledger", budget="20").path
    settings = {"classes": K, "ledger": ledger, "trust": "curator"}
    seeded = Watched(ldp.LabelVault(LABELS, bits=ldp.InsecureBits(0), **settings))
    multi, _, _ = fitted(seeded, fit={"folder": tmp_path / "run"})
    private = Watched(ldp.LabelVault(LABELS, **settings))
    with pytest.raises(ldp.InvalidArgument, match="is not this vault's answer"):
        fitted(private, fit={"folder": tmp_path / "run"})
    prior = smoothed(multi.counts_, CLUSTERS)[CLUSTERS.numbers]
    with pytest.raises(ldp.InvalidArgument, match="NOT PRIVATE"):
        private.release(ldp.ClusterRR(REST), priors=prior, source=[multi.counts_])
    assert private.spent().epsilon == EPSILON, "what the seeded one has spent"
    assert not seeded.certificate()["private"]


def test_a_prior_on_disk_is_not_used_with_other_counts_than_it_was_made_of(tmp_path, monkeypatch):
    """Or the certificate would name the new counts for a prior that came from the old ones."""
    vault, folder = open_vault(budget="5"), tmp_path / "run"

    class Dies(Exception):
        pass

    def die(*_, **__):
        raise Dies

    with monkeypatch.context() as patch:
        patch.setattr(WatchedVault, "release", die)
        with pytest.raises(Dies):
            fitted(vault, fit={"folder": folder})
    assert (folder / "release-1.priors.npz").exists()
    for ending in ("json", "npz"):
        (folder / f"{COUNTS}.{ending}").unlink()
    with pytest.raises(ldp.InvalidArgument, match="made in another way"):
        fitted(vault, fit={"folder": folder})


# ---------------------------------------------------------------- killed, and going on


def run_in(folder, ledger, step, name="run"):
    """Go on with a run, or begin it, in a process of its own that dies at a step."""
    if step == ("counted",):
        ldp.HistogramRelease.save = lambda *_: resumable.die()
    else:
        resumable.arm(step)
    vault = ldp.LabelVault(LABELS, classes=K, ledger=ledger, trust="curator")
    fitted(vault, fit={"folder": folder, "name": name}, hold_out=0.1)


DEATHS = [
    ("counted",),
    ("half stored", COUNTS),
    ("prior fixed", "release-1"),
    ("answered", "release-1"),
    ("half stored", "release-2"),
]


def test_a_run_that_is_killed_at_every_step_pays_once(tmp_path):
    folder, ledger = tmp_path / "run", create_ledger(tmp_path / "l.ledger", budget=EPSILON).path
    for step in DEATHS:
        assert resumable.do(run_in, folder, ledger, step) == -9, step
    assert resumable.do(run_in, folder, ledger, None) == 0
    books = Ledger(ledger)
    names = [entry.body["request"]["name"] for entry in books.entries() if entry.body["kind"] == "charge"]
    assert names == [f"run: {stage}" for stage in ("release-hold-out", COUNTS, "release-1", "release-2")]
    assert books.spent().epsilon == EPSILON and not list(folder.glob("*.priors.npz"))


def test_without_a_name_counts_that_were_lost_stay_paid_for(tmp_path):
    folder, ledger = tmp_path / "run", create_ledger(tmp_path / "l.ledger", budget=EPSILON).path
    assert resumable.do(run_in, folder, ledger, ("counted",), None) == -9
    vault = ldp.LabelVault(LABELS, classes=K, ledger=ledger, trust="curator")
    with pytest.raises(ldp.BudgetExhausted):
        fitted(vault, fit={"folder": folder}, hold_out=0.1)
    assert vault.spent().epsilon == EPSILON


# ---------------------------------------------------------------- no label is said


def test_no_error_or_record_tells_a_label():
    """Labels that would stand out: every message of a refused run is searched for them."""
    names = ["zebra-77", "walrus-88", "gnu-99"]
    records = []
    vault = ldp.LabelVault(np.array(names)[LABELS], classes=names, budget="0.5", trust="curator")
    for settings in ({}, {"part": None, "stages": 0}, {"clusters": clusters_of(N + 1)}, {"part": "2"}):
        with pytest.raises(ldp.LabelDPError) as error:
            staged(**settings).fit(X, vault, EPSILON, watch=records.append)
        assert not re.search("zebra|walrus|gnu", str(error.value))
    vault = ldp.LabelVault(np.array(names)[LABELS], classes=names, budget="1", trust="curator")
    multi = staged().fit(X, vault, EPSILON, watch=records.append)
    said = json.dumps(records) + repr(multi) + repr(multi.counts_) + repr(CLUSTERS)
    assert not re.search("zebra|walrus|gnu", said)


def test_a_learner_that_cannot_weigh_beliefs_is_refused_before_anything_is_spent():
    from sklearn.neighbors import KNeighborsClassifier

    from labeldp.sklearn import SklearnLearner

    vault = open_vault()
    with pytest.raises(ldp.InvalidArgument, match="cannot weigh"):
        staged(SklearnLearner(KNeighborsClassifier())).fit(X, vault, EPSILON)
    assert vault.spent().epsilon == "0" and not vault.asked


# ---------------------------------------------------------------- rounds on the likelihood of the counts


@pytest.mark.parametrize("stages", [0, 1])
def test_bag_rounds_train_again_on_what_the_model_and_the_counts_say_together(stages):
    learner, records = Scripted(learns_from="likelihood"), []
    multi = staged(
        learner, part=PART if stages else None, stages=stages, mechanism=ldp.GroupedResponse, bag_rounds=2, hold_out=0.1
    ).fit(X, open_vault(), EPSILON, watch=records.append)
    _, *again = learner.journal
    assert len(again) == 2 and len(multi.models_) == 1 and multi.models_[0].stage == 3
    likelihood = 1.0 if not stages else multi.releases_[0].likelihood()
    before = Scripted(stage=1)
    for entry in again:
        (beliefs,) = entry["releases"]
        expected = bag_posterior(before.predict_proba(X[multi.counts_.rows]) * likelihood, multi.counts_)
        assert beliefs.shares == pytest.approx(expected) and entry["start"] is not None
        before = Scripted(stage=before.stage + 1)
    epochs = [record for record in records if record["kind"] == "epoch"]
    assert [(record["epoch"], record["epochs"]) for record in epochs] == [(1, 3), (2, 3), (3, 3)]


def test_counts_that_are_a_prior_and_nothing_else_are_not_learned_from():
    learner, vault = Scripted(), open_vault()
    multi = staged(learner, learn_counts=False).fit(X, vault, EPSILON)
    assert [entry["releases"] for entry in learner.journal] == [multi.releases_[:1], multi.releases_]
    assert multi.releases_[0].receipt.priors is not None and multi.counts_ is not None
    assert len(vault.asked) == len(fitted()[1].asked)


def test_a_student_learns_from_counts_only_if_its_teacher_does():
    learned, alone = (fitted(learn_counts=learns)[0] for learns in (True, False))
    assert Lesson.of(learned, X).counts is learned.counts_ and Lesson.of(alone, X).counts is None


def test_a_learner_that_cannot_weigh_beliefs_may_have_counts_as_its_prior():
    class Plain(Scripted):
        takes_beliefs = False

    multi = staged(Plain(), learn_counts=False).fit(X, open_vault(), EPSILON)
    assert len(multi.models_) == 2


@pytest.mark.parametrize(("shares", "of"), [("smoothed", lambda c: smoothed(c, CLUSTERS)), ("normalised", normalised)])
def test_the_prior_is_made_of_counts_as_it_is_said(shares, of):
    counts = fitted()[0].counts_
    prior = ClusterPrior(CLUSTERS, PART, shares).prior(counts, np.arange(N))
    assert prior.tolist() == of(counts)[CLUSTERS.numbers].tolist()


def test_priors_made_otherwise_of_the_same_counts_are_not_read_back():
    multi, _, _ = fitted()
    told = multi._about_priors()
    multi.clusters = ClusterPrior(CLUSTERS, PART, "normalised")
    assert multi._about_priors() != told


def test_an_unknown_way_to_make_a_prior_is_refused():
    with pytest.raises(ldp.InvalidArgument, match="shares must be one of 'smoothed', 'normalised'"):
        ClusterPrior(CLUSTERS, PART, "raw")


@pytest.mark.parametrize("wrong", [{"clusters": None}, {"stages": 0}, {"bag_rounds": 1}])
def test_counts_that_nothing_would_learn_from_are_refused(wrong):
    with pytest.raises(ldp.InvalidArgument, match="learn_counts=False is for counts"):
        ldp.MultiStage(Scripted(), learn_counts=False, **{"clusters": ClusterPrior(CLUSTERS, PART), **wrong})


def test_bag_rounds_ask_nothing():
    asked = [len(fitted(bag_rounds=rounds)[1].asked) for rounds in (0, 3)]
    assert asked[0] == asked[1]


@pytest.mark.parametrize("wrong", [{"bag_rounds": 1, "clusters": None}, {"bag_rounds": -1}])
def test_bag_rounds_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ldp.InvalidArgument, match="bag_rounds"):
        ldp.MultiStage(Scripted(), **{"clusters": ClusterPrior(CLUSTERS, PART), **wrong})
