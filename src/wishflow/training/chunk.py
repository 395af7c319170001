"""One pure, compiled chunk of stochastic steps: Adam on the parameters, natural gradients on q of the output.

What changes from step to step (rates, weights of the KL terms) comes in as arrays, and the number of steps is not part
of the program: one compilation serves a whole fit, whatever its length and schedule.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Scalar

from ..inducing import InducingBasis
from ..models import AbstractModel
from ..objectives import Batch, bound_of, natural_step, negative_bound
from ..runtime import compiled

CHUNK = 500
OPTIMISER = optax.scale_by_adam()


@dataclasses.dataclass(frozen=True)
class StepSettings:
    """What a step compiles in."""

    batch_size: int
    n_samples: int
    flow_dtype: str
    is_natural: bool
    average: str = "log"


class Rates(eqx.Module):
    """One number for each step of a chunk: Adam's rate, the natural-gradient step γ, the weight c of the KL terms."""

    adam: Float[Array, " chunk"]
    natural: Float[Array, " chunk"]
    kl_weight: Float[Array, " chunk"]


class TrainState(eqx.Module):
    """What is carried from step to step."""

    model: AbstractModel
    optimiser: PyTree
    key: PRNGKeyArray
    skipped: Int[Array, ""]


def trainable(model: AbstractModel, settings: StepSettings) -> PyTree:
    """Which leaves Adam moves: all but jitters, and but q of the output where natural gradients move it."""
    mask = jax.tree.map(lambda leaf: True, model)
    mask = eqx.tree_at(lambda m: [b.jitter for b in bases(m)], mask, replace_fn=lambda _: False)
    if settings.is_natural:
        frozen = jax.tree.map(lambda leaf: False, model.output.posterior)
        mask = eqx.tree_at(lambda m: m.output.posterior, mask, frozen)
    return mask


def bases(model: Any) -> list[InducingBasis]:
    """The inducing bases of a model: the output's, and the field's where there is one."""
    return [model.output.basis] + ([model.field.basis] if hasattr(model, "field") else [])


def start_state(model: AbstractModel, key: PRNGKeyArray, settings: StepSettings) -> TrainState:
    """The state before the first step."""
    parameters, _ = eqx.partition(model, trainable(model, settings))
    return TrainState(model, OPTIMISER.init(ravel_pytree(parameters)[0]), key, jnp.zeros((), jnp.int32))


def _is_finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def _choose(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def step(
    state: TrainState, batch: Batch, rate: Scalar, natural_rate: Scalar, kl_weight: Scalar, settings: StepSettings
) -> tuple[TrainState, dict[str, Scalar]]:
    """One step. A step whose bound, gradient or new state is not finite is not taken, and counted."""
    key, k_step = jax.random.split(state.key)
    parameters, fixed = eqx.partition(state.model, trainable(state.model, settings))

    def loss(parameters):
        model = eqx.combine(parameters, fixed)
        return negative_bound(
            model,
            batch,
            k_step,
            kl_weight=kl_weight,
            n_samples=settings.n_samples,
            dtype=jnp.dtype(settings.flow_dtype),
            has_sites=settings.is_natural,
            average=settings.average,
        )

    # One flat vector: Adam, the check and the choice below then compile once and not once for each leaf.
    vector, unravel = ravel_pytree(parameters)
    (_, (parts, sites)), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
    direction, optimiser = OPTIMISER.update(ravel_pytree(gradient)[0], state.optimiser)
    moved = vector - rate * direction
    posterior = state.model.output.posterior
    if settings.is_natural:
        posterior = natural_step(posterior, sites, natural_rate)
    is_good = _is_finite((moved, optimiser.nu, posterior, parts))
    moved, optimiser, posterior = _choose(
        is_good, (moved, optimiser, posterior), (vector, state.optimiser, state.model.output.posterior)
    )
    model = eqx.combine(unravel(moved), fixed)
    if settings.is_natural:
        model = eqx.tree_at(lambda m: m.output.posterior, model, posterior)
    report = {**parts, "bound": bound_of(parts), "noise": model.likelihood.noise_summary(), **model.summary()}
    report["skipped"] = 1.0 - is_good
    return TrainState(model, optimiser, key, jnp.where(is_good, 0, state.skipped + 1)), report


def _shuffled(key: PRNGKeyArray, data: Batch) -> Int[Array, " N"]:
    """The rows in random order, padding last."""
    return jnp.argsort(jnp.where(data.weights > 0, jax.random.uniform(key, data.weights.shape), 2.0))


def _rows(data: Batch, order: Int[Array, " N"], i: Int[Array, ""], batch_size: int) -> Batch:
    """The i-th batch of a chunk: all rows where they fit, otherwise the next block of the shuffled rows, cyclically."""
    if batch_size >= data.X.shape[0]:
        return data
    start = i * batch_size
    index = order[(start + jnp.arange(batch_size)) % data.n_data.astype(int)]
    return Batch(data.X[index], data.y[index], data.weights[index], data.n_data)


def run_steps(
    state: TrainState, data: Batch, rates: Rates, n: Int[Array, ""], settings: StepSettings
) -> tuple[TrainState, dict[str, Float[Array, " chunk"]]]:
    """n ≤ CHUNK steps and their reports (NaN past n)."""
    k_order, key = jax.random.split(state.key)
    state = eqx.tree_at(lambda s: s.key, state, key)
    order = _shuffled(k_order, data)

    def one(state, i):
        batch = _rows(data, order, i, settings.batch_size)
        return step(state, batch, rates.adam[i], rates.natural[i], rates.kl_weight[i], settings)

    def body(i, carry):
        state, records = carry
        state, report = one(state, i)
        return state, {name: records[name].at[i].set(value) for name, value in report.items()}

    shapes = jax.eval_shape(one, state, jnp.zeros((), int))[1]
    records = {name: jnp.full((CHUNK,), jnp.nan) for name in shapes}
    return jax.lax.fori_loop(0, n, body, (state, records))


@compiled
def train_chunk(state, data, rates, n, settings):
    """`run_steps` for one model, compiled."""
    return run_steps(state, data, rates, n, settings)


@compiled
def train_chunk_many(states, data, rates, n, settings):
    """`run_steps` for many models of equal shape in one program (accelerators; on the CPU batched factorisations can
    hang).
    """
    return jax.vmap(lambda s, d, r: run_steps(s, d, r, n, settings))(states, data, rates)
