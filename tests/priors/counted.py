"""Histograms for the tests of priors: seeded ones, and ones whose counts are made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import labeldp as ldp
from labeldp.priors import Clusters


def seeded(labels, groups, epsilon, *, classes, n_groups=None, seed=0):
    """A histogram whose noise can be replayed."""
    vault = ldp.LabelVault(labels, classes=classes, budget="20", trust="curator", bits=ldp.InsecureBits(seed))
    return vault.histogram(groups, epsilon, n_groups=n_groups)


def made_up(counts, totals, epsilon="1"):
    """A histogram with these counts of groups of these sizes, their rows in order."""
    counts = np.array(counts, dtype=np.int64)
    groups = np.repeat(np.arange(len(totals)), totals)
    real = seeded(np.zeros(len(groups), int), groups, epsilon, classes=counts.shape[1], n_groups=len(totals))
    return replace(real, counts=counts)


def placed(centres):
    """Clusters with these centres, and one row in the first."""
    centres = np.array(centres, dtype=np.float32)
    width = centres.shape[1]
    return Clusters(np.zeros(1, int), centres, np.zeros(width, np.float32), np.eye(width, dtype=np.float32))
