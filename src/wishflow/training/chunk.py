"""One pure, compiled chunk of stochastic steps: Adam on the parameters, natural gradients on q of the output.

What changes from step to step (rates, weights of the KL terms) comes in as arrays, and the number of steps is not part
of the program: one compilation serves a whole fit, whatever its length and schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Scalar

from ..inducing.natural import damped_step
from ..numerics.devices import compiled, on_device
from ..numerics.meshes import kept_whole
from .objective import objective_of
from .steps import AbstractSteps, Loss

CHUNK = 500
OPTIMISER = optax.scale_by_adam()
# Entries of a leaf that is not copied into a vector with others.
LARGE = 2**16


class Rates(eqx.Module):
    """One number for each step of a chunk (and each of many models): Adam's rate, the natural-gradient step γ, the
    weight c of the KL terms.
    """

    adam: Float[Array, "*models chunk"]
    natural: Float[Array, "*models chunk"]
    kl_weight: Float[Array, "*models chunk"]


class TrainState(eqx.Module):
    """What is carried from step to step."""

    model: Any
    optimiser: PyTree
    key: PRNGKeyArray
    skipped: Int[Array, ""]


def trainable(model: Any, steps: AbstractSteps) -> PyTree:
    """Which leaves Adam moves: all but jitters, inducing points that are to stay, and q of the output where natural
    gradients move it.
    """
    mask = jax.tree.map(lambda leaf: True, model)
    mask = eqx.tree_at(lambda m: [b.jitter for b in m.bases()], mask, replace_fn=lambda _: False)
    first = {"all": 0, "field": 1, "none": None}[steps.fixed_inducing]
    if first is not None:  # the output's basis comes first
        mask = eqx.tree_at(lambda m: [b.Z for b in m.bases()[first:]], mask, replace_fn=lambda _: False)
    if steps.is_natural:
        frozen = jax.tree.map(lambda leaf: False, model.output.posterior)
        mask = eqx.tree_at(lambda m: m.output.posterior, mask, frozen)
    return mask


def packed(tree: PyTree) -> tuple[PyTree[Array], Callable[[PyTree[Array]], PyTree]]:
    """All small leaves in one vector, beside the large ones, and a function that undoes it.

    Adam and what is done with its result compile once for the vector and not once for each leaf. A large leaf would
    take longer to be put into it, and on the CPU what is computed for a vector takes longer than for a leaf with axes.
    """
    leaves, structure = jax.tree.flatten(tree)
    is_large = [leaf.size >= LARGE for leaf in leaves]
    vector, unravel = ravel_pytree([leaf for leaf, large in zip(leaves, is_large, strict=True) if not large])

    def unpack(parts: PyTree[Array]) -> PyTree:
        small, large = iter(unravel(parts[0])), iter(parts[1])
        return jax.tree.unflatten(structure, [next(large if large_one else small) for large_one in is_large])

    return (vector, [leaf for leaf, large in zip(leaves, is_large, strict=True) if large]), unpack


def start_state(model: Any, key: PRNGKeyArray, steps: AbstractSteps) -> TrainState:
    """The state before the first step."""
    parameters, _ = eqx.partition(model, trainable(model, steps))
    shapes = jax.eval_shape(lambda parameters: OPTIMISER.init(packed(parameters)[0]), parameters)
    # Adam starts at zero. Zeros of NumPy: JAX would compile programs to make them, for each number of parameters.
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return TrainState(model, jax.tree.map(on_device, zeros), key, on_device(np.int32(0)))


def _is_finite(tree: PyTree) -> Bool[Array, ""]:
    vector, large = packed(tree)[0]
    return jnp.stack([jnp.isfinite(part).all() for part in (vector, *large)]).all()


def _choose(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def step(
    state: TrainState, batch: PyTree, rate: Scalar, natural_rate: Scalar, kl_weight: Scalar, steps: AbstractSteps
) -> tuple[TrainState, dict[str, Scalar]]:
    """One step. A step whose objective, gradient or new state is not finite is not taken, and counted."""
    key, k_step = jax.random.split(state.key)
    parameters, fixed = eqx.partition(state.model, trainable(state.model, steps))

    def loss(parameters: PyTree) -> Loss:
        return steps.loss(eqx.combine(parameters, fixed), batch, k_step, kl_weight)

    vectors, unpack = packed(parameters)
    (_, (parts, sites)), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
    direction, optimiser = OPTIMISER.update(packed(gradient)[0], state.optimiser)
    moved = jax.tree.map(lambda x, d: (x - rate * d).astype(x.dtype), vectors, direction)
    before = state.model.output.posterior if steps.is_natural else None
    posterior = damped_step(before, sites, natural_rate) if before is not None else None
    is_good = _is_finite((moved, optimiser.nu, posterior, parts))
    moved, optimiser, posterior = _choose(is_good, (moved, optimiser, posterior), (vectors, state.optimiser, before))
    model = eqx.combine(unpack(moved), fixed)
    if posterior is not None:
        model = eqx.tree_at(lambda m: m.output.posterior, model, posterior)
    report = {**parts, "objective": objective_of(parts), "noise": model.noise_summary(), **model.summary()}
    report["skipped"] = 1.0 - is_good
    return TrainState(model, optimiser, key, jnp.where(is_good, 0, state.skipped + 1)), report


def run_steps(
    state: TrainState, data: PyTree, rates: Rates, n: Int[Array, ""], steps: AbstractSteps
) -> tuple[TrainState, dict[str, Float[Array, " chunk"]]]:
    """n ≤ CHUNK steps and their reports (NaN past n)."""
    k_order, key = jax.random.split(state.key)
    state = eqx.tree_at(lambda s: s.key, state, key)
    order = steps.shuffle(k_order, data)

    # Under `jit` a step is traced once, for its shapes and for the loop, where both see the same types.
    @jax.jit
    def one(state: TrainState, i: Int[Array, ""]) -> tuple[TrainState, dict[str, Scalar]]:
        batch = steps.batch(data, order, i)
        state, report = step(state, batch, rates.adam[i], rates.natural[i], rates.kl_weight[i], steps)
        return kept_whole(state, steps.mesh), report

    def body(i: Int[Array, ""], carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
        state, records = carry
        state, report = one(state, jnp.asarray(i, int))
        row = jnp.stack([report[name] for name in names])
        return state, jax.lax.dynamic_update_index_in_dim(records, row, i, 0)

    names = list(jax.eval_shape(one, state, jnp.zeros((), int))[1])
    # One array for all reports: each write is a program part of its own to compile.
    state, records = jax.lax.fori_loop(0, n, body, (state, jnp.full((CHUNK, len(names)), jnp.nan)))
    return state, dict(zip(names, records.T, strict=True))


def has_no_path_in_a_loop(
    state: TrainState, data: PyTree, rates: Rates, n: Int[Array, ""], steps: AbstractSteps
) -> bool:
    """Whether the paths of a step are written out; small loops inside them do not matter."""
    return not steps.has_loops(state.model, data)


@functools.partial(compiled, side_by_side=has_no_path_in_a_loop)
def train_chunk(
    state: TrainState, data: PyTree, rates: Rates, n: Int[Array, ""], steps: AbstractSteps
) -> tuple[TrainState, dict[str, Float[Array, " chunk"]]]:
    """`run_steps` for one model, compiled."""
    return run_steps(state, data, rates, n, steps)


@functools.partial(compiled, side_by_side=has_no_path_in_a_loop)
def train_chunk_many(
    states: TrainState, data: PyTree, rates: Rates, n: Int[Array, ""], steps: AbstractSteps
) -> tuple[TrainState, dict[str, Float[Array, "R chunk"]]]:
    """`run_steps` for many models of equal shape in one program (accelerators; on the CPU batched factorisations can
    hang).
    """
    return jax.vmap(lambda s, d, r: run_steps(s, d, r, n, steps))(states, data, rates)
