"""Training that is decided by the last part of the data: when it ends, what is kept of it, and how wide its bands are.

A linear Gaussian auto-regression in closed form comes first. Beside it are the same with heavier tails, and rows about
a constant mean. The GP drift and the Wishart noise are then trained beside the weights of what was kept of these, on
the rows before the held-back part. Held-back rows are scored by their log densities, and by the CRPS of forecasts that
are rolled over them. Groups of candidates come one after another, and one of a group takes the place of what was kept
before where it is ahead in a score and behind in none (`selection`): the whole, a part of the GP drift, the noise
alone, or nothing. At the end the weights are those of all rows, and the rest of the training sees all rows too. Where
there are too few origins to prefer anything to the linear model, nothing is trained.
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
from ..numerics.tails import Jumps
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
from .calibrating import Fit, Rolled, calibrated_bands, with_weights
from .choosing import band_names, horizon_of
from .data.effects import series_scalers
from .data.units import Tail, Units
from .held_rows import (
    LEAST_WHOLE,
    N_HELD_DRAWS,
    HeldBackSteps,
    Part,
    evenly,
    log_slopes,
    origins_in,
    parts_of,
    transitions_of,
)
from .layout import Layout
from .linear_prior import CONSTANT_MEAN, Prior
from .members import joined
from .recalibration import LEAST_ORIGINS, HorizonScales
from .rolling import Origins, simulated
from .selection import DENSITY, is_behind, select
from .specs import DynamicsSpec, chosen_lags
from .step_scores import last_steps, step_scores
from .tails_of_steps import (
    LEAST_ROWS,
    MOST_ROWS,
    Law,
    Steps,
    kept_law,
    laws_of,
    leads,
    student_t_scatter,
    trained_with,
    with_law,
)
from .training import SeriesProblem, phase_of, start_of
from .trials import Trial, choose, numbers_of, table_of, trial_of
from .windows import Ticks, Transitions, scored_items

# Drifts without a GP, in words.
LINEAR, CONSTANT = "linear", "constant mean"
# The part of the learnt GP drift that is kept. It is a point estimate from single steps, and too much of it adds up
# over many of them.
DAMPINGS = (1.0, 0.5, 0.25, 0.0)
# Whole rows for each series, from which a scatter is estimated (`linear_gaussian.with_covariance`).
ROWS_PER_SERIES = 10
# Fewer steps before the held-back rows are not trained on.
LEAST_TRAINED = 10
# Rows that count as divided equally between members: without them few held-back rows give one member all the weight.
PRIOR_ROWS = 20.0
# Held-back steps that later rows are compared with, the latest ones.
MOST_REFERENCE = 2000
HERE = Workers()
# A model, the law of its noise, and log densities of the held-back steps in model units.
_Scored = tuple[DynamicsModel, Law, np.ndarray]


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

    @property
    def may_be_student_t(self) -> bool:
        """Whether means of forecasts exist with Student-t steps, or these were asked for."""
        return self.spec.innovations == "student_t" or not self.units.transforms.grow_exponentially


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
    units: Units
    lags: tuple[int, ...]
    prior: Prior

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
        seen = transitions_of(parts, lags)
        return cls(parts, n_steps, origins, before, whole, *seen, sd, units, lags, problem.prior)

    def fit(self, prior: Prior, has_all: bool = False) -> linear.LinearModel:
        """The regression by a prior of all rows, or of those before the held-back part."""
        own = self.whole if has_all else self.before
        return own if prior == self.prior else linear.fitted(*self._rows(prior, has_all)) or own

    def _rows(self, prior: Prior, has_all: bool) -> tuple[Any, ...]:
        return [p.rows for p in self.parts], self.lags, prior, None if has_all else [p.first for p in self.parts]

    def residuals(self, fit: linear.LinearModel, has_all: bool = False) -> Float[np.ndarray, "N D"]:
        """Errors of one step of a regression, at rows that were seen whole."""
        rows, _, _, ends = self._rows(self.prior, has_all)
        errors, seen = linear.residuals_of(fit, rows, ends)
        return errors[seen.all(axis=1)]

    def steps(self, model: DynamicsModel, seed: int, n_draws: int) -> tuple[Steps, Steps]:
        """Steps that training has seen and those held back, under a Gaussian model."""
        seen, held = (Steps.of(self._some(flags, seed), model, n_draws) for flags in (~self.is_held, self.is_held))
        return seen, held

    def densities(self, model: DynamicsModel, seed: int) -> Float[np.ndarray, " R"]:
        """Log densities of the held-back steps, in model units."""
        return self._some(self.is_held, seed).log_densities(model)[0]

    def _some(self, flags: Bool[np.ndarray, " S"], seed: int) -> HeldBackSteps:
        return HeldBackSteps.of(self.transitions, np.flatnonzero(flags), seed, MOST_ROWS)

    @functools.cached_property
    def slopes(self) -> Float[np.ndarray, " R"]:
        """log |dz/dy| of the held-back rows."""
        at = evenly(np.flatnonzero(self.is_held), MOST_ROWS)
        return log_slopes(self.parts, self.units, self.transitions, at, self.lags)

    @property
    def is_parted(self) -> bool:
        """Whether there are steps before the held-back rows and among them."""
        return bool(self.is_held.any() and not self.is_held.all())

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
class State:
    """A model before it has seen the held-back rows, and the prior of its linear weights."""

    model: DynamicsModel
    prior: Prior

    def at(self, fit: Fit) -> DynamicsModel:
        """With the weights of other rows."""
        return with_weights(self.model, fit(self.prior))


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """What may be kept: its state, the law of its noise, and its trial."""

    state: State
    law: Law
    trial: Trial


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """A member: what was kept of it, all its candidates, the one that was kept (None: there was nothing to compare by),
    and its state (None: the linear model with Gaussian noise).
    """

    trained: Trained
    candidates: pd.DataFrame | None
    kept: Trial | None
    state: State | None


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
    models = [_model_of(one.state, p, shared.fit) for one, p in zip(found, problems, strict=True)]
    held = _held_densities(models, shared, first.seed) if len(found) > 1 else np.zeros((1, 0))
    weights = mixture_weights(held, PRIOR_ROWS)
    kept = [k for k, weight in enumerate(weights) if weight > 0.0]
    candidates = joined([found[k].candidates for k in kept])
    calibration = None
    if first.calibrates:
        calibration = _calibration([problems[k] for k in kept], [found[k].state for k in kept], weights[kept], shared)
    scores = None
    if shared.counts_steps(first.layout.memory):
        steps = last_steps(shared.transitions, shared.is_held, shared.ages, MOST_REFERENCE)
        scores = step_scores([models[k] for k in kept], weights[kept], steps, first.seed)
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
    judge = _Judge(problem, shared)
    kept = judge.kept(judge.flat(LINEAR, problem.prior))
    if not shared.is_worth_training:
        why = f"not trained: {shared.n_origins} origins in the held-back rows are too few to compare models"
        return judge.outcome(_flat_trained(kept, problem, shared, f"{why}; kept: {kept.trial.name}", journal()), kept)
    kept = judge.kept([kept, *judge.flat(CONSTANT, CONSTANT_MEAN, kept)])
    run = _Training(problem, shared, journal, kept.state.prior)
    first, best, step = run.first()
    kept = judge.kept([kept, *judge.trained(best, kept.state.prior)])
    why = _reason(judge.trials, kept.trial, shared)
    if kept.trial.damping is None:
        trained = _flat_trained(kept, problem, shared, f"{first.status}; {why}", journal())
        trained = dataclasses.replace(trained, history=first.history, n_iter=first.n_iter)
    else:
        trained = trained_with(run.rest(first, best, step, kept.trial.damping, why), kept.law)
    return judge.outcome(trained, kept)


@dataclasses.dataclass
class _Judge:
    """Makes the candidates of a member, scores them on the held-back rows, and says which is kept."""

    problem: ValidatedProblem
    shared: _Shared
    trials: list[Trial] = dataclasses.field(default_factory=list)

    def kept(self, candidates: Sequence[_Candidate]) -> _Candidate:
        """The first, or one that is ahead of it."""
        trial = choose([one.trial for one in candidates])
        return next(one for one in candidates if one.trial is trial)

    def flat(self, name: str, prior: Prior, reference: _Candidate | None = None) -> list[_Candidate]:
        """A linear model with constant noise, Gaussian or with the law that held-back rows are described best by.

        Laws are compared by densities alone: recalibration finds the widths of forecasts. A model whose densities are
        behind those of a reference is left out: its forecasts need no scores.
        """
        problem, shared = self.problem, self.shared
        fit = shared.fit(prior)
        model, name = _flat_model(problem, fit), f"{name}, constant noise"
        if not shared.is_parted:
            return [self._candidate(name, State(model, prior), None, None)]
        seen, held = shared.steps(model, problem.seed, 1)
        best: _Scored = (model, None, held.log_densities())
        if problem.calibrates:
            heavier = [(with_law(model, law), law, held.log_densities(law)) for law in laws_of(seen, False)]
            heavier += self._student_t(fit, seen)
            found = select([{DENSITY: one[2]} for one in heavier], {DENSITY: best[2]})
            best = best if found is None else heavier[found]
        if reference is not None and self._is_behind(best[2], reference):
            return []
        return [self._candidate(name + _tails(best[1]), State(best[0], prior), best[1], best[2])]

    def _student_t(self, fit: linear.LinearModel, gaussian: Steps) -> list[_Scored]:
        """The linear model with the Student-t steps of highest likelihood, where they lead at the rows before."""
        residuals = self.shared.residuals(fit)
        if not self.problem.may_be_student_t or len(residuals) < max(LEAST_ROWS, ROWS_PER_SERIES * fit.dim):
            return []
        model, dof = _flat_student_t(self.problem, fit, residuals)
        seen, held = self.shared.steps(model, self.problem.seed, 1)
        if not leads(seen.log_densities(dof), gaussian.log_densities()):
            return []
        return [(with_law(model, dof), dof, held.log_densities(dof))]

    def trained(self, best: DynamicsModel, prior: Prior) -> list[_Candidate]:
        """The trained model with parts of its GP drift; its tails are what is left, for those of the linear model may
        be noise that depends on the state.
        """
        problem, shared, law, spec = self.problem, self.shared, None, self.problem.spec
        if shared.n_origins < LEAST_ORIGINS:
            return []
        if problem.calibrates and spec.innovations == "gaussian" and shared.is_parted:
            law = kept_law(*shared.steps(best, problem.seed, N_HELD_DRAWS), problem.may_be_student_t)
        model, found = with_law(best, law), []
        for damping in DAMPINGS if _has_gp(best) else (1.0,):
            state = State(damped(model, damping), prior)
            values = shared.densities(state.model, problem.seed)
            found.append(self._candidate(_name(spec, damping, prior) + _tails(law), state, law, values, damping))
        return found

    def _is_behind(self, densities: Float[np.ndarray, " N"], reference: _Candidate) -> bool:
        assert reference.trial.densities is not None
        return is_behind({DENSITY: densities + self.shared.slopes}, {DENSITY: reference.trial.densities})

    def _candidate(
        self,
        name: str,
        state: State,
        law: Law,
        densities: Float[np.ndarray, " N"] | None,
        damping: float | None = None,
    ) -> _Candidate:
        shared, problem = self.shared, self.problem
        densities = None if densities is None else densities + shared.slopes
        if shared.origins is None:
            none = np.zeros((0, shared.n_steps, problem.layout.dim))
            return _Candidate(state, law, Trial(name, none, none, damping, None, densities))
        scored = (shared.origins, problem.units, shared.sd, problem.seed)
        trial = trial_of(name, state.model, *scored, densities, damping)
        self.trials.append(trial)
        return _Candidate(state, law, trial)

    def outcome(self, trained: Trained, kept: _Candidate) -> _Outcome:
        is_plain = trained.spec == _flat(self.problem.spec) and kept.state.prior == self.problem.prior
        state = None if is_plain else kept.state
        if not self.trials:
            return _Outcome(trained, None, None, state)
        return _Outcome(trained, table_of(self.trials, kept.trial), kept.trial, state)


def _tails(law: Law) -> str:
    return "" if law is None else ", jumps" if isinstance(law, Jumps) else ", Student-t steps"


def _flat_trained(
    kept: _Candidate, problem: ValidatedProblem, shared: _Shared, status: str, journal: Journal
) -> Trained:
    """A linear model with constant noise of all rows, without any iteration."""
    fit, law = shared.fit(kept.state.prior, True), kept.law
    model = _flat_model(problem, fit)
    if isinstance(law, float):
        model, law = _flat_student_t(problem, fit, shared.residuals(fit, True))
    return trained_with(journal.trained(model, [status], [_flat(problem.spec)])[0], law)


def _flat_student_t(
    problem: ValidatedProblem, fit: linear.LinearModel, residuals: Float[np.ndarray, "N D"]
) -> tuple[DynamicsModel, float]:
    """A linear model with the covariance of the Student-t of highest likelihood, and its degrees of freedom."""
    scatter, dof = student_t_scatter(residuals, fit.covariance)
    return _flat_model(problem, dataclasses.replace(fit, covariance=scatter * dof / (dof - 2.0))), dof


def _flat(spec: DynamicsSpec) -> DynamicsSpec:
    """The linear model with constant Gaussian noise."""
    return dataclasses.replace(
        spec, drift="linear", diffusion=ConstantDiffusion(), white_noise="constant", innovations="gaussian"
    )


def _flat_model(problem: ValidatedProblem, fit: linear.LinearModel) -> DynamicsModel:
    one = np.zeros((1, problem.layout.n_kernel_inputs))
    return build(_flat(problem.spec), problem.layout, _start(fit), one, random_key(problem.seed + 1))


def _model_of(state: State | None, problem: ValidatedProblem, fit: Fit) -> DynamicsModel:
    """A member with the linear drift of other rows."""
    return _flat_model(problem, fit(problem.prior)) if state is None else state.at(fit)


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


def _name(spec: DynamicsSpec, damping: float, prior: Prior) -> str:
    drift = LINEAR if prior.is_walk else CONSTANT
    drift = drift if "gp" not in spec.drift or damping == 0.0 else f"{drift} + {damping:g} GP"
    return f"{drift}, {type(spec.diffusion).__name__} noise"


def _reason(trials: Sequence[Trial], kept: Trial, shared: _Shared) -> str:
    """What was kept, and why, in words."""
    bands, others = "/".join(band_names(shared.n_steps)), [t for t in trials if t is not kept]
    said = f"kept: {kept.name} (CRPS at steps {bands} from {shared.n_origins} held-back origins {numbers_of(kept)}"
    if kept is not trials[0]:
        return f"{said}; {trials[0].name} {numbers_of(trials[0])})"
    if not others:
        return f"{said})"
    best = min(others, key=lambda t: float(np.log(t.by_band()).sum()))
    return f"{said}; {best.name} {numbers_of(best)}, which is behind in a score or not clearly ahead in any)"


def _calibration(
    problems: Sequence[ValidatedProblem],
    states: Sequence[State | None],
    weights: Float[np.ndarray, " K"],
    shared: _Shared,
) -> HorizonScales | None:
    """Factors of the bands of the mixture of members, or of the linear model where they are all that (None)."""
    first, seeds = problems[0], [p.seed for p in problems]

    def draws(fit: Fit, origins: Origins) -> Float[np.ndarray, "S N H D"]:
        models = [_model_of(state, p, fit) for state, p in zip(states, problems, strict=True)]
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
    """The two stretches of training: without the held-back steps, and with all of them. `prior` is that of the linear
    weights.
    """

    problem: ValidatedProblem
    shared: _Shared
    journal: Callable[[], Journal]
    prior: Prior

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
            _start(self.shared.fit(self.prior)),
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
        damping: float,
        why: str,
    ) -> Trained:
        """The rest of the schedule with all rows, from the weights of all rows on; then the GP drift is damped."""
        problem, last = self._series_problem(), None
        n_iter = self.problem.training.max_iter
        model = with_weights(best, self.shared.fit(self.prior, True))
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
