"""The diffusions a user can ask for: `wf.diffusions.Wishart(rank=5)`, `wf.diffusions.GP()`, …"""

from .specs import Diagonal as Diagonal
from .specs import GPDiffusion as GP
from .specs import NoDiffusion as NoDiffusion
from .specs import Wishart as Wishart

__all__ = ["GP", "Diagonal", "NoDiffusion", "Wishart"]
