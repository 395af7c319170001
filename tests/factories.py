"""The fields, models and data that contract tests run over. A new diffusion or likelihood joins them by one line."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from wishflow import kernels, wishart
from wishflow.inducing import InducingBasis
from wishflow.kernels import RBF
from wishflow.likelihoods import Bernoulli, Categorical, Gaussian, Poisson, StudentT
from wishflow.numerics import devices as runtime
from wishflow.numerics.devices import on_device
from wishflow.regression import flow, presets, sparse_gp
from wishflow.regression.batches import Batch
from wishflow.regression.specs import FlowSpec, SparseGPSpec
from wishflow.series.autoregressive import Start
from wishflow.series.batches import series_batch
from wishflow.series.latent import LatentStart
from wishflow.series.layout import Layout
from wishflow.series.models import model_builder
from wishflow.series.specs import DynamicsSpec, memory_of
from wishflow.series.windows import Series, cut, latent_windows, rollouts, to_ticks
from wishflow.wishart import AbstractNoise, NoiseValues, PreparedNoise
from wishflow.wishart.specs import Diagonal, DiffusionSpec, GPDiffusion, NoDiffusion, Wishart

# Tests run a program a few times: without the optimisation of machine code it compiles three times faster.
QUICK_OPTIONS = {**runtime.QUICK_OPTIONS, "xla_backend_optimization_level": 0}
quick_jit = functools.partial(jax.jit, compiler_options=QUICK_OPTIONS)

DIM = 3
N_ROWS = 12
DIFFUSIONS = {
    "none": NoDiffusion(),
    "diagonal": Diagonal(white=0.3),
    "gp": GPDiffusion(),
    "wishart-shared": Wishart(rank=2, dof=4),
    "wishart-independent": Wishart(rank=None, dof=2, columns="independent"),
    "wishart-shared-white": Wishart(rank=2, dof=3, white=0.2, unit_rows=False),
    "wishart-shared-full": Wishart(rank=2, dof=4, posterior="full"),
    "wishart-shared-rotated": Wishart(rank=2, dof=4, posterior="rotated"),
    "wishart-independent-white": Wishart(rank=2, dof=3, columns="independent", white=0.2),
}
WISHARTS = [name for name in DIFFUSIONS if name.startswith("wishart")]
LIKELIHOODS = {
    "gaussian": Gaussian(variance=0.2),
    "student_t": StudentT(scale=0.5, dof=5.0),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "categorical": Categorical(n_classes=3),
}


def points(seed: int, n: int, dim: int = DIM, sd: float = 1.0) -> jax.Array:
    return on_device(sd * np.random.default_rng(seed).normal(size=(n, dim)))


def spread(tree, seed: int = 0, scale: float = 0.3):
    """The tree with every parameter moved at random (jitters stay), so that nothing sits at a special value.

    In NumPy: each small operation of JAX outside a program would be compiled on its own.
    """
    rng = np.random.default_rng(seed)

    def move(path, leaf):
        return leaf if is_jitter(path) else on_device(np.asarray(leaf) + scale * rng.normal(size=leaf.shape))

    return jax.tree_util.tree_map_with_path(move, tree)


def is_jitter(path) -> bool:
    """Whether a leaf is a jitter: fixed while a compiled program runs, hence no parameter."""
    return bool(path) and getattr(path[-1], "name", "") == "jitter"


def make_basis(n_inducing: int = 6, dim: int = DIM, seed: int = 1, jitter: float = 1e-6, **active) -> InducingBasis:
    kernel = kernels.build(RBF(variance=0.8, lengthscale=1.5, **active), dim)
    return InducingBasis.of(kernel, points(seed, n_inducing, dim, 1.5), jitter)


@functools.cache
def make_field(name: str, is_time_dependent: bool = False, seed: int = 0) -> wishart.AbstractField:
    return spread(build_field(DIFFUSIONS[name], is_time_dependent, seed), seed)


@functools.cache
def build_field(spec: DiffusionSpec, is_time_dependent: bool = False, seed: int = 0) -> wishart.AbstractField:
    """The field as the package starts it."""
    basis = make_basis(dim=DIM + is_time_dependent)
    return wishart.build(spec, basis, DIM, jax.random.key(seed), is_time_dependent)


def targets(likelihood: str, seed: int = 3, n: int = N_ROWS) -> jax.Array:
    """Two columns of y (one of labels for classes) that the likelihood could have produced."""
    rng = np.random.default_rng(seed)
    draws = {
        "bernoulli": rng.integers(0, 2, (n, 2)),
        "poisson": rng.integers(0, 5, (n, 2)),
        "categorical": rng.integers(0, 3, (n, 1)),
    }
    return on_device(draws.get(likelihood, rng.normal(size=(n, 2))), float)


def make_batch(likelihood: str = "gaussian", n: int = N_ROWS, seed: int = 3) -> Batch:
    return Batch(points(seed, n), targets(likelihood, seed, n), on_device(np.ones(n)), on_device(np.float64(n)))


@functools.cache
def make_sparse_gp(likelihood: str = "gaussian", n_inducing: int = 5, seed: int = 0) -> sparse_gp.SparseGPModel:
    """A two-output (for classes three-output) model away from its starting values."""
    spec = SparseGPSpec(likelihood=LIKELIHOODS[likelihood])
    n_outputs = 1 if likelihood == "categorical" else 2
    return spread(
        sparse_gp.build(spec, presets.fast_preset(N_ROWS, DIM), points(seed + 5, n_inducing), n_outputs), seed
    )


@functools.cache
def make_flow(
    diffusion: str,
    likelihood: str = "gaussian",
    sampling: str = "marginal",
    time_dependent: bool = False,
    n_steps: int = 3,
    seed: int = 0,
) -> flow.FlowModel:
    spec = FlowSpec(
        likelihood=LIKELIHOODS[likelihood],
        diffusion=DIFFUSIONS[diffusion],
        n_steps=n_steps,
        sampling=sampling,
        time_dependent=time_dependent,
    )
    training = dataclasses.replace(presets.fast_preset(N_ROWS, DIM), field_variance=0.3)
    start = make_sparse_gp(likelihood, seed=seed)
    built = flow.build(spec, training, start, points(seed + 6, 6, sd=1.5), jax.random.key(seed))
    return spread(built, seed + 1, 0.2)


class ConstantNoise(AbstractNoise):
    """Σ = L Lᵀ whatever the state, with L of any rank: J is the identity and has no variance."""

    factor: jax.Array

    def kl(self):
        return {}

    def prepare(self, dtype, rotation):
        return PreparedConstantNoise(self.factor.astype(dtype))


class PreparedConstantNoise(PreparedNoise):
    factor: jax.Array

    def at(self, inputs, a, unexplained):
        rank = self.factor.shape[1]
        J = jnp.broadcast_to(jnp.eye(rank, dtype=a.dtype), (len(a), rank, rank))
        return NoiseValues(J, jnp.zeros_like(J), self.factor, rank)


def with_constant_noise(model, factor):
    """A model without correlated noise, given L Lᵀ: its covariance rate becomes L Lᵀ + Λ."""
    noise = ConstantNoise(jnp.asarray(factor))
    return eqx.tree_at(lambda m: m.field.noise, model, noise, is_leaf=lambda part: part is None)


def series_problem(n_rows: int = 14, width: int = 3, **options):
    """A spread model of a series with holes, gaps and a covariate, and all items it is scored on."""
    rng = np.random.default_rng(0)
    defaults = {"diffusion": Wishart(rank=2, columns="independent", unit_rows=False)}
    spec = DynamicsSpec(**{**defaults, **options})
    dim = width if spec.latent is None else spec.latent.dim
    gaps = np.ones(n_rows) if memory_of(spec.lags) > 1 else rng.choice([0.5, 1.0, 2.5], size=n_rows)
    y = 0.3 * np.cumsum(rng.normal(size=(n_rows, width)), 0)
    y[4, 1], y[9] = np.nan, np.nan
    ticks = to_ticks(Series(np.cumsum(gaps), y, rng.normal(size=(n_rows, 1))), 1.0, spec.lags, 24.0)
    layout = Layout(dim, spec.lags, 1)
    weights = 0.2 * rng.normal(size=(dim, layout.n_lagged + 1))
    start = Start(*(on_device(x) for x in (weights, np.zeros(dim), np.eye(dim))))
    if spec.latent is not None:
        parts = (rng.normal(size=(dim, width)), rng.normal(size=(width, dim)), np.ones(width))
        start = LatentStart(start, *(on_device(x) for x in parts))
    model = model_builder(spec)(spec, layout, start, rng.normal(size=(4, dim + 1)), jax.random.key(0))
    if spec.latent is not None:
        items = (None, latent_windows(ticks, 8))
    else:
        items = (None, rollouts(ticks, spec.lags, 6)) if spec.objective == "rollout" else cut(ticks, spec.lags)
    return spread(model, scale=0.1), series_batch(*items)
