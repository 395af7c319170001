"""Training as values: a phase says which objective is maximised, on which data, for how long, at which rates, and what
ends it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, PyTree, Real

from .journal import Journal
from .specs import TrainingSpec
from .validation import BestState

# With held-back rows models are chosen after this part of the iterations; in the rest they see all rows.
FIRST_PART = 0.7
# All rows are seen in at least so many steps.
LEAST_STEPS = 20
# Of positions in a schedule that are sums of strides.
ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Where in the schedule each of K models goes on, and how many positions it passes with each step."""

    position: Float[np.ndarray, " K"]
    stride: Float[np.ndarray, " K"]

    @classmethod
    def whole(cls, n_models: int) -> Stretch:
        """The whole schedule, position by position."""
        return cls(np.zeros(n_models), np.ones(n_models))

    @classmethod
    def after(cls, step: Int[np.ndarray, " K"], n_iter: int) -> Stretch:
        """What is left of n_iter positions after the state that was chosen, in time that is in proportion to its step.

        A state at the end of the first part passes position after position; one from early on is near the data it was
        chosen by, and takes fewer and longer strides.
        """
        share = 1.0 / FIRST_PART - 1.0
        n_steps = np.clip(np.round(share * step), min(LEAST_STEPS, share * n_iter), share * n_iter).round()
        return cls(step.astype(float), (n_iter - step) / np.maximum(n_steps, 1.0))

    def n_steps(self, position: np.ndarray, last: int) -> int:
        """How many steps it takes until the last of the models has arrived."""
        return max(0, int(np.ceil((last - position - ROUNDING) / self.stride).max()))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Models as a phase leaves them, how it ended for each, and with held-back rows what was chosen by them."""

    models: PyTree
    status: tuple[str, ...]
    best: BestState | None = None


@dataclasses.dataclass(frozen=True)
class AbstractPhase(abc.ABC):
    """One stretch of the training of K models of equal shape, stacked where K > 1.

    `start` makes the models of this phase of those that the phase before it left. `is_bound` says whether its objective
    is a lower bound of the log evidence of the model that is fitted; the history then has it as `bound` too. That of a
    warm start is none: it is about another model. A quiet phase does not warn where training goes wrong: its caller
    looks at the status.
    """

    name: str
    n_models: int
    start: Callable[[PyTree], PyTree]
    is_bound: bool = dataclasses.field(default=False, kw_only=True)
    is_quiet: bool = dataclasses.field(default=False, kw_only=True)

    @abc.abstractmethod
    def run(self, models: PyTree, journal: Journal) -> Outcome:
        """Train the models, chunk by chunk."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long a phase of stochastic steps is and at which rates: a number is the peak of the rates of `training`, a
    function of the step takes their place.
    """

    training: TrainingSpec
    n_iter: int
    rate: float | Callable


class AbstractStream(abc.ABC):
    """Data that come in chunks."""

    @abc.abstractmethod
    def chunk(self, first: int) -> PyTree:
        """The data of a chunk of steps, from the given step of the phase on; the same whenever it is asked for."""


@dataclasses.dataclass(frozen=True)
class Items:
    """What a phase of stochastic steps goes through: data (stacked, or a stream), the number of rows of each model, its
    seed.
    """

    data: Any
    n_rows: Real[np.ndarray, " K"]
    seeds: tuple[int, ...]

    @property
    def is_streamed(self) -> bool:
        return isinstance(self.data, AbstractStream)

    def chunk(self, first: int) -> PyTree:
        """The data of a chunk of steps; all of them where they are in memory."""
        return self.data.chunk(first) if self.is_streamed else self.data


def run_phases(phases: Sequence[AbstractPhase], models: PyTree, journal: Journal) -> Outcome:
    """Train models through phases, one after another."""
    outcome = Outcome(models, ("not trained",) * len(journal.indices))
    for phase in phases:
        outcome = phase.run(phase.start(outcome.models), journal)
    return outcome


def unchanged(models: Any) -> Any:
    """The start of a phase that goes on with the models of the phase before it."""
    return models
