"""Bounds on the log marginal likelihood of rows, as pure functions of (model, batch, key), with named parts."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Num, PRNGKeyArray, Scalar

from ..inducing import factorised, rotations
from ..inducing.natural import MOST_KNOWN, SiteRows, Sites
from ..numerics import platform
from ..training.bounds import over_paths, weighted
from .batches import Batch
from .models import AbstractModel


def negative_bound(
    model: AbstractModel,
    batch: Batch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: DTypeLike | None = None,
    has_sites: bool = False,
    average: str = "log",
) -> tuple[Scalar, tuple[dict[str, Scalar], Sites | None]]:
    """−(E log p(y|g) − KL_g − c² KL_f − c KL_Σ) and its parts, unweighted, by name.

    The expectation over paths is a mean over `n_samples` (one for models without noise); over g it is the likelihood's
    own. `average` says of what it is the mean: of the logs of the densities (the paper's bound), or of the densities,
    log 1/S Σ_s exp E_g log p(y | g(x_s)), a tighter bound (Burda et al. 2016). In the first, noise of the path can only
    lower the fit, because no path knows y; in the second it can explain noise in y.
    """
    k_path, k_fit = jax.random.split(key)
    inverse = None
    if platform.batches_factorisations() and has_sites and _is_alike(model):
        bases, rotated, inverse = factorised(model.bases(), rotations(model), model.output.posterior.factors()[0])
        model = eqx.tree_at(lambda m: [*m.bases(), *rotations(m)], model, [*bases, *rotated])
    samples = n_samples if model.is_stochastic else 1
    arrived = model.carry_samples(batch.X, k_path, samples, dtype)
    a, mean, variance = model.output.projected_marginals(arrived)
    y = jnp.tile(batch.y, (samples, 1))
    log_density = model.likelihood.expected_log_density(y, mean, variance, key=k_fit)
    by_row, shares = over_paths(log_density.reshape(samples, -1), average)
    row_weights = batch.n_data / jnp.sum(batch.weights) * batch.weights
    weights = (row_weights * shares).reshape(-1)
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
