import copy
import json
import pickle

import numpy as np
import pytest

import labeldp as ldp

RR = ldp.RandomizedResponse


def vault_of(n=100, budget="1", **options):
    return ldp.LabelVault(np.arange(n) % 4, classes=4, budget=budget, **options)


def test_disjoint_rows_compose_in_parallel_and_the_same_row_adds_up():
    vault = vault_of()
    vault.release(RR("1"), rows=np.arange(50))
    vault.release(RR("1"), rows=np.arange(50, 100))
    assert vault.spent().epsilon == "1"
    with pytest.raises(ldp.BudgetExhausted, match="epsilon 0 of epsilon 1 is left"):
        vault.release(RR("0.5"), rows=[3])


def test_a_budget_is_exact_to_the_last_unit():
    vault = vault_of(budget="0.3")
    for _ in range(3):
        vault.release(RR("0.1"))
    assert vault.spent().epsilon == "0.3" and vault.remaining().epsilon == "0"
    with pytest.raises(ldp.BudgetExhausted):
        vault.release(RR("1e-12"))


def test_asking_the_same_again_is_a_new_query_with_new_noise():
    vault = vault_of(n=1_000, budget="2")
    first, second = (vault.release(RR("1")) for _ in range(2))
    assert vault.spent().epsilon == "2"
    assert (first.reports != second.reports).any()


def test_asking_again_by_name_repeats_the_answer_for_free():
    vault = vault_of(n=1_000, budget="1")
    first, second = (vault.release(RR("1"), name="stage 1") for _ in range(2))
    assert (first.reports == second.reports).all() and vault.spent().epsilon == "1"
    with pytest.raises(ldp.InvalidArgument, match="belongs to another request"):
        vault.release(RR("0.5"), name="stage 1")


def test_nothing_is_drawn_when_the_budget_refuses(monkeypatch):
    from labeldp.mechanisms.channel import Response

    vault = vault_of()
    monkeypatch.setattr(Response, "draw", lambda *_: pytest.fail("drawn before it was charged"))
    with pytest.raises(ldp.BudgetExhausted):
        vault.release(RR("2"))


def test_a_draw_that_fails_is_completed_under_the_same_charge(monkeypatch):
    from labeldp.mechanisms.channel import Response

    vault = vault_of()
    with monkeypatch.context() as patch:
        patch.setattr(Response, "draw", lambda *_: 1 / 0)
        with pytest.raises(ldp.LabelDPError, match="ZeroDivisionError") as caught:
            vault.release(RR("1"))
    assert caught.value.__context__ is None
    assert vault.spent().epsilon == "1"
    assert len(vault.release(RR("1"))) == 100
    assert vault.spent().epsilon == "1"


def test_a_vault_needs_a_budget_or_a_ledger_and_never_both(tmp_path):
    for options in ({}, {"budget": "1", "ledger": tmp_path / "x"}):
        with pytest.raises(ldp.InvalidArgument, match="either a budget"):
            ldp.LabelVault([0, 1], classes=2, **options)


def test_a_vault_without_a_delta_budget_has_none():
    assert vault_of().remaining().delta == "0"
    assert vault_of(delta="1e-6").remaining().delta == "0.000001"


def test_copies_are_the_vault_itself_and_pickles_are_refused():
    vault = vault_of()
    assert copy.copy(vault) is vault and copy.deepcopy({"v": vault})["v"] is vault
    with pytest.raises(ldp.LabelDPError, match="never pickled"):
        pickle.dumps(vault)


def test_a_closed_vault_answers_nothing():
    with vault_of() as vault:
        pass
    with pytest.raises(ldp.VaultClosed):
        vault.release(RR("1"))


def test_a_vault_is_a_label_holder():
    assert isinstance(vault_of(), ldp.LabelHolder)


def test_the_certificate_says_what_was_asked_and_what_it_cost():
    vault = vault_of(trust="curator", owners=np.arange(100) // 3)
    first = vault.release(RR("0.25"), rows=np.arange(60))
    vault.release(ldp.RRWithPrior("0.25"), rows=np.arange(60, 100), priors=np.full((40, 4), 0.25), source=first)
    certificate = json.loads(json.dumps(vault.certificate()))
    assert certificate["trust"] == "local" and certificate["interaction"] == "sequentially interactive local"
    assert certificate["spent"] == {"epsilon": "0.25", "delta": "0"}
    assert "releases 3 of ledger" in certificate["queries"][1]["source"]
    assert certificate["people"]["largest number of labels of one person"] == 3
    assert certificate["people"]["largest epsilon of one person"] == "0.75"
    vault.histogram(np.zeros(100, dtype=int), epsilon="0.25", source="one group")
    certificate = vault.certificate()
    assert certificate["trust"] == "curator" and certificate["queries"][2]["source"] == "one group"


def test_without_owners_the_certificate_says_per_label():
    assert vault_of().certificate()["unit"] == "per label, not per person"


def test_seeded_noise_is_stamped_everywhere():
    vault = vault_of(bits=ldp.InsecureBits(seed=7))
    release = vault.release(RR("1"))
    assert release.private is False and "NOT PRIVATE" in repr(release) and "NOT PRIVATE" in str(release.receipt)
    assert vault.certificate()["private"] is False and "NOT PRIVATE" in vault.certificate()["stamp"]
    assert "NOT PRIVATE" in repr(vault)
    again = vault_of(bits=ldp.InsecureBits(seed=7)).release(RR("1"))
    assert (again.reports == release.reports).all()


def test_no_argument_seeds_private_noise():
    with pytest.raises(TypeError):
        vault_of(seed=1)
    with pytest.raises(TypeError):
        vault_of().release(RR("1"), seed=1)
    with pytest.raises(ldp.InvalidArgument, match="bits must be"):
        vault_of(bits=np.random.default_rng(0))


def test_the_unprotected_baseline_says_so():
    release = ldp.LabelVault.unprotected([2, 0, 1], classes=3)
    assert release.labels.tolist() == [2, 0, 1] and (release.likelihood() == np.eye(3)[[2, 0, 1]]).all()
    assert not release.private and "NOT PRIVATE" in repr(release)


def test_rows_that_reveal_nothing_cost_nothing():
    vault = vault_of(n=3, budget="1")
    priors = [[1, 0, 0, 0], [0.25] * 4, [0.97, 0.01, 0.01, 0.01]]
    release = vault.release(ldp.RRWithPrior("1"), priors=priors)
    assert release.receipt.labels_charged == 1
    assert [vault.spent([row]).epsilon for row in range(3)] == ["0", "1", "0"]


def test_a_new_mechanism_is_one_small_class():
    from dataclasses import dataclass

    from labeldp.mechanisms import GroupMechanism
    from labeldp.mechanisms.groups import DealtGroups

    @dataclass(frozen=True)
    class Parity(GroupMechanism):
        epsilon: str

        def deal(self, priors, dealing):
            n, K = priors.shape
            return DealtGroups(np.tile(np.arange(K, dtype=np.uint8) % 2, (n, 1)), np.full(n, 2))

    release = vault_of().release(Parity("1"))
    assert set(release.reports) <= {0, 1} and release.receipt.mechanism["name"] == "Parity"
    assert Parity("1").law(0, [0.5, 0.25, 0.25]).keys() == {frozenset({0, 2}), frozenset({1})}


def mechanism_dealing(make):
    """A stranger's mechanism, whose `deal` returns whatever `make` does."""
    from dataclasses import dataclass

    from labeldp.mechanisms import GroupMechanism

    @dataclass(frozen=True)
    class Strange(GroupMechanism):
        epsilon: str

        def deal(self, priors, dealing):
            return make(*priors.shape)

    return Strange("1")


def subclassed_groups(n, K):
    from labeldp.mechanisms.groups import OwnGroups

    class Listening(OwnGroups):
        def own(self, index, labels):
            pytest.fail("a stranger's map was handed true labels")

    return Listening(n, K)


LIES = {
    "too many rows": lambda g, n, K: g.OwnGroups(n + 1, K),
    "too many classes": lambda g, n, K: g.OwnGroups(n, K + 1),
    "groups that do not exist": lambda g, n, K: g.DealtGroups(np.tile(np.arange(K), (n, 1)), np.ones(n, dtype=int)),
    "groups from 1": lambda g, n, K: g.DealtGroups(np.tile(np.arange(1, K + 1), (n, 1)), np.full(n, K)),
    "negative groups": lambda g, n, K: g.DealtGroups(np.full((n, K), -1), np.full(n, 2)),
    "no group": lambda g, n, K: g.DealtGroups(np.zeros((n, K), dtype=int), np.zeros(n, dtype=int)),
    "floats": lambda g, n, K: g.DealtGroups(np.zeros((n, K)), np.ones(n)),
    "strange labels": lambda g, n, K: g.Candidates(np.tile([0, K], n), np.full(n, 2), K),
    "doubled labels": lambda g, n, K: g.Candidates(np.tile([0, 0], n), np.full(n, 2), K),
    "unsorted labels": lambda g, n, K: g.Candidates(np.tile([1, 0], n), np.full(n, 2), K),
    "missing members": lambda g, n, K: g.Candidates(np.zeros(n, dtype=int), np.full(n, 2), K),
    "no candidate": lambda g, n, K: g.Candidates(np.zeros(0, dtype=int), np.zeros(n, dtype=int), K),
    "a subclass": lambda _, n, K: subclassed_groups(n, K),
    "nothing": lambda *_: None,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_strangers_map_is_checked_before_anything_is_charged_or_drawn(lie):
    from labeldp.mechanisms import groups

    vault = vault_of()
    with pytest.raises(ldp.InvalidArgument, match="a map from labels to groups must"):
        vault.release(mechanism_dealing(lambda n, K: LIES[lie](groups, n, K)))
    assert vault.spent().epsilon == "0"


def test_epsilon_is_read_once_so_that_none_is_drawn_with_that_was_not_charged():
    from labeldp.mechanisms import GroupMechanism
    from labeldp.mechanisms.groups import OwnGroups

    class Fickle(GroupMechanism):
        asked = 0

        @property
        def epsilon(self):
            self.asked += 1
            return "0.1" if self.asked == 1 else "1"

        def parameters(self):
            return {}

        def deal(self, priors, dealing):
            return OwnGroups(*priors.shape)

    vault = vault_of()
    release = vault.release(Fickle())
    assert vault.spent().epsilon == "0.1"
    assert release.likelihood().max() / release.likelihood().min() < np.exp(0.1)


def test_ctrl_c_in_a_draw_shows_no_label(monkeypatch):
    import traceback

    from labeldp.mechanisms.channel import Response

    def interrupted(self, true_labels, bits):
        raise KeyboardInterrupt

    vault = ldp.LabelVault([7] * 50, classes=10, budget="1")
    monkeypatch.setattr(Response, "draw", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        vault.release(RR("1"))
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert caught.value.__context__ is None
    assert not any(
        "7 7" in str(frame.locals) or "7, 7" in str(frame.locals)
        for frame in shown.stack
        if "labeldp" in frame.filename
    )


def test_a_draw_that_could_not_be_spooled_is_not_left_in_the_traceback(tmp_path, monkeypatch):
    import traceback

    from labeldp.vault.spool import Spool

    def full_disk(self, entry, release):
        raise OSError("No space left on device")

    ldp.create_ledger(tmp_path / "x.ledger", budget="1")
    vault = ldp.LabelVault([0, 1] * 20, classes=2, ledger=tmp_path / "x.ledger")
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "write", full_disk)
        with pytest.raises(ldp.LabelDPError, match="OSError") as caught:
            vault.release(RR("1"))
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert not any("<Release" in str(frame.locals) for frame in shown.stack)
    assert len(vault.release(RR("1"))) == 40 and vault.spent().epsilon == "1"


def test_the_same_name_with_other_classes_is_another_request(tmp_path):
    ldp.create_ledger(tmp_path / "x.ledger", budget="1")
    ldp.LabelVault([0, 1], classes=2, ledger=tmp_path / "x.ledger").release(RR("1"), name="a")
    with pytest.raises(ldp.InvalidArgument, match="belongs to another request"):
        ldp.LabelVault([0, 1], classes=3, ledger=tmp_path / "x.ledger").release(RR("1"), name="a")


def test_an_interrupted_query_dealt_otherwise_is_charged_for_what_it_then_reveals(monkeypatch):
    """A mechanism whose key decides which rows reveal anything: every row that is drawn must be charged by its own entry."""
    from dataclasses import dataclass

    from labeldp.mechanisms import GroupMechanism
    from labeldp.mechanisms.channel import Response
    from labeldp.mechanisms.groups import DealtGroups

    calls = []

    @dataclass(frozen=True)
    class Moody(GroupMechanism):
        epsilon: str
        deals_at_random = True

        def deal(self, priors, dealing):
            calls.append(dealing.key)
            n, K = priors.shape
            counts = 1 + (np.arange(n) + len(calls)) % 2  # another half of the rows at every call
            return DealtGroups(np.tile(np.arange(K), (n, 1)) % counts[:, None], counts)

    vault = vault_of(budget="2")
    with monkeypatch.context() as patch:
        patch.setattr(Response, "draw", lambda *_: 1 / 0)
        with pytest.raises(ldp.LabelDPError):
            vault.release(Moody("1"))
    release = vault.release(Moody("1"))
    revealing = release.rows[release.groups.sizes > 1]
    entry = next(e for e in vault._ledger.entries() if e.number == release.receipt.ledger["entry"])
    assert set(revealing.tolist()) <= set(entry.runs.rows().tolist())


def test_a_vault_recognises_what_its_ledger_handed_over_and_nothing_else(tmp_path):
    vault = ldp.LabelVault([0, 1, 1, 0], classes=2, budget="2")
    release = vault.release(ldp.RandomizedResponse("1"))
    release.save(tmp_path / "release")
    assert vault.recognises(release) and vault.recognises(ldp.Release.load(tmp_path / "release"))
    other = ldp.LabelVault([0, 1, 1, 0], classes=2, budget="2")
    twin = other.release(ldp.RandomizedResponse("1"))
    assert not other.recognises(release) and not vault.recognises(twin)
    assert not vault.recognises(ldp.LabelVault.unprotected([0, 1, 1, 0], classes=2))


@pytest.mark.parametrize("owners", [[1.0, float("nan")], ["a", None], [1, True], [["a"], ["b"]]])
def test_a_person_must_have_a_name(owners):
    with pytest.raises(ldp.InvalidArgument, match="owners must be"):
        ldp.LabelVault([0, 1], classes=2, budget="1", owners=owners)


def test_a_number_and_its_text_are_one_person():
    vault = ldp.LabelVault([0, 1, 1], classes=2, budget="1", owners=[np.int64(7), "7", np.str_("8")])
    assert vault.certificate()["people"]["largest number of labels of one person"] == 2


def test_figures_of_people_say_which_rows_they_leave_out(tmp_path):
    ldp.create_ledger(tmp_path / "ledger", budget="1")
    how = {"classes": 2, "ledger": tmp_path / "ledger"}
    first = ldp.LabelVault([0, 1, 1], ids=["a", "b", "c"], owners=["bob"] * 3, **how)
    second = ldp.LabelVault([0, 1], ids=["d", "e"], owners=["bob", "eve"], **how)
    for vault, others in ((first, 2), (second, 3)):
        assert vault.certificate()["people"]["rows of this ledger that are not counted here"] == others
    alone = ldp.LabelVault([0, 1], classes=2, budget="1", owners=["bob", "eve"]).certificate()["people"]
    assert "rows of this ledger that are not counted here" not in alone


def test_counts_and_sums_from_the_spool_are_of_the_asking_vaults_rows(tmp_path):
    ldp.create_ledger(tmp_path / "ledger", budget="2")
    how = {"classes": 2, "ledger": tmp_path / "ledger", "trust": "curator"}
    ids = [f"p{number}" for number in range(6)]
    whole = ldp.LabelVault([0, 1, 1, 0, 1, 0], ids=ids, **how)
    half = ldp.LabelVault([0, 1, 0], ids=ids[3:], **how)
    groups = [0, 1, 1]

    def asked(vault, rows):
        counts = vault.histogram(groups, "1", rows=rows, name="counts")
        return [counts, vault.sums(groups, low=0, high=1, epsilon="1", rows=rows, name="sums")]

    for drawn, again in zip(asked(whole, [3, 4, 5]), asked(half, None), strict=True):
        assert drawn.receipt == again.receipt
        assert (drawn.rows.tolist(), again.rows.tolist()) == ([3, 4, 5], [0, 1, 2])
        assert whole.recognises(drawn) and half.recognises(again)


@pytest.mark.parametrize("mechanism", [RR("1"), ldp.GroupedResponse("1"), ldp.UnbiasedResponse("1", 0, 3)])
def test_a_file_whose_noise_is_not_that_of_its_receipt_is_refused(tmp_path, mechanism):
    vault_of().release(mechanism).save(tmp_path / "release")
    assert len(ldp.Release.load(tmp_path / "release")) == 100
    facts = json.loads((tmp_path / "release.json").read_text())
    facts["channel"]["keep"] += 1
    (tmp_path / "release.json").write_text(json.dumps(facts))
    with pytest.raises(ldp.InvalidArgument, match="noise is not that of its receipt's epsilon"):
        ldp.Release.load(tmp_path / "release")


@pytest.mark.parametrize("kind", [set, frozenset])
def test_classes_must_have_an_order(kind):
    with pytest.raises(ldp.InvalidArgument, match="classes must be a count or a list"):
        ldp.LabelVault(["a", "b"], classes=kind(["a", "b"]), budget="1")
