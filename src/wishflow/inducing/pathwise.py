"""Functions drawn from a sparse GP, by Matheron's rule or jointly at some rows."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..kernels import FeatureMap
from ..numerics.linalg import cholesky, each
from .basis import InducingBasis, PreparedBasis
from .sparse_gp import SparseGP

N_FEATURES = 512


class PathwiseDraw(eqx.Module):
    """Functions drawn once and evaluated anywhere (Matheron's rule, Wilson et al. 2020).

    f(x) = φ(x)ᵀw + a(x)ᵀ (v − Lz⁻¹(Φ_Z w + √jitter ξ)),  v = m + Rε, one column for each output.
    """

    features: FeatureMap
    weights: Float[Array, "F P"]
    basis: PreparedBasis
    coefficients: Float[Array, "M P"]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        return self.at(X, self.basis.project(X))

    def at(self, X: Float[Array, "N D"], a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        """The values at rows whose a(x) is known."""
        return self.features(X) @ self.weights + a @ self.coefficients


def draw_pathwise(
    key: PRNGKeyArray,
    basis: InducingBasis,
    prepared: PreparedBasis,
    means: Float[Array, "P M"],
    factors: Float[Array, "P M M"],
) -> PathwiseDraw:
    """Draw P independent functions from the posterior q(v_p) = N(m_p, R_p R_pᵀ) on one basis.

    The random features are drawn afresh, so mean and covariance over draws are those of the posterior exactly.
    The prior is noisy at Z (√jitter ξ) because Lz is the factor of Kzz + jitter.
    """
    dtype = prepared.dtype
    n_outputs, n_inducing = means.shape
    k_features, k_weights, k_noise, k_v = jax.random.split(key, 4)
    features = basis.kernel.features(k_features, N_FEATURES)
    at_Z = features(basis.Z.astype(dtype))
    weights = jax.random.normal(k_weights, (at_Z.shape[-1], n_outputs), dtype)
    sd = jnp.sqrt(basis.jitter * basis.kernel.scale).astype(dtype)
    prior_at_Z = at_Z @ weights + sd * jax.random.normal(k_noise, (n_inducing, n_outputs), dtype)
    epsilon = jax.random.normal(k_v, (n_outputs, n_inducing), dtype)
    v = means.astype(dtype).T + jnp.einsum("pmk,pk->mp", factors.astype(dtype), epsilon)
    return PathwiseDraw(features, weights, prepared, v - prepared.whitener @ prior_at_Z)


def draw_jointly(key: PRNGKeyArray, gp: SparseGP, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
    """One draw of f at the rows of X from the joint posterior, by a dense factor: for kernels without features."""
    prepared = gp.basis.prepare()
    a = prepared.project(X)
    prior_part = gp.basis.kernel.matrix(X, X) - a @ a.T
    jitter = 1e-8 * gp.basis.kernel.scale * jnp.eye(X.shape[0], dtype=X.dtype)

    def one(q: tuple[Array, Array, Array]) -> Array:
        mean, sqrt, epsilon = q
        b = a @ sqrt
        return a @ mean + cholesky(prior_part + b @ b.T + jitter) @ epsilon

    epsilon = jax.random.normal(key, (gp.posterior.mean.shape[0], X.shape[0]), X.dtype)
    return each(one, (gp.posterior.mean, gp.posterior.factors(), epsilon)).T
