"""L-BFGS on the collapsed bound of a Gaussian sparse GP, with or without a prior on its hyperparameters.

Many models at once, or one on an accelerator: `optax.lbfgs` in compiled chunks. One model on the CPU: SciPy's L-BFGS-B
around a compiled value and gradient, which compiles in a fraction of the time (docs/decisions.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.optimize
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ..errors import TrainingError
from ..inducing import WhitenedPosterior
from ..numerics import platform
from ..numerics.devices import compiled, on_device
from ..numerics.meshes import agreed, on_all
from ..training.jitter import with_fresh_jitter
from ..training.journal import Journal
from ..training.loop import CONVERGED, REACHED, STOPPED
from ..training.phases import AbstractPhase, Outcome
from ..training.stacks import choose
from .batches import Batch
from .collapsed import CollapsedStatistics, collapsed_bound, collapsed_statistics, optimal_posterior
from .hyperprior import hyperprior_penalty
from .sparse_gp import SparseGPModel

Records = dict[str, Float[Array, " chunk"]]
# Parameters, optimiser, −bound / N and what is recorded.
Carry = tuple[PyTree, PyTree, Scalar, Records]

CHUNK = 50
# −bound / N where it cannot be computed.
TOO_FAR = 1e10
# Where its line search fails, optax takes a step all the same. One that raises −bound / N by more than rounding is
# refused, and the next one follows the gradient. Models that converged before others of their batch come here.
LARGEST_RISE = 1e-7
OPTIMISER = optax.lbfgs(memory_size=20, linesearch=optax.scale_by_zoom_linesearch(max_linesearch_steps=15))


class CollapsedState(eqx.Module):
    """Model and optimiser; `value` is the bound at the model."""

    model: SparseGPModel
    optimiser: PyTree
    value: Scalar


def _mask(model: SparseGPModel) -> PyTree:
    """Kernel, Z and noise are moved; q has been maximised out and the jitter is fixed during a run."""
    mask = jax.tree.map(lambda leaf: True, model)
    return eqx.tree_at(
        lambda m: (m.output.posterior, m.output.basis.jitter),
        mask,
        (jax.tree.map(lambda leaf: False, model.output.posterior), False),
    )


def _start_of_optimiser(parameters: PyTree) -> PyTree:
    # Strong types throughout: a weakly typed leaf would make the second chunk another program.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), OPTIMISER.init(parameters))


def start_collapsed(model: SparseGPModel) -> CollapsedState:
    optimiser = _start_of_optimiser(eqx.partition(model, _mask(model))[0])
    return CollapsedState(model, optimiser, jnp.full((), -jnp.inf, model.output.basis.Z.dtype))


def run_collapsed(
    state: CollapsedState, data: Batch, n: Int[Array, ""], prior: Scalar
) -> tuple[CollapsedState, Records]:
    """n ≤ CHUNK iterations; the bound is divided by N so that the line search sees numbers of order one.

    `prior` is the weight of the prior on the hyperparameters, 0 or 1.
    """
    parameters, fixed = eqx.partition(state.model, _mask(state.model))

    def loss(parameters: PyTree) -> Scalar:
        model = eqx.combine(parameters, fixed)
        value = (
            prior * hyperprior_penalty(model.output.basis.kernel, model.likelihood) - collapsed_bound(model, data)
        ) / data.n_data
        # A factorisation that fails is a step too far: the line search backs off from a large finite number.
        return jnp.where(jnp.isfinite(value), value, TOO_FAR)

    value_and_grad = optax.value_and_grad_from_state(loss)

    def body(i: Int[Array, ""], carry: Carry) -> Carry:
        parameters, optimiser, _, records = carry
        value, gradient = value_and_grad(parameters, state=optimiser)
        gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), gradient)
        updates, moved = OPTIMISER.update(gradient, optimiser, parameters, value=value, grad=gradient, value_fn=loss)
        new = optax.apply_updates(parameters, updates)
        is_good = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(new)]).all()
        new_value = optax.tree_utils.tree_get(moved, "value")
        is_kept = is_good & (new_value <= value + LARGEST_RISE)
        new, moved, new_value = jax.tree.map(
            lambda a, b: jnp.where(is_kept, a, b),
            (new, moved, new_value),
            (parameters, _start_of_optimiser(parameters), value),
        )
        noise = eqx.combine(new, fixed).likelihood.noise_summary()
        report = {"objective": -value * data.n_data, "noise": noise, "skipped": 1.0 - is_good}
        return new, moved, new_value, {name: records[name].at[i].set(value) for name, value in report.items()}

    records = {name: jnp.full((CHUNK,), jnp.nan) for name in ("objective", "noise", "skipped")}
    start = (parameters, state.optimiser, -state.value / data.n_data, records)
    parameters, optimiser, value, records = jax.lax.fori_loop(0, n, body, start)
    return CollapsedState(eqx.combine(parameters, fixed), optimiser, -value * data.n_data), records


def finish_collapsed(model: SparseGPModel, data: Batch) -> SparseGPModel:
    """The model with its optimal q."""
    return eqx.tree_at(lambda m: m.output.posterior, model, optimal_posterior(model, data))


@compiled
def collapsed_chunk(
    state: CollapsedState, data: Batch, n: Int[Array, ""], prior: Scalar
) -> tuple[CollapsedState, Records]:
    return run_collapsed(state, data, n, prior)


@compiled
def collapsed_chunk_many(
    states: CollapsedState, data: Batch, n: Int[Array, ""], prior: Scalar
) -> tuple[CollapsedState, dict[str, Float[Array, "R chunk"]]]:
    return jax.vmap(lambda s, d: run_collapsed(s, d, n, prior))(states, data)


@compiled
def collapsed_end(model: SparseGPModel, data: Batch) -> SparseGPModel:
    return finish_collapsed(model, data)


@compiled
def collapsed_end_many(models: SparseGPModel, data: Batch) -> SparseGPModel:
    return jax.vmap(finish_collapsed)(models, data)


@compiled
def _value_and_grad(
    vector: Float[Array, " n"], model: SparseGPModel, data: Batch, prior: Scalar
) -> tuple[Scalar, Float[Array, " n"], Scalar, WhitenedPosterior]:
    """−bound / N with the prior, its gradient, the noise and the best q, at the model whose parameters are one flat
    vector.

    q is needed once, at the end, but has a program in common with the rest: of an evaluation, which is some N M²
    operations, the M³ of q for each output are little, and a program for q alone would have to be compiled.
    """
    parameters, fixed = eqx.partition(model, _mask(model))

    def loss(parameters: PyTree) -> tuple[Scalar, tuple[SparseGPModel, CollapsedStatistics]]:
        model = eqx.combine(parameters, fixed)
        statistics = collapsed_statistics(model, data)
        value = prior * hyperprior_penalty(model.output.basis.kernel, model.likelihood) - collapsed_bound(
            model, data, statistics
        )
        return value / data.n_data, (model, statistics)

    (value, (model, statistics)), gradient = jax.value_and_grad(loss, has_aux=True)(ravel_pytree(parameters)[1](vector))
    q = optimal_posterior(model, data, statistics)
    return value, ravel_pytree(gradient)[0], model.likelihood.noise_summary(), q


def best_on_host(model: SparseGPModel, data: Batch) -> SparseGPModel:
    """`finish_collapsed` by the program of `CollapsedPhase` on the host."""
    vector = _raveled(eqx.partition(model, _mask(model))[0])
    best = _value_and_grad(on_device(vector), model, data, on_device(0.0))[3]
    return eqx.tree_at(lambda m: m.output.posterior, model, best)


def _raveled(tree: PyTree) -> np.ndarray:
    """`ravel_pytree` on the host, where its small operations need no programs."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def _unraveled(vector: np.ndarray, tree: PyTree) -> PyTree:
    """The vector in the shapes of the tree."""
    leaves, structure = jax.tree.flatten(tree)
    parts = np.split(vector, np.cumsum([leaf.size for leaf in leaves])[:-1])
    shaped = [on_device(part.reshape(leaf.shape)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def minimise_on_host(
    evaluate: Callable[[Array], tuple[Scalar, Array, Scalar]],
    parameters: PyTree,
    n_rows: float,
    n_iter: int,
    on_chunk: Callable[[int, dict[str, np.ndarray]], bool],
) -> tuple[PyTree, bool]:
    """Minimise with SciPy's L-BFGS-B; `on_chunk` sees every CHUNK iterations and may ask to stop.

    `evaluate` gives, for the parameters as one vector, −objective / N, its gradient and the noise. Ends when an
    iteration gains less than 1e-8 (relative to the objective per row). Returns the parameters and whether they
    converged.
    """
    last = {"value": np.inf, "noise": np.nan}

    def loss(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient, noise = (np.asarray(part) for part in evaluate(on_device(vector)))
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            # A factorisation that failed is a step too far: the line search backs off from a large number.
            return TOO_FAR, np.zeros_like(vector)
        last.update(value=float(value), noise=float(noise))
        return float(value), gradient

    values: list[tuple[float, float, float]] = []

    def after_iteration(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        values.append((-intermediate_result.fun * n_rows, last["noise"], 0.0))
        if len(values) % CHUNK == 0 and on_chunk(len(values), _records(values[-CHUNK:])):
            raise StopIteration

    result = scipy.optimize.minimize(
        loss,
        _raveled(parameters),
        jac=True,
        method="L-BFGS-B",
        callback=after_iteration,
        options={"maxiter": n_iter, "maxcor": 20, "maxfun": 20 * n_iter, "ftol": 1e-8, "gtol": 1e-7},
    )
    if not np.isfinite(last["value"]):
        raise not_finite()
    if not values:
        values.append((-last["value"] * n_rows, last["noise"], 0.0))
    if len(values) % CHUNK:
        on_chunk(len(values), _records(values[-(len(values) % CHUNK) :]))
    return _unraveled(result.x, parameters), bool(result.success)


@dataclasses.dataclass(frozen=True)
class CollapsedPhase(AbstractPhase):
    """L-BFGS on the collapsed bound: on the host for one model on the CPU, otherwise in compiled chunks.

    With `has_prior` the penalty of the hyperparameters is subtracted. It is never negative, so a bound stays one.
    """

    data: Batch
    n_iter: int
    mesh: Mesh | None = None
    has_prior: bool = False

    def run(self, models: PyTree, journal: Journal) -> Outcome:
        models = on_all(with_fresh_jitter(models, self.n_models), self.mesh)
        journal.begin(self.name, self.n_iter)
        if platform.minimises_on_host(self.n_models):
            return self._run_on_host(models, journal)
        is_many = self.n_models > 1
        state = eqx.filter_vmap(start_collapsed)(models) if is_many else start_collapsed(models)
        run = collapsed_chunk_many if is_many else collapsed_chunk
        best = None
        status = np.full(self.n_models, REACHED, object)
        n_rows = np.asarray(self.data.n_data).reshape(-1)
        for done in range(0, self.n_iter, CHUNK):
            n, is_open = min(CHUNK, self.n_iter - done), status == REACHED
            moved, records = run(state, self.data, on_device(n), on_device(float(self.has_prior)))
            # A model that has converged stays as it is beside others: it ends as it would alone, with as many records.
            state, records = choose(is_open, moved, state), jax.device_get(records)
            stop = journal.add(self.name, done + n, self.n_iter, records, n, self.is_bound, is_open)
            stop = agreed(stop, self.mesh)
            value = np.asarray(state.value).reshape(-1)
            if np.any(value <= -TOO_FAR * n_rows):
                raise not_finite()
            has_converged = np.zeros(self.n_models, bool) if best is None else value - best < 1e-5 * n_rows
            status[is_open & has_converged] = CONVERGED
            status[is_open & stop] = STOPPED
            if not (status == REACHED).any():
                break
            best = value
        finish = collapsed_end_many if is_many else collapsed_end
        ended = finish(with_fresh_jitter(state.model, self.n_models), self.data)
        return Outcome(ended, tuple(status))

    def _run_on_host(self, model: SparseGPModel, journal: Journal) -> Outcome:
        ended = [False]

        def on_chunk(step: int, records: dict[str, np.ndarray]) -> bool:
            stop = journal.add(self.name, step, self.n_iter, records, len(records["objective"]), self.is_bound)
            ended[0] = bool(agreed(stop, self.mesh).all())
            return ended[0]

        parameters, fixed = eqx.partition(model, _mask(model))
        prior, n_rows = on_device(float(self.has_prior)), float(self.data.n_data)

        def evaluate(vector: Array) -> tuple[Scalar, Array, Scalar]:
            return _value_and_grad(vector, model, self.data, prior)[:3]

        parameters, is_converged = minimise_on_host(evaluate, parameters, n_rows, self.n_iter, on_chunk)
        model = eqx.combine(parameters, fixed)
        status = CONVERGED if is_converged else STOPPED if ended[0] else REACHED
        return Outcome(best_on_host(with_fresh_jitter(model, 1), self.data), (status,))


def not_finite() -> TrainingError:
    """The error where the bound cannot be computed at the starting values."""
    return TrainingError(
        "the objective is not finite at the starting values of the kernel and the noise; expected a finite "
        "number. Variances and lengthscales are in units of scaled data: values near 1 are usual."
    )


def _records(values: list[tuple[float, float, float]]) -> dict[str, np.ndarray]:
    return dict(zip(("objective", "noise", "skipped"), np.array(values).T, strict=True))
