"""Labels that are given unsealed: nothing of a fitted model, its pickle or its errors holds one."""

from __future__ import annotations

import copyreg
import gc
import io
import pickle
import traceback
from collections import UserList, deque
from collections.abc import Mapping

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeldp as ldp
from labeldp.sklearn import LabelDPClassifier, LabelDPRegressor, LabelDPSearchCV
from labeldp.vault import LabelVault, SealedColumn
from labeldp.vault.labels import SealedLabels, Unsealed

N = 200
MARKER = "marker-6f1c"


def features():
    return np.random.default_rng(0).normal(size=(N, 3))


def labels():
    """Text labels in an order that nothing but the labels has; one occurs once."""
    names = np.array(["no", "yes", "perhaps"], dtype=object)[np.random.default_rng(1).integers(3, size=N)]
    names[17] = MARKER
    return names


def numbers_of(names):
    return np.unique(names.astype(str), return_inverse=True)[1]


# ---- everything that can be reached ----------------------------------------------------------------------------------


def reachable(thing):
    """Yield all that attributes, slots, containers, closures and arrays lead to."""
    seen, waiting = set(), [thing]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (type, str, bytes, int, float)) or type(each).__name__ == "module":
            continue
        seen.add(id(each))
        yield each
        waiting += parts_of(each)


def parts_of(thing):
    parts = list(getattr(thing, "__dict__", {}).values())
    slots = [name for kind in type(thing).__mro__ for name in copyreg._slotnames(kind) or ()]
    parts += [getattr(thing, name) for name in slots if hasattr(thing, name)]
    if isinstance(thing, Mapping):
        parts += [*thing.keys(), *thing.values()]
    if isinstance(thing, (list, tuple, set, frozenset)):
        parts += list(thing)
    if isinstance(thing, np.ndarray):
        parts += [thing.base, *(thing.tolist() if thing.dtype == object else [])]
    parts += [
        getattr(thing, name, None) for name in ("__closure__", "__self__", "__func__", "cell_contents", "f_locals")
    ]
    return [part for part in parts if part is not None]


def betrays(thing, secret):
    """Tell whether something is the labels, by whatever names or numbers, or a thing that can read them."""
    if isinstance(thing, (LabelVault, SealedLabels, Unsealed, SealedColumn)):
        return True
    if not isinstance(thing, (np.ndarray, list, tuple, pd.Series)) or np.ndim(thing) != 1 or len(thing) != len(secret):
        return False
    try:
        _, codes = np.unique(np.asarray(thing).astype(str), return_inverse=True)
    except (ValueError, TypeError):
        return False
    pairs = set(zip(codes.tolist(), secret.tolist(), strict=True))
    return len(pairs) == len(set(secret.tolist())) == len(set(codes.tolist()))


def assert_clean(model, secret):
    for each in reachable(model):
        assert not betrays(each, secret), f"a {type(each).__name__} holds the labels"
        for order in orders_of(model):
            assert not betrays(each, secret[order]), f"a {type(each).__name__} holds the labels of some rows"


def orders_of(model):
    """The orders in which a model knows its rows: those of each release."""
    return [release.rows for release in releases_of(model) if len(np.unique(numbers_of(labels())[release.rows])) > 2]


def releases_of(model):
    found = [*getattr(model, "releases_", []), getattr(model, "hold_out_", None), getattr(model, "release_", None)]
    return [release for release in found if release is not None]


class Planted:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


PLACES = {
    "names": lambda y: y,
    "numbers": numbers_of,
    "other numbers": lambda y: (7 - numbers_of(y)).astype(float),
    "a list": lambda y: numbers_of(y).tolist(),
    "a series": pd.Series,
    "in a dictionary": lambda y: {"a": [(numbers_of(y),)]},
    "behind a view": lambda y: numbers_of(y)[:5],
    "in a closure": lambda y: lambda: y,
    "in a bound method": lambda y: Planted(y=y).__init__,
    "in a vault": lambda y: LabelVault(numbers_of(y), classes=4, budget="1"),
    "sealed": lambda y: LabelVault(numbers_of(y), classes=4, budget="1").sealed(),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_search_for_labels_would_find_them(place):
    model = Planted(inner=Planted(value=PLACES[place](labels())))
    assert any(betrays(each, numbers_of(labels())) for each in reachable(model))


CLASSIFIERS = {
    "logistic": LogisticRegression(),
    "pipeline": make_pipeline(StandardScaler(), GaussianNB()),
    "forest": RandomForestClassifier(3),
    "neighbours": KNeighborsClassifier(),
}


def private(estimator, **settings):
    declared = ["no", "yes", "perhaps", MARKER]
    return LabelDPClassifier(estimator, **{"epsilon": 2, "classes": declared, "rounds": 1, "folds": 2} | settings)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("hold_out", [0.0, 0.3])
def test_no_attribute_of_a_fitted_classifier_reaches_a_label(name, hold_out):
    y = labels()
    model = private(CLASSIFIERS[name], hold_out=hold_out).fit(features(), y)
    assert_clean(model, numbers_of(y))
    assert_clean(pickle.loads(pickle.dumps(model)), numbers_of(y))


def test_no_attribute_of_a_search_or_a_regressor_reaches_a_label():
    y = labels()
    search = LabelDPSearchCV(private(GaussianNB()), {"rounds": [1, 2]}).fit(features(), y)
    assert_clean(search, numbers_of(y))
    targets = numbers_of(y)
    assert_clean(LabelDPRegressor(Ridge(), epsilon=1, low=0, high=4, step=1).fit(features(), targets), targets)


def test_a_model_of_sealed_labels_does_not_hold_on_to_the_vault():
    y = labels()
    vault = LabelVault(y, classes=["no", "yes", "perhaps", MARKER], budget="2")
    model = private(GaussianNB(), hold_out=0.2).fit(features(), vault.sealed())
    assert_clean(model, numbers_of(y))
    pickle.dumps(model)


def test_no_pickle_holds_the_bytes_of_the_labels():
    y = labels()
    model = private(GaussianNB(), classes=None)
    vault = LabelVault(y, classes=["no", "yes", "perhaps", MARKER], budget="2")
    model.fit(features(), vault.sealed())
    stream = io.BytesIO()
    joblib.dump(model, stream)
    for data in (pickle.dumps(model), stream.getvalue()):
        for secret in (numbers_of(y).astype(np.uint8), numbers_of(y).astype(np.int64)):
            assert secret.tobytes() not in data
        assert "\n".join(y).encode() not in data


# ---- the vault that fit makes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_a_vault_made_in_fit_is_closed_when_fit_is_over(fails, monkeypatch):
    made = []
    original = LabelVault.__init__

    def remember(self, *arguments, **options):
        original(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(LabelVault, "__init__", remember)
    model = private(LogisticRegression(C=-1) if fails else LogisticRegression())
    if fails:
        with pytest.raises(ldp.InvalidArgument):
            model.fit(features(), labels())
    else:
        model.fit(features(), labels())
    assert len(made) == 1
    with pytest.raises(ldp.VaultClosed):
        made[0].release(ldp.RandomizedResponse("0.1"))


def test_a_fit_leaves_no_vault_behind_in_memory():
    private(GaussianNB()).fit(features(), labels())
    gc.collect()
    holding = [each for each in gc.get_objects() if type(each) is SealedLabels and len(each) == N]
    assert not any(each._numbers is not None for each in holding)


def test_the_certificate_says_that_it_covers_this_fit_alone():
    model = private(GaussianNB())
    first = model.fit(features(), labels()).certificate_
    second = model.fit(features(), labels()).certificate_
    for certificate in (first, second):
        assert "this fit alone" in certificate["covers"] and certificate["spent"]["epsilon"] == "2"
    targets = LabelDPRegressor(Ridge(), epsilon=1, low=0, high=4).fit(features(), numbers_of(labels()))
    assert "this fit alone" in targets.certificate_["covers"]
    assert "this fit alone" in LabelDPSearchCV(model, {}).fit(features(), labels()).certificate_["covers"]


# ---- errors ----------------------------------------------------------------------------------------------------------


class Boom:
    """Fails, quoting what it holds, as pandas and numpy do."""

    def __len__(self):
        return N

    def __array__(self, *_, **__):
        raise ValueError(f"could not convert string to float: {MARKER!r}")

    def __iter__(self):
        raise ValueError(f"could not convert string to float: {MARKER!r}")


WRONG_LABELS = {
    "a stranger": labels,
    "a stranger in a list": lambda: labels().tolist(),
    "a stranger in text": lambda: labels().astype(str),
    "a stranger in a series": lambda: pd.Series(labels()),
    "a stranger in a category": lambda: pd.Series(labels(), dtype="category"),
    "mixed": lambda: [*labels()[:-2], 1, None],
    "two columns": lambda: np.stack([labels(), labels()], axis=1),
    "ragged": lambda: [[name] * (number % 2 + 1) for number, name in enumerate(labels())],
    "raising": Boom,
    "bytes": lambda: labels().astype("S"),
    "a dictionary": lambda: {MARKER: 1},
    "a text": lambda: MARKER,
    "too few": lambda: labels()[10:],
}


def everything_said(error):
    """What any handler or debugger could show of an error, locals of our own frames included."""
    shown = "".join(traceback.format_exception(error)) + repr([error.args, error.__cause__, error.__context__])
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if "labeldp" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            shown += repr(frame.f_locals)
    return shown


@pytest.mark.parametrize("kind", WRONG_LABELS)
@pytest.mark.parametrize("face", ["classifier", "search", "regressor"])
def test_errors_show_no_label(kind, face):
    model = {
        "classifier": private(GaussianNB(), classes=["no", "yes", "perhaps"]),
        "search": LabelDPSearchCV(private(GaussianNB(), classes=["no", "yes", "perhaps"]), {}),
        "regressor": LabelDPRegressor(Ridge(), epsilon=1, low=0, high=4),
    }[face]
    with pytest.raises((ldp.InvalidArgument, ldp.InvalidLabels)) as caught:
        model.fit(features(), WRONG_LABELS[kind]())
    assert MARKER not in everything_said(caught.value)


def test_a_table_of_one_column_is_a_column_with_scikit_learns_warning():
    with pytest.warns(DataConversionWarning) as caught:
        private(GaussianNB()).fit(features(), labels()[:, None])
    assert not any(MARKER in str(each.message) for each in caught)


@pytest.mark.parametrize("outside", [10.5, -1, 1e300, np.nan, np.inf])
def test_a_target_outside_the_bounds_is_not_shown(outside):
    targets = np.linspace(0, 10, N)
    targets[42] = outside
    with pytest.raises(ldp.InvalidLabels) as caught:
        LabelDPRegressor(Ridge(), epsilon=1, low=0, high=10).fit(features(), targets)
    assert repr(outside) not in str(caught.value) and "42" not in str(caught.value)


WRAPPERS = [
    LabelDPClassifier(LogisticRegression(), epsilon=1, classes=2),
    LabelDPRegressor(Ridge(), epsilon=1, low=0, high=1),
]
SECRETS = {
    "text": lambda names: names,
    "pandas": pd.Series,
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "user list": UserList,
    "one column": lambda names: [[name] for name in names],
    "frame": lambda names: pd.DataFrame({"y": names}),
    "array of one column": lambda names: np.array(names)[:, None],
    "numbers": lambda names: 86_753 + numbers_of(names),
    "tuple of numbers": lambda names: tuple((86_753 + numbers_of(names)).tolist()),
    "ragged": lambda names: [[names[0], names[1]], *([name] for name in names[2:]), [names[2]]],
    "no array": lambda names: np.array({"y": names}, dtype=object),
    "range": lambda names: range(86_753, 86_753 + len(names)),
    "booleans": lambda names: numbers_of(names) > 1,
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("model", WRAPPERS, ids=lambda model: type(model).__name__)
def test_labels_in_the_place_of_features_are_not_quoted(kind, model):
    secret = SECRETS[kind](np.array([f"{MARKER} {name}" for name in labels()], dtype=object))
    with pytest.raises((ldp.InvalidArgument, TypeError)) as caught:
        model.fit(secret, np.arange(N) % 2)
    told = "".join(traceback.format_exception(caught.value))
    shown = [line for line in told.splitlines() if not line.startswith("  ")]  # what is said, not our source
    assert not any(word in " ".join(shown) for word in (MARKER, "86753", "86_753", "True", "False", "array="))


@pytest.mark.parametrize("name", ["named", 1, ("a", "b"), pd.Timestamp("2026-01-01"), pd.Period("2026-01")])
@pytest.mark.parametrize("given", ["column", "table", "sealed"])
def test_a_column_of_labels_that_is_among_the_features_is_found_by_its_name(name, given):
    y = pd.Series(np.arange(N) % 2, name=name)
    X = pd.DataFrame(dict.fromkeys(["other", name], y))
    vault = LabelVault(y, classes=2, budget="1")
    assert vault.column == name == vault.sealed()[1:].name
    with pytest.raises(ldp.InvalidArgument, match="X must not hold the labels"):
        private(GaussianNB()).fit(X, {"column": y, "table": y.to_frame(), "sealed": vault.sealed()}[given])
    assert str(vault.spent()) == "epsilon 0"


def in_a_vault(labels):
    return LabelVault(labels, classes=["no", "yes"], budget="1")


def in_a_classifier(labels):
    return private(GaussianNB(), classes=["no", "yes"]).fit(features(), labels)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("kind", ["table", "record"])
@pytest.mark.parametrize("receiver", [in_a_vault, in_a_classifier])
def test_labels_in_a_field_called_name_are_in_no_frame(kind, receiver):
    table = pd.DataFrame({"name": [MARKER] * N})
    with pytest.raises((ldp.InvalidArgument, ldp.InvalidLabels)) as caught:
        receiver(table if kind == "table" else table.to_records(index=False))
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    ours = [
        frame for frame in frames if "labeldp" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename
    ]
    assert ours and not any(MARKER in repr(value) for frame in ours for value in frame.f_locals.values())


def test_a_row_that_is_called_as_a_tables_columns_are_is_no_name():
    y = pd.Series(["yes", "no", "yes"], index=["columns", "name", "shape"])
    assert LabelVault(y, classes=["no", "yes"], budget="1").column is None


@pytest.mark.parametrize("model", WRAPPERS, ids=lambda model: type(model).__name__)
def test_a_text_among_numbers_is_found_before_labels_are_asked(model):
    secret = np.array(["0"] * 1500 + [MARKER] + ["1"] * 500, dtype=object)[:, None]
    vault = LabelVault(np.arange(2001) % 2, classes=2, budget="1")
    with pytest.raises(ldp.InvalidArgument) as caught:
        model.fit(secret, vault.sealed())
    assert MARKER not in str(caught.value) and str(vault.spent()) == "epsilon 0"


class Late:
    """Quotes what it has read, once labels have been asked."""

    vault = None

    def fit(self, X, y, sample_weight=None):
        if Late.vault.spent().epsilon != "0":
            raise ValueError(f"I have read {X}")
        return super().fit(X, y, sample_weight)


class LateClassifier(Late, LogisticRegression):
    pass


class LateRegressor(Late, Ridge):
    pass


@pytest.mark.parametrize(
    "model",
    [
        LabelDPClassifier(LateClassifier(), epsilon=1),
        LabelDPSearchCV(LabelDPClassifier(LateClassifier(), epsilon=1), {"estimator__C": [1.0]}),
        LabelDPRegressor(LateRegressor(), epsilon=1, low=0, high=1, assume_squared_error=True),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_single_column_is_not_quoted_by_what_fails_later_either(model):
    Late.vault = LabelVault(np.arange(N) % 2, classes=2, budget="1")
    column = np.full((N, 1), 86_753.0)
    with pytest.raises(ldp.InvalidArgument, match="cannot learn from these features") as caught:
        model.fit(column, Late.vault.sealed())
    assert "86753" not in "".join(traceback.format_exception(caught.value))
    assert str(Late.vault.spent()) == "epsilon 1"
