import numpy as np
import pytest
import torch

from labeldp.errors import InvalidArgument
from labeldp.torch import models

MOVIELENS = {"kind": "ids", "sizes": [6040, 3952]}


def test_the_parameters_are_two_pairs_of_tables_a_tower_and_a_linear_layer():
    tables = (6040 + 3952) * (16 + 32)
    tower = (64 * 64 + 64) + (64 * 32 + 32) + (32 * 16 + 16)
    logits = (16 + 16) * 5 + 5
    model = models.build("ncf", MOVIELENS, 5)
    assert sum(p.numel() for p in model.parameters()) == tables + tower + logits == 486_549


def test_the_logits_are_those_of_the_two_branches():
    model = models.build("ncf", {"kind": "ids", "sizes": [4, 3]}, 5).double()
    ids = torch.tensor([[0, 2], [3, 0], [0, 2]])
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    expected = []
    for user, item in ids.tolist():
        product = state["factors.0.weight"][user] * state["factors.1.weight"][item]
        hidden = np.concatenate([state["embeddings.0.weight"][user], state["embeddings.1.weight"][item]])
        for layer in (0, 2, 4):
            hidden = np.maximum(state[f"tower.{layer}.weight"] @ hidden + state[f"tower.{layer}.bias"], 0)
        expected.append(state["logits.weight"] @ np.concatenate([product, hidden]) + state["logits.bias"])
    np.testing.assert_allclose(model(ids).detach().numpy(), expected, rtol=1e-12)


def test_it_learns_a_rating_that_depends_on_user_and_item():
    model = models.build("ncf", {"kind": "ids", "sizes": [8, 6]}, 3)
    ids = torch.cartesian_prod(torch.arange(8), torch.arange(6))
    ratings = (ids[:, 0] % 2) * (ids[:, 1] % 2) + (ids[:, 0] > 5).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(ids), ratings).backward()
        optimizer.step()
    assert torch.equal(model(ids).argmax(dim=1), ratings)


def test_the_expected_value_is_the_mean_under_each_row():
    table = np.array([[0.2, 0.8], [1.0, 0.0]], dtype=np.float32)
    values = models.expected_value(table, [1, 5])
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, [4.2, 1.0], rtol=1e-6)
    assert models.expected_value(np.zeros((0, 2)), [1, 5]).shape == (0,)


@pytest.mark.parametrize(
    ("probabilities", "values", "message"),
    [
        ([[0.5, 0.5]], [1, 2, 3], r"shape \(rows, 3\), got \(1, 2\)"),
        ([0.5, 0.5], [1, 2], "shape"),
        ([[0.5, 0.5]], [[1, 2]], "one finite number per class"),
        ([[0.5, 0.5]], [1, np.nan], "one finite number per class"),
        ([[0.5, 0.5]], ["a", "b"], "one finite number per class"),
        ([[3.0, -1.0]], [1, 2], "pass no logits"),
        ([[1.5, -0.5]], [1, 2], "nonnegative"),
        ([[np.nan, 1.0]], [1, 2], "sum to 1"),
    ],
)
def test_what_is_not_a_probability_is_refused(probabilities, values, message):
    with pytest.raises(InvalidArgument, match=message):
        models.expected_value(probabilities, values)
