"""What all that learns from views of images has in common: epochs, checkpoints, and the representation that is left."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional

from labeldp import checks
from labeldp.errors import InvalidArgument, LabelDPError
from labeldp.features.cache import content_digest
from labeldp.learning.learner import Watch
from labeldp.torch import checkpoints
from labeldp.torch.batches import Batches, as_input, gather, torch_seed
from labeldp.torch.processes import on_first_process
from labeldp.torch.schedules import SCHEDULES
from labeldp.torch.views import Views

Images = NDArray[np.uint8]
Figures = dict[str, Tensor]

TRANSFORM_AT_ONCE = 1000
SEEN = 5000
"""Images, at most, that layers are given which take in public inputs before training."""
HEADS = 0  # the epoch, before the first, whose random numbers projectors and predictors start from


class SelfSupervised(ABC):
    """Trains a backbone by two views of each image, without labels; afterwards `transform` gives what the backbone returns.

    Everything follows from the images, the backbone's weights and the seed: the same call gives the same bits on one machine
    with one number of threads.

    Parameters
    ----------
    backbone : any module from float32 images in [0, 1], (batch, C, H, W), to one row of numbers per image; maps are flattened.
        It is copied; its weights are where training starts. Layers with a method `see` are given some of the images first.
    epochs, batch_size, learning_rate, weight_decay, momentum : as usual; learning_rate is the schedule's peak. Biases and
        normalisation are not decayed.
    optimizer : "sgd" (with Nesterov momentum) or "adamw".
    schedule : of the learning rate, by name; see `TorchLearner`.
    views : how views are made of images.
    seed : of shuffling, views, dropout, and of what stands behind the backbone; public.
    fabric : a launched `lightning_fabric.Fabric` for other devices, precisions or several processes; by default one CPU.
        Batch statistics are each process's own. Tried on CPUs, alone and with two processes. Not tried on a GPU.

    Privacy
    -------
    It sees no label. The representation is as public as the images, and costs no epsilon.
    """

    format: ClassVar[str]
    """Changes with anything that changes what given settings learn; caches are keyed by it."""
    figures: ClassVar[tuple[str, ...]]
    """What `_figures` returns, the loss first."""

    def __init__(
        self,
        backbone: nn.Module,
        *,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        optimizer: str,
        momentum: float,
        weight_decay: float,
        schedule: str,
        views: Views | None,
        seed: int,
        fabric: Fabric | None,
    ) -> None:
        if not isinstance(backbone, nn.Module):
            raise InvalidArgument(f"backbone must be a torch.nn.Module, got {type(backbone).__name__}.")
        self.backbone = copy.deepcopy(backbone)
        self.epochs = checks.integer(epochs=epochs, at_least=1)
        self.batch_size = checks.integer(batch_size=batch_size, at_least=2)
        self.optimizer = checks.one_of(("sgd", "adamw"), optimizer=optimizer)
        self.schedule = checks.one_of(tuple(SCHEDULES), schedule=schedule)
        self.seed = checks.integer(seed=seed, at_least=0, at_most=2**63 - 1)
        self.learning_rate = float(learning_rate)
        self.momentum, self.weight_decay = float(momentum), float(weight_decay)
        if not learning_rate > 0 or not 0 <= momentum < 1 or not weight_decay >= 0:
            raise InvalidArgument(
                "these must hold: learning_rate > 0, momentum in [0, 1) and weight_decay at least 0; got "
                f"{learning_rate}, {momentum} and {weight_decay}."
            )
        if views is not None and not isinstance(views, Views):
            raise InvalidArgument(f"views must be labeldp.torch.views.Views, got {type(views).__name__}.")
        self.views = views or Views()
        self.fabric = fabric or Fabric(accelerator="cpu", devices=1)
        self.module_: nn.Module | None = None

    def description(self) -> dict[str, Any]:
        """Return all that decides what `fit` learns from given images, as JSON values."""
        skipped = {"backbone", "views", "fabric", "module_"}
        return {
            "extractor": self.format,
            **{name: value for name, value in vars(self).items() if name not in skipped},
            "views": dataclasses.asdict(self.views),
            "backbone": repr(self.backbone),
            "starting_weights": checkpoints.fingerprint_of({}, self.backbone.state_dict().values()),
            "processes": self.fabric.world_size,
            "precision": str(self.fabric.strategy.precision.precision),
        }

    @property
    def fingerprint(self) -> str | None:
        """A digest of the settings and of the learned weights; None until it is fitted."""
        if self.module_ is None:
            return None
        return checkpoints.fingerprint_of(self.description(), self.module_.state_dict().values())

    # ---- what each method adds ---------------------------------------------------------------------------------------

    @abstractmethod
    def _online(self, width: int) -> nn.Module:
        """Return the network that learns, as it starts; `backbone` is its attribute, which returns `width` numbers a row."""

    @abstractmethod
    def _figures(self, online: Any, beside: nn.Module | None, both: Tensor) -> Figures:
        """Return the loss of a batch, first all of its first views, then of its second ones, and what else is to be told."""

    def _beside(self, online: nn.Module) -> nn.Module | None:  # noqa: ARG002 - for those that have one
        """Return a network that follows the one that learns, if there is one."""
        return None

    def _step_ended(self, online: nn.Module, beside: nn.Module | None, done: float) -> None:  # noqa: B027 - nothing is right
        """Let the network beside follow, when this share of training is done."""

    # ---- training ----------------------------------------------------------------------------------------------------

    def fit(self, images: Images, *, checkpoint: Path | None = None, watch: Watch | None = None) -> Self:
        """Learn from public images.

        Parameters
        ----------
        images : uint8 (n, C, H, W), in memory or memory-mapped.
        checkpoint : a file to write at epoch ends, and to go on from if it is there: a run that was killed ends with the very
            weights of one that was not.
        watch : called at each epoch's end with epoch, epochs, learning_rate, seconds, rows, and the means of `figures`;
            `transform` works there. A spread is that of representations, or projections, all made as long as 1, over a batch:
            their standard deviation times the root of their width, between 0, when all are the same, and 1, when they point
            everywhere. Where it falls towards 0, all has collapsed.
        """
        images = _checked(images)
        if len(images) < 2:
            raise InvalidArgument(f"images must be at least two to learn from, got {len(images)}.")
        batches = Batches.of(len(images), self.batch_size, self.fabric.world_size)
        online = self._network(images).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        wrapped, optimizer = self.fabric.setup(online, self._optimizer(online))
        beside = self._beside(online)
        networks = {"online": online} | ({} if beside is None else {"target": beside})
        fingerprint = "" if checkpoint is None else self._training(images)
        state = on_first_process(self.fabric, lambda: checkpoints.read(checkpoint, fingerprint))
        done = 0
        if state is not None:
            for name, network in networks.items():
                network.load_state_dict(state[name])
            optimizer.load_state_dict(state["optimizer"])
            done = state["epoch"]
        self.module_ = online.backbone
        try:
            for epoch in range(done + 1, self.epochs + 1):
                record = self._epoch(epoch, images, batches, wrapped, beside, optimizer)
                if watch is not None:
                    watch(record)
                if checkpoint is not None and self.fabric.is_global_zero:
                    state = {"fingerprint": fingerprint, "epoch": epoch, "optimizer": optimizer.state_dict()}
                    state |= {name: network.state_dict() for name, network in networks.items()}
                    checkpoints.write(checkpoint, state)
        except BaseException:
            self.module_ = None  # half of a training has no fingerprint, so that no cache believes it
            raise
        if self.fabric.world_size > 1:  # every process ends with the first one's batch statistics
            self.module_.load_state_dict(self.fabric.broadcast(self.module_.state_dict()))
        self.fabric.barrier()
        return self

    def _training(self, images: Images) -> str:
        """Tell trainings apart by everything that decides their result."""
        about = {"shape": images.shape, "sha256": content_digest(images)}
        return checkpoints.fingerprint_of({"extractor": self.description(), "images": about}, ())

    def _network(self, images: Images) -> Any:
        """Return the network that learns, before the first step."""
        width = self._representations(copy.deepcopy(self.backbone), images[:2], torch.device("cpu")).shape[1]
        with torch.random.fork_rng():
            torch.manual_seed(torch_seed(self.seed, HEADS, 0))
            online = self._online(width)
        some = np.unique(np.linspace(0, len(images) - 1, SEEN).astype(np.int64))
        for layer in online.modules():
            if callable(see := getattr(layer, "see", None)):
                see(gather(images, some, torch.device("cpu")))
        return online

    def _epoch(
        self,
        epoch: int,
        images: Images,
        batches: Batches,
        online: Any,
        beside: nn.Module | None,
        optimizer: Any,
    ) -> dict[str, Any]:
        """Train for one epoch and return its record."""
        began = time.perf_counter()
        fabric, schedule = self.fabric, SCHEDULES[self.schedule]
        totals = torch.zeros(len(self.figures), device=fabric.device)
        online.train()
        with torch.random.fork_rng():
            torch.manual_seed(torch_seed(self.seed, epoch, fabric.global_rank))
            for number, rows in enumerate(batches.epoch(self.seed, epoch, fabric.global_rank)):
                step = (epoch - 1) * batches.steps + number
                done = step / (self.epochs * batches.steps)
                for group in optimizer.param_groups:
                    group["lr"] = self.learning_rate * schedule(done)
                figures = self._figures(online, beside, self._both_views(images, rows, epoch))
                optimizer.zero_grad()
                fabric.backward(figures["loss"])
                optimizer.step()
                self._step_ended(online.module, beside, done)
                totals += torch.stack([figures[name].detach() for name in self.figures])
        means = fabric.all_reduce(totals / batches.steps, reduce_op="mean")
        assert isinstance(means, Tensor)
        told = dict(zip(self.figures, means.tolist(), strict=True))
        if not math.isfinite(told["loss"]):
            raise LabelDPError(
                f"the loss became {told['loss']} in epoch {epoch}: lower learning_rate ({self.learning_rate}), and see that "
                "the backbone normalises what it computes."
            )
        return {
            "epoch": epoch,
            "epochs": self.epochs,
            "learning_rate": optimizer.param_groups[0]["lr"],
            "seconds": time.perf_counter() - began,
            "rows": len(images),
            **told,
        }

    def _both_views(self, images: Images, rows: NDArray[np.int64], epoch: int) -> Tensor:
        taken = gather(images, rows, self.fabric.device)
        return torch.cat([self.views(taken, seed=self.seed, epoch=epoch, rows=rows, view=view) for view in (0, 1)])

    def _optimizer(self, online: nn.Module) -> torch.optim.Optimizer:
        learned = [parameter for parameter in online.parameters() if parameter.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [parameter for parameter in learned if parameter.ndim > 1], "weight_decay": self.weight_decay},
            {"params": [parameter for parameter in learned if parameter.ndim <= 1], "weight_decay": 0.0},
        ]
        if self.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=self.learning_rate)
        return torch.optim.SGD(groups, lr=self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0)

    # ---- the fitted representation -----------------------------------------------------------------------------------

    def transform(self, images: Images) -> NDArray[np.float32]:
        """Return the backbone's representations of images, float32 (n, d).

        A row depends on its own image alone, but for last bits.

        Parameters
        ----------
        images : uint8 (n, C, H, W), in memory or memory-mapped; read in small batches.
        """
        return self._representations(self._fitted(), _checked(images), self.fabric.device)

    def _representations(self, backbone: nn.Module, images: Images, device: torch.device) -> NDArray[np.float32]:
        training = backbone.training
        backbone.eval()
        parts = []
        try:
            with torch.inference_mode():
                for at in range(0, max(len(images), 1), TRANSFORM_AT_ONCE):
                    some = as_input(gather(images, slice(at, at + TRANSFORM_AT_ONCE), device))
                    parts.append(backbone(some).flatten(1).float().cpu().numpy())
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            raise InvalidArgument(
                f"the backbone must turn images of shape {images.shape[1:]} into one row of numbers each, and cannot: "
                f"{type(error).__name__}: {error}"
            ) from None
        finally:
            backbone.train(training)
        found = np.concatenate(parts)
        if len(found) != len(images) or not np.isfinite(found).all():
            raise InvalidArgument(
                f"the backbone must return one row of finite numbers per image; it returned shape {found.shape} for "
                f"{len(images)} images{'' if np.isfinite(found).all() else ', not all of it finite'}."
            )
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the backbone's weights as safetensors, with the description beside them."""
        checkpoints.save_weights(path, self._fitted(), self.description())

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Take over what one of the same description saved."""
        module = copy.deepcopy(self.backbone)
        try:
            with safe_open(path, framework="pt") as file:
                description = json.loads((file.metadata() or {})["description"])
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
        except FileNotFoundError:
            raise InvalidArgument(f"there is no file {path}.") from None
        except Exception as error:  # the format's own error derives from nothing narrower
            raise InvalidArgument(
                f"{path} does not hold a saved {type(self).__name__} ({type(error).__name__})."
            ) from None
        if description != self.description():
            raise InvalidArgument(
                f"{path} holds a {type(self).__name__} of other settings: {_differences(description, self.description())}"
            )
        try:
            module.load_state_dict(weights)
        except RuntimeError:
            raise InvalidArgument(f"{path} is damaged: it does not hold this backbone's weights.") from None
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.module_ = module.to(self.fabric.device)
        return self

    def _fitted(self) -> nn.Module:
        if self.module_ is None:
            raise InvalidArgument(
                f"this {type(self).__name__} has learned nothing yet: call fit, or load a saved file."
            )
        return self.module_


# ---- what networks are made of, and what is told of them ------------------------------------------------------------


def perceptron(c_in: int, hidden: int, c_out: int) -> nn.Module:
    """Return a head: one hidden layer with batch statistics, without which BYOL would learn next to nothing."""
    return nn.Sequential(
        nn.Linear(c_in, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, c_out)
    )


def spread_of(representations: Tensor) -> Tensor:
    """Return the standard deviation of representations of length 1, times the root of their width."""
    unit = functional.normalize(representations.float(), dim=1)
    return unit.var(dim=0, unbiased=False).sum().sqrt()


# ---- what goes in, and what is said ------------------------------------------------------------------------------------


def _checked(images: Any) -> Images:
    images = checks.array(images=images)
    if images.dtype != np.uint8 or images.ndim != 4:
        raise InvalidArgument(
            "images must be uint8, levels 0 to 255, of shape (n, channels, height, width), got dtype "
            f"{images.dtype}, shape {images.shape}. Grey images without a channel axis need one: images[:, None]."
        )
    return images


def _differences(theirs: Any, ours: dict[str, Any]) -> str:
    theirs = theirs if isinstance(theirs, dict) else {}
    names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
    return f"{', '.join(names)} differ."
