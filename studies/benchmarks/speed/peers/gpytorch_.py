"""GPyTorch: an `ApproximateGP` with its default whitened strategy and `VariationalELBO`."""

from __future__ import annotations

import itertools
from pathlib import Path

import gpytorch
import torch

from .. import problem
from ..worker import Prepared, serve
from ..works import LEARNING_RATE, Work

THREADS = 2


class Model(gpytorch.models.ApproximateGP):
    """RBF kernel with a scale, zero mean, Cholesky q(v)."""

    def __init__(self, start: problem.GPStart) -> None:
        q = gpytorch.variational.CholeskyVariationalDistribution(len(start.Z))
        strategy = gpytorch.variational.VariationalStrategy(
            self, torch.tensor(start.Z), q, learn_inducing_locations=True, jitter_val=start.jitter
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=start.Z.shape[1]))
        self.double()
        self.covar_module.outputscale = start.variance
        self.covar_module.base_kernel.lengthscale = torch.tensor(start.lengthscale)
        with torch.no_grad():
            q.variational_mean.copy_(torch.tensor(start.mean[0]))
            q.chol_variational_covar.copy_(torch.tensor(start.sqrt[0]))
        # Otherwise the first call would replace q by the prior.
        strategy.variational_params_initialized.fill_(1)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def prepare(work: Work, noise: Path | None) -> Prepared:
    del noise  # the bound has none
    torch.set_num_threads(THREADS)
    dtype = getattr(torch, work.dtype)
    start = problem.output_start(work)
    model, likelihood = Model(start).to(dtype), gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = torch.tensor(problem.NOISE_VARIANCE, dtype=torch.float64)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=problem.n_data(work))
    data = [[torch.tensor(b["X"], dtype=dtype), torch.tensor(b["y"][:, 0], dtype=dtype)] for b in problem.batches(work)]
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=LEARNING_RATE, fused=True)
    model.train()
    likelihood.train()
    turns = itertools.cycle(data)

    def run(n: int) -> None:
        for _ in range(n):
            X, y = next(turns)
            adam.zero_grad(set_to_none=True)
            (-bound(model(X), y)).backward()
            adam.step()

    def value() -> float:
        """The bound is for one row there; and the variance of f holds a jitter, whose cost is taken off."""
        X, y = data[0]
        jitter_cost = 0.5 * start.jitter / problem.NOISE_VARIANCE
        with torch.no_grad():
            return problem.n_data(work) * (-float(bound(model(X), y)) - jitter_cost)

    return Prepared(run, value)


if __name__ == "__main__":
    serve(prepare, ("gpytorch", "torch", "numpy"))
