"""Training of models of time series."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..callbacks import CallbackList
from ..numerics.devices import random_key
from ..training.journal import Clock, Journal, Trained
from ..training.loop import StochasticPhase
from ..training.phases import Items, Schedule, Stretch, unchanged
from ..training.specs import TrainingSpec
from ..training.together import run_phase
from ..training.validation import AbstractHeldBack
from .autoregressive import Start
from .batches import series_batch
from .latent import LatentStart
from .layout import Layout
from .models import model_builder
from .objectives import is_bound
from .specs import DynamicsSpec
from .steps import SeriesSteps
from .windows import Transitions, Windows

# A window of ticks costs about as much as this many single transitions.
WINDOWS_SHARE = 64
LATENT_SHARE = 16


@dataclasses.dataclass(frozen=True)
class SeriesProblem:
    """A time series to train on: the items it is scored on, where training starts, and the inducing points.

    Where a `model` is given, training starts from it: neither a start nor inducing points are needed.
    """

    spec: DynamicsSpec
    training: TrainingSpec
    layout: Layout
    transitions: Transitions | None
    windows: Windows | None
    start: Start | LatentStart | None
    Z: np.ndarray | None
    seed: int
    learning_rate: float | Callable | None = None
    model: Any = None
    has_fixed_linear: bool = False

    @property
    def n_items(self) -> int:
        n_rows = 0 if self.windows is None else int(self.windows.is_scored.sum())
        return n_rows + (0 if self.transitions is None else len(self.transitions))


def train_series(problem: SeriesProblem, callbacks: Any = None) -> Trained:
    """Train one model of a time series."""
    with CallbackList(callbacks) as calls:
        return train_member(problem, calls)


def train_member(
    problem: SeriesProblem, calls: CallbackList, k: int = 0, n_members: int = 1, clock: Clock | None = None
) -> Trained:
    """Train model k of several that share callbacks; and a clock."""
    journal = Journal(calls, (k,), n_members, clock)
    outcome = run_phase(phase_of(problem), start_of(problem), journal)
    return journal.trained(outcome.models, outcome.status, [problem.spec])[0]


def start_of(problem: SeriesProblem) -> Any:
    """The model that training starts from."""
    if problem.model is not None:
        return problem.model
    build = model_builder(problem.spec)
    return build(problem.spec, problem.layout, problem.start, problem.Z, random_key(problem.seed + 1))


def phase_of(
    problem: SeriesProblem,
    items: Items | None = None,
    name: str = "series",
    held_back: AbstractHeldBack | None = None,
    rest: Stretch | None = None,
) -> StochasticPhase:
    """One phase, on transitions and windows, or on `items` made of them; `held_back` and `rest`: `StochasticPhase`."""
    spec, training = problem.spec, problem.training
    steps = SeriesSteps(
        training.n_train_samples,
        training.flow_dtype,
        False,
        training.path_average,
        n_transitions=training.batch_size,
        n_windows=max(1, training.batch_size // (WINDOWS_SHARE if spec.latent is None else LATENT_SHARE)),
        objective=spec.objective,
        is_latent=spec.latent is not None,
        has_fixed_linear=problem.has_fixed_linear,
    )
    if items is None:
        data = series_batch(problem.transitions, problem.windows)
        items = Items(data, np.array([problem.n_items]), (problem.seed,))
    rate = training.learning_rate if problem.learning_rate is None else problem.learning_rate
    schedule = Schedule(training, training.max_iter, rate)
    windows = items.data.windows
    has_windows = windows is not None and bool(np.asarray(windows.is_scored).any())
    has_bound = is_bound(spec, training, has_windows)
    return StochasticPhase(name, 1, unchanged, steps, items, schedule, held_back, rest, is_bound=has_bound)
