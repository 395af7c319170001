"""How far a suite is: one bar with a time estimate on a terminal, and a plain line for each cell everywhere."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from rich.console import Console

from wishflow.callbacks import Callback, ChunkEvent, ProgressBar, clock

N_TICKS = 1000
LAST_PHASES = ("fit", "flow", "series")


class Cell(Protocol):
    """What is trained together and reported in one line."""

    @property
    def title(self) -> str: ...

    @property
    def n_fits(self) -> int: ...


def error_text(error: BaseException) -> str:
    """Kind and text of an error, for the terminal."""
    return f"{type(error).__name__}: {error}"


class SuiteProgress(Callback):
    """A callback of all fits. `work` says how large a part of the whole each cell is."""

    def __init__(self, work: Mapping[Any, float], console: Console | None = None) -> None:
        self.work, self.total = work, sum(work.values())
        self.console = Console() if console is None else console
        self.bar = ProgressBar(console=self.console)
        self.started = time.perf_counter()
        self.cell: Cell | None = None
        self.n_cells, self.done, self.ticks = 0, 0.0, -1
        self.n_fits = 0
        self.shares: dict[int, float] = {}
        self.event: ChunkEvent | None = None

    # --- what the suite calls ---

    def begin(self, cell: Cell) -> None:
        """A cell starts."""
        self.cell, self.n_fits, self.shares = cell, 0, {}

    def finish(self, text: str) -> None:
        """The cell is done and its file is written; `text` says what came out."""
        self._close(text)

    def fail(self, what: str) -> None:
        """The cell has no result; `what` went wrong."""
        self._close(f"failed: {what}")

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def close(self) -> None:
        """The suite is over, for whatever reason."""
        if self.console.is_terminal:  # elsewhere the bar would add a line that the last cell has said already
            self.bar.on_end()

    # --- what training calls ---

    def on_start(self, phase: str, n_steps: int) -> None:
        return None

    def on_chunk(self, event: ChunkEvent) -> None:
        """Models report one after another on a CPU and side by side on an accelerator: each has its own share."""
        # The warm start of a flow is short: it does not count.
        share = event.step / event.n_steps if event.phase in LAST_PHASES else 0.0
        self.shares[event.model_index] = share
        if self.cell is not None and self.console.is_terminal:
            self.event = event
            part = (self.n_fits + sum(self.shares.values())) / self.cell.n_fits
            self._draw(self.cell, event, self.done + part * self.work[self.cell])

    def on_end(self) -> None:
        """One call of `fit` or `fit_many` is over; a cell may take several."""
        self.n_fits += len(self.shares)
        self.shares = {}

    # --- inside ---

    def _draw(self, cell: Cell, event: ChunkEvent, done: float) -> None:
        ticks = int(N_TICKS * done / self.total)
        if ticks == self.ticks:
            return
        self.ticks = ticks
        title = f"{cell.title} ({self.n_cells + 1} of {len(self.work)})"
        seconds = time.perf_counter() - self.started
        shown = dataclasses.replace(
            event, phase=title, step=ticks, n_steps=N_TICKS, seconds=seconds, model_index=0, n_models=1
        )
        self.bar.on_chunk(shown)

    def _close(self, text: str) -> None:
        assert self.cell is not None
        self.done += self.work[self.cell]
        if self.event is not None:  # work after the last chunk, such as scoring, is done too
            self._draw(self.cell, self.event, self.done)
        self.n_cells += 1
        self.say(f"[{self.n_cells} of {len(self.work)}] {self.cell.title}: {text}; about {clock(self.left())} left")

    def left(self) -> float:
        """Seconds left, if the rest goes as fast as what is done; NaN before the first cell is done."""
        elapsed = time.perf_counter() - self.started
        return elapsed * (self.total - self.done) / self.done if self.done > 0.0 else np.nan
