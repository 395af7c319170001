"""Euler–Maruyama: x' = x + μ(x, t) Δ + √Δ σ(x, t) W, in one `lax.scan`.

The derivative of a loop needs what its steps computed: that is stored, or, where it would be too much, computed again
from the state before each step (rematerialised).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import subjaxprs
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from ..numerics import platform
from ..numerics.random import normals_of_keys
from .base import AbstractPreparedField
from .given import GivenField

# Storing saves a forward pass, so it is done as long as an ordinary computer has room for it.
STORED_LIMIT = 2 * 2**30
# No derivative keeps more than this many arrays of the size of a result.
MOST_STORED = 4

Step = Callable[[Any, Any], tuple[Any, Any]]

# --- loops ---------------------------------------------------------------------------------------


def scan_steps(step: Step, start: PyTree, inputs: PyTree, n_copies: int = 1) -> tuple[Any, Any]:
    """`lax.scan`, rematerialised where its derivative would store too much (`is_rematerialised`).

    `n_copies` is how many of these loops run side by side where the call is inside a `vmap`, which hides their number.
    """
    n_steps = jax.tree.leaves(inputs)[0].shape[0]
    unroll = n_steps if platform.unrolls(n_steps) else 1
    n_all = n_copies * n_steps
    # The derivative is traced, which takes longer than the step itself, only where it might store too much.
    might_be = is_rematerialised(n_all * MOST_STORED * computed_bytes(step, start, inputs))
    if might_be and is_rematerialised(n_all * stored_bytes(step, start, inputs)):
        step = jax.checkpoint(step, prevent_cse=False)  # a loop keeps the two computations apart by itself
    return jax.lax.scan(step, start, inputs, unroll=unroll)


def is_rematerialised(n_bytes: int) -> bool:
    """Whether a loop that would store `n_bytes` for its derivative stores the states between its steps alone."""
    return n_bytes > STORED_LIMIT


def stored_bytes(step: Step, start: PyTree, inputs: PyTree) -> int:
    """What the derivative of one step keeps of it: the bytes of the residuals of its VJP, by their shapes alone.

    `inputs` are those of all steps. They are data and noise, which have no derivative; what the step closes over (the
    field) has one.
    """
    first = _first(inputs)
    open_step, closed_over = jax.closure_convert(step, start, first)

    def residuals(start: PyTree, first: PyTree, closed_over: list[Array]) -> Callable:
        return jax.vjp(lambda state, arrays: open_step(state, first, *arrays), start, closed_over)[1]

    kept = jax.tree.leaves(jax.eval_shape(residuals, start, first, closed_over))
    return sum(_bytes(leaf) for leaf in kept)


def computed_bytes(step: Step, start: PyTree, inputs: PyTree) -> int:
    """The bytes of all that one step computes, by their shapes alone."""
    return _computed(jax.make_jaxpr(step)(start, _first(inputs)).jaxpr)


def _computed(jaxpr: Any) -> int:
    """The same for a program in JAX's own words and those inside it."""
    inner = sum(_computed(part) for part in subjaxprs(jaxpr))
    return inner + sum(_bytes(out.aval) for equation in jaxpr.eqns for out in equation.outvars)


def _bytes(leaf: Any) -> int:
    return leaf.size * leaf.dtype.itemsize


def _first(inputs: PyTree) -> PyTree:
    """The shapes of the inputs of one step."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), inputs)


# --- paths ---------------------------------------------------------------------------------------


class PathState(eqx.Module):
    """Where the paths are."""

    values: Float[Array, "N D"]
    time: Scalar


def euler_maruyama_step(
    key: PRNGKeyArray, state: PathState, field: AbstractPreparedField, dt: Scalar | float
) -> PathState:
    """One step, with the field's own noise."""
    here = field.at(state.values, state.time)
    return _advanced(state, here.drift, here.increment(key, dt), dt)


def _advanced(state: PathState, drift: Array, noise: Array, dt: Scalar | float) -> PathState:
    return PathState(state.values + drift * dt + noise, state.time + dt)


def simulate_paths(
    key: PRNGKeyArray,
    field: AbstractPreparedField,
    x0: Float[Array, "N D"],
    flow_time: float,
    n_steps: int,
    n_copies: int = 1,
) -> tuple[Float[Array, "N D"], Float[Array, "T N D"]]:
    """States at `flow_time`, and the states after each of `n_steps` equal steps. Flow time 0 is the identity.

    `n_copies` as in `scan_steps`.
    """
    dt = jnp.asarray(flow_time / n_steps, x0.dtype)
    keys, width = jax.random.split(key, n_steps), field.n_normals

    def drawing(state: PathState, step_key: PRNGKeyArray) -> tuple[PathState, Array]:
        state = euler_maruyama_step(step_key, state, field, dt)
        return state, state.values

    def driven(state: PathState, normals: Float[Array, "N K"]) -> tuple[PathState, Array]:
        here: Any = field.at(state.values, state.time)  # `DrivenValues`, because the field has `n_normals`
        state = _advanced(state, here.drift, here.moved(normals, dt), dt)
        return state, state.values

    start = PathState(x0, jnp.zeros((), x0.dtype))
    if width is None:
        end, path = scan_steps(drawing, start, keys, n_copies)
    else:
        # The same numbers, drawn at once: the generator then uses all cores.
        normals = normals_of_keys(keys, (len(x0), width), x0.dtype)
        end, path = scan_steps(driven, start, normals, n_copies)
    return end.values, path


def simulate_driven(
    field: GivenField, x0: Float[Array, "N D"], dB: Float[Array, "T N nu"], dt: Scalar | float
) -> Float[Array, "N D"]:
    """The end of the paths of known coefficients driven by given Brownian increments."""

    def step(state: PathState, increment: Float[Array, "N nu"]) -> tuple[PathState, None]:
        here = field.at(state.values, state.time)
        return PathState(state.values + here.drift * dt + here.driven(increment), state.time + dt), None

    return jax.lax.scan(step, PathState(x0, jnp.zeros((), x0.dtype)), dB)[0].values
