"""Ways to make the vault under-charge or lie that a reviewer found; each is closed."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

import labeldp as ldp
from labeldp.budget import Runs
from labeldp.mechanisms import GroupMechanism
from labeldp.mechanisms.channel import Response
from labeldp.mechanisms.dealing import Dealing
from labeldp.mechanisms.groups import OwnGroups

RR = ldp.RandomizedResponse


def vault_of(n=1_000, budget="1", **options):
    return ldp.LabelVault(np.arange(n) % 4, classes=4, budget=budget, **options)


def interrupt(vault, monkeypatch, mechanism, **options):
    """Ask a query that is charged and then fails in its draw."""
    with monkeypatch.context() as patch:
        patch.setattr(Response, "draw", lambda *_: 1 / 0)
        with pytest.raises(ldp.LabelDPError):
            vault.release(mechanism, **options)


def uniform(rows):
    return np.full((len(rows), 4), 0.25)


@pytest.mark.parametrize("rows", [None, np.arange(1_000), np.arange(500)])
def test_a_prior_function_that_writes_to_its_rows_changes_nothing(rows):
    def careless(asked):
        asked //= 100
        return uniform(asked)

    vault = vault_of()
    release = vault.release(RR("1"), rows=rows, priors=careless)
    assert release.receipt.labels_charged == len(release) == len(np.unique(release.rows))
    with pytest.raises(ldp.BudgetExhausted):
        vault.release(RR("1"), rows=rows)


def test_a_deal_that_writes_to_its_rows_or_priors_changes_nothing():
    @dataclass(frozen=True)
    class Careless(GroupMechanism):
        epsilon: str

        def deal(self, priors, dealing):
            dealing.rows[:] = dealing.rows[0]
            with pytest.raises(ValueError, match="read-only"):
                priors[:] = 0
            return OwnGroups(*priors.shape)

    table = uniform(np.arange(500))
    vault = vault_of()
    release = vault.release(Careless("1"), rows=np.arange(500), priors=table)
    assert release.receipt.labels_charged == 500 and release.rows.tolist() == list(range(500))
    assert (table == 0.25).all()


def test_rows_named_twice_can_never_be_charged_once():
    with pytest.raises(AssertionError, match="strictly increasing"):
        Runs.of_rows(np.array([5, 5, 5]))


def test_an_interrupted_query_is_not_completed_at_a_larger_epsilon(monkeypatch):
    setting = {"epsilon": "0.1"}

    class Configured(GroupMechanism):
        @property
        def epsilon(self):
            return setting["epsilon"]

        def parameters(self):
            return {}

        def deal(self, priors, dealing):
            return OwnGroups(*priors.shape)

    vault = vault_of(budget="10")
    interrupt(vault, monkeypatch, Configured())
    setting["epsilon"] = "5"
    release = vault.release(Configured())
    assert release.receipt.epsilon == "5" and vault.spent().epsilon == "5.1"


def test_a_strangers_table_is_not_drawn_from():
    class Strange(ldp.UnbiasedResponse):
        def channel(self, n_rows):
            pytest.fail("a stranger's table was asked for")

    vault = ldp.LabelVault([0, 1, 2], classes=3, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="must be UnbiasedResponse itself"):
        vault.release(Strange("1", low=0, high=2))
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize("tainted", ["unprotected", "seeded"])
def test_a_private_certificate_never_rests_on_a_release_that_is_not(tainted):
    labels = np.arange(30) % 3
    if tainted == "unprotected":
        source = ldp.LabelVault.unprotected(labels, classes=3)
    else:
        source = ldp.LabelVault(labels, classes=3, budget="1", bits=ldp.InsecureBits(seed=1)).release(RR("1"))
    vault = ldp.LabelVault(labels, classes=3, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="NOT PRIVATE"):
        vault.release(ldp.GroupedResponse("1"), source=source)
    assert vault.spent().epsilon == "0"


@pytest.mark.parametrize("durable", [False, True])
def test_a_query_within_a_query_is_refused(durable, tmp_path, monkeypatch):
    """A prior function runs inside the lock only when an interrupted query is dealt again."""
    if durable:
        ldp.create_ledger(tmp_path / "x.ledger", budget="1")
        vault = ldp.LabelVault(np.arange(40) % 4, classes=4, ledger=tmp_path / "x.ledger")
    else:
        vault = vault_of(n=40)
    interrupt(vault, monkeypatch, ldp.GroupedResponse("1"), priors=uniform)
    calls = []

    def nested(rows):
        calls.append(len(rows))
        if len(calls) == 2:
            with pytest.raises(ldp.LedgerError, match="from within another query"):
                vault.release(ldp.GroupedResponse("1"), priors=uniform)
        return uniform(rows)

    assert len(vault.release(ldp.GroupedResponse("1"), priors=nested)) == 40
    assert len(calls) == 2 and vault.spent().epsilon == "1"


def test_a_prior_function_that_changes_its_mind_is_refused(monkeypatch):
    vault = vault_of(n=40)
    interrupt(vault, monkeypatch, ldp.GroupedResponse("1"), priors=uniform)
    calls = []

    def fickle(rows):
        calls.append(1)
        return uniform(rows) if len(calls) == 1 else np.tile([0.7, 0.1, 0.1, 0.1], (len(rows), 1))

    with pytest.raises(ldp.InvalidArgument, match="the same for the same rows"):
        vault.release(ldp.GroupedResponse("1"), priors=fickle)


def test_masked_labels_are_missing_labels():
    masked = np.ma.array([0, 1, 1, 0], mask=[False, False, True, False])
    with pytest.raises(ldp.InvalidLabels, match="missing"):
        ldp.LabelVault(masked, classes=2, budget="1")
    assert ldp.LabelVault(masked, classes=2, budget="1", missing="public").labelled.tolist() == [
        True,
        True,
        False,
        True,
    ]


def test_one_persons_many_labels_add_up_without_overflow():
    vault = ldp.LabelVault(
        np.zeros(1_000_000, dtype=int), classes=2, budget="10", owners=np.zeros(1_000_000, dtype=int)
    )
    vault.release(RR("10"))
    assert vault.certificate()["people"]["largest epsilon of one person"] == "10000000"


def test_a_certificate_that_is_not_private_promises_nothing():
    vault = vault_of(n=10, bits=ldp.InsecureBits(seed=1))
    vault.release(RR("1"))
    assert vault.certificate()["guarantee"].startswith("NOT PRIVATE")


def test_a_named_release_comes_with_the_row_numbers_of_the_vault_that_asks(tmp_path):
    ldp.create_ledger(tmp_path / "x.ledger", budget="1")
    a = ldp.LabelVault([0, 1, 0], classes=2, ledger=tmp_path / "x.ledger", ids=["a", "b", "c"])
    b = ldp.LabelVault([1, 0, 1], classes=2, ledger=tmp_path / "x.ledger", ids=["b", "c", "d"])
    first, again = a.release(RR("1"), rows=[1, 2], name="n"), b.release(RR("1"), rows=[0, 1], name="n")
    assert (first.reports == again.reports).all()
    assert first.rows.tolist() == [1, 2] and again.rows.tolist() == [0, 1]


def test_what_was_released_cannot_be_written_over():
    vault = vault_of(n=10, trust="curator")
    release = vault.release(RR("0.5"), name="n")
    with pytest.raises(ValueError, match="read-only"):
        release.reports[:] = 1
    counts = vault.histogram(np.zeros(10, dtype=int), epsilon="0.5").counts
    with pytest.raises(ValueError, match="read-only"):
        counts[:] = 0


def test_delta_goes_with_a_budget_not_with_a_ledger(tmp_path):
    ldp.create_ledger(tmp_path / "x.ledger", budget="1")
    with pytest.raises(ldp.InvalidArgument, match="delta"):
        ldp.LabelVault([0, 1], classes=2, ledger=tmp_path / "x.ledger", delta="1e-6")


def test_events_of_any_label_can_be_exported():
    vault = vault_of(n=3, budget="10")
    for _ in range(4):
        vault.release(RR("0.5"), rows=[0])
    vault.release(RR("1.5"), rows=[1])
    assert [len(vault.dp_event(row).events) for row in (None, 0, 1, 2)] == [4, 4, 1, 0]


def test_more_than_256_groups_keep_their_numbers():
    table = np.vstack([np.full((1, 514), 1 / 514), np.append(0.9, np.full(513, 0.1 / 513))[None]])
    groups = ldp.GroupedResponse("7.3").deal(table, Dealing(1, np.arange(2)))
    for row in range(2):
        assert len(np.unique(groups.groups[row])) == groups.counts[row]


def test_very_many_classes_at_a_large_epsilon_end_soon():
    vault = ldp.LabelVault([0, 1], classes=20_000, budget="20")
    release = vault.release(ldp.GroupedResponse("20"))
    assert (release.groups.sizes == 20_000).all()


def test_the_rows_of_a_release_are_the_callers_own():
    masked = np.ma.array(np.arange(20) % 2, mask=[False] * 19 + [True])
    vault = ldp.LabelVault(masked, classes=2, budget="2", missing="public")
    release = vault.release(RR("1"))
    release.rows.flags.writeable = True
    release.rows[:] = 1
    assert vault.release(RR("1")).rows.tolist() == list(range(19))


def test_a_ledger_of_two_names_is_refused(tmp_path):
    import os

    ldp.create_ledger(tmp_path / "x.ledger", budget="1")
    os.link(tmp_path / "x.ledger", tmp_path / "y.ledger")
    with pytest.raises(ldp.LedgerError, match="hard links"):
        ldp.LabelVault([0, 1], classes=2, ledger=tmp_path / "x.ledger")


def test_the_map_of_a_release_cannot_be_written_over():
    vault = ldp.LabelVault(np.zeros(100_000, dtype=int), classes=40, budget="1")
    assert not vault.release(ldp.GroupedResponse("1")).groups.groups.flags.writeable


def test_a_doctored_receipt_is_not_recognised():
    """Its ledger entry and hash are right, and what it says of the query is not."""
    vault = ldp.LabelVault(np.arange(60) % 3, classes=3, budget="5", trust="curator")
    counts = vault.histogram(np.arange(60) % 4, "5")
    assert vault.recognises(counts)
    for lie in ({"epsilon": "0.1"}, {"source": "public knowledge"}, {"trust": "local"}):
        assert not vault.recognises(dataclasses.replace(counts, receipt=dataclasses.replace(counts.receipt, **lie)))


def test_seeded_counts_that_say_they_are_private_are_not_recognised():
    vault = ldp.LabelVault(np.arange(60) % 3, classes=3, budget="5", trust="curator", bits=ldp.InsecureBits(1))
    counts = vault.histogram(np.arange(60) % 4, "5")
    claimed = dataclasses.replace(counts, receipt=dataclasses.replace(counts.receipt, private=True))
    assert vault.recognises(counts) and not vault.recognises(claimed)


def test_a_source_of_another_ledger_is_said_not_to_be_covered():
    other = ldp.LabelVault(np.arange(60) % 3, classes=3, budget="5", trust="curator")
    vault = ldp.LabelVault(np.arange(60) % 3, classes=3, budget="5")
    release = vault.release(ldp.RandomizedResponse("1"), source=other.histogram(np.arange(60) % 4, "1"))
    assert "is not covered here" in release.receipt.source
    again = vault.release(ldp.RandomizedResponse("1"), source=release)
    assert "not covered" not in again.receipt.source
