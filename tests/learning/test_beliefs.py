"""Beliefs, and what reports and beliefs say together, against Bayes' rule in loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.learning import Beliefs, Filtered, evidence
from labeldp.priors import projected

N, K = 30, 3
CLASSES = tuple(range(K))
LABELS = np.random.default_rng(1).integers(K, size=N)


def vault(**settings):
    return ldp.LabelVault(LABELS, classes=K, budget="20", trust="curator", **settings)


REPORTS = vault().release(ldp.RandomizedResponse("1"))


def dirichlet(rows, seed, weights=None):
    rows = np.asarray(rows)
    return Beliefs(rows, np.random.default_rng(seed).dirichlet(np.ones(K), size=len(rows)), REPORTS, weights)


def naive_posterior(local, beliefs):
    """Bayes' rule, one row at a time."""
    found = {}
    for row in range(N):
        joint, weight = [1.0] * K, None
        for each in beliefs:
            for place in np.flatnonzero(each.rows == row):
                joint = [joint[label] * each.shares[place][label] for label in range(K)]
                weight = max(weight or 0.0, 1.0 if each.weights is None else each.weights[place])
        for release in local:
            for place in np.flatnonzero(release.rows == row):
                joint = [joint[label] * release.likelihood()[place][label] for label in range(K)]
                weight = max(weight or 0.0, 1.0)
        if weight is not None:
            found[row] = ([each / sum(joint) if sum(joint) else 1 / K for each in joint], weight)
    return found


some_rows = st.lists(st.integers(0, N - 1), unique=True, min_size=1)


@given(st.lists(some_rows, max_size=3), st.lists(some_rows, min_size=1, max_size=2), st.integers(0, 50))
def test_the_posterior_is_prior_times_likelihood(believed, reported, seed):
    rng = np.random.default_rng(seed)
    beliefs = [dirichlet(rows, seed, rng.uniform(0, 1, len(rows)) if seed % 2 else None) for rows in believed]
    local = [vault().release(ldp.GroupedResponse("1"), np.sort(rows)) for rows in reported]
    if seed % 3 == 0 and beliefs:
        local = []
    found, expected = evidence.posterior(local, beliefs), naive_posterior(local, beliefs)
    assert found.rows.tolist() == sorted(expected) and found.classes == CLASSES
    for row, share, weight in zip(found.rows, found.shares, found.weights, strict=True):
        assert share == pytest.approx(expected[row][0], rel=1e-9) and weight == pytest.approx(expected[row][1])


def test_where_everything_together_is_impossible_nothing_is_believed():
    true = ldp.LabelVault.unprotected(np.zeros(N, int), classes=K)
    against = Beliefs(np.arange(2), np.array([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0]]), REPORTS)
    found = evidence.posterior([true], [against])
    assert found.shares[0] == pytest.approx(np.full(K, 1 / K))
    assert found.shares[1:] == pytest.approx(np.tile([1.0, 0.0, 0.0], (N - 1, 1)))


def test_the_order_in_which_things_are_known_does_not_matter():
    first, second = (
        dirichlet([4, 1, 9], 0, np.array([0.2, 0.9, 0.4])),
        dirichlet([9, 2, 4], 1, np.array([0.7, 0.1, 0.1])),
    )
    one, other = (evidence.posterior([], each) for each in ([first, second], [second, first]))
    assert (one.rows == other.rows).all() and one.shares == pytest.approx(other.shares)
    assert one.weights.tolist() == other.weights.tolist() == [0.9, 0.1, 0.2, 0.7]  # rows 1, 2, 4, 9


def test_hundreds_of_reports_on_a_row_do_not_underflow():
    releases = [ldp.LabelVault(LABELS, classes=K, budget="5").release(ldp.RandomizedResponse("5")) for _ in range(150)]
    found = evidence.posterior(releases, [dirichlet(np.arange(N), 0)])
    assert (found.shares.argmax(axis=1) == LABELS).all() and found.shares.max(axis=1) == pytest.approx(np.ones(N))


def test_filtered_rows_have_no_likelihood_to_multiply():
    release = vault().release(ldp.RandomizedResponse("1"))
    with pytest.raises(ldp.InvalidArgument, match="dropped by looking at their reports"):
        evidence.posterior([Filtered(release, np.ones(N, bool))], [dirichlet([1], 0)])


# ---------------------------------------------------------------- what is evidence


def test_a_histogram_is_the_projected_shares_of_each_rows_group():
    counts = vault().histogram(np.arange(10) % 3, "1", rows=np.arange(0, 20, 2), n_groups=4)
    (beliefs,) = evidence.checked(counts)
    assert isinstance(beliefs, Beliefs) and beliefs.weights is None and beliefs.classes == CLASSES
    assert (beliefs.rows == counts.rows).all()
    assert all((beliefs.shares[place] == projected(counts)[place % 3]).all() for place in range(10))


def test_reports_and_beliefs_are_told_apart():
    release, counts, beliefs = (
        vault().release(ldp.RandomizedResponse("1")),
        vault().histogram(LABELS * 0, "1"),
        dirichlet([3], 0),
    )
    dropped = Filtered(release, np.ones(N, bool))
    local, believed = evidence.apart(evidence.checked([beliefs, release, counts, dropped]))
    assert local == [release, dropped] and believed[0] is beliefs and (believed[1].rows == counts.rows).all()


@pytest.mark.parametrize(
    "disguised", [[], LABELS, [LABELS], np.eye(K)[LABELS], None, "labels", [vault()], vault().sums, iter([1])]
)
def test_anything_else_is_refused(disguised):
    with pytest.raises(ldp.InvalidArgument, match="a learner takes no labels"):
        evidence.checked(disguised)


def test_beliefs_in_other_classes_are_not_joined():
    named = ldp.LabelVault(["no", "yes"], classes=["no", "yes"], budget="1").release(ldp.RandomizedResponse("1"))
    other = Beliefs(np.arange(2), np.full((2, 2), 0.5), named)
    for ours in (dirichlet([1], 0), vault().histogram(LABELS * 0, "1")):
        with pytest.raises(ldp.InvalidArgument, match="same classes"):
            evidence.checked([ours, other])


# ---------------------------------------------------------------- beliefs check themselves


def test_weights_multiply_what_is_believed():
    beliefs = dirichlet([5, 2], 0, np.array([0.5, 0.0]))
    assert (beliefs.weighted == beliefs.shares * [[0.5], [0.0]]).all()
    assert dirichlet([5, 2], 0).weighted is not None and (dirichlet([5, 2], 0).weighted == beliefs.shares).all()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([1, 1], "each row once"),
        ([-1, 0], "whole numbers from 0"),
        ([0.0, 1.0], "whole numbers from 0"),
        ([True, False], "whole numbers from 0"),
        ([[1], [2]], "whole numbers from 0"),
    ],
)
def test_rows_are_the_vaults_each_once(rows, words):
    with pytest.raises(ldp.InvalidArgument, match=words):
        Beliefs(np.array(rows), np.full((2, K), 1 / K), REPORTS)


@pytest.mark.parametrize(
    "shares",
    [
        np.full((3, K), 1 / K),
        np.full((2, K + 1), 1 / (K + 1)),
        np.full((2, K), 0.5),
        np.full((2, K), np.nan),
        np.tile([1.5, -0.5, 0.0], (2, 1)),
        np.full((2, K), "much"),
        np.array([0, 1]),
    ],
)
def test_shares_are_probabilities_of_each_row(shares):
    with pytest.raises(ldp.InvalidArgument):
        Beliefs(np.arange(2), shares, REPORTS)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -0.1], [1.0, np.nan], [1.0, np.inf], [[1.0], [1.0]], ["a", "b"]])
def test_weights_are_one_number_per_row(weights):
    with pytest.raises(ldp.InvalidArgument, match="2 finite numbers that are not negative"):
        Beliefs(np.arange(2), np.full((2, K), 1 / K), REPORTS, np.array(weights))


@pytest.mark.parametrize("made_from", [CLASSES, [], None, LABELS, [LABELS], vault()], ids=repr)
def test_beliefs_name_the_releases_that_they_were_made_from(made_from):
    with pytest.raises(ldp.InvalidArgument, match="releases must be what the beliefs were made from"):
        Beliefs(np.arange(2), np.full((2, K), 1 / K), made_from)


def test_beliefs_speak_of_rows_that_their_releases_speak_of():
    some = vault().release(ldp.RandomizedResponse("1"), rows=np.arange(5))
    with pytest.raises(ldp.InvalidArgument, match="spoken of by the releases"):
        Beliefs(np.array([4, 5]), np.full((2, K), 1 / K), some)


def test_beliefs_from_what_is_not_private_say_so():
    seeded = vault(bits=ldp.InsecureBits(1)).release(ldp.RandomizedResponse("1"))
    beliefs = Beliefs(np.arange(2), np.full((2, K), 1 / K), [REPORTS, seeded])
    assert not beliefs.private and "NOT PRIVATE" in repr(beliefs)
    assert dirichlet([1], 0).private and "NOT PRIVATE" not in repr(dirichlet([1], 0))


def test_rows_that_x_does_not_have_are_refused():
    evidence.check_rows(np.array([0, 9]), 10)
    with pytest.raises(ldp.InvalidArgument, match="one row per row of the vault; it has 9"):
        evidence.check_rows(np.array([0, 9]), 9)
