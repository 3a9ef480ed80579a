"""Vision transformers (Dosovitskiy et al. 2021) whose parameters have the names that DINO's and timm's have.

So the state dicts that DINO (Caron et al. 2021) publishes load as they are. These are backbones: they give the class token,
not logits, and are not among the models that `build` knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from labeldp.errors import InvalidArgument

EPSILON = 1e-6
"""Of layer norms; torch's own is 1e-5."""
NUDGE = 0.1
"""DINO's code adds it to the number of patches before it divides; the scale, and so the features, follow from it."""


class PatchEmbedding(nn.Module):
    """Cuts an image into squares and maps each to a token."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n_images, n_tokens, width = x.shape
        parts = self.qkv(x).view(n_images, n_tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).reshape(x.shape))

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


class Mlp(nn.Module):
    """Two layers, four times as wide in between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class Block(nn.Module):
    """x + Attention(norm(x)), then the same with the Mlp."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPSILON)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=EPSILON)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Turns images (n, 3, H, W) into their class tokens (n, width).

    Parameters
    ----------
    width, depth, heads : of the tokens, in blocks, of each attention.
    patch : the side of a patch in pixels; height and width of the images must be multiples of it.
    size : the side of the images that positions are learned for. For others they are interpolated, as in DINO's code.
    """

    def __init__(self, width: int, *, depth: int, heads: int, patch: int, size: int = 224) -> None:
        super().__init__()
        self.patch, self.size = patch, size
        self.patch_embed = PatchEmbedding(width, patch)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=EPSILON)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        if height % self.patch or width % self.patch:
            raise InvalidArgument(
                f"images must be a multiple of {self.patch} pixels high and wide, the side of a patch; got {height} x {width}."
            )
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1)
        tokens = tokens + self._positions(height // self.patch, width // self.patch)
        return self.norm(self.blocks(tokens))[:, 0]

    def extra_repr(self) -> str:
        return f"patch={self.patch}, size={self.size}"

    def _positions(self, down: int, across: int) -> Tensor:
        side = math.isqrt(self.pos_embed.shape[1] - 1)
        if (down, across) == (side, side):
            return self.pos_embed
        grid = self.pos_embed[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
        scale = ((down + NUDGE) / side, (across + NUDGE) / side)
        grid = functional.interpolate(grid, scale_factor=scale, mode="bicubic")
        return torch.cat([self.pos_embed[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)


_small = partial(VisionTransformer, 384, depth=12, heads=6)
_base = partial(VisionTransformer, 768, depth=12, heads=12)

BACKBONES: dict[str, Callable[[], VisionTransformer]] = {
    "vit-small-16": partial(_small, patch=16),
    "vit-small-8": partial(_small, patch=8),
    "vit-base-16": partial(_base, patch=16),
    "vit-base-8": partial(_base, patch=8),
}
