"""Features of several extractors side by side: what each gives, in one row, and in one file."""

from __future__ import annotations

import numpy as np
import pytest

from labeldp.errors import InvalidArgument
from labeldp.features import Extractor, Joined, PatchFeatures, cached


def pictures(n=30, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, 1, 10, 10), dtype=np.uint8)


def patches(side):
    return PatchFeatures(patch=side, centroids=5, pool=2, sample=300)


def joined():
    return Joined((patches(3), patches(4)))


def test_a_row_has_what_each_part_says_of_it_in_their_order():
    both = joined().fit(pictures())
    expected = [patches(side).fit(pictures()).transform(pictures(7, seed=1)) for side in (3, 4)]
    np.testing.assert_array_equal(both.transform(pictures(7, seed=1)), np.concatenate(expected, axis=1))


def test_it_is_an_extractor_that_is_fitted_once_all_its_parts_are():
    both = joined()
    assert isinstance(both, Extractor) and both.fingerprint is None
    both.parts[0].fit(pictures())
    assert both.fingerprint is None
    both.parts[1].fit(pictures())
    assert both.fingerprint == joined().fit(pictures()).fingerprint
    for other in (Joined(both.parts[::-1]), joined().fit(pictures(seed=1))):
        assert other.fingerprint != both.fingerprint
    assert both.description() != Joined(both.parts[::-1]).description()


def test_the_cache_takes_it_as_any_other(tmp_path, monkeypatch):
    first = cached(pictures(), joined(), tmp_path)
    monkeypatch.setattr(PatchFeatures, "fit", lambda *_: pytest.fail("fitted again"))
    again = joined()
    assert np.array_equal(cached(pictures(), again, tmp_path), first) and again.fingerprint is not None


def test_one_file_holds_all_parts(tmp_path):
    both = joined().fit(pictures())
    both.save(tmp_path / "saved")
    again = joined().load(tmp_path / "saved")
    assert again.fingerprint == both.fingerprint
    assert np.array_equal(again.transform(pictures()), both.transform(pictures()))


def test_files_of_anything_else_are_refused(tmp_path):
    both = joined().fit(pictures())
    both.save(tmp_path / "saved")
    both.parts[0].save(tmp_path / "part")
    (tmp_path / "text").write_text("not an archive")
    for name, says in (
        ("none", "there is no file"),
        ("text", "does not hold 2 saved extractors"),
        ("part", "does not hold 2 saved extractors"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            joined().load(tmp_path / name)
    with pytest.raises(InvalidArgument, match="does not hold 3 saved extractors"):
        Joined((patches(3), patches(4), patches(5))).load(tmp_path / "saved")
    with pytest.raises(InvalidArgument, match="other settings"):
        Joined((patches(4), patches(3))).load(tmp_path / "saved")


def test_damaged_files_are_refused_whatever_is_damaged(tmp_path):
    both = joined().fit(pictures())
    both.save(tmp_path / "saved")
    whole, refused = (tmp_path / "saved").read_bytes(), 0
    for bit in np.random.default_rng(0).integers(8 * len(whole), size=400):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            joined().load(tmp_path / "damaged")
        except InvalidArgument:
            refused += 1
    assert refused > 300  # some bits say nothing, such as those of times
    damaged = bytearray(whole)
    damaged[whole.rindex(b"PK\x01\x02") + 10] = 99  # how the last part is compressed, by the archive's index
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(InvalidArgument, match="does not hold 2 saved extractors"):
        joined().load(tmp_path / "damaged")


def test_a_file_whose_second_part_is_another_changes_nothing(tmp_path):
    Joined((patches(3), patches(5))).fit(pictures(seed=1)).save(tmp_path / "other")
    both = joined().fit(pictures())
    before = both.fingerprint
    with pytest.raises(InvalidArgument, match=f"{tmp_path}/other: part 1 holds features of other settings"):
        both.load(tmp_path / "other")
    assert both.fingerprint == before


def test_one_part_is_no_join_and_a_part_must_be_an_extractor():
    for parts in ((patches(3),), (patches(3), "patches")):
        with pytest.raises(InvalidArgument, match="at least two extractors"):
            Joined(parts)
