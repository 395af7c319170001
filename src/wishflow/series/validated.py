"""Training that is decided by the last part of the data: when it ends, what is kept of it, and how wide its bands are.

A linear Gaussian auto-regression in closed form comes first. The GP drift and the Wishart noise are then trained
beside its weights on the rows before the held-back part, and forecasts are rolled over that part. What does not lose
to the linear model at any band of horizons is kept: the whole, a part of the GP drift, the noise alone, or nothing.
At the end the weights are those of all rows, and the rest of the training sees all rows too. Where there are too few
origins to prefer anything to the linear model, nothing is trained.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from ..callbacks import CallbackList
from ..numerics.devices import on_device, random_key
from ..numerics.mixtures import draws_of_each, mixture_weights
from ..numerics.parameters import Positive
from ..numerics.scaling import Scaler
from ..training.backends import Workers
from ..training.checkpoints import in_worker
from ..training.journal import Clock, Journal, Trained
from ..training.loop import DIVERGED, STOPPED, warn_of, went_wrong
from ..training.phases import Items, Stretch
from ..training.specs import TrainingSpec
from ..training.together import run_phase
from ..wishart.specs import ConstantDiffusion
from . import linear_gaussian as linear
from .autoregressive import DynamicsModel, Start, build
from .batches import masked_batch, series_batch
from .calibrating import Rolled, calibrated_bands, with_weights
from .choosing import band_names, horizon_of
from .data.effects import series_scalers
from .data.units import Tail, Units
from .held_rows import LEAST_WHOLE, HeldBackSteps, Part, origins_in, parts_of, transitions_of
from .jumps import jumps_of, trained_with, with_jumps
from .layout import Layout
from .linear_prior import Prior
from .members import joined
from .recalibration import LEAST_ORIGINS, HorizonScales
from .rolling import Origins, simulated
from .specs import DynamicsSpec, chosen_lags
from .step_scores import last_steps, step_scores
from .training import SeriesProblem, phase_of, start_of
from .trials import Trial, choose, numbers_of, table_of, trial_of
from .windows import Ticks, Transitions, scored_items

# The part of the learnt GP drift that is kept. It is a point estimate from single steps, and too much of it adds up
# over many of them.
DAMPINGS = (1.0, 0.5, 0.25, 0.0)
# Fewer steps before the held-back rows are not trained on.
LEAST_TRAINED = 10
# Rows that count as divided equally between members: without them few held-back rows give one member all the weight.
PRIOR_ROWS = 20.0
# Held-back steps that later rows are compared with, the latest ones.
MOST_REFERENCE = 2000
HERE = Workers()


@dataclasses.dataclass(frozen=True)
class ValidatedProblem:
    """What is to be trained, on which rows; `prior` is that of the linear weights, `season` the
    horizon that forecasts should be good at.
    """

    spec: DynamicsSpec
    training: TrainingSpec
    units: Units
    tails: Mapping[Any, Tail]
    layout: Layout
    Z: Float[np.ndarray, "M K"]
    prior: Prior
    season: int | None
    seed: int
    learning_rate: Callable | None = None
    calibrates: bool = True


@dataclasses.dataclass(frozen=True)
class Validated:
    """The models that were kept, one for each member, with their weights; all candidates beside them (None: there were
    none), the factors of the bands of their mixture, scores of the held-back steps under it (`step_scores`), by states
    that had not seen them, and the rolled forecasts of what was kept (of several members the weighted mean of their
    CRPS, which that of the mixture does not exceed).
    """

    members: tuple[Trained, ...]
    weights: Float[np.ndarray, " K"]
    candidates: pd.DataFrame | None
    calibration: HorizonScales | None
    held_scores: Float[np.ndarray, "R J"] | None = None
    rolled: Trial | None = None


def is_possible(problem: ValidatedProblem) -> bool:
    """Whether some step has a past, so that there is a linear model."""
    memory = max(chosen_lags(problem.spec.lags))
    return any(len(ticks.h) > memory for tail in problem.tails.values() for ticks in problem.units.ticks(tail))


@dataclasses.dataclass(frozen=True)
class _Shared:
    """What all members have in common: rows, origins of forecasts (None: no row has a past and a horizon), and linear
    models of the rows before the held-back part (of all rows where none come before it) and of all rows.
    """

    parts: Sequence[Part]
    n_steps: int
    origins: Origins | None
    before: linear.LinearModel
    whole: linear.LinearModel
    transitions: Transitions
    is_held: Bool[np.ndarray, " S"]
    ages: Int[np.ndarray, " S"]
    sd: Float[np.ndarray, "N 1 P"]

    @classmethod
    def of(cls, problem: ValidatedProblem) -> _Shared:
        units, lags = problem.units, chosen_lags(problem.spec.lags)
        parts = parts_of(units, problem.tails, problem.training.validation_fraction)
        rows = [p.rows for p in parts]
        n_steps = horizon_of(max(p.end - p.first for p in parts), problem.season)
        origins = origins_in(parts, units, lags, n_steps)
        before = linear.fitted(rows, lags, problem.prior, [p.first for p in parts])
        whole = linear.fitted(rows, lags, problem.prior)
        assert whole is not None
        sd = _deviations(units, problem.tails, () if origins is None else origins.keys)
        before = whole if before is None else before
        return cls(parts, n_steps, origins, before, whole, *transitions_of(parts, lags), sd)

    @property
    def n_origins(self) -> int:
        return 0 if self.origins is None else len(self.origins)

    @property
    def is_worth_training(self) -> bool:
        """Whether there are origins enough for `choose` to keep what was trained, and steps to train on."""
        return self.n_origins >= LEAST_ORIGINS and int((~self.is_held).sum()) >= LEAST_TRAINED

    def counts_steps(self, memory: int) -> bool:
        """Whether steps are scored one by one; otherwise rows with holes are scored by the filter."""
        n_all = sum(max(0, len(p.rows) - memory) for p in self.parts)
        n_whole = sum(int(p.rows.is_seen[memory:].all(axis=1).sum()) for p in self.parts)
        return n_whole >= LEAST_WHOLE * n_all


def _deviations(units: Units, tails: Mapping[Any, Tail], keys: Sequence[Any]) -> Float[np.ndarray, "N 1 P"]:
    """Standard deviations in the units of y: of the series of each origin where series have scales of their own."""
    values = {key: units.of_series(key).inverse(tail.values) for key, tail in tails.items()}
    joined = np.concatenate(list(values.values()))
    pooled = Scaler.of_seen(joined)
    own = series_scalers(values, pooled) if units.effects else {}
    scales = [own.get(key, pooled).scale for key in keys]
    return np.array(scales).reshape(len(keys), 1, len(units.columns))


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """A member: what was kept of it, all its candidates, the one that was kept (None: there was nothing to compare by),
    and its state before it saw the held-back rows (None: the linear model with Gaussian noise).
    """

    trained: Trained
    candidates: pd.DataFrame | None
    kept: Trial | None
    state: DynamicsModel | None


def train_validated(problems: Sequence[ValidatedProblem], calls: CallbackList, workers: Workers = HERE) -> Validated:
    """Train the members, which differ by spec, seed and inducing points alone; weigh them, recalibrate their mixture.

    Members without weight are left out.
    """
    first, shared = problems[0], _Shared.of(problems[0])
    if workers.are_here:
        journal = functools.partial(Journal, calls, n_models=len(problems), clock=Clock())
        found = [_trained_member(p, shared, functools.partial(journal, (k,))) for k, p in enumerate(problems)]
    else:
        found = workers.map(_trained_alone, [(p, shared, workers.checkpoint_dir) for p in problems])
        warn_of([one.trained.status for one in found])
    states = [_state_with(one.state, p, shared.before) for one, p in zip(found, problems, strict=True)]
    held = _held_densities(states, shared, first.seed) if len(found) > 1 else np.zeros((1, 0))
    weights = mixture_weights(held, PRIOR_ROWS)
    kept = [k for k, weight in enumerate(weights) if weight > 0.0]
    candidates = joined([found[k].candidates for k in kept])
    calibration = None
    if first.calibrates:
        calibration = _calibration([problems[k] for k in kept], [found[k].state for k in kept], weights[kept], shared)
    scores = None
    if shared.counts_steps(first.layout.memory):
        steps = last_steps(shared.transitions, shared.is_held, shared.ages, MOST_REFERENCE)
        scores = step_scores([states[k] for k in kept], weights[kept], steps, first.seed)
    rolled = _mean_trial([found[k].kept for k in kept], weights[kept])
    return Validated(tuple(found[k].trained for k in kept), weights[kept], candidates, calibration, scores, rolled)


def _mean_trial(kept: Sequence[Trial | None], weights: Float[np.ndarray, " K"]) -> Trial | None:
    trials = [trial for trial in kept if trial is not None]
    if not trials:
        return None
    crps = np.tensordot(weights, np.stack([trial.crps for trial in trials]), axes=1)
    return dataclasses.replace(trials[0], crps=crps)


def _trained_alone(problem: ValidatedProblem, shared: _Shared, checkpoint_dir: Any) -> _Outcome:
    """In a worker."""

    def fit(callbacks: list) -> _Outcome:
        return _trained_member(problem, shared, functools.partial(Journal, CallbackList(callbacks), clock=Clock()))

    return in_worker(checkpoint_dir, problem, fit)


def _trained_member(problem: ValidatedProblem, shared: _Shared, journal: Callable[[], Journal]) -> _Outcome:
    """Train, choose, and go on with all rows."""
    spec, origins, seed = problem.spec, shared.origins, problem.seed
    start = _jumping(_flat_model(problem, shared.before), problem, shared)
    trials = []
    if origins is not None:
        scored = (origins, problem.units, shared.sd, seed)
        trials = [trial_of("linear, constant noise", start, *scored)]
    if origins is None or not shared.is_worth_training:
        why = f"not trained: {shared.n_origins} origins in the held-back rows are too few to compare models"
        trained = _flat_trained(problem, shared, f"{why}; kept: linear, constant noise", journal())
        return _outcome(problem, trained, trials, trials[0] if trials else None, start)
    # Jumps are what is left: those of the linear model may be noise that depends on the state.
    run = _Training(problem, shared, journal)
    first, best, step = run.first()
    state = _jumping(best, problem, shared)
    for damping in DAMPINGS if _has_gp(best) else (1.0,):
        trials.append(trial_of(_name(spec, damping), damped(state, damping), *scored, damping))
    kept = choose(trials)
    why = _reason(trials, kept, len(origins), shared.n_steps)
    if kept.damping is None:
        trained = _flat_trained(problem, shared, f"{first.status}; {why}", journal())
        trained = dataclasses.replace(trained, history=first.history, n_iter=first.n_iter)
        state = start
    else:
        trained = run.rest(first, best, step, shared.whole, kept.damping, why)
        state = damped(state, kept.damping)
    return _outcome(problem, trained, trials, kept, state)


def _flat_trained(problem: ValidatedProblem, shared: _Shared, status: str, journal: Journal) -> Trained:
    """The linear model of all rows, without any iteration."""
    return journal.trained(_flat_model(problem, shared.whole), [status], [_flat(problem.spec)])[0]


def _outcome(
    problem: ValidatedProblem, trained: Trained, trials: Sequence[Trial], kept: Trial | None, state: DynamicsModel
) -> _Outcome:
    if state.field.jumps is not None:
        trained = trained_with(trained, state.field.jumps)
    table = None if kept is None else table_of(trials, kept)
    return _Outcome(trained, table, kept, None if trained.spec == _flat(problem.spec) else state)


def _jumping(model: DynamicsModel, problem: ValidatedProblem, shared: _Shared) -> DynamicsModel:
    """With jumps, where the held-back steps ask for them."""
    if not problem.calibrates or problem.spec.innovations != "gaussian":
        return model
    jumps = jumps_of(model, shared.transitions, shared.is_held, problem.seed)
    return model if jumps is None else with_jumps(model, jumps)


def _flat(spec: DynamicsSpec) -> DynamicsSpec:
    """The linear model with constant Gaussian noise."""
    return dataclasses.replace(
        spec, drift="linear", diffusion=ConstantDiffusion(), white_noise="constant", innovations="gaussian"
    )


def _flat_model(problem: ValidatedProblem, fit: linear.LinearModel) -> DynamicsModel:
    one = np.zeros((1, problem.layout.n_kernel_inputs))
    return build(_flat(problem.spec), problem.layout, _start(fit), one, random_key(problem.seed + 1))


def _state_with(state: DynamicsModel | None, problem: ValidatedProblem, fit: linear.LinearModel) -> DynamicsModel:
    """The state of a member with the linear drift of another regression."""
    return _flat_model(problem, fit) if state is None else with_weights(state, fit)


def _held_densities(states: Sequence[DynamicsModel], shared: _Shared, seed: int) -> Float[np.ndarray, "K N"]:
    """Log densities of the held-back steps under each member, which has not been trained on them."""
    at = np.flatnonzero(shared.is_held)
    if not len(at):
        return np.zeros((len(states), 0))
    held = HeldBackSteps.of(shared.transitions, at, seed)
    return np.stack([held.log_densities(state)[0] for state in states])


def _start(fit: linear.LinearModel) -> Start:
    return Start(*(on_device(part) for part in (fit.weights, fit.constant, fit.covariance)))


def _has_gp(model: DynamicsModel) -> bool:
    return model.field.gp is not None


def damped(model: DynamicsModel, damping: float) -> DynamicsModel:
    """With a part of the GP drift, where there is one."""
    gp = model.field.gp
    if gp is None:
        return model
    if gp.has_posterior and damping > 0.0:  # all of a random function, not its mean alone
        return eqx.tree_at(lambda m: m.field.gp.amplitude, model, Positive.of(damping * gp.scales()))
    return eqx.tree_at(lambda m: m.field.gp.mean, model, gp.mean * damping)


def _name(spec: DynamicsSpec, damping: float) -> str:
    drift = "linear" if "gp" not in spec.drift or damping == 0.0 else f"linear + {damping:g} GP"
    return f"{drift}, {type(spec.diffusion).__name__} noise"


def _reason(trials: Sequence[Trial], kept: Trial, n_origins: int, n_steps: int) -> str:
    """What was kept, and why, in words."""
    bands = "/".join(band_names(n_steps))
    if kept is not trials[0]:
        other = f"{trials[0].name} {numbers_of(trials[0])}"
    else:
        best = min(trials[1:], key=lambda t: float(np.log(t.by_band()).sum()))
        other = f"{best.name} {numbers_of(best)}, which is worse in a band of horizons or not clearly better"
    return f"kept: {kept.name} (CRPS at steps {bands} from {n_origins} held-back origins {numbers_of(kept)}; {other})"


def _calibration(
    problems: Sequence[ValidatedProblem],
    states: Sequence[DynamicsModel | None],
    weights: Float[np.ndarray, " K"],
    shared: _Shared,
) -> HorizonScales | None:
    """Factors of the bands of the mixture of members, or of the linear model where they are all that (None)."""
    first, seeds = problems[0], [p.seed for p in problems]

    def draws(fit: linear.LinearModel, origins: Origins) -> Float[np.ndarray, "S N H D"]:
        models = [_state_with(state, p, fit) for state, p in zip(states, problems, strict=True)]
        return _mixed_draws(models, weights, origins, seeds)

    rolled = Rolled(first.units, shared.parts, chosen_lags(first.spec.lags), first.prior, first.season)
    is_linear = all(state is None for state in states)
    return calibrated_bands(rolled, None if is_linear else draws, shared.whole)


def _mixed_draws(
    models: Sequence[DynamicsModel], weights: Float[np.ndarray, " K"], origins: Origins, seeds: Sequence[int]
) -> Float[np.ndarray, "S N H D"]:
    """Draws of the mixture: each model gives as many of them as its weight says."""
    found = [simulated(model, origins, seed) for model, seed in zip(models, seeds, strict=True)]
    counts = draws_of_each(len(found[0]), weights)
    return np.concatenate([draws[:n] for draws, n in zip(found, counts, strict=True)])


@dataclasses.dataclass(frozen=True)
class _Training:
    """The two stretches of training: without the held-back steps, and with all of them."""

    problem: ValidatedProblem
    shared: _Shared
    journal: Callable[[], Journal]

    def items(self, has_all: bool) -> Items:
        seeds, is_held = (self.problem.seed,), self.shared.is_held
        if self.shared.counts_steps(self.problem.layout.memory):
            is_used = np.ones(len(is_held), bool) if has_all else ~is_held
            return Items(masked_batch(self.shared.transitions, is_used), np.array([int(is_used.sum())]), seeds)
        ticks = [p.ticks if has_all else _first(p.ticks, p.first) for p in self.shared.parts]
        transitions, windows = scored_items([t for t in ticks if len(t.h)], self.problem.spec)
        n = (0 if transitions is None else len(transitions)) + int(windows.is_scored.sum())
        return Items(series_batch(transitions, windows), np.array([n]), seeds)

    def _series_problem(self) -> SeriesProblem:
        p = self.problem
        return SeriesProblem(
            p.spec,
            p.training,
            p.layout,
            None,
            None,
            _start(self.shared.before),
            p.Z,
            p.seed,
            p.learning_rate,
            None,
            True,
        )

    def first(self) -> tuple[Trained, DynamicsModel, Int[np.ndarray, " K"]]:
        """Without the held-back rows: the trained model, the state that predicts them best, and its step."""
        problem = self._series_problem()
        at = np.flatnonzero(self.shared.is_held)
        held = HeldBackSteps.of(self.shared.transitions, at, self.problem.seed) if len(at) > 1 else None
        journal = self.journal()
        phase = phase_of(problem, self.items(False), held_back=held)
        outcome = run_phase(phase, start_of(problem), journal)
        trained = journal.trained(outcome.models, outcome.status, [self.problem.spec])[0]
        step = np.array([self.problem.training.max_iter]) if outcome.best is None else outcome.best.step
        return trained, outcome.models, step

    def rest(
        self,
        first: Trained,
        best: DynamicsModel,
        step: Int[np.ndarray, " K"],
        whole: linear.LinearModel,
        damping: float,
        why: str,
    ) -> Trained:
        """The rest of the schedule with all rows, from the weights of all rows on; then the GP drift is damped."""
        problem, last = self._series_problem(), None
        n_iter = self.problem.training.max_iter
        model = with_weights(best, whole)
        if first.status != STOPPED and step[0] < n_iter:
            journal = self.journal()
            phase = phase_of(problem, self.items(True), "all rows", rest=Stretch.after(step, n_iter))
            # Steps that diverge are not taken, and the status says so.
            outcome = run_phase(dataclasses.replace(phase, is_quiet=True), model, journal)
            last = journal.trained(outcome.models, outcome.status, [self.problem.spec])[0]
        status = f"{first.status}; {why}"
        if last is not None and not last.status.startswith(DIVERGED):
            model = last.model
            status += f"; steps with all rows {last.status}" if went_wrong(last.status) else ""
            first = dataclasses.replace(first, history=pd.concat([first.history, last.history], ignore_index=True))
        elif last is not None:
            status += f"; steps with all rows {last.status} and were not taken"
        spec = self.problem.spec
        model = damped(model, damping)
        if damping == 0.0 and _has_gp(model):
            model = eqx.tree_at(lambda m: m.field.gp, model, None)
            spec = dataclasses.replace(spec, drift="linear")
        model = jax.tree.map(np.asarray, model)
        return Trained(model, first.history, len(first.history), status, spec)


def _first(ticks: Ticks, end: int) -> Ticks:
    return Ticks(ticks.h[:end], ticks.u[:end], ticks.y[:end], ticks.row[:end])
