"""TorchLearner: any module, trained on releases."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from labeldp import checks
from labeldp.errors import InvalidArgument, LabelDPError
from labeldp.learning.evidence import check_rows
from labeldp.learning.learner import PRECISIONS, Examples, Watch
from labeldp.torch import checkpoints
from labeldp.torch.augmentation import Augmentation, variants
from labeldp.torch.averaging import WeightAverage
from labeldp.torch.batches import Batches, as_input, gather, torch_seed
from labeldp.torch.losses import LOSSES, TrainingSet
from labeldp.torch.precision import computed_in, forward_in, subnormal_as_zero
from labeldp.torch.processes import on_first_process
from labeldp.torch.schedules import SCHEDULES

T = TypeVar("T")

PREDICT_AT_ONCE = 1000
ADAMS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class TorchLearner:
    """Trains a module on releases. Everything it reads is public, so that any training trick is free.

    Parameters
    ----------
    module : any module from inputs to K logits. It is copied; its weights are where training starts. Where it has a method
        `see`, that is given all of X before training; where it has a method `penalty`, that is given the number of training
        rows and returns what is added to the mean loss, such as minus the log of a prior over that number.
    loss : "noisy-label", cross entropy on the reported label (the paper's); "debiased", unbiased for the loss on true labels
        that are candidates (Appendix G); "likelihood", -log sum_y softmax_y P(report | y), which takes every release and wastes
        nothing.
    epochs, batch_size, learning_rate, weight_decay, momentum : as usual; learning_rate is the schedule's peak.
    optimizer : "sgd" (with Nesterov momentum), "adamw", or "adam", whose weight decay is a penalty on the squared weights.
    schedule : "linear" or "piecewise" (the paper's), "official" (its code's), "constant".
    mixup : alpha of Beta(alpha, alpha), one lam per batch; 0 for none.
    smoothing : label smoothing: the share of each target that goes to all classes alike; 0 for none. It is of noisy labels, of
        debiased ones and of beliefs. The likelihood of reports has no targets, and is left as it is.
    augmentation : what is done to images during training.
    mirror : predict the mean over each image and its mirror image. For nets that were trained with flips.
    shift : predict the mean over each image and two that are moved by so many pixels. For nets that were trained with crops.
    averaging : decay of an exponential moving average of the weights, which then predicts; None for none.
    consistency : weight of a second loss, growing from 0 over training: each image as it was augmented is to be told as
        the averaged weights tell it as it is. Needs averaging, and goes without mixup.
    precision : what convolutions and products are computed in while training, "float32" or "bfloat16", which is faster on
        processors with instructions for it (others compute in float32 all the same). Weights, losses and predictions stay in
        float32.
    seed : of shuffling, mixup, augmentation and dropout. No seed reaches privacy noise.
    fabric : a launched `lightning_fabric.Fabric` for other devices, precisions or several processes; by default one CPU.
        Tried on CPUs, alone and with two processes. Not tried on a GPU.
    """

    needs_finite = True
    """One number that is none would be in all weights after a step."""

    def __init__(
        self,
        module: nn.Module,
        *,
        loss: str = "noisy-label",
        epochs: int = 30,
        batch_size: int = 256,
        learning_rate: float = 0.1,
        optimizer: str = "sgd",
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        schedule: str = "linear",
        mixup: float = 0.0,
        smoothing: float = 0.0,
        augmentation: Augmentation | None = None,
        averaging: float | None = None,
        consistency: float = 0.0,
        mirror: bool = False,
        shift: int = 0,
        precision: str = "float32",
        seed: int = 0,
        fabric: Fabric | None = None,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise InvalidArgument(f"module must be a torch.nn.Module, got {type(module).__name__}.")
        self.module = module
        self.loss = checks.one_of(LOSSES, loss=loss)
        self.epochs = checks.integer(epochs=epochs, at_least=1)
        self.batch_size = checks.integer(batch_size=batch_size, at_least=1)
        self.optimizer = checks.one_of(("sgd", *ADAMS), optimizer=optimizer)
        self.schedule = checks.one_of(tuple(SCHEDULES), schedule=schedule)
        self.precision = checks.one_of(PRECISIONS, precision=precision)
        self.seed = checks.integer(seed=seed, at_least=0, at_most=2**63 - 1)
        self.learning_rate, self.momentum = float(learning_rate), float(momentum)
        self.weight_decay, self.mixup = float(weight_decay), float(mixup)
        self.smoothing = checks.share(smoothing=smoothing, below_one=True)
        self.averaging = None if averaging is None else float(averaging)
        if not learning_rate > 0 or not 0 <= momentum < 1 or not weight_decay >= 0 or not self.mixup >= 0:
            raise InvalidArgument(
                "learning_rate must be > 0, momentum in [0, 1), weight_decay and mixup at least 0; got "
                f"{learning_rate}, {momentum}, {weight_decay} and {mixup}."
            )
        if averaging is not None and not 0 <= averaging < 1:
            raise InvalidArgument(f"averaging must be a decay in [0, 1), such as 0.999, or None; got {averaging}.")
        self.consistency = float(consistency)
        if not self.consistency >= 0 or (self.consistency and (averaging is None or self.mixup)):
            raise InvalidArgument(
                "consistency must be at least 0, and is with the averaged weights: give averaging, and leave out mixup; got "
                f"consistency={consistency}, averaging={averaging}, mixup={mixup}."
            )
        self.mirror = bool(mirror)
        self.shift = checks.integer(shift=shift, at_least=0)
        self.augmentation = augmentation or Augmentation()
        self.fabric = fabric or Fabric(accelerator="cpu", devices=1)
        self.module_: nn.Module | None = None

    @property
    def learns_from(self) -> Literal["labels", "likelihood"]:
        return "likelihood" if self.loss == "likelihood" else "labels"

    @property
    def computed_in(self) -> str:
        """The precision that convolutions and products are computed in on this device."""
        return computed_in(self.precision, self.fabric.device)

    def check(self, X: Any, n_classes: int) -> None:
        """Raise unless the module turns rows of X into finite rows of K logits, and can learn: a copy takes two steps."""
        inputs = self.check_reads(X, n_classes)
        self._check_learns(copy.deepcopy(self.module), inputs[: self.batch_size].clone())  # out of inference mode
        if self.mixup and not inputs.is_floating_point():
            raise InvalidArgument("mixup mixes inputs, and X holds whole numbers, which are ids: set mixup=0.")
        Batches.of(len(X), self.batch_size, self.fabric.world_size)
        if (self.augmentation or self.mirror or self.shift) and np.ndim(X) != 4:
            raise InvalidArgument(
                "augmentation is for images (rows, channels, height, width), and so are mirror and shift; X has shape "
                f"{np.shape(X)}."
            )
        if self.augmentation or self.shift:
            self.augmentation.check(np.shape(X)[2:])
            if self.shift >= min(np.shape(X)[2:]):
                raise InvalidArgument(
                    f"shift must be less than the images' sides, {np.shape(X)[2:]}; got {self.shift}."
                )

    def check_reads(self, X: Any, n_classes: int) -> Tensor:
        """Raise unless the module turns rows of X into finite rows of K logits; return the first ones as it reads them."""
        if hasattr(X, "iloc"):
            raise InvalidArgument(
                f"X must be an array or a tensor, got a {type(X).__name__}: give X.to_numpy(np.float32)."
            )
        if getattr(X, "dtype", None) in (np.uint8, torch.uint8) and np.ndim(X) != 4:
            raise InvalidArgument(
                "X of bytes must be images (rows, channels, height, width), whose pixels are scaled to [0, 1]; X has shape "
                f"{np.shape(X)}: give a table as X.astype(np.float32)."
            )
        module = copy.deepcopy(self.module)
        some = np.arange(min(2, len(X)))[::-1].copy()  # rows in any order, as training takes them
        hint = ""
        with torch.inference_mode():
            try:
                inputs = as_input(gather(X, some, torch.device("cpu")))
                hint = (
                    ""
                    if inputs.is_floating_point()
                    else " (whole numbers are taken for ids: give X.astype(np.float32))"
                )
                logits = module.eval()(inputs)
            except Exception as error:
                raise InvalidArgument(
                    f"the module cannot read X{hint} (shape {np.shape(X)}): {type(error).__name__}: {error}"
                ) from None
        if not isinstance(logits, Tensor) or logits.shape != (len(some), n_classes) or not torch.isfinite(logits).all():
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InvalidArgument(
                f"the module must return {n_classes} finite logits per row, one per class; it returned shape "
                f"{shape} for {len(some)} rows."
            )
        return inputs

    def _check_learns(self, module: nn.Module, inputs: Tensor) -> None:
        with torch.random.fork_rng():
            try:
                optimizer = self._optimizer(module)
                self._begin_momentum(optimizer)
                for _ in range(2):  # what a module keeps of its first step may not be there for the second
                    optimizer.zero_grad()
                    module.train()(inputs).sum().backward()
                    optimizer.step()
            except Exception as error:
                raise InvalidArgument(
                    f"the module cannot learn from X in batches of {self.batch_size}: {type(error).__name__}: {error}"
                ) from None

    # ---- training ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        releases: Examples | Sequence[Examples],
        *,
        start: TorchLearner | None = None,
        checkpoint: Path | None = None,
        watch: Watch | None = None,
    ) -> Self:
        """Train on one or more releases; see `Learner.fit`."""
        data = TrainingSet.of(releases, self.loss, smoothing=self.smoothing)
        self.check(X, data.n_classes)
        check_rows(data.rows, len(X))
        batches = Batches.of(len(data), self.batch_size, self.fabric.world_size)
        module = copy.deepcopy(self.module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if hasattr(module, "see"):
            module.see(torch.as_tensor(X))
        if start is not None:
            self._take_weights(module, start)
        rows = torch.from_numpy(data.rows)
        fingerprint = checkpoints.fingerprint_of(self._settings(), [rows, data.targets, *module.state_dict().values()])
        average = None if self.averaging is None else WeightAverage(module, self.averaging)
        wrapped, optimizer = self.fabric.setup(module, self._optimizer(module))
        self._begin_momentum(optimizer)
        self.module_ = module if average is None else average.module.to(self.fabric.device)
        done = 0
        if (state := self.ask_once(lambda: checkpoints.read(checkpoint, fingerprint))) is not None:
            module.load_state_dict(state["module"])
            optimizer.load_state_dict(state["optimizer"])
            if average is not None:
                average.module.load_state_dict(state["average"])
            done = state["epoch"]
        for epoch in range(done + 1, self.epochs + 1):
            began = time.perf_counter()
            loss = self._epoch(epoch, X, data, batches, wrapped, optimizer, average)
            if not np.isfinite(loss):
                raise LabelDPError(
                    f"the training loss became {loss} in epoch {epoch}: lower learning_rate ({self.learning_rate}). What was "
                    "released can be trained on again at no cost: labeldp train --resume --set training.learning_rate=.. "
                    "(of a student: student.learning_rate); in Python, fit under the same name= (and without its checkpoints, "
                    "if it had a folder), or refit(X, releases_)."
                )
            record = {
                "epoch": epoch,
                "epochs": self.epochs,
                "loss": loss,
                "learning_rate": optimizer.param_groups[0]["lr"],
                "seconds": time.perf_counter() - began,
                "rows": len(data),
                "precision": self.computed_in,
            }
            if watch is not None:
                watch(record)
            if checkpoint is not None and self.fabric.is_global_zero:
                checkpoints.write(
                    checkpoint,
                    {
                        "fingerprint": fingerprint,
                        "epoch": epoch,
                        "module": module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "average": None if average is None else average.module.state_dict(),
                    },
                )
        if self.fabric.world_size > 1:  # every process ends with the first one's batch statistics and average
            self.module_.load_state_dict(self.fabric.broadcast(self.module_.state_dict()))
        self.fabric.barrier()
        return self

    @staticmethod
    def _take_weights(module: nn.Module, start: TorchLearner) -> None:
        try:
            module.load_state_dict(start._fitted().state_dict())
        except RuntimeError:
            raise InvalidArgument("the module to start from must have the same layers as this learner's own.") from None

    def _epoch(
        self,
        epoch: int,
        X: Any,
        data: TrainingSet,
        batches: Batches,
        module: Any,
        optimizer: Any,
        average: WeightAverage | None,
    ) -> float:
        """Train for one epoch and return its mean loss."""
        fabric, schedule = self.fabric, SCHEDULES[self.schedule]
        mixing = batches.mixing(self.seed, epoch, self.mixup) if self.mixup else None
        total = torch.zeros((), device=fabric.device)
        forward = forward_in(self.computed_in, module)
        module.train()
        with torch.random.fork_rng(), subnormal_as_zero():
            torch.manual_seed(torch_seed(self.seed, epoch, fabric.global_rank))
            for number, chosen in enumerate(batches.epoch(self.seed, epoch, fabric.global_rank)):
                step = (epoch - 1) * batches.steps + number
                for group in optimizer.param_groups:
                    group["lr"] = self.learning_rate * schedule(step / (self.epochs * batches.steps))
                inputs = self._inputs(X, data.rows[chosen], epoch)
                targets = data.targets[torch.from_numpy(chosen)].to(fabric.device)
                if mixing is not None:
                    losses = mixed_loss(forward, inputs, targets, float(mixing[number]), data.loss)
                else:
                    losses = data.loss(logits := forward(inputs), targets)
                    if average is not None and self.consistency:
                        weight = self.consistency * step / (self.epochs * batches.steps)
                        plain = as_input(gather(X, data.rows[chosen], fabric.device))
                        losses = losses + weight * functional.cross_entropy(
                            logits, average.tells(plain), reduction="none"
                        )
                loss = losses.mean()
                if hasattr(module.module, "penalty"):
                    loss = loss + module.module.penalty(len(data))
                optimizer.zero_grad()
                fabric.backward(loss)
                optimizer.step()
                total += loss.detach()
                if average is not None:
                    average.follow(module.module, step)
        mean = fabric.all_reduce(total / batches.steps, reduce_op="mean")
        assert isinstance(mean, Tensor)
        return float(mean)

    def _inputs(self, X: Any, rows: NDArray[np.int64], epoch: int) -> Tensor:
        taken = gather(X, rows, self.fabric.device)
        if self.augmentation:
            taken = self.augmentation(taken, seed=self.seed, epoch=epoch, rows=rows)
        return as_input(taken)

    def _optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        how: dict[str, Any] = {
            "lr": self.learning_rate,
            "weight_decay": self.weight_decay,
            "fused": can_be_fused(module),
        }
        if self.optimizer in ADAMS:
            return ADAMS[self.optimizer](parameters, **how)
        return torch.optim.SGD(parameters, momentum=self.momentum, nesterov=self.momentum > 0, **how)

    @staticmethod
    def _begin_momentum(optimizer: Any) -> None:
        """Give all weights a momentum of 0: a fused step needs it, also of those that have no gradient yet."""
        group = optimizer.param_groups[0]
        if group["fused"] and group.get("momentum"):
            for weights in group["params"]:
                optimizer.state[weights]["momentum_buffer"] = torch.zeros_like(weights)

    def _settings(self) -> dict[str, Any]:
        skipped = {"module", "module_", "fabric", "augmentation", "shift"}  # the last one predicts, and trains nothing
        skipped |= set() if self.smoothing else {"smoothing"}  # which checkpoints from before it was there do not know
        settings = {name: value for name, value in vars(self).items() if name not in skipped}
        layers = {"module": repr(self.module), "augmentation": str(self.augmentation)}
        return settings | layers | {"processes": self.fabric.world_size}

    # ---- the fitted model --------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return softmax probabilities, one row per row of X."""
        module = self._fitted()
        training = module.training
        module.eval()
        parts = []
        with torch.inference_mode():
            for at in range(0, max(len(X), 1), PREDICT_AT_ONCE):
                inputs = as_input(gather(X, slice(at, at + PREDICT_AT_ONCE), self.fabric.device))
                seen = variants(inputs, mirror=self.mirror, shift=self.shift)
                shares = [torch.softmax(module(each).float(), dim=1) for each in seen]
                parts.append(torch.stack(shares).mean(dim=0).cpu().numpy())
        module.train(training)
        return np.concatenate(parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model's weights as safetensors."""
        checkpoints.save_weights(path, self._fitted())

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Read weights that `save` wrote, of a module with the same layers."""
        module = copy.deepcopy(self.module)
        try:
            module.load_state_dict(load_file(path))
        except FileNotFoundError:
            raise InvalidArgument(f"there is no model at {path}.") from None
        except Exception as error:
            raise InvalidArgument(f"{path} does not hold this module's weights ({type(error).__name__}).") from None
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.module_ = module.to(self.fabric.device).eval()
        return self

    def _fitted(self) -> nn.Module:
        if self.module_ is None:
            raise InvalidArgument("this TorchLearner has not been fitted: call fit(X, releases) first.")
        return self.module_

    # ---- processes ---------------------------------------------------------------------------------------------------

    def ask_once(self, ask: Callable[[], T]) -> T:
        """Ask on rank 0 alone, and hand the answer, or the error, to every rank."""
        return on_first_process(self.fabric, ask)

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchLearner:
        twin = copy.copy(self)
        twin.module, twin.module_ = copy.deepcopy(self.module, memo), copy.deepcopy(self.module_, memo)
        return twin  # the fabric, which holds processes and devices, is shared


def can_be_fused(module: nn.Module) -> bool:
    """Tell whether a step can be one pass over weights and gradients, which large embeddings gain most from."""
    is_sparse = any(getattr(each, "sparse", False) for each in module.modules())
    return not is_sparse and all(parameter.is_floating_point() for parameter in module.parameters())


def mixed_loss(module: Any, inputs: Tensor, targets: Tensor, lam: float, loss: Any) -> Tensor:
    """Return lam loss(report_i) + (1 - lam) loss(report_j) at the input lam x_i + (1 - lam) x_j."""
    logits = module(torch.lerp(inputs.flip(0), inputs, lam))
    return lam * loss(logits, targets) + (1 - lam) * loss(logits, targets.flip(0))
