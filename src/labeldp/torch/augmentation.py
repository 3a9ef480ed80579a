"""Random crops, flips and cutouts of whole batches, keyed by (seed, epoch, row): the same on any number of processes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labeldp.errors import InvalidArgument

MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Augmentation:
    """What is done to each image of a batch; the authors' code has crop=4, flip=True, cutout=8.

    Parameters
    ----------
    crop : pad by so many pixels on each side, then cut the original size out at a random place.
    flip : turn left to right, every other image. Not for digits, whose meaning it changes.
    cutout : blank a square of this side around a random point; at the border it is cut off.
    """

    crop: int = 0
    flip: bool = False
    cutout: int = 0

    def __post_init__(self) -> None:
        if self.crop < 0 or self.cutout < 0:
            raise InvalidArgument("crop and cutout must be numbers of pixels, 0 for none.")

    def check(self, sides: tuple[int, ...]) -> None:
        """Raise unless some of each image is left."""
        if self.crop >= min(sides) or self.cutout > min(sides):
            raise InvalidArgument(
                f"crop must be less than the images' sides, {sides}, and cutout no more; got {self.crop} and {self.cutout}."
            )

    def __bool__(self) -> bool:
        return self.crop > 0 or self.flip or self.cutout > 0

    def __call__(self, images: Tensor, *, seed: int, epoch: int, rows: np.ndarray) -> Tensor:
        """Return changed copies of images (batch, channels, height, width) that are these rows of the data."""
        height, width = images.shape[2:]
        chances = torch.from_numpy(uniforms(seed, epoch, rows, 5)).to(images.device)
        ys = _span(height, images) + _below(chances[0], 2 * self.crop + 1)[:, None]
        xs = _span(width, images) + _below(chances[1], 2 * self.crop + 1)[:, None]
        if self.flip:
            xs = torch.where((chances[2] < 0.5)[:, None], xs.flip(1), xs)
        padded = functional.pad(images, (self.crop,) * 4)
        if self.crop or self.flip:
            batch = torch.arange(len(images), device=images.device)[:, None, None]
            images = padded.permute(0, 2, 3, 1)[batch, ys[:, :, None], xs[:, None, :]].permute(0, 3, 1, 2)
        if self.cutout:
            tall = self._hidden(_below(chances[3], height), height, images)
            wide = self._hidden(_below(chances[4], width), width, images)
            images = images.masked_fill((tall[:, :, None] & wide[:, None, :])[:, None], 0)
        return images

    def _hidden(self, centre: Tensor, length: int, images: Tensor) -> Tensor:
        start = centre[:, None] - self.cutout // 2
        place = _span(length, images)
        return (place >= start) & (place < start + self.cutout)


def variants(images: Tensor, *, mirror: bool, shift: int) -> list[Tensor]:
    """Return images as they are; moved by so many pixels, to the top left and to the bottom right; mirror images of all."""
    seen = [images]
    if shift:
        padded = functional.pad(images, (shift,) * 4, mode="reflect")
        seen += [padded[..., 2 * shift :, 2 * shift :], padded[..., : -2 * shift, : -2 * shift]]
    return seen + [each.flip(-1) for each in seen] if mirror else seen


def uniforms(seed: int, epoch: int, rows: np.ndarray, count: int) -> np.ndarray:
    """Return `count` numbers in [0, 1) per row, a hash of (seed, epoch, row): SplitMix64 over their combination."""
    key = _mixed(np.array([seed], dtype=np.uint64) * MIX + np.uint64(epoch))
    per_row = _mixed(key + rows.astype(np.uint64) * MIX)
    each = _mixed(per_row + np.arange(1, count + 1, dtype=np.uint64)[:, None] * MIX)
    return (each >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)


def _mixed(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _below(chance: Tensor, count: int) -> Tensor:
    return (chance * count).long()


def _span(length: int, images: Tensor) -> Tensor:
    return torch.arange(length, device=images.device)
