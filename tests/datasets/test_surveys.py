"""Surveys that come with statsmodels and scikit-learn: facts as published, a split by a public seed, sealed labels."""

import copy
import json
import pickle
import sys

import numpy as np
import pytest
from published import everything_said

import labeldp as ldp
from labeldp import datasets
from labeldp.datasets import surveys

pytest.importorskip("statsmodels")
pytest.importorskip("sklearn")

N_ROWS = {"fair": 6366, "anes96-vote": 944, "anes96-party": 944, "randhie": 20190, "breast-cancer": 569}
ANES = ["popul", "TVnews", "selfLR", "ClinLR", "DoleLR", "PID", "age", "educ", "income", "logpopul"]
COLUMNS = {
    "fair": ["rate_marriage", "age", "yrs_married", "children", "religious", "educ", "occupation", "occupation_husb"],
    "anes96-vote": ANES,
    "anes96-party": [name for name in ANES if name != "PID"],
    "randhie": ["lncoins", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp"],
}
PUBLISHED_COUNTS = {
    "fair": [4313, 2053],
    "anes96-vote": [551, 393],
    "anes96-party": [200, 180, 108, 37, 94, 150, 175],
    "breast-cancer": [212, 357],
}


@pytest.fixture(scope="module", params=N_ROWS)
def survey(request):
    return datasets.load(request.param)


def numbers_of(data):
    """All class numbers: the training rows' as a baseline without privacy, then the test rows'."""
    return np.concatenate([data.unprotected().label_numbers, data.test_labels])


def test_a_survey_is_a_float_table_of_which_a_fifth_is_the_public_test(survey):
    n_rows = N_ROWS[survey.name]
    assert len(survey.X_test) == n_rows // 5 and survey.n_rows == n_rows - n_rows // 5
    for X in (survey.X, survey.X_test):
        assert X.dtype == np.float64 and X.ndim == 2 and np.isfinite(X).all()
        assert X.shape[1] == len(survey.inputs["columns"])
    assert survey.inputs["kind"] == "table" and json.loads(json.dumps(survey.inputs)) == survey.inputs
    assert survey.inputs["columns"] == COLUMNS.get(survey.name, survey.inputs["columns"])
    assert survey.public_test == "published rows drawn by a fixed seed, taken as public"
    assert survey.ids is None and survey.missing is None


@pytest.mark.parametrize("name", PUBLISHED_COUNTS)
def test_the_answers_are_as_published(name):
    assert np.bincount(numbers_of(datasets.load(name))).tolist() == PUBLISHED_COUNTS[name]


def test_visits_are_counted_up_to_a_declared_bound():
    from statsmodels.datasets import randhie

    data = datasets.load("randhie")
    visits = randhie.load_pandas().data["mdvis"].to_numpy()
    assert visits.max() == 77 and data.classes == tuple(range(21))
    counts = np.bincount(numbers_of(data), minlength=21)
    assert counts[:20].tolist() == np.bincount(visits)[:20].tolist() and counts[20] == (visits >= 20).sum()


def test_columns_of_codes_are_named():
    assert datasets.load("fair").inputs["categorical"] == ["occupation", "occupation_husb"]
    assert "categorical" not in datasets.load("randhie").inputs


def test_the_parties_are_in_the_order_of_their_codes():
    from statsmodels.datasets import anes96

    note = [line.strip().lower() for line in anes96.NOTE.splitlines()]
    published = ["strong democrat", "weak democrat", "independent-democrat", "independent-independent"]
    published += ["independent-republican", "weak republican", "strong republican"]
    assert all(f"{number} - {name}" in note for number, name in enumerate(published))
    spelled = [name.lower().replace("independent ", "independent-") for name in surveys.PARTIES]
    assert [name.replace("independent-independent", "independent") for name in published] == spelled
    assert all(f"{number} - {name.lower()}" in note for number, name in enumerate(datasets.load("anes96-vote").classes))


def test_features_and_answers_stay_together():
    from statsmodels.datasets import fair

    table = fair.load_pandas().data
    order = np.random.RandomState(1978).permutation(6366)
    data = datasets.load("fair")
    assert np.array_equal(np.concatenate([data.X, data.X_test]), table[COLUMNS["fair"]].to_numpy()[order])
    assert np.array_equal(numbers_of(data), (table["affairs"] > 0).to_numpy()[order])


def test_the_split_is_the_same_on_every_machine():
    assert np.random.RandomState(surveys.SPLIT_SEED).permutation(6366)[:5].tolist() == [3050, 3253, 2289, 1779, 4117]


def test_tumours_are_named_as_scikit_learn_does():
    from sklearn.datasets import load_breast_cancer

    data, raw = datasets.load("breast-cancer"), load_breast_cancer()
    assert data.classes == tuple(raw.target_names) and data.inputs["columns"] == list(raw.feature_names)
    order = np.random.RandomState(1978).permutation(569)
    assert np.array_equal(numbers_of(data), raw.target[order])
    assert np.array_equal(np.concatenate([data.X, data.X_test]), raw.data[order])


def test_a_survey_opens_a_vault_and_is_cut_short_like_any_dataset(survey):
    few = survey.subset(50)
    assert np.array_equal(few.X, survey.X[:50]) and few.X_test is survey.X_test
    release = few.vault(budget="1").release(ldp.RandomizedResponse(epsilon="1"))
    assert len(release) == 50 and release.receipt.private and release.classes == survey.classes


def test_a_survey_travels_only_without_its_labels(survey):
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(ldp.LabelDPError, match="never pickled or copied"):
            attempt(survey)
    arrived = pickle.loads(pickle.dumps(survey.only_public()))
    assert np.array_equal(arrived.X, survey.X) and arrived.inputs == survey.inputs
    assert arrived.public_test == survey.public_test
    with pytest.raises(ldp.VaultClosed):
        arrived.vault(budget="1")


def test_a_survey_that_is_not_as_published_is_refused_without_a_label(monkeypatch):
    from statsmodels.datasets import anes96

    package = anes96.load_pandas()
    package.data["PID"] = 86_753
    monkeypatch.setattr(anes96, "load_pandas", lambda: package)
    with pytest.raises(ldp.InvalidLabels) as caught:
        datasets.load("anes96-party")
    said = everything_said(caught.value)
    assert "data_dir" in said  # locals were looked at
    assert "86753" not in said


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("fair", "statsmodels", "survey"), ("breast-cancer", "sklearn.datasets", "sklearn")],
)
def test_without_its_package_a_survey_says_what_to_install(monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ldp.MissingExtra, match=rf"pip install 'labeldp\[{extra}\]'"):
        datasets.load(name)
