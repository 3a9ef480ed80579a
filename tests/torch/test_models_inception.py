"""The table of the paper's appendix, row by row."""

import torch
from torch import nn

from labeldp.torch import models
from labeldp.torch.models.inception import Block, Conv

FASHION = {"kind": "image", "shape": [1, 28, 28]}

# kind, input channels, channels (C1, C2 for a block), stride, output side
TABLE = [
    ("Conv", 1, 96, 1, 28),
    # S1
    ("Block", 96, (32, 32), 1, 28),
    ("Block", 64, (32, 48), 1, 28),
    ("Conv", 80, 160, 2, 14),
    # S2
    ("Block", 160, (112, 48), 1, 14),
    ("Block", 160, (96, 64), 1, 14),
    ("Block", 160, (80, 80), 1, 14),
    ("Block", 160, (48, 96), 1, 14),
    ("Conv", 144, 240, 2, 7),
    # S3
    ("Block", 240, (176, 160), 1, 7),
    ("Block", 336, (176, 160), 1, 7),
]


def layers():
    """Return the network's layers in order, S1 to S3 unfolded."""
    stem, s1, s2, s3, pool, flatten, linear = models.build("inception-small", FASHION, 10).eval()
    assert (len(s1), len(s2), len(s3)) == (3, 5, 2)
    return [stem, *s1, *s2, *s3], pool, flatten, linear


def is_conv(layer, kernel, c_in, c_out, stride):
    convolution, norm, relu = layer
    return (
        isinstance(layer, Conv)
        and isinstance(convolution, nn.Conv2d)
        and (convolution.in_channels, convolution.out_channels) == (c_in, c_out)
        and convolution.kernel_size == (kernel, kernel)
        and convolution.stride == (stride, stride)
        and convolution.bias is None
        and isinstance(norm, nn.BatchNorm2d)
        and isinstance(relu, nn.ReLU)
    )


def test_every_layer_is_the_papers():
    body, pool, _, linear = layers()
    for layer, (kind, c_in, channels, stride, _) in zip(body, TABLE, strict=True):
        if kind == "Conv":
            assert is_conv(layer, 3, c_in, channels, stride)
        else:
            assert isinstance(layer, Block)
            assert is_conv(layer.conv1, 1, c_in, channels[0], 1) and is_conv(layer.conv3, 3, c_in, channels[1], 1)
    assert isinstance(pool, nn.AdaptiveMaxPool2d) and pool.output_size == 1
    assert (linear.in_features, linear.out_features) == (336, 10)


def test_every_output_has_the_size_the_strides_leave():
    body, pool, flatten, linear = layers()
    x = torch.rand(2, 1, 28, 28)
    for layer, (_, _, channels, _, side) in zip(body, TABLE, strict=True):
        x = layer(x)
        assert x.shape == (2, channels if isinstance(channels, int) else sum(channels), side, side)
    largest = x.amax(dim=(2, 3))
    assert torch.equal(flatten(pool(x)), largest) and linear(largest).shape == (2, 10)


def test_the_parameters_are_those_of_the_table():
    total = 336 * 10 + 10
    for kind, c_in, channels, _, _ in TABLE:
        kernels = {3: channels} if kind == "Conv" else {1: channels[0], 3: channels[1]}
        total += sum(kernel**2 * c_in * c_out + 2 * c_out for kernel, c_out in kernels.items())
    model = models.build("inception-small", FASHION, 10)
    assert sum(p.numel() for p in model.parameters()) == total == 1_894_058


def test_a_block_concatenates_its_1x1_and_3x3_convolutions_in_that_order():
    block = Block(3, 2, 4).eval()
    x = torch.randn(1, 3, 5, 5)
    assert torch.equal(block(x)[:, :2], block.conv1(x)) and torch.equal(block(x)[:, 2:], block.conv3(x))
