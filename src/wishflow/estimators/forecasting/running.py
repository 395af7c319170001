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
WINDOW_BLOCK = 64
TICKS_CLASS = 8
FILTER_CLASS = 16


@compiled
def _run_filter(model: DynamicsModel, start, is_known, h, u, y, is_seen, key, n_samples):
    """The last belief, the means after every tick, and log densities averaged over draws of J."""
    belief = filtering.Belief.start(start, is_known)
    belief, (means, drawn) = filtering.run(key, model.field.prepare(), belief, h, u, y, is_seen, n_samples)
    return belief, means, logsumexp(drawn, axis=1) - jnp.log(n_samples)


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


def _blocks(function: Any, *arrays: np.ndarray, size: int = BLOCK) -> np.ndarray:
    """Rows in blocks padded to powers of two, so that a few programs serve all numbers of rows."""
    n, parts = len(arrays[0]), []
    for start in range(0, n, size):
        rows = [a[start : start + size] for a in arrays]
        n_rows = len(rows[0])
        padded = np.arange(max(32, 1 << (n_rows - 1).bit_length())) % n_rows
        with computing():
            parts.append(np.asarray(function(*(jnp.asarray(a[padded]) for a in rows)))[:n_rows])
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

    def block(start, is_known, h, u, y, is_seen):
        ticks = (jnp.swapaxes(x, 0, 1) for x in (h, u, y, is_seen))
        return _run_filter(model, start, is_known, *ticks, jax.random.key(seed), n_samples)[2].T

    parts = (windows.start, windows.is_known, windows.h, windows.u, windows.y, windows.is_seen)
    return _blocks(block, *parts, size=WINDOW_BLOCK)


def mean_covariances(model: Any, X: np.ndarray) -> Float[np.ndarray, "N D D"]:
    """Σ̄ + Λ at rows, rate per unit."""
    return _blocks(lambda X: _mean_covariance(model, X), X)


def last_belief(model: Any, ticks: Ticks, lags: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (pD,) and covariance (pD, pD) after the last tick."""
    y = ticks.y[-lags:]
    if len(ticks.h) >= lags and not np.isnan(y).any():
        mean = np.concatenate([y[-1 - lag] for lag in range(lags)])
        return mean, np.zeros((len(mean), len(mean)))
    if len(ticks.h) <= lags:
        mean, is_known, _ = _start(ticks, lags)
        return mean, np.diag(1.0 - is_known)
    belief, _, _ = _filter_over(model, _last_ticks(ticks, lags), lags)
    return np.asarray(belief.mean)[0], np.asarray(belief.covariance)[0]


def _last_ticks(ticks: Ticks, lags: int) -> Ticks:
    """Without the oldest ticks, so that their number is one of few and a few programs serve all forecasts."""
    n = len(ticks.h) - lags
    keep = slice(n % FILTER_CLASS, None) if n >= FILTER_CLASS else slice(None)
    return Ticks(ticks.h[keep], ticks.u[keep], ticks.y[keep], ticks.row[keep])


def _start(ticks: Ticks, lags: int) -> tuple[np.ndarray, np.ndarray, slice]:
    """The first history, what of it is known, and the ticks after it."""
    padded = np.concatenate([np.full((max(0, lags - len(ticks.y)), ticks.y.shape[1]), np.nan), ticks.y[:lags]])
    history = np.concatenate([padded[lags - 1 - lag] for lag in range(lags)])
    return np.nan_to_num(history), ~np.isnan(history), slice(lags, None)


def _filter_over(model: Any, ticks: Ticks, lags: int) -> Any:
    start, is_known, rest = _start(ticks, lags)
    y = ticks.y[rest]
    inputs = (ticks.h[rest], ticks.u[rest], np.nan_to_num(y), ~np.isnan(y))
    with computing():
        first = (jnp.asarray(start)[None], jnp.asarray(is_known)[None])
        # No density is asked for, and beliefs do not depend on draws: any key will do.
        return _run_filter(model, *first, *(jnp.asarray(x)[:, None] for x in inputs), jax.random.key(0), 1)


def filtered_means(model: Any, ticks: Ticks, lags: int) -> Float[np.ndarray, "T pD"]:
    """Histories after every tick, holes filled by the mean of the belief."""
    start, _, _ = _start(ticks, lags)
    first = np.repeat(start[None], min(lags, len(ticks.h)), 0)
    if len(ticks.h) <= lags:
        return first
    return np.concatenate([first, np.asarray(_filter_over(model, ticks, lags)[1])[:, 0]])


def draw_histories(
    mean: np.ndarray, covariance: np.ndarray, n_draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "S pD"]:
    """Draws of the belief."""
    if not covariance.any():
        return np.repeat(mean[None], n_draws, 0)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return mean + rng.normal(size=(n_draws, len(mean))) @ root.T


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
