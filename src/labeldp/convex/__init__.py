"""Convex learning with label DP: LP-RR-SGD and LP-Normal-SGD, the debiased risk, and the guarantees as functions."""

from labeldp.convex import bounds
from labeldp.convex.debiased import DebiasedRisk, Minimum, debiased_erm
from labeldp.convex.linear import Absolute, Hinge, Logistic, Softmax, Squared
from labeldp.convex.losses import GivenLoss, Loss
from labeldp.convex.normal_sgd import NormalFit, lp_normal_sgd
from labeldp.convex.rr_sgd import Fit, lp_rr_sgd, sgd_on_release
from labeldp.convex.sets import Ball, Box, ParameterSet, Simplex

__all__ = [
    "Absolute",
    "Ball",
    "Box",
    "DebiasedRisk",
    "Fit",
    "GivenLoss",
    "Hinge",
    "Logistic",
    "Loss",
    "Minimum",
    "NormalFit",
    "ParameterSet",
    "Simplex",
    "Softmax",
    "Squared",
    "bounds",
    "debiased_erm",
    "lp_normal_sgd",
    "lp_rr_sgd",
    "sgd_on_release",
]
