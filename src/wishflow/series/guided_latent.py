"""Paths of the latent model given some cells of the series: as in `guided`, with a readout between state and cells.

States are drawn towards ψ, and towards the cells of their own tick by a readout that is linearised about a path all
particles share. The weight sets right what that gets wrong,

    w = p(g | x') ψ'(x') ∫ p(x | x_before, J) φ(x) dx / (φ(x') ψ(x_before)),

with φ the product of ψ' and the linearised law of the cells g. Cells that are not given are drawn from their law given
x' and g.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..numerics.linalg import small_whitener
from ..numerics.tails import elliptical_log_density
from . import guided, resampling
from .guided import Normal, Particles, log_ahead
from .particle_filter import PreparedLatent, observation_noise


class Cells(eqx.Module):
    """What is given at each tick; rows and targets of φ there, and of ψ after it."""

    y: Float[Array, "T P"]
    is_given: Bool[Array, "T P"]
    near_rows: Float[Array, "T m D"]
    near_targets: Float[Array, "T m"]
    rows: Float[Array, "T n D"]
    targets: Float[Array, "T n"]


def read(
    key: PRNGKeyArray,
    model: PreparedLatent,
    x: Float[Array, "S D"],
    u: Float[Array, " U"],
    y: Float[Array, " P"],
    is_given: Bool[Array, " P"],
) -> tuple[Float[Array, "S P"], Float[Array, " S"]]:
    """Draws of all cells at states x given some of them, and the log density of these."""
    k_noise, k_cells = jax.random.split(key)
    mean, variance = model.readout(x)
    F = observation_noise(k_noise, model, x, u)
    white = model.readout.readout.white.value + variance
    covariance = F @ jnp.swapaxes(F, -1, -2) + white[..., None] * jnp.eye(mean.shape[1], dtype=x.dtype)
    law, squares, log_determinant = Normal(mean, covariance).given(y[None], is_given)
    free = 1.0 - is_given.astype(x.dtype)
    B = law.covariance + jnp.diag(1.0 - free)
    L = B @ jnp.swapaxes(small_whitener(B), -1, -2)  # B L⁻ᵀ
    epsilon = free * jax.random.normal(k_cells, mean.shape, x.dtype)
    drawn = law.mean + jnp.einsum("sij,sj->si", L, epsilon)
    return drawn, elliptical_log_density(squares, log_determinant, jnp.sum(is_given))


def run(
    key: PRNGKeyArray,
    model: PreparedLatent,
    x: Float[Array, "S D"],
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    cells: Cells,
    at_start: tuple[Float[Array, "n D"], Float[Array, " n"]],
) -> tuple[Particles, Float[Array, "T S P"], Int[Array, "T S"]]:
    """Particles after all ticks, rows of the series at each, and the particle before the tick that each comes from.

    x are draws of the state at the start; `at_start` has the rows and targets of ψ there. Ticks of no length move
    nothing.
    """
    n, field = len(x), model.field
    # For the step alone, which knows the cells by φ.
    nothing = jnp.zeros((len(h), x.shape[1]), x.dtype)
    near = guided.Cells(nothing, jnp.zeros(nothing.shape, bool), cells.near_rows, cells.near_targets)

    def tick(before: Particles, inputs: tuple) -> tuple[Particles, tuple[Array, Array]]:
        k, h, u, here, near = inputs
        k_state, k_read, k_resample = jax.random.split(k, 3)
        is_step, h = h > 0, jnp.where(h > 0, h, 1.0)
        values = field.at(field.layout.row(before.history, jnp.broadcast_to(u, (n, len(u)))))
        x, log_mass = guided.next_row(k_state, values, before.history, h, near, guided.N_CANDIDATES)
        y, log_density = read(k_read, model, x, u, here.y, here.is_given)
        ahead = log_ahead(x, here.rows, here.targets)
        log_weights = before.log_weights + log_mass - before.log_ahead
        log_weights = log_weights + log_density + ahead - log_ahead(x, near.rows, near.targets)
        chosen, log_weights = resampling.where_poor(k_resample, log_weights)
        after = Particles(x[chosen], before.origin[chosen], log_weights, ahead[chosen])
        after = jax.tree.map(lambda new, old: jnp.where(is_step, new, old), after, before)
        return after, (y[chosen], jnp.where(is_step, chosen, jnp.arange(n)))

    first = log_ahead(x, *at_start)
    start = Particles(x, jnp.arange(n), first, first)
    end, (rows, parents) = jax.lax.scan(tick, start, (jax.random.split(key, len(h)), h, u, cells, near))
    return end, rows, parents
