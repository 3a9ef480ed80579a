"""SimCLR: its loss written out, a training by hand, and a made-up problem that it must help with."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from test_byol import Stop, backbone, blots, found_again, pictures, same, stopped_after, weights
from torch import nn

import labeldp as ldp
from labeldp.features import Extractor, cached
from labeldp.torch import BYOL, SimCLR
from labeldp.torch.batches import Batches
from labeldp.torch.models.whitened import Whitening
from labeldp.torch.schedules import linear
from labeldp.torch.simclr import confusion
from labeldp.torch.views import Views

SETTINGS = {"epochs": 3, "batch_size": 16, "projection": 6, "hidden": 12}


def simclr(module=None, **changed):
    return SimCLR(module or backbone(), **SETTINGS | changed)


# ---------------------------------------------------------------- the loss and a training


def test_the_loss_is_how_badly_each_view_finds_the_other_one_among_all():
    projections = torch.randn(10, 4).double()
    expected = 0.0
    for view in range(10):
        mine, chances = projections[view], {}
        for other in set(range(10)) - {view}:
            cosine = float(mine @ projections[other] / mine.norm() / projections[other].norm())
            chances[other] = math.exp(cosine / 0.5)
        expected -= math.log(chances[(view + 5) % 10] / sum(chances.values())) / 10
    assert float(confusion(projections, 0.5)) == pytest.approx(expected, rel=1e-5)
    assert float(confusion(3 * projections, 0.5)) == pytest.approx(expected, rel=1e-5)  # lengths do not count


def test_the_loss_is_least_where_both_views_agree_and_all_images_differ():
    apart = torch.eye(5).repeat(2, 1)
    assert float(confusion(apart, 0.01)) < 1e-9
    assert float(confusion(torch.ones(10, 4), 0.01)) == pytest.approx(
        math.log(9)
    )  # all alike: one guess in nine is right
    assert float(confusion(torch.cat([torch.eye(5), torch.eye(5).roll(1, 0)]), 0.01)) > 50


def test_a_training_is_the_one_written_out_here():
    """Two epochs of SGD by hand: order, views, loss and rate."""
    images, views = pictures(20), Views()
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 0.3, "momentum": 0.0, "weight_decay": 0.01}
    trained = simclr(plain, **settings, views=views, temperature=0.4, seed=4).fit(images)
    online, step = simclr(plain, **settings, views=views, seed=4)._network(images), 0
    for epoch in (1, 2):
        for rows in Batches(20, 8).epoch(4, epoch):
            x = [views(torch.from_numpy(images[rows]), seed=4, epoch=epoch, rows=rows, view=view) for view in (0, 1)]
            online.zero_grad()
            confusion(online(torch.cat(x))[0], 0.4).backward()
            with torch.no_grad():
                for parameter in online.parameters():
                    decayed = 0.01 * parameter if parameter.ndim > 1 else 0
                    parameter -= 0.3 * linear(step / 4) * (parameter.grad + decayed)
            step += 1
    assert torch.allclose(trained.module_[1].weight, online.backbone[1].weight, atol=1e-5)
    assert not torch.allclose(trained.module_[1].weight, plain[1].weight, atol=1e-3)  # something was learned


def test_each_epoch_tells_its_loss_and_how_far_representations_spread():
    records = []
    simclr().fit(pictures(), watch=records.append)
    assert [record["epoch"] for record in records] == [1, 2, 3]
    for record in records:
        assert set(record) == {"epoch", "epochs", "loss", "learning_rate", "seconds", "rows", "spread"}
        assert 0 < record["loss"] < 2 * math.log(31) and 0 < record["spread"] <= 1


# ---------------------------------------------------------------- an extractor like any other


def test_a_stopped_training_goes_on_bit_for_bit(tmp_path):
    whole = simclr().fit(pictures())
    with pytest.raises(Stop):
        simclr().fit(pictures(), checkpoint=tmp_path / "c.pt", watch=stopped_after(1))
    epochs = []
    resumed = simclr().fit(
        pictures(), checkpoint=tmp_path / "c.pt", watch=lambda record: epochs.append(record["epoch"])
    )
    assert epochs == [2, 3] and same(weights(resumed), weights(whole)) and resumed.fingerprint == whole.fingerprint


def test_a_checkpoint_of_byol_is_not_taken_for_its_own(tmp_path):
    BYOL(backbone(), **SETTINGS | {"epochs": 1}).fit(pictures(), checkpoint=tmp_path / "c.pt")
    with pytest.raises(ldp.InvalidArgument, match="cannot be gone on from"):
        simclr(epochs=1).fit(pictures(), checkpoint=tmp_path / "c.pt")


def test_it_is_an_extractor_with_a_description_of_all_that_matters():
    description = simclr().description()
    assert isinstance(simclr(), Extractor) and json.loads(json.dumps(description)) == description
    changes = [
        *({name: 7} for name in ("epochs", "batch_size", "projection", "hidden", "seed")),
        *({name: 0.5} for name in ("temperature", "learning_rate", "momentum", "weight_decay")),
        {"optimizer": "adamw"},
        {"views": Views(flip=True)},
        {"module": backbone(seed=1)},
    ]
    others = [json.dumps(simclr(**change).description()) for change in changes]
    assert len({json.dumps(description), *others}) == len(changes) + 1


def test_what_was_saved_is_loaded_and_of_byol_refused(tmp_path):
    extractor = simclr().fit(pictures())
    extractor.save(tmp_path / "saved")
    again = simclr().load(tmp_path / "saved")
    assert again.fingerprint == extractor.fingerprint
    assert np.array_equal(again.transform(pictures()), extractor.transform(pictures()))
    BYOL(backbone(), **SETTINGS).fit(pictures()).save(tmp_path / "byol")
    with pytest.raises(ldp.InvalidArgument, match="holds a SimCLR of other settings: decay, extractor"):
        simclr().load(tmp_path / "byol")


def test_where_views_are_flipped_an_image_and_its_mirror_image_have_the_same_features(tmp_path):
    extractor = simclr(views=Views(flip=True)).fit(pictures())
    images, mirrored = pictures(9, seed=2), pictures(9, seed=2)[..., ::-1]
    assert extractor.transform(images) == pytest.approx(extractor.transform(mirrored), abs=1e-6)
    mapped = cached(images, extractor, tmp_path)
    assert mapped.dtype == np.float32 and np.array_equal(mapped, extractor.transform(images))
    plain = simclr().fit(pictures())
    assert not np.allclose(plain.transform(images), plain.transform(mirrored), atol=1e-3)


def test_layers_that_take_in_public_inputs_are_given_them_before_training():
    images = pictures(40)
    module = nn.Sequential(Whitening(3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    alone = Whitening(3)
    alone.see(torch.from_numpy(images))
    found = simclr(module, epochs=1).fit(images).module_[0]
    assert torch.equal(found.filters, alone.filters) and not torch.equal(found.filters, Whitening(3).filters)
    assert torch.equal(module[0].filters, Whitening(3).filters)  # the given backbone stays as it was


def test_wrong_arguments_are_refused_with_what_must_hold():
    for wrong, says in [
        ({"module": "resnet"}, "backbone must be"),
        ({"temperature": 0}, "temperature must be > 0"),
        ({"temperature": math.nan}, "temperature must be > 0"),
        ({"projection": 0}, "projection must be"),
        ({"learning_rate": 0}, "learning_rate > 0"),
    ]:
        with pytest.raises(ldp.InvalidArgument, match=says):
            simclr(**wrong)
    with pytest.raises(ldp.InvalidArgument, match="this SimCLR has learned nothing yet"):
        simclr().transform(pictures())


# ---------------------------------------------------------------- does it help


def test_new_images_are_found_again_by_another_view_twice_as_often_as_before_training():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 5, stride=2, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    layers += [nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()]
    untrained, images, views = nn.Sequential(*layers), blots(512, seed=0), Views(smallest=0.7)
    settings = {"epochs": 20, "batch_size": 64, "projection": 32, "hidden": 64, "learning_rate": 0.1, "views": views}
    trained = simclr(untrained, **settings).fit(images)
    layers[1].momentum = layers[4].momentum = None  # its batch statistics are to be those of the images
    untrained.train()(torch.from_numpy(images).float() / 255)
    before, after = (found_again(module, blots(300, seed=1), views) for module in (untrained, trained.module_))
    assert after > before + 0.25 and after > 0.6
