"""Networks by name, built from a public description of their inputs."""

from labeldp.torch.models import (  # noqa: F401 - each registers its own
    inception,
    ratings,
    recommender,
    resnet,
    small,
    whitened,
)
from labeldp.torch.models.recommender import expected_value
from labeldp.torch.models.registry import build, names, register

__all__ = ["build", "expected_value", "names", "register"]
