import json

import numpy as np
import pytest

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
