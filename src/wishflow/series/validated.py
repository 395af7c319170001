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
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ..callbacks import CallbackList
from ..numerics.mixtures import draws_of_each, mixture_weights
from ..training.backends import Workers
from ..training.checkpoints import in_worker
from ..training.journal import Clock, Journal, Trained
from ..training.loop import DIVERGED, STOPPED, warn_of, went_wrong
from ..training.phases import Items, Stretch
from ..training.together import run_phase
from .autoregressive import DynamicsModel
from .batches import masked_batch, series_batch
from .calibrating import Fit, Rolled, calibrated_bands, with_weights
from .candidates import (
    CONSTANT,
    LINEAR,
    Candidate,
    Judge,
    Shared,
    State,
    ValidatedProblem,
    damped,
    flat,
    flat_trained,
    has_gp,
    model_of,
    start_at,
)
from .choosing import band_names
from .held_rows import (
    HeldBackSteps,
)
from .linear_prior import CONSTANT_MEAN, Prior
from .members import joined
from .recalibration import HorizonScales
from .rolling import Origins, simulated
from .specs import chosen_lags
from .step_scores import last_steps, step_scores
from .tails_of_steps import (
    trained_with,
)
from .training import SeriesProblem, phase_of, start_of
from .trials import Trial, numbers_of, table_of
from .windows import Ticks, scored_items

# Rows that count as divided equally between members: without them few held-back rows give one member all the weight.
PRIOR_ROWS = 20.0
# Held-back steps that later rows are compared with, the latest ones.
MOST_REFERENCE = 2000
HERE = Workers()


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
    first, shared = problems[0], Shared.of(problems[0])
    if workers.are_here:
        journal = functools.partial(Journal, calls, n_models=len(problems), clock=Clock())
        found = [_trained_member(p, shared, functools.partial(journal, (k,))) for k, p in enumerate(problems)]
    else:
        found = workers.map(_trained_alone, [(p, shared, workers.checkpoint_dir) for p in problems])
        warn_of([one.trained.status for one in found])
    models = [model_of(one.state, p, shared.fit) for one, p in zip(found, problems, strict=True)]
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


def _trained_alone(problem: ValidatedProblem, shared: Shared, checkpoint_dir: Any) -> _Outcome:
    """In a worker."""

    def fit(callbacks: list) -> _Outcome:
        return _trained_member(problem, shared, functools.partial(Journal, CallbackList(callbacks), clock=Clock()))

    return in_worker(checkpoint_dir, problem, fit)


def _trained_member(problem: ValidatedProblem, shared: Shared, journal: Callable[[], Journal]) -> _Outcome:
    """Train, choose, and go on with all rows."""
    judge = Judge(problem, shared)
    kept = judge.kept(judge.flat(LINEAR, problem.prior))
    if not shared.is_worth_training:
        why = f"not trained: {shared.n_origins} origins in the held-back rows are too few to compare models"
        return _outcome(flat_trained(kept, problem, shared, f"{why}; kept: {kept.trial.name}", journal()), kept, judge)
    kept = judge.kept([kept, *judge.flat(CONSTANT, CONSTANT_MEAN, kept)])
    run = _Training(problem, shared, journal, kept.state.prior)
    first, best, step = run.first()
    kept = judge.kept([kept, *judge.trained(best, kept.state.prior)])
    why = _reason(judge.trials, kept.trial, shared)
    if kept.trial.damping is None:
        trained = flat_trained(kept, problem, shared, f"{first.status}; {why}", journal())
        trained = dataclasses.replace(trained, history=first.history, n_iter=first.n_iter)
    else:
        trained = trained_with(run.rest(first, best, step, kept.trial.damping, why), kept.law)
    return _outcome(trained, kept, judge)


def _outcome(trained: Trained, kept: Candidate, judge: Judge) -> _Outcome:
    is_plain = trained.spec == flat(judge.problem.spec) and kept.state.prior == judge.problem.prior
    state = None if is_plain else kept.state
    if not judge.trials:
        return _Outcome(trained, None, None, state)
    return _Outcome(trained, table_of(judge.trials, kept.trial), kept.trial, state)


def _held_densities(states: Sequence[DynamicsModel], shared: Shared, seed: int) -> Float[np.ndarray, "K N"]:
    """Log densities of the held-back steps under each member, which has not been trained on them."""
    at = np.flatnonzero(shared.is_held)
    if not len(at):
        return np.zeros((len(states), 0))
    held = HeldBackSteps.of(shared.transitions, at, seed)
    return np.stack([held.log_densities(state)[0] for state in states])


def _reason(trials: Sequence[Trial], kept: Trial, shared: Shared) -> str:
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
    shared: Shared,
) -> HorizonScales | None:
    """Factors of the bands of the mixture of members, or of the linear model where they are all that (None)."""
    first, seeds = problems[0], [p.seed for p in problems]

    def draws(fit: Fit, origins: Origins) -> Float[np.ndarray, "S N H D"]:
        models = [model_of(state, p, fit) for state, p in zip(states, problems, strict=True)]
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
    shared: Shared
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
            start_at(self.shared.fit(self.prior)),
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
        if damping == 0.0 and has_gp(model):
            model = eqx.tree_at(lambda m: m.field.gp, model, None)
            spec = dataclasses.replace(spec, drift="linear")
        model = jax.tree.map(np.asarray, model)
        return Trained(model, first.history, len(first.history), status, spec)


def _first(ticks: Ticks, end: int) -> Ticks:
    return Ticks(ticks.h[:end], ticks.u[:end], ticks.y[:end], ticks.row[:end])
