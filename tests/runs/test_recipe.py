"""A recipe goes through TOML and comes back as it was; what is wrong with one is said by its key."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp import datasets
from labeldp.errors import InvalidArgument
from labeldp.runs import Recipe, learners, recipe, specs
from labeldp.runs.families import SKLEARN_MODELS, means_nothing
from labeldp.runs.plans import Prior, ReleasePlan, Student, Table, Training
from labeldp.runs.recipe import MECHANISMS

LEAST = Recipe(data="digits", model="linear", epsilon="2")

TABLE = Recipe(data="people.csv", model="boosting", epsilon="1", table=Table("income", ("low", "high")))

numbers = st.floats(min_value=-1e300, max_value=1e300)
texts = st.text(st.characters(exclude_categories=["Cs"]))
kinds = {
    "str": texts,
    "str | None": st.none() | texts,
    "int": st.integers(),
    "int | None": st.none() | st.integers(),
    "float": numbers,
    "float | None": st.none() | numbers,
    "bool": st.booleans(),
    "int | tuple[str, ...]": st.integers() | st.lists(texts, max_size=3).map(tuple),
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
    "tuple[float, ...] | None": st.none() | st.lists(numbers, max_size=3).map(tuple),
}


def of(kind, **given_values):
    """Return any value of a dataclass of settings."""
    values = {item.name: kinds[str(item.type)] for item in fields(kind) if item.name not in given_values}
    return st.builds(kind, **values, **given_values)


@st.composite
def recipes(draw):
    own_file, part = draw(st.booleans()), draw(st.sampled_from([None, "part", "all"]))
    stages = st.just(0) if part == "all" else st.integers(1, 3)
    release = draw(of(ReleasePlan, mechanism=st.sampled_from(sorted(MECHANISMS)), stages=stages))
    features = st.sampled_from(["arrays:a.npy,b.npy", "arrays:it's=.npy"])
    features = (
        features
        if own_file
        else features
        | st.sampled_from(
            ["patches", "byol:epochs=3,backbone=small-conv", "patches:pool=2 + simclr:epochs=3,flip=true"]
        )
    )
    whole = {"count": st.none() | st.integers(1), "components": st.integers(1)}
    whole["shares"] = st.sampled_from([None, "smoothed", "normalised"])
    prior = of(Prior, epsilon=st.just("1e-12" if part == "part" else None), features=st.none() | features, **whole)
    where = {
        "features": features if own_file and part else st.none() | features,
        "prior": st.none() if part is None else prior,
        "data": texts.map(lambda name: f"{name}.csv") if own_file else st.sampled_from(["digits", "fair", 'a"b']),
        "table": of(Table) if own_file else st.none(),
        "model": st.sampled_from(SKLEARN_MODELS) if own_file else st.sampled_from(["linear", "it's", *SKLEARN_MODELS]),
    }
    where = {key: st.just(draw(values)) for key, values in where.items()}
    own_arrays = own_file or (draw(where["features"]) or "").startswith("arrays")
    precision = st.sampled_from([None, "float32", "bfloat16"])
    losses = st.sampled_from([None, "posterior"] if part else [None, "posterior", "likelihood"])
    first = st.none() | st.integers(1, release.stages - 1) if release.stages > 1 else st.none()
    own = {"precision": precision, "share": st.none() | st.floats(0, 1), "first": first}
    own["loss"] = st.just(loss := draw(losses))
    smoothing = st.none() | st.floats(0, 0 if loss == "likelihood" else 0.9)
    own |= {"shift": st.none() | st.integers(0, 3), "smoothing": smoothing}
    student = st.none() | of(Student, model=st.sampled_from(["tiny-conv", "it's"]), rounds=st.integers(1), **own)
    mixup = numbers | st.tuples(*[numbers] * max(release.stages, 1))
    idle = {item.name for item in fields(Training) if means_nothing(draw(where["model"]), item.name)}
    idle_values = {item.name: st.just(item.default) for item in fields(Training) if item.name in idle}
    bag_rounds = st.none() | (st.just(0) if part is None else st.integers(0))
    own = {"mixup": mixup, "bag_rounds": bag_rounds, "precision": precision, "learn_counts": st.none()}
    training = of(Training, **(own | idle_values))
    units = draw(st.integers(2, 20 * 10**12))
    epsilon = st.just(f"{units // 10**12}.{units % 10**12:012d}")
    where["student"] = st.none() if own_arrays else student
    where["sums"] = st.none()
    own_inputs = draw(where["features"]) is None and draw(where["model"]) not in SKLEARN_MODELS
    where["init"] = st.none() | st.just("mnist") if own_inputs else st.none()
    return draw(of(Recipe, epsilon=epsilon, release=st.just(release), training=training, **where))


@given(recipes())
def test_a_recipe_comes_back_from_toml_as_it_was(given_recipe):
    text = given_recipe.toml()
    again = Recipe.parse(text)
    assert again == given_recipe and again.toml() == text


@given(recipes(), recipes())
def test_any_recipe_can_be_changed_into_any_other_of_the_same_absent_values(first, second):
    values = asdict(second)
    values["training"] = {key: each for key, each in values["training"].items() if not means_nothing(second.model, key)}
    flat = {
        f"{table}.{key}": value
        for table in ("table", "prior", "sums", "release", "training", "student")
        for key, value in (values.pop(table) or {}).items()
    }
    absent = {table: None for table in ("table", "prior", "sums", "student") if getattr(second, table) is None}
    changes = absent | values | flat
    assert first.changed(changes) == second


def test_the_whole_recipe_is_written():
    values = tomllib.loads(LEAST.toml())
    absent = {
        "rows",
        "about",
        "features",
        "table",
        "prior",
        "student",
        "sums",
        "init",
        "split",
        "averaging",
        "filter",
        "precision",
    }  # None, which TOML has not
    absent |= {"rounds", "folds", "bag_rounds", "learn_counts"}  # of the other models, and of counts of clusters
    assert {*values, *values["release"], *values["training"]} | absent == {
        item.name for kind in (Recipe, ReleasePlan, Training) for item in fields(kind)
    }
    values = tomllib.loads(TABLE.toml())
    assert values["training"] == {"warm_start": True, "rounds": 5, "folds": 3}
    assert values["table"] == {"label": "income", "classes": ["low", "high"], "drop": []}


@pytest.mark.parametrize("epsilon", ["2", 2, 2.0, "2.000"])
def test_an_epsilon_may_be_a_number_or_its_text(epsilon):
    assert Recipe.of({"data": "digits", "model": "linear", "epsilon": epsilon}) == LEAST


def test_whole_numbers_pass_for_others_and_lists_for_tuples():
    changed = LEAST.changed({"training.learning_rate": 1, "training.mixup": [4, 1], "release.split": [0.5, 0.5]})
    assert changed.training.learning_rate == 1.0 and isinstance(changed.training.learning_rate, float)
    assert (changed.training.mixup, changed.release.split) == ((4.0, 1.0), (0.5, 0.5))
    assert [changed.mixup(stage) for stage in range(2)] == [4.0, 1.0] and LEAST.mixup(1) == 0.0


@pytest.mark.parametrize(
    ("given_precision", "used"), [({}, "float32"), ({"training.precision": "bfloat16"}, "bfloat16")]
)
def test_every_stage_is_trained_in_the_precision_of_the_recipe(given_precision, used):
    digits = datasets.load("digits")
    nets = learners.learners_of(LEAST.changed({"model": "tiny-conv"} | given_precision), digits, None)
    assert [net.precision for net in nets] == [used, used]


def test_what_a_prior_takes_settles_the_stages():
    everything = LEAST.changed({"release.stages": 0, "prior.components": 8})
    assert Recipe.parse(START + "[prior]\ncomponents = 8") == everything
    assert Recipe.parse(START + '[prior]\nepsilon = "2.0"').release.stages == 0
    part = Recipe.parse(START + "[prior]\nepsilon = 0.5")
    assert (part.prior, part.release.stages) == (Prior(epsilon="0.5"), 1)
    assert Recipe.parse(START + "[prior]\nepsilon = 0.5\n[release]\nstages = 3").release.stages == 3


def test_rounds_on_counts_are_settled_by_whether_there_is_more_to_learn_from():
    everything, part = (Recipe.parse(START + f"[prior]\nepsilon = {epsilon}") for epsilon in (2, 0.5))
    assert (everything.training.bag_rounds, part.training.bag_rounds, LEAST.training.bag_rounds) == (3, 0, None)
    assert [tomllib.loads(each.toml())["training"]["bag_rounds"] for each in (everything, part)] == [3, 0]
    given_rounds = Recipe.parse(START + "[prior]\n[training]\nbag_rounds = 0")
    assert given_rounds.training.bag_rounds == 0 and Recipe.parse(given_rounds.toml()) == given_rounds
    assert given_rounds.other_releases_than(everything) == ["prior.epsilon"]  # None and all of it; rounds are free
    assert everything.changed({"training.bag_rounds": 7, "model": "forest"}).other_releases_than(everything) == []


def test_whether_counts_are_learned_from_is_free_to_change():
    learned = Recipe.parse(START + "[prior]\nepsilon = 0.5")
    prior_alone = learned.changed({"training.learn_counts": False})
    assert prior_alone.other_releases_than(learned) == [] and Recipe.parse(prior_alone.toml()) == prior_alone
    assert "learn_counts" not in learned.toml()


def test_a_prior_defines_the_releases_and_features_of_the_model_do_not():
    first = Recipe.parse(START + "[prior]\nepsilon = 0.5")
    assert first.changed({"features": "patches", "model": "mlp"}).other_releases_than(first) == []
    for key, value in (("epsilon", "0.25"), ("count", 3), ("features", "patches"), ("components", 2)):
        assert first.changed({f"prior.{key}": value}).other_releases_than(first) == [f"prior.{key}"]
    assert first.changed({"prior": None}).other_releases_than(first) == ["prior"]


START = 'data = "digits"\nmodel = "linear"\nepsilon = "2"\n'

WRONG = [
    ("", "the recipe must say data, model, epsilon."),
    ('data = "digits"\nmodel = "linear"', "the recipe must say epsilon."),
    (START + "epochs = 3", "the recipe knows no 'epochs'. It knows: data, model,"),
    (START + "[training]\nepoch = 3", "[training] knows no 'epoch'. Did you mean 'epochs'? It knows: loss, epochs,"),
    (START + "[release]\nepochs = 3", "[release] knows no 'epochs'. It knows: mechanism,"),
    (START + "[releases]\nstages = 3", "the recipe knows no 'releases'"),
    (START + "release = 3", "[release] must be a table."),
    (START + 'prior = "clusters"', "[prior] must be a table."),
    (START + 'features = "patches"\ntraining = 3', "[training] must be a table."),
    (START + "[prior]\nkind = 3", "[prior] knows no 'kind'. It knows: epsilon, count, features, components, shares."),
    (
        START + "[prior]\nepsilon = 3",
        "prior.epsilon must be at most the run's epsilon (2), of which it is a part; got 3.",
    ),
    (START + "[prior]\nepsilon = 0", "prior.epsilon must be"),
    (START + "[prior]\ncount = 0", "prior.count must be"),
    (START + "[prior]\nfeatures = 'patch'", "prior.features must be one of patches, byol, simclr, pretrained, arrays"),
    (START + "[prior]\n[release]\nstages = 1", "release.stages must be 0 where [prior] takes all of epsilon"),
    (START + "[prior]\nepsilon = 1\n[release]\nstages = 0", "at least 1 where it takes a part; got 0 stages"),
    (START + "[training]\nbag_rounds = 2", "training.bag_rounds are of counts of clusters: give --prior clusters"),
    (START + "[prior]\n[training]\nbag_rounds = -1", "training.bag_rounds must be"),
    (
        START + "[training]\nlearn_counts = false",
        "training.learn_counts is of counts of clusters: give --prior clusters",
    ),
    (START + "[prior]\n[training]\nlearn_counts = false", "is for counts that are the prior of a stage"),
    (
        START + "[prior]\nepsilon = 0.5\n[training]\nlearn_counts = false\nbag_rounds = 1",
        "give [prior] a part of epsilon, and no training.bag_rounds.",
    ),
    (START + "features = 'pathces'", "got 'pathces'. Did you mean 'patches'?"),
    (START + "features = 'patches:pach=6'", "patches knows no setting 'pach=6'. It knows patch, centroids, pool"),
    (START + "features = 'patches:mirror=yes'", "mirror of patches must be true or false, got 'yes'."),
    (START + "features = 'patches:patch=six'", "patch of patches must be a whole number, got 'six'."),
    (START + "features = 'arrays'", "features must be like 'arrays:TRAIN.npy,TEST.npy', got 'arrays'."),
    (START + "features = 'arrays:a.npy,b.npy,c.npy'", "arrays knows no setting 'c.npy'. It takes no settings"),
    (START + "features = 'pretrained:vit-small-16'", "features must be like 'pretrained:vit-small-16,weights.pth'"),
    (START + "[training]\nepochs = 1.5", "[training]: epochs must be a whole number, got 1.5."),
    (START + "[training]\nepochs = true", "[training]: epochs must be a whole number, got True."),
    (START + "[training]\nflip = 1", "[training]: flip must be true or false, got 1."),
    (
        START + '[training]\nmixup = "much"',
        "[training]: mixup must be a finite number or a list of numbers, got 'much'.",
    ),
    (START + "[training]\nmixup = [1.0]", "mixup must be one number, or one per stage (2)."),
    (START + '[training]\nmixup = [1.0, "a"]', "[training]: mixup must be a finite number, got 'a'."),
    (START + "[training]\nlearning_rate = inf", "learning_rate must be a finite number, got inf."),
    (START + "[training]\nlearning_rate = nan", "learning_rate must be a finite number, got nan."),
    (START + f"[training]\nlearning_rate = 1{'0' * 400}", "learning_rate must be a finite number"),
    (
        START + '[training]\nprecision = "float16"',
        "training.precision must be one of 'float32', 'bfloat16'",
    ),
    (START + "[training]\nloss = 3", "[training]: loss must be text, got 3."),
    (START + "seed = 1979-05-27", "seed must be a whole number"),
    (START + "[release]\nsplit = 0.5", "[release]: split must be a list of numbers, got 0.5."),
    (START + '[release]\nmechanism = "RR"', "mechanism must be one of 'RandomizedResponse', 'RRWithPrior', "),
    (START.replace('"2"', "true"), "epsilon must be"),
    (START.replace('"2"', '"much"'), "epsilon must be a finite number, got much."),
    (START.replace('"2"', "-1"), "epsilon must be > 0"),
    (START.replace('"2"', "nan"), "epsilon must be a finite number"),
    (START.replace('"digits"', "7"), "the recipe: data must be text, got 7."),
    ("data = ", "the recipe is not TOML: "),
    (START + '[table]\nlabel = "a"\nclasses = 2', "'digits' is a dataset's name, which needs none of them"),
    (START.replace("digits", "a.csv"), "the file a.csv needs its label column and its classes: --label and --classes"),
    (START.replace("digits", "a.csv") + '[table]\nlabel = "a"', "[table] must say classes."),
    (START.replace("digits", "a.csv") + "[table]\nclasses = 2", "[table] must say label."),
    (
        START.replace("digits", "a.csv") + '[table]\nlabel = "a"\nclasses = 2.5',
        "classes must be a whole number or a list of names",
    ),
    (
        START.replace("digits", "a.csv") + '[table]\nlabel = "a"\nclasses = 2',
        "got 'linear'. Other models do not read tables.",
    ),
    (
        START.replace("linear", "forest") + "[training]\nepochs = 15",
        "training.epochs means nothing to forest: leave it out.",
    ),
    (
        START + "[training]\nrounds = 5",
        "training.rounds means nothing to linear: leave it out. It knows training.loss, ",
    ),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_is_wrong_is_said_by_its_key(text, words):
    with pytest.raises(InvalidArgument) as wrong:
        Recipe.parse(text)
    assert words in str(wrong.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.epoch": 3}, "[training] knows no 'epoch'"),
        ({"data.rows": 3}, "there is no data.rows in a recipe: data is a value, not a table."),
        ({"a.b.c": 3}, "knows no 'a.b'"),
        ({"": 3}, "knows no ''"),
        ({"release": 3}, "[release] must be a table"),
    ],
)
def test_a_change_is_checked_too(changes, words):
    with pytest.raises(InvalidArgument) as wrong:
        LEAST.changed(changes)
    assert words in str(wrong.value)


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path):
    file = tmp_path / "mine.toml"
    with pytest.raises(InvalidArgument, match=r"there is no recipe at .*mine\.toml"):
        Recipe.read(file)
    file.write_text("epsilon = 1")
    with pytest.raises(InvalidArgument, match=r"mine\.toml must say data, model"):
        Recipe.read(file)
    file.write_bytes('about = "à"'.encode("latin-1"))
    with pytest.raises(InvalidArgument, match=r"mine\.toml is not TOML: it is not text in UTF-8"):
        Recipe.read(file)


@pytest.mark.parametrize("file", sorted(Path(recipe.__file__).parents[3].glob("recipes/*.toml")), ids=lambda f: f.name)
def test_the_recipes_of_this_repository_can_be_read(file):
    assert Recipe.parse(Recipe.read(file).toml()) == Recipe.read(file)


def test_what_defines_the_releases_is_told_from_the_rest():
    other = LEAST.changed({"epsilon": "1", "rows": 9, "release.stages": 1, "model": "mlp", "seed": 3})
    assert other.other_releases_than(LEAST) == ["rows", "epsilon", "release.stages"]
    assert LEAST.changed({"model": "mlp", "seed": 3, "training.epochs": 1}).other_releases_than(LEAST) == []


def test_of_a_table_the_label_the_classes_and_the_features_define_the_releases_and_the_public_test_does_not():
    changes = {
        "table.label": "job",
        "table.classes": 3,
        "table.id": "i",
        "table.drop": ["x"],
        "table.missing": "public",
    }
    for key, value in changes.items():
        assert TABLE.changed({key: value}).other_releases_than(TABLE) == [key]
    assert TABLE.changed({"table.public_test": "test.csv", "model": "forest"}).other_releases_than(TABLE) == []


def test_stages_and_hold_out_are_what_suits_the_data_unless_they_are_said():
    plans = [LEAST.release, TABLE.release, TABLE.changed({"data": "a.csv", "release.hold_out": 0.0}).release]
    assert [(plan.stages, plan.hold_out) for plan in plans] == [(2, 0.02), (1, 0.2), (1, 0.0)]
    many = Recipe(data="a.PARQUET", model="forest", epsilon="1", table=Table("job", 3))
    assert (many.release.stages, many.release.hold_out) == (2, 0.2)
    assert Recipe(data="fair", model="forest", epsilon="1").release.stages == 1  # it has two classes
    assert Recipe(data="anes96-party", model="forest", epsilon="1").release.stages == 2


def test_settings_of_the_other_library_go_with_the_model_and_are_refused_where_they_mean_nothing():
    tuned = LEAST.changed({"training.epochs": 3, "training.warm_start": False})
    other = tuned.changed({"model": "forest", "training.rounds": 2})
    assert (other.training.epochs, other.training.rounds, other.training.warm_start) == (15, 2, False)
    assert other.changed({"model": "linear"}) == LEAST.changed({"training.warm_start": False})
    with pytest.raises(InvalidArgument, match=r"training\.epochs means nothing to forest"):
        tuned.changed({"model": "forest", "training.epochs": 15})
    with pytest.raises(InvalidArgument, match=r"training\.rounds means nothing to linear"):
        Recipe(data="digits", model="linear", epsilon="2", training=Training(rounds=3))


def test_on_features_torch_models_learn_by_adam_unless_told_otherwise():
    plain = {"data": "digits", "model": "linear", "epsilon": "1"}
    on_features = Recipe.of({**plain, "features": "patches", "training": {"epochs": 3}})
    assert (on_features.training.optimizer, on_features.training.epochs) == ("adam", 3)
    assert Recipe.of(plain).training.optimizer == "sgd"
    assert Recipe.parse(on_features.toml()) == on_features
    assert Recipe.of({**plain, "model": "logistic", "features": "patches"}).training.optimizer == "sgd"


def test_a_setting_of_features_is_said_once():
    with pytest.raises(InvalidArgument, match="must say each setting once, got 'patches:patch=4,patch=5'"):
        specs.parse("patches:patch=4,patch=5")
