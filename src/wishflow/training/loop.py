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
import numpy as np
import pandas as pd
from jaxtyping import Float, Int, PyTree

from ..callbacks import CallbackList, ChunkEvent
from ..errors import FactorisationError, TrainingError
from ..inducing import kernel_matrix_on_host
from ..numerics import linalg
from ..numerics.devices import on_device, random_key
from . import chunk
from .bounds import weighted
from .schedule import Convergence, kl_weights, rates_from
from .stacks import choose, stacked, unstacked
from .steps import AbstractSteps
from .validation import BestState

STEPS_PER_CHUNK = 100
SKIPPED_LIMIT = 20
# Models are chosen by held-back rows after this part of the iterations; in the rest they see all rows.
FIRST_PART = 0.7
# Of positions in a schedule that are sums of strides.
ROUNDING = 1e-6
# All rows are seen in at least so many steps.
LEAST_STEPS = 20
STOPPED = "stopped by a callback"
GAVE_UP = "stopped: the last steps were not finite"
DIVERGED = "diverged"
# The column of the history with the mean log density of held-back rows, known at the end of each chunk.
HELD_OUT = "held_out_log_density"
# Chunks without a better prediction of the held-back rows after which training ends.
PATIENCE = 20
# Steps of rate zero that estimate the objective at one state.
N_ESTIMATES = 10
# Training that ends this many nats per row, and more than its sampling error, below its start has diverged.
FALL = 0.01


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model, its history (one row for each iteration), how training ended, and what the model is."""

    model: Any
    history: pd.DataFrame
    n_iter: int
    status: str
    spec: Any


class Run:
    """One group on its way through the phases; `models` is stacked where there are several."""

    def __init__(
        self, problems: list[Any], calls: CallbackList, indices: Any, n_models: int, started: float | None = None
    ) -> None:
        first = problems[0]
        self.problems, self.calls, self.indices, self.n_models = problems, calls, list(indices), n_models
        self.spec, self.training = first.spec, first.training
        self.is_many = len(problems) > 1
        self.records: list[list[dict[str, Any]]] = [[] for _ in problems]
        self.status = ["reached max_iter"] * len(problems)
        self.started = time.perf_counter() if started is None else started
        self.data: PyTree = None
        self.n_rows = np.zeros(len(problems))
        self.best: BestState | None = None

    def _stochastic_phase(
        self,
        models: PyTree,
        phase: str,
        n_iter: int,
        peak: float | Callable,
        steps: AbstractSteps,
        held_back: Any = None,
        rest: Rest | None = None,
    ) -> PyTree:
        """Train and return the models as they end.

        With held-back rows: as they are chosen by these, in the first part of the schedule. With `rest`: on through
        what is left of the schedule.
        """
        training, n_models = self.training, len(self.problems)
        models = self._refresh_jitter(models)
        state = sound = self._start_states(models, steps)
        run = chunk.train_chunk_many if self.is_many else chunk.train_chunk
        start = self._parts(state, steps)
        self._require_finite(start["bound"], phase)
        last = n_iter if held_back is None else first_part(n_iter)
        rest = Rest.whole(n_models) if rest is None else rest
        n_planned = rest.n_steps(rest.position, last)
        self.calls.on_start(phase, n_planned)
        self.status = ["reached max_iter"] * n_models
        position, done, kl_weight = rest.position, 0, kl_weights(training, rest.position)
        watch = Convergence(training, n_iter, self.n_rows)
        best = None if held_back is None else BestState(held_back, state.model)
        while (position < last - ROUNDING).any():
            n = min(STEPS_PER_CHUNK, rest.n_steps(position, last))
            planned = position[:, None] + rest.stride[:, None] * np.arange(n)
            rates = rates_from(training, peak, n_iter, planned if self.is_many else planned[0])
            before = state
            state, records = run(state, self.data, rates, on_device(n), steps)
            records = jax.device_get(records)
            bounds = records["bound"].reshape(n_models, -1)[:, :n]
            sound = choose(np.isfinite(bounds[:, 0]), before, sound)
            kl_weight = kl_weights(training, np.minimum(planned[:, -1], n_iter))
            position, done = position + n * rest.stride, done + n
            if best is not None:
                records |= {HELD_OUT: at_the_end(best.score(state.model, done), records["bound"], n)}
            stop = self._report(phase, done, n_planned, records, n)
            moved = watch.advance(position, np.nanmean(bounds, axis=1))
            self._note_convergence(position, moved, n_iter)
            state, is_stuck = self._mend(state)
            position = np.where(stop | is_stuck, n_iter, moved)
            if best is not None:
                position = self._stop_where_stale(position, best, n_iter)
        end = self._parts(state, steps)
        self._warn_where_it_fell(phase, start, end, kl_weight)
        if best is not None:
            best.settle()
            self.best = best
            return best.models
        return choose(np.isfinite(end["bound"]).all(axis=1), state, sound).model

    # --- parts of a phase ---

    def _parts(self, state: chunk.TrainState, steps: AbstractSteps) -> dict[str, Float[np.ndarray, "K n"]]:
        """The parts of the objective of each model at its state: several estimates, from steps of rate zero."""
        run = chunk.train_chunk_many if self.is_many else chunk.train_chunk
        nowhere = np.zeros((len(self.problems), N_ESTIMATES) if self.is_many else N_ESTIMATES, int)
        rates = rates_from(self.training, 0.0, 0, nowhere)
        _, records = run(state, self.data, rates, on_device(N_ESTIMATES), steps)
        return {k: np.asarray(v).reshape(len(self.problems), -1)[:, :N_ESTIMATES] for k, v in records.items()}

    def _require_finite(self, bounds: Float[np.ndarray, "K n"], phase: str) -> None:
        """There is nothing to train from, and nothing to keep, where the objective is not finite at the start."""
        for i in np.flatnonzero(~np.isfinite(bounds).all(axis=1)):
            raise TrainingError(
                f"the objective of model {self.indices[i]} is not finite before the first step of phase {phase!r}; "
                "expected a number. Check the starting values of the kernel (its variance and lengthscales are in "
                "units of scaled data) and the scale of the data."
            )

    def _warn_where_it_fell(
        self, phase: str, start: dict[str, Any], end: dict[str, Any], kl_weight: np.ndarray
    ) -> None:
        """Training is to raise its objective: where it ends below its start, or is not finite, it has diverged.

        Both are compared with the weight of the KL terms that training ended with.
        """
        (before, error), (after, other) = (_estimate(weighted(parts, kl_weight[:, None])) for parts in (start, end))
        has_fallen = ~(after >= before - FALL * self.n_rows - 3.0 * np.hypot(error, other))
        for i in np.flatnonzero(has_fallen):
            if GAVE_UP in self.status[i]:  # of which there was a warning
                continue
            self.status[i] = f"{DIVERGED}: the objective fell from {before[i]:.6g} to {after[i]:.6g}"
            warnings.warn(
                f"training of model {self.indices[i]}, phase {phase!r}, {self.status[i]}; lower learning_rate, or "
                "check the scale of the data.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _stop_where_stale(self, position: np.ndarray, best: BestState, n_iter: int) -> np.ndarray:
        is_stale = (best.stale >= PATIENCE) & (position < n_iter)
        for i in np.flatnonzero(is_stale):
            self.status[i] = "held-back rows were no longer predicted better"
        return np.where(is_stale, n_iter, position)

    def _note_convergence(self, before: np.ndarray, after: np.ndarray, n_iter: int) -> None:
        for i in np.flatnonzero((after >= n_iter) & (before < n_iter)):
            self.status[i] = "converged"

    def _start_states(self, models: PyTree, steps: AbstractSteps) -> chunk.TrainState:
        keys = [random_key(p.seed) for p in self.problems]
        states = [
            chunk.start_state(m, k, steps) for m, k in zip(unstacked(models, len(self.problems)), keys, strict=True)
        ]
        return stacked(states)

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
            self.status[i] = f"{GAVE_UP}; the last good state was kept"
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
        for model in unstacked(models, len(self.problems)):
            jitters = []
            for basis in model.bases():
                Kzz, scale = kernel_matrix_on_host(basis)
                needed = linalg.choose_jitter(Kzz, scale, f"Kzz of {basis.n_inducing} inducing points")
                jitters.append(on_device(max(needed, float(basis.jitter)), basis.jitter.dtype))
            refreshed.append(eqx.tree_at(lambda m: [b.jitter for b in m.bases()], model, jitters))
        return stacked(refreshed)

    def _package(self, models: PyTree) -> list[Trained]:
        """Models with NumPy leaves: they pickle and stay float64 whatever JAX is set to."""
        trained = []
        parts = zip(unstacked(models, len(self.problems)), self.records, self.status, self.problems, strict=True)
        for model, records, status, problem in parts:
            history = _history(records)
            if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model)):
                raise TrainingError(
                    f"training ended with parameters that are not finite (status: {status}); expected numbers. Check "
                    "the starting values of the kernel and the scale of the data, or lower learning_rate."
                )
            trained.append(Trained(jax.tree.map(np.asarray, model), history, len(history), status, problem.spec))
        return trained


@dataclasses.dataclass(frozen=True)
class Rest:
    """Where in the schedule each of K models goes on, and how many positions it passes with each step."""

    position: Float[np.ndarray, " K"]
    stride: Float[np.ndarray, " K"]

    @classmethod
    def whole(cls, n_models: int) -> Rest:
        """The whole schedule, position by position."""
        return cls(np.zeros(n_models), np.ones(n_models))

    @classmethod
    def after(cls, step: Int[np.ndarray, " K"], n_iter: int) -> Rest:
        """What is left of n_iter positions after the best state, in time that is in proportion to that state's.

        A state at the end of the first part passes position after position; one from early on is near the data it was
        chosen by, and takes fewer and longer strides.
        """
        share = 1.0 / FIRST_PART - 1.0
        n_steps = np.clip(np.round(share * step), min(LEAST_STEPS, share * n_iter), share * n_iter).round()
        return cls(step.astype(float), (n_iter - step) / np.maximum(n_steps, 1.0))

    def n_steps(self, position: np.ndarray, last: int) -> int:
        """How many steps it takes until the last of the models has arrived."""
        return max(0, int(np.ceil((last - position - ROUNDING) / self.stride).max()))


def first_part(n_iter: int) -> int:
    """How many of the iterations of a flow go by before it is chosen."""
    return max(1, round(FIRST_PART * n_iter))


def _estimate(values: Float[np.ndarray, "K n"]) -> tuple[np.ndarray, np.ndarray]:
    """Means, and their standard errors."""
    with np.errstate(invalid="ignore"):
        return values.mean(axis=1), values.std(axis=1) / np.sqrt(values.shape[1])


def at_the_end(values: np.ndarray, like: np.ndarray, n: int) -> np.ndarray:
    """A record of a chunk of n steps that is known at its last step alone: NaN before it."""
    record = np.full(like.shape, np.nan)
    record[..., n - 1] = values if record.ndim > 1 else values[0]
    return record


def _history(records: list[dict[str, Any]]) -> pd.DataFrame:
    """One row for each iteration, from what was kept of each chunk; one frame for each phase, not for each chunk."""
    frames = []
    for phase, chunks in itertools.groupby(records, key=lambda record: record["phase"]):
        parts = list(chunks)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "phase"}
        frames.append(pd.DataFrame({"phase": phase, **columns}))
    return pd.concat(frames, ignore_index=True)
