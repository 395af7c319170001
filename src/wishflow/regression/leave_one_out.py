"""Predictions of training rows by a sparse GP that has not seen them, in closed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Bool, Float, Int

from ..likelihoods import GaussianLikelihood
from ..numerics.devices import compiled
from ..numerics.linalg import each, inverse_square_root
from .batches import Batch, padded_batch
from .sparse_gp import SparseGPModel

# Groups of several rows that are predicted, chosen at random: each takes a factorisation of its own.
MOST_GROUPS = 1000
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
    model: SparseGPModel,
    X: Float[np.ndarray, "N D"],
    y: Float[np.ndarray, "N P"],
    groups: Int[np.ndarray, " N"] | None = None,
) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, "N P"], Bool[np.ndarray, " N"]]:
    """Mean and variance of y at each row, predicted from the rows of other groups with the parameters of the model
    (None: each row is a group of its own); and which rows have such a prediction: not those that alone decide their
    own, and not those of more than `MOST_GROUPS` groups with several rows.

    With S = (I + aᵀa/σ²)⁻¹, m = S aᵀy/σ² and the leverage h_n = a_nᵀ S a_n / σ², removing a row from a linear model of
    the features a gives the mean (a_nᵀm − h_n y_n)/(1 − h_n) and the variance a_nᵀ S a_n /(1 − h_n) of g, to which come
    k(x, x) − ‖a‖² and σ². The kernel, the noise and the inducing points have seen the row.
    """
    batch = padded_batch(X, y)
    found = _leave_one_out(jax.tree.map(jnp.asarray, model), batch)
    # Copies: those of JAX cannot be written to.
    means, variances, leverages = (np.array(part)[: len(X)] for part in found)
    is_known = np.all(leverages < HIGHEST_LEVERAGE, axis=-1)
    if groups is not None:
        _without_groups(model, batch, y, groups, (means, variances, is_known))
    return means, variances, is_known


@compiled
def _features(model: SparseGPModel, batch: Batch) -> tuple[Float[Array, "N M"], Float[Array, " N"]]:
    basis = model.output.basis.prepare()
    a = basis.project(batch.X)
    return a, basis.unexplained(batch.X, a)


def _without_groups(
    model: SparseGPModel,
    batch: Batch,
    y: Float[np.ndarray, "N P"],
    groups: Int[np.ndarray, " N"],
    found: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Put the predictions of the rows of groups with several rows in the place of those that have seen such rows.

    The rows of a group are taken from aᵀa and aᵀy. There is no leverage to divide by, which is near 1 for rows that
    decide their prediction together. Where rounding leaves a matrix that cannot be factorised, with hardly any noise,
    the rows of the group stay without a prediction.
    """
    means, variances, is_known = found
    assert isinstance(model.likelihood, GaussianLikelihood)
    noises = np.asarray(model.likelihood.variance)
    a, unexplained = (np.asarray(part)[: len(y)] for part in _features(jax.tree.map(jnp.asarray, model), batch))
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    several = [rows for rows in members if len(rows) > 1]
    identity, aa, ay = np.eye(a.shape[1]), a.T @ a, a.T @ y
    for rows in several:
        is_known[rows] = False
    for i in np.random.default_rng(0).permutation(len(several))[:MOST_GROUPS]:
        rows = several[i]
        own = a[rows]
        others, targets = aa - own.T @ own, ay - own.T @ y[rows]
        try:
            factors = [np.linalg.cholesky(identity + others / noise) for noise in noises]
        except np.linalg.LinAlgError:
            continue
        for p, (L, noise) in enumerate(zip(factors, noises, strict=True)):
            projected = scipy.linalg.solve_triangular(L, own.T, lower=True)
            means[rows, p] = projected.T @ scipy.linalg.solve_triangular(L, targets[:, p], lower=True) / noise
            variances[rows, p] = np.sum(projected**2, axis=0) + unexplained[rows] + noise
        is_known[rows] = True
