"""What others have published: dataset, method, epsilon, test accuracy in percent (MovieLens: RMSE), and where it stands."""

from __future__ import annotations

import re

PAPER = (
    "Ghazi, Golowich, Kumar, Manurangsi, Zhang: Deep Learning with Label Differential Privacy, NeurIPS 2021, "
    "arXiv 2102.06062"
)

ONE_STAGE = "LP-1ST"
TWO_STAGES = "LP-2ST"
OFFICIAL_CODE = "LP-2ST, official code"
PRE_TRAINED_ONCE = "LP-1ST, CIFAR-100 pre-training"
PRE_TRAINED = "LP-2ST, CIFAR-100 pre-training"
PROJECTIONS = "LabelDP-Pro"
NOT_PRIVATE = "without privacy"

SOURCES = {
    ONE_STAGE: PAPER,
    TWO_STAGES: PAPER,
    OFFICIAL_CODE: "README of google-research/label-dp, the code of the paper",
    PRE_TRAINED_ONCE: PAPER,
    PRE_TRAINED: PAPER,
    PROJECTIONS: "Ghazi et al.: LabelDP-Pro: Learning with Label Differential Privacy via Projections, ICLR 2024",
    NOT_PRIVATE: PAPER,
}

PURE_AND_LOCAL = (ONE_STAGE, TWO_STAGES, OFFICIAL_CODE, PRE_TRAINED_ONCE, PRE_TRAINED)
"""These promise what a local certificate of this library promises: delta = 0, nobody but a label's owner is trusted."""

POINTS: dict[str, dict[str, dict[str, float]]] = {
    "MNIST": {
        ONE_STAGE: {"1": 95.34, "2": 98.16, "3": 98.81, "4": 99.08},
        TWO_STAGES: {"1": 95.82, "2": 98.78, "3": 99.14, "4": 99.24},
        PROJECTIONS: {"0.1": 91.1, "0.5": 94.1},
        NOT_PRIVATE: {"inf": 99.33},
    },
    "Fashion-MNIST": {
        ONE_STAGE: {"1": 80.78, "2": 90.18, "3": 92.52, "4": 93.50},
        TWO_STAGES: {"1": 83.26, "2": 91.24, "3": 93.18, "4": 94.10},
        PROJECTIONS: {"0.1": 75.7, "0.5": 79.8},
        NOT_PRIVATE: {"inf": 94.28},
    },
    "KMNIST": {
        ONE_STAGE: {"1": 76.56, "2": 92.04, "3": 95.86, "4": 96.86},
        TWO_STAGES: {"1": 81.26, "2": 93.72, "3": 97.19, "4": 97.83},
        NOT_PRIVATE: {"inf": 98.33},
    },
    "CIFAR-10": {
        ONE_STAGE: {"1": 59.96, "2": 82.38, "3": 89.89, "4": 92.58, "6": 93.58, "8": 94.70},
        TWO_STAGES: {"1": 63.67, "2": 86.05, "3": 92.19, "4": 93.37, "6": 94.26, "8": 94.52},
        OFFICIAL_CODE: {"1": 62.89, "2": 88.11, "4": 94.18, "8": 95.18},
        PRE_TRAINED_ONCE: {"1": 67.64, "2": 83.99, "3": 90.24, "4": 92.83, "6": 94.02, "8": 94.96, "inf": 95.25},
        PRE_TRAINED: {"1": 70.16, "2": 87.22, "3": 92.12, "4": 93.53, "6": 94.41, "8": 94.59},
        NOT_PRIVATE: {"inf": 94.96},
    },
    "CIFAR-100": {
        ONE_STAGE: {"3": 20.96, "4": 46.28, "5": 61.38, "6": 68.34, "8": 73.59},
        TWO_STAGES: {"3": 28.74, "4": 50.15, "5": 63.51, "6": 70.58, "8": 74.14},
        NOT_PRIVATE: {"inf": 76.38},
    },
    "MovieLens-1M": {
        ONE_STAGE: {"1": 1.122, "2": 0.981, "3": 0.902, "4": 0.877, "8": 0.867},
        TWO_STAGES: {"1": 1.034, "2": 0.928, "3": 0.891, "4": 0.874, "8": 0.865},
        NOT_PRIVATE: {"inf": 0.868},
    },
}

NOTES = {
    PROJECTIONS: (
        "LabelDP-Pro has delta > 0 and adds its noise to gradients that a curator has summed: a weaker promise than "
        "that of the other points, and not directly comparable."
    ),
    "MovieLens-1M": (
        "These figures are per rating, not per person. With full DP (Gaussian DP) 0.915 is known at epsilon 10 and above."
    ),
}
ELSEWHERE = (
    "The paper also quotes DP-SGD, PATE and others under add/remove adjacency with delta = 1e-5: a stronger promise, "
    "not directly comparable, so they are not drawn."
)

_OTHER_NAMES = {"movielens": "movielens1m", "ml1m": "movielens1m", "fmnist": "fashionmnist", "kuzushijimnist": "kmnist"}


def known(data: str) -> str | None:
    """Return the published name of a dataset, however it is spelled, or None.

    >>> known("fashion_mnist"), known("cifar10"), known("digits")
    ('Fashion-MNIST', 'CIFAR-10', None)
    """
    plain = _plain(data)
    plain = _OTHER_NAMES.get(plain, plain)
    return next((name for name in POINTS if _plain(name) == plain), None)


def values(dataset: str, method: str) -> dict[str, float]:
    """Return a method's points in the units of a run: accuracy as a share of 1, RMSE as it is.

    >>> values("MNIST", "LP-2ST")["1"]
    0.9582
    """
    scale = 1 if is_rmse(dataset) else 100
    return {epsilon: round(value / scale, 6) for epsilon, value in POINTS[dataset].get(method, {}).items()}


def is_rmse(dataset: str) -> bool:
    """Return whether a dataset's figures are errors, where less is better."""
    return dataset == "MovieLens-1M"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
