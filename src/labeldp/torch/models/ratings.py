"""Ratings by users of items: two biases, factors that lean on who rated what, an ordinal law, and Gaussian priors.

Rating number c = 0 .. K - 1 has the logit (c - middle) x score + b_c, which is the law softmax(-(c - s)^2 / 2 tau^2 + bias_c)
with tau taken into the score. The score of user u and item i is

    mean + bias_u + bias_i + a . z_u + b . z_i + (f_u + P z_u) . (g_i + Q z_i),

where z are coordinates of who rated what, which is public. A handful of shared numbers (a, b, P, Q) then says what would take a
number per user and item, of which noisy ratings say little. Under the priors, a user or an item with few ratings stays near
what its coordinates say.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labeldp.errors import InvalidArgument
from labeldp.features.pairs import pair_coordinates
from labeldp.learning.linear_ratings import SLOPES, Numbers
from labeldp.torch.models.inputs import Inputs, id_sizes
from labeldp.torch.models.registry import register

COORDINATES = 32
SUM_COORDINATES = 64
FACTORS = 16
BIAS_VARIANCES = (0.3, 0.4)
"""Of a user's and an item's own bias, beside what its coordinates say."""
SHARED_VARIANCES = (0.002, 0.0005)
"""Of every shared number: of a and b, and of P and Q, whose products count."""
FACTOR_VARIANCE = 0.05
START = 0.3
"""Standard deviation of own factors before training, in units of their prior's. All at 0, they would stay there."""
SHARED_START = 0.03


class Ratings(nn.Module):
    """From pairs (user, item), int64 of shape (n, 2), to K logits.

    Parameters
    ----------
    n_factors, n_coordinates : of factors, and of the coordinates of who rated what.
    of_means : whether the score is the expected rating itself, as sums of ratings tell it. The law is then binomial, which has
        any mean and nothing else to be learned.
    """

    users: Tensor
    items: Tensor
    steps: Tensor

    def __init__(
        self,
        n_users: int,
        n_items: int,
        n_classes: int,
        *,
        n_factors: int = FACTORS,
        n_coordinates: int = COORDINATES,
        of_means: bool = False,
    ) -> None:
        super().__init__()
        self.sizes, self.n_coordinates, self.of_means = (n_users, n_items), n_coordinates, of_means
        n_columns = n_coordinates + 2
        self.register_buffer("users", torch.zeros(n_users, n_columns))
        self.register_buffer("items", torch.zeros(n_items, n_columns))
        self.register_buffer("steps", torch.arange(n_classes) - (n_classes - 1) / 2, persistent=False)
        self.mean = nn.Parameter(torch.zeros(()))
        self.thresholds = nn.Parameter(torch.tensor([math.log(math.comb(n_classes - 1, c)) for c in range(n_classes)]))
        self.biases = nn.ParameterList([torch.zeros(size) for size in self.sizes])
        self.shared_biases = nn.ParameterList([torch.zeros(n_columns) for _ in self.sizes])
        scale = START * math.sqrt(FACTOR_VARIANCE)
        self.factors = nn.ParameterList([scale * torch.randn(size, n_factors) for size in self.sizes])
        self.shared_factors = nn.ParameterList([SHARED_START * torch.randn(n_columns, n_factors) for _ in self.sizes])

    def see(self, pairs: Tensor) -> None:
        """Take in who rated what, before training. Public: no rating is read."""
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point():
            raise InvalidArgument(f"X must be pairs of user and item numbers, got shape {tuple(pairs.shape)}.")
        found = pair_coordinates(pairs.cpu().numpy(), self.sizes, self.n_coordinates)
        for buffer, coordinates in zip((self.users, self.items), found, strict=True):
            buffer.copy_(torch.from_numpy(coordinates))

    def take(self, numbers: Numbers, coordinates: tuple[NDArray[Any], NDArray[Any]], *, low: float) -> None:
        """Take in what `RatingSums` learned of expected ratings, of which `low` is the lowest, as factors.

        z_u cross z_i + slope_u . z_i + slope_i . z_u is (slope_u, 0) + z_u (cross, 1) times (0, slope_i) + z_i (1, 0).
        """
        width, k = coordinates[0].shape[1], numbers.slope[0].shape[1]
        ones = np.eye(width)
        taken = {
            "mean": numbers.mean[0] - low,
            "users": coordinates[0],
            "items": coordinates[1],
            "factors.0": np.pad(numbers.slope[0], ((0, 0), (0, width))),
            "factors.1": np.pad(numbers.slope[1], ((0, 0), (width, 0))),
            "shared_factors.0": np.hstack([numbers.cross, ones[:, :k]]),
            "shared_factors.1": np.hstack([ones, np.zeros((width, k))]),
        }
        for side in (0, 1):
            taken |= {f"biases.{side}": numbers.bias[side], f"shared_biases.{side}": numbers.shared[side]}
        self.load_state_dict({name: torch.as_tensor(value) for name, value in taken.items()}, strict=False)

    def scores(self, ids: Tensor) -> Tensor:
        biases, factors = [], []
        for side, coordinates in enumerate((self.users, self.items)):
            chosen = ids[:, side]
            seen = coordinates[chosen]
            biases.append(self.biases[side][chosen] + seen @ self.shared_biases[side])
            factors.append(self.factors[side][chosen] + seen @ self.shared_factors[side])
        return self.mean + biases[0] + biases[1] + (factors[0] * factors[1]).sum(dim=1)

    def forward(self, ids: Tensor) -> Tensor:
        scores = self.scores(ids)
        if self.of_means:
            last = len(self.steps) - 1
            scores = torch.logit((scores / last).clamp(1e-4, 1 - 1e-4))
        return scores[:, None] * self.steps + self.thresholds

    def penalty(self, n_rows: int) -> Tensor:
        """Return minus the log density of the Gaussian priors, without its constant, per row of the training set.

        A user's own numbers are pulled to 0 once, and by each rating to what that says: the shrinkage follows the count.
        """
        squares = [self.biases[side].square().sum() / BIAS_VARIANCES[side] for side in (0, 1)]
        squares += [own.square().sum() / FACTOR_VARIANCE for own in self.factors]
        for kind, variance in zip((self.shared_biases, self.shared_factors), SHARED_VARIANCES, strict=True):
            squares += [shared.square().sum() / variance for shared in kind]
        return torch.stack(squares).sum() / (2 * n_rows)


@register("rating-sums", takes=("ids",))
def rating_sums(inputs: Inputs, n_classes: int) -> nn.Module:
    shape = {"n_coordinates": SUM_COORDINATES, "n_factors": SUM_COORDINATES + 2 + SLOPES}
    return Ratings(*id_sizes(inputs), n_classes, **shape, of_means=True)


@register("ratings", takes=("ids",))
def ratings(inputs: Inputs, n_classes: int) -> nn.Module:
    return Ratings(*id_sizes(inputs), n_classes)
