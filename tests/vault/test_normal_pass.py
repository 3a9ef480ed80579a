"""A pass is charged once, before its first draw; each of its rows is answered at most once, whatever happens."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import threading
import time
import traceback

import numpy as np
import pytest
from scipy.stats import chisquare

import labeldp as ldp
from labeldp.budget import Guarantee, Ledger, create_ledger
from labeldp.errors import LabelDPError, VaultClosed
from labeldp.mechanisms import NormalResponse
from labeldp.vault import NormalPass, Pass, passes

LABELS = np.arange(60) % 3
COST = Guarantee.of("1", delta="1e-6")
RESPONSE = NormalResponse(epsilon="1", delta="1e-6", dimension=2, squared_sensitivity=200**2)
VECTORS = np.array([[0, 0], [200, 0], [100, 160]])  # the first two as far apart as declared


def vault_of(labels=LABELS, budget="1", delta="1e-6", **options):
    return ldp.LabelVault(labels, classes=3, budget=budget, delta=delta, **options)


def durable(path, **budget):
    if not path.exists():
        create_ledger(path, **({"budget": "1", "delta": "1e-6"} | budget))
    return ldp.LabelVault(LABELS, classes=3, ledger=path)


def table(n_rows, vectors=VECTORS):
    return np.tile(vectors, (n_rows, 1, 1))


def everything_said(error):
    """What any handler, logger or debugger could show of an error, locals of our own frames included."""
    shown = "".join(traceback.format_exception(error))
    for frame in traceback.TracebackException.from_exception(error, capture_locals=True).stack:
        if "labeldp" in frame.filename and "tests" not in frame.filename:
            shown += str(frame.locals)
    return shown + repr(error) + repr([error.__cause__, error.__context__, *error.args])


# ---------------------------------------------------------------- what it answers


def test_answers_are_the_labels_vectors_plus_noise_of_the_declared_variance():
    """The mean of 30,000 answers strays by more than 7 deviations with probability below 1e-11."""
    labels = np.arange(30_000) % 3
    with vault_of(labels).normal_pass(RESPONSE) as steps:
        answers = np.concatenate([steps.answer(rows, table(len(rows))) for rows in np.split(np.arange(30_000), 30)])
    assert answers.dtype == np.int64 and answers.shape == (30_000, 2)
    for label in range(3):
        noise = answers[labels == label] - VECTORS[label]
        assert np.abs(noise.mean(axis=0)).max() < 7 * RESPONSE.sigma / 100
        assert np.abs(noise.var(axis=0) / RESPONSE.variance - 1).max() < 0.1
    noise = (answers - VECTORS[labels]) / RESPONSE.sigma
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.04 and abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 0.04


def test_the_noise_of_a_pass_has_its_law():
    """Every integer of probability above 1e-3 is a cell; false alarm 1e-9."""
    small = NormalResponse(epsilon="8", delta="1e-3", dimension=1, squared_sensitivity=16)
    labels = np.zeros(100_000, dtype=int)
    steps = ldp.LabelVault(labels, classes=2, budget="8", delta="1e-3").normal_pass(small)
    seen = steps.answer(None, np.zeros((100_000, 2, 1), dtype=int)).ravel()
    reach = 6 * int(small.sigma)
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * small.variance))
    likely = weights / weights.sum() > 1e-3
    cells = np.append(weights[likely] / weights.sum(), weights[~likely].sum() / weights.sum())
    counts = np.append((seen[:, None] == x[likely]).sum(axis=0), (~np.isin(seen, x[likely])).sum())
    assert chisquare(counts, cells / cells.sum() * len(seen)).pvalue > 1e-9


def test_a_batch_larger_than_the_noise_drawn_ahead_is_answered_too(monkeypatch):
    monkeypatch.setattr(passes, "BLOCK", 7)
    steps = vault_of().normal_pass(RESPONSE)
    shapes = [steps.answer(rows, table(len(rows))).shape for rows in ([0], [1, 2, 3], list(range(4, 60)))]
    assert shapes == [(1, 2), (3, 2), (56, 2)] and steps.unanswered == 0


def test_no_noise_is_used_twice_nor_kept_once_it_is_used(monkeypatch):
    drawn = []
    original = NormalResponse.noise

    def noted(self, count, bits):
        noise = original(self, count, bits)
        drawn.append((noise, noise.copy()))
        return noise

    monkeypatch.setattr(NormalResponse, "noise", noted)
    monkeypatch.setattr(passes, "BLOCK", 30)
    steps = vault_of().normal_pass(RESPONSE)
    seen = [steps.answer([row], np.zeros((1, 3, 2), dtype=int)).ravel() for row in range(50)]
    assert np.concatenate(seen).tolist() == np.concatenate([copied for _, copied in drawn])[:100].tolist()
    used = np.concatenate([noise for noise, _ in drawn])[:100]
    assert not used.any()
    steps.close()
    assert not any(noise.any() for noise, _ in drawn)


def test_the_noise_of_an_answer_is_wiped_once_it_is_added(monkeypatch):
    taken = []
    answer = NormalResponse.answer

    def noted(true_labels, vectors, noise):
        taken.append(noise)
        return answer(true_labels, vectors, noise)

    monkeypatch.setattr(NormalResponse, "answer", staticmethod(noted))
    assert vault_of().normal_pass(RESPONSE).answer(None, np.zeros((60, 3, 2), dtype=int)).any()
    assert not taken[0].any()


def test_an_interrupt_while_noise_is_taken_never_leaves_wiped_noise_to_be_used(monkeypatch):
    steps = vault_of().normal_pass(RESPONSE)
    steps.answer([0], table(1))

    class Interrupting(np.ndarray):
        armed = True

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            if Interrupting.armed:
                Interrupting.armed = False
                raise KeyboardInterrupt

    steps._ahead = steps._ahead.view(Interrupting)
    with pytest.raises(KeyboardInterrupt):
        steps.answer([1], table(1))
    zero = np.zeros((1, 3, 2), dtype=int)
    assert all(steps.answer([row], zero).any() for row in range(2, 40))  # 76 numbers, all 0 with chance below 1e-100
    assert steps.unanswered == 21, "the interrupted row was not answered, and may be asked again"


def test_a_row_with_a_label_may_be_asked_where_others_are_missing():
    masked = np.ma.array(LABELS, mask=np.arange(60) == 7)
    vault = vault_of(masked, missing="public")
    with pytest.raises(ldp.InvalidArgument, match="must all have a label"):
        vault.normal_pass(RESPONSE, rows=[6, 7])
    steps = vault.normal_pass(RESPONSE)
    assert steps.unanswered == 59
    with pytest.raises(ldp.InvalidArgument, match="rows of this pass"):
        steps.answer([7], table(1))


# ---------------------------------------------------------------- the charge


def test_all_rows_are_charged_once_before_the_first_answer_and_no_answer_adds_to_it(tmp_path):
    vault = durable(tmp_path / "x.ledger")
    steps = vault.normal_pass(RESPONSE, rows=np.arange(40))
    head = Ledger(tmp_path / "x.ledger").head()
    assert vault.spent() == COST and vault.spent(rows=[40]) == Guarantee(0)
    for rows in np.split(np.arange(40), 4):
        steps.answer(rows, table(10))
    steps.close()
    assert vault.spent() == COST and Ledger(tmp_path / "x.ledger").head() == head
    Ledger(tmp_path / "x.ledger").verify(steps.receipt.to_json())


def test_two_passes_past_the_budget_are_refused_and_disjoint_ones_are_not():
    vault = vault_of()
    vault.normal_pass(RESPONSE, rows=np.arange(30))
    vault.normal_pass(RESPONSE, rows=np.arange(30, 60))
    assert vault.spent() == COST
    for rows in (None, [29], [30]):
        with pytest.raises(ldp.BudgetExhausted):
            vault.normal_pass(RESPONSE, rows=rows)
    assert vault.spent() == COST


@pytest.mark.parametrize(
    ("budget", "delta"), [("1", 0), ("1", "9e-7"), ("0.9", "1e-6")], ids=["no delta", "too small", "epsilon"]
)
def test_a_budget_without_enough_delta_or_epsilon_refuses_a_pass(budget, delta):
    vault = vault_of(budget=budget, delta=delta)
    with pytest.raises(ldp.BudgetExhausted):
        vault.normal_pass(RESPONSE)
    assert vault.spent() == Guarantee(0)


def test_a_pass_adds_up_with_other_queries_about_the_same_labels():
    vault = vault_of(budget="3", delta="1e-5")
    vault.release(ldp.RandomizedResponse("1.5"))
    vault.normal_pass(RESPONSE)
    assert vault.spent() == Guarantee.of("2.5", delta="1e-6")
    assert vault.remaining() == Guarantee.of("0.5", delta="9e-6")


@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse("1"), NormalResponse, None, "normal"])
def test_only_a_normal_response_makes_a_pass(mechanism):
    vault = vault_of()
    with pytest.raises(ldp.InvalidArgument, match="must be a NormalResponse"):
        vault.normal_pass(mechanism)
    assert vault.spent() == Guarantee(0)


def test_a_stranger_that_claims_less_noise_is_refused():
    class Quiet(NormalResponse):
        variance = 1

    vault = vault_of()
    quiet = Quiet("1", "1e-6", dimension=2, squared_sensitivity=4)
    with pytest.raises(ldp.InvalidArgument, match="must be a NormalResponse"):
        vault.normal_pass(quiet)
    assert vault.spent() == Guarantee(0)


def test_a_response_that_is_changed_after_the_charge_changes_nothing():
    mechanism = NormalResponse("1", "1e-6", dimension=2, squared_sensitivity=200**2)
    steps = vault_of().normal_pass(mechanism)
    object.__setattr__(mechanism, "squared_sensitivity", 10**9)
    with pytest.raises(ldp.InvalidArgument, match="apart"):
        steps.answer([0], table(1) * 2)
    with pytest.raises(AttributeError):
        object.__setattr__(mechanism, "noise", lambda count, _: np.zeros(count, dtype=int))
    vault = vault_of()
    object.__setattr__(mechanism, "squared_sensitivity", -1)
    with pytest.raises(ldp.InvalidArgument, match="squared_sensitivity"):
        vault.normal_pass(mechanism)
    assert vault.spent() == Guarantee(0)


def test_a_normal_response_is_not_released_row_by_row():
    vault = vault_of()
    with pytest.raises(ldp.InvalidArgument, match="local mechanisms"):
        vault.release(RESPONSE)
    assert vault.spent() == Guarantee(0)


@pytest.mark.parametrize("rows", [[], [2, 1], [1, 1], [-1], [60], [0.0], [[0]], [True]])
def test_wrong_rows_are_refused_and_spend_nothing(rows):
    vault = vault_of()
    with pytest.raises(ldp.InvalidArgument, match="rows"):
        vault.normal_pass(RESPONSE, rows=rows)
    assert vault.spent() == Guarantee(0)


def test_a_local_vault_answers_and_the_certificate_says_interactive_local():
    vault = vault_of(owners=np.arange(60) // 2)
    steps = vault.normal_pass(RESPONSE, rows=np.arange(59), source="weights set by hand")
    certificate = vault.certificate()
    assert certificate["trust"] == "local" and certificate["interaction"] == "sequentially interactive local"
    assert certificate["guarantee"].startswith(
        "Label differential privacy with epsilon 1, delta 0.000001 for every label"
    )
    assert certificate["dearest label"] == "epsilon 1 (entry 3, NormalResponse) = 1; delta 0.000001 = 0.000001"
    assert certificate["people"]["largest epsilon of one person"] == "2"
    assert certificate["people"]["largest delta of one person"] == "0.000002"
    (query,) = certificate["queries"]
    assert (query["query"], query["epsilon"], query["delta"]) == ("normal pass", "1", "0.000001")
    assert (query["labels asked"], query["labels charged"], query["realised_epsilon"]) == (
        59,
        59,
        RESPONSE.realised_epsilon,
    )
    assert query["source"] == "public inputs and this pass's own earlier answers; weights set by hand"
    assert query["mechanism"] == RESPONSE.parameters() | {"name": "NormalResponse", "answers": "each row at most once"}
    assert query["mechanism"]["variance"] == RESPONSE.variance and query["mechanism"]["grid"] == "1"
    receipt = steps.receipt
    assert (receipt.query, receipt.delta, receipt.labels_charged, receipt.trust) == (
        "normal pass",
        "0.000001",
        59,
        "local",
    )
    assert str(receipt).startswith(
        "NormalResponse, epsilon 1, delta 0.000001 (local, per label), 59 of 59 labels charged"
    )


def test_seeded_noise_stamps_the_pass():
    vault = vault_of(bits=ldp.InsecureBits(seed=3))
    steps = vault.normal_pass(RESPONSE)
    assert not steps.receipt.private and "NOT PRIVATE" in repr(steps) and not vault.certificate()["private"]
    again = vault_of(bits=ldp.InsecureBits(seed=3)).normal_pass(RESPONSE)
    assert (steps.answer(None, table(60)) == again.answer(None, table(60))).all()


def test_a_source_that_is_not_private_is_refused_before_the_charge():
    vault = vault_of()
    tainted = ldp.LabelVault.unprotected(LABELS, classes=3)
    with pytest.raises(ldp.InvalidArgument, match="NOT PRIVATE"):
        vault.normal_pass(RESPONSE, source=tainted)
    assert vault.spent() == Guarantee(0)


def test_a_pass_has_no_pure_event_to_export():
    pytest.importorskip("dp_accounting")
    vault = vault_of()
    vault.normal_pass(RESPONSE)
    with pytest.raises(LabelDPError, match="delta > 0"):
        vault.dp_event()


# ---------------------------------------------------------------- each row at most once


def test_a_row_is_answered_at_most_once_even_with_another_table():
    steps = vault_of().normal_pass(RESPONSE, rows=np.arange(10))
    steps.answer([0, 1], table(2))
    for rows in ([0], [1, 2], None):
        with pytest.raises(ldp.InvalidArgument, match="at most once"):
            steps.answer(rows, table(10 if rows is None else len(rows), VECTORS // 2))
    assert steps.unanswered == 8, "what was refused used up no row"
    assert steps.answer(np.arange(2, 10), table(8)).shape == (8, 2)


def test_rows_that_are_not_of_the_pass_are_refused():
    steps = vault_of().normal_pass(RESPONSE, rows=np.arange(10))
    for rows in ([10], [9, 10], [59]):
        with pytest.raises(ldp.InvalidArgument, match="rows of this pass"):
            steps.answer(rows, table(len(rows)))
    for rows in ([60], [-1], [1, 0], [], [0.5], [np.nan]):
        with pytest.raises(ldp.InvalidArgument, match="rows must"):
            steps.answer(rows, table(max(1, len(rows))))
    assert steps.unanswered == 10


@pytest.mark.parametrize(
    "wrong",
    [
        table(2) * 1.0,
        np.full((2, 3, 2), np.nan),
        table(3),
        table(2)[:, :2],
        table(2)[..., :1],
        table(2) + np.array([[[0, 0], [1, 0], [0, 0]], [[0, 0], [0, 0], [0, 0]]]),
        table(2) + 2**24,
        np.full((2, 3, 2), 2**63, dtype=np.uint64),
        "a table",
        None,
    ],
    ids=["floats", "nan", "rows", "classes", "dimension", "one unit", "large", "huge", "text", "none"],
)
def test_a_wrong_table_is_refused_and_uses_up_nothing(wrong):
    vault = vault_of()
    steps = vault.normal_pass(RESPONSE)
    with pytest.raises(ldp.InvalidArgument):
        steps.answer([0, 1], wrong)
    assert steps.unanswered == 60 and vault.spent() == COST
    steps.answer([0, 1], table(2))


def test_a_refusal_is_the_same_whatever_the_labels_are():
    wrong = table(1) + np.array([[0, 0], [0, 0], [0, 500]])  # too far apart for the label 2 alone
    said = set()
    for label in range(3):
        steps = vault_of(np.array([label])).normal_pass(RESPONSE)
        with pytest.raises(ldp.InvalidArgument) as refusal:
            steps.answer([0], wrong)
        said.add(str(refusal.value))
    assert len(said) == 1


def test_threads_that_race_for_a_row_get_one_answer():
    steps = vault_of().normal_pass(RESPONSE)
    gate, answers, refusals = threading.Barrier(8), [], []

    def race():
        gate.wait()
        for row in range(60):
            try:
                answers.append((row, steps.answer([row], table(1)).tolist()))
            except ldp.InvalidArgument:
                refusals.append(row)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row for row, _ in answers) == list(range(60)) and len(refusals) == 7 * 60
    assert steps.unanswered == 0


def test_between_the_check_of_a_row_and_its_answer_no_other_thread_comes(monkeypatch):
    steps = vault_of().normal_pass(RESPONSE)
    check, answers = NormalPass._check, []

    def check_and_dawdle(self, asked):
        check(self, asked)
        time.sleep(0.05)  # long enough for any other thread to pass the check too

    def ask():
        with contextlib.suppress(ldp.InvalidArgument):
            answers.append(steps.answer([0], table(1)))

    monkeypatch.setattr(NormalPass, "_check", check_and_dawdle)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 1


def test_a_table_changed_while_it_is_answered_is_answered_as_it_was_checked(monkeypatch):
    given = table(60)
    original = NormalPass._check

    def meanwhile(self, asked):
        given[:] = 10**6  # as another thread could
        original(self, asked)

    monkeypatch.setattr(NormalPass, "_check", meanwhile)
    answers = vault_of().normal_pass(RESPONSE).answer(None, given)
    assert np.abs(answers).max() < 10**5


# ---------------------------------------------------------------- its end


def test_a_pass_ends_with_its_block_and_its_rows_stay_charged():
    vault = vault_of()
    with vault.normal_pass(RESPONSE) as steps:
        steps.answer([0], table(1))
    with pytest.raises(LabelDPError, match="over"):
        steps.answer([1], table(1))
    assert vault.spent() == COST and steps.unanswered == 59
    steps.close()  # twice is once


def test_a_closed_vault_ends_its_passes():
    vault = vault_of()
    steps = vault.normal_pass(RESPONSE)
    vault.close()
    with pytest.raises(VaultClosed):
        steps.answer([0], table(1))
    with pytest.raises(VaultClosed):
        vault.normal_pass(RESPONSE)


def test_a_pass_is_neither_copied_nor_pickled():
    steps = vault_of().normal_pass(RESPONSE)
    assert copy.copy(steps) is copy.deepcopy([steps])[0] is steps
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(LabelDPError):
            pickle.dumps(steps, protocol=protocol)


def test_a_failure_inside_says_nothing_of_labels_and_its_rows_count_as_answered(monkeypatch):
    steps = vault_of().normal_pass(RESPONSE)

    def fail(true_labels, vectors, noise):
        raise ValueError(f"marker-6f1c {true_labels} {noise}")

    with monkeypatch.context() as patch:
        patch.setattr(NormalResponse, "answer", staticmethod(fail))
        with pytest.raises(LabelDPError, match="failed inside the vault") as failure:
            steps.answer([0], table(1))
    said = everything_said(failure.value)
    assert not any(word in said for word in ("marker-6f1c", "true_labels", "'noise'"))
    assert failure.value.__cause__ is None and failure.value.__context__ is None
    with pytest.raises(ldp.InvalidArgument, match="at most once"):
        steps.answer([0], table(1))
    steps.answer([1], table(1))


def test_a_repr_shows_no_label_and_no_noise():
    steps = vault_of().normal_pass(RESPONSE, rows=np.arange(7))
    steps.answer([0], table(1))
    assert repr(steps) == "<NormalPass over 7 rows, 6 not answered yet>"


# ---------------------------------------------------------------- forks and crashes


def refused(act):
    try:
        act()
    except LabelDPError as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_the_copy_of_a_pass_in_a_forked_child_is_closed_and_holds_no_noise(place, memory_folder, fork):
    vault = vault_of() if place == "memory" else durable(memory_folder / "x.ledger")
    steps = vault.normal_pass(RESPONSE)
    steps.answer([0], table(1))
    assert len(steps._ahead) > 0
    child = fork(lambda: [refused(lambda: steps.answer([1], table(1))), len(steps._ahead)])
    assert child.join() == ["VaultClosed", 0]
    steps.answer([1], table(1))  # the parent's own is as open as before
    assert steps.unanswered == 58


def test_a_child_forked_while_a_thread_holds_the_pass_does_not_hang(fork):
    steps = vault_of().normal_pass(RESPONSE)
    with steps._lock:
        child = fork(lambda: refused(lambda: steps.answer([1], table(1))))
        assert child.join() == "VaultClosed"


KILLS = {
    "before the charge": (Ledger, "charge", "before"),
    "after the charge": (Ledger, "charge", "after"),
    "before it is noted": (Ledger, "mark_handed_over", "before"),
    "before the first draw": (NormalResponse, "noise", "before"),
    "after the first draw": (NormalPass, "_drawn", "after"),
}


@pytest.mark.parametrize("moment", KILLS)
def test_after_a_kill_the_rows_stay_charged_and_another_pass_is_refused(moment, memory_folder, fork):
    path = memory_folder / "x.ledger"
    durable(path)
    where, call, when = KILLS[moment]

    def killed():
        vault = durable(path)
        original = getattr(where, call)

        def deadly(*args, **kwargs):
            if when == "after":
                original(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(where, call, deadly)
        vault.normal_pass(RESPONSE, rows=np.arange(30)).answer([0], table(1))

    assert fork(killed).end()[1] == -signal.SIGKILL
    vault = durable(path)
    Ledger(path).verify()
    if moment == "before the charge":
        assert vault.spent() == Guarantee(0)
        return
    assert vault.spent(rows=np.arange(30)) == COST and vault.spent(rows=np.arange(30, 60)) == Guarantee(0)
    with pytest.raises(ldp.BudgetExhausted):  # the same request is not finished under the old charge
        vault.normal_pass(RESPONSE, rows=np.arange(30))
    vault.normal_pass(RESPONSE, rows=np.arange(30, 60))
    assert vault.certificate()["private"]


def test_the_same_pass_again_is_a_new_charge(memory_folder):
    vault = durable(memory_folder / "x.ledger", budget="2", delta="1e-5")
    first, second = vault.normal_pass(RESPONSE), vault.normal_pass(RESPONSE)
    assert first.receipt.ledger["entry"] != second.receipt.ledger["entry"]
    assert vault.spent() == Guarantee.of("2", delta="2e-6")
    assert (first.answer(None, table(60)) != second.answer(None, table(60))).any(), "each draws its own noise"


# ---------------------------------------------------------------- a sealed column


def test_a_sealed_column_is_passed_over_by_its_own_row_numbers():
    vault = vault_of(bits=ldp.InsecureBits(seed=1))
    column = vault.sealed()[np.arange(20, 40)]
    assert isinstance(column, ldp.LabelHolder)
    with column.normal_pass(RESPONSE, rows=np.arange(5, 20)) as steps:
        theirs: Pass = steps
        assert vault.spent(rows=np.arange(25)) == Guarantee(0) and vault.spent(rows=[25]) == COST
        answers = theirs.answer([5, 6], table(2))
        noise = RESPONSE.noise(30, ldp.InsecureBits(seed=1))[:4].reshape(2, 2)
        assert (answers - noise == VECTORS[LABELS[[25, 26]]]).all()
        for rows, says in (([5], "at most once"), ([0], "rows of this pass"), ([20], "rows must be strictly")):
            with pytest.raises(ldp.InvalidArgument, match=says):
                steps.answer(rows, table(1))
        assert steps.unanswered == 13 and steps.receipt.labels_charged == 15
    with pytest.raises(LabelDPError, match="over"):
        steps.answer([7], table(1))


def test_a_column_out_of_order_is_not_passed_over():
    column = vault_of().sealed()[[3, 1]]
    with pytest.raises(ldp.InvalidArgument, match="in_order"):
        column.normal_pass(RESPONSE)
