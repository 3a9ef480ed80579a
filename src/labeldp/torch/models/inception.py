"""The paper's small Inception, for 28×28 images (Appendix, Details of the Experimental Setup).

The paper gives channels, kernels and strides. It does not say whether convolutions have a bias: ours have none, since batch
norm follows each. They pad by half the kernel, so that only a stride changes the size: 28, 14, 7.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labeldp.torch.models.inputs import Inputs, image_shape
from labeldp.torch.models.registry import register


class Conv(nn.Sequential):
    """Convolution -> BatchNormalization -> ReLU."""

    def __init__(self, c_in: int, kernel: int, c_out: int, *, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
        )


class Block(nn.Module):
    """Concat(Conv(1×1, c1), Conv(3×3, c2))."""

    def __init__(self, c_in: int, c1: int, c2: int) -> None:
        super().__init__()
        self.conv1 = Conv(c_in, 1, c1)
        self.conv3 = Conv(c_in, 3, c2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.conv1(x), self.conv3(x)], dim=1)


@register("inception-small", takes=("image",))
def inception_small(inputs: Inputs, n_classes: int) -> nn.Module:
    channels, _, _ = image_shape(inputs)
    # Each layer's first number is its input channels, which the paper leaves to the reader.
    s1 = nn.Sequential(Block(96, 32, 32), Block(64, 32, 48), Conv(80, 3, 160, stride=2))
    s2 = nn.Sequential(
        Block(160, 112, 48),
        Block(160, 96, 64),
        Block(160, 80, 80),
        Block(160, 48, 96),
        Conv(144, 3, 240, stride=2),
    )
    s3 = nn.Sequential(Block(240, 176, 160), Block(336, 176, 160))
    return nn.Sequential(
        Conv(channels, 3, 96),
        s1,
        s2,
        s3,
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(336, n_classes),
    )
