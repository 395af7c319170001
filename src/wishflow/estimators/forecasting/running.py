"""Compiled functions of a trained model of a series: filtering, simulation, densities, covariances."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float

from ... import filtering
from ...linalg import low_rank_log_density
from ...models import DynamicsModel
from ...models.dynamics import simulate
from ...runtime import compiled, computing
from ...series import Ticks, Transitions, Windows

BLOCK = 2048
N_BELIEFS = 32
TICKS_CLASS = 8


@compiled
def _run_filter(model: DynamicsModel, start, is_known, h, u, y, is_seen, key):
    belief = filtering.Belief.start(start, is_known)
    return filtering.run(key, model.field.prepare(), belief, h, u, y, is_seen)


@compiled
def _run_means(model: DynamicsModel, start, is_known, h, u, y, is_seen, key):
    """The belief's mean after every tick."""
    field = model.field.prepare()

    def tick(belief, inputs):
        k, h, u, y, seen = inputs
        belief, _ = filtering.update(filtering.predict(k, field, belief, h, u), y, seen)
        return belief, belief.mean

    keys = jax.random.split(key, h.shape[0])
    return jax.lax.scan(tick, filtering.Belief.start(start, is_known), (keys, h, u, y, is_seen))[1]


@compiled
def _run_paths(model: DynamicsModel, history, h, u, key):
    end, before = simulate(key, model.field.prepare(), history, h, u)
    return end, before


@compiled
def _step_log_density(model: DynamicsModel, X, increment, h, key):
    """log N(increment; hμ, h(LJJᵀLᵀ + Λ)) for each row with one draw of J."""
    here = model.field.prepare().at(X)
    F = jnp.sqrt(h)[:, None, None] * here.factor(key)
    return low_rank_log_density(increment - h[:, None] * here.drift, F, h[:, None] * here.white)


@compiled
def _mean_covariance(model: DynamicsModel, X):
    return model.field.prepare().at(X).mean_covariance()


def _blocks(function: Any, *arrays: np.ndarray) -> np.ndarray:
    """Rows in blocks padded to powers of two, so that a few programs serve all numbers of rows."""
    n, parts = len(arrays[0]), []
    for start in range(0, n, BLOCK):
        rows = [a[start : start + BLOCK] for a in arrays]
        size = len(rows[0])
        padded = np.arange(max(32, 1 << (size - 1).bit_length())) % size
        with computing():
            parts.append(np.asarray(function(*(jnp.asarray(a[padded]) for a in rows)))[:size])
    return np.concatenate(parts)


def transition_log_density(model: Any, items: Transitions, n_samples: int, seed: int) -> Float[np.ndarray, " N"]:
    """Log of the mean density over draws of J."""
    return mixture_log_density(model, items.X, items.increment, items.h, n_samples, seed)


def mixture_log_density(
    model: Any, X: np.ndarray, increment: np.ndarray, h: np.ndarray, n_samples: int, seed: int
) -> Float[np.ndarray, " N"]:
    def one(s: int) -> np.ndarray:
        def block(X, increment, h):
            return _step_log_density(model, X, increment, h, jax.random.key(seed + s))

        return _blocks(block, X, increment, h)

    if not len(X):
        return np.zeros(0)
    return np.asarray(logsumexp(np.stack([one(s) for s in range(n_samples)]), axis=0)) - np.log(n_samples)


def window_log_density(model: Any, windows: Windows, n_samples: int, seed: int) -> Float[np.ndarray, "K T"]:
    """The same for windows, by the belief recursion."""
    if not len(windows):
        return np.zeros(windows.h.shape)

    def one(s: int) -> np.ndarray:
        def block(start, is_known, h, u, y, is_seen):
            ticks = (jnp.swapaxes(x, 0, 1) for x in (h, u, y, is_seen))
            return _run_filter(model, start, is_known, *ticks, jax.random.key(seed + s))[1].T

        return _blocks(block, windows.start, windows.is_known, windows.h, windows.u, windows.y, windows.is_seen)

    return np.asarray(logsumexp(np.stack([one(s) for s in range(n_samples)]), axis=0)) - np.log(n_samples)


def mean_covariances(model: Any, X: np.ndarray) -> Float[np.ndarray, "N D D"]:
    """Σ̄ + Λ at rows, rate per unit."""
    return _blocks(lambda X: _mean_covariance(model, X), X)


def last_beliefs(model: Any, ticks: Ticks, lags: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means (B, pD) and covariances (B, pD, pD) after the last tick, for B draws of J; one where nothing is hidden."""
    y = ticks.y[-lags:]
    if len(ticks.h) >= lags and not np.isnan(y).any():
        mean = np.concatenate([y[-1 - lag] for lag in range(lags)])
        return mean[None], np.zeros((1, len(mean), len(mean)))
    belief, _ = _filter_over(model, ticks, lags, seed, N_BELIEFS)
    return np.asarray(belief.mean), np.asarray(belief.covariance)


def _start(ticks: Ticks, lags: int) -> tuple[np.ndarray, np.ndarray, slice]:
    """The first history, what of it is known, and the ticks after it."""
    padded = np.concatenate([np.full((max(0, lags - len(ticks.y)), ticks.y.shape[1]), np.nan), ticks.y[:lags]])
    history = np.concatenate([padded[lags - 1 - lag] for lag in range(lags)])
    return np.nan_to_num(history), ~np.isnan(history), slice(lags, None)


def _filter_inputs(ticks: Ticks, lags: int, n: int) -> tuple[Any, ...]:
    start, is_known, rest = _start(ticks, lags)

    def repeated(values: np.ndarray) -> jnp.ndarray:
        return jnp.asarray(np.repeat(values[:, None], n, axis=1))

    y = ticks.y[rest]
    inputs = (ticks.h[rest], ticks.u[rest], np.nan_to_num(y), ~np.isnan(y))
    first = (jnp.asarray(np.repeat(start[None], n, 0)), jnp.asarray(np.repeat(is_known[None], n, 0)))
    return (*first, *(repeated(part) for part in inputs))


def _filter_over(model: Any, ticks: Ticks, lags: int, seed: int, n: int) -> Any:
    with computing():
        return _run_filter(model, *_filter_inputs(ticks, lags, n), jax.random.key(seed))


def filtered_means(model: Any, ticks: Ticks, lags: int, seed: int) -> Float[np.ndarray, "T pD"]:
    """Histories after every tick, holes filled by the mean of the belief."""
    start, _, _ = _start(ticks, lags)
    with computing():
        means = np.asarray(_run_means(model, *_filter_inputs(ticks, lags, 1), jax.random.key(seed)))[:, 0]
    return np.concatenate([np.repeat(start[None], min(lags, len(ticks.h)), 0), means])


def draw_histories(
    means: np.ndarray, covariances: np.ndarray, n_draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "S pD"]:
    """Draws of the belief, the B beliefs in turn."""
    which = np.arange(n_draws) % len(means)
    if not covariances.any():
        return means[which]
    values, vectors = np.linalg.eigh(covariances)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    noise = rng.normal(size=(n_draws, means.shape[1]))
    return means[which] + np.einsum("sij,sj->si", roots[which], noise)


def paths(
    model: Any, histories: np.ndarray, h: np.ndarray, u: np.ndarray, seed: int
) -> tuple[Float[np.ndarray, "S T D"], Float[np.ndarray, "S T pD"]]:
    """States after each tick and histories before each tick. Ticks are padded by ones of length zero."""
    n_ticks, dim = len(h), model.layout.dim
    n_padded = -(-n_ticks // TICKS_CLASS) * TICKS_CLASS
    h = np.concatenate([h, np.zeros(n_padded - n_ticks)])
    u = np.concatenate([u, np.repeat(u[-1:], n_padded - n_ticks, axis=0)])
    with computing():
        key = jax.random.key(seed)
        end, before = _run_paths(model, *(jnp.asarray(x) for x in (histories, h, u)), key)
        before, end = np.asarray(before), np.asarray(end)
    after = np.concatenate([before[1:], end[None]])[:n_ticks, :, :dim]
    return np.swapaxes(after, 0, 1), np.swapaxes(before[:n_ticks], 0, 1)
