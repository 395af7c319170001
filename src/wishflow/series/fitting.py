"""From series in model units to a trained model, with or without rows held back."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..callbacks import CallbackList
from ..errors import TrainingWarning
from ..inducing.points import inducing_points
from ..numerics.devices import computing, on_device
from ..numerics.process import PROGRAMS
from ..training.backends import Workers
from ..training.checkpoints import checkpoints_among, in_worker
from ..training.journal import Clock, Trained
from ..training.loop import STOPPED, warn_of
from ..training.specs import TrainingSpec
from .candidates import ValidatedProblem
from .data.units import Tail, Units
from .defaults import Settings, validates
from .layout import Layout
from .members import plans_of
from .recalibration import COVERAGE
from .specs import DynamicsSpec, chosen_lags
from .starts import latent_start, latent_states, start_of
from .training import SeriesProblem, train_member, train_series
from .validated import Validated, is_possible, train_validated
from .ways import compared
from .windows import Series, all_ticks, imputed, scored_items, whole_gaps

HERE = Workers()
# A CRPS of held-back rows, in standard deviations of y, beyond which forecasts are of no use.
MOST_USABLE = 5.0
# Intervals of 80 % that cover less of the held-back rows, at so many origins or more, are far too narrow: four standard
# errors of 60 origins whose columns are right or wrong together.
LEAST_COVERED, LEAST_JUDGED = 0.6, 30


@dataclasses.dataclass(frozen=True)
class FitTask:
    """A model to train on series, or several members of a mixture."""

    spec: DynamicsSpec
    training: TrainingSpec
    units: Units
    tails: Mapping[Any, Tail]
    settings: Settings
    seed: int
    schedule: Callable | None = None
    n_members: int = 1


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """The members of a task: problems of rolled validation where there are rows for it (else None), and plain ones."""

    task: FitTask
    validated: list[ValidatedProblem] | None
    plain: list[SeriesProblem]
    n_items: int


def train(
    tasks: Sequence[FitTask], calibrates: bool, callbacks: Callable[[int], list], workers: Workers = HERE
) -> tuple[FitTask, Validated]:
    """The trained members of the first task, or of the second, where held-back rows prefer it clearly.

    Only tasks with rolled validation are compared: on the same rows, in the same units, each by what it keeps.
    `callbacks` makes callbacks, given a number of items. One that ends training ends it for good.
    """
    PROGRAMS.make_room()
    task, found = _kept(tasks, calibrates, callbacks, workers)
    _warn_of_useless(found)
    _warn_of_narrow(found)
    return task, found


def _warn_of_useless(found: Validated) -> None:
    """Forecasts that are far from all that was seen: most likely the linear model grows without bound."""
    worst = 0.0 if found.rolled is None else float(np.nanmax(found.rolled.by_band(), initial=0.0))
    if worst > MOST_USABLE:
        warnings.warn(
            f"forecasts of held-back rows were off by {worst:.3g} standard deviations of y on average, so forecasts of "
            "this model are of no use; set freq to the usual gap between rows, pass fewer lags, or remove outliers.",
            TrainingWarning,
            stacklevel=5,
        )


def _warn_of_narrow(found: Validated) -> None:
    """Intervals that hold far less of the held-back rows than they claim: most likely noise grew after the others."""
    if found.rolled is None or len(found.rolled.ratios) < LEAST_JUDGED:
        return
    widths = 1.0 if found.calibration is None else found.calibration.at(np.ones(1))[0]
    ratios = found.rolled.ratios[:, 0]
    is_seen = ~np.isnan(ratios)
    covered = float(np.mean((ratios <= widths)[is_seen])) if is_seen.any() else 1.0
    if covered < LEAST_COVERED:
        warnings.warn(
            f"{COVERAGE:.0%} intervals one step ahead covered {covered:.0%} of the values at {len(ratios)} held-back "
            "origins, by a model of the rows before them: the noise seems to change with time in a way that this model "
            "does not know. Intervals of the next rows may be as narrow; fit again often, to recent rows, or pass "
            "covariates X that the noise depends on.",
            TrainingWarning,
            stacklevel=5,
        )


def _kept(
    tasks: Sequence[FitTask], calibrates: bool, callbacks: Callable[[int], list], workers: Workers
) -> tuple[FitTask, Validated]:
    prepared = [_prepared(task, calibrates) for task in tasks]
    with computing(), CallbackList(callbacks(prepared[0].n_items)) as calls:
        found = _trained(prepared[0], calls, workers)
        others = [p for p in prepared[1:] if p.validated is not None and prepared[0].validated is not None]
        ways = [task.settings.way for task in tasks]
        if not others:
            return tasks[0], found
        if _is_ended(found, calls):
            return _chosen(tasks[0], f"by {ways[0]}: training was stopped before {ways[1]} were tried"), found
        other = _trained(others[0], calls, workers)
    verdict = compared((found, other), ways)
    return _chosen(tasks[verdict.which], verdict.why), verdict.kept


def _is_ended(found: Validated, calls: CallbackList) -> bool:
    """Whether a callback or a signal has stopped training."""
    kept = checkpoints_among(calls)
    is_interrupted = kept is not None and kept.is_interrupted
    return is_interrupted or any(one.status.startswith(STOPPED) for one in found.members)


def _chosen(task: FitTask, why: str) -> FitTask:
    settings = dataclasses.replace(task.settings, reasons={**task.settings.reasons, "options": why})
    return dataclasses.replace(task, settings=settings)


def _prepared(task: FitTask, calibrates: bool) -> _Prepared:
    spec, settings = task.spec, task.settings
    series: list[Series] = list(task.tails.values())
    ticks, full = all_ticks(series, spec, spec.step), [imputed(s) for s in series]
    states, projection = (full, None) if spec.latent is None else latent_states(full, spec.latent.dim)
    n_covariates = series[0].covariates.shape[1]
    layout = Layout(states[0].values.shape[1], chosen_lags(spec.lags), n_covariates, task.units.n_linear)
    whole, items = whole_gaps(states, spec), scored_items(ticks, spec)
    is_validated = validates(spec, settings)
    plans = plans_of(spec, task.seed, task.n_members, is_validated and not task.units.transforms.grow_exponentially)
    with computing():
        start: Any = start_of(whole, spec)
        if projection is not None:
            start = latent_start(full, states, projection, start)
        inputs = np.asarray(layout.kernel_inputs(on_device(whole.X)))
        places = [inducing_points(inputs, settings.n_inducing, seed) for _, seed in plans]
    if is_validated:
        data = (task.units, task.tails, layout)
        problems = [
            ValidatedProblem(
                kind, task.training, *data, Z, settings.prior, settings.season, seed, task.schedule, calibrates
            )
            for (kind, seed), Z in zip(plans, places, strict=True)
        ]
        if is_possible(problems[0]):
            return _Prepared(task, problems, [], len(whole))
    plain = [
        SeriesProblem(spec, task.training, layout, *items, start, Z, seed, task.schedule)
        for (_, seed), Z in zip(plans, places, strict=True)
    ]
    return _Prepared(task, None, plain, plain[0].n_items)


def _trained(prepared: _Prepared, calls: CallbackList, workers: Workers) -> Validated:
    if prepared.validated is not None:
        return train_validated(prepared.validated, calls, workers)
    n, clock = len(prepared.plain), Clock()
    if workers.are_here:
        found = [train_member(problem, calls, k, n, clock) for k, problem in enumerate(prepared.plain)]
    else:
        found = workers.map(_trained_alone, [(problem, workers.checkpoint_dir) for problem in prepared.plain])
        warn_of([one.status for one in found])
    return Validated(tuple(found), np.full(n, 1.0 / n), None, None)


def _trained_alone(problem: SeriesProblem, checkpoint_dir: Any) -> Trained:
    """In a worker."""
    return in_worker(checkpoint_dir, problem, lambda calls: train_series(problem, calls))
