"""Candidates of rolled validation: models without the held-back rows, and their scores on these.

Linear models with constant noise are found in closed form, by the prior of the regression or about a constant mean. A
trained model is a candidate with all or a part of its GP drift.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

from ..numerics.devices import on_device, random_key
from ..numerics.parameters import Positive
from ..numerics.scaling import Scaler
from ..numerics.tails import Jumps
from ..training.journal import Journal, Trained
from ..training.specs import TrainingSpec
from ..wishart.specs import ConstantDiffusion
from . import linear_gaussian as linear
from .autoregressive import DynamicsModel, Start, build
from .calibrating import Fit, with_weights
from .choosing import horizon_of
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
from .linear_prior import Prior
from .recalibration import LEAST_ORIGINS
from .rolling import Origins
from .selection import DENSITY, is_behind, select
from .specs import DynamicsSpec, chosen_lags
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
from .trials import Trial, choose, trial_of
from .windows import Transitions

# Drifts without a GP, in words.
LINEAR, CONSTANT = "linear", "constant mean"
# The part of the learnt GP drift that is kept. It is a point estimate from single steps, and too much of it adds up
# over many of them.
DAMPINGS = (1.0, 0.5, 0.25, 0.0)
# Whole rows for each series, from which a scatter is estimated (`linear_gaussian.with_covariance`).
ROWS_PER_SERIES = 10
# Fewer steps before the held-back rows are not trained on.
LEAST_TRAINED = 10
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
class Shared:
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
    def of(cls, problem: ValidatedProblem) -> Shared:
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

    @functools.cached_property
    def has_densities(self) -> bool:
        """Whether there are steps before the held-back rows and among them, and most rows are whole: the density of a
        filled cell says nothing.
        """
        return bool(self.is_held.any() and not self.is_held.all() and self.counts_steps(max(self.lags)))

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
class Candidate:
    """What may be kept: its state, the law of its noise, and its trial."""

    state: State
    law: Law
    trial: Trial


@dataclasses.dataclass
class Judge:
    """Makes the candidates of a member, scores them on the held-back rows, and says which is kept."""

    problem: ValidatedProblem
    shared: Shared
    trials: list[Trial] = dataclasses.field(default_factory=list)

    def kept(self, candidates: Sequence[Candidate]) -> Candidate:
        """The first, or one that is ahead of it."""
        trial = choose([one.trial for one in candidates])
        return next(one for one in candidates if one.trial is trial)

    def flat(self, name: str, prior: Prior, reference: Candidate | None = None) -> list[Candidate]:
        """A linear model with constant noise, Gaussian or with the law that held-back rows are described best by.

        Laws are compared by densities alone: recalibration finds the widths of forecasts. A model whose densities are
        behind those of a reference is left out: its forecasts need no scores.
        """
        problem, shared = self.problem, self.shared
        fit = shared.fit(prior)
        model, name = _flat_model(problem, fit), f"{name}, constant noise"
        if not shared.has_densities:
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

    def trained(self, best: DynamicsModel, prior: Prior) -> list[Candidate]:
        """The trained model with parts of its GP drift; its tails are what is left, for those of the linear model may
        be noise that depends on the state.
        """
        problem, shared, law, spec = self.problem, self.shared, None, self.problem.spec
        if shared.n_origins < LEAST_ORIGINS:
            return []
        if problem.calibrates and spec.innovations == "gaussian" and shared.has_densities:
            law = kept_law(*shared.steps(best, problem.seed, N_HELD_DRAWS), problem.may_be_student_t)
        model, found = with_law(best, law), []
        for damping in DAMPINGS if has_gp(best) else (1.0,):
            state = State(damped(model, damping), prior)
            values = shared.densities(state.model, problem.seed) if shared.has_densities else None
            found.append(self._candidate(name_of(spec, damping, prior) + _tails(law), state, law, values, damping))
        return found

    def _is_behind(self, densities: Float[np.ndarray, " N"], reference: Candidate) -> bool:
        assert reference.trial.densities is not None
        return is_behind({DENSITY: densities + self.shared.slopes}, {DENSITY: reference.trial.densities})

    def _candidate(
        self,
        name: str,
        state: State,
        law: Law,
        densities: Float[np.ndarray, " N"] | None,
        damping: float | None = None,
    ) -> Candidate:
        shared, problem = self.shared, self.problem
        densities = None if densities is None else densities + shared.slopes
        if shared.origins is None:
            none = np.zeros((0, shared.n_steps, problem.layout.dim))
            return Candidate(state, law, Trial(name, none, none, damping, None, densities))
        scored = (shared.origins, problem.units, shared.sd, problem.seed)
        trial = trial_of(name, state.model, *scored, densities, damping)
        self.trials.append(trial)
        return Candidate(state, law, trial)


def _tails(law: Law) -> str:
    return "" if law is None else ", jumps" if isinstance(law, Jumps) else ", Student-t steps"


def flat_trained(kept: Candidate, problem: ValidatedProblem, shared: Shared, status: str, journal: Journal) -> Trained:
    """A linear model with constant noise of all rows, without any iteration."""
    fit, law = shared.fit(kept.state.prior, True), kept.law
    model = _flat_model(problem, fit)
    if isinstance(law, float):
        model, law = _flat_student_t(problem, fit, shared.residuals(fit, True))
    return trained_with(journal.trained(model, [status], [flat(problem.spec)])[0], law)


def _flat_student_t(
    problem: ValidatedProblem, fit: linear.LinearModel, residuals: Float[np.ndarray, "N D"]
) -> tuple[DynamicsModel, float]:
    """A linear model with the covariance of the Student-t of highest likelihood, and its degrees of freedom."""
    scatter, dof = student_t_scatter(residuals, fit.covariance)
    return _flat_model(problem, dataclasses.replace(fit, covariance=scatter * dof / (dof - 2.0))), dof


def flat(spec: DynamicsSpec) -> DynamicsSpec:
    """The linear model with constant Gaussian noise."""
    return dataclasses.replace(
        spec, drift="linear", diffusion=ConstantDiffusion(), white_noise="constant", innovations="gaussian"
    )


def _flat_model(problem: ValidatedProblem, fit: linear.LinearModel) -> DynamicsModel:
    one = np.zeros((1, problem.layout.n_kernel_inputs))
    return build(flat(problem.spec), problem.layout, start_at(fit), one, random_key(problem.seed + 1))


def model_of(state: State | None, problem: ValidatedProblem, fit: Fit) -> DynamicsModel:
    """A member with the linear drift of other rows."""
    return _flat_model(problem, fit(problem.prior)) if state is None else state.at(fit)


def start_at(fit: linear.LinearModel) -> Start:
    return Start(*(on_device(part) for part in (fit.weights, fit.constant, fit.covariance)))


def has_gp(model: DynamicsModel) -> bool:
    return model.field.gp is not None


def damped(model: DynamicsModel, damping: float) -> DynamicsModel:
    """With a part of the GP drift, where there is one."""
    gp = model.field.gp
    if gp is None:
        return model
    if gp.has_posterior and damping > 0.0:  # all of a random function, not its mean alone
        return eqx.tree_at(lambda m: m.field.gp.amplitude, model, Positive.of(damping * gp.scales()))
    return eqx.tree_at(lambda m: m.field.gp.mean, model, gp.mean * damping)


def name_of(spec: DynamicsSpec, damping: float, prior: Prior) -> str:
    drift = LINEAR if prior.is_walk else CONSTANT
    drift = drift if "gp" not in spec.drift or damping == 0.0 else f"{drift} + {damping:g} GP"
    return f"{drift}, {type(spec.diffusion).__name__} noise"
