"""Fits that go their own ways, but train together.

Whenever all of them wait for a phase of training, the phases of equal shape become one, for all models in one program.
Each fit runs in a thread of its own, and only one of them runs at a time, until it comes to a phase.
The phases themselves run in the thread of the caller, so that Ctrl-C ends them. Many fits are trained in groups, which
bounds the number of threads and the size of a program.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..callbacks import Callback, CallbackList, ChunkEvent
from ..numerics.devices import computing
from .journal import Journal
from .loop import StochasticPhase
from .phases import Items, Outcome, Stretch, run_phases, unchanged
from .stacks import stacked, unstacked
from .validation import BestState

# Fits that train at once; a device is busy with fewer.
MOST_AT_ONCE = 256

Request = tuple[StochasticPhase, PyTree, Journal]


class PartOfRun(Callback):
    """The callbacks of a run of many fits, as some of them see them.

    Events name the places of the models among all of the run, and the end of these fits is not the end of the run.
    """

    def __init__(self, calls: CallbackList, places: Sequence[int], n_models: int) -> None:
        self.calls, self.places, self.n_models = calls, places, n_models

    def on_start(self, phase: str, n_steps: int) -> None:
        self.calls.on_start(phase, n_steps)

    def on_resume(self, event: ChunkEvent) -> None:
        self.calls.on_resume(self._placed(event))

    def on_chunk(self, event: ChunkEvent) -> bool:
        return self.calls.on_chunk(self._placed(event))

    def _placed(self, event: ChunkEvent) -> ChunkEvent:
        i, member = divmod(event.model_index, max(1, event.n_models // len(self.places)))
        place, n_models = self.places[i], self.n_models
        return dataclasses.replace(
            event, model_index=place, n_models=n_models, member_index=member or event.member_index
        )


class Ended(BaseException):
    """Raised inside fits that will not go on."""


class Fit(Callback):
    """One of several fits, as one of its callbacks: it hands its phases of training over to the caller."""

    def __init__(self, function: Callable[[Fit], Any]) -> None:
        self.request: Request | None = None
        self.outcome: Outcome | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)

    def resume(self) -> None:
        """Let the fit run until it comes to a phase of training, or to its end."""
        if not self._thread.is_alive():
            self._thread.start()
        self._go.release()
        self._back.acquire()

    def end(self) -> None:
        """End a fit that waits."""
        if self._thread.is_alive():
            self._is_ended = True
            self._go.release()
            self._thread.join()

    def trained(self, request: Request) -> Outcome:
        """Inside the fit: hand a phase over, and wait for its outcome."""
        self.request = request
        self._back.release()
        self._go.acquire()
        if self._is_ended:
            raise Ended
        assert self.outcome is not None
        found, self.outcome = self.outcome, None
        return found

    def _run(self, function: Callable[[Fit], Any]) -> None:
        self._go.acquire()
        try:
            if self._is_ended:  # before it began
                raise Ended
            self.result = function(self)
        except BaseException as error:
            self.error = error
        self._back.release()


def run_phase(phase: StochasticPhase, models: PyTree, journal: Journal) -> Outcome:
    """Train the model of one fit through a phase, with those of other fits where there are some."""
    fit = next((one for one in journal.calls.callbacks if isinstance(one, Fit)), None)
    return run_phases([phase], models, journal) if fit is None else fit.trained((phase, models, journal))


def fitted_together(functions: Sequence[Callable[[Fit], Any]], callbacks: Any = None) -> list[Any]:
    """What fits return that train together; each function gets a callback that it is to have among those of its fit.

    The first error of a fit is raised, and ends the others.
    """
    found: list[Any] = []
    with computing(), CallbackList(callbacks) as calls:
        for first in range(0, len(functions), MOST_AT_ONCE):
            found += _fitted_at_once(functions, range(first, min(first + MOST_AT_ONCE, len(functions))), calls)
    return found


def _fitted_at_once(functions: Sequence[Callable[[Fit], Any]], places: range, calls: CallbackList) -> list[Any]:
    """The same for some of them, with a thread for each."""
    fits = {i: Fit(functions[i]) for i in places}
    try:
        for fit in fits.values():
            _resumed(fit)
        while waiting := [i for i, fit in fits.items() if fit.request is not None]:
            for alike in _alike(fits, waiting):
                _train(fits, alike, len(functions), calls)
            for i in waiting:
                _resumed(fits[i])
    finally:
        for fit in fits.values():
            fit.end()
    return [fit.result for fit in fits.values()]


def _resumed(fit: Fit) -> None:
    fit.request = None
    fit.resume()
    if fit.error is not None:
        raise fit.error


def _train(fits: dict[int, Fit], places: list[int], n_models: int, calls: CallbackList) -> None:
    """Train the models of some fits as one phase; each fit gets its own records and its own outcome.

    Warnings and events name the places of the fits among all of the run.
    """
    requests = [request for i in places if (request := fits[i].request) is not None]
    phases, models, journals = zip(*requests, strict=True)
    journal = Journal(calls, places, n_models, journals[0].clock)
    outcome = run_phases([joined_phase(phases)], stacked(list(models)), journal)
    for own, records in zip(journals, journal.records, strict=True):
        own.records[0] += records
    for i, found in zip(places, parts_of(outcome, len(places)), strict=True):
        fits[i].outcome = found


def joined_phase(phases: Sequence[StochasticPhase]) -> StochasticPhase:
    """One phase for the models of several phases, which have equal shapes."""
    first = phases[0]
    if len(phases) == 1:
        return first
    data = stacked([phase.items.data for phase in phases])
    seeds = tuple(seed for phase in phases for seed in phase.items.seeds)
    items = Items(data, np.concatenate([phase.items.n_rows for phase in phases]), seeds)
    held = None if first.held_back is None else first.held_back.joined([p.held_back for p in phases[1:]])
    rests = [phase.rest for phase in phases if phase.rest is not None]
    rest = Stretch(*(np.concatenate([getattr(r, n) for r in rests]) for n in ("position", "stride"))) if rests else None
    return StochasticPhase(
        first.name,
        len(phases),
        unchanged,
        first.steps,
        items,
        first.schedule,
        held,
        rest,
        is_bound=first.is_bound,
        is_quiet=first.is_quiet,
    )


def parts_of(outcome: Outcome, n_models: int) -> list[Outcome]:
    """The outcome of each of several models."""
    models, best = unstacked(outcome.models, n_models), outcome.best
    if best is None:
        return [Outcome(model, (status,)) for model, status in zip(models, outcome.status, strict=True)]
    chosen, last = unstacked(best.models, n_models), unstacked(best.last[0], n_models)
    return [
        Outcome(
            models[k],
            (outcome.status[k],),
            BestState(
                chosen[k],
                (best.densities[k],),
                best.step[k : k + 1],
                best.stale[k : k + 1],
                (last[k], (best.last[1][k],), best.last[2]),
            ),
        )
        for k in range(n_models)
    ]


def _alike(fits: dict[int, Fit], waiting: list[int]) -> list[list[int]]:
    """Fits whose phases have equal shapes, schedules and steps."""
    groups: list[tuple[Any, list[int]]] = []
    for i in waiting:
        request = fits[i].request
        assert request is not None
        kind = _kind(*request)
        alike = next((group for other, group in groups if other == kind), None)
        if alike is None:
            groups.append((kind, [i]))
        else:
            alike.append(i)
    return [group for _, group in groups]


def _kind(phase: StochasticPhase, models: PyTree, journal: Journal) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten((models, phase.items.data))
    shapes = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
    held = None if phase.held_back is None else phase.held_back.shape
    what = (phase.name, phase.steps, phase.schedule, phase.rest is None, phase.is_bound, phase.is_quiet)
    return (*what, held, structure, shapes)
