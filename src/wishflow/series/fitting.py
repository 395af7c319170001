"""From series in model units to a trained model, with or without rows held back."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..callbacks import CallbackList
from ..inducing.points import inducing_points
from ..numerics.devices import computing, on_device
from ..training.backends import Workers
from ..training.journal import Trained
from ..training.specs import TrainingSpec
from .data.units import Tail, Units
from .defaults import Settings, validates
from .layout import Layout
from .members import plans_of
from .specs import DynamicsSpec, chosen_lags
from .starts import latent_start, latent_states, start_of
from .training import SeriesProblem, train_member, train_series
from .validated import Validated, ValidatedProblem, is_possible, train_validated
from .windows import Series, all_ticks, imputed, scored_items, whole_gaps

HERE = Workers()


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


def train(task: FitTask, calibrates: bool, callbacks: Callable[[int], list], workers: Workers = HERE) -> Validated:
    """The trained members: by rolled validation where there are rows for it. `callbacks` makes them, given a number of
    items.
    """
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
        problems = [
            ValidatedProblem(
                kind,
                task.training,
                task.units,
                task.tails,
                layout,
                Z,
                settings.prior,
                settings.season,
                seed,
                task.schedule,
                calibrates,
            )
            for (kind, seed), Z in zip(plans, places, strict=True)
        ]
        if is_possible(problems[0]):
            with computing():
                return train_validated(problems, callbacks(len(whole)), workers)
    plain = [
        SeriesProblem(spec, task.training, layout, *items, start, Z, seed, task.schedule)
        for (_, seed), Z in zip(plans, places, strict=True)
    ]
    n = len(plain)
    with computing(), CallbackList(callbacks(plain[0].n_items)) as calls:
        started = time.perf_counter()
        if workers.are_here:
            found = [train_member(problem, calls, k, n, started) for k, problem in enumerate(plain)]
        else:
            found = workers.map(_trained_alone, [(problem,) for problem in plain])
    return Validated(tuple(found), np.full(n, 1.0 / n), None, None)


def _trained_alone(problem: SeriesProblem) -> Trained:
    """In a worker."""
    return train_series(problem)
