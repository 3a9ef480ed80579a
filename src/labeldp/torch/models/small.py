"""Small networks, meant for CPUs.

`small-conv` was chosen among a handful by validation accuracy per second of two cores, on MNIST's training rows. What paid:
a large stem kernel, which is cheap on one channel (6×6 with stride 2 is a 3×3 on 2×2 pixels stacked as channels); halving the
size early, where activations are wide; residual layers at 7×7 and 4×4, where depth is cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from labeldp.errors import InvalidArgument
from labeldp.torch.models.inputs import Inputs, image_shape, n_numbers
from labeldp.torch.models.registry import register

Norm = Callable[[int], nn.Module]

LEAST_SIDE = 8
N_GROUPS = 8
HIDDEN = (256, 128)


class Conv(nn.Sequential):
    """Convolution -> normalization -> ReLU."""

    def __init__(self, c_in: int, c_out: int, norm: Norm, *, kernel: int = 3, stride: int = 1) -> None:
        convolution = nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=(kernel - 1) // 2, bias=False)
        super().__init__(convolution, norm(c_out), nn.ReLU())


class Residual(nn.Module):
    """x + Conv(x)."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.conv = Conv(channels, channels, norm)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x)


@register("small-conv", takes=("image",))
def small_conv(inputs: Inputs, n_classes: int) -> nn.Module:
    return _small_conv(inputs, n_classes, nn.BatchNorm2d)


@register("small-conv-groupnorm", takes=("image",))
def small_conv_groupnorm(inputs: Inputs, n_classes: int) -> nn.Module:
    """The same network without batch statistics: a row's logits depend on that row alone, also in training."""
    return _small_conv(inputs, n_classes, partial(nn.GroupNorm, N_GROUPS))


def _small_conv(inputs: Inputs, n_classes: int, norm: Norm) -> nn.Module:
    return nn.Sequential(
        Conv(_channels(inputs), 32, norm, kernel=6, stride=2),  # 28 -> 14
        Conv(32, 64, norm, stride=2),  # 7
        Residual(64, norm),
        Conv(64, 128, norm, stride=2),  # 4
        Residual(128, norm),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, n_classes),
    )


@register("medium-conv", takes=("image",))
def medium_conv(inputs: Inputs, n_classes: int) -> nn.Module:
    """One and a half times as wide, with a residual layer at 14×14: three times the work."""
    norm = nn.BatchNorm2d
    return nn.Sequential(
        Conv(_channels(inputs), 48, norm, kernel=6, stride=2),  # 28 -> 14
        Residual(48, norm),
        Conv(48, 96, norm, stride=2),  # 7
        Residual(96, norm),
        Conv(96, 192, norm, stride=2),  # 4
        Residual(192, norm),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(192, n_classes),
    )


@register("tiny-conv", takes=("image",))
def tiny_conv(inputs: Inputs, n_classes: int) -> nn.Module:
    """For 8×8 digits: a demo, a test."""
    return nn.Sequential(
        Conv(_channels(inputs), 16, nn.BatchNorm2d),  # 8
        Conv(16, 32, nn.BatchNorm2d, stride=2),  # 4
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 32, n_classes),
    )


@register("linear", takes=("image", "vector"))
def linear(inputs: Inputs, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(n_numbers(inputs), n_classes))


@register("mlp", takes=("image", "vector"))
def mlp(inputs: Inputs, n_classes: int) -> nn.Module:
    first, second = HIDDEN
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(n_numbers(inputs), first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Linear(second, n_classes),
    )


def _channels(inputs: Inputs) -> int:
    channels, height, width = image_shape(inputs)
    if min(height, width) < LEAST_SIDE:
        raise InvalidArgument(
            f"images must be at least {LEAST_SIDE}×{LEAST_SIDE} for a convolutional net, got {height}×{width}: try 'mlp'."
        )
    return channels
