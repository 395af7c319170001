"""Ours: the library's own objectives with a plain Adam step, so that the arithmetic is that of the peers.

python -m studies.benchmarks.speed.ours full  # a worker; also "structured", "rotated", "diagonal" (less arithmetic)
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from wishflow.inducing import POSTERIORS, AbstractPosterior, InducingBasis, SparseGP, WhitenedPosterior
from wishflow.kernels import RBFKernel
from wishflow.likelihoods import GaussianLikelihood
from wishflow.numerics.devices import compiler_options, computing
from wishflow.numerics.parameters import Free, LowerTriangular, Positive, UnitRows
from wishflow.numerics.random import standard_normals
from wishflow.regression.batches import Batch
from wishflow.regression.flow import FlowModel
from wishflow.regression.objectives import negative_objective
from wishflow.regression.sparse_gp import SparseGPModel
from wishflow.series.autoregressive import DynamicsModel, simulate
from wishflow.series.batches import SeriesBatch, TransitionBatch, WindowBatch
from wishflow.series.layout import Layout
from wishflow.series.linear import LinearDrift
from wishflow.series.objectives import negative_rollout_objective, negative_transition_objective
from wishflow.training.chunk import packed
from wishflow.wishart import Field, GPDrift, GPNoise, StateLayout, WhiteNoise, WishartNoise

from . import problem
from .loops import steps_in_a_loop
from .worker import Prepared, serve
from .works import FLOW_TIME, LEARNING_RATE, Work

PACKAGES = ("wishflow", "jax", "jaxlib", "equinox", "optax", "numpy")
VALUE_KEY = 7
ADAM = optax.adam(LEARNING_RATE)

# --- models --------------------------------------------------------------------------------------


def _basis(start: problem.GPStart) -> InducingBasis:
    kernel = RBFKernel(Positive.of(start.variance), Positive.of(start.lengthscale), start.Z.shape[1])
    return InducingBasis.of(kernel, start.Z, problem.JITTER)


def _posterior(start: problem.GPStart, form: str) -> AbstractPosterior:
    """q at the common starting point; the cheaper forms cannot hold its covariance and start at the prior's."""
    if form == "full":
        return WhitenedPosterior(jnp.asarray(start.mean), LowerTriangular.of(jnp.asarray(start.sqrt)))
    return eqx.tree_at(lambda q: q.mean, POSTERIORS[form].prior(*start.mean.shape), jnp.asarray(start.mean))


def _regression_model(work: Work, form: str) -> SparseGPModel | FlowModel:
    start = problem.output_start(work)
    # The output of a flow is a full q in the library, whatever the form of the field's.
    output = SparseGP(_basis(start), _posterior(start, "full"))
    likelihood = GaussianLikelihood(Positive.of([problem.NOISE_VARIANCE]))
    if work.kind == "svgp":
        return SparseGPModel(output, likelihood)
    field = problem.field_start(work)
    basis, posterior = _basis(field.gp), _posterior(field.gp, form)
    drift, noise = None, GPNoise(posterior)
    if work.diffusion != "gp":
        drift = GPDrift(jnp.asarray(field.drift_mean))
        noise = WishartNoise(posterior, UnitRows(jnp.asarray(field.scale)), work.dof, _is_shared(work))
    parts = Field(basis, None, drift, noise, None, StateLayout(basis.Z.shape[1]))
    return FlowModel(output, likelihood, parts, FLOW_TIME, work.n_steps, False, True)


def _is_shared(work: Work) -> bool:
    return work.columns == "shared"


def _series_model(work: Work, form: str) -> DynamicsModel:
    start = problem.field_start(work)
    noise = WishartNoise(_posterior(start.gp, form), Free(jnp.asarray(start.scale)), work.dof, _is_shared(work))
    return DynamicsModel(
        Field(
            _basis(start.gp),
            LinearDrift.of(jnp.asarray(start.linear), jnp.asarray(start.constant)),
            GPDrift(jnp.asarray(start.drift_mean), Positive.of(start.amplitude)),
            noise,
            WhiteNoise(Positive.of(start.white), None, None),
            Layout(work.dim, 1, 0),
        )
    )


def build(work: Work, form: str) -> Any:
    """The model at the common starting point; an SVGP in float32 is float32 throughout."""
    model = (_regression_model if work.kind in ("svgp", "flow") else _series_model)(work, form)
    if work.kind != "svgp":
        return model
    return jax.tree.map(lambda leaf: leaf.astype(work.dtype) if eqx.is_inexact_array(leaf) else leaf, model)


# --- objectives ----------------------------------------------------------------------------------


def batches(work: Work) -> list[Any]:
    """The common batches as the library's own."""
    makers = {"svgp": _rows, "flow": _rows, "rollout": _windows, "transition": _transitions, "forecast": _starts}
    return [makers[work.kind](work, arrays) for arrays in problem.batches(work)]


def _rows(work: Work, arrays: dict[str, np.ndarray]) -> Batch:
    dtype = work.dtype if work.kind == "svgp" else "float64"
    n_data = jnp.asarray(problem.n_data(work), dtype)
    return Batch(jnp.asarray(arrays["X"], dtype), jnp.asarray(arrays["y"], dtype), jnp.ones(work.rows, dtype), n_data)


def _windows(work: Work, arrays: dict[str, np.ndarray]) -> SeriesBatch:
    y = jnp.asarray(arrays["y"])
    ticks = y.shape[:2]
    start = jnp.asarray(arrays["start"])
    is_seen, is_scored = (jnp.ones(shape, bool) for shape in (y.shape, ticks))
    h, u, n_data = jnp.ones(ticks), jnp.zeros((*ticks, 0)), jnp.asarray(float(problem.n_data(work)))
    windows = WindowBatch(start, jnp.zeros(start.shape), h, u, y, is_seen, is_scored, jnp.ones(work.rows), n_data)
    return SeriesBatch(None, windows)


def _transitions(work: Work, arrays: dict[str, np.ndarray]) -> SeriesBatch:
    ones, n_data = jnp.ones(work.rows), jnp.asarray(float(problem.n_data(work)))
    X, increment = jnp.asarray(arrays["X"]), jnp.asarray(arrays["increment"])
    return SeriesBatch(TransitionBatch(X, increment, ones, ones, n_data), None)


def _starts(work: Work, arrays: dict[str, np.ndarray]) -> Any:
    return jnp.asarray(arrays["start"])


def loss_of(work: Work) -> Callable:
    """(model, batch, key) -> the negative objective."""
    dtype = jnp.dtype(work.dtype)
    if work.kind in ("svgp", "flow"):
        return lambda model, batch, key: negative_objective(model, batch, key, n_samples=work.n_samples, dtype=dtype)[0]
    loss = {"rollout": negative_rollout_objective, "transition": negative_transition_objective}[work.kind]
    return lambda model, batch, key: loss(model, batch, key, n_samples=work.n_samples, dtype=dtype)[0]


def forecast(work: Work, model: DynamicsModel, start: Any, key: Any) -> tuple[Any, Any]:
    """Paths of the library's simulator: the ends and the states before each step."""
    return simulate(key, model.field.prepare(), start, jnp.ones(work.n_steps), jnp.zeros((work.n_steps, 0)))


# --- the noise of the value ----------------------------------------------------------------------


def noise_of(work: Work) -> list[np.ndarray]:
    """The normals that the library draws from `VALUE_KEY`, in the order of their use, samples stacked as rows.

    This follows the splits of keys in `objectives`, `models` and `solver`; where they change, the values of the peers
    move away from ours and the comparison says so.
    """
    key, dtype = jax.random.key(VALUE_KEY), jnp.dtype(work.dtype)
    wide = work.dim if work.diffusion == "gp" else work.dof + work.rank
    if work.kind == "flow":
        carry = jax.random.split(jax.random.split(key)[0], 1)[0]
        keys = jax.random.split(jax.random.split(carry)[1], work.n_steps)
        drawn = [standard_normals(k, (work.rows, wide), dtype) for k in keys]
    elif work.kind == "rollout":
        drawn = _rollout_noise(work, key, dtype, wide)
    elif work.kind == "transition":
        k = jax.random.split(jax.random.split(key)[0], 1)[0]
        drawn = [standard_normals(k, (work.rows, work.rank, work.dof), dtype)]
    elif work.kind == "forecast":
        keys = jax.random.split(key, work.n_steps)
        drawn = [standard_normals(k, (work.rows, wide + work.dim), dtype) for k in keys]
    else:
        drawn = []
    return [np.asarray(array) for array in drawn]


def _rollout_noise(work: Work, key: Any, dtype: Any, wide: int) -> list[Any]:
    drawn, rows = [], work.n_samples * work.rows
    for tick in jax.random.split(jax.random.split(key, work.n_samples)[0], work.n_steps):
        k_step, k_score = jax.random.split(tick)
        drawn.append(standard_normals(k_step, (rows, wide + work.dim), dtype))
        drawn.append(standard_normals(k_score, (rows, work.rank, work.dof), dtype))
    return drawn


# --- the worker ----------------------------------------------------------------------------------


def prepare(work: Work, noise: Path | None, form: str) -> Prepared:
    """The compiled step and the value; the noise behind the value is written to `noise`."""
    with computing():
        if noise is not None and form == "full":
            problem.write_noise(noise, noise_of(work))
        model, data = build(work, form), batches(work)
        make = _prepare_forecast if work.kind == "forecast" else _prepare_steps
        return make(work, model, data)


def _prepare_forecast(work: Work, model: DynamicsModel, starts: list[Any]) -> Prepared:
    run = jax.jit(functools.partial(forecast, work), compiler_options=compiler_options())
    keys, turns = iter(_keys()), itertools.cycle(starts)

    def steps(n: int) -> None:
        with computing():
            for _ in range(n):
                jax.block_until_ready(run(model, next(turns), next(keys)))

    def value() -> float:
        # A program of its own, so that the first call of `run` is the one that compiles.
        with computing():
            end = jax.jit(functools.partial(forecast, work))(model, starts[0], jax.random.key(VALUE_KEY))[0]
            return float(jnp.mean(end**2))

    return Prepared(steps, value)


@dataclasses.dataclass(frozen=True)
class AdamStep:
    """A training step as a pure function, and where it starts.

    `take(vectors, state, batch, key)` gives the next ones, state and key and the value of `objective(vectors, batch,
    key)` before the step.
    """

    take: Callable
    objective: Callable
    vectors: Any
    state: Any


def adam_step(work: Work, model: Any) -> AdamStep:
    """Adam on all parameters but the jitters, packed as in training."""
    mask = jax.tree.map(lambda leaf: True, model)
    mask = eqx.tree_at(lambda m: [b.jitter for b in m.bases()], mask, replace_fn=lambda _: False)
    parameters, fixed = eqx.partition(model, mask)
    vectors, unpack = packed(parameters)
    loss = loss_of(work)

    def objective(vectors, batch, key):
        return loss(eqx.combine(unpack(vectors), fixed), batch, key)

    def take(vectors, state, batch, key):
        key, k_step = jax.random.split(key)
        value, gradient = jax.value_and_grad(objective)(vectors, batch, k_step)
        updates, state = ADAM.update(gradient, state)
        return optax.apply_updates(vectors, updates), state, key, value

    return AdamStep(take, objective, vectors, ADAM.init(vectors))


def training_step(work: Work, model: Any) -> tuple[Callable, AdamStep]:
    """The step, to be compiled at its first call or before, and where it starts."""
    start = adam_step(work, model)
    return jax.jit(start.take, donate_argnums=(0, 1), compiler_options=compiler_options()), start


def runner(step: Callable, start: AdamStep, data: list[Any], name: str) -> Callable[[int], None]:
    """run(n): n steps from where the last call ended, on the batches in turn."""
    # Copies: a step takes over the arrays that it is given.
    carried = [*jax.tree.map(jnp.copy, (start.vectors, start.state)), jax.random.key(0)]
    turns = itertools.cycle(data)

    def steps(n: int) -> None:
        with computing():
            for _ in range(n):
                *carried[:], loss_value = step(carried[0], carried[1], next(turns), carried[2])
            if not np.isfinite(float(loss_value)):
                raise FloatingPointError(f"the objective of {name} is {loss_value} after some steps.")

    return steps


def _prepare_steps(work: Work, model: Any, data: list[Any]) -> Prepared:
    start = adam_step(work, model)

    def take(carried, batch):
        *carried, loss = start.take(*carried[:2], batch, carried[2])
        return tuple(carried), loss

    loop = steps_in_a_loop(take, (start.vectors, start.state, jax.random.key(0)), data, compiler_options())

    def run(n: int) -> None:
        with computing():
            if not np.isfinite(loss := loop(n)):
                raise FloatingPointError(f"the objective of {work.name} is {loss} after some steps.")

    def value() -> float:
        with computing():
            return float(jax.jit(start.objective)(start.vectors, data[0], jax.random.key(VALUE_KEY)))

    return Prepared(run, value)


def _keys():
    key = jax.random.key(0)
    while True:
        key, drawn = jax.random.split(key)
        yield drawn


if __name__ == "__main__":
    serve(functools.partial(prepare, form=sys.argv[1]), PACKAGES)
