import pytest
import torch
from torch import nn

from labeldp.errors import InvalidArgument
from labeldp.torch import models

FASHION = {"kind": "image", "shape": [1, 28, 28]}
DIGITS = {"kind": "image", "shape": [1, 8, 8]}


def n_parameters(name, inputs, n_classes=10):
    return sum(p.numel() for p in models.build(name, inputs, n_classes).parameters())


def test_small_conv_has_the_stated_layers():
    convolutions = [m for m in models.build("small-conv", FASHION, 10).modules() if isinstance(m, nn.Conv2d)]
    assert [(m.in_channels, m.out_channels, m.kernel_size[0], m.stride[0]) for m in convolutions] == [
        (1, 32, 6, 2),
        (32, 64, 3, 2),
        (64, 64, 3, 1),
        (64, 128, 3, 2),
        (128, 128, 3, 1),
    ]


@pytest.mark.parametrize("name", ["small-conv", "small-conv-groupnorm"])
def test_small_conv_has_the_stated_parameters(name):
    weights = 36 * 32 + 9 * (32 * 64 + 64 * 64 + 64 * 128 + 128 * 128)
    norms = 2 * (32 + 64 + 64 + 128 + 128)
    assert n_parameters(name, FASHION) == weights + norms + 128 * 10 + 10 == 279_754


def test_the_other_small_models_have_the_stated_parameters():
    assert n_parameters("tiny-conv", DIGITS) == 9 * (16 + 16 * 32) + 2 * (16 + 32) + 128 * 10 + 10 == 6_138
    assert n_parameters("linear", FASHION) == 784 * 10 + 10 == 7_850
    assert n_parameters("linear", {"kind": "vector", "size": 5}, 3) == 5 * 3 + 3
    assert n_parameters("mlp", FASHION) == 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10 == 235_146


def test_small_conv_shrinks_28_to_14_to_7_to_4():
    x, sides = torch.rand(1, 1, 28, 28), []
    for layer in list(models.build("small-conv", FASHION, 10).eval())[:5]:
        x = layer(x)
        sides.append(x.shape[-1])
    assert sides == [14, 7, 7, 4, 4]


def test_the_stem_is_a_3x3_convolution_of_2x2_pixels_stacked_as_channels():
    stem = models.build("small-conv", FASHION, 10)[0][0]
    x = torch.rand(2, 1, 28, 28)
    stacked = nn.functional.pixel_unshuffle(x, 2)
    kernel = nn.functional.pixel_unshuffle(stem.weight, 2)
    assert torch.allclose(stem(x), nn.functional.conv2d(stacked, kernel, padding=1), atol=1e-6)


def test_the_groupnorm_net_has_no_batch_norm_and_no_buffers():
    model = models.build("small-conv-groupnorm", FASHION, 10)
    assert not [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert len([m for m in model.modules() if isinstance(m, nn.GroupNorm)]) == 5
    assert not list(model.buffers())


def test_in_the_groupnorm_net_rows_do_not_touch_each_other_in_training():
    model = models.build("small-conv-groupnorm", FASHION, 10).train()
    x = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([model(row) for row in x.split(1)])
    assert torch.allclose(model(x), alone, atol=1e-5)


def test_both_norms_start_from_the_same_convolutions():
    batch, group = (models.build(name, FASHION, 10, seed=3) for name in ("small-conv", "small-conv-groupnorm"))
    for (name, ours), (_, theirs) in zip(batch.named_parameters(), group.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("name", ["small-conv", "small-conv-groupnorm", "tiny-conv"])
def test_an_image_too_small_for_the_strides_is_refused(name):
    with pytest.raises(InvalidArgument, match="at least 8×8 for a convolutional net, got 7×28"):
        models.build(name, {"kind": "image", "shape": [1, 7, 28]}, 10)


def test_no_activation_works_in_place():
    """Gradients per example (Opacus) hook every layer, and hooks do not survive in-place changes."""
    for name in ("small-conv", "small-conv-groupnorm", "tiny-conv", "mlp"):
        assert not [m for m in models.build(name, FASHION, 10).modules() if getattr(m, "inplace", False)]


@pytest.mark.parametrize("name", ["tiny-conv", "mlp", "linear"])
def test_a_few_steps_fit_a_few_images(name):
    model = models.build(name, DIGITS, 3)
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.rand(12, 1, 8, 8, generator=generator), torch.arange(12) % 3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    assert torch.equal(model(x).argmax(dim=1), labels)
