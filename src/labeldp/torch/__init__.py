"""Training on torch: TorchLearner, its losses, augmentation and schedules, and models by name."""

from labeldp.torch import models
from labeldp.torch.augmentation import Augmentation
from labeldp.torch.learner import TorchLearner

__all__ = ["Augmentation", "TorchLearner", "models"]
