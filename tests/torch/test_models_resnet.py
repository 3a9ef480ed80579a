import torch
from torch import nn

from labeldp.torch import models
from labeldp.torch.models.resnet import Unit

CIFAR = {"kind": "image", "shape": [3, 32, 32]}


def test_the_parameters_are_those_of_resnet18_v2():
    """Each line is one layer of the table in He et al., counted by hand: k*k*in*out per convolution, 2 per norm channel."""
    total = 9 * 3 * 64
    for c_in, c in ((64, 64), (64, 128), (128, 256), (256, 512)):
        total += 2 * c_in + 9 * c_in * c + 2 * c + 9 * c * c  # the first unit
        total += c_in * c if c != c_in else 0  # its projection, without a norm of its own
        total += 2 * (2 * c + 9 * c * c)  # the second unit
    total += 2 * 512 + 512 * 10 + 10
    model = models.build("resnet18-v2", CIFAR, 10)
    assert sum(p.numel() for p in model.parameters()) == total == 11_172_170


def test_eighteen_layers_have_weights():
    layers = [m for m in models.build("resnet18-v2", CIFAR, 10).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len([m for m in layers if not (isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1))]) == 18
    assert all(m.bias is None for m in layers if isinstance(m, nn.Conv2d))


def test_the_stages_have_these_shapes():
    model = models.build("resnet18-v2", CIFAR, 10).eval()
    x, shapes = torch.rand(1, 3, 32, 32), []
    for layer in model:
        x = layer(x)
        if isinstance(layer, nn.Conv2d | Unit):
            shapes.append(tuple(x.shape[1:]))
    expected = [(64, 32, 32)]
    for shape in ((64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)):
        expected += [shape, shape]
    assert shapes == expected


def test_a_unit_without_change_of_shape_adds_to_its_raw_input():
    unit = Unit(4, 4, 1).eval()
    nn.init.zeros_(unit.residual[-1].weight)
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(unit(x), x)  # negative values survive: no activation after the sum


def test_a_unit_that_changes_the_shape_projects_the_activated_input():
    unit = Unit(4, 6, 2).eval()
    nn.init.zeros_(unit.residual[-1].weight)
    x = torch.randn(2, 4, 8, 8)
    normed = nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4))
    expected = nn.functional.conv2d(normed.clamp(min=0), unit.projection.weight, stride=2)
    assert torch.allclose(unit(x), expected, atol=1e-6)
