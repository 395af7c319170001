"""Covariance functions: specs to ask for them, `build` to make them, modules that compute them."""

from .base import AbstractKernel, FeatureMap, FixedKernel
from .building import build
from .combine import ProductKernel, SumKernel
from .linear import LinearKernel
from .periodic import PeriodicKernel
from .specs import RBF, Linear, Matern12, Matern32, Matern52, Periodic, Product, Sum
from .stationary import Matern12Kernel, Matern32Kernel, Matern52Kernel, RBFKernel
