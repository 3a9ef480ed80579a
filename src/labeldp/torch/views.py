"""Random views of whole batches of images, keyed by (seed, epoch, row, view): the same on any number of processes.

A view is made of matrices, one set per image, so that no loop runs over images. Cutting out, enlarging, turning and blurring
work on each axis alone: one matrix from the left, one from the right. Saturation, hue and greyness are one matrix over the
channels; brightness and contrast are a factor and a level that is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labeldp.errors import InvalidArgument
from labeldp.torch.augmentation import uniforms

TO_LUMA_AND_CHROMA = ((0.299, 0.587, 0.114), (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))
"""Red, green, blue to YIQ, where grey has no chroma and a change of hue is a turn of the chroma."""
BLUR = (0.1, 2.0)
"""The range of the blur's standard deviation, in pixels."""
CHANCES = 14  # random numbers per view


@dataclass(frozen=True, slots=True)
class Views:
    """What is done to an image to make a view of it. The defaults are BYOL's, but for what depends on the data.

    Parameters
    ----------
    smallest : the least share of the image's area that is cut out; shares are uniform from here to 1. BYOL has 0.08, for
        larger images. The part is enlarged to the whole image's size.
    stretch : its width over its height is between 1 / stretch and stretch, uniform in the logarithm.
    flip : turn left to right, every other view. Not for digits, whose meaning it changes.
    jitter : the chance that brightness, contrast, saturation and hue change at all.
    brightness, contrast, saturation : factors are uniform from 1 - this to 1 + this. Contrast is about the view's mean level.
    hue : colours turn by at most this share of the whole circle, either way, in YIQ.
    grey : the chance that no colour is left.
    blur : the chance of a Gaussian blur; its standard deviation is uniform from 0.1 to 2 pixels. Little is left of an image
        of 32 pixels, so there is none unless it is asked for; BYOL blurs every first view and one in ten second ones.
    solarize : the chance that levels above one half are turned over; BYOL does it to one in five second views.

    Saturation, hue and grey are for three channels, red, green and blue; other images have none.
    """

    smallest: float = 0.2
    stretch: float = 4 / 3
    flip: bool = False
    jitter: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    grey: float = 0.2
    blur: float = 0.0
    solarize: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.smallest <= 1 or not 1 <= self.stretch < math.inf:
            raise InvalidArgument(
                f"smallest must be in (0, 1] and stretch at least 1; got {self.smallest} and {self.stretch}."
            )
        shares = {name: getattr(self, name) for name in self.__slots__ if name not in ("smallest", "stretch", "flip")}
        if wrong := {name: value for name, value in shares.items() if not 0 <= value <= 1}:
            raise InvalidArgument(f"chances and strengths of a view must be in [0, 1], got {wrong}.")

    def __call__(self, images: Tensor, *, seed: int, epoch: int, rows: np.ndarray, view: int) -> Tensor:
        """Return views of images that are these rows of the data, float32 in [0, 1] and of the same shape.

        Parameters
        ----------
        images : (batch, channels, height, width): bytes, or floats in [0, 1].
        view : 0, 1, ..: which view of the same row in the same epoch.
        """
        chances = torch.from_numpy(uniforms(seed, epoch, rows, CHANCES * (view + 1))[CHANCES * view :])
        chances = chances.to(images.device)
        pixels = images.to(torch.float32)
        if images.dtype == torch.uint8:
            pixels = pixels / 255
        seen = self._cut(pixels, chances[:7])
        seen = self._coloured(seen, chances[7:13]).clamp_(0, 1)
        if self.solarize:
            turned = (chances[13] < self.solarize)[:, None, None, None] & (seen >= 0.5)
            seen = torch.where(turned, 1 - seen, seen)
        return seen.contiguous(memory_format=torch.channels_last)

    def _cut(self, pixels: Tensor, chances: Tensor) -> Tensor:
        """Return random parts of images, enlarged to their size."""
        height, width = pixels.shape[2:]
        area = self.smallest + (1 - self.smallest) * chances[0]
        ratio = torch.exp((2 * chances[1] - 1) * math.log(self.stretch))
        tall, wide = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
        down = enlarging(height, chances[2] * (1 - tall), tall)
        across = enlarging(width, chances[3] * (1 - wide), wide)
        if self.flip:
            across = torch.where((chances[4] < 0.5)[:, None, None], across.flip(1), across)
        if self.blur:
            deviation = torch.where(chances[6] < self.blur, BLUR[0] + (BLUR[1] - BLUR[0]) * chances[5], 0)
            down, across = blurring(height, deviation) @ down, blurring(width, deviation) @ across
        return down[:, None] @ pixels @ across[:, None].mT

    def _coloured(self, seen: Tensor, chances: Tensor) -> Tensor:
        """Return views in other colours: brighter, then with more contrast, then of other saturation and hue."""
        changed = chances[0] < self.jitter
        brightness = torch.where(changed, _about_one(self.brightness, chances[1]), 1)
        contrast = torch.where(changed, _about_one(self.contrast, chances[2]), 1)
        if seen.shape[1] == 3:
            saturation = torch.where(changed, _about_one(self.saturation, chances[3]), 1)
            saturation = torch.where(chances[5] < self.grey, 0, saturation)
            turn = torch.where(changed, 2 * math.pi * self.hue * (2 * chances[4] - 1), 0)
            seen = (recolouring(saturation, turn) @ seen.flatten(2)).view_as(seen)
            level = seen.mean(dim=(2, 3)) @ seen.new_tensor(TO_LUMA_AND_CHROMA[0])
        else:
            level = seen.mean(dim=(1, 2, 3))
        scale, added = brightness * contrast, brightness * (1 - contrast) * level
        return seen * scale[:, None, None, None] + added[:, None, None, None]


def enlarging(length: int, start: Tensor, share: Tensor) -> Tensor:
    """Return the matrices (batch, length, length) that stretch a part of an axis over all of it, by linear interpolation.

    Parameters
    ----------
    start, share : (batch,): where the part begins and how long it is, as shares of the axis.
    """
    pixel = torch.arange(length, device=start.device, dtype=start.dtype)
    centres = length * (start[:, None] + share[:, None] * (pixel + 0.5) / length) - 0.5
    return (1 - (centres.clamp(0, length - 1)[:, :, None] - pixel).abs()).clamp_(min=0)


def blurring(length: int, deviation: Tensor) -> Tensor:
    """Return the matrices (batch, length, length) of Gaussian averages along an axis; at the border, over what there is."""
    pixel = torch.arange(length, device=deviation.device, dtype=deviation.dtype)
    distance = (pixel[:, None] - pixel) / deviation.clamp(min=1e-3)[:, None, None]
    weights = torch.exp(-0.5 * distance**2)
    return weights / weights.sum(dim=2, keepdim=True)


def recolouring(saturation: Tensor, turn: Tensor) -> Tensor:
    """Return the matrices (batch, 3, 3) that multiply the chroma and turn it by an angle, and leave the luma as it is."""
    there = saturation.new_tensor(TO_LUMA_AND_CHROMA)
    along, aside = saturation * turn.cos(), saturation * turn.sin()
    zero, one = torch.zeros_like(along), torch.ones_like(along)
    change = torch.stack([one, zero, zero, zero, along, -aside, zero, aside, along], dim=1).view(-1, 3, 3)
    return torch.linalg.inv(there) @ change @ there


def _about_one(strength: float, chance: Tensor) -> Tensor:
    return 1 + strength * (2 * chance - 1)
