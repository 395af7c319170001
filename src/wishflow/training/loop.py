"""The loop on the host around compiled chunks of steps: one phase for one model, or for many of equal shape at once.

The state between two chunks is one pytree (`PhaseState`); `begin`, `advance`, `stopped` and `end` are functions of it.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from ..errors import CheckpointError, TrainingError, TrainingWarning
from ..numerics.devices import on_device, random_key
from ..numerics.meshes import agreed, gathered, is_first_process, on_all
from . import chunk
from .backoff import MOST_TRIES, Trouble, another_try, warn_of_skipped_steps, with_jitter_that_works
from .checkpoints import Checkpoints, checkpoints_among
from .jitter import with_fresh_jitter
from .journal import Journal
from .objective import weighted
from .phases import FIRST_PART, ROUNDING, AbstractPhase, Items, Outcome, Schedule, Stretch
from .schedule import Watch, kl_weights, rates_from
from .stacks import choose, stacked, unstacked
from .steps import AbstractSteps
from .validation import AbstractHeldBack, BestState

STEPS_PER_CHUNK = 100
# Chunks without a better prediction of the held-back rows after which training ends.
PATIENCE = 20
# Steps of rate zero that estimate the objective at one state.
N_ESTIMATES = 10
# Training that ends this many nats per row, and more than its sampling error, below its start has diverged.
FALL = 0.01
# The column of the history with the mean log density of held-back rows, known at the end of each chunk.
HELD_OUT = "held_out_log_density"

REACHED, CONVERGED, STOPPED = "reached max_iter", "converged", "stopped by a callback"
STALE = "held-back rows were no longer predicted better"
GAVE_UP = "stopped: the last steps were not finite, even with smaller step sizes; the last good state was kept"
DIVERGED = "diverged"
# How a model ended, by the number in the state.
STATUSES = (REACHED, CONVERGED, STOPPED, STALE, GAVE_UP)


def went_wrong(status: str) -> bool:
    """Whether training diverged or gave up."""
    return f"{DIVERGED}:" in status or GAVE_UP.partition(";")[0] in status


def warn_of(statuses: Sequence[str]) -> None:
    """Warn of fits in workers that went wrong: their own warnings stay there."""
    for status in filter(went_wrong, statuses):
        warnings.warn(
            f"training of a member on a backend {status}; lower learning_rate or check the scale of the data.",
            TrainingWarning,
            stacklevel=4,
        )


class PhaseState(eqx.Module):
    """All that a phase of stochastic steps carries from chunk to chunk, for K models.

    `sound` is the last state whose objective was finite, `sound_at` its place in the schedule, `position` the present
    place and `done` the number of steps; `begin` holds the parts of the objective before the first step, `status`
    indices of `STATUSES`.
    """

    train: chunk.TrainState
    sound: chunk.TrainState
    sound_at: Float[np.ndarray, " K"]
    position: Float[np.ndarray, " K"]
    done: Int[np.ndarray, ""]
    kl_weight: Float[np.ndarray, " K"]
    watch: Watch
    begin: dict[str, Float[np.ndarray, "K n"]]
    status: Int[np.ndarray, " K"]
    best: BestState | None
    trouble: Trouble


@dataclasses.dataclass(frozen=True)
class StochasticPhase(AbstractPhase):
    """Stochastic steps through a schedule.

    With `held_back` rows the models end as these choose, in the first part of the schedule. `rest` is where the
    schedule begins (None: at its beginning).
    """

    steps: AbstractSteps
    items: Items
    schedule: Schedule
    held_back: AbstractHeldBack | None = None
    rest: Stretch | None = None

    @property
    def last(self) -> int:
        """The position at which the phase ends."""
        n_iter = self.schedule.n_iter
        return n_iter if self.held_back is None else max(1, round(FIRST_PART * n_iter))

    @property
    def stretch(self) -> Stretch:
        """The part of the schedule that the phase goes through."""
        return Stretch.whole(self.n_models) if self.rest is None else self.rest

    def run(self, models: PyTree, journal: Journal) -> Outcome:
        start = begin(self, models, journal.indices)
        kept = KeptPhase.of(self, journal)
        state = placed(self, kept.restored(start))
        _warn_of_giving_up(self, state.status == STATUSES.index(GAVE_UP), journal.indices)
        n_planned = self.stretch.n_steps(self.stretch.position, self.last)
        journal.begin(self.name, n_planned)
        if state.done > 0:  # in an earlier run
            journal.resume(self.name, max(n_planned, int(state.done)))
        if agreed(np.array(kept.is_interrupted), self.steps.mesh):  # in an earlier phase: this one only begins
            state = stopped(self, state, np.ones(self.n_models, bool))
        while not is_over(self, state):
            before = state.status
            state, records, n = advance(self, state)
            stop = journal.add(self.name, int(state.done), max(n_planned, int(state.done)), records, n, self.is_bound)
            gave_up = (state.status == STATUSES.index(GAVE_UP)) & (before != state.status)
            _warn_of_giving_up(self, gave_up, journal.indices)
            kept.share_signals()
            kept.after_chunk(state)
            state = stopped(self, state, agreed(stop | kept.is_interrupted, self.steps.mesh))
        kept.at_end(state)
        return end(self, state, start.train, journal.indices)


@dataclasses.dataclass(frozen=True)
class KeptPhase:
    """The checkpoints of one phase of a fit, which has a number there; nothing is kept where there are none."""

    checkpoints: Checkpoints | None
    number: int
    phase: StochasticPhase
    journal: Journal

    @classmethod
    def of(cls, phase: StochasticPhase, journal: Journal) -> KeptPhase:
        found = checkpoints_among(journal.calls)
        if found is not None:  # of several processes with one fit the first writes for all
            found.is_writer = phase.steps.mesh is None or is_first_process()
        return cls(found, 0 if found is None else found.next_phase(), phase, journal)

    @property
    def is_interrupted(self) -> bool:
        return self.checkpoints is not None and self.checkpoints.is_interrupted

    def restored(self, state: PhaseState) -> PhaseState:
        """The last state that was kept, or the given one at the beginning."""
        if self.checkpoints is None:
            return state
        found = self.checkpoints.restored(self.number, self.phase.name, state, self.journal, self._is_sound)
        found = state if found is None else found
        self._check_agreement(found)
        return found

    def _check_agreement(self, state: PhaseState) -> None:
        """Several processes with one fit must take the same steps, or some would wait for others for ever."""
        if self.phase.steps.mesh is None:
            return
        of_all = gathered([np.concatenate([[float(state.done)], state.position, state.status])])[0]
        if not (of_all == of_all[:1]).all():
            raise CheckpointError(
                f"processes found checkpoints of phase {self.phase.name!r} after {sorted(set(of_all[:, 0]))} steps; "
                "expected the same one for all: use a folder that all of them share and can read, and start the fit "
                "again."
            )

    def _is_sound(self, state: PhaseState) -> bool:
        return is_sound(self.phase, state)

    def share_signals(self) -> None:
        """A signal to one of several processes with one fit is one to all: they stop together."""
        if self.checkpoints is None or self.phase.steps.mesh is None:
            return
        own = np.array([self.checkpoints.is_interrupted, self.checkpoints.is_terminated])
        of_all = gathered([own])[0]
        self.checkpoints.is_interrupted, self.checkpoints.is_terminated = map(bool, of_all.max(axis=0))

    def after_chunk(self, state: PhaseState) -> None:
        if self.checkpoints is not None:
            self.checkpoints.after_chunk(self.number, self.phase.name, state, int(state.done), self.journal)

    def at_end(self, state: PhaseState) -> None:
        if self.checkpoints is not None:
            self.checkpoints.at_end(self.number, self.phase.name, state, int(state.done), self.journal)


# --- the parts of a phase ------------------------------------------------------------------------


def begin(phase: StochasticPhase, models: PyTree, indices: tuple[int, ...]) -> PhaseState:
    """The state before the first step."""
    keys = [random_key(seed) for seed in phase.items.seeds]
    parts = unstacked(with_fresh_jitter(models, phase.n_models), phase.n_models)
    train = stacked([chunk.start_state(m, k, phase.steps) for m, k in zip(parts, keys, strict=True)])
    train = on_all(train, phase.steps.mesh)
    start = _objective(phase, train, 0)
    _require_finite(start["objective"], phase.name, indices)
    position = phase.stretch.position
    weight = kl_weights(phase.schedule.training, position)
    best = None if phase.held_back is None else BestState.of(phase.held_back, train.model)
    status = np.zeros(phase.n_models, int)
    done = np.zeros((), int)
    watch, trouble = Watch.of(phase.n_models), Trouble.of(phase.n_models)
    return PhaseState(train, train, position, position, done, weight, watch, start, status, best, trouble)


def placed(phase: StochasticPhase, state: PhaseState) -> PhaseState:
    """The state with its arrays of JAX on the devices of the phase; those of the host stay there."""
    on_devices, rest = eqx.partition(state, lambda leaf: isinstance(leaf, jax.Array))
    return eqx.combine(on_all(on_devices, phase.steps.mesh), rest)


def is_sound(phase: StochasticPhase, state: PhaseState) -> bool:
    """Whether a state that was read can be one of this phase: statuses that exist, at places of its schedule.

    From a place before its beginning, training might never end.
    """
    rest = phase.stretch
    is_place = np.isfinite(state.position) & (state.position >= rest.position - ROUNDING)
    # Steps that were taken again, smaller, count too.
    is_step = 0 <= state.done <= (1 + MOST_TRIES) * rest.n_steps(rest.position, phase.last)
    is_share = (state.kl_weight >= 0.0) & (state.kl_weight <= 1.0)
    is_known = np.isin(state.status, range(len(STATUSES)))
    has_counts = state.best is None or bool(((state.best.step >= 0) & (state.best.step <= state.done)).all())
    return bool(is_place.all() and is_step and is_share.all() and is_known.all() and has_counts)


def is_over(phase: StochasticPhase, state: PhaseState) -> bool:
    return not (state.position < phase.last - ROUNDING).any()


def advance(phase: StochasticPhase, state: PhaseState) -> tuple[PhaseState, dict[str, np.ndarray], int]:
    """One chunk of steps: the state after it, the records of its steps, and their number."""
    schedule, rest, n_models = phase.schedule, phase.stretch, phase.n_models
    training, n_iter = schedule.training, schedule.n_iter
    n = min(STEPS_PER_CHUNK, rest.n_steps(state.position, phase.last))
    planned = state.position[:, None] + rest.stride[:, None] * np.arange(n)
    places, share = planned if n_models > 1 else planned[0], state.trouble.rate_share
    rates = rates_from(training, schedule.rate, n_iter, places, share)
    run = chunk.train_chunk_many if n_models > 1 else chunk.train_chunk
    data = phase.items.chunk(int(state.done))
    train, records = run(state.train, data, rates, on_device(n), phase.steps)
    records = jax.device_get(records)
    objectives = records["objective"].reshape(n_models, -1)[:, :n]
    is_sound_state = np.isfinite(objectives[:, 0])
    sound = choose(is_sound_state, state.train, state.sound)
    sound_at = np.where(is_sound_state, state.position, state.sound_at)
    position, done, best = state.position + n * rest.stride, np.asarray(state.done + n), state.best
    if best is not None and phase.held_back is not None:
        best, densities = best.scored(phase.held_back, train.model, min(int(done), phase.last))
        records = {**records, HELD_OUT: at_the_end(densities, records["objective"], n)}
    watch, moved = state.watch.advanced(training, n_iter, phase.items.n_rows, position, _finite_means(objectives))
    status = np.where((moved >= n_iter) & (position < n_iter), STATUSES.index(CONVERGED), state.status)
    train, is_stuck = with_jitter_that_works(train, n_models)
    weight = kl_weights(training, np.minimum(planned[:, -1], n_iter))
    # Smaller steps are to lead upwards: from where they lead down there is no way back to a good state.
    # Rows of a stream are others than those of the start: `end` compares there.
    if not phase.items.is_streamed:
        is_stuck |= (share < 1.0) & has_fallen(phase, weight, state.begin, records, n)
    is_stuck &= state.position < phase.last - ROUNDING
    tries_again = is_stuck & state.trouble.may_try_again
    if is_stuck.any():
        train = choose(tries_again, another_try(sound, n_models), choose(is_stuck & ~tries_again, sound, train))
    status = np.where(tries_again, state.status, np.where(is_stuck, STATUSES.index(GAVE_UP), status))
    position = np.where(tries_again, sound_at, np.where(is_stuck, n_iter, moved))
    trouble = state.trouble.counted(records["skipped"].reshape(n_models, -1)[:, :n], tries_again)
    if best is not None:
        is_stale = (best.stale >= PATIENCE) & (position < n_iter)
        status = np.where(is_stale, STATUSES.index(STALE), status)
        position = np.where(is_stale, n_iter, position)
    state = PhaseState(train, sound, sound_at, position, done, weight, watch, state.begin, status, best, trouble)
    return placed(phase, state), records, n


def stopped(phase: StochasticPhase, state: PhaseState, stop: Bool[np.ndarray, " K"]) -> PhaseState:
    """The state with some models at their end, because a callback said so; those that had ended stay as they are."""
    has_ended = np.isin(state.status, [STATUSES.index(CONVERGED), STATUSES.index(GAVE_UP)])
    if not stop.any():
        return state
    position = np.where(stop, phase.schedule.n_iter, state.position)
    status = np.where(stop & ~has_ended, STATUSES.index(STOPPED), state.status)
    return eqx.tree_at(lambda s: (s.position, s.status), state, (position, status))


def end(phase: StochasticPhase, state: PhaseState, start: chunk.TrainState, indices: tuple[int, ...] = (0,)) -> Outcome:
    """The models, or those that held-back rows chose, and how training ended; `start` is the state before it."""
    last = _objective(phase, state.train, int(state.done))
    if phase.items.is_streamed:  # other rows may be harder: start and end are compared on the same ones
        state = dataclasses.replace(state, begin=_objective(phase, start, int(state.done)))
    models, is_start = _last_good(phase, state, start.model, last)
    status = [STATUSES[i] for i in state.status]
    for i, (before, after) in _falls(phase, state, last).items():
        if status[i] == GAVE_UP:  # of which there was a warning
            if is_start[i] and state.best is None:
                status[i] = GAVE_UP.replace("last good state", "start")
            continue
        kept = "the start was kept" if is_start[i] else "the last good state was kept"
        kept = kept if state.best is None else "held-back rows chose the state"
        status[i] = f"{DIVERGED}: the objective fell from {before:.6g} to {after:.6g} ({kept})"
        if phase.is_quiet:
            continue
        warnings.warn(
            f"training of model {indices[i]}, phase {phase.name!r}, {status[i]}; lower learning_rate, or check the "
            "scale of the data.",
            TrainingWarning,
            stacklevel=2,
        )
    told = tuple(i for i, number in enumerate(state.status) if STATUSES[number] != GAVE_UP)
    if not phase.is_quiet:
        warn_of_skipped_steps(state.trouble, int(state.done), phase.name, told)
    if state.best is not None:
        best = state.best.settled()
        return Outcome(best.models, tuple(status), best)
    return Outcome(models, tuple(status))


def _last_good(
    phase: StochasticPhase, state: PhaseState, start: PyTree, last: dict[str, np.ndarray]
) -> tuple[PyTree, Bool[np.ndarray, " K"]]:
    """The last state of each model whose objective is finite and not below that of the start; which are the start."""
    is_finite, train = np.isfinite(last["objective"]).all(axis=1), state.train
    if not is_finite.all():
        train = choose(is_finite, state.train, state.sound)
        last = _objective(phase, train, int(state.done))
    falls = _falls(phase, state, last)
    is_start = np.array([i in falls for i in range(phase.n_models)])
    return choose(is_start, start, train.model), is_start


def _objective(phase: StochasticPhase, train: chunk.TrainState, done: int) -> dict[str, Float[np.ndarray, "K n"]]:
    """The parts of the objective of each model at its state: several estimates, from steps of rate zero."""
    n_models = phase.n_models
    run = chunk.train_chunk_many if n_models > 1 else chunk.train_chunk
    nowhere = np.zeros((n_models, N_ESTIMATES) if n_models > 1 else N_ESTIMATES, int)
    rates = rates_from(phase.schedule.training, 0.0, 0, nowhere)
    _, records = run(train, phase.items.chunk(done), rates, on_device(N_ESTIMATES), phase.steps)
    return {k: np.asarray(v).reshape(n_models, -1)[:, :N_ESTIMATES] for k, v in records.items()}


def _require_finite(objectives: Float[np.ndarray, "K n"], phase: str, indices: tuple[int, ...]) -> None:
    """There is nothing to train from, and nothing to keep, where the objective is not finite at the start."""
    for i in np.flatnonzero(~np.isfinite(objectives).all(axis=1)):
        raise TrainingError(
            f"the objective of model {indices[i]} is not finite before the first step of phase {phase!r}; expected a "
            "number. Check the starting values of the kernel (its variance and lengthscales are in units of scaled "
            "data) and the scale of the data."
        )


def _falls(phase: StochasticPhase, state: PhaseState, last: dict[str, np.ndarray]) -> dict[int, tuple[float, float]]:
    """Training is to raise its objective: where it ends below its start, or is not finite, both values.

    Both are taken with the weight of the KL terms that training ended with.
    """
    before, after, is_low = _compared(phase, state.kl_weight, state.begin, last)
    return {int(i): (float(before[i]), float(after[i])) for i in np.flatnonzero(is_low)}


def has_fallen(
    phase: StochasticPhase, kl_weight: np.ndarray, begin: dict[str, np.ndarray], records: dict[str, Any], n: int
) -> Bool[np.ndarray, " K"]:
    """Whether the objective at the end of a chunk of n steps is below that of the start."""
    first, weight = max(0, n - N_ESTIMATES), kl_weight[:, None]
    parts = {name: np.asarray(records[name]).reshape(phase.n_models, -1)[:, first:n] for name in begin}
    before, error = _estimate(weighted(begin, weight))
    # Steps that were not finite are skipped and counted elsewhere; where all are, there is nothing to compare.
    finite = np.ma.masked_invalid(weighted(parts, weight))
    after, other = finite.mean(axis=1).filled(np.inf), finite.std(axis=1).filled(0.0) / np.sqrt(finite.shape[1])
    return _is_lower(phase, before, after, np.hypot(error, other))


def _compared(
    phase: StochasticPhase, kl_weight: np.ndarray, begin: dict[str, np.ndarray], parts: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, Bool[np.ndarray, " K"]]:
    """Objectives before and after, and whether the second is lower by more than chance, or not finite."""
    weight = kl_weight[:, None]
    (before, error), (after, other) = (_estimate(weighted(part, weight)) for part in (begin, parts))
    return before, after, _is_lower(phase, before, after, np.hypot(error, other))


def _is_lower(
    phase: StochasticPhase, before: np.ndarray, after: np.ndarray, error: np.ndarray
) -> Bool[np.ndarray, " K"]:
    """Whether an objective has fallen by more than chance, or is not finite."""
    return ~(after >= before - FALL * phase.items.n_rows - 3.0 * error)


def _finite_means(values: Float[np.ndarray, "K n"]) -> Float[np.ndarray, " K"]:
    """Means over the steps that were finite; −∞ where there was none."""
    found = [row[np.isfinite(row)] for row in values]
    return np.array([row.mean() if len(row) else -np.inf for row in found])


def _estimate(values: Float[np.ndarray, "K n"]) -> tuple[np.ndarray, np.ndarray]:
    """Means, and their standard errors."""
    with np.errstate(invalid="ignore"):
        return values.mean(axis=1), values.std(axis=1) / np.sqrt(values.shape[1])


def _warn_of_giving_up(phase: StochasticPhase, is_stuck: np.ndarray, indices: tuple[int, ...]) -> None:
    for i in np.flatnonzero(is_stuck & (not phase.is_quiet)):
        warnings.warn(
            f"training of model {indices[i]} {GAVE_UP}; lower learning_rate or check the scale of the data.",
            TrainingWarning,
            stacklevel=2,
        )


def at_the_end(values: np.ndarray, like: np.ndarray, n: int) -> Any:
    """A record of a chunk of n steps that is known at its last step alone: NaN before it."""
    record = np.full(like.shape, np.nan)
    record[..., n - 1] = values if record.ndim > 1 else values[0]
    return record
