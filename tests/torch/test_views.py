"""Views against torch's own sampling and loops over pixels, and their keys."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

import labeldp as ldp
from labeldp.torch.augmentation import uniforms
from labeldp.torch.views import CHANCES, TO_LUMA_AND_CHROMA, Views, blurring, enlarging, recolouring

NOTHING = {"smallest": 1.0, "stretch": 1.0, "jitter": 0.0, "grey": 0.0}
EVERYTHING = Views(flip=True, blur=0.5, solarize=0.3)


def pictures(dtype=torch.uint8, n=40, channels=3, height=9, width=7):
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 256, size=(n, channels, height, width)))
    return values.to(dtype) if dtype == torch.uint8 else values.to(dtype) / 255


def seen(views, images, *, seed=3, epoch=5, rows=None, view=0):
    rows = np.arange(len(images)) if rows is None else rows
    return views(images, seed=seed, epoch=epoch, rows=rows, view=view)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("views", [Views(), EVERYTHING, Views(brightness=1, contrast=1, saturation=1, hue=0.5)])
def test_views_have_the_shape_of_the_images_and_levels_between_0_and_1(views, channels, dtype):
    images = pictures(dtype, channels=channels)
    before = images.clone()
    found = seen(views, images)
    assert found.shape == images.shape and found.dtype == torch.float32
    assert found.min() >= 0 and found.max() <= 1 and found.std() > 0.05
    assert torch.equal(images, before), "the data is copied, not changed"


def test_bytes_and_floats_give_the_same_views():
    assert torch.allclose(seen(EVERYTHING, pictures()), seen(EVERYTHING, pictures(torch.float32)), atol=1e-6)


def test_nothing_asked_nothing_done():
    assert torch.allclose(seen(Views(**NOTHING), pictures()), pictures(torch.float32), atol=1e-6)


@pytest.mark.parametrize("views", [Views(), EVERYTHING])
def test_a_row_has_the_same_view_in_any_batch_at_any_place(views):
    images, rows = pictures(), np.arange(40) * 7
    whole = seen(views, images, rows=rows)
    order = np.random.default_rng(2).permutation(40)
    assert torch.allclose(seen(views, images[order], rows=rows[order]), whole[order], atol=1e-6)
    parts = [seen(views, images[a : a + 9], rows=rows[a : a + 9]) for a in range(0, 40, 9)]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-6)


def test_another_view_epoch_seed_or_row_is_another_view():
    images = pictures(n=1).expand(40, -1, -1, -1)
    first = seen(Views(), images)
    others = [{"view": 1}, {"epoch": 6}, {"seed": 4}, {"rows": np.arange(40, 80)}]
    for other in others:
        again = seen(Views(), images, **other)
        assert torch.equal(seen(Views(), images, **other), again)
        assert ((first - again).abs().amax(dim=(1, 2, 3)) > 1e-3).all(), other
    assert len({picture.numpy().tobytes() for picture in first}) == 40


def ramp(n, width=12):
    """Grey that grows from left to right."""
    return torch.linspace(0.1, 0.9, width).expand(n, 3, 8, width)


def test_without_flip_no_view_is_ever_turned_and_with_it_every_other_is():
    def turned(views):
        columns = seen(views, ramp(2000)).mean(dim=(1, 2))
        return columns[:, 0] > columns[:, -1]

    assert not turned(Views()).any()
    slack = 6.2 * 0.5 / math.sqrt(2000)  # false alarm 1e-9, fixed seed
    assert abs(turned(Views(flip=True)).float().mean() - 0.5) < slack


def test_parts_are_cut_out_and_enlarged_as_torch_would():
    images = pictures(torch.float32, height=11, width=8)
    views = Views(smallest=0.3, stretch=1.5, flip=True, jitter=0, grey=0)
    area, ratio, y, x, flip = torch.from_numpy(uniforms(3, 5, np.arange(40), CHANCES)[:5])
    area, ratio = 0.3 + 0.7 * area, 1.5 ** (2 * ratio - 1)
    tall, wide = torch.sqrt(area / ratio).clamp(max=1), torch.sqrt(area * ratio).clamp(max=1)
    middle_y, middle_x = 2 * y * (1 - tall) + tall - 1, 2 * x * (1 - wide) + wide - 1
    sign, zero = torch.where(flip < 0.5, -1, 1), torch.zeros(40)
    matrices = torch.stack([sign * wide, zero, middle_x, zero, tall, middle_y], dim=1).view(40, 2, 3)
    grid = functional.affine_grid(matrices, list(images.shape), align_corners=False)
    expected = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    assert torch.allclose(seen(views, images), expected, atol=1e-4)
    assert tall.min() < 0.6 and tall.max() > 0.95  # small parts and large ones were among them


def test_a_part_of_an_axis_stretched_by_two_interpolates_between_pixels():
    (matrix,) = enlarging(4, torch.tensor([0.5]), torch.tensor([0.5]))
    assert matrix @ torch.tensor([0.0, 0.0, 1.0, 2.0]) == pytest.approx([0.75, 1.25, 1.75, 2.0])


@pytest.mark.parametrize("deviation", [0.0, 0.4, 1.7])
def test_a_blur_is_a_gaussian_average(deviation):
    (matrix,) = blurring(9, torch.tensor([deviation]))
    signal = np.random.default_rng(0).uniform(size=9)
    for place in range(9):
        if deviation:
            weights = np.array([math.exp(-((place - other) ** 2) / (2 * deviation**2)) for other in range(9)])
        else:
            weights = np.eye(9)[place]
        assert float(matrix[place] @ torch.from_numpy(signal).float()) == pytest.approx(
            weights @ signal / weights.sum(), abs=1e-5
        )


def test_blur_smooths_the_share_of_views_that_it_should():
    images = pictures(torch.float32, n=1).expand(500, -1, -1, -1)
    smooth = seen(Views(**NOTHING, blur=0.4), images).var(dim=(1, 2, 3)) < 0.95 * images[0].var()
    assert 0.25 < smooth.float().mean() < 0.45  # of 40 %, deviations near 0.1 do not show


def test_a_change_of_colour_keeps_the_luma_and_leaves_grey_alone():
    saturation, turn = torch.tensor([0.0, 0.7, 1.0, 1.0]), torch.tensor([1.0, -2.0, 0.0, math.pi])
    matrices, luma = recolouring(saturation, turn), torch.tensor(TO_LUMA_AND_CHROMA[0])
    assert torch.allclose(luma @ matrices, luma.expand(4, 3), atol=1e-5)
    assert torch.allclose(matrices @ torch.ones(3), torch.ones(4, 3), atol=1e-5)
    assert torch.allclose(matrices[0], luma.expand(3, 3), atol=1e-5)  # no saturation: every channel is the luma
    assert torch.allclose(matrices[2], torch.eye(3), atol=1e-5)
    assert torch.allclose(matrices[3] @ matrices[3], torch.eye(3), atol=1e-5)  # half a turn, twice
    assert not torch.allclose(matrices[3], torch.eye(3), atol=0.1)


def test_brightness_and_contrast_are_a_factor_and_a_distance_from_the_mean():
    images = pictures(torch.float32, channels=1) * 0.2 + 0.3  # so that nothing is clamped
    views = Views(**NOTHING | {"jitter": 1.0}, brightness=0.3, contrast=0.5)
    chances = uniforms(3, 5, np.arange(40), CHANCES)
    for place, found in enumerate(seen(views, images)):
        brightness, contrast = 0.7 + 0.6 * chances[8, place], 0.5 + chances[9, place]
        bright = brightness * images[place]
        assert torch.allclose(found, bright.mean() + contrast * (bright - bright.mean()), atol=1e-5)


def test_grey_jitter_and_solarize_happen_as_often_as_asked():
    images = pictures(torch.float32, n=1).expand(4000, -1, -1, -1)
    slack = 6.2 * 0.5 / math.sqrt(4000)  # false alarm 1e-9, fixed seed
    grey = seen(Views(**NOTHING | {"grey": 0.2}), images).var(dim=1).amax(dim=(1, 2)) < 1e-6
    assert abs(grey.float().mean() - 0.2) < slack
    changed = (seen(Views(**NOTHING | {"jitter": 0.7}), images) - images).abs().amax(dim=(1, 2, 3)) > 1e-3
    assert abs(changed.float().mean() - 0.7) < slack
    solarized = seen(Views(**NOTHING, solarize=0.3), images)
    folded = solarized.amax(dim=(1, 2, 3)) <= 0.5 + 1e-6
    assert abs(folded.float().mean() - 0.3) < slack
    assert torch.allclose(solarized[folded][0], torch.minimum(images[0], 1 - images[0]), atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"smallest": 0},
        {"smallest": 1.1},
        {"stretch": 0.9},
        {"grey": -0.1},
        {"hue": 2},
        {"blur": math.nan},
        {"brightness": 1.5},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ldp.InvalidArgument, match=next(iter(wrong))):
        Views(**wrong)
