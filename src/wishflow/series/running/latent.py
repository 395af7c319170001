"""The latent model: the guided particle filter (`particle_filter`), forecasts from its particles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...numerics.devices import compiled, computing, on_device
from .. import guided_latent
from .. import particle_filter as particles
from ..ahead import LinearSteps, with_cells
from ..gaussian_filter import drift_jacobian
from ..guided import Particles
from ..latent import LatentModel
from ..particle_filter import PreparedLatent
from ..windows import Ticks
from .base import TICKS_CLASS, AbstractRunner, in_blocks, padded_ticks
from .scenarios import N_PARTICLES as N_SCENARIO
from .scenarios import Scenario, Swarm, ahead_of, gathered

N_PARTICLES = 500
FILTER_CLASS = 64


@compiled
def _run_filter(
    model: LatentModel,
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    y: Float[Array, "T P"],
    is_seen: Bool[Array, "T P"],
    key: PRNGKeyArray,
    n_particles: int,
) -> tuple[Float[Array, "S D"], tuple[Float[Array, "T D"], Float[Array, " T"]]]:
    return particles.run(key, PreparedLatent.of(model), h, u, y, is_seen, n_particles)


@compiled
def _run_paths(
    model: LatentModel, x: Float[Array, "S D"], h: Float[Array, " T"], u: Float[Array, "T U"], key: PRNGKeyArray
) -> tuple[Float[Array, "T S P"], Float[Array, "T S D"]]:
    return particles.simulate(key, PreparedLatent.of(model), x, h, u)


@compiled
def _step_log_density(
    model: LatentModel,
    x: Float[Array, "N D"],
    y: Float[Array, "N P"],
    h: Float[Array, " N"],
    u: Float[Array, "N U"],
    key: PRNGKeyArray,
) -> Float[Array, " N"]:
    return particles.step_log_density(key, PreparedLatent.of(model), x, h, u, y)


@compiled
def _rates(
    model: LatentModel, x: Float[Array, "N D"], u: Float[Array, "N U"]
) -> tuple[Float[Array, "N P"], Float[Array, "N P P"]]:
    """g(x) and G (Σ̄ + Λ_x) Gᵀ: the noise of the readout is no part of a rate."""
    prepared = PreparedLatent.of(model)
    rate = prepared.field.at(prepared.field.layout.row(x, u)).mean_covariance()
    G = prepared.readout.slope(x)
    return prepared.readout(x)[0], G @ rate @ jnp.swapaxes(G, -1, -2)


@compiled
def _run_guided(
    model: LatentModel,
    x: Float[Array, "S D"],
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    cells: guided_latent.Cells,
    at_start: tuple[Float[Array, "n D"], Float[Array, " n"]],
    key: PRNGKeyArray,
) -> tuple[Particles, Float[Array, "T S P"], Int[Array, "T S"]]:
    return guided_latent.run(key, PreparedLatent.of(model), x, h, u, cells, at_start)


@compiled
def _step_moments(
    model: LatentModel, x: Float[Array, "T D"], y_at: Float[Array, "T D"], h: Float[Array, " T"], u: Float[Array, "T U"]
) -> tuple[Array, ...]:
    """Of steps from x: hμ, its slopes and covariance; of cells at `y_at`: mean, slopes and covariance."""
    prepared = PreparedLatent.of(model)
    X = prepared.field.layout.row(x, u)
    here, length = prepared.field.at(X), h[:, None, None]
    step = (h[:, None] * here.drift, length * drift_jacobian(prepared.field, X), length * here.mean_covariance())
    mean, variance = prepared.readout(y_at)
    noise = (model.readout.white.value + variance)[..., None] * jnp.eye(mean.shape[1])
    if model.readout.coupling is not None:
        there = prepared.field.at(prepared.field.layout.row(y_at, u))
        shared = there.mean_covariance() - there.white[..., None] * jnp.eye(x.shape[1])
        noise = noise + jnp.einsum("pd,nde,qe->npq", model.readout.coupling, shared, model.readout.coupling)
    return (*step, mean, prepared.readout.slope(y_at), noise)


def linearised(model: Any, states: Float[np.ndarray, "times D"], h: np.ndarray, u: np.ndarray) -> LinearSteps:
    """Steps and cells of the model to first order about states before and after each tick."""
    n, dim = len(h), states.shape[1]
    padded = padded_ticks(TICKS_CLASS, h, states[:-1], states[1:], u)
    with computing():
        h_all, x, y_at, u_all = (on_device(a) for a in padded)
        moments = _step_moments(model, x, y_at, h_all, u_all)
        moved, slopes, Q, mean, G, R = (np.asarray(part)[:n] for part in moments)
    c = moved - np.einsum("tde,te->td", slopes, states[:-1])
    d = mean - np.einsum("tpd,td->tp", G, states[1:])
    return LinearSteps(np.eye(dim) + slopes, c, Q, G, d, R)


def _noise_keys(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """Keys for the filter, for paths and for densities of steps.

    Both the filter and paths split their key into one for each tick, so with one key for both the first steps of a
    forecast would be made of the noise of the first steps of the filter. Seeds that were drawn make keys of which none
    is split from another.
    """
    of_paths, of_densities = np.random.SeedSequence(seed).generate_state(2)
    return jax.random.key(seed), jax.random.key(of_paths), jax.random.key(of_densities)


class LatentRunner(AbstractRunner):
    """Filters with particles; what a draw knows before a step is its state."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def _filtered(self, ticks: Ticks, seed: int) -> Any:
        n = len(ticks.h)
        h, u, y = padded_ticks(FILTER_CLASS, ticks.h, ticks.u, ticks.y)
        is_seen = ~np.isnan(y)
        is_seen[n:] = False
        with computing():
            inputs = (on_device(x) for x in (h, u, np.nan_to_num(y), is_seen))
            last, (means, scores) = _run_filter(self.model, *inputs, _noise_keys(seed)[0], N_PARTICLES)
        return np.asarray(last), np.asarray(means)[:n], np.asarray(scores)[:n]

    def paths(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, n_draws: int, seed: int
    ) -> tuple[Float[np.ndarray, "S T P"], Float[np.ndarray, "S T K"], None]:
        last, _, _ = self._filtered(ticks, seed)
        x = last[np.random.default_rng(seed).permutation(n_draws) % len(last)]
        n = len(h)
        h, u = padded_ticks(TICKS_CLASS, h, u)
        with computing():
            y, before = _run_paths(self.model, *(on_device(a) for a in (x, h, u)), _noise_keys(seed)[1])
        return np.swapaxes(np.asarray(y)[:n], 0, 1), np.swapaxes(np.asarray(before)[:n], 0, 1), None

    def paths_given(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, y: Float[np.ndarray, "T P"], n_draws: int, seed: int
    ) -> Scenario:
        last, rng, n = self._filtered(ticks, seed)[0], np.random.default_rng(seed), len(h)
        start = last.mean(axis=0)
        # Plain paths say where the state goes on average.
        _, before, _ = self.paths(ticks, np.append(h, 0.0), np.concatenate([u, u[-1:]]), len(last), seed)
        means = before[:, 1:].mean(axis=0)
        steps, ahead = ahead_of(
            lambda about: linearised(self.model, np.concatenate([start[None], about]), h, u), means, y, start
        )
        ticks_all = padded_ticks(TICKS_CLASS, h, u, np.nan_to_num(y), ~np.isnan(y))

        def run(k: int, width: float) -> Swarm:
            seen = ahead.widened(width)
            here = with_cells(steps, seen, y)
            laws = padded_ticks(TICKS_CLASS, np.ones(n), here.rows, here.targets, seen.rows[1:], seen.targets[1:])[1:]
            x = last[rng.permutation(N_SCENARIO) % len(last)]
            with computing():
                lengths, covariates, values, is_given = (on_device(a) for a in ticks_all)
                cells = guided_latent.Cells(values, is_given, *(on_device(a) for a in laws))
                at_start = (on_device(seen.rows[0]), on_device(seen.targets[0]))
                key = jax.random.fold_in(_noise_keys(seed)[1], k)
                end, *ways = _run_guided(self.model, on_device(x), lengths, covariates, cells, at_start, key)
                draws, parents = (np.asarray(way)[:n] for way in ways)
                return Swarm(draws, parents, np.asarray(end.origin), np.asarray(end.log_weights))

        return gathered(run, n_draws, rng)

    def step_log_density(
        self,
        before: Float[np.ndarray, "N K"],
        y: Float[np.ndarray, "N P"],
        h: np.ndarray,
        u: np.ndarray,
        seed: int,
        side: Int[np.ndarray, "N P"],
    ) -> Float[np.ndarray, " N"]:
        del side  # a latent state has no limits

        def block(x: Array, y: Array, h: Array, u: Array) -> Array:
            return _step_log_density(self.model, x, y, h, u, _noise_keys(seed)[2])

        return in_blocks(block, before, y, h, u)

    def row_log_density(self, ticks: list[Ticks], n_rows: int, seed: int) -> Float[np.ndarray, " R"]:
        result = np.full(n_rows, np.nan)
        for part in ticks:
            is_row = (part.row >= 0) & ~np.isnan(part.y).all(axis=1)
            result[part.row[is_row]] = self._filtered(part, seed)[2][is_row]
        return result

    def covariances(self, ticks: Ticks) -> tuple[Float[np.ndarray, "T P"], Float[np.ndarray, "T P P"]]:
        _, means, _ = self._filtered(ticks, 0)
        dim = ticks.y.shape[1]

        def block(x: Array, u: Array) -> Array:
            values, rates = _rates(self.model, x, u)
            return jnp.concatenate([values[:, None], rates], axis=1)

        both = in_blocks(block, means, ticks.u)
        return both[:, 0], both[:, 1:].reshape(-1, dim, dim)
