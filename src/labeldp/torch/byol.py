"""BYOL: a representation of images learned from two views of each, without labels. Grill et al. (2020)."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.torch.self_supervised import Figures, SelfSupervised, perceptron, spread_of
from labeldp.torch.views import Views


class BYOL(SelfSupervised):
    """Learns to predict one view of an image from another, so that what views have in common is what it represents.

    The online network, backbone -> projector -> predictor, sees one view and predicts what the target network, backbone ->
    projector, makes of the other one; each view plays both parts. The target learns nothing itself: it is a moving average of
    the online network. Afterwards projector and predictor are thrown away, and `transform` gives what the backbone returns.

    Parameters
    ----------
    backbone, epochs, learning_rate, .. : see `SelfSupervised`. BYOL has LARS, which is for batches of thousands.
    batch_size : BYOL's authors saw it lose with batches of less than 256; where steps are few, more of them may be worth that.
    projection, hidden : the width of what is predicted, and of the projector's and the predictor's one hidden layer. BYOL has
        4096 hidden units, for a ResNet-50.
    decay : of the target's moving average at the first step; it grows to 1 along a cosine: 1 - (1 - decay) (1 + cos(pi s)) / 2
        when a share s of all steps is done.

    The loss is between 0 and 8. Where it comes to 4 - 4 sqrt(1 - target_spread^2) and stays, the mean is all that is predicted,
    and views have too little in common for the training so far.

    Privacy
    -------
    It sees no label. The representation is as public as the images, and costs no epsilon.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(256, size=(20, 1, 8, 8), dtype=np.uint8)
    >>> backbone = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    >>> BYOL(backbone, epochs=2, batch_size=10, projection=4, hidden=8).fit(images).transform(images).shape
    (20, 5)
    """

    format = "labeldp-byol-1"
    figures = ("loss", "spread", "target_spread")

    def __init__(
        self,
        backbone: nn.Module,
        *,
        epochs: int = 100,
        batch_size: int = 256,
        projection: int = 256,
        hidden: int = 1024,
        decay: float = 0.99,
        learning_rate: float = 0.2,
        optimizer: str = "sgd",
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
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
        self.decay = float(decay)
        if not 0 <= decay <= 1:
            raise InvalidArgument(f"decay must be in [0, 1], got {decay}.")

    def _online(self, width: int) -> Online:
        projector = perceptron(width, self.hidden, self.projection)
        predictor = perceptron(self.projection, self.hidden, self.projection)
        return Online(copy.deepcopy(self.backbone), projector, predictor)

    def _beside(self, online: nn.Module) -> nn.Module:
        assert isinstance(online, Online)
        return target_of(online)

    def _figures(self, online: Any, beside: nn.Module | None, both: Tensor) -> Figures:
        assert beside is not None
        predictions, representations = online(both)
        with torch.no_grad(), self.fabric.autocast():
            projections = beside(both)
        loss = disagreement(predictions, projections)
        return {"loss": loss, "spread": spread_of(representations), "target_spread": spread_of(projections)}

    def _step_ended(self, online: nn.Module, beside: nn.Module | None, done: float) -> None:
        assert isinstance(online, Online) and beside is not None
        follow(beside, online, decay_at(done, self.decay))


# ---- the two networks ----------------------------------------------------------------------------------------------------


class Online(nn.Module):
    """Backbone -> projector -> predictor."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, predictor: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projector, self.predictor = backbone, projector, predictor

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions, and the representations that they come from."""
        representations = self.backbone(views).flatten(1)
        return self.predictor(self.projector(representations)), representations.detach()


def target_of(online: Online) -> nn.Module:
    """Return the target network as it starts: a copy of backbone and projector that no gradient reaches."""
    target = nn.Sequential(online.backbone, nn.Flatten(1), online.projector)
    return copy.deepcopy(target).requires_grad_(False).train()  # batch statistics are its own, and of the batch


@torch.no_grad()
def follow(target: nn.Module, online: Online, decay: float) -> None:
    """Let the target's weights be decay * its own + (1 - decay) * the online network's."""
    theirs: list[Tensor] = [*online.backbone.parameters(), *online.projector.parameters()]
    torch._foreach_lerp_(list(target.parameters()), theirs, 1 - decay)


def decay_at(done: float, base: float) -> float:
    """Return the moving average's decay when this share of training is done: from base to 1, along a cosine."""
    return 1 - (1 - base) * (1 + math.cos(math.pi * done)) / 2


def disagreement(predictions: Tensor, projections: Tensor) -> Tensor:
    """Return 2 - 2 cos(prediction, projection of the other view), summed over both ways, averaged over images.

    Parameters
    ----------
    predictions, projections : (2 batch, width): first all of the first view, then all of the second.
    """
    other = projections.roll(len(projections) // 2, dims=0)
    cosines = functional.cosine_similarity(predictions.float(), other.float(), dim=1)
    return 2 * (2 - 2 * cosines).mean()
