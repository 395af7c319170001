"""From a trained model to predictive numbers, block by block of rows; all in float64.

The predictive distribution of a row is an equally weighted mixture over S sample paths, the same for every row's noise,
so a row's numbers do not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from ..likelihoods import PoissonLikelihood
from ..numerics.devices import compiled, computing, on_device, random_key
from ..numerics.padding import size_class
from .flow import FlowModel
from .models import AbstractModel, output_components, sample_outputs

BLOCK = 128
QUANTILE_STEPS = 60


def by_blocks(function: Callable, X: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Apply a compiled function of rows to blocks padded to a few sizes; results are joined along their first axis.

    Where there are several blocks, the last one is padded to the size of the others: one program serves them all.
    """
    results = []
    for start in range(0, len(X), BLOCK):
        rows = [np.asarray(a[start : start + BLOCK], float) for a in (X, *others)]
        n = len(rows[0])
        index = np.arange(BLOCK if len(X) > BLOCK else _block_size(n)) % n
        with computing():
            block = function(*(on_device(a[index]) for a in rows))
        results.append([np.asarray(part)[:n] for part in block])
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def _block_size(n: int) -> int:
    """Blocks have 32, 64 or 128 rows: three programs serve all numbers of rows."""
    return min(BLOCK, max(32, 1 << (n - 1).bit_length()))


@compiled
def _moments(
    model: AbstractModel, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "N P"], Float[Array, "N P P"]]:
    """Mean and covariance over outputs of y: law of total variance over the components."""
    means, variances = output_components(model, X, key, n_samples)
    y_mean, y_variance = model.likelihood.predictive_moments(means, variances, key)
    mean = y_mean.mean(0)
    centred = y_mean - mean
    spread = jnp.einsum("snp,snq->npq", centred, centred) / means.shape[0]
    return mean, spread + y_variance.mean(0)[..., None] * jnp.eye(mean.shape[-1])


@compiled
def _components(
    model: AbstractModel, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "N S P"], ...]:
    """Mean and variance of y given each path, (N, S, P)."""
    means, variances = output_components(model, X, key, n_samples)
    moments = model.likelihood.predictive_moments(means, variances, key)
    return tuple(jnp.moveaxis(part, 0, 1) for part in moments)


@compiled
def _log_prob(
    model: AbstractModel, X: Float[Array, "N D"], y: Num[Array, "N Q"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Log of the mean density over components, and the mean of the log densities; joint over outputs."""
    means, variances = output_components(model, X, key, n_samples)
    log_density = model.likelihood.predictive_log_density(y, means, variances, key)
    return logsumexp(log_density, axis=0) - jnp.log(means.shape[0]), log_density.mean(0)


@compiled
def _quantiles(
    model: AbstractModel, X: Float[Array, "N D"], alphas: Float[Array, " A"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "N P A"]]:
    """Quantiles of the mixture by bisection of its distribution function, (N, P, A)."""
    means, variances = output_components(model, X, key, n_samples)
    y_mean, y_variance = model.likelihood.predictive_moments(means, variances, key)
    width = 40.0 * jnp.sqrt(y_variance) + 1e-12
    low, high = (y_mean - width).min(0)[..., None], (y_mean + width).max(0)[..., None]
    low, high = jnp.broadcast_arrays(low + 0 * alphas, high + 0 * alphas)

    def cdf(y: Float[Array, "N P A"]) -> Float[Array, "N P A"]:
        at = jnp.moveaxis(y, -1, 0)[:, None]
        return jnp.moveaxis(model.likelihood.predictive_cdf(at, means, variances).mean(1), 0, -1)

    def halve(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        is_below = cdf(middle) < alphas
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    if isinstance(model.likelihood, PoissonLikelihood):
        # The distribution function of counts jumps at whole numbers: the last one in an interval shorter than 1.
        low, high = jax.lax.while_loop(lambda bounds: jnp.any(bounds[1] - bounds[0] >= 1.0), halve, (low, high))
        return (jnp.floor(high),)
    low, high = jax.lax.fori_loop(0, QUANTILE_STEPS, lambda _, bounds: halve(bounds), (low, high))
    return (0.5 * (low + high),)


@compiled
def _samples(
    model: AbstractModel, X: Float[Array, "N D"], key: PRNGKeyArray, start: Int[Array, ""], n_draws: int
) -> Num[Array, "S N Q"]:
    """Joint draws of y number start, start + 1, …, (S, N, Q), one after another."""
    return jax.lax.map(lambda i: sample_outputs(model, X, jax.random.fold_in(key, i)), start + jnp.arange(n_draws))


def predictive_moments(model: AbstractModel, X: np.ndarray, seed: int, n_samples: int) -> tuple[np.ndarray, ...]:
    """Mean (N, P) and covariance (N, P, P) of y."""
    with computing():
        key = random_key(seed)
    return by_blocks(lambda rows: _moments(model, rows, key, n_samples), X)


def predictive_components(model: AbstractModel, X: np.ndarray, seed: int, n_samples: int) -> tuple[np.ndarray, ...]:
    """Means and variances (S, N, P) of y given each path: the components of the predictive mixture."""
    with computing():
        key = random_key(seed)
    components = by_blocks(lambda rows: _components(model, rows, key, n_samples), X)
    return tuple(np.moveaxis(part, 1, 0) for part in components)


def predictive_log_prob(
    model: AbstractModel, X: np.ndarray, y: np.ndarray, seed: int, n_samples: int
) -> tuple[np.ndarray, ...]:
    """Log of the mean density, and mean of the log densities, one number for each row."""
    with computing():
        key = random_key(seed)
    return by_blocks(lambda rows, targets: _log_prob(model, rows, targets, key, n_samples), X, y)


def predictive_quantiles(
    model: AbstractModel, X: np.ndarray, alphas: np.ndarray, seed: int, n_samples: int
) -> np.ndarray:
    """Quantiles (N, P, A) of y for each output."""
    with computing():
        key, levels = random_key(seed), on_device(alphas)
    return by_blocks(lambda rows: _quantiles(model, rows, levels, key, n_samples), X)[0]


def joint_samples(model: AbstractModel, X: np.ndarray, seed: int, n_samples: int) -> np.ndarray:
    """Joint draws (S, N, Q): all rows at once, because one function g serves them all.

    Draws come in blocks of 1, 4, 16, 64 or 256, so that few programs serve all numbers of draws.
    """
    index = np.arange(size_class(len(X))) % len(X)
    size = next(s for s in (1, 4, 16, 64, 256) if s >= n_samples or s == 256)
    with computing():
        key, rows = random_key(seed), on_device(X[index])
        blocks = [_samples(model, rows, key, on_device(i), size) for i in range(0, n_samples, size)]
        return np.concatenate([np.asarray(block) for block in blocks])[:n_samples, : len(X)]


@compiled
def _mean_covariance(model: FlowModel, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D D"]]:
    return (model.field.prepare().at(X, 0.0).mean_covariance(),)


@compiled
def _paths(model: FlowModel, X: Float[Array, "N D"], key: PRNGKeyArray) -> Float[Array, "T N D"]:
    return model.paths(X, key)


def mean_covariance(model: Any, X: np.ndarray) -> np.ndarray:
    """Σ̄ (N, D, D) of the field of a flow at time 0."""
    return by_blocks(lambda rows: _mean_covariance(model, rows), X)[0]


def flow_paths(model: Any, X: np.ndarray, seed: int) -> np.ndarray:
    """One sample of the states after each step, (T, N, D)."""
    with computing():
        index = np.arange(size_class(len(X))) % len(X)
        return np.asarray(_paths(model, on_device(X[index]), random_key(seed)))[:, : len(X)]
