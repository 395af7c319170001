"""From a predictive law to numbers, block by block of rows; all in float64.

The law of a row is a mixture over sample paths, the same for every row's noise, so a row's numbers do not depend on the
rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from ..likelihoods import PoissonLikelihood, StudentTLikelihood
from ..numerics import platform
from ..numerics.devices import compiled, computing, on_device, random_key
from ..numerics.padding import size_class
from .calibration import Calibration
from .flow import FlowModel
from .law import Candidate, Components, Law
from .models import AbstractModel, sample_outputs

BLOCK = 128
# Of laws without sample paths, where there are many rows: what is done once for each block is most of the work.
WIDE_BLOCK = 1024
# From this product of the numbers of rows and of inducing points on: 4,096 rows for 100 points.
ROWS_AND_POINTS = 409_600
QUANTILE_STEPS = 60


def by_blocks(function: Callable, X: np.ndarray, *others: np.ndarray, law: Law | None = None) -> tuple[np.ndarray, ...]:
    """Apply a compiled function of rows to blocks padded to a few sizes; results are joined along their first axis.

    Where there are several blocks, the last one is padded to the size of the others: one program serves them all. The
    blocks of many rows are wider where the `law` is known to have no sample paths.
    """
    results, size = [], BLOCK * platform.prediction_blocks() if len(X) > BLOCK else _block_size(len(X))
    if law is not None and not any(c.models.is_stochastic for c in law.candidates):
        # Of M inducing points, M³ operations are done once for each block and M² for each row.
        most = max(c.models.output.basis.Z.shape[-2] for c in law.candidates)
        size = max(size, WIDE_BLOCK) if len(X) > ROWS_AND_POINTS // most else size
    with computing():
        for start in range(0, len(X), size):
            rows = [np.asarray(a[start : start + size], float) for a in (X, *others)]
            n = len(rows[0])
            index = np.arange(size) % n
            block = function(*(on_device(a[index]) for a in rows))
            results.append([np.asarray(part)[:n] for part in block])
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def _block_size(n: int) -> int:
    """Blocks have 32, 64 or 128 rows: three programs serve all numbers of rows."""
    return min(BLOCK, max(32, 1 << (n - 1).bit_length()))


# --- programs ------------------------------------------------------------------------------------


def moments(
    law: Law, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "N P"], Float[Array, "N P P"]]:
    """Mean and covariance over outputs of y: law of total variance over the components."""
    means, variances, log_weights = Components.at(law, X, key, n_samples).components()
    weights = jnp.exp(log_weights)
    mean = jnp.einsum("t,tnp->np", weights, means)
    centred = means - mean
    spread = jnp.einsum("t,tnp,tnq->npq", weights, centred, centred)
    within = jnp.einsum("t,tnp->np", weights, variances)
    return mean, spread + within[..., None] * jnp.eye(mean.shape[-1])


_moments = compiled(moments)


@compiled
def _components(
    law: Law, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "N T P"], Float[Array, "N T P"], Float[Array, "N T"]]:
    """Mean and variance of y given each component, and its weight."""
    means, variances, log_weights = Components.at(law, X, key, n_samples).components()
    weights = jnp.broadcast_to(jnp.exp(log_weights), (len(X), len(log_weights)))
    return jnp.moveaxis(means, 0, 1), jnp.moveaxis(variances, 0, 1), weights


@compiled
def _log_prob(
    law: Law, X: Float[Array, "N D"], y: Num[Array, "N Q"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Log of the mean density over paths, and the mean of the log densities; joint over outputs."""
    components = Components.at(law, X, key, n_samples)
    log_density, log_weights = components.log_densities(y), components.log_weights
    return logsumexp(log_density + log_weights[:, None], axis=0), jnp.exp(log_weights) @ log_density


@compiled
def _cdf(
    law: Law, X: Float[Array, "N D"], y: Float[Array, "N P"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "N P"]]:
    return (Components.at(law, X, key, n_samples).cdf(y[..., None])[..., 0],)


def predictive_cdf(law: Law, X: np.ndarray, y: np.ndarray, seed: int, n_samples: int) -> np.ndarray:
    """P(Y ≤ y) of each row and output, (N, P)."""
    with computing():
        key = random_key(seed)
    return by_blocks(lambda rows, targets: _cdf(law, rows, targets, key, n_samples), X, y)[0]


@compiled
def _quantiles(
    law: Law, X: Float[Array, "N D"], alphas: Float[Array, " A"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "N P A"]]:
    """Quantiles of the mixture by bisection of its distribution function, (N, P, A)."""
    components = Components.at(law, X, key, n_samples)
    y_mean, y_variance, _ = components.components()
    width = 40.0 * jnp.sqrt(y_variance) + 1e-12
    low, high = (y_mean - width).min(0), (y_mean + width).max(0)
    low, high = jnp.broadcast_arrays(low[..., None] + 0 * alphas, high[..., None] + 0 * alphas)

    def halve(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        is_below = components.cdf(middle) < alphas
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    if isinstance(law.candidates[0].likelihood, PoissonLikelihood):
        # The distribution function of counts jumps at whole numbers: the last one in an interval shorter than 1, or,
        # beyond 2⁵³, than the distance of two doubles.
        def is_open(bounds: tuple[Array, Array]) -> Array:
            low, high = bounds
            return jnp.any((high - low >= 1.0) & (0.5 * (low + high) > low) & (0.5 * (low + high) < high))

        low, high = jax.lax.while_loop(is_open, halve, (low, high))
        return (jnp.floor(high),)
    if isinstance(law.candidates[0].likelihood, StudentTLikelihood):
        # Near two degrees of freedom extreme quantiles are further away than any number of standard deviations.
        def is_short(bounds: tuple[Array, Array]) -> Array:
            return jnp.any(components.cdf(bounds[0]) > alphas) | jnp.any(components.cdf(bounds[1]) < alphas)

        def widened(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            reach = 2.0 * (bounds[1] - bounds[0])
            return bounds[0] - reach, bounds[1] + reach

        low, high = jax.lax.while_loop(is_short, widened, (low, high))
    low, high = jax.lax.fori_loop(0, QUANTILE_STEPS, lambda _, bounds: halve(bounds), (low, high))
    return (0.5 * (low + high),)


@compiled
def _samples(
    model: AbstractModel, X: Float[Array, "N D"], key: PRNGKeyArray, start: Int[Array, ""], n_draws: int
) -> Num[Array, "S N Q"]:
    """Joint draws of y number start, start + 1, …, (S, N, Q), one after another."""
    return jax.lax.map(lambda i: sample_outputs(model, X, jax.random.fold_in(key, i)), start + jnp.arange(n_draws))


def predictive_moments(law: Law, X: np.ndarray, seed: int, n_samples: int) -> tuple[np.ndarray, ...]:
    """Mean (N, P) and covariance (N, P, P) of y."""
    with computing():
        key = random_key(seed)
    return by_blocks(lambda rows: _moments(law, rows, key, n_samples), X, law=law)


def predictive_components(law: Law, X: np.ndarray, seed: int, n_samples: int) -> tuple[np.ndarray, ...]:
    """Means and variances (T, N, P) of y of each component of the predictive mixture, and weights (T,)."""
    with computing():
        key = random_key(seed)
    means, variances, weights = by_blocks(lambda rows: _components(law, rows, key, n_samples), X)
    is_there = weights[0] > 0.0
    return np.moveaxis(means, 1, 0)[is_there], np.moveaxis(variances, 1, 0)[is_there], weights[0, is_there]


def predictive_log_prob(law: Law, X: np.ndarray, y: np.ndarray, seed: int, n_samples: int) -> tuple[np.ndarray, ...]:
    """Log of the mean density, and mean of the log densities, one number for each row."""
    with computing():
        key = random_key(seed)
    return by_blocks(lambda rows, targets: _log_prob(law, rows, targets, key, n_samples), X, y, law=law)


def predictive_quantiles(law: Law, X: np.ndarray, alphas: np.ndarray, seed: int, n_samples: int) -> np.ndarray:
    """Quantiles (N, P, A) of y for each output."""
    with computing():
        key, levels = random_key(seed), on_device(alphas)
    return by_blocks(lambda rows: _quantiles(law, rows, levels, key, n_samples), X)[0]


def joint_samples(law: Law, X: np.ndarray, seed: int, n_samples: int, n_paths: int, law_seed: int) -> np.ndarray:
    """Joint draws (S, N, Q): all rows at once, because one function g serves them all.

    Each draw is one of a member; members are drawn by their weights. `n_paths` and `law_seed` are those of the mean
    about which a recalibrated law is wider or narrower: the one that is predicted.
    """
    rng = np.random.default_rng(seed)
    shares = [float(c.weight) / c.n_members for c in law.candidates for _ in range(c.n_members)]
    counts = rng.multinomial(n_samples, shares) if len(shares) > 1 else np.array([n_samples])
    parts, first = [], 0
    for candidate in law.candidates:
        own = counts[first : first + candidate.n_members]
        draws = [
            _joint_samples(model, X, seed, first + k, int(n))
            for k, (model, n) in enumerate(zip(candidate.members(), own, strict=True))
            if n > 0
        ]
        parts += [_recalibrated(candidate, part, X, rng, n_paths, law_seed) for part in draws]
        first += candidate.n_members
    return parts[0] if len(parts) == 1 else np.concatenate(parts)[rng.permutation(n_samples)]


def _recalibrated(
    candidate: Candidate, draws: np.ndarray, X: np.ndarray, rng: np.random.Generator, n_paths: int, law_seed: int
) -> np.ndarray:
    """Draws (S, N, P) of a member of a candidate, wider or narrower about the mean of its members."""
    calibration = candidate.calibration
    if calibration is None:
        return draws
    alone = eqx.tree_at(lambda c: c.weight, candidate, np.ones(()))  # its own mean, not its share of that of the law
    centre = predictive_moments(Law((alone,)), X, law_seed, n_paths)[0]
    widths = np.concatenate([calibration.tail_width, [1.0]])
    which = np.searchsorted(np.cumsum(calibration.tail_share), rng.random((*draws.shape[:2], 1)), side="right")
    scales = predictive_scales(calibration, X) * widths[which]
    return centre + scales * (draws - centre)


def _joint_samples(model: AbstractModel, X: np.ndarray, seed: int, member: int, n_samples: int) -> np.ndarray:
    """Draws of one member; in blocks of 1, 4, 16, 64 or 256, so that few programs serve all numbers of draws."""
    index = np.arange(size_class(len(X))) % len(X)
    size = next(s for s in (1, 4, 16, 64, 256) if s >= n_samples or s == 256)
    with computing():
        key, rows = random_key(seed), on_device(X[index, : model.output.basis.Z.shape[-1]])
        key = key if member == 0 else jax.random.fold_in(key, member)
        blocks = [_samples(model, rows, key, on_device(i), size) for i in range(0, n_samples, size)]
        return np.concatenate([np.asarray(block) for block in blocks])[:n_samples, : len(X)]


@compiled
def _scales(calibration: Calibration, X: Float[Array, "N D"]) -> tuple[Float[Array, "N P"]]:
    return (calibration.scales(X),)


def predictive_scales(calibration: Calibration, X: np.ndarray) -> np.ndarray:
    """s(x) of a recalibrated law, (N, P)."""
    return by_blocks(lambda rows: _scales(calibration, rows), X)[0]


@compiled
def _mean_drift(model: FlowModel, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D"]]:
    return (model.field.prepare().at(X, 0.0).drift,)


@compiled
def _mean_covariance(model: FlowModel, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D D"]]:
    return (model.field.prepare().at(X, 0.0).mean_covariance(),)


@compiled
def _paths(model: FlowModel, X: Float[Array, "N D"], key: PRNGKeyArray) -> Float[Array, "T N D"]:
    return model.paths(X, key)


def _flows(model: Any) -> bool:
    """Whether rows move at all."""
    return isinstance(model, FlowModel) and model.flow_time > 0.0


def mean_drift(model: Any, X: np.ndarray) -> np.ndarray:
    """Mean of μ (N, D) of the field of a flow at time 0; 0 without a flow."""
    if not _flows(model):
        return np.zeros(X.shape)
    return by_blocks(lambda rows: _mean_drift(model, rows), X)[0]


def mean_covariance(model: Any, X: np.ndarray) -> np.ndarray:
    """Σ̄ + Λ (N, D, D) of the field of a flow at time 0; 0 without a flow."""
    if not _flows(model):
        return np.zeros((*X.shape, X.shape[1]))
    return by_blocks(lambda rows: _mean_covariance(model, rows), X)[0]


def flow_paths(model: Any, X: np.ndarray, seed: int) -> np.ndarray:
    """One sample of the states after each step, (T, N, D); without a flow rows stay where they are in one step."""
    if not _flows(model):
        return X[None]
    with computing():
        index = np.arange(size_class(len(X))) % len(X)
        return np.asarray(_paths(model, on_device(X[index]), random_key(seed)))[:, : len(X)]
