import numpy as np
import pytest
import torch
from torch import nn

import labeldp as ldp
from labeldp.errors import InvalidArgument
from labeldp.torch import TorchLearner, models
from labeldp.torch.models.whitened import FLOOR, QuickNorm

IMAGES = {"kind": "image", "shape": [3, 32, 32]}
NETS = ("whitened-conv", "whitened-conv-narrow", "whitened-conv-wide", "whitened-conv-published")


def images(n=40):
    rng = np.random.default_rng(0)
    smooth = rng.integers(0, 256, (n, 3, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)
    return (smooth // 2 + rng.integers(0, 100, (n, 3, 32, 32))).astype(np.uint8)


def patches_of(x):
    found = [
        x[:, :, i : i + 2, j : j + 2].reshape(len(x), -1) for i in range(x.shape[2] - 1) for j in range(x.shape[3] - 1)
    ]
    return np.concatenate(found).astype(np.float64)


def test_the_first_layer_makes_patches_uncorrelated_and_of_variance_one():
    X = images()
    module = models.build("whitened-conv", IMAGES, 10)
    module.see(torch.as_tensor(X))
    with torch.inference_mode():
        told = module[0](torch.as_tensor(X) / 255).permute(0, 2, 3, 1).flatten(0, 2).double().numpy()
    variances = np.linalg.eigvalsh(np.cov(patches_of(X / 255).T, bias=True))
    covariance = np.cov(told[:, :12].T, bias=True)
    assert np.allclose(covariance, np.diag(variances / (variances + FLOOR)), atol=1e-3)
    assert np.allclose(told[:, :12].mean(axis=0), 0, atol=1e-3)
    assert np.array_equal(told[:, 12:], -told[:, :12])


def test_convolutions_begin_as_the_identity_as_far_as_their_channels_go():
    module = models.build("whitened-conv", IMAGES, 10)
    convolutions = [m for m in module.modules() if isinstance(m, nn.Conv2d)]
    assert [(m.in_channels, m.out_channels) for m in convolutions] == [
        (24, 64),
        (64, 64),
        (64, 128),
        (128, 128),
        (128, 256),
        (256, 256),
    ]
    for each in convolutions:
        x = torch.rand(1, each.in_channels, 6, 6)
        assert torch.allclose(each(x)[:, : each.in_channels], x, atol=1e-6)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("shape", [[1, 28, 28], [3, 32, 32], [1, 16, 16]])
def test_it_reads_images_of_at_least_16_pixels_square(name, shape):
    module = models.build(name, {"kind": "image", "shape": shape}, 7).eval()
    assert module(torch.rand(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", NETS)
def test_smaller_images_are_refused(name):
    with pytest.raises(InvalidArgument, match=f"at least 16×16 for {name},"):
        models.build(name, {"kind": "image", "shape": [1, 15, 28]}, 10)


@pytest.mark.parametrize("name", ["whitened-conv-wide", "whitened-conv-published"])
def test_the_wide_ones_are_as_wide_as_published(name):
    module = models.build(name, IMAGES, 10)
    widths = [each.out_channels for each in module.modules() if isinstance(each, torch.nn.Conv2d)]
    assert widths == [64, 64, 256, 256, 256, 256]


def test_a_step_moves_the_biases_of_published_norms_64_times_as_far():
    x, slopes = torch.randn(8, 3, 4, 4), torch.tensor([1.0, -2.0, 0.5])
    steps = []
    for norm in (nn.BatchNorm2d(3), QuickNorm(3)):
        told = norm(x)
        (slopes * norm(x).sum(dim=(0, 2, 3))).sum().backward()
        torch.optim.SGD(norm.parameters(), lr=0.01, momentum=0.9, nesterov=True).step()
        steps.append((norm(x) - told).detach().mean(dim=(0, 2, 3)))
    assert torch.allclose(steps[1], 64 * steps[0], rtol=1e-4)


def test_published_norms_keep_bfloat16():
    module = models.build("whitened-conv-published", IMAGES, 10)
    seen = []
    for each in module.modules():
        if isinstance(each, QuickNorm | nn.GELU):
            each.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        module(torch.rand(2, *IMAGES["shape"]))
    assert set(seen) == {torch.bfloat16}


def test_the_published_one_has_small_logits_and_norms_without_weights():
    module = models.build("whitened-conv-published", IMAGES, 10)
    head = module[-1]
    x = torch.rand(5, 256)
    assert head.bias is None and torch.allclose(head(x), nn.functional.linear(x, head.weight) / 9)
    norms = [each for each in module.modules() if isinstance(each, QuickNorm)]
    assert len(norms) == 6
    assert {name for each in norms for name, _ in each.named_parameters()} == {"slow_bias"}


def test_whitening_is_not_trained_and_is_part_of_the_saved_model(tmp_path):
    X, labels = images(), np.arange(40) % 2
    vault = ldp.LabelVault(labels, classes=2, budget="1")
    release = vault.release(ldp.RandomizedResponse("1"))
    learner = TorchLearner(models.build("whitened-conv", IMAGES, 2), epochs=2, batch_size=8, learning_rate=0.01)
    learner.fit(X, release)
    twin = models.build("whitened-conv", IMAGES, 2)
    twin.see(torch.as_tensor(X))
    assert torch.equal(learner.module_[0].filters, twin[0].filters)
    assert not torch.equal(learner.module_[0].bias, twin[0].bias)
    learner.save(tmp_path / "model")
    again = TorchLearner(models.build("whitened-conv", IMAGES, 2)).load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), learner.predict_proba(X))
