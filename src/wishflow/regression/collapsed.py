"""The collapsed bound of a sparse GP with a Gaussian likelihood (Titsias 2009)."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..errors import OptionError
from ..inducing import WhitenedPosterior
from ..likelihoods import GaussianLikelihood
from ..numerics.linalg import cholesky, each, inverse_square_root, solve_lower
from ..numerics.parameters import LowerTriangular
from .batches import Batch
from .sparse_gp import SparseGPModel


class CollapsedStatistics(NamedTuple):
    """aᵀa, aᵀy, yᵀy and Σ k_ii over the rows: all that the bound needs of the data."""

    aa: Float[Array, "M M"]
    ay: Float[Array, "M P"]
    yy: Float[Array, " P"]
    k_sum: Scalar


def collapsed_statistics(model: SparseGPModel, batch: Batch) -> CollapsedStatistics:
    """The sums over the rows of a batch."""
    basis = model.output.basis.prepare()
    a = basis.project(batch.X) * batch.weights[:, None]
    y = batch.y * batch.weights[:, None]
    k_sum = jnp.sum(model.output.basis.kernel.diagonal(batch.X) * batch.weights)
    return CollapsedStatistics(a.T @ a, a.T @ y, jnp.sum(y**2, 0), k_sum)


def _noise(model: SparseGPModel) -> Float[Array, " P"]:
    """σ² of each output; only a Gaussian likelihood has a collapsed bound."""
    if not isinstance(model.likelihood, GaussianLikelihood):
        raise OptionError(
            f"a {type(model.likelihood).__name__} was given to the collapsed bound; "
            "it exists only for the Gaussian likelihood."
        )
    return model.likelihood.variance


def collapsed_bound(model: SparseGPModel, batch: Batch, known: CollapsedStatistics | None = None) -> Scalar:
    """The bound at the optimal q, summed over outputs: with A = a/σ, B = I + AAᵀ = L_B L_Bᵀ, c = L_B⁻¹ A y/σ,

    −N/2 log 2πσ² − Σ log diag L_B − yᵀy/2σ² + ½ cᵀc − ½ (Σ k_ii/σ² − tr AAᵀ).

    `known` are the statistics where they were found before.
    """
    aa, ay, yy, k_sum = collapsed_statistics(model, batch) if known is None else known
    identity = jnp.eye(aa.shape[0], dtype=aa.dtype)

    def one(q: tuple[Array, Array, Array]) -> Scalar:
        ay_p, yy_p, noise = q
        L_B = cholesky(identity + aa / noise)
        c = solve_lower(L_B, ay_p[:, None])[:, 0] / noise
        log_det = 0.5 * batch.n_data * jnp.log(2 * jnp.pi * noise) + jnp.sum(jnp.log(jnp.diagonal(L_B)))
        trace = 0.5 * (k_sum - jnp.trace(aa)) / noise
        return -log_det - 0.5 * yy_p / noise + 0.5 * jnp.sum(c**2) - trace

    return jnp.sum(each(one, (ay.T, yy, _noise(model))))


def optimal_posterior(
    model: SparseGPModel, batch: Batch, known: CollapsedStatistics | None = None
) -> WhitenedPosterior:
    """The q that attains the collapsed bound: R Rᵀ = B⁻¹, m = B⁻¹ A y/σ."""
    aa, ay, _, _ = collapsed_statistics(model, batch) if known is None else known
    identity = jnp.eye(aa.shape[0], dtype=aa.dtype)

    def one(q: tuple[Array, Array]) -> tuple[Array, Array]:
        ay_p, noise = q
        R = inverse_square_root(identity + aa / noise)
        return R @ (R.T @ ay_p) / noise, R

    means, sqrts = each(one, (ay.T, _noise(model)))
    return WhitenedPosterior(means, LowerTriangular.of(sqrts))
