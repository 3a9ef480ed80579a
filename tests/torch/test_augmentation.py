"""Augmentation against a loop over images and pixels, and its numbers against chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import labeldp as ldp
from labeldp.torch import Augmentation
from labeldp.torch.augmentation import uniforms

FALSE_ALARM = 1e-9
"""Of each chi-square below, over the choice of seeds; these are fixed, so a test that passed once passes always."""

KINDS = [
    Augmentation(crop=4, flip=True, cutout=8),
    Augmentation(crop=2),
    Augmentation(flip=True),
    Augmentation(cutout=3),
    Augmentation(cutout=1),
    Augmentation(crop=1, cutout=7),
]


def pictures(dtype, n=40, channels=3, height=9, width=7):
    values = np.random.default_rng(0).integers(1, 256, size=(n, channels, height, width))
    return torch.from_numpy(values).to(dtype)


def naive(kind, image, chances):
    """One image, pixel by pixel."""
    height, width = image.shape[1:]
    down, right = (int(chances[k] * (2 * kind.crop + 1)) - kind.crop for k in (0, 1))
    turned = kind.flip and chances[2] < 0.5
    centre = [int(chances[3] * height), int(chances[4] * width)]
    out = torch.zeros_like(image)
    for y in range(height):
        for x in range(width):
            top, left = (c - kind.cutout // 2 for c in centre)
            if kind.cutout and top <= y < top + kind.cutout and left <= x < left + kind.cutout:
                continue
            from_y, from_x = y + down, (width - 1 - x if turned else x) + right
            if 0 <= from_y < height and 0 <= from_x < width:
                out[:, y, x] = image[:, from_y, from_x]
    return out


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_are_cut_turned_and_blanked_as_a_loop_would(kind, dtype, layout):
    images = pictures(dtype).contiguous(memory_format=layout)
    rows = np.random.default_rng(1).integers(0, 50_000, size=len(images))
    before = images.clone()
    changed = kind(images, seed=3, epoch=5, rows=rows)
    chances = uniforms(3, 5, rows, 5)
    assert changed.dtype == dtype and changed.shape == images.shape
    assert torch.equal(images, before), "the data is copied, not changed"
    for place in range(len(images)):
        assert torch.equal(changed[place], naive(kind, images[place], chances[:, place]))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_row_fares_the_same_in_any_batch_at_any_place(kind):
    images, rows = pictures(torch.uint8), np.arange(40) * 7
    whole = kind(images, seed=1, epoch=2, rows=rows)
    order = np.random.default_rng(2).permutation(40)
    assert torch.equal(kind(images[order], seed=1, epoch=2, rows=rows[order]), whole[order])
    parts = [kind(images[a : a + 9], seed=1, epoch=2, rows=rows[a : a + 9]) for a in range(0, 40, 9)]
    assert torch.equal(torch.cat(parts), whole)
    for seed, epoch in ((1, 3), (2, 2)):
        assert not torch.equal(kind(images, seed=seed, epoch=epoch, rows=rows), whole)


def test_every_place_of_the_crop_both_turns_and_every_centre_occur():
    image = torch.zeros(4000, 1, 5, 5, dtype=torch.uint8)
    image[:, :, 2, 1] = 1
    changed = Augmentation(crop=1, flip=True)(image, seed=0, epoch=1, rows=np.arange(4000))
    places = {tuple(place) for place in changed[:, 0].nonzero()[:, 1:].tolist()}
    assert places == {(y, x) for y in (1, 2, 3) for x in (0, 1, 2, 3, 4)}  # around 1, and around 3 when turned
    blank = Augmentation(cutout=1)(torch.ones(4000, 1, 5, 5), seed=0, epoch=1, rows=np.arange(4000))
    assert (blank.sum(dim=(1, 2, 3)) == 24).all() and ((blank[:, 0] == 0).sum(dim=0) > 0).all()


def test_nothing_asked_nothing_done():
    assert not Augmentation() and all(KINDS)
    images = pictures(torch.float32)
    assert torch.equal(Augmentation()(images, seed=0, epoch=1, rows=np.arange(40)), images)
    for wrong in ({"crop": -1}, {"cutout": -2}):
        with pytest.raises(ldp.InvalidArgument):
            Augmentation(**wrong)


# ---------------------------------------------------------------- the numbers behind it


def assert_even(cells):
    expected = cells.sum() / cells.size
    assert ((cells - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, cells.size - 1)


@pytest.mark.parametrize(("seed", "epoch"), [(0, 1), (0, 2), (1, 1), (2**63 - 1, 1000)])
def test_the_numbers_are_uniform_one_by_one_and_in_pairs(seed, epoch):
    n = 100_000
    numbers = uniforms(seed, epoch, np.arange(n), 5)
    assert numbers.shape == (5, n) and numbers.dtype == np.float32 and (numbers >= 0).all() and (numbers < 1).all()
    for column in numbers:
        assert_even(np.histogram(column, bins=256, range=(0, 1))[0])
        assert_even(np.histogram2d(column[:-1], column[1:], bins=16, range=((0, 1), (0, 1)))[0])  # neighbouring rows
    for a in range(5):
        for b in range(a):
            assert_even(np.histogram2d(numbers[a], numbers[b], bins=16, range=((0, 1), (0, 1)))[0])


def test_seeds_and_epochs_that_lie_close_have_nothing_in_common():
    rows = np.arange(100_000)
    first = uniforms(0, 1, rows, 1)[0]
    for seed, epoch in ((0, 2), (1, 1), (1, 0), (0, 100), (2, 1)):
        other = uniforms(seed, epoch, rows, 1)[0]
        assert_even(np.histogram2d(first, other, bins=16, range=((0, 1), (0, 1)))[0])


def test_a_row_has_its_numbers_whatever_the_type_of_its_number():
    rows = np.array([0, 3, 49_999])
    assert (uniforms(1, 1, rows.astype(np.int32), 5) == uniforms(1, 1, rows, 5)).all()
    assert (uniforms(1, 1, rows, 5)[:, 1] == uniforms(1, 1, rows[1:2], 5)[:, 0]).all()
    assert (uniforms(1, 1, rows, 5)[:3] == uniforms(1, 1, rows, 3)).all()
