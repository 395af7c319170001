"""Fields, solver and output layer put together."""

from collections.abc import Callable

from ..specs import DynamicsSpec
from . import dynamics, latent
from .base import AbstractModel as AbstractModel
from .dynamics import DynamicsModel as DynamicsModel
from .flow import FlowModel as FlowModel
from .latent import LatentModel as LatentModel
from .sparse_gp import SparseGPModel as SparseGPModel


def model_builder(spec: DynamicsSpec) -> Callable:
    """The function (spec, layout, start, Z, key) that builds the model of a series."""
    return dynamics.build if spec.latent is None else latent.build
