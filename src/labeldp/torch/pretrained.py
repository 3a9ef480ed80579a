"""Features of images from a network that was trained elsewhere, read from a local file."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from labeldp import checks
from labeldp.errors import InvalidArgument, MissingExtra
from labeldp.torch.batches import gather
from labeldp.torch.checkpoints import fingerprint_of, save_weights
from labeldp.torch.models.vit import BACKBONES

FORMAT = "labeldp-pretrained-1"
"""Changes with anything that changes the features of given settings and weights; caches are keyed by it."""
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
WRAPPERS = ("teacher", "state_dict", "model")
"""Where checkpoints of whole trainings keep the weights; DINO's features are the teacher's."""
PREFIXES = ("", "module.", "backbone.", "module.backbone.", "teacher.backbone.", "model.")
"""What trainings put before the names of a backbone's weights."""
ONLY_FOR_TRAINING = ("num_batches_tracked", "mask_token")
NAMED_AT_MOST = 3

Weights = dict[str, Tensor]


class Pretrained:
    """Turn images into features: what a network that was trained elsewhere says of them.

    Images are scaled to [0, 1] and resized to size x size, whatever their shape was: the paper gives CIFAR-10's 32 x 32
    images to DINO's networks like this. Resizing is Pillow's (with antialiasing), but that levels are not rounded to bytes, and
    cut to [0, 1] at the end alone. Then images are normalised. It is fitted from the start, computes in float32, and never
    uses a network connection.

    Features in a cache are found again by the module's class, its printed layers and its weights. If you change what the
    `forward` of a class of your own does, use another folder or class name.

    Parameters
    ----------
    module : "vit-small-16", "vit-small-8", "vit-base-16" or "vit-base-8", which DINO's published weights fit; the name of a
        model of timm, if that is installed; or any module from images (n, C, size, size) to rows of numbers, or to maps,
        which are flattened. It is copied.
    checkpoint : a local file with the weights: `.safetensors`, or a state dict of torch, alone or within a checkpoint of DINO.
        It is read as data; a file that would run code is refused. None if the module has its weights already.
    size : the side of what the module is given, in pixels.
    mean, std : of each channel, of levels in [0, 1]; by default ImageNet's. Grey images are repeated in every channel.
    batch_size : how many images are computed at once. It changes at most the last bits of features.
    interpolation : "bicubic" or "bilinear".
    fabric : a launched `lightning_fabric.Fabric` whose device computes; by default the CPU. Not tried on a GPU.

    Privacy
    -------
    It sees no label of yours. Features are as public as the images and the weights, and cost no epsilon. Whether the weights
    were trained on your secret labels is for you to know: then they are not public.

    Examples
    --------
    >>> from torch import nn
    >>> images = np.random.default_rng(0).integers(256, size=(5, 1, 28, 28), dtype=np.uint8)
    >>> Pretrained(nn.Conv2d(3, 4, kernel_size=16, stride=16), size=32).transform(images).shape
    (5, 16)
    """

    def __init__(
        self,
        module: nn.Module | str,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        size: int = 224,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        batch_size: int = 32,
        interpolation: str = "bicubic",
        fabric: Fabric | None = None,
    ) -> None:
        self.size = checks.integer(size=size, at_least=1, at_most=8_192)
        self.batch_size = checks.integer(batch_size=batch_size, at_least=1)
        self.interpolation = checks.one_of(("bicubic", "bilinear"), interpolation=interpolation)
        self.mean, self.std = _levels(mean=mean), _levels(std=std)
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise InvalidArgument(f"mean and std must have one value per channel, std above 0; got {mean} and {std}.")
        if isinstance(module, str):
            if checkpoint is None:
                raise InvalidArgument(
                    f"checkpoint must be a local file with the weights of {module!r}: nothing is downloaded, and features of "
                    "random weights are of no use. If you have the weights in memory, give the module itself."
                )
            self.name, module = module, _built(module)
        elif isinstance(module, nn.Module):
            self.name, module = f"{type(module).__module__}.{type(module).__qualname__}", copy.deepcopy(module)
        else:
            raise InvalidArgument(f"module must be a torch.nn.Module or the name of one, got {type(module).__name__}.")
        self.fabric = fabric or Fabric(accelerator="cpu", devices=1)
        self.unused: list[str] = []
        if checkpoint is not None:
            weights, self.unused = chosen(read(Path(checkpoint)), module.state_dict(), checkpoint)
            module.load_state_dict(weights, strict=False)  # all that matters was checked
        self.module = module.float().eval().requires_grad_(False).to(self.fabric.device)
        self._fingerprint: str | None = None

    def description(self) -> dict[str, Any]:
        """Return the settings, and which of the checkpoint's weights (its head) are not used, as JSON values."""
        return {
            "extractor": FORMAT,
            "module": self.name,
            "layers": hashlib.sha256(repr(self.module).encode()).hexdigest(),
            "size": self.size,
            "mean": self.mean,
            "std": self.std,
            "interpolation": self.interpolation,
            "unused": self.unused,
        }

    @property
    def fingerprint(self) -> str:
        """A digest of the settings and of all weights."""
        if self._fingerprint is None:
            state, buffers = self.module.state_dict(), self.module.buffers()  # some buffers are in no state dict
            self._fingerprint = fingerprint_of(self.description(), [*state.values(), *buffers])
        return self._fingerprint

    def fit(self, images: Any) -> Self:
        """Learn nothing: the weights are what they are."""
        self._checked(images)
        return self

    def transform(self, images: Any) -> NDArray[np.float32]:
        """Return the features of images, float32 (n, d).

        Parameters
        ----------
        images : uint8 (n, C, H, W), in memory or memory-mapped; read in small batches.
        """
        images = self._checked(images)
        batches = (slice(at, at + self.batch_size) for at in range(0, len(images), self.batch_size))
        with torch.inference_mode():
            return np.concatenate([self._features(images[rows]) for rows in batches])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as safetensors, with the description as metadata, into one file of exactly this name."""
        save_weights(path, self.module, self.description())

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Take over the weights that Pretrained of the same module and settings saved."""
        own = self.module.state_dict()
        try:
            with safe_open(path, framework="pt") as stored:
                description = json.loads((stored.metadata() or {})["description"])
                weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - it is no dict
            unused = description.pop("unused")
        except FileNotFoundError:
            raise InvalidArgument(f"there is no file {path}.") from None
        except Exception as error:
            raise InvalidArgument(f"{path} does not hold a saved Pretrained ({type(error).__name__}).") from None
        expected = self.description()
        del expected["unused"]
        if description != expected:
            raise InvalidArgument(
                f"{path} holds weights of other settings: it says {description}, this one {expected}."
            )
        if _shapes(weights) != _shapes(own):
            raise InvalidArgument(f"{path} is damaged: its weights must have the names and shapes of the module's.")
        self.module.load_state_dict(weights)
        self.unused, self._fingerprint = unused, None
        return self

    def _checked(self, images: Any) -> NDArray[np.uint8]:
        images = checks.array(images=images)
        if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
            raise InvalidArgument(
                "images must be uint8, levels 0 to 255, of shape (n, channels, height, width), and at least one; got "
                f"{images.dtype} {images.shape}. Grey images without a channel axis need one: images[:, None]."
            )
        if images.shape[1] not in (1, len(self.mean)):
            raise InvalidArgument(
                f"images must have 1 channel or {len(self.mean)}, as mean and std have; got {images.shape[1]}."
            )
        return images

    def _features(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        inputs = self._prepared(gather(images, slice(None), self.fabric.device))
        try:
            features = self.module(inputs)
        except Exception as error:
            raise InvalidArgument(
                f"{self.name} cannot read images of shape {tuple(inputs.shape[1:])} ({type(error).__name__}: {error}). "
                "Set size, and mean and std (one value per channel), to what it was made for."
            ) from None
        if not isinstance(features, Tensor) or features.ndim == 0 or len(features) != len(images):
            got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise InvalidArgument(f"{self.name} must return a tensor with one row per image, {len(images)}; got {got}.")
        features = features.reshape(len(images), -1).float()
        if not torch.isfinite(features).all():
            raise InvalidArgument(f"{self.name} must return finite features; some are not: are these its weights?")
        return features.cpu().numpy()

    def _prepared(self, images: Tensor) -> Tensor:
        """Return what the module is given, (n, channels, size, size)."""
        levels = images.float() / 255
        if levels.shape[2:] != (self.size, self.size):
            side = (self.size, self.size)
            levels = functional.interpolate(levels, side, mode=self.interpolation, antialias=True).clamp(0, 1)
        mean, std = (levels.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (levels.expand(-1, len(mean), -1, -1) - mean) / std


def read(path: Path) -> Weights:
    """Return the weights in a file, without running any code that may be in it."""
    try:
        if path.suffix == ".safetensors":
            stored: Any = load_file(path)
        else:
            with _namespaces_allowed():
                stored = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InvalidArgument(
            f"there is no checkpoint {path}: fetch it first and give its place; nothing is downloaded."
        ) from None
    except Exception as error:
        raise InvalidArgument(
            f"{path} is not a whole file of weights ({type(error).__name__}). It may be cut short: fetch it again. Or it holds "
            "Python objects beside weights, which are not read because that could run code: where you trust it, save its state "
            "dict alone."
        ) from None
    for wrapper in WRAPPERS:
        if isinstance(stored, Mapping) and isinstance(stored.get(wrapper), Mapping):
            stored = stored[wrapper]
    if not isinstance(stored, Mapping):
        raise InvalidArgument(
            f"{path} must hold a state dict, from names to weights; it holds a {type(stored).__name__}."
        )
    return {str(name): value for name, value in stored.items() if isinstance(value, Tensor)}


def chosen(stored: Weights, own: Mapping[str, Tensor], path: Any) -> tuple[Weights, list[str]]:
    """Return a module's weights among the stored ones, and the names of those that it has no use for, which must be heads.

    Parameters
    ----------
    stored : what is in the file, under names that may have a prefix.
    own : the module's state dict; only names and shapes matter.
    path : of the file, for messages.
    """
    prefix = max(PREFIXES, key=lambda prefix: sum(prefix + name in stored for name in own))
    found = {name: stored[prefix + name] for name in own if prefix + name in stored}
    missing = [name for name in own if name not in found and not name.endswith(ONLY_FOR_TRAINING)]
    if missing:
        raise InvalidArgument(
            f"{path} lacks {len(missing)} of the module's {len(own)} weights: {_some(missing)}. It holds {len(stored)}: "
            f"{_some(list(stored))}. Give the file of this very model, whole."
        )
    bent = [name for name, value in found.items() if value.shape != own[name].shape]
    if bent:
        shapes = [f"{name} {tuple(found[name].shape)} for {tuple(own[name].shape)}" for name in bent]
        raise InvalidArgument(
            f"{path} has weights of other shapes than the module: {_some(shapes)}. It is of another model: see "
            "width, patch and image size."
        )
    broken = [name for name, value in found.items() if not torch.isfinite(value).all()]
    if broken:
        raise InvalidArgument(
            f"{path} is damaged: weights must be finite, and {_some(broken)} are not. Fetch it again."
        )
    used = {prefix + name for name in found}
    unused = [name for name in stored if name not in used]
    layers = {name.split(".")[0] for name in own}
    more = [name for name in unused if name.startswith(prefix) and _is_no_head(name.removeprefix(prefix), layers)]
    if more:
        raise InvalidArgument(
            f"{path} has {len(more)} weights that the module lacks and that are no head's: {_some(more)}. Without them it "
            "would be another network: give the module that they belong to."
        )
    return found, sorted(unused)


def _is_no_head(name: str, layers: set[str]) -> bool:
    """Say whether an unused weight is in a part that the module has, or is a token; a head is a part of its own."""
    part, _, rest = name.partition(".")
    return not name.endswith(ONLY_FOR_TRAINING) and (part in layers or not rest)


def _built(name: str) -> nn.Module:
    """Return a model by name, with random weights, leaving torch's generator alone."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        if name in BACKBONES:
            return BACKBONES[name]()
        timm = _timm(name)
        if not timm.is_model(name):  # names such as "hf-hub:.." would be downloaded
            raise InvalidArgument(f"module must be one of {', '.join(BACKBONES)} or a model of timm's, got {name!r}.")
        return timm.create_model(name, pretrained=False, num_classes=0)


def _timm(name: str) -> Any:
    try:
        import timm
    except ImportError:
        raise MissingExtra(
            f"{name!r} is none of {', '.join(BACKBONES)}; other names need timm: pip install 'labeldp[vision]'. It brings "
            "torchvision: install that from where your torch is from, or pip may exchange your torch for another."
        ) from None
    except Exception as error:  # torchvision's complaint if it was built for another torch
        raise MissingExtra(
            f"timm is installed, but cannot be imported ({type(error).__name__}: {error}). Mostly torchvision is of another "
            "build than torch: install both from the same place."
        ) from None
    return timm


@contextmanager
def _namespaces_allowed() -> Iterator[None]:
    """Let torch read the parsed arguments that DINO's training stores beside the weights: they are plain values."""
    before = torch.serialization.get_safe_globals()
    torch.serialization.add_safe_globals([Namespace])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: (value.dtype, tuple(value.shape)) for name, value in weights.items()}


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _levels(**named: Any) -> list[float]:
    ((name, values),) = named.items()
    array = checks.array(**named)
    if array.ndim != 1 or len(array) == 0 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be one finite number per channel, got {values!r}.")
    return [float(value) for value in array]
