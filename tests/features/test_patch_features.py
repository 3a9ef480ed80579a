"""Patch features: what they are, that they are the same every time, and what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from tiny import SETTINGS, naive_features, pictures

from labeldp.errors import InvalidArgument
from labeldp.features import Extractor, PatchFeatures, responses, threads


@pytest.fixture
def images():
    return pictures()


def fitted(images, **settings):
    return PatchFeatures(**SETTINGS | settings).fit(images)


# ---------------------------------------------------------------- what they are


@pytest.mark.parametrize("shape", [(1, 9, 8), (3, 7, 10), (2, 6, 5)])
@pytest.mark.parametrize(("pool", "floor"), [(1, 10), (2, 10), (2, 6500)])
def test_they_are_what_the_paper_says_patch_by_patch(shape, pool, floor):
    images = pictures(shape=shape)
    extractor = fitted(pictures(n=40, shape=shape, seed=1), pool=pool, floor=floor)
    features = extractor.transform(images)
    assert features.dtype == np.float32 and features.shape == (len(images), pool * pool * SETTINGS["centroids"])
    np.testing.assert_allclose(features, naive_features(extractor, images), atol=2e-4)


def test_mirrored_they_are_the_mean_over_an_image_and_its_mirror_image(images):
    extractor = fitted(images, mirror=True)
    turned = images[..., ::-1]
    expected = (naive_features(extractor, images) + naive_features(extractor, turned)) / 2
    features = extractor.transform(images)
    np.testing.assert_allclose(features, expected, atol=2e-4)
    np.testing.assert_allclose(features, extractor.transform(turned), atol=1e-5)
    plain = fitted(images)
    np.testing.assert_allclose(features, (plain.transform(images) + plain.transform(turned)) / 2, atol=1e-5)
    assert plain.fingerprint != extractor.fingerprint


def test_they_are_what_the_paper_says_where_patches_lie_on_centroids():
    """Where a distance is 0, single precision knows it to a few hundredths; its square must not get negative."""
    images = pictures(n=3)
    extractor = fitted(images, centroids=120, sample=126, rounds=0)
    assert extractor.transform(images).shape == (3, 480)
    np.testing.assert_allclose(extractor.transform(images), naive_features(extractor, images), atol=2e-2)
    assert np.isfinite(extractor.transform(images)).all()


def test_learned_from_images_they_have_mean_0_and_spread_1(images):
    features = fitted(images).transform(images)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=1e-3)


def test_whitened_patches_vary_alike_in_all_directions_that_vary(images):
    from labeldp.features.patches import normalised, whitening_of

    patches = normalised(PatchFeatures(**SETTINGS | {"sample": 10_000})._sampled(images), 10.0)
    before = np.linalg.eigvalsh(np.cov(patches.T, bias=True))
    after = np.linalg.eigvalsh(np.cov((patches @ whitening_of(patches)).T, bias=True))
    np.testing.assert_allclose(after, before / (before + 0.1), atol=1e-4)


def test_brightness_and_contrast_hardly_matter():
    images = pictures() // 2
    extractor = fitted(images)
    brighter = extractor.transform(images + 60)
    np.testing.assert_allclose(brighter, extractor.transform(images), atol=1e-3)


def test_constant_images_give_finite_features_and_no_rounding_is_enlarged(images):
    flat = np.full((5, 1, 9, 8), 255, np.uint8)
    assert np.isfinite(fitted(images).transform(flat)).all()
    assert np.abs(fitted(flat).transform(flat)).max() < 1e-6  # 0 on most processors
    assert np.isfinite(fitted(flat).transform(images)).all()


@pytest.mark.parametrize(
    ("side", "settings"), [(12, {}), (12, {"floor": 1e6}), (8, {"patch": 6, "centroids": 9})], ids=str
)
def test_copies_of_one_textured_image_have_features_next_to_0(side, settings):
    """Patches lie on centroids, where rounding of distances is largest: it used to be enlarged to features above 20."""
    image = np.random.default_rng(0).integers(256, size=(1, 1, side, side), dtype=np.uint8)
    copies = np.repeat(image, 600, axis=0)
    features = PatchFeatures(**{"patch": 6, "centroids": 50, "pool": 3} | settings).fit_transform(copies)
    assert np.abs(features).max() < 1e-2


def test_flat_images_of_all_levels_have_features_next_to_0():
    levels = np.arange(256, dtype=np.uint8)[:, None, None, None]
    flat = np.broadcast_to(levels, (256, 1, 9, 8))
    assert np.abs(fitted(flat).transform(flat)).max() < 1e-6


@pytest.mark.parametrize("floor", [10, 1e6])
def test_images_of_next_to_no_contrast_are_enlarged_to_spread_1_all_the_same(floor):
    faint = np.random.default_rng(0).integers(4, size=(300, 1, 12, 12), dtype=np.uint8)
    features = PatchFeatures(patch=6, centroids=50, pool=3, floor=floor).fit_transform(faint)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=1e-3)


# ---------------------------------------------------------------- the same every time


def test_the_same_images_and_seed_give_the_same_bits(images):
    first, second = fitted(images), fitted(images)
    assert first.fingerprint == second.fingerprint
    np.testing.assert_array_equal(first.transform(images), second.transform(images))
    assert first.fingerprint != fitted(images, seed=1).fingerprint


def test_a_row_depends_on_its_own_image_alone(images, monkeypatch):
    extractor = fitted(images)
    whole = extractor.transform(images)
    alone = np.concatenate([extractor.transform(images[i : i + 1]) for i in range(len(images))])
    np.testing.assert_allclose(alone, whole, atol=1e-5)
    for floats in (1, 500, 10**6):
        monkeypatch.setattr(responses, "CACHED_FLOATS", floats)
        np.testing.assert_allclose(extractor.transform(images), whole, atol=1e-5)


def test_without_threadpoolctl_they_are_the_same(images, monkeypatch):
    with_it = fitted(images).transform(images)
    monkeypatch.setattr(threads, "ThreadpoolController", None)
    np.testing.assert_allclose(fitted(images).transform(images), with_it, atol=1e-5)


def test_a_failure_in_a_thread_is_raised():
    def fail(item):
        raise RuntimeError(item)

    with pytest.raises(RuntimeError, match="3"):
        threads.in_threads(fail, [3])


CALLERS = """
from concurrent.futures import ThreadPoolExecutor
import numpy
from threadpoolctl import ThreadpoolController
from labeldp.features.threads import in_threads

def allowed():
    return {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()}

before, within = allowed(), []
with ThreadPoolExecutor(4) as callers:
    list(callers.map(lambda _: in_threads(lambda _: within.append(allowed()), range(3)), range(8)))
assert within == [{1}] * 24, within
assert before == allowed() != {1}, (before, allowed())
"""


def test_matrix_products_get_their_threads_back_also_from_callers_at_the_same_time():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "3", "OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", CALLERS], check=True, env=environment)


def test_fit_transform_is_fit_and_transform(images):
    extractor = PatchFeatures(**SETTINGS)
    np.testing.assert_array_equal(extractor.fit_transform(images), fitted(images).transform(images))


def test_images_on_disk_are_as_good_as_images_in_memory(images, tmp_path):
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, (len(images), 28))
    extractor = fitted(mapped)
    assert extractor.fingerprint == fitted(images).fingerprint
    assert extractor.transform(mapped, out) is out
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), extractor.transform(images))


def test_images_in_any_memory_order_are_the_same_images(images):
    turned = np.asfortranarray(images)
    np.testing.assert_array_equal(fitted(turned).transform(turned), fitted(images).transform(images))


def test_memory_does_not_grow_with_the_images(monkeypatch):
    monkeypatch.setattr(responses, "CACHED_FLOATS", 8_000)
    images = pictures(n=600, shape=(1, 12, 12))
    extractor = PatchFeatures(patch=3, centroids=64, pool=2, rounds=1, sample=500).fit(images)
    out = np.empty((len(images), 256), np.float32)

    def peak(n):
        tracemalloc.start()
        extractor.transform(images[:n], out[:n])
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(200)
    assert peak(600) < 1.3 * peak(200)


# ---------------------------------------------------------------- what they refuse


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((4, 1, 9, 8)), "must be uint8, levels 0 to 255, got dtype float64"),
        (np.zeros((4, 9, 8), np.uint8), r"images\[:, None\]"),
        (np.zeros((4, 1, 3, 8), np.uint8), "at least 4 pixels high and wide"),
        (np.zeros((4, 0, 9, 8), np.uint8), "got shape"),
        (np.zeros((0, 1, 9, 8), np.uint8), "at least one"),
        ([[1], [2, 3]], "must be an array"),
    ],
)
def test_what_is_not_images_is_refused(images, message):
    with pytest.raises(InvalidArgument, match=message):
        fitted(images)


def test_images_of_another_shape_than_learned_from_are_refused(images):
    with pytest.raises(InvalidArgument, match=r"\(1, 9, 8\), got \(1, 9, 9\)"):
        fitted(images).transform(pictures(shape=(1, 9, 9)))


def test_no_images_have_no_features(images):
    assert fitted(images).transform(images[:0]).shape == (0, 28)


@pytest.mark.parametrize(
    "out", [np.empty((12, 27), np.float32), np.empty((12, 28)), [[0.0] * 28] * 12], ids=["shape", "dtype", "list"]
)
def test_a_place_that_does_not_fit_the_features_is_refused(images, out):
    with pytest.raises(InvalidArgument, match=r"out must be a float32 array of shape \(12, 28\)"):
        fitted(images).transform(images, out)


def test_nothing_is_transformed_or_saved_before_something_is_learned(images, tmp_path):
    assert PatchFeatures().fingerprint is None
    with pytest.raises(InvalidArgument, match="learned nothing yet"):
        PatchFeatures(**SETTINGS).transform(images)
    with pytest.raises(InvalidArgument, match="learned nothing yet"):
        PatchFeatures().save(tmp_path / "patches.npz")


@pytest.mark.parametrize(
    "wrong",
    [
        {"patch": 1},
        {"centroids": 1},
        {"pool": 0},
        {"rounds": -1},
        {"sample": 6},
        {"seed": -1},
        {"patch": 2.5},
        {"floor": 0},
        {"mirror": "false"},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    ((name, _),) = wrong.items()
    with pytest.raises(InvalidArgument, match=f"^{name} must be"):
        PatchFeatures(**SETTINGS | wrong)


# ---------------------------------------------------------------- saving


def test_they_are_an_extractor_whose_description_is_json():
    assert isinstance(PatchFeatures(), Extractor)
    assert json.loads(json.dumps(PatchFeatures(seed=5).description())) == {
        "extractor": "labeldp-patches-2",
        "patch": 6,
        "centroids": 300,
        "pool": 3,
        "rounds": 12,
        "sample": 100_000,
        "floor": 10.0,
        "seed": 5,
    }


def test_what_was_learned_is_saved_and_loaded(images, tmp_path):
    extractor = fitted(images)
    extractor.save(tmp_path / "patches")
    loaded = PatchFeatures(**SETTINGS).load(tmp_path / "patches")
    assert loaded.fingerprint == extractor.fingerprint
    np.testing.assert_array_equal(loaded.transform(images), extractor.transform(images))
    assert [file.name for file in tmp_path.iterdir()] == ["patches"]


@pytest.mark.parametrize("other", [{"seed": 1}, {"mirror": True}])
def test_what_other_settings_learned_is_not_loaded(images, other, tmp_path):
    fitted(images).save(tmp_path / "patches")
    with pytest.raises(InvalidArgument, match="other settings"):
        PatchFeatures(**SETTINGS | other).load(tmp_path / "patches")


def test_a_file_that_is_missing_damaged_or_something_else_is_not_loaded(images, tmp_path):
    path = tmp_path / "patches"
    extractor = fitted(images)
    with pytest.raises(InvalidArgument, match="there is no file"):
        extractor.load(path)
    extractor.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(InvalidArgument, match="does not hold"):
        extractor.load(path)
    last = whole.rindex(b"PK\x01\x02")  # what the archive's index says of the last array
    for place, value in ((8, 1), (10, 99)):  # that it is encrypted; how it is compressed
        path.write_bytes(whole[: last + place] + bytes([value]) + whole[last + place + 1 :])
        with pytest.raises(InvalidArgument, match="does not hold"):
            extractor.load(path)
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    with pytest.raises(InvalidArgument, match="does not hold"):
        extractor.load(tmp_path / "other.npz")
    arrays = extractor.learned.arrays() | {"centroids": np.ones((2, 9), np.float32)}
    np.savez(tmp_path / "wrong.npz", description=np.array(json.dumps(extractor.description())), **arrays)
    with pytest.raises(InvalidArgument, match="its centroids must be"):
        extractor.load(tmp_path / "wrong.npz")


def test_no_learning_library_is_needed():
    code = "import sys, labeldp.features; print({'torch', 'sklearn', 'scipy', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_there_must_be_a_patch_for_each_centroid():
    images = np.zeros((1, 1, 8, 8), np.uint8)
    with pytest.raises(InvalidArgument, match="no more than the patches that are looked at, 25 here; got 300"):
        PatchFeatures(patch=4).fit(images)


def test_a_floor_is_a_number():
    with pytest.raises(InvalidArgument, match="floor must be a number, got 'abc'"):
        PatchFeatures(floor="abc")
