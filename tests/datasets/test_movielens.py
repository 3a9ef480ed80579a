import numpy as np
import pytest
from published import everything_said, shows

import labeldp as ldp
from labeldp import datasets
from labeldp.datasets.movielens import EDITIONS, SPLIT_SEED

USERS, ITEMS, RATINGS = [1, 6040, 23, 7, 7, 7, 100], [3952, 1, 45, 6, 7, 999, 3], [5, 1, 3, 4, 2, 5, 1]


def write_1m(root, text):
    (root / "ml-1m").mkdir(exist_ok=True)
    (root / "ml-1m" / "ratings.dat").write_bytes(text if isinstance(text, bytes) else text.encode("latin1"))
    return root


def lines(separator, *columns, end="\n"):
    return "".join(separator.join(map(str, row)) + end for row in zip(*columns, strict=True))


def in_published_order(data):
    """Return (user, item, class number) of both splits, in the order of the file."""
    rows = np.concatenate([data.X, data.X_test])
    numbers = np.concatenate([data.unprotected().label_numbers, data.test_labels])
    order = np.random.RandomState(SPLIT_SEED).permutation(len(rows))
    return np.column_stack([rows, numbers])[np.argsort(order)]


EXPECTED = np.column_stack([np.array(USERS) - 1, np.array(ITEMS) - 1, np.array(RATINGS) - 1])
TIMES = [978300760, 0, 1, 978300762, 5, 6, 12345678901]


@pytest.mark.parametrize(
    "text",
    [
        lines("::", USERS, ITEMS, RATINGS, TIMES),
        lines("::", USERS, ITEMS, RATINGS, [0] * 7),
        lines("::", USERS, ITEMS, RATINGS),
        lines("::", USERS, ITEMS, RATINGS).rstrip("\n"),
        lines("::", USERS, ITEMS, RATINGS, TIMES, end="\r\n"),
    ],
    ids=["timestamps", "zeros", "none", "no last newline", "windows"],
)
def test_ratings_are_read_with_and_without_timestamps(tmp_path, text):
    data = datasets.load("movielens-1m", data_dir=write_1m(tmp_path, text))
    assert np.array_equal(in_published_order(data), EXPECTED)
    assert data.X.shape == (6, 2) and data.X_test.shape == (1, 2)
    assert data.X.dtype == data.X_test.dtype == data.test_labels.dtype == np.int64
    assert data.classes == (1, 2, 3, 4, 5) and data.inputs == {"kind": "ids", "sizes": [6040, 3952]}


def test_100k_is_read(tmp_path):
    (tmp_path / "ml-100k").mkdir()
    users = [min(user, 943) for user in USERS]
    items = [min(item, 1682) for item in ITEMS]
    (tmp_path / "ml-100k" / "u.data").write_text(lines("\t", users, items, RATINGS, TIMES))
    data = datasets.load("movielens-100k", data_dir=tmp_path)
    assert np.array_equal(in_published_order(data), np.column_stack([users, items, RATINGS]) - 1)
    assert data.inputs == {"kind": "ids", "sizes": [943, 1682]}


def test_the_published_id_ranges_are_these():
    assert {name: (e.n_users, e.n_items) for name, e in EDITIONS.items()} == {
        "movielens-1m": (6040, 3952),
        "movielens-100k": (943, 1682),
    }


def test_the_parser_agrees_with_a_slow_one(tmp_path):
    rng = np.random.default_rng(5)
    columns = [rng.integers(1, top + 1, 2000).tolist() for top in (6040, 3952, 5, 10**9)]
    data = datasets.load("movielens-1m", data_dir=write_1m(tmp_path, lines("::", *columns)))
    slow = [[int(field) - 1 for field in row[:3]] for row in zip(*columns, strict=True)]
    assert in_published_order(data).tolist() == slow
    assert (data.n_rows, len(data.X_test)) == (1600, 400)


def test_the_split_does_not_look_at_ratings(tmp_path):
    one = datasets.load("movielens-1m", data_dir=write_1m(tmp_path, lines("::", USERS, ITEMS, RATINGS)))
    other = datasets.load("movielens-1m", data_dir=write_1m(tmp_path, lines("::", USERS, ITEMS, RATINGS[::-1])))
    assert np.array_equal(one.X, other.X) and np.array_equal(one.X_test, other.X_test)


def test_the_certificate_says_what_one_user_may_lose(tmp_path):
    data = datasets.load("movielens-1m", data_dir=write_1m(tmp_path, lines("::", USERS, ITEMS, RATINGS)))
    vault = data.vault(budget="1")
    vault.release(ldp.RandomizedResponse("1"))
    most = int(np.bincount(data.X[:, 0]).max())
    people = vault.certificate()["people"]
    assert people["largest number of labels of one person"] == most
    assert people["largest epsilon of one person"] == str(most)


def test_ratings_are_a_grid_for_unbiased_response(tmp_path):
    data = datasets.load("movielens-1m", data_dir=write_1m(tmp_path, lines("::", USERS, ITEMS, RATINGS)))
    release = data.vault(budget="1").release(ldp.UnbiasedResponse(epsilon="1", low=1, high=5))
    assert len(release.values) == data.n_rows


BROKEN_LINES = {
    "half a star": "1::2::3.5\n",
    "negative": "1::2::-3\n",
    "text": "1::2::good\n",
    "no rating": "1::2\n",
    "one timestamp more": "1::2::3::4\n",
    "five fields": "1::2::3::4::5\n",
    "empty line": "\n",
    "empty field": "1::::3\n",
    "single colon": "1:2::3::4\n",
    "spaces": "1 :: 2 :: 3\n",
    "too many digits": "1::2::99999999999999999999\n",
    "not latin": b"\xff\xfe::2::3\n",
}


@pytest.mark.parametrize("kind", BROKEN_LINES)
def test_a_broken_line_is_said_of_the_whole_file(tmp_path, kind):
    line = BROKEN_LINES[kind]
    whole = lines("::", [7] * 6, [7] * 6, [5] * 6).encode()
    write_1m(tmp_path, whole + (line if isinstance(line, bytes) else line.encode()) + whole)
    with pytest.raises(
        ldp.InvalidArgument, match=r"ratings.dat: every line must be user::item::rating .*some are not"
    ) as caught:
        datasets.load("movielens-1m", data_dir=tmp_path)
    said = everything_said(caught.value)
    assert "7::7::5" not in said and not shows(5, said) and "55 10" not in said


@pytest.mark.parametrize("text", [b"", b"\n", b"::", b"\n\n\n", b"1::2::3::4::5\n" * 6])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    with pytest.raises(ldp.InvalidArgument, match="every line must be"):
        datasets.load("movielens-1m", data_dir=write_1m(tmp_path, text))


@pytest.mark.parametrize("rating", [0, 6, 999])
def test_a_rating_off_the_scale_is_said_of_the_whole_column(tmp_path, rating):
    write_1m(tmp_path, lines("::", USERS, ITEMS, [5, 5, 5, rating, 5, 5, 5]))
    with pytest.raises(
        ldp.InvalidLabels, match="ratings must all be whole numbers from 1 to 5; some are not"
    ) as caught:
        datasets.load("movielens-1m", data_dir=tmp_path)
    said = everything_said(caught.value)
    assert "999" not in str(caught.value) and not shows(5, said) and not shows(4, said)


@pytest.mark.parametrize(("user", "item"), [(0, 1), (6041, 1), (1, 0), (1, 3953)])
def test_ids_must_lie_in_the_published_range(tmp_path, user, item):
    write_1m(tmp_path, lines("::", [*USERS, user], [*ITEMS, item], [*RATINGS, 5]))
    with pytest.raises(ldp.InvalidArgument, match="users must be 1 to 6040 and items 1 to 3952"):
        datasets.load("movielens-1m", data_dir=tmp_path)


def test_a_handful_of_ratings_cannot_be_split(tmp_path):
    with pytest.raises(ldp.InvalidArgument, match="at least 5 ratings"):
        datasets.load("movielens-1m", data_dir=write_1m(tmp_path, "1::2::3\n"))
