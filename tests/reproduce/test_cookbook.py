"""Packaged recipes are whole, say what they promise and how they were chosen, and mistakes in one are told plainly."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from labeldp.datasets import names as datasets
from labeldp.errors import InvalidArgument
from labeldp.report import published
from labeldp.reproduce import find, recipes_of, tables
from labeldp.reproduce.cookbook import hash_of, read
from labeldp.reproduce.sheets import targets

PACKAGED = [entry for table in tables() for entry in recipes_of(table)]
IMAGES = ("mnist", "fashion-mnist", "kmnist", "cifar-10", "cifar-100")


def named(entry):
    return f"{entry.table}/{entry.name}"


@pytest.mark.parametrize("entry", PACKAGED, ids=named)
def test_a_packaged_recipe_states_its_trust_model_and_how_it_was_chosen(entry):
    curators = {entry.at(e).prior is not None or entry.at(e).sums is not None for e in entry.epsilons}
    assert curators == {entry.trust == "curator"}
    assert entry.trust in ("local", "curator") and f"Trust model: {entry.trust}" in entry.about
    assert "chosen" in entry.about and entry.data in datasets()
    assert entry.table in (entry.data, "ssl-prior")


def test_every_dataset_of_the_paper_has_the_papers_two_recipes_and_images_have_ours():
    assert tables() == (*IMAGES, "movielens-1m", "ssl-prior")
    for table in (*IMAGES, "movielens-1m"):
        assert {"paper-1st", "paper-2st"} <= {entry.name for entry in recipes_of(table)}
    for table in IMAGES:
        assert {"best-local", "best-curator"} <= {entry.name for entry in recipes_of(table)}


@pytest.mark.parametrize("entry", [e for e in PACKAGED if e.name in ("paper-1st", "paper-2st")], ids=named)
def test_the_papers_recipes_cover_the_epsilons_of_its_tables(entry):
    points = published.POINTS[published.known(entry.data)]
    method = published.ONE_STAGE if entry.name == "paper-1st" else published.TWO_STAGES
    assert set(entry.epsilons) == set(points[method])
    recipe = entry.at(entry.epsilons[0])
    assert (recipe.release.stages, recipe.training.loss) == (1 if entry.name == "paper-1st" else 2, "noisy-label")


@pytest.mark.parametrize("trust", ["local", "curator"])
@pytest.mark.parametrize("table", ["mnist", "fashion-mnist", "cifar-10", "movielens-1m"])
def test_our_recipes_cover_the_epsilons_that_have_a_target(table, trust):
    (entry,) = find(table, [f"best-{trust}"])
    assert set(targets(table, trust)) <= set(entry.epsilons)


@pytest.mark.parametrize("trust", ["local", "curator"])
@pytest.mark.parametrize("table", ["mnist", "kmnist"])
def test_our_recipes_never_mirror_digits(table, trust):
    (entry,) = find(table, [f"best-{trust}"])
    for epsilon in entry.epsilons:
        recipe = entry.at(epsilon)
        assert not recipe.training.flip and not (recipe.student and recipe.student.flip)
        assert "mirror" not in (recipe.features or "")


def test_what_is_said_at_an_epsilon_holds_there_alone(write):
    entry = write()
    assert [entry.at(epsilon).training.epochs for epsilon in ("1", "2", "3")] == [2, 1, 2]
    assert entry.at("2.0").training.epochs == 1 and entry.at("2").training.batch_size == 64
    assert entry.epsilons == ("1", "2") and entry.at("3").epsilon == "3"


def test_a_recipe_without_a_list_is_for_its_one_epsilon(write):
    entry = write('data = "digits"\nmodel = "linear"\nepsilon = "0.50"\n')
    assert entry.epsilons == ("0.5",) and entry.trust is None


def test_the_hash_knows_every_setting_and_no_words(write):
    first, other = write(), write().values
    assert hash_of(first.at("1")) == hash_of(write(write_text(about='"Other words."')).at("1"))
    assert hash_of(first.at("1")) != hash_of(write(write_text(epochs="3")).at("1"))
    assert len({hash_of(first.at("1")), hash_of(first.at("2")), hash_of(first.at("1", rows=100))}) == 3
    assert other["about"] == "Quick."


def write_text(*, about='"Quick."', epochs="2"):
    return f"""trust = "local"
data = "digits"
model = "linear"
epsilons = ["1", "2"]
rows = 200
about = {about}
[training]
epochs = {epochs}
batch_size = 64
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('data = "digits"\nmodel = "linear"\n', "must say epsilons"),
        ('data = "digits"\nmodel = "linear"\nepsilons = "1"\n', "must say epsilons"),
        ('data = "digits"\nmodel = "linear"\nepsilons = ["-1"]\n', "epsilons must be > 0"),
        (
            'data = "digits"\nmodel = "linear"\nepsilons = ["1"]\n[at."2".training]\nepochs = 1\n',
            "at speaks of epsilon 2, which epsilons does not list",
        ),
        ('data = "digits"\nmodel = "linear"\nepsilons = ["1"]\nat = 3\n', "a table per epsilon"),
        ('data = "digits"\nmodel = "linear"\nepsilons = ["1"]\ntrust = "me"\n', "trust must be one of"),
        ('data = "digits"\nmodel = "linear"\nepsilons = ["1"]\nepoch = 3\n', "knows no 'epoch'"),
        ('data = "digits"\nmodel = "linear"\nepsilons = ["1"]\n[at."1".training]\nepoch = 1\n', "knows no 'epoch'"),
        ("epsilons = ", "is not TOML"),
        ('data = "digits"\nmodel = "linear"\nepsilons = ["1"]\ntrust = "curator"\n', 'must be "local".*got "curator"'),
        (
            'data = "digits"\nmodel = "linear"\nepsilons = ["1"]\ntrust = "local"\n[prior]\ncount = 5\n',
            'trust must be "curator" at epsilon 1, got "local"',
        ),
        (
            'data = "digits"\nmodel = "linear"\nepsilons = ["1", "2"]\ntrust = "local"\n[at."2".prior]\ncount = 5\n',
            'trust must be "curator" at epsilon 2, got "local"',
        ),
        (
            'data = "movielens-1m"\nmodel = "rating-sums"\nepsilons = ["1"]\ntrust = "local"\nrelease.hold_out = 0.0\n[sums]\n',
            'trust must be "curator" at epsilon 1, got "local"',
        ),
    ],
)
def test_a_mistake_in_a_recipe_is_told(write, text, says):
    with pytest.raises(InvalidArgument, match=says):
        write(text)


def test_a_file_of_ones_own_is_never_taken_for_a_packaged_one(write, tmp_path):
    assert write(name="best-local").name == "own:best-local"
    packaged = Path(str(files("labeldp.reproduce") / "recipes"))
    assert read(packaged / "mnist" / "best-local.toml", "mnist").name == "best-local"
    assert read(packaged / "kmnist" / "best-local.toml", "mnist").name == "own:best-local"  # it is another table's
    way_out = packaged / "mnist" / "/".join([".."] * 30) / str(tmp_path).lstrip("/") / "best-local.toml"
    assert read(way_out, "mnist").name == "own:best-local"
    (entry,) = find("mnist", [str(tmp_path / "best-local.toml")])
    assert entry.name == "own:best-local" and entry.named == str(tmp_path / "best-local.toml")


def test_a_file_of_data_that_another_table_is_of_is_refused(tmp_path):
    file = tmp_path / "mine.toml"
    text = '{}model = "linear"\nepsilons = ["1", "2"]\n'
    file.write_text(text.format('data = "mnist"\n'))
    assert [entry.data for entry in find("mnist", [str(file)])] == ["mnist"]
    with pytest.raises(
        InvalidArgument, match=r"is of mnist, and .* of fashion-mnist: labeldp reproduce mnist --recipe "
    ):
        find("fashion-mnist", [str(file)])
    with pytest.raises(InvalidArgument, match="ssl-prior is of cifar-10 and fashion-mnist"):
        find("ssl-prior", [str(file)])
    file.write_text(text.format('data = "mnist"\n') + '[at."2"]\ndata = "kmnist"\n')
    with pytest.raises(InvalidArgument, match="is of kmnist, and the table mnist is of mnist"):
        find("mnist", [str(file)])
    for data in ("cifar-10", "fashion-mnist", "digits"):  # the last has no table
        file.write_text(text.format(f'data = "{data}"\n'))
        assert [entry.data for entry in find("ssl-prior", [str(file)])] == [data]


def test_an_unknown_name_is_met_with_those_that_are_close():
    with pytest.raises(InvalidArgument, match=r"no table 'fashion_mnist'.* Did you mean fashion-mnist"):
        recipes_of("fashion_mnist")
    with pytest.raises(
        InvalidArgument, match=r"no recipe of mnist 'best'.*There are: best-curator.*Did you mean best-"
    ):
        find("mnist", ["best"])
    with pytest.raises(
        InvalidArgument, match=r"no recipe at nowhere\.toml\. The packaged ones of mnist .* best-local, "
    ):
        find("mnist", ["nowhere.toml"])


def test_by_default_it_is_our_local_recipe():
    assert [entry.name for entry in find("mnist")] == ["best-local"]
    assert [entry.name for entry in find("ssl-prior")] == ["paper-ssl-prior-small"]
