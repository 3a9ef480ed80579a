"""Figures estimated from noisy hold-outs."""

from labeldp.metrics.accuracy import Estimate, accuracy, log_likelihood

__all__ = ["Estimate", "accuracy", "log_likelihood"]
