"""The cache of features: found again by content, never half, never another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny import SETTINGS, pictures

from labeldp.errors import InvalidArgument
from labeldp.features import Extractor, PatchFeatures, cache, cached, files

HERE = Path(__file__).parent


class Doubling:
    """The least that an extractor can be: it doubles numbers, and counts what it is asked to do."""

    def __init__(self, offset=0, fail_at=None):
        self.offset = offset
        self.fail_at = fail_at
        self.learned = None
        self.fits = self.rows = 0

    @property
    def fingerprint(self):
        return None if self.learned is None else f"doubling {self.offset} {self.learned}"

    def description(self):
        return {"extractor": "doubling", "offset": self.offset}

    def fit(self, inputs):
        self.fits += 1
        self.learned = float(inputs.mean())
        return self

    def transform(self, inputs):
        self.rows += len(inputs)
        if self.fail_at is not None and self.rows > self.fail_at:
            raise RuntimeError("no more")
        return 2 * inputs.astype(np.float64) + self.offset

    def save(self, path):
        Path(path).write_text(repr(self.learned))

    def load(self, path):
        self.learned = float(Path(path).read_text())
        return self


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(cache, "ROWS_AT_ONCE", 4)


@pytest.fixture
def table():
    return np.arange(30.0).reshape(10, 3)


def names(folder):
    return sorted(file.suffix for file in folder.iterdir())


# ---------------------------------------------------------------- hits and misses


def test_patch_features_come_from_the_cache_as_they_were_computed(tmp_path):
    images = pictures()
    expected = PatchFeatures(**SETTINGS).fit_transform(images)
    for _ in range(2):
        found = cached(images, PatchFeatures(**SETTINGS), tmp_path / "new" / "folder")
        assert isinstance(found, np.memmap) and not found.flags.writeable
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_second_time_nothing_is_computed(table, tmp_path):
    assert isinstance(Doubling(), Extractor)
    np.testing.assert_array_equal(cached(table, Doubling(), tmp_path), 2 * table)
    again = Doubling()
    np.testing.assert_array_equal(cached(table.copy(), again, tmp_path), 2 * table)
    assert (again.fits, again.rows) == (0, 0)
    assert again.learned == table.mean(), "and yet it is fitted, ready for other inputs"


def test_a_fitted_extractor_is_not_fitted_again_and_keeps_apart_what_it_learned(table, tmp_path):
    extractor = Doubling()
    cached(table, extractor, tmp_path)
    cached(table[:5], extractor, tmp_path)
    assert (extractor.fits, extractor.rows) == (1, 15)
    other = Doubling()
    cached(table[:5], other, tmp_path)
    assert (other.fits, other.rows) == (1, 5), "learned from five rows it is another extractor than learned from ten"


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table + (np.arange(30).reshape(10, 3) == 29),
        lambda table: table[:9],
        lambda table: table.reshape(10, 3, 1),
        lambda table: table.astype(np.float32),
        lambda table: table.view(np.int64),
    ],
    ids=["one number", "fewer rows", "another shape", "another type", "the same bytes of another type"],
)
def test_other_inputs_are_computed(table, tmp_path, change):
    cached(table, Doubling().fit(table), tmp_path)
    extractor = Doubling().fit(table)
    np.testing.assert_array_equal(cached(change(table), extractor, tmp_path), 2 * change(table).astype(float))
    assert extractor.rows == len(change(table))


def test_other_settings_are_computed(table, tmp_path):
    cached(table, Doubling(), tmp_path)
    np.testing.assert_array_equal(cached(table, Doubling(offset=1), tmp_path), 2 * table + 1)


def test_the_order_in_memory_and_the_disk_do_not_matter(table, tmp_path):
    cached(table, Doubling(), tmp_path / "cache")
    np.save(tmp_path / "table.npy", table)
    for same in (np.asfortranarray(table), np.load(tmp_path / "table.npy", mmap_mode="r")):
        extractor = Doubling()
        cached(same, extractor, tmp_path / "cache")
        assert extractor.rows == 0


def test_inputs_are_digested_in_pieces_and_yet_as_a_whole(table, monkeypatch):
    whole = cache.content_digest(table)
    monkeypatch.setattr(cache, "BYTES_AT_ONCE", 50)
    assert cache.content_digest(table) == whole
    assert cache.content_digest(table[::-1]) != whole


# ---------------------------------------------------------------- what is in the folder


def test_a_json_beside_the_features_says_what_they_are(table, tmp_path):
    cached(table, Doubling(), tmp_path)
    assert names(tmp_path) == [".fitted", ".json", ".npy"]
    (told,) = (json.loads(file.read_text()) for file in tmp_path.glob("*.json"))
    assert told["extractor"] == {"extractor": "doubling", "offset": 0}
    assert told["inputs"]["shape"] == [10, 3]
    assert told["features"] == {"dtype": "<f8", "shape": [10, 3]}
    np.testing.assert_array_equal(np.load(next(tmp_path.glob("*.npy"))), 2 * table)


@pytest.mark.parametrize("suffix", [".npy", ".json"])
@pytest.mark.parametrize("damage", [-8, 0, None], ids=["cut", "emptied", "removed"])
def test_damaged_files_are_computed_again(table, tmp_path, suffix, damage):
    cached(table, Doubling(), tmp_path)
    (file,) = tmp_path.glob(f"*{suffix}")
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:damage])
    extractor = Doubling()
    np.testing.assert_array_equal(cached(table, extractor, tmp_path), 2 * table)
    assert extractor.rows == 10


def test_what_was_learned_is_learned_again_if_its_file_is_damaged(tmp_path):
    first = cached(pictures(), PatchFeatures(**SETTINGS), tmp_path)
    (file,) = tmp_path.glob("*.fitted")
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    again = cached(pictures(), PatchFeatures(**SETTINGS), tmp_path)
    np.testing.assert_array_equal(again, first)
    assert file.read_bytes() == whole


def test_features_of_a_failed_run_are_not_kept(table, tmp_path):
    with pytest.raises(RuntimeError, match="no more"):
        cached(table, Doubling(fail_at=8), tmp_path)
    assert names(tmp_path) == [".fitted"]


def test_progress_is_told_row_by_row_and_at_once_where_nothing_is_to_do(table, tmp_path):
    told = []
    cached(table, Doubling(), tmp_path, progress=lambda done, rows: told.append((done, rows)))
    assert told == [(0, 10), (4, 10), (8, 10), (10, 10)]
    told.clear()
    cached(table, Doubling(), tmp_path, progress=lambda done, rows: told.append((done, rows)))
    assert told == [(10, 10)]


def test_leftovers_of_killed_runs_are_removed_after_a_day_and_not_before(table, tmp_path):
    old, young = tmp_path / f"a.npy.1{files.UNFINISHED}", tmp_path / f"b.npy.2{files.UNFINISHED}"
    for file in (old, young):
        file.write_bytes(b"half")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    cached(table, Doubling(), tmp_path)
    assert not old.exists() and young.exists()


@pytest.mark.parametrize(
    "inputs", [np.float64(3), np.empty((0, 3)), np.array([object()])], ids=["no rows", "empty", "objects"]
)
def test_what_has_no_rows_of_numbers_is_refused(inputs, tmp_path):
    with pytest.raises(InvalidArgument, match="inputs must be an array of numbers"):
        cached(inputs, Doubling(), tmp_path)


def test_an_extractor_that_loses_rows_is_refused(table, tmp_path):
    class Losing(Doubling):
        def transform(self, inputs):
            return super().transform(inputs)[1:]

    with pytest.raises(InvalidArgument, match="one row of equal shape and dtype per input"):
        cached(table, Losing(), tmp_path)
    assert names(tmp_path) == [".fitted"]


# ---------------------------------------------------------------- other processes

CHILD = """
import sys, time
import numpy as np
from labeldp.features import PatchFeatures, cache
from tiny import SETTINGS, pictures

cache.ROWS_AT_ONCE = 4
def progress(done, rows):
    print(done, flush=True)
    if sys.argv[2] == "waits" and done == 8:
        time.sleep(600)
features = cache.cached(pictures(), PatchFeatures(**SETTINGS), sys.argv[1], progress=progress)
print(float(np.abs(features).sum()))
"""


def child(folder, how="runs"):
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    command = [sys.executable, "-c", CHILD, str(folder), how]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_run_that_is_killed_half_way_leaves_nothing_that_is_believed(tmp_path):
    with child(tmp_path, "waits") as killed:
        assert [killed.stdout.readline() for _ in range(3)] == ["0\n", "4\n", "8\n"]
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".fitted", ".new"]
    told = []
    found = cached(pictures(), PatchFeatures(**SETTINGS), tmp_path, progress=lambda *all_of_it: told.append(all_of_it))
    assert told == [(0, 12), (4, 12), (8, 12), (12, 12)]
    np.testing.assert_allclose(found, PatchFeatures(**SETTINGS).fit_transform(pictures()), atol=1e-5)


def test_two_processes_at_once_get_the_same_features(tmp_path):
    both = [child(tmp_path), child(tmp_path)]
    sums = [process.communicate(timeout=60)[0].split()[-1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sums[0] == sums[1]
    assert names(tmp_path) == [".fitted", ".json", ".npy"]


def test_features_in_use_stay_as_they_are_while_another_process_writes_them_again(table, tmp_path):
    found = cached(table, Doubling(), tmp_path)
    next(tmp_path.glob("*.json")).unlink()
    cached(table, Doubling(), tmp_path)
    np.testing.assert_array_equal(found, 2 * table)
