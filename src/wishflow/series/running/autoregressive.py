"""The auto-regressive model: the belief recursion (`gaussian_filter`), simulation, transition densities."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ... import metrics
from ...numerics.devices import compiled, computing, on_device
from ...numerics.linalg import low_rank_log_density
from .. import gaussian_filter as filtering
from .. import guided
from ..ahead import Ahead, LinearSteps
from ..autoregressive import DynamicsModel, simulate
from ..jumps_ahead import Guide
from ..layout import Layout
from ..windows import Ticks, Windows, cut, histories, lagged
from . import censored
from .base import TICKS_CLASS, AbstractRunner, in_blocks, limits_with, padded_ticks, sides
from .scenarios import N_PARTICLES, Scenario, Swarm, ahead_of, gathered

N_SCORE_DRAWS = 100
WINDOW_BLOCK = 64
FILTER_CLASS = 16
# All draws of a block are in memory at once.
QUANTILE_BLOCK = 256


@compiled
def _run_filter(
    model: DynamicsModel,
    start: Float[Array, "B pD"],
    variance: Float[Array, "B pD"],
    h: Float[Array, "T B"],
    u: Float[Array, "T B U"],
    y: Float[Array, "T B P"],
    is_seen: Bool[Array, "T B P"],
    key: PRNGKeyArray,
    n_samples: int,
) -> tuple[filtering.Belief, Float[Array, "T B lD"], Float[Array, "T B"]]:
    """The last belief, its means after every tick, and log densities averaged over draws of J."""
    belief = filtering.Belief.start(start, variance, model.layout)
    belief, (means, drawn) = filtering.run(key, model.field.in_parts(), belief, h, u, y, is_seen, n_samples)
    return belief, means, logsumexp(drawn, axis=1) - jnp.log(n_samples)


@compiled
def _run_paths(
    model: DynamicsModel,
    history: Float[Array, "S K"],
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    key: PRNGKeyArray,
    limits: Float[Array, "2 D"] | None,
) -> tuple[Float[Array, "S D"], Float[Array, "T S C"]]:
    end, before = simulate(key, model.field.in_parts(), history, h, u, limits)
    return end, before


@compiled
def _run_guided(
    model: DynamicsModel,
    history: Float[Array, "S K"],
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    cells: guided.Cells,
    at_start: tuple[Float[Array, " S"], Int[Array, " S"] | None],
    key: PRNGKeyArray,
    limits: Float[Array, "2 D"] | None,
) -> tuple[guided.Particles, Float[Array, "T S D"], Int[Array, "T S"]]:
    return guided.run(key, model.field.in_parts(), history, h, u, cells, at_start, limits)


@compiled
def _step_moments(
    model: DynamicsModel, X: Float[Array, "T K"], h: Float[Array, " T"]
) -> tuple[Float[Array, "T D"], Float[Array, "T D lD"], Float[Array, "T D D"]]:
    """hμ, its slopes along (x, lags), and the mean covariance of steps."""
    field = model.field.in_parts()
    here, length = field.at(X), h[:, None, None]
    covariance = length * here.mean_covariance()
    if here.drift_variances is not None:
        covariance = covariance + length**2 * here.drift_variances[..., None] * jnp.eye(model.layout.dim)
    return h[:, None] * here.drift, length * filtering.drift_jacobian(field, X), covariance


@compiled
def _step_log_density(
    model: DynamicsModel,
    X: Float[Array, "N K"],
    increment: Float[Array, "N D"],
    h: Float[Array, " N"],
    seeds: Int[Array, " S"],
) -> Float[Array, "N S"]:
    """log p(increment; hμ, h(LJJᵀLᵀ + Λ) + h² s²) for each row with a draw of J for each seed."""
    here = model.field.in_parts().at(X)
    white = here.white_over(h[:, None])

    def one(seed: Int[Array, ""]) -> Float[Array, " N"]:
        F = jnp.sqrt(h)[:, None, None] * here.factor(jax.random.key(seed))
        return low_rank_log_density(increment - h[:, None] * here.drift, F, white, here.tails)

    return jax.lax.map(one, seeds).T  # one after another: all draws at once would be S × N matrices


@compiled
def _mean_covariance(model: DynamicsModel, X: Float[Array, "N K"]) -> Float[Array, "N D D"]:
    return model.field.in_parts().at(X).mean_covariance()


@compiled
def _drift(model: DynamicsModel, X: Float[Array, "N K"]) -> Float[Array, "N D"]:
    return model.field.in_parts().at(X).drift


@compiled
def _correlation_quantiles(
    model: DynamicsModel, X: Float[Array, "N K"], levels: Float[Array, " L"], key: PRNGKeyArray, n_draws: int
) -> Float[Array, "N L P P"]:
    """Quantiles over draws of J of the correlations of L J Jᵀ Lᵀ + Λ."""
    here = model.field.in_parts().at(X)

    def drawn(key: PRNGKeyArray) -> Float[Array, "N D D"]:
        F = here.factor(key)
        rate = F @ jnp.swapaxes(F, 1, 2) + here.white[:, :, None] * jnp.eye(here.white.shape[1])
        sd = jnp.sqrt(jnp.diagonal(rate, axis1=1, axis2=2))
        return rate / (sd[:, :, None] * sd[:, None, :])

    draws = jax.lax.map(drawn, jax.random.split(key, n_draws))
    return jnp.moveaxis(jnp.quantile(draws, levels, axis=0), 0, 1)


def mixture_log_density(
    model: Any, X: np.ndarray, increment: np.ndarray, h: np.ndarray, n_samples: int, seed: int
) -> Float[np.ndarray, " N"]:
    """Log of the mean density of steps over draws of J."""

    if not len(X):
        return np.zeros(0)

    def block(X: Array, increment: Array, h: Array) -> Array:
        return _step_log_density(model, X, increment, h, on_device(seed + np.arange(n_samples)))

    # NumPy's: outside of our context JAX would round to 32 bits.
    return metrics.mixture_log_density(in_blocks(block, X, increment, h).T)


def window_log_density(model: Any, windows: Windows, n_samples: int, seed: int) -> Float[np.ndarray, "K T"]:
    """The same for windows, by the belief recursion."""
    if not len(windows):
        return np.zeros(windows.h.shape)

    def block(start: Array, variance: Array, h: Array, u: Array, y: Array, is_seen: Array) -> Array:
        ticks = (jnp.swapaxes(x, 0, 1) for x in (h, u, y, is_seen))
        return _run_filter(model, start, variance, *ticks, jax.random.key(seed), n_samples)[2].T

    parts = (windows.start, windows.variance, windows.h, windows.u, windows.y, windows.is_seen)
    return in_blocks(block, *parts, size=WINDOW_BLOCK)


def last_belief(model: Any, ticks: Ticks) -> filtering.Belief:
    """The belief after the last tick, one row, in NumPy."""
    layout = model.layout
    memory = layout.memory
    if len(ticks.h) <= memory or not np.isnan(ticks.y[-memory:]).any():
        return _belief(layout, ticks.y, len(ticks.h) - 1)
    belief, _, _ = _filter_over(model, _last_ticks(ticks, memory))
    return jax.tree.map(np.asarray, belief)


def _last_ticks(ticks: Ticks, memory: int) -> Ticks:
    """Without the oldest ticks, so that their number is one of few and a few programs serve all forecasts."""
    n = len(ticks.h) - memory
    keep = slice(n % FILTER_CLASS, None) if n >= FILTER_CLASS else slice(None)
    return Ticks(ticks.h[keep], ticks.u[keep], ticks.y[keep], ticks.row[keep])


def _belief(layout: Layout, y: Float[np.ndarray, "T D"], at: int) -> filtering.Belief:
    """What the rows up to one say by themselves."""
    with computing():
        values, variance = (on_device(x) for x in histories(y, np.array([at]), layout.lags))
        return jax.tree.map(np.asarray, filtering.Belief.start(values, variance, layout))


def _filter_over(model: Any, ticks: Ticks) -> Any:
    memory = model.layout.memory
    start = histories(ticks.y[:memory], np.array([memory - 1]), model.layout.lags)
    y = ticks.y[memory:]
    inputs = (ticks.h[memory:], ticks.u[memory:], np.nan_to_num(y), ~np.isnan(y))
    with computing():
        first = (on_device(x) for x in start)
        # No density is asked for, and beliefs do not depend on draws: any key will do.
        return _run_filter(model, *first, *(on_device(x[:, None]) for x in inputs), jax.random.key(0), 1)


def filtered_means(model: Any, ticks: Ticks) -> Float[np.ndarray, "T lD"]:
    """State and lags after every tick, holes filled by the mean of the belief."""
    memory = model.layout.memory
    belief = _belief(model.layout, ticks.y[:memory], min(memory, len(ticks.h)) - 1)
    with computing():  # outside of it JAX would round to 32 bits
        first = np.repeat(np.asarray(model.layout.chosen(belief.mean)), min(memory, len(ticks.h)), 0)
    if len(ticks.h) <= memory:
        return first
    return np.concatenate([first, np.asarray(_filter_over(model, ticks)[1])[:, 0]])


def draw_histories(belief: filtering.Belief, n_draws: int, rng: np.random.Generator) -> Float[np.ndarray, "S pD"]:
    """Draws of a belief about one history."""
    mean, joint = belief.mean[0], belief.covariance[0]
    blocks = [joint, *(() if belief.older is None else belief.older[0])]
    ends = np.cumsum([len(block) for block in blocks])
    means = np.split(mean, ends[:-1])
    return np.concatenate([_draws(m, P, n_draws, rng) for m, P in zip(means, blocks, strict=True)], axis=1)


def _whole_covariance(belief: filtering.Belief) -> Float[np.ndarray, "K K"]:
    """The covariance of a belief about one history, older rows too."""
    return scipy.linalg.block_diag(belief.covariance[0], *(() if belief.older is None else belief.older[0]))


def _draws(mean: np.ndarray, covariance: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    if not covariance.any():
        return np.repeat(mean[None], n_draws, 0)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return mean + rng.normal(size=(n_draws, len(mean))) @ root.T


# --- given cells ---------------------------------------------------------------------------------


def linearised(
    model: Any, start: Float[np.ndarray, " K"], means: Float[np.ndarray, "T D"], h: np.ndarray, u: np.ndarray
) -> LinearSteps:
    """The steps of the model to first order about a path that goes on from a history."""
    layout, (n, dim) = model.layout, means.shape
    rows = np.concatenate([start.reshape(-1, dim)[::-1], means])
    past = lagged(rows, layout.memory - 1 + np.arange(n), layout.lags)
    h_all, X = padded_ticks(TICKS_CLASS, h, np.concatenate([past, u], axis=1))
    with computing():
        moments = _step_moments(model, on_device(X), on_device(h_all))
        moved, slopes, Q = (np.asarray(part)[:n] for part in moments)
    M = np.zeros((n, dim, layout.n_history))
    M[:, :, :dim] = np.eye(dim)
    for i, lag in enumerate(layout.lags):
        M[:, :, layout.block(lag)] += slopes[:, :, i * dim : (i + 1) * dim]
    c = moved - np.einsum("tdk,tk->td", slopes, past)
    shape = (n, dim, dim)
    return LinearSteps(M, c, Q, np.broadcast_to(np.eye(dim), shape), np.zeros((n, dim)), np.zeros(shape))


def _mean_path(
    model: Any, start: Float[np.ndarray, " K"], h: np.ndarray, u: np.ndarray, y: Float[np.ndarray, "T D"]
) -> Float[np.ndarray, "T D"]:
    """Means after each tick given the cells up to it."""
    n, dim = y.shape
    h_all, u, y = padded_ticks(TICKS_CLASS, h, u, y)
    is_given = ~np.isnan(y)
    is_given[n:] = False
    with computing():
        inputs = (on_device(x[:, None]) for x in (h_all, u, np.nan_to_num(y), is_given))
        first = (on_device(x) for x in (start[None], np.zeros((1, len(start)))))
        _, means, _ = _run_filter(model, *first, *inputs, jax.random.key(0), 1)
        return np.asarray(means)[:n, 0, :dim]


def _jumps_of(model: Any) -> tuple[float, float] | None:
    """Share and width of the jumps of a model."""
    jumps = model.field.jumps
    return None if jumps is None else (float(jumps.share), float(jumps.width))


def _rows_ahead(ahead: Ahead) -> tuple[Array, Array]:
    """A and s after each tick."""
    _, *rows = padded_ticks(TICKS_CLASS, np.ones(len(ahead.rows) - 1), ahead.rows[1:], ahead.targets[1:])
    A, s = (on_device(x) for x in rows)
    return A, s


def _jumps_ahead(guide: Guide) -> guided.JumpsAhead | None:
    """What particles know of each pattern of jumps."""
    patterns = guide.patterns
    if patterns is None:
        return None
    parts = [np.stack([getattr(one, name)[1:] for one in guide.aheads], 1) for name in ("rows", "targets", "constants")]
    parts += [np.swapaxes(patterns.log_shares, 0, 1), patterns.rest_shares, patterns.after_jump]
    _, *padded = padded_ticks(TICKS_CLASS, np.ones(len(patterns.after_jump)), *parts)
    return guided.JumpsAhead(*(on_device(part) for part in padded))


def after_and_before(
    end: Float[np.ndarray, "S D"], before: Float[np.ndarray, "T S K"], n: int
) -> tuple[Float[np.ndarray, "S n D"], Float[np.ndarray, "S n K"]]:
    """States after the first n ticks, and what was known before each of them, by path."""
    after = np.concatenate([before[1:, :, : end.shape[1]], end[None]])[:n]
    return np.swapaxes(after, 0, 1), np.swapaxes(before[:n], 0, 1)


class AutoRegressiveRunner(AbstractRunner):
    """Filters with Gaussian beliefs; what a draw knows before a step is its history."""

    def __init__(self, model: Any, limits: Float[np.ndarray, "2 P"] | None) -> None:
        self.model, self.limits = model, limits

    def paths(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, n_draws: int, seed: int
    ) -> tuple[Float[np.ndarray, "S T P"], Float[np.ndarray, "S T K"], Float[np.ndarray, "2 P"] | None]:
        starts, limits = self.starts(ticks, n_draws, seed)
        n = len(h)
        h, u = padded_ticks(TICKS_CLASS, h, u)
        with computing():
            arrays = (on_device(x) for x in (starts, h, u))
            on_limits = None if limits is None else on_device(limits)
            end, before = _run_paths(self.model, *arrays, jax.random.key(seed), on_limits)
            before, end = np.asarray(before), np.asarray(end)
        return *after_and_before(end, before, n), limits

    def starts(
        self, ticks: Ticks, n_draws: int, seed: int
    ) -> tuple[Float[np.ndarray, "S K"], Float[np.ndarray, "2 P"] | None]:
        """Draws of the history that paths start from, and their limits."""
        layout = self.model.layout
        if len(ticks.h) >= layout.memory and not np.isnan(ticks.y[-layout.memory :]).any():
            # All is known: the belief has no spread, and needs no program.
            mean = lagged(ticks.y, np.array([len(ticks.h) - 1]), layout.memory)
            drawn = np.repeat(mean, n_draws, 0)
        else:
            belief = last_belief(self.model, ticks)
            mean, drawn = np.asarray(belief.mean), draw_histories(belief, n_draws, np.random.default_rng(seed))
        return drawn, None if self.limits is None else limits_with(self.limits, mean[:, : layout.dim])

    def paths_given(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, y: Float[np.ndarray, "T P"], n_draws: int, seed: int
    ) -> Scenario:
        belief, rng, n = last_belief(self.model, ticks), np.random.default_rng(seed), len(h)
        start = np.asarray(belief.mean[0])
        means = _mean_path(self.model, start, h, u, y)
        steps, ahead = ahead_of(lambda about: linearised(self.model, start, about, h, u), means, y, start)
        guide = Guide.of(steps, ahead, y, _jumps_of(self.model))
        limits, side = self._limits_given(start, y)
        h, u, side, *given = padded_ticks(TICKS_CLASS, h, u, side, np.nan_to_num(y), ~np.isnan(y))

        def run(k: int, width: float) -> Swarm:
            seen = guide.widened(width)
            first = seen.started(draw_histories(belief, N_PARTICLES, rng), start, _whole_covariance(belief), rng)
            with computing():
                at_limits = on_device(side) if side.any() else None
                known, is_given = (on_device(x) for x in given)
                cells = guided.Cells(known, is_given, *_rows_ahead(seen.aheads[0]), at_limits, _jumps_ahead(seen))
                pattern = None if first.pattern is None else on_device(first.pattern)
                on_limits = None if limits is None else on_device(limits)
                key = jax.random.fold_in(jax.random.key(seed), k)
                arrays = (on_device(x) for x in (first.histories, h, u))
                at_start = (on_device(first.log_ahead), pattern)
                end, *ways = _run_guided(self.model, *arrays, cells, at_start, key, on_limits)
                values, parents = (np.asarray(way)[:n] for way in ways)
                # Starts are draws of N(m, P) ψ_0, whose mass is another one for each width.
                log_weights = np.asarray(end.log_weights) + first.log_mass
                return Swarm(values, parents, np.asarray(end.origin), log_weights)

        return gathered(run, n_draws, rng)

    def _limits_given(
        self, start: Float[np.ndarray, " K"], y: Float[np.ndarray, "T P"]
    ) -> tuple[Float[np.ndarray, "2 P"] | None, Int[np.ndarray, "T P"]]:
        """Limits of paths, and the sides of given cells that are at them.

        Cells given beyond the limits count as if there were none, and paths may go as far as they do.
        """
        if self.limits is None:
            return None, np.zeros(y.shape, int)
        limits = limits_with(self.limits, start[None, : y.shape[1]])
        whole = np.where(np.isnan(y), limits[0], y)
        return limits_with(limits, whole), sides(y, limits)[0]

    def step_log_density(
        self,
        before: Float[np.ndarray, "N K"],
        y: Float[np.ndarray, "N P"],
        h: np.ndarray,
        u: np.ndarray,
        seed: int,
        side: Int[np.ndarray, "N P"],
    ) -> Float[np.ndarray, " N"]:
        X, increment = np.concatenate([before, u], axis=-1), y - before[:, : y.shape[1]]
        at_limit, result = (side != 0).any(axis=1), np.zeros(len(y))
        free = ~at_limit
        result[free] = mixture_log_density(self.model, X[free], increment[free], h[free], 1, seed)
        if at_limit.any():
            parts = (part[at_limit] for part in (X, increment, side, h))

            def block(*parts: Array) -> Array:
                return censored.step_log_density(self.model, *parts, jax.random.key(seed))

            result[at_limit] = in_blocks(block, *parts)
        return result

    def row_log_density(self, ticks: list[Ticks], n_rows: int, seed: int) -> Float[np.ndarray, " R"]:
        transitions, windows = cut(ticks, self.model.layout.lags)
        result = np.full(n_rows, np.nan)
        parts = (transitions.X, transitions.increment, transitions.h)
        result[transitions.row] = mixture_log_density(self.model, *parts, N_SCORE_DRAWS, seed)
        by_tick = window_log_density(self.model, windows, N_SCORE_DRAWS, seed)
        result[windows.row[windows.is_scored]] = by_tick[windows.is_scored]
        return result

    def covariances(self, ticks: Ticks) -> tuple[Float[np.ndarray, "T P"], Float[np.ndarray, "T P P"]]:
        X = np.concatenate([filtered_means(self.model, ticks), ticks.u], axis=1)
        return X[:, : ticks.y.shape[1]], in_blocks(lambda X: _mean_covariance(self.model, X), X)

    def field(
        self, ticks: Ticks, values: Float[np.ndarray, "N P"]
    ) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, "N P P"]]:
        last = filtered_means(self.model, ticks)[-1]
        moved = np.tile(values - last[: values.shape[1]], len(last) // values.shape[1])
        X = np.concatenate([last + moved, np.repeat(ticks.u[-1:], len(values), 0)], axis=1)
        return in_blocks(lambda X: _drift(self.model, X), X), in_blocks(lambda X: _mean_covariance(self.model, X), X)

    def correlation_quantiles(
        self, ticks: Ticks, levels: tuple[float, ...], n_draws: int, seed: int
    ) -> Float[np.ndarray, "T L P P"]:
        X = np.concatenate([filtered_means(self.model, ticks), ticks.u], axis=1)

        def block(X: Array) -> Array:
            return _correlation_quantiles(self.model, X, jnp.asarray(levels), jax.random.key(seed), n_draws)

        return in_blocks(block, X, size=QUANTILE_BLOCK)
