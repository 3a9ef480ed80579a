"""Packaged recipes run: for an epoch a stage, on a few rows in the publishers' formats."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from labeldp.reproduce import figures, recipes_of, tables
from labeldp.runs import train

ROWS, TEST_ROWS = 20, 4


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    for name in ("mnist", "fashion-mnist", "kmnist"):
        (root / name).mkdir()
        for stem, n_rows in (("train", ROWS), ("t10k", TEST_ROWS)):
            pixels = rng.integers(0, 256, (n_rows, 28, 28), dtype=np.uint8)
            (root / name / f"{stem}-images-idx3-ubyte").write_bytes(idx(pixels))
            labels = rng.integers(0, 10, n_rows, dtype=np.uint8)
            (root / name / f"{stem}-labels-idx1-ubyte").write_bytes(idx(labels))
    (root / "cifar-10-batches-bin").mkdir()
    for stem in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        rows = rng.integers(0, 256, (ROWS // 5, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (root / "cifar-10-batches-bin" / f"{stem}.bin").write_bytes(rows.tobytes())
    hundred = root / "cifar-100-binary"
    hundred.mkdir()
    (hundred / "fine_label_names.txt").write_text("".join(f"class-{number}\n" for number in range(100)))
    for stem, n_rows in (("train", ROWS), ("test", TEST_ROWS)):
        rows = rng.integers(0, 256, (n_rows, 3074), dtype=np.uint8)
        rows[:, :2] %= np.array([20, 100], dtype=np.uint8)
        (hundred / f"{stem}.bin").write_bytes(rows.tobytes())
    (root / "ml-1m").mkdir()
    ratings = zip(rng.integers(1, 50, 60), rng.integers(1, 50, 60), rng.integers(1, 6, 60), strict=True)
    (root / "ml-1m" / "ratings.dat").write_text("".join(f"{u}::{i}::{r}::0\n" for u, i, r in ratings))
    return root


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def parts(recipe):
    """What a recipe is made of, whatever its numbers."""
    student = recipe.student and (recipe.student.model, recipe.student.precision)
    return recipe.data, recipe.model, recipe.features, recipe.release.mechanism, bool(recipe.prior), student


def every_recipe():
    """Each packaged recipe at its first epsilon, and at those where it is made of other parts; of a figure, one point."""
    for table in (*tables(), *figures()):
        for entry in recipes_of(table):
            point = entry.variants()[0]
            made_of = {parts(point.at(epsilon)): epsilon for epsilon in reversed(entry.epsilons)}
            yield from (
                pytest.param(point, epsilon, id=f"{table}-{entry.name}-{epsilon}") for epsilon in made_of.values()
            )


@pytest.mark.parametrize(("entry", "epsilon"), list(every_recipe()))
def test_a_packaged_recipe_runs_and_is_what_it_says(entry, epsilon, data_dir, tmp_path):
    recipe = entry.at(epsilon)
    quick = {"training.epochs": 1, "training.batch_size": 8, "rows": None}
    quick |= {} if recipe.student is None else {"student.epochs": 1, "student.rounds": 1}
    quick |= {} if recipe.features is None else {"features": "patches:centroids=8,sample=500"}
    if recipe.prior is not None and recipe.prior.features is not None:
        quick["prior.features"] = "byol:backbone=small-conv,epochs=1"
    if recipe.prior is not None and recipe.prior.count is not None:
        quick["prior.count"] = 2
    folder = train(recipe.changed(quick), tmp_path / "run", data_dir=data_dir, cache=tmp_path)
    certificate = folder.certificate()
    spent = certificate["spent"]["epsilon"]
    may_be_less = recipe.prior is not None and recipe.release.mechanism == "RRWithPrior"  # a sure prior asks nothing
    assert certificate["trust"] == entry.trust
    assert 0 < Fraction(spent) <= Fraction(epsilon) if may_be_less else spent == epsilon
    assert any(record["kind"] == "test" for record in folder.records())
