"""p(x_t | y up to t) of the latent model: a particle filter guided by what is seen next.

Each particle draws J, then x' from the posterior of the step under the readout linearised where the drift leads to,
and carries the weight p(y | x') p(x' | x, J)/q(x' | x, J, y). For a linear readout the proposal is that posterior
itself, and the weight is p(y | x, J) whatever x' was drawn (Doucet, Godsill & Andrieu 2000). The mean weight is an
unbiased estimate of p(y_t | y up to t − 1).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from ..numerics.linalg import dense_log_density, log_det, low_rank_log_density, small_whitener
from ..wishart import PreparedField
from ..wishart.solver import scan_steps
from .latent import LatentModel, PreparedReadout
from .resampling import systematic


class PreparedLatent(eqx.Module):
    """Factorised field and readout."""

    field: PreparedField
    readout: PreparedReadout

    @classmethod
    def of(cls, model: LatentModel) -> PreparedLatent:
        return cls(model.field.in_parts(), model.readout.prepare())


class Move(eqx.Module):
    """Where each particle goes before anything is seen: N(mean, covariance)."""

    mean: Float[Array, "S D"]
    covariance: Float[Array, "S D D"]


def prior(n_particles: int, dim: int, dtype: DTypeLike) -> Move:
    """p(x_0) = N(0, I)."""
    identity = jnp.broadcast_to(jnp.eye(dim, dtype=dtype), (n_particles, dim, dim))
    return Move(jnp.zeros((n_particles, dim), dtype), identity)


def euler(key: PRNGKeyArray, field: PreparedField, x: Float[Array, "S D"], h: Scalar, u: Float[Array, " U"]) -> Move:
    """x + hμ(x, u) and h(LJJᵀLᵀ + Λ) with a fresh J for each particle."""
    here = field.at(_rows(field, x, u))
    F = here.factor(key)
    noise = F @ jnp.swapaxes(F, -1, -2) + here.white[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)
    return Move(x + h * here.drift, h * noise)


def _rows(field: PreparedField, x: Array, u: Array) -> Array:
    return field.layout.row(x, jnp.broadcast_to(u, (x.shape[0], len(u))))


def observation_noise(
    key: PRNGKeyArray, model: PreparedLatent, x: Float[Array, "S D"], u: Float[Array, " U"]
) -> Float[Array, "S P nu"]:
    """A L J(x), without columns where A is zero."""
    if model.readout.readout.coupling is None:
        return jnp.zeros((x.shape[0], len(model.readout.readout.constant), 0), x.dtype)
    return model.readout.noise_factor(key, model.field.at(_rows(model.field, x, u)))


def log_likelihood(
    model: PreparedLatent, x: Float[Array, "S D"], F: Array, y: Float[Array, " P"], is_seen: Bool[Array, " P"]
) -> Float[Array, " S"]:
    """log N(y; E g(x), F Fᵀ + Λ + Var g(x)) over the entries that are there."""
    seen = is_seen.astype(y.dtype)
    mean, variance = model.readout(x)
    white = jnp.where(is_seen, model.readout.readout.white.value + variance, 1.0)
    density = low_rank_log_density(seen * (y - mean), F * seen[:, None], white)
    return density + 0.5 * jnp.log(2.0 * jnp.pi) * jnp.sum(1.0 - seen)


def _guided(
    key: PRNGKeyArray, model: PreparedLatent, move: Move, u: Array, y: Array, is_seen: Array
) -> tuple[Float[Array, "S D"], Float[Array, " S"]]:
    """New states from the guided proposal and the logs of their weights."""
    k_state, k_noise = jax.random.split(key)
    seen = is_seen.astype(y.dtype)
    mean, variance = model.readout(move.mean)
    G = model.readout.slope(move.mean) * seen[:, None]
    F = observation_noise(k_noise, model, move.mean, u)
    # The proposal takes the noise of y as independent; what A couples is set right by the weight.
    noise = model.readout.readout.white.value + variance + jnp.sum(F**2, -1)
    to_white = small_whitener(move.covariance)
    precision = jnp.swapaxes(to_white, -1, -2) @ to_white + jnp.einsum("spd,sp,spe->sde", G, 1.0 / noise, G)
    W = small_whitener(precision)
    pull = jnp.einsum("spd,sp->sd", G, (y - mean) / noise)
    centre = move.mean + jnp.einsum("sij,sik,sk->sj", W, W, pull)
    epsilon = jax.random.normal(k_state, centre.shape, centre.dtype)
    x = centre + jnp.einsum("sij,si->sj", W, epsilon)
    log_proposal = -0.5 * (x.shape[-1] * jnp.log(2.0 * jnp.pi) + jnp.sum(epsilon**2, -1) - log_det(W))
    log_step = dense_log_density(x - move.mean, move.covariance)
    return x, log_likelihood(model, x, F, y, is_seen) + log_step - log_proposal


def _resampled(key: PRNGKeyArray, x: Float[Array, "S D"], log_weights: Float[Array, " S"]) -> Float[Array, "S D"]:
    """Systematic resampling: equal weights again."""
    return x[systematic(key, jax.nn.softmax(log_weights))]


def step(
    key: PRNGKeyArray, model: PreparedLatent, move: Move, u: Array, y: Array, is_seen: Array
) -> tuple[Float[Array, "S D"], Scalar]:
    """Particles after the move and what is seen there, and log p of it given all before."""
    k_guided, k_resample = jax.random.split(key)
    x, log_weights = _guided(k_guided, model, move, u, y, is_seen)
    score = jax.nn.logsumexp(log_weights) - jnp.log(len(x))
    return _resampled(k_resample, x, log_weights), jnp.where(is_seen.any(), score, 0.0)


def run(
    key: PRNGKeyArray,
    model: PreparedLatent,
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    y: Float[Array, "T P"],
    is_seen: Bool[Array, "T P"],
    n_particles: int,
    n_copies: int = 1,
) -> tuple[Float[Array, "S D"], tuple[Float[Array, "T D"], Float[Array, " T"]]]:
    """Particles after all ticks of a series; their mean after each, and the log density of what was seen there.

    The first tick is where the series begins; its length is not used. Ticks of no length move nothing. `n_copies` is
    the number of series where this runs under `vmap` (`wishart.solver.scan_steps`).
    """
    dim = model.field.layout.dim
    keys = jax.random.split(key, len(h))
    first, first_score = step(keys[0], model, prior(n_particles, dim, y.dtype), u[0], y[0], is_seen[0])

    def tick(x: Array, inputs: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        k, h, u, y, seen = inputs
        k_move, k_step = jax.random.split(k)
        move = euler(k_move, model.field, x, jnp.where(h > 0, h, 1.0), u)
        moved, score = step(k_step, model, move, u, y, seen)
        x = jnp.where(h > 0, moved, x)
        return x, (jnp.mean(x, 0), score)

    last, (means, scores) = scan_steps(tick, first, (keys[1:], h[1:], u[1:], y[1:], is_seen[1:]), n_copies)
    means = jnp.concatenate([jnp.mean(first, 0)[None], means])
    return last, (means, jnp.concatenate([first_score[None], scores]))


# --- forecasts -----------------------------------------------------------------------------------


def simulate(
    key: PRNGKeyArray, model: PreparedLatent, x: Float[Array, "S D"], h: Float[Array, " T"], u: Float[Array, "T U"]
) -> tuple[Float[Array, "T S P"], Float[Array, "T S D"]]:
    """Draws of y at every tick, and the states before each."""

    def tick(x: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        k, h, u = inputs
        k_step, k_read, k_noise, k_white = jax.random.split(k, 4)
        here = model.field.at(_rows(model.field, x, u))
        moved = x + h * here.drift + here.increment(k_step, h)
        mean, variance = model.readout(moved)
        F = observation_noise(k_read, model, moved, u)
        coupled = jnp.einsum("spv,sv->sp", F, jax.random.normal(k_noise, (len(x), F.shape[-1]), x.dtype))
        sd = jnp.sqrt(model.readout.readout.white.value + variance)
        y = mean + coupled + sd * jax.random.normal(k_white, mean.shape, x.dtype)
        return moved, (y, x)

    return jax.lax.scan(tick, x, (jax.random.split(key, len(h)), h, u))[1]


def step_log_density(
    key: PRNGKeyArray,
    model: PreparedLatent,
    x: Float[Array, "N D"],
    h: Float[Array, " N"],
    u: Float[Array, "N U"],
    y: Float[Array, "N P"],
) -> Float[Array, " N"]:
    """log p(y | x before the last step), the step integrated out under the readout linearised at its mean."""
    k_move, k_noise = jax.random.split(key)
    here = model.field.at(model.field.layout.row(x, u))
    root_h = jnp.sqrt(h)[:, None, None]
    centre = x + h[:, None] * here.drift
    mean, variance = model.readout(centre)
    G = model.readout.slope(centre)
    parts = [root_h * (G @ here.factor(k_move)), root_h * G * jnp.sqrt(here.white)[:, None, :]]
    if model.readout.readout.coupling is not None:
        there = model.field.at(model.field.layout.row(centre, u))
        parts.append(model.readout.noise_factor(k_noise, there))
    white = model.readout.readout.white.value + variance
    return low_rank_log_density(y - mean, jnp.concatenate(parts, axis=-1), white)
