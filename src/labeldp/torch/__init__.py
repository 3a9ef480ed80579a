"""Training on torch: TorchLearner, its losses, augmentation and schedules, and models by name."""

from labeldp.torch import models
from labeldp.torch.augmentation import Augmentation
from labeldp.torch.byol import BYOL
from labeldp.torch.learner import TorchLearner
from labeldp.torch.pretrained import Pretrained
from labeldp.torch.simclr import SimCLR

__all__ = ["BYOL", "Augmentation", "Pretrained", "SimCLR", "TorchLearner", "models"]
