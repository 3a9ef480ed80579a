"""ResNet18 V2 for small images: He et al. 2016, Identity Mappings in Deep Residual Networks, as in the paper's CIFAR runs.

V2 is full pre-activation: batch norm and ReLU come before each convolution, and nothing but a sum comes after the second. The
shortcut is the unit's raw input; where the shape changes it is a 1×1 convolution of the pre-activated input. After the last
unit there is one more batch norm and ReLU. Convolutions have no bias and pad symmetrically. Against the ImageNet network, one
3×3 convolution of stride 1 replaces the 7×7 one and the max pooling; the rest is the same.
"""

from __future__ import annotations

from torch import Tensor, nn

from labeldp.torch.models.inputs import Inputs, image_shape
from labeldp.torch.models.registry import register

WIDTH = 64
STAGES = ((1 * WIDTH, 1), (2 * WIDTH, 2), (4 * WIDTH, 2), (8 * WIDTH, 2))  # channels, stride of the first of two units


class Unit(nn.Module):
    """A residual unit of two 3×3 convolutions, pre-activated."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(c_in), nn.ReLU())
        self.residual = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
        )
        same_shape = c_in == c_out and stride == 1
        self.projection = None if same_shape else nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)
        shortcut = x if self.projection is None else self.projection(active)
        return shortcut + self.residual(active)


@register("resnet18-v2", takes=("image",))
def resnet18_v2(inputs: Inputs, n_classes: int) -> nn.Module:
    channels, _, _ = image_shape(inputs)
    units: list[nn.Module] = []
    c_in = WIDTH
    for c_out, stride in STAGES:
        units += [Unit(c_in, c_out, stride), Unit(c_out, c_out, 1)]
        c_in = c_out
    return nn.Sequential(
        nn.Conv2d(channels, WIDTH, 3, padding=1, bias=False),
        *units,
        nn.BatchNorm2d(c_in),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(c_in, n_classes),
    )
