"""The loop on the host: phases, chunks, callbacks, convergence, jitter; for one model or for many of equal shape at
once.

A *group* is a list of problems trained by one program: on an accelerator all of them under `vmap`; on the CPU each by
itself, because batched factorisations can hang there (design, section 3) and gain nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import PyTree

from .. import linalg
from ..callbacks import Callback, CallbackList, ChunkEvent
from ..errors import FactorisationError
from ..fields.dynamic import Layout
from ..inducing import kernel_matrix_on_host
from ..initialise import inducing_points, padded_batch, series_batch, size_class
from ..models import flow, model_builder, sparse_gp
from ..models.dynamics import Start
from ..models.latent import LatentStart
from ..runtime import on_accelerator, on_device, random_key
from ..series import Transitions, Windows
from ..specs import DynamicsSpec, FlowSpec, Gaussian, NoDiffusion, SparseGPSpec, TrainingSpec
from . import chunk, collapsed
from .schedule import Convergence, rates_from
from .steps import AbstractSteps, RowSteps, SeriesSteps

STEPS_PER_CHUNK = 100
SKIPPED_LIMIT = 20
# A window of ticks costs about as much as this many single transitions.
WINDOWS_SHARE = 64
LATENT_SHARE = 16
STOPPED = "stopped by a callback"
# Variance of the field of a flow that is at rest.
AT_REST = 1e-12
# A sparse GP that is to catch up with a flow is given up where twice its present pace would not do, and where more than
# this many nats per row are missing.
HOPE = 2.0
NEAR = 0.01


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model to train on scaled data; a state may be wider than the inputs, which are its first `n_inputs` columns
    (None: all).
    """

    spec: SparseGPSpec | FlowSpec
    training: TrainingSpec
    X: np.ndarray
    y: np.ndarray
    n_inducing: int
    seed: int
    learning_rate: float | Callable | None = None
    n_inputs: int | None = None


@dataclasses.dataclass(frozen=True)
class SeriesProblem:
    """A time series to train on: the items it is scored on, where training starts, and the inducing points."""

    spec: DynamicsSpec
    training: TrainingSpec
    layout: Layout
    transitions: Transitions | None
    windows: Windows
    start: Start | LatentStart
    Z: np.ndarray
    seed: int
    learning_rate: float | Callable | None = None
    model: Any = None

    @property
    def n_items(self) -> int:
        return (0 if self.transitions is None else len(self.transitions)) + int(self.windows.is_scored.sum())


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model, its history (one row for each iteration), how training ended, and what the model is."""

    model: Any
    history: pd.DataFrame
    n_iter: int
    status: str
    spec: Any


def train(problems: list[Problem], callbacks: Any = None) -> list[Trained]:
    """Train every problem; those of one call must have models of equal shape where they are trained together."""
    with CallbackList(callbacks) as calls:
        if on_accelerator() and len(problems) > 1:
            return _RowsRun(problems, calls, range(len(problems)), len(problems)).run()
        runs = [_RowsRun([problem], calls, [i], len(problems)) for i, problem in enumerate(problems)]
        return [run.run()[0] for run in runs]


def train_series(problem: SeriesProblem, callbacks: Any = None) -> Trained:
    """Train one model of a time series."""
    with CallbackList(callbacks) as calls:
        return _SeriesRun(problem, calls).run()[0]


class _Run:
    """One group on its way through the phases; `models` is stacked where there are several."""

    def __init__(self, problems: list[Any], calls: CallbackList, indices: Any, n_models: int) -> None:
        first = problems[0]
        self.problems, self.calls, self.indices, self.n_models = problems, calls, list(indices), n_models
        self.spec, self.training = first.spec, first.training
        self.is_many = len(problems) > 1
        self.records: list[list[dict[str, Any]]] = [[] for _ in problems]
        self.status = ["reached max_iter"] * len(problems)
        self.started = time.perf_counter()
        self.data: PyTree = None
        self.n_rows = np.zeros(len(problems))

    def _stochastic_phase(
        self, models: PyTree, phase: str, n_iter: int, peak: float | Callable, steps: AbstractSteps
    ) -> PyTree:
        training, n_models = self.training, len(self.problems)
        models = self._refresh_jitter(models)
        state = self._start_states(models, steps)
        run = chunk.train_chunk_many if self.is_many else chunk.train_chunk
        self.calls.on_start(phase, n_iter)
        self.status = ["reached max_iter"] * n_models
        position, done = np.zeros(n_models, int), 0
        watch = Convergence(training, n_iter, self.n_rows)
        while (position < n_iter).any():
            n = int(min(STEPS_PER_CHUNK, (n_iter - position).max()))
            planned = position[:, None] + np.arange(n) if self.is_many else position[0] + np.arange(n)
            rates = rates_from(training, peak, n_iter, planned)
            state, records = run(state, self.data, rates, on_device(n), steps)
            records = jax.device_get(records)
            position, done = position + n, done + n
            stop = self._report(phase, done, n_iter, records, n)
            bound = np.nanmean(records["bound"].reshape(n_models, -1)[:, :n], axis=1)
            moved = watch.advance(position, bound)
            self._note_convergence(position, moved, n_iter)
            state, is_stuck = self._mend(state)
            position = np.where(stop | is_stuck, n_iter, moved)
        return state.model

    # --- parts of a phase ---

    def _note_convergence(self, before: np.ndarray, after: np.ndarray, n_iter: int) -> None:
        for i in np.flatnonzero((after >= n_iter) & (before < n_iter)):
            self.status[i] = "converged"

    def _start_states(self, models: PyTree, steps: AbstractSteps) -> chunk.TrainState:
        keys = [random_key(p.seed) for p in self.problems]
        states = [chunk.start_state(m, k, steps) for m, k in zip(self._unstack(models), keys, strict=True)]
        return self._stack(states)

    def _report(self, phase: str, step: int, n_steps: int, records: Any, n: int) -> np.ndarray:
        """Keep the records, tell the callbacks; which models a callback asked to stop."""
        stop = np.zeros(len(self.problems), bool)
        seconds = time.perf_counter() - self.started
        for i, index in enumerate(self.indices):
            mine = {k: (v[i] if self.is_many else v)[:n] for k, v in records.items()}
            times = {"step": np.arange(step - n, step), **mine, "seconds": np.full(n, seconds)}
            self.records[i].append({"phase": phase, **times})
            shown = {**mine, "noise": np.sqrt(mine["noise"])}
            event = ChunkEvent(phase, step, n_steps, shown, seconds, index, self.n_models)
            stop[i] = bool(self.calls.on_chunk(event))
            if stop[i]:
                self.status[i] = STOPPED
        return stop

    def _mend(self, state: chunk.TrainState) -> tuple[chunk.TrainState, np.ndarray]:
        """After skipped steps choose the jitter anew; a model that still takes no step keeps its last good state."""
        skipped = np.asarray(state.skipped).reshape(-1)
        if not skipped.any():
            return state, np.zeros(len(skipped), bool)
        is_stuck = skipped >= SKIPPED_LIMIT
        before = [np.asarray(b.jitter) for b in state.model.bases()]
        try:
            state = eqx.tree_at(lambda s: s.model, state, self._refresh_jitter(state.model))
        except FactorisationError:
            return state, self._give_up(is_stuck)
        after = [np.asarray(b.jitter) for b in state.model.bases()]
        is_mended = np.any([np.reshape(a != b, -1) for a, b in zip(after, before, strict=True)], axis=0)
        return state, self._give_up(is_stuck & ~is_mended)

    def _give_up(self, is_stuck: np.ndarray) -> np.ndarray:
        for i in np.flatnonzero(is_stuck):
            self.status[i] = "stopped: the last steps were not finite; the last good state was kept"
            warnings.warn(
                f"training of model {self.indices[i]} {self.status[i]}; "
                "lower learning_rate or check the scale of the data.",
                RuntimeWarning,
                stacklevel=2,
            )
        return is_stuck

    def _refresh_jitter(self, models: PyTree) -> PyTree:
        """The smallest jitter that factorises each Kzz, never below the one the model was built with."""
        refreshed = []
        for model in self._unstack(models):
            jitters = []
            for basis in model.bases():
                Kzz, scale = kernel_matrix_on_host(basis)
                needed = linalg.choose_jitter(Kzz, scale, f"Kzz of {basis.n_inducing} inducing points")
                jitters.append(on_device(max(needed, float(basis.jitter)), basis.jitter.dtype))
            refreshed.append(eqx.tree_at(lambda m: [b.jitter for b in m.bases()], model, jitters))
        return self._stack(refreshed)

    def _package(self, models: PyTree) -> list[Trained]:
        """Models with NumPy leaves: they pickle and stay float64 whatever JAX is set to."""
        trained = []
        ends = zip(self._unstack(models), self.records, self.status, self.problems, strict=True)
        for model, records, status, problem in ends:
            history = _history(records)
            trained.append(Trained(jax.tree.map(np.asarray, model), history, len(history), status, problem.spec))
        return trained

    # --- one or many ---

    def _stack(self, trees: list[PyTree]) -> PyTree:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees) if self.is_many else trees[0]

    def _unstack(self, tree: PyTree) -> list[PyTree]:
        if not self.is_many:
            return [tree]
        return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(len(self.problems))]


def _history(records: list[dict[str, Any]]) -> pd.DataFrame:
    """One row for each iteration, from what was kept of each chunk; one frame for each phase, not for each chunk."""
    frames = []
    for phase, chunks in itertools.groupby(records, key=lambda record: record["phase"]):
        parts = list(chunks)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "phase"}
        frames.append(pd.DataFrame({"phase": phase, **columns}))
    return pd.concat(frames, ignore_index=True)


class CatchingUp(Callback):
    """Stops a model that will not end above the bound it is to beat (by its index; `rows` are those of its data).

    L-BFGS gains less and less, so what is left of the steps brings hardly more than as many times its last gain.
    """

    def __init__(self, ends: dict[int, float], rows: dict[int, int]) -> None:
        self.ends, self.rows = ends, rows
        self.before: dict[int, tuple[int, float]] = {}

    def on_chunk(self, event: ChunkEvent) -> bool:
        bound = float(event.records["bound"][-1])
        step, last = self.before.get(event.model_index, (event.step, -np.inf))
        self.before[event.model_index] = event.step, bound
        if event.step == step or not np.isfinite(self.ends[event.model_index]):
            return False
        pace = max(bound - last, 0.0) / (event.step - step)
        missing = self.ends[event.model_index] - bound
        return missing > max(HOPE * pace * (event.n_steps - event.step), NEAR * self.rows[event.model_index])


class _RowsRun(_Run):
    """Regression and classification: a sparse GP, then the flow."""

    def __init__(self, problems: list[Problem], calls: CallbackList, indices: Any, n_models: int) -> None:
        super().__init__(problems, calls, indices, n_models)
        n_rows = size_class(max(len(p.X) for p in problems))
        self.data = self._stack([padded_batch(p.X, p.y, n_rows) for p in problems])
        self.n_rows = np.array([len(p.X) for p in problems])
        self.Z = [inducing_points(p.X, p.n_inducing, p.seed) for p in problems]

    def run(self) -> list[Trained]:
        bases = [SparseGPSpec(p.spec.kernel, p.spec.likelihood) for p in self.problems]
        y_width = [p.y.shape[1] for p in self.problems]
        parts = zip(bases, self.Z, y_width, strict=True)
        models = self._stack([sparse_gp.build(base, self.training, Z, width) for base, Z, width in parts])
        is_flow = isinstance(self.spec, FlowSpec)
        if not is_flow or self.training.warm_iter > 0:
            models = self._warm_start(models, "output" if is_flow else "fit")
        if not is_flow:
            return self._package(models)
        flows = self._package(self._flow_phase(models))
        if not (self.training.falls_back and self._is_collapsed):
            return flows
        return [self._better(*pair) for pair in zip(range(len(flows)), flows, self._sparse_gps(bases[0]), strict=True)]

    @property
    def _is_collapsed(self) -> bool:
        """Whether q of the output can be maximised out."""
        training, n = self.training, max(len(p.X) for p in self.problems)
        return training.collapsed and isinstance(self.spec.likelihood, Gaussian) and n <= training.collapsed_limit

    def _warm_start(self, models: PyTree, phase: str) -> PyTree:
        training = self.training
        if self._is_collapsed:
            return self._collapsed_phase(models, phase, training.warm_iter)
        # Where there is no flow this phase is the whole fit, and a user's schedule is its rate.
        schedule = self.problems[0].learning_rate if phase == "fit" else None
        rate = training.warm_rate if schedule is None else schedule
        return self._stochastic_phase(models, phase, training.warm_iter, rate, self._steps(1))

    def _sparse_gps(self, spec: SparseGPSpec) -> list[Trained]:
        """The sparse GP alone, for each problem, as far as it may still end above the flow."""
        training = self.training.without_flow()
        problems = [dataclasses.replace(p, spec=spec, training=training, X=p.X[:, : p.n_inputs]) for p in self.problems]
        ends = {index: self._last_bound(i) for i, index in enumerate(self.indices)}
        rows = {index: len(p.X) for index, p in zip(self.indices, self.problems, strict=True)}
        return _RowsRun(problems, CallbackList(CatchingUp(ends, rows)), self.indices, self.n_models).run()

    def _last_bound(self, i: int) -> float:
        """The mean of the flow's last chunk: a single one is noisy."""
        return float(self.records[i][-1]["bound"].mean())

    def _better(self, i: int, trained: Trained, gp: Trained) -> Trained:
        """The flow, or the sparse GP at flow time 0 where its bound is above the mean of the flow's last chunk."""
        is_stopped = trained.status == STOPPED
        if is_stopped or self._last_bound(i) >= gp.history["bound"].iloc[-1]:
            return trained
        assert isinstance(self.spec, FlowSpec)
        spec = dataclasses.replace(self.spec, flow_time=0.0)
        model = self._flow_from(i, spec, gp.model, dataclasses.replace(self.training, field_variance=AT_REST))
        status = "the sparse GP without a flow has the higher bound and was kept"
        seconds = trained.history["seconds"].iloc[-1] + gp.history["seconds"]
        end = gp.history.assign(phase="sparse GP", seconds=seconds)
        history = pd.concat([trained.history, end], ignore_index=True)
        return dataclasses.replace(
            trained,
            model=jax.tree.map(np.asarray, model),
            history=history,
            n_iter=len(history),
            status=status,
            spec=spec,
        )

    def _flow_from(self, i: int, spec: FlowSpec, start: Any, training: TrainingSpec) -> Any:
        """A flow near the identity whose output is that of a sparse GP."""
        problem, Z = self.problems[i], self.Z[i]
        if training.field_inducing is not None:
            Z = inducing_points(problem.X, min(training.field_inducing, problem.n_inducing), problem.seed)
        # As wide as the GP: one that was fitted beside a flow knows the inputs alone.
        Z = Z[:, : start.output.basis.Z.shape[1]]
        return flow.build(spec, training, start, Z, random_key(problem.seed + 1))

    def _flow_phase(self, models: PyTree) -> PyTree:
        spec, training = self.spec, self.training
        assert isinstance(spec, FlowSpec)
        starts = self._unstack(models)
        flows = self._stack([self._flow_from(i, spec, start, training) for i, start in enumerate(starts)])
        rate = training.learning_rate if self.problems[0].learning_rate is None else self.problems[0].learning_rate
        n_samples = 1 if isinstance(spec.diffusion, NoDiffusion) else training.n_train_samples
        return self._stochastic_phase(flows, "flow", training.max_iter, rate, self._steps(n_samples))

    def _collapsed_phase(self, models: PyTree, phase: str, n_iter: int) -> PyTree:
        models = self._refresh_jitter(models)
        if not self.is_many and not on_accelerator():
            return self._host_collapsed(models, phase, n_iter)
        self.calls.on_start(phase, n_iter)
        start = eqx.filter_vmap(collapsed.start_collapsed) if self.is_many else collapsed.start_collapsed
        state = start(models)
        run = collapsed.collapsed_chunk_many if self.is_many else collapsed.collapsed_chunk
        best = None
        for done in range(0, n_iter, collapsed.CHUNK):
            n = min(collapsed.CHUNK, n_iter - done)
            state, records = run(state, self.data, on_device(n))
            stop = self._report(phase, done + n, n_iter, jax.device_get(records), n)
            value = np.asarray(state.value).reshape(-1)
            n_rows = np.asarray(self.data.n_data).reshape(-1)
            if stop.all() or (best is not None and np.all(value - best < 1e-5 * n_rows)):
                self.status = ["converged"] * len(self.problems)
                break
            best = value
        end = collapsed.collapsed_end_many if self.is_many else collapsed.collapsed_end
        return end(self._refresh_jitter(state.model), self.data)

    def _host_collapsed(self, model: PyTree, phase: str, n_iter: int) -> PyTree:
        self.calls.on_start(phase, n_iter)
        ended = [False]

        def on_chunk(step: int, records: dict[str, np.ndarray]) -> bool:
            ended[0] = bool(self._report(phase, step, n_iter, records, len(records["bound"])).all())
            return ended[0]

        model, is_converged = collapsed.minimise_on_host(model, self.data, n_iter, on_chunk)
        if is_converged or ended[0]:
            self.status = ["converged" if is_converged else STOPPED]
        return collapsed.best_on_host(self._refresh_jitter(model), self.data)

    def _steps(self, n_samples: int) -> RowSteps:
        training = self.training
        is_natural = training.natural_rate is not None
        return RowSteps(
            n_samples,
            training.flow_dtype,
            is_natural,
            training.path_average,
            self._batch_size(n_samples),
            fixed_inducing=training.fixed_inducing,
        )

    def _batch_size(self, n_samples: int) -> int:
        """The whole data where they fit, so that the size class of the rows is the size of the batch."""
        n_rows, size = self.data.X.shape[-2], self.training.batch_rows(n_samples)
        return n_rows if max(len(p.X) for p in self.problems) <= size else size


class _SeriesRun(_Run):
    """A time series: one phase on transitions and windows."""

    def __init__(self, problem: SeriesProblem, calls: CallbackList) -> None:
        super().__init__([problem], calls, [0], 1)
        self.data = series_batch(problem.transitions, problem.windows)
        self.n_rows = np.array([problem.n_items])

    def run(self) -> list[Trained]:
        problem, training = self.problems[0], self.training
        model = problem.model
        if model is None:
            key = random_key(problem.seed + 1)
            build = model_builder(problem.spec)
            model = build(problem.spec, problem.layout, problem.start, problem.Z, key)
        rate = training.learning_rate if problem.learning_rate is None else problem.learning_rate
        steps = SeriesSteps(
            training.n_train_samples,
            training.flow_dtype,
            False,
            training.path_average,
            n_transitions=training.batch_size,
            n_windows=max(1, training.batch_size // (WINDOWS_SHARE if problem.spec.latent is None else LATENT_SHARE)),
            objective=problem.spec.objective,
            is_latent=problem.spec.latent is not None,
        )
        return self._package(self._stochastic_phase(model, "series", training.max_iter, rate, steps))
