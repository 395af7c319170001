"""GPyTorch's deep GP of two layers, as its documentation builds it: a hidden layer of D outputs with a linear mean,
Adam at .01, batches of 1024, 128 inducing points, ten samples. Scored after every few epochs; scoring is not timed.

    python -m studies.benchmarks.race.deep_gp SPLIT.npz TARGET MINUTES
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import gpytorch
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer

from .data import Split, score

THREADS, BATCH, RATE, N_INDUCING = 2, 1024, 0.01, 128
N_SAMPLES, N_PATHS = 10, 100
EPOCHS_BETWEEN = 5


class Layer(DeepGPLayer):
    """RBF kernels with a lengthscale for each input; a layer that is not the last has a linear mean."""

    def __init__(self, Z: torch.Tensor, n_outputs: int | None) -> None:
        batch = torch.Size([] if n_outputs is None else [n_outputs])
        points = Z.clone() if n_outputs is None else Z.repeat(n_outputs, 1, 1)
        q = gpytorch.variational.CholeskyVariationalDistribution(len(Z), batch_shape=batch)
        strategy = gpytorch.variational.VariationalStrategy(self, points, q, learn_inducing_locations=True)
        super().__init__(strategy, Z.shape[1], n_outputs)
        means = gpytorch.means
        self.mean_module = means.ConstantMean() if n_outputs is None else means.LinearMean(Z.shape[1], batch)
        kernel = gpytorch.kernels.RBFKernel(batch_shape=batch, ard_num_dims=Z.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class TwoLayers(DeepGP):
    def __init__(self, Z: torch.Tensor) -> None:
        super().__init__()
        self.hidden, self.last = Layer(Z, Z.shape[1]), Layer(Z, None)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, X):
        return self.last(self.hidden(X))


def reached(model: TwoLayers, split: Split) -> float:
    """The score of a mixture of as many paths as ours has."""
    model.eval()
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(N_PATHS):
        y = model.likelihood(model(torch.tensor(split.X_test, dtype=torch.float32)))
    model.train()
    return score(split, y.mean.double().numpy(), y.variance.double().numpy())


def main() -> None:
    path, target, minutes = sys.argv[1:]
    split = Split.load(Path(path))
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    X, y = (torch.tensor(array, dtype=torch.float32) for array in (split.X, split.y))
    started = time.perf_counter()
    model = TwoLayers(X[torch.randperm(len(X))[:N_INDUCING]])
    bound = gpytorch.mlls.DeepApproximateMLL(gpytorch.mlls.VariationalELBO(model.likelihood, model, len(X)))
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    scoring, epoch = 0.0, 0
    while True:
        for rows in torch.randperm(len(X)).split(BATCH):
            adam.zero_grad()
            with gpytorch.settings.num_likelihood_samples(N_SAMPLES):
                (-bound(model(X[rows]), y[rows])).backward()
            adam.step()
        epoch += 1
        seconds = time.perf_counter() - started - scoring
        if epoch % EPOCHS_BETWEEN == 0 or seconds > 60 * float(minutes):
            began = time.perf_counter()
            found = reached(model, split)
            scoring += time.perf_counter() - began
            attempt = {"label": f"epoch {epoch}", "seconds": seconds, "score": found, "n_iter": epoch}
            print(json.dumps(attempt), flush=True)
            if found >= float(target) or seconds > 60 * float(minutes):
                return


if __name__ == "__main__":
    main()
