"""Bounds on the log marginal likelihood as pure functions of (model, batch, key), with named parts."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .errors import OptionError
from .inducing import WhitenedPosterior
from .likelihoods import GaussianLikelihood
from .linalg import cholesky, each, inverse_square_root, solve_lower
from .models import AbstractModel, SparseGPModel
from .parameters import LowerTriangular


class Batch(eqx.Module):
    """Rows of data; `weights` is 1 for a row and 0 for padding, `n_data` the number of rows the batch stands for."""

    X: Float[Array, "B D"]
    y: Float[Array, "B P"]
    weights: Float[Array, " B"]
    n_data: Scalar


class Sites(eqx.Module):
    """What a natural-gradient step of the output needs of a forward pass, rows being (sample, row) pairs.

    a(x_T), the curvatures λ = max(0, −E ∂² log p) and the targets λ·mean + E ∂ log p; `weights` holds N/(B S).
    """

    a: Float[Array, "K M"]
    curvature: Float[Array, "K P"]
    target: Float[Array, "K P"]
    weights: Float[Array, " K"]


def negative_bound(
    model: AbstractModel,
    batch: Batch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: jnp.dtype | None = None,
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
    samples = n_samples if model.is_stochastic else 1
    keys = jax.random.split(k_path, samples)
    arrived = jax.vmap(lambda k: model.carry(batch.X, k, dtype))(keys).reshape(-1, batch.X.shape[-1])
    gp = model.output.conditioned()
    a = gp.basis.project(arrived)
    mean, variance = gp.marginals_at(arrived, a)
    y = jnp.tile(batch.y, (samples, 1))
    log_density = model.likelihood.expected_log_density(y, mean, variance, key=k_fit)
    by_row, shares = _over_paths(log_density.reshape(samples, -1), average)
    row_weights = batch.n_data / jnp.sum(batch.weights) * batch.weights
    weights = (row_weights * shares).reshape(-1)
    # Padded rows repeat real ones, so their densities are finite and a weight of zero removes them.
    parts = {"fit": jnp.sum(row_weights * by_row), "kl_output": jnp.sum(model.output.kl()), **model.path_kl()}
    sites = _sites(model, y, a, mean, variance, weights, k_fit) if has_sites else None
    return -_weighted(parts, kl_weight), (parts, sites)


def _over_paths(log_density: Float[Array, "S B"], average: str) -> tuple[Float[Array, " B"], Float[Array, "S B"]]:
    """The average over paths for each row, and its derivative by each path's log density: the share of that path."""
    n_samples = log_density.shape[0]
    if average == "log":
        return log_density.mean(0), jnp.full_like(log_density, 1.0 / n_samples)
    return jax.nn.logsumexp(log_density, 0) - jnp.log(n_samples), jax.nn.softmax(log_density, 0)


def bound_of(parts: dict[str, Scalar]) -> Scalar:
    """The bound with every penalty at its full weight: what the history reports."""
    return _weighted(parts, 1.0)


def _weighted(parts, c):
    zero = jnp.zeros_like(parts["fit"])
    kl_drift, kl_diffusion = parts.get("kl_drift", zero), parts.get("kl_diffusion", zero)
    return parts["fit"] - parts["kl_output"] - c**2 * kl_drift - c * kl_diffusion


def _sites(model, y, a, mean, variance, weights, key) -> Sites:
    """λ and targets from the derivatives of the expected log density: d/dmean = E ∂ log p, d/dvariance = ½ E ∂² log
    p.
    """
    a, mean, variance, weights = jax.lax.stop_gradient((a, mean, variance, weights))
    likelihood = jax.lax.stop_gradient(model.likelihood)

    def total(m, v):
        return jnp.sum(likelihood.expected_log_density(y, m, v, key=key))

    slope, half_curvature = jax.grad(total, argnums=(0, 1))(mean, variance)
    curvature = jnp.maximum(-2.0 * half_curvature, 0.0)
    return Sites(a, curvature, curvature * mean + slope, weights)


def natural_step(posterior: WhitenedPosterior, sites: Sites, rate: Scalar | float) -> WhitenedPosterior:
    """One natural-gradient step γ on q(v): with Π = (RRᵀ)⁻¹ and θ = Πm,

    Π ← (1−γ)Π + γ(I + Σ w λ aaᵀ),  θ ← (1−γ)θ + γ Σ w a·target.  For a Gaussian likelihood on all rows γ = 1 is the
    optimum.
    """
    identity = jnp.eye(posterior.mean.shape[-1], dtype=posterior.mean.dtype)

    def one(q):
        mean, sqrt, curvature, target = q
        inverse = solve_lower(sqrt, identity)
        precision, theta = inverse.T @ inverse, inverse.T @ (inverse @ mean)
        weighted = sites.a * (sites.weights * curvature)[:, None]
        precision = (1 - rate) * precision + rate * (identity + weighted.T @ sites.a)
        theta = (1 - rate) * theta + rate * (sites.a.T @ (sites.weights * target))
        R = inverse_square_root(0.5 * (precision + precision.T))
        return R @ (R.T @ theta), R

    means, sqrts = each(one, (posterior.mean, posterior.sqrt.value, sites.curvature.T, sites.target.T))
    return WhitenedPosterior(means, LowerTriangular.of(sqrts))


# --- the collapsed bound (Titsias 2009), Gaussian likelihood ---------------------------------


def _collapsed_statistics(model: SparseGPModel, batch: Batch):
    """aᵀa, aᵀy, yᵀy, Σ k_ii over the rows: all that the bound needs of the data."""
    basis = model.output.basis.prepare()
    a = basis.project(batch.X) * batch.weights[:, None]
    y = batch.y * batch.weights[:, None]
    k_sum = jnp.sum(model.output.basis.kernel.diagonal(batch.X) * batch.weights)
    return a.T @ a, a.T @ y, jnp.sum(y**2, 0), k_sum


def _noise(model: SparseGPModel) -> Float[Array, " P"]:
    """σ² of each output; only a Gaussian likelihood has a collapsed bound."""
    if not isinstance(model.likelihood, GaussianLikelihood):
        raise OptionError(
            f"the collapsed bound was asked of a {type(model.likelihood).__name__}; "
            "it exists for the Gaussian likelihood alone."
        )
    return model.likelihood.variance


def collapsed_bound(model: SparseGPModel, batch: Batch) -> Scalar:
    """The bound at the optimal q, summed over outputs: with A = a/σ, B = I + AAᵀ = L_B L_Bᵀ, c = L_B⁻¹ A y/σ,

    −N/2 log 2πσ² − Σ log diag L_B − yᵀy/2σ² + ½ cᵀc − ½ (Σ k_ii/σ² − tr AAᵀ).
    """
    aa, ay, yy, k_sum = _collapsed_statistics(model, batch)
    identity = jnp.eye(aa.shape[0], dtype=aa.dtype)

    def one(q):
        ay_p, yy_p, noise = q
        L_B = cholesky(identity + aa / noise)
        c = solve_lower(L_B, ay_p[:, None])[:, 0] / noise
        log_det = 0.5 * batch.n_data * jnp.log(2 * jnp.pi * noise) + jnp.sum(jnp.log(jnp.diagonal(L_B)))
        trace = 0.5 * (k_sum - jnp.trace(aa)) / noise
        return -log_det - 0.5 * yy_p / noise + 0.5 * jnp.sum(c**2) - trace

    return jnp.sum(each(one, (ay.T, yy, _noise(model))))


def optimal_posterior(model: SparseGPModel, batch: Batch) -> WhitenedPosterior:
    """The q that attains the collapsed bound: R Rᵀ = B⁻¹, m = B⁻¹ A y/σ."""
    aa, ay, _, _ = _collapsed_statistics(model, batch)
    identity = jnp.eye(aa.shape[0], dtype=aa.dtype)

    def one(q):
        ay_p, noise = q
        R = inverse_square_root(identity + aa / noise)
        return R @ (R.T @ ay_p) / noise, R

    means, sqrts = each(one, (ay.T, _noise(model)))
    return WhitenedPosterior(means, LowerTriangular.of(sqrts))
