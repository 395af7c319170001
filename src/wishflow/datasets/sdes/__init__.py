"""Synthetic SDEs dx = μ(x) dt + √Σ(x) dB with closed-form μ and Σ, so that recovery can be measured."""

from .base import SyntheticSDE
from .double_well import make_double_well
from .lotka_volterra import make_lotka_volterra
from .ornstein_uhlenbeck import make_ornstein_uhlenbeck
from .wishart_volatility import make_wishart_volatility

__all__ = [
    "SyntheticSDE",
    "make_double_well",
    "make_lotka_volterra",
    "make_ornstein_uhlenbeck",
    "make_wishart_volatility",
]
