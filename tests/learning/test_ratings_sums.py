"""Ratings from a curator's sums: what is asked and charged, how pieces are cut, and what the model makes of the sums."""

import json

import numpy as np
import pytest

import labeldp as ldp
from labeldp.errors import BudgetExhausted, InvalidArgument, TrustError
from labeldp.features.pairs import pair_coordinates
from labeldp.learning import linear_ratings, ratings
from labeldp.learning.linear_ratings import Pieces
from labeldp.learning.ratings import RatingSums, codes

STARS = [1, 2, 3, 4, 5]
SIZES = (60, 40)


@pytest.fixture(scope="module")
def pairs():
    """Two circles of users, each of which mostly rates its own films."""
    rng = np.random.default_rng(0)
    found = np.argwhere(rng.random(SIZES) < 0.9)
    inside = found[:, 0] % 2 == found[:, 1] % 2
    return found[inside | (rng.random(len(found)) < 0.4)]


@pytest.fixture(scope="module")
def stars(pairs):
    """Ratings that are higher within a circle, and for later films."""
    inside = pairs[:, 0] % 2 == pairs[:, 1] % 2
    means = 3 + np.where(inside, 0.7, -0.7) + (pairs[:, 1] - 20) / 20
    return np.clip(np.rint(means + 0.4 * np.random.default_rng(1).standard_normal(len(pairs))), 1, 5).astype(int)


@pytest.fixture(scope="module")
def coordinates(pairs):
    return pair_coordinates(pairs, SIZES, 64)


@pytest.fixture
def vault(stars):
    return ldp.LabelVault(stars, classes=STARS, budget="2", trust="curator")


def test_two_rounds_of_sums_cost_epsilon_together(pairs, coordinates, vault):
    sums = RatingSums(coordinates, share=0.25).fit(pairs, vault, "2")
    assert str(vault.spent()) == "epsilon 2" and str(vault.remaining()) == "epsilon 0"
    assert [query["epsilon"] for query in vault.certificate()["queries"]] == ["0.5", "1.5"]
    assert [release.receipt.query for release in sums.sums_] == ["sums", "sums"]
    assert vault.certificate()["trust"] == "curator"


def test_every_row_is_in_one_piece_of_its_own_item(pairs, coordinates):
    groups = RatingSums(coordinates).groups(pairs, 1, size=7)
    assert set(groups) == set(range(groups.max() + 1))
    for piece in range(groups.max() + 1):
        assert len(np.unique(pairs[groups == piece, 1])) == 1
    counts = np.bincount(pairs[:, 1])
    parts = [len(np.unique(groups[pairs[:, 1] == item])) for item in range(SIZES[1])]
    assert parts == [max(1, round(count / 7)) for count in counts]
    assert np.ptp(np.bincount(groups)[groups[pairs[:, 1] == 0]]) <= 1  # even parts


def test_a_piece_holds_raters_who_are_alike(pairs, coordinates):
    groups = RatingSums(coordinates).groups(pairs, 1, size=len(pairs) / 80)
    mixed = [len(np.unique(pairs[groups == piece, 0] % 2)) == 2 for piece in range(groups.max() + 1)]
    assert np.mean(mixed) < 0.6
    assert codes(coordinates[0]).max() < 2**ratings.CODE_BITS


def test_pieces_may_be_larger_and_never_of_no_size(pairs, coordinates, stars):
    def asked(piece):
        vault = ldp.LabelVault(stars, classes=STARS, budget="2", trust="curator")
        return RatingSums(coordinates, piece=piece).fit(pairs, vault, "2").sums_

    fine, coarse = ([len(release.totals) for release in asked(piece)] for piece in (0.05, 1e9))
    assert fine[0] > coarse[0] == SIZES[1] and fine[1] > coarse[1] == SIZES[0]  # one an item, one a user
    vault = ldp.LabelVault(stars, classes=STARS, budget="2", trust="curator")
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidArgument, match="piece must be a number above 0"):
            RatingSums(coordinates, piece=wrong).fit(pairs, vault, "2")
    assert str(vault.spent()) == "epsilon 0"


def test_less_epsilon_makes_larger_pieces(pairs, coordinates, stars):
    def asked(epsilon):
        vault = ldp.LabelVault(stars, classes=STARS, budget=epsilon, trust="curator")
        return [len(release.totals) for release in RatingSums(coordinates).fit(pairs, vault, epsilon).sums_]

    assert asked("1") == [40, 60]  # all of an item, all of a user
    assert all(many > few for many, few in zip(asked("8"), asked("1"), strict=True))


def test_the_map_and_its_transpose_agree_with_a_slow_sum(pairs, coordinates):
    layout = linear_ratings._deviations(coordinates)
    rng = np.random.default_rng(2)
    for side in (0, 1):
        groups = RatingSums(coordinates).groups(pairs, side, size=9)
        pieces = Pieces.of(groups, pairs, side, coordinates)
        numbers = layout.like(rng.standard_normal(layout.flat().size))
        slow = np.zeros(groups.max() + 1)
        for group, (user, item) in zip(groups, pairs, strict=True):
            z, k = (coordinates[0][user], coordinates[1][item]), linear_ratings.SLOPES
            value = numbers.mean[0] + numbers.bias[0][user] + numbers.bias[1][item]
            value += z[0] @ numbers.shared[0] + z[1] @ numbers.shared[1] + z[0] @ numbers.cross @ z[1]
            slow[group] += value + numbers.slope[0][user] @ z[1][:k] + numbers.slope[1][item] @ z[0][:k]
        np.testing.assert_allclose(pieces.sums(numbers), slow, rtol=1e-8, atol=1e-8)
        weights = rng.standard_normal(len(slow))
        assert pieces.spread(weights).flat() @ numbers.flat() == pytest.approx(weights @ slow)
        diagonal = pieces.squared().spread(np.ones(len(slow))).flat()
        some = rng.choice(len(diagonal), 20, replace=False)
        columns = [pieces.sums(layout.like(np.eye(1, len(diagonal), place)[0])) for place in some]
        np.testing.assert_allclose(diagonal[some], [column @ column for column in columns], rtol=1e-6, atol=1e-9)


def test_it_learns_whose_films_are_liked(pairs, coordinates, stars):
    vault = ldp.LabelVault(stars, classes=STARS, budget="20", trust="curator", bits=ldp.InsecureBits(3))
    sums = RatingSums(coordinates).fit(pairs, vault, "20")
    predicted, inside = sums.predict(pairs), pairs[:, 0] % 2 == pairs[:, 1] % 2
    assert np.sqrt(np.mean((predicted - stars) ** 2)) < 0.8 * stars.std()
    assert predicted[inside].mean() > predicted[~inside].mean() + 0.5


def test_an_item_of_few_ratings_stays_nearer_to_what_is_expected(coordinates):
    pairs = np.array([[user % 60, 0] for user in range(300)] + [[user, 1] for user in range(5)])
    pairs = np.concatenate([pairs, [[user % 60, 2 + user % 38] for user in range(3000)]])
    stars = np.r_[np.full(305, 5), np.full(3000, 3)]
    vault = ldp.LabelVault(stars, classes=STARS, budget="2", trust="curator", bits=ldp.InsecureBits(5))
    bias = RatingSums((np.zeros((60, 10)), np.zeros((40, 10)))).fit(pairs, vault, "2").numbers_.bias[1]
    assert bias[0] > 1 and abs(bias[1]) < bias[0] / 2


def test_a_local_vault_is_asked_nothing(pairs, coordinates, stars):
    vault = ldp.LabelVault(stars, classes=STARS, budget="2")
    with pytest.raises(TrustError, match="curator"):
        RatingSums(coordinates).fit(pairs, vault, "2")
    assert str(vault.spent()) == "epsilon 0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.0}, "between 0 and 1"),
        ({"pairs": slice(1, None)}, "for each of"),
        ({"coordinates": 5}, "5 users"),
    ],
)
def test_what_cannot_be_fitted_costs_nothing(change, message, pairs, coordinates, vault):
    users = coordinates[0][: change.get("coordinates")]
    sums = RatingSums((users, coordinates[1]), share=change.get("share", 0.4))
    with pytest.raises(InvalidArgument, match=message):
        sums.fit(pairs[change.get("pairs", slice(None))], vault, "2")
    assert str(vault.spent()) == "epsilon 0"


def test_labels_that_are_no_numbers_are_not_added(pairs, coordinates, stars):
    vault = ldp.LabelVault([str(star) for star in stars], classes=list("12345"), budget="2", trust="curator")
    with pytest.raises(InvalidArgument, match="whole numbers"):
        RatingSums(coordinates).fit(pairs, vault, "2")
    assert str(vault.spent()) == "epsilon 0"


def test_a_budget_for_one_round_alone_is_not_spent(pairs, coordinates, stars):
    vault = ldp.LabelVault(stars, classes=STARS, budget="1.5", trust="curator")
    with pytest.raises(BudgetExhausted, match=r"need epsilon 2 for every row, and epsilon 1\.5 is left"):
        RatingSums(coordinates).fit(pairs, vault, "2")
    assert str(vault.spent()) == "epsilon 0"


def test_nothing_is_predicted_before_the_fit(pairs, coordinates):
    with pytest.raises(InvalidArgument, match="not been fitted"):
        RatingSums(coordinates).predict(pairs)


def test_a_round_that_was_answered_is_not_asked_again(pairs, coordinates, stars, tmp_path):
    ldp.create_ledger(tmp_path / "ledger", budget="2", n_rows=len(stars))

    def vault():
        return ldp.LabelVault(stars, classes=STARS, ledger=tmp_path / "ledger", trust="curator")

    def dies_before_the_second_is_stored(stage, release):
        if stage == "release-users":
            raise Killed

    with vault() as first, pytest.raises(Killed):
        RatingSums(coordinates).fit(
            pairs, first, "2", name="run", folder=tmp_path, answered=dies_before_the_second_is_stored
        )
    told = []
    turned = tuple(each * 1.001 for each in coordinates)  # another machine's bits: pieces follow from sides of medians
    with vault() as second:
        again = RatingSums(turned)
        again.fit(pairs, second, "2", name="run", folder=tmp_path, answered=lambda stage, _: told.append(stage))
        assert str(second.spent()) == "epsilon 2"
    assert told == ["release-users"]
    assert len(json.loads((tmp_path / "release-items.json").read_text())["receipt"]["ledger"]["hash"]) > 0


def test_sums_of_another_vault_are_refused(pairs, coordinates, stars, vault, tmp_path):
    RatingSums(coordinates).fit(pairs, vault, "2", folder=tmp_path)
    other = ldp.LabelVault(stars, classes=STARS, budget="2", trust="curator")
    with pytest.raises(InvalidArgument, match="not this vault's answer"):
        RatingSums(coordinates).fit(pairs, other, "2", folder=tmp_path)
    assert str(other.spent()) == "epsilon 0"


class Killed(Exception):
    """The process is gone."""


def killed_in_round(number, vault):
    """Let a vault answer the rounds before this one, and die when it is asked this one."""
    rounds, answer = iter(range(1, 3)), vault.sums

    def sums(*asked, **how):
        if next(rounds) == number:
            raise Killed
        return answer(*asked, **how)

    vault.sums = sums
    return vault


@pytest.fixture
def reopened(stars, tmp_path):
    """Open a vault on one ledger, of epsilon 2, as often as it is called."""
    ldp.create_ledger(tmp_path / "ledger", budget="2", n_rows=len(stars))
    return lambda: ldp.LabelVault(stars, classes=STARS, ledger=tmp_path / "ledger", trust="curator")


def queries(vault):
    return [query["query"] for query in vault.certificate()["queries"]]


@pytest.mark.parametrize("how", [{"folder": "run"}, {"name": "run"}, {"folder": "run", "name": "run"}])
def test_killed_between_the_rounds_the_first_is_free_and_the_second_is_asked(
    how, pairs, coordinates, reopened, tmp_path
):
    keeping = {key: tmp_path / value if key == "folder" else value for key, value in how.items()}
    with pytest.raises(Killed):
        RatingSums(coordinates).fit(pairs, killed_in_round(2, reopened()), "2", **keeping)
    vault = reopened()
    assert str(vault.spent()) == "epsilon 0.8"
    RatingSums(coordinates).fit(pairs, vault, "2", **keeping)
    assert str(vault.spent()) == "epsilon 2" and queries(vault) == ["sums", "sums"]


@pytest.mark.parametrize("how", [{}, {"name": "run"}, {"folder": "run"}, {"folder": "run", "name": "run"}])
def test_what_somebody_else_spent_is_missed_before_the_first_round(how, pairs, coordinates, reopened, tmp_path):
    vault = reopened()
    vault.release(ldp.RandomizedResponse("0.3"), rows=[5])
    keeping = {key: tmp_path / value if key == "folder" else value for key, value in how.items()}
    with pytest.raises(BudgetExhausted, match=r"need epsilon 2 for every row, and epsilon 1\.7 is left"):
        RatingSums(coordinates).fit(pairs, vault, "2", **keeping)
    assert queries(vault) == ["release"]


def test_pieces_that_somebody_left_in_the_folder_are_not_believed(pairs, coordinates, stars, vault, tmp_path):
    np.savez_compressed(tmp_path / "pieces-items.npz", groups=stars - 1)  # by label: their sums would tell labels
    items, _ = RatingSums(coordinates).fit(pairs, vault, "2", folder=tmp_path).sums_
    assert len(items.totals) >= SIZES[1]
    assert all(len(np.unique(pairs[items.groups == piece, 1])) == 1 for piece in range(len(items.totals)))


def test_sums_over_other_pieces_are_refused_before_anything_is_asked(pairs, coordinates, stars, tmp_path):
    vault = ldp.LabelVault(stars, classes=STARS, budget="20", trust="curator")
    RatingSums(coordinates).fit(pairs, vault, "2", folder=tmp_path)
    for file in tmp_path.glob("release-items*"):
        file.unlink()
    vault.sums(stars * 0, low=1, high=5, epsilon="1.2").save(tmp_path / "release-users")  # one piece of all
    with pytest.raises(InvalidArgument, match=r"the release-users in .* is not this vault's answer"):
        RatingSums(coordinates).fit(pairs, vault, "2", folder=tmp_path)
    assert len(queries(vault)) == 3


def test_coordinates_need_no_more_things_than_there_are():
    users, items = pair_coordinates(np.array([[0, 0], [2, 1]]), (4, 3), 16)
    assert users.shape == (4, 18) and items.shape == (3, 18)
    assert np.isfinite(users).all() and np.isfinite(items).all()
    assert (users[:, 3:16] == 0).all()
