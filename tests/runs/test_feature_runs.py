"""Runs whose models read features: made once, by what the run's own folder keeps, and never of other inputs."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from torch import nn

import labeldp as ldp
from labeldp import datasets, runs
from labeldp.errors import InvalidArgument
from labeldp.features import PatchFeatures
from labeldp.runs import RunFolder, inputs, specs
from labeldp.torch import SimCLR as Contrastive
from labeldp.torch import pretrained

PATCHES = "patches:patch=3,centroids=8,pool=2,sample=500"
DIGITS = datasets.load("digits").only_public()


@pytest.fixture(scope="module")
def run(on_patches, cache, one_thread, tmp_path_factory):
    """A finished run on patch features. Nobody changes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labeldp.report.write_run", lambda *_, **__: None)
        return runs.train(on_patches, tmp_path_factory.mktemp("runs") / "run", cache=cache)


@pytest.fixture
def nothing_learned(monkeypatch):
    """From here on no extractor may be fitted."""

    def refuse(*_):
        raise AssertionError("an extractor was fitted again")

    monkeypatch.setattr(PatchFeatures, "fit", refuse)


# ---------------------------------------------------------------- what a spec says


def test_a_spec_is_an_extractor_with_settings_and_files():
    assert specs.parse("patches") == specs.Spec("patches", (), {})
    assert specs.parse("byol:backbone=mlp, learning_rate=0.1").settings == {"backbone": "mlp", "learning_rate": 0.1}
    assert specs.parse("pretrained:vit-small-16,w.pth,size=32") == specs.Spec(
        "pretrained", ("vit-small-16", "w.pth"), {"size": 32}
    )
    assert specs.parse("arrays:a=b.npy").names == ("a=b.npy",)


def test_joined_features_are_those_that_are_computed_and_nothing_else_has_a_plus_between():
    joined = specs.parse("patches:mirror=true + simclr:epochs=3,flip=true")
    assert joined == specs.Spec(
        "joined",
        (),
        {},
        (specs.Spec("patches", (), {"mirror": True}), specs.Spec("simclr", (), {"epochs": 3, "flip": True})),
    )
    assert specs.parse("patches:floor=1e+3").settings == {"floor": 1000.0}
    assert specs.parse("arrays:a+b.npy").names == ("a+b.npy",)
    assert specs.parse("patches:floor=1e+3 + simclr").parts[0].settings == {"floor": 1000.0}
    for text in (
        "patches + arrays:a.npy",
        "patches + ",
        "patches + simclr:decay=0.9",
        "patches + byol",
        "byol + patches",
    ):
        with pytest.raises(InvalidArgument):
            specs.parse(text)
    for text, says in [
        ("patches:patch=3 + byol:epochs=2", r"only patches and simclr can be joined by \+"),
        ("patches + simcl:epochs=2", "got 'simcl:epochs=2'. Did you mean 'simclr'?"),
    ]:
        with pytest.raises(InvalidArgument, match=says):
            specs.parse(text)


def test_files_of_a_spec_are_found_from_anywhere_once_they_are_placed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert specs.placed("arrays:a.npy,/b.npy") == f"arrays:{tmp_path}/a.npy,/b.npy"
    assert specs.placed("pretrained:vit,w.pth,size=32") == f"pretrained:vit,{tmp_path}/w.pth,size=32"
    assert specs.placed(PATCHES) == PATCHES


def test_the_cache_is_where_one_says_then_the_environment_then_the_home(tmp_path, monkeypatch):
    monkeypatch.delenv(inputs.ENVIRONMENT, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert inputs.cache_folder(None) == tmp_path / ".cache" / "labeldp" / "features"
    monkeypatch.setenv(inputs.ENVIRONMENT, str(tmp_path / "there"))
    assert inputs.cache_folder(None) == tmp_path / "there"
    assert inputs.cache_folder(tmp_path / "here") == tmp_path / "here"


# ---------------------------------------------------------------- patches


def test_a_runs_folder_alone_is_enough_to_predict_from_images(run, nothing_learned, tmp_path):
    shutil.copytree(run.path, tmp_path / "copy")
    loaded = runs.load(tmp_path / "copy")
    assert loaded.inputs == {"kind": "image", "shape": [1, 8, 8]}
    right = np.mean(loaded.predict(DIGITS.X_test) == DIGITS.test_labels)
    (test, *_) = [record for record in reversed(run.records()) if record["kind"] == "test"]
    assert right == pytest.approx(test["accuracy"])
    assert loaded.predict_proba(DIGITS.X_test[:0]).shape == (0, 10)
    with pytest.raises(InvalidArgument, match="X must be images as the run was trained on"):
        loaded.predict_proba(np.zeros((2, 1, 9, 9), np.uint8))


def test_a_model_reads_nothing_but_the_features_that_it_learned_from(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "copy")
    other = PatchFeatures(patch=3, centroids=8, pool=2, sample=500).fit(DIGITS.X_test)
    other.save(tmp_path / "copy" / "extractor.npz")
    with pytest.raises(InvalidArgument, match=r"extractor\.npz is not what made the features"):
        runs.load(tmp_path / "copy")


def test_a_run_on_mirrored_patches_predicts_the_same_of_an_image_and_its_mirror_image(run, on_patches, cache, tmp_path):
    mirrored = on_patches.changed({"features": f"{PATCHES},mirror=true"})
    loaded = ldp.load(runs.train(mirrored, tmp_path / "run", cache=cache).path)
    images = DIGITS.X_test
    told = loaded.predict_proba(images)
    np.testing.assert_allclose(loaded.predict_proba(images[..., ::-1].copy()), told, atol=1e-4)
    plain = ldp.load(run.path)
    assert not np.allclose(plain.predict_proba(images[..., ::-1].copy()), plain.predict_proba(images), atol=0.1)


def test_a_new_run_keeps_its_own_extractor_where_another_was_left(on_patches, run, cache, tmp_path):
    (tmp_path / "run").mkdir()
    PatchFeatures(patch=3, centroids=8, pool=2, sample=500).fit(DIGITS.X_test).save(tmp_path / "run" / "extractor.npz")
    again = runs.train(on_patches, tmp_path / "run", cache=cache)
    assert again.facts()["reads"] == run.facts()["reads"] and runs.load(again.path).predict(
        DIGITS.X_test[:2]
    ).shape == (2,)


def test_many_images_are_predicted_a_piece_at_a_time(run, monkeypatch):
    loaded = runs.load(run.path)
    whole = loaded.predict_proba(DIGITS.X_test)
    monkeypatch.setattr("labeldp.runs.loading.ROWS_AT_ONCE", 100)
    np.testing.assert_allclose(loaded.predict_proba(DIGITS.X_test), whole, atol=1e-5)


def test_features_are_made_once_and_found_again(on_patches, run, cache, nothing_learned, tmp_path):
    told = []
    again = runs.train(on_patches, tmp_path / "again", cache=cache, watch=told.append)
    assert again.facts()["reads"] == run.facts()["reads"]
    (ready,) = [record for record in told if record["kind"] == "features"]
    assert (ready["computed"], ready["rows"], ready["size"], ready["folder"]) == (False, 1797, 32, str(cache))
    assert not [record for record in again.records() if record["kind"] == "features"]


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_other_models_are_trained_on_the_same_features_for_free(run, cache, nothing_learned, tmp_path, model):
    recipe = run.recipe().changed({"model": model})
    again = runs.train_again(recipe, run.path, tmp_path / "again", cache=cache)
    shutil.copytree(again.path, tmp_path / "copy")
    assert runs.load(tmp_path / "copy").predict_proba(DIGITS.X_test).shape == (360, 10)


def test_a_run_whose_cache_is_gone_goes_on_with_the_extractor_in_its_folder(run, nothing_learned, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    RunFolder(tmp_path / "run").model_file.unlink()
    folder = runs.train(run.recipe(), tmp_path / "run", cache=tmp_path / "empty")
    assert folder.model_file.read_bytes() == run.model_file.read_bytes()
    assert folder.facts()["reads"] == run.facts()["reads"]


def test_other_features_are_trained_on_the_same_releases_for_free(run, cache, tmp_path):
    other = run.recipe().changed({"features": PATCHES.replace("centroids=8", "centroids=9")})
    again = runs.train_again(other, run.path, tmp_path / "again", cache=cache)
    assert again.facts()["reads"]["inputs"] == {"kind": "vector", "size": 36}
    assert runs.load(again.path).predict_proba(DIGITS.X_test).shape == (360, 10)
    raw = runs.train_again(run.recipe().changed({"features": None}), run.path, tmp_path / "raw", cache=cache)
    assert raw.facts()["reads"] is None and runs.load(raw.path).predict_proba(DIGITS.X_test).shape == (360, 10)


def test_a_run_may_get_other_features_where_it_is(run, cache, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    other = run.recipe().changed({"features": PATCHES.replace("pool=2", "pool=1")})
    folder = runs.train(other, tmp_path / "run", cache=cache, otherwise=True)
    assert folder.recipe() == other and folder.facts()["reads"]["inputs"]["size"] == 8
    assert runs.load(folder.path).predict_proba(DIGITS.X_test).shape == (360, 10)
    assert [each.receipt for each in folder.releases()] == [each.receipt for each in run.releases()]


def test_an_extractor_of_other_images_is_refused(run, cache, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    specs_of_run = specs.parse(PATCHES)
    stranger = PatchFeatures(**specs_of_run.settings).fit(DIGITS.X[:100])
    stranger.save(tmp_path / "run" / specs_of_run.file)
    with pytest.raises(InvalidArgument, match="are not those that this run was begun with"):
        runs.train(run.recipe(), tmp_path / "run", cache=cache)
    with pytest.raises(InvalidArgument, match="are not those that this run was begun with"):
        runs.train_again(run.recipe(), tmp_path / "run", tmp_path / "again", cache=cache)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "tiny-conv"}, "tiny-conv does not read features: choose linear, mlp or logistic"),
        ({"features": "patches:patch=9"}, "images must be at least"),
        ({"features": "arrays:nowhere.npy"}, "there is no file nowhere.npy"),
        ({"features": "pretrained:vit-small-16,nowhere.pth"}, "there is no checkpoint nowhere.pth"),
        ({"features": "byol:backbone=conv"}, "byol's backbone must be one of"),
        ({"features": "byol:backbone=linear"}, "byol's backbone must be a sequence of layers"),
        ({"features": "simclr:backbone=conv"}, "simclr's backbone must be one of"),
        ({"features": "patches + simclr:backbone=linear"}, "simclr's backbone must be a sequence of layers"),
        ({"features": "simclr:precision=float16"}, "precision must be one of 'float32', 'bfloat16'"),
        ({"data": "breast-cancer", "rows": 200, "features": "patches"}, "patches makes features of images"),
    ],
    ids=str,
)
def test_features_that_cannot_be_read_leave_no_folder(on_patches, tmp_path, changes, words):
    with pytest.raises(InvalidArgument) as refused:
        runs.train(on_patches.changed(changes), tmp_path / "new", cache=tmp_path / "cache")
    assert words in str(refused.value) and not (tmp_path / "new").exists()


# ---------------------------------------------------------------- arrays of one's own


@pytest.fixture
def arrays(tmp_path):
    for name, images in (("train", DIGITS.X), ("test", DIGITS.X_test)):
        np.save(tmp_path / f"{name}.npy", images.reshape(len(images), -1)[:, ::3])
    return tmp_path / "train.npy", tmp_path / "test.npy"


def test_a_certificate_does_not_forget_the_features_that_labels_were_asked_by(on_patches, arrays, cache, tmp_path):
    train, test = arrays
    run = runs.train(on_patches.changed({"features": f"arrays:{train},{test}"}), tmp_path / "run")
    stated = run.certificate()["features"]
    assert "which the caller states are public" in stated
    other = runs.train(on_patches, run.path, cache=cache, otherwise=True)
    assert other.facts()["reads"]["spec"] == on_patches.features and other.certificate()["features"] == stated


def test_ones_own_features_are_what_a_run_predicts_from(on_patches, arrays, tmp_path):
    train, test = arrays
    run = runs.train(on_patches.changed({"features": f"arrays:{train},{test}"}), tmp_path / "run")
    loaded = runs.load(run.path)
    assert loaded.inputs == {"kind": "vector", "size": 22}
    (record, *_) = [record for record in reversed(run.records()) if record["kind"] == "test"]
    predicted = loaded.predict(np.load(test).astype(np.float32))
    assert record["accuracy"] == pytest.approx(np.mean(predicted == DIGITS.test_labels))
    with pytest.raises(InvalidArgument, match="cannot read X"):
        loaded.predict_proba(np.zeros((2, 21), np.float32))


def test_without_features_of_test_rows_there_are_no_test_figures(on_patches, arrays, keys, tmp_path):
    run = runs.train(on_patches.changed({"features": f"arrays:{arrays[0]}"}), tmp_path / "run")
    assert "test" not in {kind for kind, _, _ in keys(run)} and run.model_file.exists()


@pytest.mark.parametrize("which", [0, 1])
def test_arrays_that_have_changed_are_refused(on_patches, arrays, tmp_path, which):
    recipe = on_patches.changed({"features": f"arrays:{arrays[0]},{arrays[1]}"})
    run = runs.train(recipe, tmp_path / "run")
    changed = np.load(arrays[which])
    changed[0, 0] += 1
    np.save(arrays[which], changed)
    for train in (
        lambda: runs.train(recipe, run.path),
        lambda: runs.train_again(recipe, run.path, tmp_path / "again"),
    ):
        with pytest.raises(InvalidArgument, match="are not those that this run was begun with"):
            train()


def test_arrays_of_other_rows_or_widths_are_refused(on_patches, arrays, tmp_path):
    np.save(tmp_path / "short.npy", np.load(arrays[0])[:-1])
    np.save(tmp_path / "wide.npy", np.zeros((360, 23)))
    for names, words in ((["short.npy"], "one row per row of the data"), (["train.npy", "wide.npy"], "22 numbers")):
        spec = "arrays:" + ",".join(str(tmp_path / name) for name in names)
        with pytest.raises(InvalidArgument, match=words):
            runs.train(on_patches.changed({"features": spec}), tmp_path / "run")


# ---------------------------------------------------------------- what torch extracts


BYOL = "byol:backbone=tiny-conv,epochs=2,batch_size=256,projection=4,hidden=8"


def test_byol_goes_on_from_its_checkpoint_in_the_cache(tmp_path):
    small = DIGITS.subset(300)

    def stop(record):
        if record["part"] == "fitting" and record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inputs.public(small, BYOL, cache=tmp_path, watch=stop)
    assert len(list(tmp_path.glob("*.checkpoint"))) == 1
    told = []
    public = inputs.public(small, BYOL, cache=tmp_path, watch=told.append)
    assert [record["epoch"] for record in told if record["part"] == "fitting"] == [0, 2]
    assert public.data.X.shape == (300, 128) and not list(tmp_path.glob("*.checkpoint"))
    uninterrupted = inputs.public(small, BYOL, cache=tmp_path / "other")
    assert uninterrupted.facts == public.facts


def test_what_byol_learned_is_in_the_runs_folder(on_patches, tmp_path):
    run = runs.train(on_patches.changed({"features": BYOL}), tmp_path / "run", cache=tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    assert runs.load(run.path).predict_proba(DIGITS.X_test).shape == (360, 10)


SIMCLR = "simclr:backbone=tiny-conv,epochs=2,batch_size=256,projection=4,hidden=8,flip=true,precision=bfloat16"


def test_what_simclr_learned_has_columns_of_about_one_size(tmp_path):
    longer = SIMCLR.replace("epochs=2,batch_size=256", "epochs=10,batch_size=128")  # its last norm has seen enough then
    X = inputs.public(DIGITS, longer, cache=tmp_path).data.X
    learns = X.std(axis=0) > 1e-3  # some units of such a net may never answer
    assert X.dtype == np.float32 and learns.mean() > 0.5
    assert np.all(X.std(axis=0)[learns] < 3) and np.median(X.std(axis=0)[learns]) > 0.3


def test_joined_features_stand_side_by_side_and_each_is_computed_once(on_patches, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    parts = [inputs.public(DIGITS, spec, cache=cache) for spec in (PATCHES, SIMCLR)]
    for extractor in (PatchFeatures, Contrastive):
        monkeypatch.setattr(extractor, "fit", lambda *_, **__: pytest.fail("fitted again"))
    joined = inputs.public(DIGITS, f"{PATCHES} + {SIMCLR}", cache=cache)
    np.testing.assert_array_equal(joined.data.X, np.concatenate([part.data.X for part in parts], axis=1))
    np.testing.assert_array_equal(joined.data.X_test, np.concatenate([part.data.X_test for part in parts], axis=1))
    run = runs.train(on_patches.changed({"features": f"{PATCHES} + {SIMCLR}"}), tmp_path / "run", cache=cache)
    shutil.rmtree(cache)
    right = runs.load(run.path).predict(DIGITS.X_test) == datasets.load("digits").test_labels
    *_, tested = (record for record in run.records() if record["kind"] == "test")
    assert right.mean() == pytest.approx(tested["accuracy"])
    extractor_of_others = inputs.extractor_of(specs.parse(f"{PATCHES} + {SIMCLR}"), DIGITS.inputs)
    monkeypatch.undo()
    extractor_of_others.fit(DIGITS.X_test).save(run.path / "extractor.zip")
    with pytest.raises(InvalidArgument, match=r"extractor\.zip is not what made the features"):
        runs.load(run.path)


def test_clusters_of_one_representation_go_with_a_model_of_another(on_patches, tmp_path):
    recipe = on_patches.changed({"prior.count": 5, "prior.epsilon": "1", "prior.features": SIMCLR})
    run = runs.train(recipe, tmp_path / "run", cache=tmp_path / "cache")
    (source,) = (q["source"] for q in run.certificate()["queries"] if q["source"].startswith("5 clusters"))
    assert "simclr" in source and "computed from public inputs without labels" in source


def test_pretrained_weights_are_in_the_runs_folder_and_public_by_the_callers_word(on_patches, tmp_path, monkeypatch):
    import torch

    monkeypatch.setitem(pretrained.BACKBONES, "tiny", lambda: nn.Sequential(nn.Conv2d(3, 4, 8, stride=8)))
    torch.manual_seed(5)
    torch.save(pretrained.BACKBONES["tiny"]().state_dict(), tmp_path / "w.pth")
    recipe = on_patches.changed({"features": f"pretrained:tiny,{tmp_path}/w.pth,size=16"})
    run = runs.train(recipe, tmp_path / "run", cache=tmp_path / "cache")
    counted = runs.train(
        recipe.changed({"prior.count": 5, "prior.epsilon": "1"}), tmp_path / "counted", cache=tmp_path / "cache"
    )
    (source,) = (q["source"] for q in counted.certificate()["queries"] if q["source"].startswith("5 clusters"))
    for stated in (run.certificate()["features"], source):
        assert "w.pth" in stated and "which the caller states are public" in stated and "without labels" not in stated
    other = runs.train_again(recipe, runs.train(on_patches, tmp_path / "patches").path, tmp_path / "other")
    assert other.certificate()["features"] == run.certificate()["features"]
    (tmp_path / "w.pth").unlink()
    shutil.rmtree(tmp_path / "cache")
    assert runs.load(run.path).predict_proba(DIGITS.X_test).shape == (360, 10)
    again = runs.train_again(recipe, run.path, tmp_path / "again", cache=tmp_path / "cache")
    assert again.model_file.read_bytes() == run.model_file.read_bytes()
