"""The diffusions a user can ask for, `wf.diffusions.Wishart(rank=5)`, and what a new one is made of."""

from .wishart import AbstractNoise, NoiseValues, PreparedNoise
from .wishart.specs import ConstantDiffusion as Constant
from .wishart.specs import Diagonal, DiffusionSpec, NoDiffusion, Wishart
from .wishart.specs import GPDiffusion as GP

__all__ = [
    "GP",
    "AbstractNoise",
    "Constant",
    "Diagonal",
    "DiffusionSpec",
    "NoDiffusion",
    "NoiseValues",
    "PreparedNoise",
    "Wishart",
]
