"""Predictions of training rows by a sparse GP that has not seen them, in closed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..likelihoods import GaussianLikelihood
from ..numerics.devices import compiled
from ..numerics.linalg import each, inverse_square_root
from .batches import Batch, padded_batch
from .sparse_gp import SparseGPModel

# A row that alone decides its prediction: what is left of it is rounding.
HIGHEST_LEVERAGE = 1.0 - 1e-5


@compiled
def _leave_one_out(
    model: SparseGPModel, batch: Batch
) -> tuple[Float[Array, "N P"], Float[Array, "N P"], Float[Array, "N P"]]:
    likelihood = model.likelihood
    assert isinstance(likelihood, GaussianLikelihood)
    basis = model.output.basis.prepare()
    a = basis.project(batch.X)
    weighted = a * batch.weights[:, None]
    unexplained = basis.unexplained(batch.X, a)

    def one(q: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        y, noise = q
        R = inverse_square_root(jnp.eye(a.shape[1], dtype=a.dtype) + weighted.T @ weighted / noise)
        aR = a @ R
        mean = aR @ (R.T @ (weighted.T @ y)) / noise
        known = jnp.sum(aR * aR, -1)
        leverage = jnp.minimum(known / noise, HIGHEST_LEVERAGE)
        variance = known / (1.0 - leverage) + unexplained + noise
        return (mean - leverage * y) / (1.0 - leverage), variance, leverage

    means, variances, leverages = each(one, (batch.y.T, likelihood.variance))
    return means.T, variances.T, leverages.T


def leave_one_out(
    model: SparseGPModel, X: Float[np.ndarray, "N D"], y: Float[np.ndarray, "N P"]
) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, "N P"], Bool[np.ndarray, " N"]]:
    """Mean and variance of y at each row, predicted from the other rows with the parameters of the model; and which
    rows have such a prediction: not those that alone decide their own.

    With S = (I + aᵀa/σ²)⁻¹, m = S aᵀy/σ² and the leverage h_n = a_nᵀ S a_n / σ², removing a row from a linear model of
    the features a gives the mean (a_nᵀm − h_n y_n)/(1 − h_n) and the variance a_nᵀ S a_n /(1 − h_n) of g, to which come
    k(x, x) − ‖a‖² and σ². The kernel, the noise and the inducing points have seen the row.
    """
    batch = padded_batch(X, y)
    found = _leave_one_out(jax.tree.map(jnp.asarray, model), batch)
    means, variances, leverages = (np.asarray(part)[: len(X)] for part in found)
    return means, variances, np.all(leverages < HIGHEST_LEVERAGE, axis=-1)
