"""torchsde: the diffGP flow by `sdeint` with the Euler method, drift and diffusion from one evaluation (`f_and_g`).

The model is that of the PyTorch loop; torchsde replaces the loop over the steps. Gradients pass through the solver's
own operations, which is faster than its adjoint method and gives the derivative of the very same bound.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torchsde

from ..worker import Prepared, serve
from ..works import FLOW_TIME, Work
from .torch_loop import THREADS, TINY, Noise, PreparedField, Regression, fresh_noise, tensors, training


class DiffGP(torch.nn.Module):
    """The prepared field as torchsde wants it."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, field: PreparedField) -> None:
        super().__init__()
        self.field = field

    def f_and_g(self, t, x):
        here = self.field.at(x)
        return here.drift, torch.sqrt(here.variances.clamp_min(TINY))


class GivenPath(torchsde.BaseBrownian):
    """Increments drawn by `draw`, step by step, in the place of torchsde's Brownian motion."""

    def __init__(self, draw: Noise, work: Work, dtype: torch.dtype) -> None:
        super().__init__()
        self.draw, self.size, self.kind = draw, (work.rows, work.dim), dtype

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        return math.sqrt(float(tb - ta)) * self.draw(self.size, self.kind)

    def __repr__(self) -> str:
        return f"GivenPath(shape={self.size})"

    dtype = property(lambda self: self.kind)
    device = property(lambda self: torch.device("cpu"))
    shape = property(lambda self: torch.Size(self.size))
    levy_area_approximation = property(lambda self: "none")


class SolvedRegression(Regression):
    """The regression of the loop, its flow solved by torchsde."""

    def flow(self, X: torch.Tensor, draw: Noise) -> torch.Tensor:
        field = self.field.prepare()
        # Only for the comparison of values; training uses torchsde's own Brownian motion.
        bm = None if draw is fresh_noise else GivenPath(draw, self.work, field.dtype)
        times = torch.tensor([0.0, FLOW_TIME], dtype=field.dtype)
        dt = FLOW_TIME / self.work.n_steps
        return torchsde.sdeint(DiffGP(field), X.to(field.dtype), times, bm=bm, method="euler", dt=dt)[-1]


def prepare(work: Work, noise: Path | None) -> Prepared:
    torch.set_num_threads(THREADS)
    return training(SolvedRegression(work), tensors(work), noise)


if __name__ == "__main__":
    serve(prepare, ("torchsde", "torch", "numpy"))
