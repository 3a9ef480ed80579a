import numpy as np
import pytest

import labeldp as ldp

SHARES = np.array([0.5, 0.25, 0.15, 0.1])


def labels_of(n):
    return np.repeat(np.arange(4), (SHARES * n).astype(int))


@pytest.mark.parametrize(
    "mechanism", [ldp.RandomizedResponse("1"), ldp.GroupedResponse("1"), ldp.RRWithPrior("1"), ldp.RRTopK("1", k=4)]
)
def test_frequencies_are_unbiased_with_honest_standard_errors(mechanism):
    """Each class within 6 standard errors (false alarm 2e-9 each)."""
    vault = ldp.LabelVault(labels_of(40_000), classes=4, budget="1")
    found = vault.release(mechanism, priors=np.full(4, 0.25)).class_frequencies()
    assert (np.abs(found.estimates - SHARES) < 6 * found.standard_errors).all()
    assert found.estimates.sum() == pytest.approx(1, abs=0.02)
    assert found.assumes is None


@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse("1"), ldp.GroupedResponse("1")])
def test_the_average_over_many_releases_is_the_truth(mechanism):
    """200 small releases; mean within 6 standard errors of the mean, and about the promised spread."""
    estimates = []
    for _ in range(200):
        vault = ldp.LabelVault(labels_of(400), classes=4, budget="1")
        found = vault.release(mechanism).class_frequencies()
        estimates.append(found.estimates)
    error = found.standard_errors / np.sqrt(200)
    assert (np.abs(np.mean(estimates, axis=0) - SHARES) < 6.5 * error).all()
    assert (np.std(estimates, axis=0) < 1.4 * found.standard_errors).all()


def test_classes_that_cannot_be_told_apart_are_named():
    vault = ldp.LabelVault(["a", "b", "c", "d"] * 50, classes=["a", "b", "c", "d"], budget="1")
    release = vault.release(ldp.RRTopK("1", k=2), priors=[0.5, 0.3, 0.1, 0.1])
    with pytest.raises(ldp.NotIdentifiable, match="c, d"):
        release.class_frequencies()


def test_rows_with_priors_of_their_own_come_with_an_assumption():
    rng = np.random.default_rng(0)
    vault = ldp.LabelVault(labels_of(4_000), classes=4, budget="1")
    found = vault.release(ldp.GroupedResponse("1"), priors=rng.dirichlet(np.ones(4), size=4_000)).class_frequencies()
    assert found.assumes == "a row's label does not depend on its map"


def test_numeric_reports_have_frequencies_too():
    vault = ldp.LabelVault(labels_of(20_000), classes=4, budget="4")
    found = vault.release(ldp.UnbiasedResponse("4", low=0, high=3)).class_frequencies()
    assert (np.abs(found.estimates - SHARES) < 6 * found.standard_errors).all()


def test_noise_so_strong_that_nothing_is_left_is_an_error():
    vault = ldp.LabelVault([0, 1] * 10, classes=2, budget="1")
    with pytest.raises(ldp.NotIdentifiable):
        vault.release(ldp.RandomizedResponse("1e-12")).class_frequencies()
