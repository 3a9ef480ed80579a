"""The house plan is a test: a room may import only what stands to its right."""

import ast
from pathlib import Path

import pytest

import labeldp

SOURCE = Path(labeldp.__file__).parent
EVERYBODY_MAY = {"errors", "checks", "files"}
ROOMS = {
    "errors": set(),
    "checks": {"errors"},
    "files": set(),
    "randomness": set(),
    "budget": set(),
    "mechanisms": {"randomness", "budget"},
    "vault": {"mechanisms", "randomness", "budget"},
    "features": set(),
    "priors": {"features", "vault", "budget"},
    "bulk": {"vault", "mechanisms", "budget"},
    "metrics": {"vault"},
    "convex": {"vault", "mechanisms", "budget"},
    "learning": {"vault", "priors", "mechanisms", "metrics", "budget"},
    "torch": {"features", "learning", "vault"},
    "sklearn": {"learning", "metrics", "vault", "mechanisms", "budget"},
    "datasets": {"vault", "bulk"},
    "report": set(),
    "runs": {
        *{"datasets", "bulk", "features", "priors", "torch", "sklearn", "learning", "metrics", "report"},
        *{"vault", "mechanisms", "budget"},
    },
    "reproduce": {"runs", "report", "datasets", "features", "learning", "vault", "mechanisms", "budget"},
}
LEAVES = {"cli"}
CORE = {"numpy", "scipy", "click", "rich"}
FOREIGN = {
    "errors": set(),
    "checks": {"numpy"},
    "files": set(),
    "randomness": {"numpy"},
    "budget": {"numpy", "dp_accounting"},
    "mechanisms": {"numpy", "scipy"},
    "vault": {"numpy"},
    "features": {"numpy", "scipy", "threadpoolctl"},
    "priors": {"numpy", "sklearn"},
    "bulk": {"numpy", "pyarrow"},
    "metrics": {"numpy"},
    "convex": {"numpy", "scipy"},
    "learning": {"numpy", "scipy"},
    "torch": {"numpy", "torch", "lightning_fabric", "safetensors", "timm"},
    "sklearn": {"numpy", "scipy", "sklearn", "skops"},
    "datasets": {"numpy", "sklearn", "statsmodels", "pandas"},
    "report": {"numpy", "matplotlib"},
    "runs": {"numpy", "torch", "lightning_fabric"},
    "reproduce": {"numpy"},
    "cli": CORE | {"torch", "lightning_fabric", "pyarrow"},
}
STANDARD = __import__("sys").stdlib_module_names


def imports_of(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide which room is meant"
            if node.module == "labeldp":
                yield from (f"labeldp.{alias.name}" for alias in node.names)
            else:
                yield node.module


def room_of(file):
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [file for file in SOURCE.rglob("*.py") if file != SOURCE / "__init__.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_room_imports_only_what_stands_to_its_right(file):
    room = room_of(file)
    allowed = ROOMS.get(room, set(ROOMS)) | EVERYBODY_MAY | {room}
    for name in imports_of(file):
        if name.startswith("labeldp."):
            target = name.split(".")[1]
            is_room = (SOURCE / target).is_dir() or (SOURCE / f"{target}.py").is_file()
            assert not is_room or target in allowed, f"{room} must not import {name}"
            assert target not in LEAVES or room in LEAVES, "nobody imports a leaf"
        elif name == "labeldp" or name.split(".")[0] in STANDARD:
            continue
        else:
            assert name.split(".")[0] in FOREIGN[room], f"{room} must not import {name}"


def test_every_room_is_in_the_plan():
    assert {room_of(file) for file in FILES} == set(ROOMS) | LEAVES


def test_no_room_without_a_name():
    assert not [f for f in FILES if f.stem.rstrip("s") in {"util", "helper", "common", "misc"}]


def test_no_file_outgrows_one_idea():
    for file in FILES:
        assert len(file.read_text().splitlines()) <= 560, file


def test_no_seeded_or_floating_generator_near_privacy_noise():
    forbidden = ("np.random", "numpy.random", "default_rng", "RandomState", "import secrets")
    for room in ("mechanisms", "vault", "budget", "randomness", "bulk"):
        for file in (SOURCE / room).rglob("*.py"):
            assert not any(word in file.read_text() for word in forbidden), file
