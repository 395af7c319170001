"""Training that is decided by the last part of the data: when it ends, what is kept of it, and how wide its bands are.

A linear Gaussian auto-regression in closed form comes first. The GP drift and the Wishart noise are then trained
beside its weights on the rows before the held-back part, and forecasts are rolled over that part. What does not lose
to the linear model at any band of horizons is kept: the whole, a part of the GP drift, the noise alone, or nothing.
At the end the weights are those of all rows, and the rest of the training sees all rows too.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ..callbacks import CallbackList
from ..metrics import crps_samples
from ..numerics.devices import on_device, random_key
from ..numerics.parameters import Positive
from ..numerics.tails import Jumps
from ..training.journal import Journal, Trained
from ..training.loop import DIVERGED, STOPPED
from ..training.phases import Items, Stretch, run_phases
from ..training.specs import TrainingSpec
from ..wishart.specs import ConstantDiffusion
from . import linear_gaussian as linear
from .autoregressive import DynamicsModel, Start, build
from .batches import masked_batch, series_batch
from .calibrating import Rolled, calibrated_bands, with_weights
from .choosing import band_names, bands_of, horizon_of
from .data.units import Tail, Units
from .held_rows import LEAST_WHOLE, HeldBackSteps, Part, origins_in, parts_of, transitions_of
from .jumps import jumps_of, trained_with, with_jumps
from .layout import Layout
from .recalibration import COVERAGE, LEAST_ORIGINS, HorizonScales, ratios_of
from .rolling import Origins, simulated
from .specs import DynamicsSpec, chosen_lags
from .training import SeriesProblem, phase_of, start_of
from .windows import Ticks, Transitions, scored_items

# The part of the learnt GP drift that is kept. It is a point estimate from single steps, and too much of it adds up
# over many of them.
DAMPINGS = (1.0, 0.5, 0.25, 0.0)
# A candidate may lose so much of its CRPS in a band: the error of the draws.
SLACK = 0.001
# Standard errors by which the best candidate must be ahead of the linear model.
LEAD = 1.0


# --- candidates --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate: its CRPS at each origin, horizon and column, in standard deviations of y, and its draws' ratios."""

    name: str
    crps: Float[np.ndarray, "N H P"]
    ratios: Float[np.ndarray, "N H P"]
    damping: float | None = None

    def by_band(self) -> Float[np.ndarray, " B"]:
        return np.array([np.nanmean(self.crps[:, band]) for band in bands_of(self.crps.shape[1])])

    def by_origin(self, unit: Float[np.ndarray, " B"]) -> Float[np.ndarray, " N"]:
        """The mean over bands of the CRPS in given units."""
        bands = [np.nanmean(self.crps[:, band], axis=(1, 2)) for band in bands_of(self.crps.shape[1])]
        return np.nanmean(np.stack(bands, axis=1) / unit, axis=1)


def trial_of(
    name: str, model: Any, origins: Origins, units: Units, sd: np.ndarray, seed: int, damping: float | None = None
) -> Trial:
    draws = simulated(model, origins, seed)
    is_there = ~np.isnan(origins.y)
    with np.errstate(all="ignore"):
        y = units.inverse(np.clip(draws, -1e6, 1e6))
        crps = crps_samples(np.where(is_there, origins.y, 0.0), np.nan_to_num(y, nan=np.inf)) / sd
    return Trial(name, np.where(is_there, crps, np.nan), ratios_of(draws, origins.z), damping)


def choose(trials: Sequence[Trial]) -> Trial:
    """The best of the candidates that lose to the first, the linear model, at no band of horizons; the linear model
    where there are few origins.
    """
    reference = trials[0]
    if len(reference.crps) < LEAST_ORIGINS:
        return reference
    unit = np.maximum(reference.by_band(), linear.TINY)
    fair = [t for t in trials[1:] if np.all(t.by_band() <= (1.0 + SLACK) * unit)]
    ahead = []
    for trial in fair:
        gain = reference.by_origin(unit) - trial.by_origin(unit)
        gain = gain[np.isfinite(gain)]
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
        if gain.mean() > LEAD * error:
            ahead.append((float(gain.mean()), trial))
    return max(ahead, key=lambda pair: pair[0])[1] if ahead else reference


def table_of(trials: Sequence[Trial], kept: Trial) -> pd.DataFrame:
    """The CRPS of all candidates by band, their coverage, and which of them was kept."""
    names = band_names(trials[0].crps.shape[1])
    rows = []
    for trial in trials:
        covered = np.nanmean(np.where(np.isnan(trial.ratios), np.nan, trial.ratios <= 1.0))
        scores = {f"crps {name}": value for name, value in zip(names, trial.by_band(), strict=True)}
        rows.append({"candidate": trial.name, **scores, f"coverage {COVERAGE:.0%}": covered, "kept": trial is kept})
    return pd.DataFrame(rows)


# --- the whole ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ValidatedProblem:
    """What is to be trained, on which rows; `tightness` is that of the prior of the linear weights, `season` the
    horizon that forecasts should be good at.
    """

    spec: DynamicsSpec
    training: TrainingSpec
    units: Units
    tails: Mapping[Any, Tail]
    layout: Layout
    Z: Float[np.ndarray, "M K"]
    tightness: float
    season: int | None
    seed: int
    learning_rate: Callable | None = None
    calibrates: bool = True


@dataclasses.dataclass(frozen=True)
class Validated:
    """The model that was kept, all candidates beside it (None: there were none), and the factors of its bands."""

    trained: Trained
    candidates: pd.DataFrame | None
    calibration: HorizonScales | None


def is_possible(problem: ValidatedProblem) -> bool:
    """Whether some origin has a past and a horizon to be scored on, and training has steps without the held-back."""
    lags = chosen_lags(problem.spec.lags)
    parts = parts_of(problem.units, problem.tails, problem.training.validation_fraction)
    n_held = max(p.end - p.first for p in parts)
    n_before = sum(max(0, p.first - max(lags)) for p in parts)
    origins = origins_in(parts, problem.units, lags, horizon_of(n_held, problem.season))
    return origins is not None and n_before >= 10


def train_validated(problem: ValidatedProblem, callbacks: Any = None) -> Validated:
    """Train, choose, and go on with all rows."""
    spec, units, seed = problem.spec, problem.units, problem.seed
    lags = chosen_lags(spec.lags)
    parts = parts_of(units, problem.tails, problem.training.validation_fraction)
    rows = [p.rows for p in parts]
    n_steps = horizon_of(max(p.end - p.first for p in parts), problem.season)
    origins = origins_in(parts, units, lags, n_steps)
    before = linear.fitted(rows, lags, problem.tightness, [p.first for p in parts])
    whole = linear.fitted(rows, lags, problem.tightness)
    assert origins is not None and before is not None and whole is not None
    values = np.concatenate([units.inverse(t.values) for t in problem.tails.values()])
    sd = np.maximum(np.nanstd(values, axis=0), linear.TINY)
    flat = dataclasses.replace(
        spec, drift="linear", diffusion=ConstantDiffusion(), white_noise="constant", innovations="gaussian"
    )
    one = np.zeros((1, problem.layout.n_kernel_inputs))

    def flat_model(fit: linear.LinearModel) -> DynamicsModel:
        return build(flat, problem.layout, _start(fit), one, random_key(seed + 1))

    transitions, is_held = transitions_of(parts, lags)

    def jumping(model: DynamicsModel) -> DynamicsModel:
        """With jumps, where the held-back steps ask for them."""
        jumps = jumps_of(model, transitions, is_held, seed) if problem.calibrates else None
        return model if jumps is None else with_jumps(model, jumps)

    start = jumping(flat_model(before))
    trials = [trial_of("linear, constant noise", start, origins, units, sd, seed)]
    # Noise that is trained without jumps would take on their width wherever they happened.
    run = _Training(problem, parts, transitions, is_held, before, start.field.jumps)
    with CallbackList(callbacks) as calls:
        first, best, step = run.first(calls)
        state = best if start.field.jumps is not None else jumping(best)
        for damping in DAMPINGS if _has_gp(best) else (1.0,):
            trials.append(trial_of(_name(spec, damping), damped(state, damping), origins, units, sd, seed, damping))
        kept = choose(trials)
        why = _reason(trials, kept, len(origins), n_steps)
        if kept.damping is None:
            model = jax.tree.map(np.asarray, flat_model(whole))
            trained = Trained(model, first.history, first.n_iter, f"{first.status}; {why}", flat)
            state = start
        else:
            trained = run.rest(calls, first, best, step, whole, kept.damping, why)
            state = damped(state, kept.damping)
    if state.field.jumps is not None:
        trained = trained_with(trained, state.field.jumps)
    calibration = None
    if problem.calibrates:
        rolled = Rolled(units, parts, lags, problem.tightness, problem.season, seed)
        calibration = calibrated_bands(rolled, None if trained.spec == flat else state, whole)
    return Validated(trained, table_of(trials, kept), calibration)


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

    def numbers(trial: Trial) -> str:
        return "/".join(f"{value:.4f}" for value in trial.by_band())

    bands = "/".join(band_names(n_steps))
    if kept is not trials[0]:
        other = f"{trials[0].name} {numbers(trials[0])}"
    else:
        best = min(trials[1:], key=lambda t: float(np.log(t.by_band()).sum()))
        other = f"{best.name} {numbers(best)}, which loses at a band or is not clearly ahead"
    return f"kept: {kept.name} (CRPS at steps {bands} from {n_origins} held-back origins {numbers(kept)}; {other})"


@dataclasses.dataclass(frozen=True)
class _Training:
    """The two stretches of training: without the held-back steps, and with all of them."""

    problem: ValidatedProblem
    parts: Sequence[Part]
    transitions: Transitions
    is_held: np.ndarray
    start: linear.LinearModel
    jumps: Jumps | None

    @property
    def counts_steps(self) -> bool:
        """Whether steps are scored one by one; otherwise rows with holes are scored by the filter."""
        n_all = sum(max(0, len(p.rows) - self.problem.layout.memory) for p in self.parts)
        n_whole = sum(int(p.rows.is_seen[self.problem.layout.memory :].all(axis=1).sum()) for p in self.parts)
        return n_whole >= LEAST_WHOLE * n_all

    def items(self, has_all: bool) -> Items:
        seeds = (self.problem.seed,)
        if self.counts_steps:
            is_used = np.ones(len(self.is_held), bool) if has_all else ~self.is_held
            return Items(masked_batch(self.transitions, is_used), np.array([int(is_used.sum())]), seeds)
        ticks = [p.ticks if has_all else _first(p.ticks, p.first) for p in self.parts]
        transitions, windows = scored_items([t for t in ticks if len(t.h)], self.problem.spec)
        n = (0 if transitions is None else len(transitions)) + int(windows.is_scored.sum())
        return Items(series_batch(transitions, windows), np.array([n]), seeds)

    def _series_problem(self) -> SeriesProblem:
        p = self.problem
        return SeriesProblem(
            p.spec, p.training, p.layout, None, None, _start(self.start), p.Z, p.seed, p.learning_rate, None, True
        )

    def first(self, calls: CallbackList) -> tuple[Trained, DynamicsModel, Int[np.ndarray, " K"]]:
        """Without the held-back rows: the trained model, the state that predicts them best, and its step."""
        problem = self._series_problem()
        at = np.flatnonzero(self.is_held)
        held = HeldBackSteps.of(self.transitions, at, self.problem.seed) if len(at) > 1 else None
        journal = Journal(calls)
        phase = phase_of(problem, self.items(False), held_back=held)
        model = start_of(problem)
        outcome = run_phases([phase], model if self.jumps is None else with_jumps(model, self.jumps), journal)
        trained = journal.trained(outcome.models, outcome.status, [self.problem.spec])[0]
        step = np.array([self.problem.training.max_iter]) if outcome.best is None else outcome.best.step
        return trained, outcome.models, step

    def rest(
        self,
        calls: CallbackList,
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
            journal = Journal(calls)
            phase = phase_of(problem, self.items(True), "all rows", rest=Stretch.after(step, n_iter))
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", RuntimeWarning
                )  # steps that diverge are not taken, and the status says so
                outcome = run_phases([phase], model, journal)
            last = journal.trained(outcome.models, outcome.status, [self.problem.spec])[0]
        status = f"{first.status}; {why}"
        if last is not None and not last.status.startswith(DIVERGED):
            model = last.model
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
