"""Steps of the auto-regressive model that end at the limit they would cross.

Their law has point masses: a column is at its low or high limit with some probability, and has a density in between.
For a row with some columns at limits, log p is that of the others (a density) plus the log of the probability that
these columns go to, or beyond, their limits given the others. That probability is estimated without bias from one draw
of a Gaussian for each row (the simulator of Geweke, Hajivassiliou and Keane); with one column at a limit and Gaussian
noise it is exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...numerics.devices import compiled
from ...numerics.linalg import small_whitener
from ...numerics.tails import Tails, elliptical_log_density, normal_beyond, tail_draw, tail_variance
from ..autoregressive import DynamicsModel


@compiled
def step_log_density(
    model: DynamicsModel,
    X: Float[Array, "N K"],
    increment: Float[Array, "N D"],
    side: Int[Array, "N D"],
    h: Float[Array, " N"],
    key: PRNGKeyArray,
) -> Float[Array, " N"]:
    """The log density of each row's increment with one draw of J.

    `side` is 1 where an increment leads to the high limit, −1 where it leads to the low one, 0 elsewhere.
    """
    k_noise, k_limits = jax.random.split(key)
    here = model.field.in_parts().at(X)
    F, white = here.factor(k_noise), here.white_over(h[:, None])
    covariance = h[:, None, None] * F @ jnp.swapaxes(F, -1, -2) + white[..., None] * jnp.eye(white.shape[1])
    return log_density(k_limits, increment - h[:, None] * here.drift, covariance, side, here.tails)


def log_density(
    key: PRNGKeyArray,
    r: Float[Array, "N D"],
    covariance: Float[Array, "N D D"],
    side: Int[Array, "N D"],
    tails: Tails | float = None,
) -> Float[Array, " N"]:
    """Log density of r with mean zero, where `side` is 0; the probability of what is beyond r on that side elsewhere.

    Gaussian, or with heavier tails and this covariance: r = √s ε. Columns at limits come last. Given the n others,
    whose r have the squared length q, s is drawn by `tail_variance`.
    """
    order = jnp.argsort(side != 0, axis=1, stable=True)
    r, side = (jnp.take_along_axis(x, order, axis=1) for x in (r, side))
    covariance = jnp.take_along_axis(covariance, order[:, :, None], axis=1)
    covariance = jnp.take_along_axis(covariance, order[:, None, :], axis=2)
    # L = B L⁻ᵀ.
    L = covariance @ jnp.swapaxes(small_whitener(covariance), -1, -2)
    k_tails, k_columns = jax.random.split(key)
    is_free = side == 0
    n_free = jnp.sum(is_free, axis=1)
    draw = None if tails is None else tail_draw(k_tails, (len(r),), r.dtype, tails, n_free)
    uniform = jax.random.uniform(k_columns, r.shape, r.dtype)

    def column(carry: tuple[Array, Array], inputs: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        """`e` has the noise of the columns before this one, times √s; `q` its squared length, of free ones."""
        e, q = carry
        j, row, r, side, u = inputs
        scale = 1.0 if tails is None or draw is None else jnp.sqrt(tail_variance(draw, tails, q, n_free))
        diagonal = jnp.take_along_axis(row, jnp.broadcast_to(j, (len(row), 1)), axis=1)[:, 0]
        z = (r - jnp.sum(row * e, axis=1)) / diagonal
        beyond, log_mass = normal_beyond(u, z / scale, side)
        here = jnp.where(side == 0, z, scale * beyond)
        return (e.at[:, j].set(here), q + jnp.where(side == 0, z**2, 0.0)), log_mass

    columns = (jnp.arange(r.shape[1]), jnp.swapaxes(L, 0, 1), r.T, side.T, uniform.T)
    (_, squares), log_masses = jax.lax.scan(column, (jnp.zeros_like(r), jnp.zeros(len(r), r.dtype)), columns)
    log_det = 2.0 * jnp.sum(jnp.where(is_free, jnp.log(jnp.diagonal(L, axis1=1, axis2=2)), 0.0), axis=1)
    return elliptical_log_density(squares, log_det, n_free, tails) + jnp.sum(log_masses, axis=0)
