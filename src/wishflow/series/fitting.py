"""From series in model units to a trained model, with or without rows held back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..inducing.points import inducing_points
from ..numerics.devices import computing, on_device
from ..training.specs import TrainingSpec
from .data.units import Tail, Units
from .defaults import Settings, validates
from .layout import Layout
from .specs import DynamicsSpec, chosen_lags
from .starts import latent_start, latent_states, start_of
from .training import SeriesProblem, train_series
from .validated import Validated, ValidatedProblem, is_possible, train_validated
from .windows import Series, all_ticks, imputed, scored_items, whole_gaps


@dataclasses.dataclass(frozen=True)
class FitTask:
    """A model to train on series."""

    spec: DynamicsSpec
    training: TrainingSpec
    units: Units
    tails: Mapping[Any, Tail]
    settings: Settings
    seed: int
    schedule: Callable | None = None


def train(task: FitTask, calibrates: bool, callbacks: Callable[[int], list]) -> Validated:
    """The trained model: by rolled validation where there are rows for it. `callbacks` makes them, given a number of
    items.
    """
    spec, settings, seed = task.spec, task.settings, task.seed
    series: list[Series] = list(task.tails.values())
    ticks, full = all_ticks(series, spec, spec.step), [imputed(s) for s in series]
    states, projection = (full, None) if spec.latent is None else latent_states(full, spec.latent.dim)
    n_covariates = series[0].covariates.shape[1]
    layout = Layout(states[0].values.shape[1], chosen_lags(spec.lags), n_covariates, task.units.n_linear)
    whole, items = whole_gaps(states, spec), scored_items(ticks, spec)
    with computing():
        start: Any = start_of(whole, spec)
        if projection is not None:
            start = latent_start(full, states, projection, start)
        Z = inducing_points(np.asarray(layout.kernel_inputs(on_device(whole.X))), settings.n_inducing, seed)
    if validates(spec, settings):
        problem = ValidatedProblem(
            spec,
            task.training,
            task.units,
            task.tails,
            layout,
            Z,
            settings.tightness,
            settings.season,
            seed,
            task.schedule,
            calibrates,
        )
        if is_possible(problem):
            with computing():
                return train_validated(problem, callbacks(len(whole)))
    plain = SeriesProblem(spec, task.training, layout, *items, start, Z, seed, task.schedule)
    with computing():
        return Validated(train_series(plain, callbacks(plain.n_items)), None, None)
