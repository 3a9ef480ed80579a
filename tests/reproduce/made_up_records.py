"""Records of runs that never were."""

from __future__ import annotations

import itertools

from labeldp.reproduce.cookbook import hash_of

NUMBERS = itertools.count()


def run(value, **other):
    usual = {
        "kind": "run",
        "dataset": "mnist",
        "trust": "local",
        "recipe": "best-local",
        "recipe_hash": "a",
        "epsilon": "1",
        "metric": "accuracy",
        "seconds": 10.0,
        "time": "2026-01-01T00:00:00Z",
        "commit": "c0ffee",
        "data": "d1",
        "run": str(next(NUMBERS)),
    }
    return usual | {"value": value} | other


def of_figure(entry, epsilon, value, *, mean_k=2.0, top=(70.0, 88.0, 93.0), epochs=0, **other):
    """Return the record of a variant of a figure's recipe, with what such records have besides."""
    recipe = entry.at(epsilon)
    stages = recipe.release.stages
    top = [*top, *[99.0] * (10 - len(top))]
    record = run(
        value,
        table=entry.table,
        dataset=recipe.data,
        recipe=entry.name,
        recipe_hash=hash_of(recipe),
        variant=dict(entry.variant),
        epsilon=epsilon,
        draw=1,
        stages=[
            {"stage": stage, "mean_k": 10.0 if stage == 1 else mean_k, "accuracy": value, "top_k": top}
            for stage in range(1, stages + 1)
        ],
    )
    curve = [
        {"stage": stage, "epoch": epoch, "accuracy": value - 30 / (epoch + 4 * stage), "top_k": top}
        for stage in range(1, stages + 1)
        for epoch in range(1, epochs + 1)
    ]
    return record | ({"curve": curve} if curve else {}) | other
