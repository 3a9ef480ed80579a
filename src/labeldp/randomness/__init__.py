"""Exact integers from operating-system entropy. No float decides a draw, and no seed reaches privacy noise."""

from labeldp.randomness.bits import SYSTEM, Bits, InsecureBits, Reserved, SystemBits, known_bits
from labeldp.randomness.discrete import bernoulli, bernoulli_exp, discrete_gaussian, discrete_laplace
from labeldp.randomness.integers import below, below_each

__all__ = [
    "SYSTEM",
    "Bits",
    "InsecureBits",
    "Reserved",
    "SystemBits",
    "below",
    "below_each",
    "bernoulli",
    "bernoulli_exp",
    "discrete_gaussian",
    "discrete_laplace",
    "known_bits",
]
