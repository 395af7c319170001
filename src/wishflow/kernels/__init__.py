"""Covariance functions: specs to ask for them, `build` to make them, modules that compute them."""

from .base import AbstractKernel as AbstractKernel
from .base import FeatureMap as FeatureMap
from .base import FixedKernel as FixedKernel
from .building import build as build
from .building import stationary_builder as stationary_builder
from .combine import ProductKernel as ProductKernel
from .combine import SumKernel as SumKernel
from .linear import LinearKernel as LinearKernel
from .periodic import PeriodicKernel as PeriodicKernel
from .specs import RBF as RBF
from .specs import KernelSpec as KernelSpec
from .specs import Linear as Linear
from .specs import Matern12 as Matern12
from .specs import Matern32 as Matern32
from .specs import Matern52 as Matern52
from .specs import Periodic as Periodic
from .specs import Product as Product
from .specs import StationaryKernelSpec as StationaryKernelSpec
from .specs import Sum as Sum
from .stationary import AbstractStationaryKernel as AbstractStationaryKernel
from .stationary import Matern12Kernel as Matern12Kernel
from .stationary import Matern32Kernel as Matern32Kernel
from .stationary import Matern52Kernel as Matern52Kernel
from .stationary import RBFKernel as RBFKernel
