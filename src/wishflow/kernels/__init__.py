"""Covariance functions: specs to ask for them, `build` to make them, modules that compute them."""

from .base import AbstractKernel, FeatureMap, FixedKernel
from .building import build, stationary_builder
from .combine import ProductKernel, SumKernel
from .linear import LinearKernel
from .periodic import PeriodicKernel
from .specs import RBF, KernelSpec, Linear, Matern12, Matern32, Matern52, Periodic, Product, StationaryKernelSpec, Sum
from .stationary import AbstractStationaryKernel, Matern12Kernel, Matern32Kernel, Matern52Kernel, RBFKernel
