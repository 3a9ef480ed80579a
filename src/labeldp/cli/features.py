"""`labeldp features`: representations of public inputs, computed once, without labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from labeldp.cli.options import cache_option, features_words, json_option, print_json, usage
from labeldp.errors import InvalidArgument

if TYPE_CHECKING:
    from labeldp.datasets import Dataset


@click.command()
@click.option("--data", required=True, help="A dataset's name, or a .npy file of images, bytes (n, C, H, W).")
@click.option("--features", "spec", metavar="SPEC", default="patches", help=f"{features_words}; patches by default.")
@cache_option
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets' files are.")
@json_option
def features(data: str, spec: str, cache: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Compute features of a dataset's inputs, or find those that are kept. No label has a part in it, and nothing is charged.

    \b
    labeldp features --data fashion-mnist
    labeldp features --data cifar-10 --features pretrained:vit-small-16,dino.pth --cache features
    """
    from labeldp.cli.progress import FeatureProgress, bars
    from labeldp.runs import inputs, specs

    began = time.perf_counter()
    with usage():
        parsed = specs.parse(specs.placed(spec))
        if parsed.kind == "arrays":
            raise InvalidArgument("arrays are features already: there is nothing to compute.")
        if parsed.kind == "joined":
            raise InvalidArgument("joined features are kept part by part: compute each part by itself.")
    public = _inputs(data, data_dir)
    if public.inputs["kind"] != "image":
        raise InvalidArgument(
            f"features are computed of images, and {data} holds rows of kind {public.inputs['kind']!r}."
        )
    extractor = inputs.extractor_of(parsed, public.inputs)
    with bars() as progress:
        found = inputs.extracted(public, extractor, spec, cache=cache, watch=FeatureProgress(progress))
    parts = {part: _part(array) for part, array in zip(("training", "test"), found, strict=True) if len(array)}
    if as_json:
        both: dict[str, Any] = {"training": None, "test": None} | parts
        print_json(both | {"extractor": extractor.description(), "seconds": round(time.perf_counter() - began, 3)})
        return
    for part, about in parts.items():
        click.echo(f"{part.capitalize()}: {about['file']}, {' x '.join(map(str, about['shape']))}.", err=True)


def _inputs(data: str, data_dir: Path | None) -> Dataset:
    """Return public inputs: a dataset that forgets its labels at once, or a file of images."""
    import numpy as np

    from labeldp import datasets

    if not data.endswith(".npy"):
        return datasets.load(data, data_dir=data_dir).only_public()
    try:
        images = np.load(data, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InvalidArgument(f"there is no file {data}.") from None
    except (ValueError, EOFError):
        images = None
    if not isinstance(images, np.ndarray) or images.ndim != 4 or images.dtype != np.uint8:
        raise InvalidArgument(
            f"{data} must hold images as numpy.save writes them: uint8, (n, channels, height, width)."
        )
    return datasets.Dataset(
        data,
        X=images,
        labels=None,
        classes=(0, 1),
        X_test=images[:0],
        test_labels=np.empty(0, dtype=np.int64),
        inputs={"kind": "image", "shape": list(images.shape[1:])},
        public_test=None,
    )


def _part(array: Any) -> dict[str, Any]:
    return {"file": str(array.filename), "shape": list(array.shape)}
