"""Weighted particles: systematic resampling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

# Particles are drawn anew where fewer than this share of them count.
LEAST_SHARE = 0.5


def systematic(key: PRNGKeyArray, weights: Float[Array, " S"]) -> Int[Array, " S"]:
    """As many indices as there are weights, each as often as its weight says but for less than one."""
    n = len(weights)
    points = (jnp.arange(n) + jax.random.uniform(key, (), weights.dtype)) / n
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights), points), 0, n - 1)


def where_poor(key: PRNGKeyArray, log_weights: Float[Array, " S"]) -> tuple[Int[Array, " S"], Float[Array, " S"]]:
    """The particle that each comes from, and its log weight afterwards.

    Particles are drawn anew where the effective number 1/Σw² of them is below a half. Each then has the mean weight of
    all, so that the mean weight at the end is an unbiased estimate of the density of all that was seen.
    """
    n = len(log_weights)
    weights = jax.nn.softmax(log_weights)
    is_poor = 1.0 / jnp.sum(weights**2) < LEAST_SHARE * n
    chosen = jnp.where(is_poor, systematic(key, weights), jnp.arange(n))
    return chosen, jnp.where(is_poor, jax.nn.logsumexp(log_weights) - jnp.log(n), log_weights)
