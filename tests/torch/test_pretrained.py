"""Pretrained: weights read strictly and as data, images resized and normalised, features as the module gives them."""

from __future__ import annotations

import os
import re
import socket
import sys
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from labeldp.errors import InvalidArgument, MissingExtra
from labeldp.features import Extractor, cached
from labeldp.torch import Pretrained
from labeldp.torch.models.vit import BACKBONES, VisionTransformer

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*arguments, **settings):
        pytest.fail("the network was touched")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def pictures(n=3, shape=(3, 32, 32), seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, *shape), dtype=np.uint8)


def by_hand(module, images, size=224, mean=IMAGENET[0], std=IMAGENET[1]):
    """One image after the other, one channel after the other."""
    rows = []
    for image in images:
        channels = []
        for channel in range(3):
            levels = torch.from_numpy(image[channel % len(image)].astype(np.float32))[None, None] / 255
            large = functional.interpolate(levels, (size, size), mode="bicubic", antialias=True).clamp(0, 1)
            channels.append((large[0, 0] - mean[channel]) / std[channel])
        with torch.inference_mode():
            rows.append(module(torch.stack(channels)[None])[0].flatten().numpy())
    return np.stack(rows)


def close(found, expected):
    assert found.dtype == np.float32 and found.flags.c_contiguous
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def vit():
    """A randomly initialised ViT-S/16."""
    torch.manual_seed(5)
    return BACKBONES["vit-small-16"]().eval()


@pytest.fixture(scope="module")
def vit_file(vit, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "dino_deitsmall16_pretrain.pth"
    torch.save(vit.state_dict(), path)
    return path


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    return VisionTransformer(**{"width": 12, "depth": 3, "heads": 3, "patch": 8, "size": 16, **changes}).eval()


def conv_net(channels=3):
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(channels, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5))


@pytest.fixture
def stored(tmp_path):
    def store(state, name="weights.pth"):
        path = tmp_path / name
        save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
        return path

    return store


# ---------------------------------------------------------------- ViT-S/16


def test_features_of_a_vit_are_those_of_the_module_on_images_resized_by_hand(vit, vit_file):
    images = pictures()
    extractor = Pretrained("vit-small-16", vit_file, batch_size=2)
    assert isinstance(extractor, Extractor)
    assert extractor.description()["unused"] == []
    features = extractor.transform(images)
    assert features.shape == (3, 384)
    close(features, by_hand(vit, images))


def test_a_vit_file_that_is_cut_short_is_refused(vit_file, tmp_path):
    whole = vit_file.read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2):
        cut = tmp_path / "cut.pth"
        cut.write_bytes(whole[:kept])
        with pytest.raises(InvalidArgument, match=r"cut\.pth is not a whole file of weights .* fetch it again"):
            Pretrained("vit-small-16", cut)


def test_a_vit_whose_last_blocks_are_missing_is_refused(vit, stored):
    few = {name: value for name, value in vit.state_dict().items() if not name.startswith(("blocks.10.", "blocks.11."))}
    says = "few.pth lacks 24 of the module's 150 weights: blocks.10.norm1.weight, blocks.10.norm1.bias, .* and 21 more"
    with pytest.raises(InvalidArgument, match=says):
        Pretrained("vit-small-16", stored(few, "few.pth"))


def test_weights_of_another_patch_size_are_refused(vit_file):
    says = "other shapes than the module: pos_embed (1, 197, 384) for (1, 785, 384), patch_embed.proj.weight"
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        Pretrained("vit-small-8", vit_file)


def test_other_sizes_interpolate_positions(vit, vit_file):
    images = pictures(2)
    close(Pretrained("vit-small-16", vit_file, size=96).transform(images), by_hand(vit, images, 96))
    with pytest.raises(InvalidArgument, match="multiple of 16 pixels"):
        Pretrained("vit-small-16", vit_file, size=100).transform(images)


# ---------------------------------------------------------------- checkpoints


def test_safetensors_are_read_too_and_a_cut_file_is_refused(stored):
    module, path = tiny(), stored(tiny().state_dict(), "weights.safetensors")
    images = pictures()
    close(Pretrained(tiny(seed=1), path, size=16).transform(images), by_hand(module, images, 16))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidArgument, match="not a whole file of weights"):
        Pretrained(tiny(), path, size=16)


def prefixed(prefix, module):
    return {prefix + name: value for name, value in module.state_dict().items()}


def test_of_a_dino_training_the_teachers_backbone_is_taken_and_its_head_is_left_and_said(stored):
    teacher, student = tiny(1), tiny(2)
    head = {"head.mlp.0.weight": torch.ones(2, 12), "head.last_layer.weight_g": torch.ones(2, 1)}
    path = stored(
        {
            "student": {**prefixed("module.backbone.", student), **{f"module.{name}": head[name] for name in head}},
            "teacher": {**prefixed("backbone.", teacher), **head},
            "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]},
            "epoch": 100,
            "args": Namespace(arch="vit_small", lr=0.0005),
        }
    )
    extractor = Pretrained(tiny(3), path, size=16)
    assert Namespace not in torch.serialization.get_safe_globals(), "only while it is read"
    assert extractor.description()["unused"] == ["head.last_layer.weight_g", "head.mlp.0.weight"]
    images = pictures()
    close(extractor.transform(images), by_hand(teacher, images, 16))
    assert np.abs(extractor.transform(images) - by_hand(student, images, 16)).max() > 0.1


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "module.backbone.", "model.", "teacher.backbone."])
@pytest.mark.parametrize("wrapper", [None, "teacher", "state_dict", "model"])
def test_known_prefixes_and_wrappers_are_taken_off(prefix, wrapper, stored):
    state = {**prefixed(prefix, tiny(1)), prefix + "head.weight": torch.ones(2, 12)}
    extractor = Pretrained(tiny(2), stored(state if wrapper is None else {wrapper: state}), size=16)
    assert extractor.unused == [prefix + "head.weight"]
    for name, value in tiny(1).state_dict().items():
        assert torch.equal(extractor.module.state_dict()[name], value)


def test_names_of_the_modules_own_that_look_like_prefixes_are_kept(stored):
    module = nn.ModuleDict({"backbone": nn.Linear(2, 2), "module": nn.Linear(2, 2)})
    extractor = Pretrained(module, stored(module.state_dict()))
    assert extractor.unused == []


@pytest.mark.parametrize(
    ("added", "why"),
    [
        ("blocks.3.norm1.weight", "another block"),
        ("blocks.0.ls1.gamma", "another part of a block"),
        ("register_tokens", "tokens"),
    ],
)
def test_weights_that_are_no_heads_and_would_be_left_out_are_refused(added, why, stored):
    path = stored({**tiny().state_dict(), added: torch.ones(12)})
    with pytest.raises(InvalidArgument, match=f"1 weights that the module lacks and that are no head's: {added}"):
        Pretrained(tiny(), path, size=16)


def test_a_mask_token_and_counts_of_batches_are_of_no_use_after_training(stored):
    state = conv_net().state_dict()
    del state["1.num_batches_tracked"]
    assert Pretrained(conv_net(), stored(state)).unused == []
    assert Pretrained(tiny(), stored({**tiny().state_dict(), "mask_token": torch.ones(12)})).unused == ["mask_token"]


def test_weights_that_are_not_finite_are_refused(stored):
    state = tiny().state_dict()
    state["norm.bias"][3] = torch.nan
    with pytest.raises(InvalidArgument, match=r"weights must be finite, and norm\.bias are not"):
        Pretrained(tiny(), stored(state), size=16)


def test_half_precision_weights_are_computed_with_in_single_precision(stored):
    half = {name: value.half() for name, value in tiny().state_dict().items()}
    for module in (tiny(1), tiny(1).half()):
        extractor = Pretrained(module, stored(half), size=16)
        assert {value.dtype for value in extractor.module.state_dict().values()} == {torch.float32}
        close(extractor.transform(pictures()), by_hand(tiny().half().float(), pictures(), 16))


@pytest.mark.parametrize(
    ("state", "says"), [([torch.ones(2)], "it holds a list"), ({}, "lacks"), ({"epoch": 3}, "lacks")]
)
def test_a_file_without_a_state_dict_is_refused(state, says, stored):
    with pytest.raises(InvalidArgument, match=says):
        Pretrained(tiny(), stored(state), size=16)


def test_a_missing_file_is_a_message_and_not_a_download(tmp_path):
    with pytest.raises(InvalidArgument, match=r"there is no checkpoint .*none\.pth: fetch it first"):
        Pretrained("vit-small-16", tmp_path / "none.pth")
    with pytest.raises(InvalidArgument, match="checkpoint must be a local file"):
        Pretrained("vit-small-16")


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return (os.mkdir, (str(self.folder),))


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("in_arguments", [False, True], ids=["beside", "within arguments"])
def test_code_in_a_pickle_is_refused_and_not_executed(legacy, in_arguments, tmp_path):
    executed = tmp_path / "executed"
    trap = Namespace(lr=Trap(executed)) if in_arguments else Trap(executed)
    path = tmp_path / "trap.pth"
    torch.save({"teacher": tiny().state_dict(), "args": trap}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(InvalidArgument, match=r"trap\.pth is not a whole file .* could run code"):
        Pretrained(tiny(), path, size=16)
    assert not executed.exists()
    torch.load(path, weights_only=False)
    assert executed.exists(), "the trap works"


# ---------------------------------------------------------------- any module, any image


def test_maps_of_a_conv_net_are_flattened_and_dropout_and_batch_statistics_are_off():
    module, images = conv_net(), pictures()
    for _ in range(5):
        module(torch.randn(8, 3, 9, 9))  # statistics that are not those of a fresh network
    extractor = Pretrained(module.train(), size=20)
    features = extractor.transform(images)
    assert module.training, "the given module is copied"
    assert features.shape == (3, 6 * 9 * 9)
    close(features, by_hand(module.eval(), images, 20))


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 20, 20), (3, 40, 17)])
def test_grey_images_are_repeated_and_images_of_any_shape_become_squares(shape):
    images = pictures(2, shape)
    close(Pretrained(conv_net(), size=20).transform(images), by_hand(conv_net().eval(), images, 20))


def test_a_grey_network_gets_one_channel():
    module, images = conv_net(channels=1).eval(), pictures(2, (1, 20, 20))
    with torch.inference_mode():
        expected = module((torch.from_numpy(images) / 255 - 0.3) / 0.2).flatten(1).numpy()
    close(Pretrained(module, size=20, mean=[0.3], std=[0.2]).transform(images), expected)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [13, 32, 60])
def test_resizing_is_pillows_but_for_rounding(interpolation, size):
    pillow = pytest.importorskip("PIL.Image")
    images = 64 + pictures(2, (3, 32, 24)) // 2  # nothing is cut at 0 or 255
    extractor = Pretrained(nn.Identity(), size=size, mean=[0] * 3, std=[1] * 3, interpolation=interpolation)
    levels = 255 * extractor.transform(images).reshape(2, 3, size, size)
    how = getattr(pillow.Resampling, interpolation.upper())
    for image, ours in zip(images, levels, strict=True):
        theirs = np.asarray(pillow.fromarray(image.transpose(1, 2, 0)).resize((size, size), how)).transpose(2, 0, 1)
        assert np.abs(ours - theirs).max() < 1.5  # Pillow rounds after each of two passes


def test_a_row_depends_on_its_own_image_alone():
    images, whole = pictures(7), Pretrained(tiny(), size=16).transform(pictures(7))
    for batch_size in (1, 3, 7):
        np.testing.assert_allclose(
            Pretrained(tiny(), size=16, batch_size=batch_size).transform(images), whole, atol=1e-5
        )
    np.testing.assert_array_equal(Pretrained(tiny(), size=16).transform(images), whole)
    np.testing.assert_allclose(Pretrained(tiny(), size=16).transform(images[::-2]), whole[::-2], atol=1e-5)


@pytest.mark.parametrize(
    "images",
    [pictures().astype(np.float32), pictures()[:, 0], pictures()[:0], "images"],
    ids=["floats", "no channels", "none", "text"],
)
def test_what_are_no_images_is_refused(images):
    extractor = Pretrained(tiny(), size=16)
    for act in (extractor.fit, extractor.transform):
        with pytest.raises(InvalidArgument, match="images must be uint8, levels 0 to 255"):
            act(images)


def test_images_of_other_channels_are_refused():
    with pytest.raises(InvalidArgument, match="images must have 1 channel or 3, as mean and std have; got 4"):
        Pretrained(tiny(), size=16).transform(pictures(2, (4, 8, 8)))


class Returns(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, images):
        return self.what


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"hidden": 1}, "one row per image, 3; got dict"),
        (torch.ones(2, 5), "got (2, 5)"),
        (torch.tensor(1.0), "got ()"),
        (torch.full((3, 2), torch.inf), "must return finite features"),
    ],
)
def test_a_module_that_gives_no_row_of_numbers_per_image_is_refused(what, says):
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        Pretrained(Returns(what), size=16).transform(pictures())


def test_a_module_that_cannot_read_the_images_is_told_with_its_own_words():
    with pytest.raises(InvalidArgument, match=r"Linear cannot read images of shape \(3, 16, 16\) \(RuntimeError: mat1"):
        Pretrained(nn.Linear(5, 2), size=16).transform(pictures())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"size": 0}, "size must be between"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"interpolation": "cubic"}, "interpolation must be one of 'bicubic', 'bilinear'"),
        ({"mean": [0.5]}, "one value per channel"),
        ({"std": [1, 0, 1]}, "std above 0"),
        ({"mean": "grey"}, "mean must be one finite number per channel"),
        ({"std": [1, 1, np.nan]}, "std must be one finite number per channel"),
        ({"module": object()}, "module must be a torch.nn.Module or the name of one, got object"),
    ],
)
def test_settings_are_checked(changes, says):
    with pytest.raises(InvalidArgument, match=says):
        Pretrained(**{"module": tiny(), **changes})


# ---------------------------------------------------------------- as an extractor


def test_the_fingerprint_tells_weights_and_settings_apart_and_nothing_else(stored):
    def mark(module=None, checkpoint=None, **changes):
        return Pretrained(module or tiny(), checkpoint, **{"size": 16, **changes}).fingerprint

    same = [mark(), mark(batch_size=1), mark(tiny(seed=1), stored(tiny().state_dict()))]
    assert len(set(same)) == 1
    rescaled = nn.Sequential(nn.Identity())
    rescaled.register_buffer("scale", torch.ones(1), persistent=False)
    doubled = nn.Sequential(nn.Identity())
    doubled.register_buffer("scale", 2 * torch.ones(1), persistent=False)
    others = [
        mark(tiny(seed=1)),
        mark(tiny(heads=2)),
        mark(size=24),
        mark(mean=[0, 0, 0]),
        mark(std=[1, 1, 1]),
        mark(interpolation="bilinear"),
        mark(rescaled),
        mark(doubled),
    ]
    assert len({same[0], *others}) == 9


def test_the_cache_computes_once_and_needs_no_fit(tmp_path):
    images, told = pictures(5), []
    extractor = Pretrained(tiny(), size=16)
    fingerprint = extractor.fingerprint
    assert extractor.fit(images) is extractor and extractor.fingerprint == fingerprint
    found = cached(images, extractor, tmp_path, progress=lambda *all_of_it: told.append(all_of_it))
    np.testing.assert_array_equal(found, extractor.transform(images))
    extractor.module.forward = None  # a second computation would fail
    np.testing.assert_array_equal(cached(images, extractor, tmp_path), found)
    assert told == [(0, 5), (5, 5)]
    other = cached(images, Pretrained(tiny(seed=1), size=16), tmp_path)
    assert np.abs(found - other).max() > 0.1


def test_what_is_saved_is_loaded_with_the_same_fingerprint_and_is_a_checkpoint_too(stored, tmp_path):
    state = {**tiny().state_dict(), "head.weight": torch.ones(2)}
    first = Pretrained(tiny(1), stored(state), size=16)
    saved = tmp_path / "saved.safetensors"
    first.save(saved)
    assert load_file(saved).keys() == tiny().state_dict().keys()
    second = Pretrained(tiny(2), size=16)
    assert second.fingerprint != first.fingerprint
    assert second.load(saved) is second and second.fingerprint == first.fingerprint
    for again in (second, Pretrained(tiny(3), saved, size=16)):
        np.testing.assert_array_equal(again.transform(pictures()), first.transform(pictures()))


def test_a_module_with_shared_weights_is_saved(tmp_path):
    layer = nn.Conv2d(3, 3, 1)
    first = Pretrained(nn.Sequential(layer, layer), size=4)
    first.save(tmp_path / "tied")
    other = nn.Conv2d(3, 3, 1)
    assert Pretrained(nn.Sequential(other, other), size=4).load(tmp_path / "tied").fingerprint == first.fingerprint


def test_loading_anything_else_is_refused_and_changes_nothing(stored, tmp_path):
    extractor = Pretrained(tiny(), size=16)
    fingerprint = extractor.fingerprint
    settings = tmp_path / "settings"
    Pretrained(tiny(1), size=24).save(settings)
    layers = tmp_path / "layers"
    Pretrained(tiny(1, depth=2), size=16).save(layers)
    cut = tmp_path / "cut"
    extractor.save(cut)
    cut.write_bytes(cut.read_bytes()[:-4])
    bent = tmp_path / "bent"
    extractor.save(bent)
    save_file({"norm.weight": torch.ones(12)}, bent, {"description": description_in(bent)})
    refusals = {
        settings: "holds weights of other settings",
        layers: "holds weights of other settings",
        cut: "does not hold a saved Pretrained",
        bent: "is damaged: its weights must have the names and shapes",
        stored(tiny().state_dict()): "does not hold a saved Pretrained",
        stored(tiny().state_dict(), "plain.safetensors"): "does not hold a saved Pretrained",
        tmp_path / "none": "there is no file",
    }
    for path, says in refusals.items():
        with pytest.raises(InvalidArgument, match=says):
            extractor.load(path)
    extractor._fingerprint = None  # computed anew
    assert extractor.fingerprint == fingerprint


def description_in(path):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as stored:
        return stored.metadata()["description"]


def test_torchs_own_generator_is_left_alone(vit_file):
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    Pretrained("vit-small-16", vit_file)
    assert torch.equal(torch.rand(3), expected)


# ---------------------------------------------------------------- timm


def test_without_timm_other_names_say_what_to_install(monkeypatch, vit_file):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtra, match=r"'resnet50' is none of vit-small-16, .*pip install 'labeldp\[vision\]'"):
        Pretrained("resnet50", vit_file)


def test_a_timm_that_cannot_be_imported_is_a_message(monkeypatch, tmp_path, vit_file):
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra, match=r"timm is installed, but cannot be imported .*torchvision::nms"):
        Pretrained("resnet50", vit_file)


def test_timm_is_asked_for_a_network_without_weights_and_head_and_never_for_a_download(monkeypatch, stored):
    asked = []

    def create_model(name, **settings):
        asked.append((name, settings))
        return tiny(1)

    timm = SimpleNamespace(is_model=lambda name: name == "vit_of_timm", create_model=create_model)
    monkeypatch.setitem(sys.modules, "timm", timm)
    path = stored(tiny().state_dict())
    features = Pretrained("vit_of_timm", path, size=16).transform(pictures())
    close(features, by_hand(tiny(), pictures(), 16))
    assert asked == [("vit_of_timm", {"pretrained": False, "num_classes": 0})]
    with pytest.raises(InvalidArgument, match="a model of timm's, got 'hf-hub:some/model'"):
        Pretrained("hf-hub:some/model", path, size=16)
    assert len(asked) == 1


def test_timms_vit_gives_the_features_of_ours(vit, vit_file):
    try:
        import timm  # noqa: F401
    except Exception as error:
        pytest.skip(f"timm cannot be imported: {error}")
    images = pictures(2)
    close(Pretrained("vit_small_patch16_224", vit_file).transform(images), by_hand(vit, images))
