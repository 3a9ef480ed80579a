"""The vision transformer: torch's own encoder layer as an oracle, and positions interpolated one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from labeldp.errors import InvalidArgument
from labeldp.torch.models.vit import BACKBONES, Block, VisionTransformer


def tiny(**changes):
    torch.manual_seed(0)
    return VisionTransformer(**{"width": 12, "depth": 2, "heads": 3, "patch": 4, "size": 12, **changes}).eval()


def as_torch_has_it(block, width, heads):
    """The same block, made of torch's own layer."""
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    names = {
        "self_attn.in_proj_": "attn.qkv.",
        "self_attn.out_proj.": "attn.proj.",
        "linear1.": "mlp.fc1.",
        "linear2.": "mlp.fc2.",
        "norm1.": "norm1.",
        "norm2.": "norm2.",
    }
    weights = block.state_dict()
    layer.load_state_dict(
        {theirs + kind: weights[ours + kind] for theirs, ours in names.items() for kind in ("weight", "bias")}
    )
    return layer.eval()


def test_a_block_is_what_torch_calls_an_encoder_layer():
    torch.manual_seed(1)
    block, tokens = Block(12, 3).eval(), torch.randn(2, 5, 12)
    for parameter in block.parameters():
        parameter.data.normal_(std=0.5)
    with torch.inference_mode():
        torch.testing.assert_close(block(tokens), as_torch_has_it(block, 12, 3)(tokens), atol=1e-5, rtol=1e-5)


def test_the_network_is_patches_with_positions_through_the_blocks_to_the_class_token():
    network, images = tiny(), torch.randn(2, 3, 12, 12)
    with torch.inference_mode():
        kernel = network.patch_embed.proj.weight.flatten(1)
        tokens = [network.cls_token[0, 0].expand(2, -1)]
        for down in range(0, 12, 4):
            for across in range(0, 12, 4):
                patch = images[:, :, down : down + 4, across : across + 4].flatten(1)
                tokens.append(patch @ kernel.T + network.patch_embed.proj.bias)
        x = torch.stack(tokens, dim=1) + network.pos_embed
        for block in network.blocks:
            x = as_torch_has_it(block, 12, 3)(x)
        expected = nn.functional.layer_norm(x[:, 0], (12,), network.norm.weight, network.norm.bias, 1e-6)
        torch.testing.assert_close(network(images), expected, atol=1e-5, rtol=1e-5)


def cubic(distance, a=-0.75):
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def along(values, length):
    """One axis of the interpolation of DINO's code, whose scale is (length + 0.1) / (length that was learned)."""
    scale = len(values) / (length + 0.1)
    rows = []
    for place in range(length):
        at = (place + 0.5) * scale - 0.5
        near = range(math.floor(at) - 1, math.floor(at) + 3)
        rows.append(sum(cubic(at - i) * values[min(max(i, 0), len(values) - 1)] for i in near))
    return np.stack(rows)


@pytest.mark.parametrize(("down", "across"), [(5, 5), (2, 7), (3, 9), (1, 9)])
def test_positions_of_other_sizes_are_interpolated_as_in_dinos_code(down, across):
    network = tiny()
    positions = network._positions(down, across).detach().numpy()
    grid = network.pos_embed.detach().double().numpy()[0, 1:].reshape(3, 3, 12)
    expected = along(along(grid, down).swapaxes(0, 1), across).swapaxes(0, 1)
    np.testing.assert_allclose(positions[0, 1:], expected.reshape(-1, 12), atol=1e-6)
    np.testing.assert_array_equal(positions[0, 0], network.pos_embed.detach()[0, 0])


def test_positions_of_the_size_that_was_learned_are_the_learned_ones():
    network = tiny()
    assert network._positions(3, 3) is network.pos_embed


def test_images_that_patches_do_not_fill_are_refused():
    with pytest.raises(InvalidArgument, match="multiple of 4 pixels high and wide"):
        tiny()(torch.zeros(1, 3, 12, 14))


@pytest.mark.parametrize(
    ("name", "n_parameters"),
    [  # of the same networks in timm 1.0.30, which DINO's weights are published for
        ("vit-small-16", 21_665_664),
        ("vit-small-8", 21_670_272),
        ("vit-base-16", 85_798_656),
        ("vit-base-8", 85_807_872),
    ],
)
def test_the_backbones_have_as_many_weights_as_timms(name, n_parameters):
    with torch.device("meta"):
        network = BACKBONES[name]()
    assert sum(parameter.numel() for parameter in network.parameters()) == n_parameters
