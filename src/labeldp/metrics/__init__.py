"""Figures estimated from noisy hold-outs."""

from labeldp.metrics.accuracy import accuracy, log_likelihood
from labeldp.metrics.auc import auc
from labeldp.metrics.estimate import Estimate
from labeldp.metrics.losses import log_loss, rmse

__all__ = ["Estimate", "accuracy", "auc", "log_likelihood", "log_loss", "rmse"]
