"""Hold-outs to grade on: of given labels, all their possible outcomes, and draws from a population that is known exactly."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

import labeldp as ldp

K = 3


def released(labels, epsilon="1", classes=K, bits=None):
    return ldp.LabelVault(labels, classes=classes, budget="20", bits=bits).release(ldp.RandomizedResponse(epsilon))


def with_reports(release, reports):
    """Return the same release with other reports, perhaps of fewer rows."""
    groups = dataclasses.replace(release.groups, n_rows=len(reports))
    return dataclasses.replace(
        release,
        reports=np.array(reports, dtype=release.reports.dtype),
        rows=np.arange(len(reports)),
        channel=dataclasses.replace(release.channel, groups=groups),
    )


def every_outcome(labels, epsilon, classes=K):
    """Yield each possible release of these labels (class numbers) and its chance."""
    names = np.arange(classes) if isinstance(classes, int) else np.array(classes)
    release = released(names[np.asarray(labels)], epsilon, classes)
    laws = [release.channel.law(row, int(label)) for row, label in enumerate(labels)]
    for reports in itertools.product(range(len(names)), repeat=len(labels)):
        chance = math.prod(float(law[report]) for law, report in zip(laws, reports, strict=True))
        yield with_reports(release, reports), chance


def one_hot(predictions, classes=K):
    return np.eye(classes)[np.asarray(predictions)]


@dataclasses.dataclass(frozen=True)
class Population:
    """Rows of a few kinds, equally frequent: what is predicted for each kind, and how its labels are distributed."""

    predicted: np.ndarray
    truth: np.ndarray

    @classmethod
    def of(cls, n_classes, *, sharpness, seed, overconfidence=1.0, tilt=0.0, kinds=200):
        """Return a population whose predictions are right on average, but for their overconfidence.

        A tilt makes the first class the common one.
        """
        logits = sharpness * np.random.default_rng(seed).normal(size=(kinds, n_classes))
        logits[:, 0] += tilt
        return cls(softmax(overconfidence * logits), softmax(logits))

    @property
    def n_classes(self):
        return self.truth.shape[1]

    def hold_outs(self, count, rows, epsilon, seed):
        """Yield noisy hold-outs of fresh rows and what is predicted for them; the same ones on every run."""
        generator = np.random.default_rng(seed)
        kinds = generator.integers(len(self.truth), size=count * rows)
        draws = generator.random(count * rows)
        labels = (draws[:, None] > self.truth.cumsum(axis=1)[kinds, :-1]).sum(axis=1)
        whole = released(labels, epsilon, self.n_classes, bits=ldp.InsecureBits(seed))
        for start in range(0, count * rows, rows):
            part = slice(start, start + rows)
            yield with_reports(whole, whole.reports[part]), self.predicted[kinds[part]]

    @property
    def accuracy(self):
        return self.truth[np.arange(len(self.truth)), self.predicted.argmax(axis=1)].mean()

    @property
    def log_loss(self):
        return -(self.truth * np.log(self.predicted)).sum(axis=1).mean()

    @property
    def means(self):
        return mean_class(self.predicted)

    @property
    def rmse(self):
        return math.sqrt((self.truth * (np.arange(self.n_classes) - self.means[:, None]) ** 2).sum(axis=1).mean())

    @property
    def auc(self):
        return np.mean(
            [
                area(self.predicted[:, k], self.truth[:, k], 1 - self.truth[:, k])
                for k in ([1] if self.n_classes == 2 else range(self.n_classes))
            ]
        )


def softmax(logits):
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def mean_class(probabilities):
    return probabilities @ np.arange(probabilities.shape[1])


def area(scores, inside, outside):
    """Return the weighted share of pairs of kinds in which the one inside scores higher; equal scores count half."""
    beats = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    return float(inside @ beats @ outside / (inside.sum() * outside.sum()))
