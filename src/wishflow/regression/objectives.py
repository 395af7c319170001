"""The objective of rows, a pure function of (model, batch, key) with named parts, and whether it is a bound."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Num, PRNGKeyArray, Scalar

from ..inducing import factorised, rotations
from ..inducing.natural import MOST_KNOWN, SiteRows, Sites
from ..numerics import platform
from ..numerics.meshes import split_rows
from ..training.objective import over_paths, weighted
from ..training.specs import TrainingSpec
from ..wishart.specs import has_exact_law, has_point_drift
from .batches import Batch
from .models import AbstractModel
from .specs import FlowSpec, SparseGPSpec


def is_bound(spec: SparseGPSpec | FlowSpec, training: TrainingSpec) -> bool:
    """Whether the objective of a fit, as the history reports it, is a lower bound of the log evidence.

    The evidence is the density of the (standardised) targets given the inputs, with all random functions of the model
    integrated out, at the hyperparameters as they are: kernels, Z, L, Λ and those of the likelihood.

    - Sparse GP: E log p(y | g) − KL_g is a bound for every q. L-BFGS reports it at the best q (collapsed), less the
      penalty of a prior on the hyperparameters, which is never negative; stochastic steps report an unbiased estimate
      from a minibatch. The expectation over g is exact (Gaussian, Poisson), a mean of
      draws (categorical), or a 20-point Gauss–Hermite rule, and then a bound up to the error of that rule.
    - A drift that is a point estimate makes it none: D × M weights that stand for a random function are fitted. The
      number is below the density of the targets *given* these weights, which may lie far above the evidence.
    - `sampling="marginal"` with several steps draws J afresh in each, so no J(·) is one function. In one step only the
      marginals of J count, and in pathwise sampling J(·) is one draw.
    - `path_average="density"` takes the log of a mean over draws of J ~ q, without their weights p/q: a predictive
      objective.
    - diffGP and diffusions of a user: see `has_exact_law`.

    So it is true of every sparse GP, and of few flows. The warm-up of the penalties does
    not enter: the history has them at full weight.
    """
    if isinstance(spec, SparseGPSpec):
        return True
    is_one_function = spec.sampling == "pathwise" or spec.n_steps == 1
    is_integrated = has_exact_law(spec.diffusion) and not has_point_drift(spec.diffusion, spec.drift_posterior)
    return is_integrated and is_one_function and training.averages_logs


def negative_objective(
    model: AbstractModel,
    batch: Batch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: DTypeLike | None = None,
    has_sites: bool = False,
    average: str = "log",
    mesh: Mesh | None = None,
) -> tuple[Scalar, tuple[dict[str, Scalar], Sites | None]]:
    """−(E log p(y|g) − KL_g − c² KL_f − c KL_Σ) and its parts, unweighted, by name.

    The expectation over paths is a mean over `n_samples` (one for models without noise); over g it is the likelihood's
    own. `average` says of what it is the mean: of the logs of the densities ("log", the paper's), or of the densities,
    log 1/S Σ_s exp E_g log p(y | g(x_s)) ("density"). In the first, noise of the path can only lower the fit, because
    no path knows y; in the second it can explain noise in y. The second is a predictive objective and no bound: it has
    not the weights p/q of importance weighting (Burda et al. 2016) for the draws of J. `is_bound` says which is one.
    Pairs of samples and rows are split over the devices of `mesh`.
    """
    k_path, k_fit = jax.random.split(key)
    inverse = None
    if platform.batches_factorisations() and has_sites and _is_alike(model):
        bases, rotated, inverse = factorised(model.bases(), rotations(model), model.output.posterior.factors()[0])
        model = eqx.tree_at(lambda m: [*m.bases(), *rotations(m)], model, [*bases, *rotated])
    samples = n_samples if model.is_stochastic else 1
    arrived = model.carry_samples(batch.X, k_path, samples, dtype, mesh)
    a, mean, variance = model.output.projected_marginals(arrived)
    y = split_rows(jnp.tile(batch.y, (samples, 1)), mesh)
    log_density = model.likelihood.expected_log_density(y, mean, variance, key=k_fit)
    by_row, shares = over_paths(log_density.reshape(samples, -1), average)
    row_weights = batch.n_data / jnp.sum(batch.weights) * batch.weights
    weights = split_rows((row_weights * shares).reshape(-1), mesh)
    # Padded rows repeat real ones, so their densities are finite and a weight of zero removes them.
    parts = {"fit": jnp.sum(row_weights * by_row), "kl_output": jnp.sum(model.output.kl()), **model.path_kl()}
    sites = _sites(model, y, a, mean, variance, weights, k_fit, inverse) if has_sites else None
    return -weighted(parts, kl_weight), (parts, sites)


def _is_alike(model: AbstractModel) -> bool:
    """Whether all bases have the same number of inducing points and the output is a single one."""
    return len(model.output.posterior.mean) == 1 and len({basis.n_inducing for basis in model.bases()}) == 1


def _sites(
    model: AbstractModel,
    y: Num[Array, "N Q"],
    a: Float[Array, "N M"],
    mean: Float[Array, "N P"],
    variance: Float[Array, "N P"],
    weights: Float[Array, " N"],
    key: PRNGKeyArray,
    inverse: Float[Array, "M M"] | None,
) -> Sites:
    """λ and targets from the derivatives of the expected log density: d/dmean = E ∂ log p, d/dvariance = ½ E ∂² log
    p.
    """
    mean, variance, weights = jax.lax.stop_gradient((mean, variance, weights))
    likelihood = jax.lax.stop_gradient(model.likelihood)

    def total(m: Array, v: Array) -> Scalar:
        return jnp.sum(likelihood.expected_log_density(y, m, v, key=key))

    slope, half_curvature = jax.grad(total, argnums=(0, 1))(mean, variance)
    curvature = jnp.maximum(-2.0 * half_curvature, 0.0)
    rows = None
    if likelihood.is_damped:
        # A row that claims to know g far better than q does speaks of where q is wide, not of the data: taken at its
        # word, one such step would tie q down for hundreds. λ·variance is at most about 1 where training ends.
        share = MOST_KNOWN / jnp.maximum(curvature * variance, MOST_KNOWN)
        curvature, slope = share * curvature, share * slope
        q = jax.lax.stop_gradient(model.output.posterior).prepare(a.dtype)
        rows = SiteRows(y, jnp.maximum(variance - q.quadratics(a), 0.0), likelihood, key)
    return Sites(a, curvature, curvature * mean + slope, weights, inverse, rows)
