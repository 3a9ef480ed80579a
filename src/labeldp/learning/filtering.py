"""The paper's filter of earlier stages: what a later model finds unlikely is not trained on again (Appendix B)."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldp.learning.learner import Filtered, Learner
from labeldp.vault import Release


def mean_size(release: Release, how: str | None) -> int:
    """Return the mean number of candidates, as a whole number: down, or to the nearest."""
    mean = float(release.sizes.mean())
    return max(1, int(mean) if how == "floor" else round(mean))


def keep_likely(release: Release, X: Any, model: Learner, k: int) -> Filtered:
    """Keep the rows whose reported label is among the k that the model finds most likely."""
    predicted = model.predict_proba(X[release.rows])
    reported = predicted[np.arange(len(release)), release.label_numbers]
    return Filtered(release, (predicted > reported[:, None]).sum(axis=1) < k)
