"""Fields, solver and output layer put together."""

from .base import AbstractModel as AbstractModel
from .dynamics import DynamicsModel as DynamicsModel
from .flow import FlowModel as FlowModel
from .sparse_gp import SparseGPModel as SparseGPModel
