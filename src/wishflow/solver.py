"""Euler–Maruyama: x' = x + μ(x, t) Δ + √Δ σ(x, t) W, in one `lax.scan`."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .fields import PreparedField
from .fields.given import GivenField


class PathState(eqx.Module):
    """Where the paths are."""

    values: Float[Array, "N D"]
    time: Scalar


def euler_maruyama_step(key: PRNGKeyArray, state: PathState, field: PreparedField, dt: Scalar | float) -> PathState:
    """One step, with the field's own noise."""
    here = field.at(state.values, state.time)
    return _advanced(state, here.drift, here.increment(key, dt), dt)


def _advanced(state: PathState, drift: Array, noise: Array, dt: Scalar | float) -> PathState:
    return PathState(state.values + drift * dt + noise, state.time + dt)


def simulate_paths(
    key: PRNGKeyArray, field: PreparedField, x0: Float[Array, "N D"], flow_time: float, n_steps: int
) -> tuple[Float[Array, "N D"], Float[Array, "T N D"]]:
    """States at `flow_time`, and the states after each of `n_steps` equal steps. Flow time 0 is the identity."""
    dt = jnp.asarray(flow_time / n_steps, x0.dtype)
    keys, width = jax.random.split(key, n_steps), field.n_normals

    def drawing(state: PathState, step_key: PRNGKeyArray):
        state = euler_maruyama_step(step_key, state, field, dt)
        return state, state.values

    def driven(state: PathState, normals: Float[Array, "N K"]):
        here: Any = field.at(state.values, state.time)  # `DrivenValues`, because the field has `n_normals`
        state = _advanced(state, here.drift, here.moved(normals, dt), dt)
        return state, state.values

    start = PathState(x0, jnp.zeros((), x0.dtype))
    if width is None:
        end, path = jax.lax.scan(drawing, start, keys)
    else:
        # The same numbers, drawn at once: the generator then uses all cores.
        normals = jax.vmap(lambda k: jax.random.normal(k, (len(x0), width), x0.dtype))(keys)
        end, path = jax.lax.scan(driven, start, normals)
    return end.values, path


def simulate_final(
    key: PRNGKeyArray, field: PreparedField, x0: Float[Array, "N D"], flow_time: float, n_steps: int
) -> Float[Array, "N D"]:
    """States at `flow_time` alone (the path is not kept, its noise is)."""
    return simulate_paths(key, field, x0, flow_time, n_steps)[0]


def simulate_driven(
    field: GivenField, x0: Float[Array, "N D"], dB: Float[Array, "T N nu"], dt: float
) -> Float[Array, "N D"]:
    """The end of the paths of known coefficients driven by given Brownian increments."""

    def step(state: PathState, increment):
        here = field.at(state.values, state.time)
        return PathState(state.values + here.drift * dt + here.driven(increment), state.time + dt), None

    return jax.lax.scan(step, PathState(x0, jnp.zeros((), x0.dtype)), dB)[0].values
