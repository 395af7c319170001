"""Training of models of time series."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..callbacks import CallbackList
from ..numerics.devices import random_key
from ..training.loop import Run, Trained
from ..training.specs import TrainingSpec
from .autoregressive import Start
from .batches import series_batch
from .latent import LatentStart
from .layout import Layout
from .models import model_builder
from .specs import DynamicsSpec
from .steps import SeriesSteps
from .windows import Transitions, Windows

# A window of ticks costs about as much as this many single transitions.
WINDOWS_SHARE = 64
LATENT_SHARE = 16


@dataclasses.dataclass(frozen=True)
class SeriesProblem:
    """A time series to train on: the items it is scored on, where training starts, and the inducing points."""

    spec: DynamicsSpec
    training: TrainingSpec
    layout: Layout
    transitions: Transitions | None
    windows: Windows
    start: Start | LatentStart
    Z: np.ndarray
    seed: int
    learning_rate: float | Callable | None = None
    model: Any = None

    @property
    def n_items(self) -> int:
        return (0 if self.transitions is None else len(self.transitions)) + int(self.windows.is_scored.sum())


def train_series(problem: SeriesProblem, callbacks: Any = None) -> Trained:
    """Train one model of a time series."""
    with CallbackList(callbacks) as calls:
        return _SeriesRun(problem, calls).run()[0]


class _SeriesRun(Run):
    """A time series: one phase on transitions and windows."""

    def __init__(self, problem: SeriesProblem, calls: CallbackList) -> None:
        super().__init__([problem], calls, [0], 1)
        self.data = series_batch(problem.transitions, problem.windows)
        self.n_rows = np.array([problem.n_items])

    def run(self) -> list[Trained]:
        problem, training = self.problems[0], self.training
        model = problem.model
        if model is None:
            key = random_key(problem.seed + 1)
            build = model_builder(problem.spec)
            model = build(problem.spec, problem.layout, problem.start, problem.Z, key)
        rate = training.learning_rate if problem.learning_rate is None else problem.learning_rate
        steps = SeriesSteps(
            training.n_train_samples,
            training.flow_dtype,
            False,
            training.path_average,
            n_transitions=training.batch_size,
            n_windows=max(1, training.batch_size // (WINDOWS_SHARE if problem.spec.latent is None else LATENT_SHARE)),
            objective=problem.spec.objective,
            is_latent=problem.spec.latent is not None,
        )
        return self._package(self._stochastic_phase(model, "series", training.max_iter, rate, steps))
