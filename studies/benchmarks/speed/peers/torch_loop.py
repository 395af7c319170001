"""Every work as a loop in PyTorch, as somebody who knows both the model and PyTorch would write it.

What helps in eager mode is there: Kzz is inverted once for a step, the factors of all outputs are one stacked matrix
product, the field at the end of a tick is used again at the beginning of the next, Adam is the fused one.
`torch.compile` is left out: it unrolls the loop over steps and takes minutes to compile for a gain that is small
where matrix products are the work.

The precisions are those of ours: flows and series take the products of the field in float32, all else in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from .. import problem
from ..worker import Prepared, serve
from ..works import FLOW_TIME, LEARNING_RATE, Work

THREADS = 2
LOG_2PI = math.log(2.0 * math.pi)
TINY = 1e-30

Noise = Callable[..., torch.Tensor]


def fresh_noise(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


def given_noise(path: Path) -> Noise:
    """The stored normals, one array for each call."""
    stored = iter(problem.read_noise(path))

    def draw(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        array = torch.as_tensor(next(stored), dtype=dtype)
        assert array.shape == shape, f"noise of shape {tuple(array.shape)} where {shape} is needed"
        return array

    return draw


def positive(value) -> nn.Parameter:
    """The parameter whose softplus is `value`."""
    value = torch.as_tensor(value, dtype=torch.float64)
    return nn.Parameter(value + torch.log(-torch.expm1(-value)))


class SparseGP(nn.Module):
    """RBF kernel, Z and P whitened posteriors with a Cholesky factor each (log of the diagonal, free below it)."""

    def __init__(self, start: problem.GPStart) -> None:
        super().__init__()
        self.jitter = problem.JITTER
        self.variance, self.lengthscale = positive(start.variance), positive(start.lengthscale)
        self.Z, self.mean = nn.Parameter(torch.tensor(start.Z)), nn.Parameter(torch.tensor(start.mean))
        sqrt = torch.tensor(start.sqrt)
        log_diagonal = torch.diag_embed(torch.log(torch.diagonal(sqrt, dim1=-2, dim2=-1)))
        self.raw = nn.Parameter(torch.tril(sqrt, -1) + log_diagonal)

    def sqrt(self) -> torch.Tensor:
        return torch.tril(self.raw, -1) + torch.diag_embed(torch.exp(torch.diagonal(self.raw, dim1=-2, dim2=-1)))

    def kl(self) -> torch.Tensor:
        log_det = torch.diagonal(self.raw, dim1=-2, dim2=-1).sum()
        return 0.5 * (self.mean.square().sum() + self.sqrt().square().sum() - self.mean.numel()) - log_det

    def prepare(self, dtype: torch.dtype) -> PreparedGP:
        return PreparedGP(self, dtype)


class PreparedGP:
    """A factorised GP: Kzz in the precision of its parameters, what points are multiplied by in `dtype`."""

    def __init__(self, gp: SparseGP, dtype: torch.dtype) -> None:
        softplus = nn.functional.softplus
        variance, rate = softplus(gp.variance), 1.0 / softplus(gp.lengthscale)
        scaled = gp.Z * rate
        eye = torch.eye(len(gp.Z), dtype=gp.Z.dtype)
        Kzz = variance * torch.exp(-0.5 * squared_distances(scaled, scaled)) + gp.jitter * variance.detach() * eye
        whitener = torch.linalg.solve_triangular(torch.linalg.cholesky(Kzz), eye, upper=False)
        n_outputs, n_inducing = gp.mean.shape
        self.variance, self.rate, self.scaled, self.unwhiten = (
            tensor.to(dtype) for tensor in (variance, rate, scaled, whitener.T)
        )
        self.mean = gp.mean.T.to(dtype)
        self.stacked = gp.sqrt().to(dtype).permute(1, 0, 2).reshape(n_inducing, n_outputs * n_inducing)

    def project(self, X: torch.Tensor) -> torch.Tensor:
        return self.variance * torch.exp(-0.5 * squared_distances(X * self.rate, self.scaled)) @ self.unwhiten

    def moments(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        products = (a @ self.stacked).view(len(a), self.mean.shape[1], -1)
        unexplained = (self.variance - a.square().sum(-1)).clamp_min(0.0)
        return a @ self.mean, unexplained[:, None] + products.square().sum(-1)


def squared_distances(U: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    square = U.square().sum(-1, keepdim=True) + V.square().sum(-1) - 2.0 * U @ V.T
    return square.clamp_min(0.0)


# --- regression ----------------------------------------------------------------------------------


class Regression(nn.Module):
    """A sparse GP with Gaussian noise, behind a flow or alone."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.output = SparseGP(problem.output_start(work))
        self.noise = positive(problem.NOISE_VARIANCE)
        if work.kind == "flow":
            self.field = Field(work)
        else:
            self.to(getattr(torch, work.dtype))

    def forward(self, batch: dict[str, torch.Tensor], draw: Noise) -> torch.Tensor:
        exact = self.output.Z.dtype
        X, kl = batch["X"], self.output.kl()
        if self.work.kind == "flow":
            X, kl = self.flow(X, draw).to(exact), kl + self.field.kl()
        gp = self.output.prepare(exact)
        mean, variance = gp.moments(gp.project(X))
        noise = nn.functional.softplus(self.noise)
        fit = -0.5 * (LOG_2PI + torch.log(noise) + ((batch["y"] - mean).square() + variance) / noise)
        return kl - problem.n_data(self.work) / len(X) * fit.sum()

    def flow(self, X: torch.Tensor, draw: Noise) -> torch.Tensor:
        field, dt = self.field.prepare(), FLOW_TIME / self.work.n_steps
        x = X.to(field.dtype)
        for _ in range(self.work.n_steps):
            here = field.at(x)
            x = x + dt * here.drift + math.sqrt(dt) * here.increment(draw)
        return x


class Field(nn.Module):
    """diffGP or Wishart field of a flow, or the field of a series."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        start = problem.field_start(work)
        self.work, self.gp = work, SparseGP(start.gp)
        if work.diffusion == "wishart":
            self.drift_mean, self.scale = (nn.Parameter(torch.tensor(x)) for x in (start.drift_mean, start.scale))
        if work.kind != "flow":
            self.linear, self.constant = (nn.Parameter(torch.tensor(x)) for x in (start.linear, start.constant))
            self.amplitude, self.white = positive(start.amplitude), positive(start.white)

    def kl(self) -> torch.Tensor:
        if self.work.diffusion == "gp":
            return self.gp.kl()
        times = self.work.dof if self.work.columns == "shared" else 1
        return times * self.gp.kl() + 0.5 * self.drift_mean.square().sum()

    def prepare(self) -> PreparedField:
        return PreparedField(self)


class PreparedField:
    """What does not change along a path."""

    def __init__(self, field: Field) -> None:
        self.work, self.dtype = field.work, getattr(torch, field.work.dtype)
        self.gp = field.gp.prepare(self.dtype)
        self.linear = self.white = None
        if field.work.diffusion == "wishart":
            drift, scale = field.drift_mean.T, field.scale
            if field.work.kind == "flow":
                scale = scale / scale.norm(dim=-1, keepdim=True)
            else:
                drift = drift * nn.functional.softplus(field.amplitude)
                self.linear, self.constant = field.linear.T.to(self.dtype), field.constant.to(self.dtype)
                self.white = nn.functional.softplus(field.white).to(self.dtype)
            self.drift_mean, self.scale = drift.to(self.dtype), scale.to(self.dtype)

    def at(self, x: torch.Tensor) -> Values:
        a = self.gp.project(x)
        means, variances = self.gp.moments(a)
        if self.work.diffusion == "gp":
            return Values(self, means, None, variances)
        drift = a @ self.drift_mean
        if self.linear is not None:
            drift = drift + x @ self.linear + self.constant
        shape = (len(x), self.work.rank, -1)
        return Values(self, drift, means.view(shape), variances.view(shape))


class Values:
    """Drift and diffusion at rows."""

    def __init__(self, field: PreparedField, drift, means, variances) -> None:
        self.field, self.drift, self.means, self.variances = field, drift, means, variances

    def increment(self, draw: Noise) -> torch.Tensor:
        """√Σ ε; for a Wishart field J W is drawn given W, ρ normals instead of ρν."""
        n, work = len(self.drift), self.field.work
        if self.means is None:
            return torch.sqrt(self.variances.clamp_min(TINY)) * draw((n, work.dim), self.field.dtype)
        wide = work.dof + work.rank
        noise = draw((n, wide if self.field.white is None else wide + work.dim), self.field.dtype)
        W, epsilon = noise[:, None, : work.dof], noise[:, work.dof : wide]
        mean, variance = (self.means * W).sum(-1), (self.variances * W.square()).sum(-1)
        moved = (mean + torch.sqrt(variance.clamp_min(TINY)) * epsilon) @ self.field.scale.T
        return moved if self.field.white is None else moved + torch.sqrt(self.field.white) * noise[:, wide:]

    def factor(self, draw: Noise) -> torch.Tensor:
        """L J with J drawn entry by entry."""
        work = self.field.work
        epsilon = draw((len(self.drift), work.rank, work.dof), self.field.dtype)
        return self.field.scale @ (self.means + torch.sqrt(self.variances.clamp_min(TINY)) * epsilon)


# --- series --------------------------------------------------------------------------------------


def low_rank_log_density(r: torch.Tensor, F: torch.Tensor, white: torch.Tensor) -> torch.Tensor:
    """log N(r; 0, F Fᵀ + Λ) by Woodbury, in float64."""
    root = torch.sqrt(white)
    z, G = r / root, F / root[:, None]
    L = torch.linalg.cholesky(G.mT @ G + torch.eye(F.shape[-1], dtype=F.dtype))
    inner = torch.linalg.solve_triangular(L, G.mT @ z[..., None], upper=False)[..., 0]
    log_det = torch.log(white).sum() + 2.0 * torch.log(torch.diagonal(L, dim1=-2, dim2=-1)).sum(-1)
    return -0.5 * (r.shape[-1] * LOG_2PI + log_det + z.square().sum(-1) - inner.square().sum(-1))


class Series(nn.Module):
    """The auto-regressive model with the bound (or the forecast) of its work."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work, self.field = work, Field(work)

    def forward(self, batch: dict[str, torch.Tensor], draw: Noise) -> torch.Tensor:
        fit = self.rollout(batch, draw) if self.work.kind == "rollout" else self.transition(batch, draw)
        return self.field.kl() - problem.n_data(self.work) / self.work.rows * fit

    def transition(self, batch: dict[str, torch.Tensor], draw: Noise) -> torch.Tensor:
        field = self.field.prepare()
        here = field.at(batch["X"].to(field.dtype))
        r = batch["increment"] - here.drift.double()
        return low_rank_log_density(r, here.factor(draw).double(), field.white.double()).sum()

    def rollout(self, batch: dict[str, torch.Tensor], draw: Noise) -> torch.Tensor:
        field, samples = self.field.prepare(), self.work.n_samples
        x, y = batch["start"].repeat(samples, 1), batch["y"].repeat(samples, 1, 1)
        white, fit = field.white.double(), torch.zeros((), dtype=x.dtype)
        here = field.at(x.to(field.dtype))
        for t in range(self.work.n_steps):
            x = x + here.drift.double() + here.increment(draw).double()
            here = field.at(x.to(field.dtype))
            fit = fit + low_rank_log_density(y[:, t] - x, here.factor(draw).double(), white).sum()
        return fit / samples

    def forecast(self, start: torch.Tensor, draw: Noise) -> torch.Tensor:
        """All states after each step."""
        field, x, path = self.field.prepare(), start, []
        for _ in range(self.work.n_steps):
            here = field.at(x)
            x = x + here.drift + here.increment(draw)
            path.append(x)
        return torch.stack(path)


# --- the worker ----------------------------------------------------------------------------------


def tensors(work: Work) -> list[dict[str, torch.Tensor]]:
    dtype = getattr(torch, work.dtype) if work.kind == "svgp" else torch.float64
    return [{k: torch.tensor(v, dtype=dtype) for k, v in batch.items()} for batch in problem.batches(work)]


def training(model: nn.Module, data: list, noise: Path | None) -> Prepared:
    """Adam steps on `model(batch, draw)`."""
    adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    turns = itertools.cycle(data)

    def run(n: int) -> None:
        for _ in range(n):
            adam.zero_grad(set_to_none=True)
            model(next(turns), fresh_noise).backward()
            adam.step()

    def value() -> float:
        with torch.no_grad():
            return float(model(data[0], fresh_noise if noise is None else given_noise(noise)))

    return Prepared(run, value)


def forecasting(model: Series, data: list, noise: Path | None) -> Prepared:
    turns = itertools.cycle(data)

    def run(n: int) -> None:
        with torch.no_grad():
            for _ in range(n):
                model.forecast(next(turns)["start"], fresh_noise)

    def value() -> float:
        with torch.no_grad():
            draw = fresh_noise if noise is None else given_noise(noise)
            return float(model.forecast(data[0]["start"], draw)[-1].square().mean())

    return Prepared(run, value)


def prepare(work: Work, noise: Path | None) -> Prepared:
    torch.set_num_threads(THREADS)
    model = (Regression if work.kind in ("svgp", "flow") else Series)(work)
    return (forecasting if work.kind == "forecast" else training)(model, tensors(work), noise)


if __name__ == "__main__":
    serve(prepare, ("torch", "numpy"))
