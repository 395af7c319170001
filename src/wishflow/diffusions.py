"""The diffusions a user can ask for: `wf.diffusions.Wishart(rank=5)`, `wf.diffusions.GP()`, …"""

from .wishart.specs import Diagonal, NoDiffusion, Wishart
from .wishart.specs import GPDiffusion as GP

__all__ = ["GP", "Diagonal", "NoDiffusion", "Wishart"]
