"""Two-branch neural collaborative filtering for ratings as classes: NeuMF of He et al. 2017, as in the paper's MovieLens runs.

The paper gives no sizes. Ours: 16 factors, embeddings of 32, a tower of 64, 32 and 16. He et al.'s one sigmoid output becomes K
logits, and embeddings start from their Gaussian of standard deviation 0.01.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labeldp import checks
from labeldp.errors import InvalidArgument
from labeldp.torch.models.inputs import Inputs, id_sizes
from labeldp.torch.models.registry import register

N_FACTORS = 16
EMBEDDING = 32
TOWER = (64, 32, 16)
INITIAL_SCALE = 0.01


class NeuMF(nn.Module):
    """From pairs (user, item), int64 of shape (n, 2), to K logits."""

    def __init__(self, n_users: int, n_items: int, n_classes: int) -> None:
        super().__init__()
        self.factors = nn.ModuleList([nn.Embedding(n, N_FACTORS) for n in (n_users, n_items)])
        self.embeddings = nn.ModuleList([nn.Embedding(n, EMBEDDING) for n in (n_users, n_items)])
        for table in (*self.factors, *self.embeddings):
            nn.init.normal_(table.weight, std=INITIAL_SCALE)  # type: ignore[arg-type]
        layers: list[nn.Module] = []
        size = 2 * EMBEDDING
        for width in TOWER:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        self.tower = nn.Sequential(*layers)
        self.logits = nn.Linear(N_FACTORS + size, n_classes)

    def forward(self, ids: Tensor) -> Tensor:
        user, item = ids.unbind(dim=1)
        factorization = self.factors[0](user) * self.factors[1](item)
        perceptron = self.tower(torch.cat([self.embeddings[0](user), self.embeddings[1](item)], dim=1))
        return self.logits(torch.cat([factorization, perceptron], dim=1))


@register("ncf", takes=("ids",))
def ncf(inputs: Inputs, n_classes: int) -> nn.Module:
    return NeuMF(*id_sizes(inputs), n_classes)


def expected_value(probabilities: Any, values: Any) -> NDArray[np.float64]:
    """Return each row's mean value, such as the rating whose RMSE the paper reports.

    Parameters
    ----------
    probabilities : rows of K class probabilities.
    values : the K classes' values, in class order.

    >>> expected_value([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [1, 2, 3]).tolist()
    [1.5, 3.0]
    """
    numbers = checks.array(values=values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "fiu" or not np.isfinite(numbers).all():
        raise InvalidArgument(f"values must be one finite number per class, got shape {numbers.shape}.")
    table = checks.array(probabilities=probabilities)
    if table.ndim != 2 or table.shape[1] != len(numbers) or table.dtype.kind not in "fiu":
        raise InvalidArgument(f"probabilities must have shape (rows, {len(numbers)}), got {table.shape}.")
    sums = table.sum(axis=1, dtype=np.float64)
    if not (np.abs(sums - 1) <= checks.PRIOR_SUM_TOLERANCE).all() or table.min(initial=0) < 0:
        raise InvalidArgument("each row of probabilities must be nonnegative and sum to 1: pass no logits.")
    return table.astype(np.float64) @ numbers.astype(np.float64)
