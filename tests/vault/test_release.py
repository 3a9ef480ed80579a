import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from contract import priors
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.vault.files import file_digest

MECHANISMS = [ldp.RandomizedResponse("1"), ldp.RRTopK("1", k=2), ldp.RRWithPrior("1"), ldp.GroupedResponse("1")]


def released(mechanism, n=200, classes=5):
    rng = np.random.default_rng(0)
    vault = ldp.LabelVault(rng.integers(classes, size=n), classes=classes, budget="1")
    return vault.release(mechanism, rows=np.arange(0, n, 2), priors=rng.dirichlet(np.ones(classes), size=n // 2))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_a_release_survives_its_file(mechanism, tmp_path):
    release = released(mechanism)
    release.save(tmp_path / "r")
    again = ldp.Release.load(tmp_path / "r")
    assert (again.reports == release.reports).all() and (again.rows == release.rows).all()
    assert (again.likelihood() == release.likelihood()).all()
    assert again.receipt == release.receipt and again.classes == release.classes
    assert sorted(file.name for file in tmp_path.iterdir()) == ["r.json", "r.npz"]


def test_the_file_is_json_and_plain_arrays_never_a_pickle(tmp_path):
    released(ldp.RandomizedResponse("1")).save(tmp_path / "r")
    facts = json.loads((tmp_path / "r.json").read_text())
    assert facts["format"] == "labeldp-release-1" and facts["private"] is True
    with np.load(tmp_path / "r.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"reports", "rows"}


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize(
    "damage", ["truncate", "swap", "format", "kind", "no json", "not json", "foreign report", "pickle"]
)
def test_a_damaged_file_is_a_clear_error(mechanism, damage, tmp_path):
    released(mechanism).save(tmp_path / "r")
    data, text = tmp_path / "r.npz", tmp_path / "r.json"
    facts = json.loads(text.read_text())
    if damage == "truncate":
        data.write_bytes(data.read_bytes()[:-10])
    elif damage == "swap":
        np.savez(data, reports=np.zeros(3))
    elif damage == "format":
        text.write_text(json.dumps(facts | {"format": "labeldp-release-99"}))
    elif damage == "kind":
        text.write_text(json.dumps(facts | {"channel": {"kind": "magic", "keep": 1, "other": 1}}))
    elif damage == "no json":
        text.unlink()
    elif damage == "not json":
        text.write_text("{")
    elif damage == "foreign report":
        with np.load(data) as file:
            arrays = dict(file)
        np.savez(data, **arrays | {"reports": np.full_like(arrays["reports"], 200)})
        text.write_text(json.dumps(facts | {"arrays": file_digest(data)}))
    else:
        np.savez(data, allow_pickle=True, reports=np.array([{}], dtype=object), rows=np.array([0]))
        text.write_text(json.dumps(facts | {"arrays": file_digest(data)}))
    with pytest.raises(ldp.InvalidArgument):
        ldp.Release.load(tmp_path / "r")


def test_likelihood_takes_positions_in_any_order_or_a_mask():
    release = released(ldp.RRWithPrior("1"))
    everything = release.likelihood()
    assert (release.likelihood([5, 0, 5]) == everything[[5, 0, 5]]).all()
    mask = np.arange(len(release)) % 3 == 0
    assert (release.likelihood(mask) == everything[mask]).all()
    for wrong in ([-1], [len(release)], [0.5], [[0]], mask[:-1]):
        with pytest.raises(ldp.InvalidArgument, match="rows must be positions"):
            release.likelihood(wrong)


def test_labels_are_class_names():
    vault = ldp.LabelVault(["no", "yes"] * 20, classes=["no", "yes"], budget="1")
    release = vault.release(ldp.RandomizedResponse("1"))
    assert set(release.labels.tolist()) <= {"no", "yes"}
    assert (np.array(["no", "yes"])[release.label_numbers] == release.labels).all()


def test_a_release_cannot_change_the_vault():
    vault = ldp.LabelVault([0, 1, 0, 1], classes=2, budget="2")
    release = vault.release(ldp.RandomizedResponse("1"))
    with pytest.raises(ValueError, match="read-only"):
        release.rows[0] = 3


# ---------------------------------------------------------------- how many reports, and undoing the noise


def test_sizes_say_between_how_many_reports_each_draw_chose():
    for mechanism in MECHANISMS:
        release = released(mechanism)
        assert release.sizes.shape == (len(release),)
        for place in range(0, len(release), 10):
            law = release.channel.law(place, 0)
            assert release.sizes[place] == len(law) or not release.groups.single_labels
    assert (released(ldp.RandomizedResponse("1")).sizes == 5).all()
    assert (released(ldp.RRTopK("1", k=2)).sizes == 2).all()
    assert len(set(released(ldp.RRWithPrior("1")).sizes.tolist())) > 1


def test_sizes_of_a_table_are_its_outputs():
    vault = ldp.LabelVault([0, 1, 2], classes=[0, 1, 2], budget="1")
    release = vault.release(ldp.UnbiasedResponse("1", low=0, high=2, step=1))
    assert release.sizes.tolist() == [len(release.channel.law(0, 0))] * 3
    with pytest.raises(ldp.InvalidArgument, match="noisy labels"):
        release.debiased_weights()


def test_true_labels_have_sizes_and_nothing_to_debias():
    release = ldp.LabelVault.unprotected([0, 1, 1], classes=4)
    assert release.sizes.tolist() == [4, 4, 4]
    with pytest.raises(ldp.InvalidArgument, match="drawn at some epsilon"):
        release.debiased_weights()


SINGLE_LABELS = {
    "RandomizedResponse": lambda epsilon, _: ldp.RandomizedResponse(epsilon),
    "RRTopK": lambda epsilon, k: ldp.RRTopK(epsilon, k=k),
    "RRWithPrior": lambda epsilon, _: ldp.RRWithPrior(epsilon),
}


def every_report_of(mechanism, prior):
    """Return a release with one row for every report that a row of this prior can have."""
    size = len(mechanism.law(0, prior))
    vault = ldp.LabelVault(np.zeros(size, dtype=int), classes=len(prior), budget="20")
    release = vault.release(mechanism, priors=np.tile(prior, (size, 1)))
    return dataclasses.replace(release, reports=np.arange(size, dtype=release.reports.dtype))


@pytest.mark.parametrize("name", SINGLE_LABELS)
@given(
    epsilon=st.one_of(st.sampled_from(["0.001", "0.5", "1", "8", "20"]), st.decimals("0.001", "20", places=6)),
    prior=priors(),
    k=st.integers(1, 8),
)
def test_debiased_weights_average_to_the_true_label_exactly(name, epsilon, prior, k):
    """For every candidate; rounding each weight to a float is the only error. Other labels average their candidates."""
    mechanism = SINGLE_LABELS[name](epsilon, min(k, len(prior)))
    release = every_report_of(mechanism, prior)
    weights = [[Fraction(c) for c in row] for row in release.debiased_weights().tolist()]
    reported = release.label_numbers.tolist()
    size = len(reported)
    tolerance = Fraction(1, 10**15) * size * max(abs(c) for row in weights for c in row)
    for label in range(len(prior)):
        law = mechanism.law(label, prior)
        assert sorted(law) == sorted(reported)
        for other in range(len(prior)):
            mean = sum(law[report] * row[other] for report, row in zip(reported, weights, strict=True))
            expected = int(other == label) if label in law else Fraction(1, size) if other in law else 0
            assert abs(mean - expected) <= tolerance


@pytest.mark.parametrize("name", SINGLE_LABELS)
def test_debiased_weights_are_the_papers_formula(name):
    release = released(SINGLE_LABELS[name]("1", 2))
    found = release.debiased_weights()
    groups = release.groups.assignment(np.arange(len(release)))
    for place, size in enumerate(release.sizes.tolist()):
        p = 1 / (np.e + size - 1)
        for label in range(5):
            own = label == release.label_numbers[place]
            expected = (own - p) / (1 - size * p) if groups[place, label] >= 0 else 0
            assert found[place, label] == pytest.approx(expected, rel=1e-8)
    mask = np.arange(len(release)) % 3 == 0
    assert (release.debiased_weights(mask) == found[mask]).all()
    assert (release.debiased_weights([4, 0]) == found[[4, 0]]).all()


def test_groups_cannot_be_debiased_unless_each_is_one_label():
    with pytest.raises(ldp.InvalidArgument, match="group"):
        released(ldp.GroupedResponse("1")).debiased_weights()
    vault = ldp.LabelVault([0, 1, 2] * 20, classes=3, budget="8")
    alone = vault.release(ldp.GroupedResponse("8"))
    assert (alone.sizes == 3).all()
    plain = release_that_reported(alone.label_numbers).debiased_weights()
    assert alone.debiased_weights() == pytest.approx(plain)


def release_that_reported(noisy):
    """A release of plain randomized response at epsilon 8 that reported these labels."""
    release = ldp.LabelVault(noisy, classes=3, budget="8").release(ldp.RandomizedResponse("8"))
    return dataclasses.replace(release, reports=noisy.astype(release.reports.dtype))


def test_an_epsilon_of_almost_nothing_has_nothing_to_debias():
    vault = ldp.LabelVault([0, 1], classes=2, budget="1")
    with pytest.raises(ldp.InvalidArgument, match="nothing to debias"):
        vault.release(ldp.RandomizedResponse("1e-12")).debiased_weights()
