"""SimCLR: a representation in which two views of an image are told from all other images. Chen et al. (2020)."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.torch.self_supervised import Figures, Images, SelfSupervised, perceptron, spread_of
from labeldp.torch.views import Views


class SimCLR(SelfSupervised):
    """Learns to find the other view of an image among the views of a whole batch.

    Backbone -> projector gives each view a direction; the nearer that of the same image's other view is, and the further those
    of all other images are, the smaller is the loss. Afterwards the projector is thrown away, and `transform` gives what the
    backbone returns; where views are flipped, the mean of that over an image and its mirror image.

    Parameters
    ----------
    backbone, epochs, learning_rate, .. : see `SelfSupervised`. SimCLR has LARS, which is for batches of thousands.
    batch_size : images; each view has 2 (batch_size - 1) others to be told from. Of several processes, each its own share.
    projection, hidden : the width of the directions, and of the projector's one hidden layer.
    temperature : differences of cosines are divided by it: the smaller it is, the more the nearest others count.

    Privacy
    -------
    It sees no label. The representation is as public as the images, and costs no epsilon.

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(256, size=(20, 1, 8, 8), dtype=np.uint8)
    >>> backbone = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    >>> SimCLR(backbone, epochs=2, batch_size=10, projection=4, hidden=8).fit(images).transform(images).shape
    (20, 5)
    """

    format = "labeldp-simclr-1"
    figures = ("loss", "spread")

    def __init__(
        self,
        backbone: nn.Module,
        *,
        epochs: int = 100,
        batch_size: int = 512,
        projection: int = 128,
        hidden: int = 512,
        temperature: float = 0.2,
        learning_rate: float = 0.3,
        optimizer: str = "sgd",
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        schedule: str = "linear",
        views: Views | None = None,
        seed: int = 0,
        fabric: Fabric | None = None,
    ) -> None:
        super().__init__(
            backbone,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            optimizer=optimizer,
            momentum=momentum,
            weight_decay=weight_decay,
            schedule=schedule,
            views=views,
            seed=seed,
            fabric=fabric,
        )
        self.projection = checks.integer(projection=projection, at_least=1)
        self.hidden = checks.integer(hidden=hidden, at_least=1)
        self.temperature = float(temperature)
        if not 0 < temperature < math.inf:
            raise InvalidArgument(f"temperature must be > 0, got {temperature}.")

    def _online(self, width: int) -> Projecting:
        return Projecting(copy.deepcopy(self.backbone), perceptron(width, self.hidden, self.projection))

    def _figures(self, online: Any, beside: nn.Module | None, both: Tensor) -> Figures:  # noqa: ARG002 - it has none
        projections, representations = online(both)
        return {"loss": confusion(projections, self.temperature), "spread": spread_of(representations)}

    def transform(self, images: Images) -> NDArray[np.float32]:
        """Return the backbone's representations of images, float32 (n, d); see the class, as of flips.

        A row depends on its own image alone, but for last bits.
        """
        found = super().transform(images)
        if self.views.flip:
            found = np.float32(0.5) * (found + super().transform(np.asarray(images)[..., ::-1]))
        return found


class Projecting(nn.Module):
    """Backbone -> projector."""

    def __init__(self, backbone: nn.Module, projector: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projector = backbone, projector

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Return projections, and the representations that they come from."""
        representations = self.backbone(views).flatten(1)
        return self.projector(representations), representations.detach()


def confusion(projections: Tensor, temperature: float) -> Tensor:
    """Return -log of the chance that a view finds the other one of its image among all others of the batch, on average.

    It finds another view with a chance that is proportional to exp(cosine / temperature).

    Parameters
    ----------
    projections : (2 batch, width): first all of the first view, then all of the second.
    """
    units = functional.normalize(projections.float(), dim=1)
    cosines = (units @ units.T).fill_diagonal_(-torch.inf)
    other = torch.arange(len(units), device=units.device).roll(len(units) // 2)
    return functional.cross_entropy(cosines / temperature, other)
