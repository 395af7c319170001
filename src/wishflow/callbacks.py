"""Callbacks of training: one event per chunk of steps. Progress bar, CSV log, early stop.

Training calls `on_start` at the start of each phase, `on_chunk` after each compiled chunk of steps and `on_end` once,
when the whole fit is over, also when it ended in an error: `with CallbackList(callbacks) as callbacks:` sees to that.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from .errors import OptionError
from .files.writing import write_bytes_atomic


def make_callbacks(estimator: Any, n_points: int, n_steps: int | None = None) -> list:
    """Gather the callbacks of an estimator, with a progress bar where `verbose` asks for it.

    Parameters
    ----------
    estimator : object
        An estimator with the options `callbacks` and `verbose`.
    n_points : int
        The number of rows, by which the progress bar divides the objective.
    n_steps : int, optional
        The most steps of the whole fit, by which the progress bar says how long it will take.

    Returns
    -------
    list of Callback
        The callbacks of the user, and the progress bar.

    Examples
    --------
    >>> import wishflow as wf
    >>> wf.callbacks.make_callbacks(wf.FlowRegressor(verbose=1), n_points=100)
    [ProgressBar(n_points=100)]
    """
    given = estimator.callbacks
    callbacks = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    return [*callbacks, ProgressBar(n_points=n_points, n_steps=n_steps)] if estimator.verbose else callbacks


if TYPE_CHECKING:
    from rich.console import Console


@dataclasses.dataclass(frozen=True, eq=False)
class ChunkEvent:
    """What happened in one chunk of training steps.

    With `fit_many` an event is about one of its models.

    Parameters
    ----------
    phase : str
        The phase of training.
    step : int
        How many steps of this phase are done.
    n_steps : int
        How many steps are planned for this phase.
    records : mapping of str to ndarray
        One entry for each of the K steps of the chunk, shaped (K,) or (K, ...): "objective" (summed over the data),
        "bound" (the same number, where it is a lower bound of the log evidence), "noise" (standard deviation of the
        observations) and other named parts.
    seconds : float
        Time since the start of the fit.
    model_index : int, default=0
        Which of the models of `fit_many` the event is about.
    n_models : int, default=1
        How many models are trained together.
    member_index : int, default=0
        Which member of the model, where several share a `model_index`.

    Examples
    --------
    >>> import numpy as np
    >>> from wishflow.callbacks import ChunkEvent
    >>> event = ChunkEvent("flow", step=2, n_steps=10, records={"objective": np.array([-5.0, -4.0])}, seconds=0.1)
    >>> float(event.records["objective"][-1])
    -4.0
    """

    phase: str
    step: int
    n_steps: int
    records: Mapping[str, np.ndarray]
    seconds: float
    model_index: int = 0
    n_models: int = 1
    member_index: int = 0


@runtime_checkable
class Callback(Protocol):
    """Base of callbacks, whose methods training calls.

    A subclass overrides what it needs. Any class with these three methods will do. Training calls `on_start` at the
    start of each phase, `on_chunk` after each compiled chunk of steps and `on_end` once, when the whole fit is over.
    A callback may have a fourth method, `on_resume(event)`. When a phase resumes from a checkpoint, it is called for
    each chunk that the checkpoint contains. What it returns is ignored.

    See Also
    --------
    EarlyStop : Stop when the objective no longer rises.
    CSVLog : Write all records to a file.
    TensorBoardLog : Write all records for TensorBoard.
    ProgressBar : Show a line on the terminal.

    Examples
    --------
    >>> import wishflow as wf
    >>> class Printer(wf.callbacks.Callback):
    ...     def on_chunk(self, event):
    ...         print(event.phase, event.step)
    >>> model = wf.FlowRegressor(callbacks=[Printer()])
    """

    def on_start(self, phase: str, n_steps: int) -> None:
        """Begin a phase.

        Parameters
        ----------
        phase : str
            Name of the phase.
        n_steps : int
            The most steps that it will take.
        """
        return None

    def on_chunk(self, event: ChunkEvent) -> bool | None:
        """Take note of a chunk of steps that is done.

        Parameters
        ----------
        event : ChunkEvent
            What happened in the chunk.

        Returns
        -------
        bool or None
            True asks training to stop the phase, and only for the model that the event is about.
        """
        return None

    def on_end(self) -> None:
        """Finish: the fit is over, for whatever reason.

        It may be called twice, and without a start.
        """
        return None


class CallbackList:
    """Several callbacks as one.

    As a context manager it calls `on_end` on all of them whatever happens inside.

    Parameters
    ----------
    callbacks : Callback or iterable of Callback, optional
        The callbacks. None stands for an empty list.

    Raises
    ------
    OptionError
        If an entry lacks one of the methods `on_start`, `on_chunk` and `on_end`, or is a class.

    Examples
    --------
    >>> from wishflow.callbacks import CallbackList, EarlyStop
    >>> with CallbackList([EarlyStop(patience=3)]) as callbacks:
    ...     callbacks.on_start("flow", n_steps=100)
    """

    def __init__(self, callbacks: Callback | Iterable[Callback] | None = None) -> None:
        if callbacks is None:
            callbacks = ()
        self.callbacks = (callbacks,) if isinstance(callbacks, Callback) else _as_tuple(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Callback) or isinstance(callback, type):
                raise OptionError(
                    f"callbacks holds {callback!r}; expected objects with the methods on_start, on_chunk and on_end, "
                    "such as wishflow.callbacks.CSVLog('log.csv')."
                )

    def on_start(self, phase: str, n_steps: int) -> None:
        """Begin a phase in all callbacks.

        Parameters
        ----------
        phase : str
            Name of the phase.
        n_steps : int
            The most steps that it will take.
        """
        for callback in self.callbacks:
            callback.on_start(phase, n_steps)

    def on_chunk(self, event: ChunkEvent) -> bool:
        """Show an event to every callback.

        Parameters
        ----------
        event : ChunkEvent
            What happened in the chunk.

        Returns
        -------
        bool
            Whether any callback asks to stop. Every one of them sees the event.
        """
        return any([bool(callback.on_chunk(event)) for callback in self.callbacks])

    def on_resume(self, event: ChunkEvent) -> None:
        """Show a chunk of an earlier run, from whose checkpoint the fit goes on, to callbacks with such a method.

        Parameters
        ----------
        event : ChunkEvent
            What happened in the chunk.
        """
        for callback in self.callbacks:
            if hasattr(callback, "on_resume"):
                callback.on_resume(event)

    def on_end(self) -> None:
        """Finish all callbacks, also those after one that fails; the first error is then raised."""
        errors = []
        for callback in self.callbacks:
            try:
                callback.on_end()
            except Exception as error:  # the others must still close their files and lines
                errors.append(error)
        if errors:
            raise errors[0]

    def __enter__(self) -> CallbackList:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.on_end()


def _as_tuple(callbacks: Any) -> tuple[Any, ...]:
    return tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)


# --- early stop ------------------------------------------------------------------------------


@dataclasses.dataclass
class EarlyStop(Callback):
    """Stop when the objective no longer rises.

    Training stops after `patience` chunks in a row whose mean objective is not above the best so far by more than
    `min_delta`. An objective that is not a number is no improvement. Each phase, and each model of `fit_many`, is
    judged by itself.

    Parameters
    ----------
    patience : int, default=10
        Number of chunks without an improvement, at least 1.
    min_delta : float, default=0.0
        Smallest rise that counts as an improvement, at least 0.

    Raises
    ------
    OptionError
        If an option is outside its range.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.FlowRegressor(callbacks=[wf.callbacks.EarlyStop(patience=5)])
    """

    patience: int = 10
    min_delta: float = 0.0
    _progress: dict[tuple[int, int], tuple[float, int]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if isinstance(self.patience, bool) or int(self.patience) != self.patience or self.patience < 1:
            raise OptionError(f"patience={self.patience!r} given to EarlyStop; expected a whole number of at least 1.")
        if not self.min_delta >= 0:
            raise OptionError(f"min_delta={self.min_delta!r} given to EarlyStop; expected a number of at least 0.")

    def on_start(self, phase: str, n_steps: int) -> None:
        self._progress = {}

    def on_chunk(self, event: ChunkEvent) -> bool:
        if "objective" not in event.records:
            raise OptionError(
                f"EarlyStop needs the record 'objective', but phase {event.phase!r} has {sorted(event.records)}."
            )
        objective = float(np.mean(event.records["objective"]))
        # Before the first chunk there is no best one it could fail to beat: it starts the count at 0, not at 1.
        which = (event.model_index, event.member_index)
        best, waited = self._progress.get(which, (-np.inf, -1))
        improved = objective > best + self.min_delta
        self._progress[which] = (objective, 0) if improved else (best, waited + 1)
        return not improved and waited + 1 >= self.patience


# --- CSV log ---------------------------------------------------------------------------------

_KEYS = ("phase", "model", "step", "seconds")


class CSVLog(Callback):
    """Write one row for each training step to a CSV file.

    The columns are phase, model, step, seconds at the end of its chunk, and every record. Numbers are written so that
    they read back exactly. A record with several entries a step fills the columns `name[0]`, `name[1]`, ... Columns
    that first appear in a later phase are added to the file, empty before. The fits of one `fit_many` share the file:
    `model` is the place of the estimator there (of regressors with members alone, the place of the member among all).

    Parameters
    ----------
    path : str or path
        The file.
    append : bool, default=False
        Whether a new fit appends to the file, rather than start it anew. A fit that resumes from a checkpoint then
        writes the steps after that checkpoint a second time. A new file has each step once, those before the
        checkpoint too.

    Examples
    --------
    >>> import wishflow as wf
    >>> wf.callbacks.CSVLog("log.csv")
    CSVLog('log.csv', append=False)
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path, self.append = path, append
        self._columns: list[str] = []
        self._goes_on = False

    def __repr__(self) -> str:
        return f"CSVLog({str(self.path)!r}, append={self.append})"

    def on_start(self, phase: str, n_steps: int) -> None:
        if self._columns:  # a later phase of the same fit
            return
        old = _read_rows(Path(self.path)) if self.append and Path(self.path).exists() else []
        self._goes_on, self._columns = bool(old), old[0] if old else list(_KEYS)
        if not old:
            write_bytes_atomic(self.path, _csv_text([self._columns]).encode())

    def on_chunk(self, event: ChunkEvent) -> None:
        if not self._columns:
            self.on_start(event.phase, event.n_steps)
        table = _step_table(event.records)
        self._widen([name for name in table if name not in self._columns])
        n_rows = len(next(iter(table.values()), ()))
        fixed = {"phase": event.phase, "model": event.model_index, "seconds": event.seconds}
        rows = []
        for i in range(n_rows):
            row = {**fixed, "step": event.step - n_rows + i + 1, **{name: column[i] for name, column in table.items()}}
            rows.append([row.get(name, "") for name in self._columns])
        # Opened for each chunk: an object with an open file could be neither copied nor pickled.
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            file.write(_csv_text(rows))

    def on_resume(self, event: ChunkEvent) -> None:
        """Write the steps of an earlier run, unless they are in the file that this run appends to.

        Parameters
        ----------
        event : ChunkEvent
            What happened in a chunk of these steps.
        """
        if not self._goes_on:
            self.on_chunk(event)

    def on_end(self) -> None:
        self._columns = []

    def _widen(self, names: list[str]) -> None:
        """Add columns to the file, empty in the rows that are there."""
        if not names:
            return
        self._columns = [*self._columns, *names]
        _, *rows = _read_rows(Path(self.path))
        padded = [row + [""] * (len(self._columns) - len(row)) for row in rows]
        write_bytes_atomic(self.path, _csv_text([self._columns, *padded]).encode())


class TensorBoardLog(Callback):
    """Write every record of every step for TensorBoard.

    The tags are `phase/name`, with the number of the model in front where `fit_many` trains several. It needs the
    package `tensorboardX` (`pip install "wishflow[tensorboard]"`).

    Parameters
    ----------
    folder : str or path
        Where event files are written.

    Examples
    --------
    >>> import wishflow as wf
    >>> wf.callbacks.TensorBoardLog("runs")
    TensorBoardLog('runs')
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder
        self._rows: list[tuple[str, float, int]] = []
        self._n_files = 0

    def __repr__(self) -> str:
        return f"TensorBoardLog({str(self.folder)!r})"

    def on_chunk(self, event: ChunkEvent) -> None:
        prefix = f"model {event.model_index}/{event.phase}" if event.n_models > 1 else event.phase
        for name, column in _step_table(event.records).items():
            first = event.step - len(column) + 1
            self._rows += [(f"{prefix}/{name}", value, first + i) for i, value in enumerate(column)]
        self._write()

    def on_end(self) -> None:
        self._write()

    def _write(self) -> None:
        # A writer for each chunk: an object with an open file could be neither copied nor pickled.
        if not self._rows:
            return
        from tensorboardX import SummaryWriter

        # Names of files have whole seconds, in which several chunks may end.
        self._n_files += 1
        with SummaryWriter(str(self.folder), filename_suffix=f".{os.getpid()}.{self._n_files}") as writer:
            for tag, value, step in self._rows:
                writer.add_scalar(tag, value, step)
        self._rows = []


def _read_rows(path: Path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def _csv_text(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _step_table(records: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Named columns of one plain number per step; a record shaped (K, ...) gives one column per entry."""
    columns: dict[str, list[Any]] = {}
    for name, record in records.items():
        matrix = np.asarray(record)
        matrix = matrix.reshape(matrix.shape[0], -1)
        width = matrix.shape[1]
        for j in range(width):
            columns[name if width == 1 else f"{name}[{j}]"] = matrix[:, j].tolist()
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"records of one chunk must have one entry per step each, but their lengths are {lengths}.")
    return columns


# --- progress bar ----------------------------------------------------------------------------


# Seconds from which on a fit says how long it will take.
LONG_FIT = 60.0


class ProgressBar(Callback):
    """Show one line on the terminal: phase, step, objective, noise and time left.

    It follows the fit through its phases. Where the output is no terminal (a file, a pipe, a notebook), plain
    lines are printed: one at the end, and before it one every `every` seconds, with the time that is left.
    After the first chunk of a fit that will take more than a minute, a line says how long it will take.
    `verbose=1` of an estimator adds this callback.

    Parameters
    ----------
    n_points : int, optional
        Number of rows. Where it is given, the objective is shown per point.
    console : rich.console.Console, optional
        Where the line goes to. Standard error by default.
    every : float, default 15.0
        Seconds between two lines where there is no terminal.
    n_steps : int, optional
        The most steps of all phases and models together. Without it the estimate is of the first phase alone.

    Examples
    --------
    >>> import wishflow as wf
    >>> wf.callbacks.ProgressBar(n_points=100)
    ProgressBar(n_points=100)
    """

    def __init__(
        self,
        n_points: int | None = None,
        console: Console | None = None,
        every: float = 15.0,
        n_steps: int | None = None,
    ) -> None:
        self.n_points, self.console, self.every, self.n_steps = n_points, console, every, n_steps
        self._clear()

    def __repr__(self) -> str:
        return f"ProgressBar(n_points={self.n_points})"

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgressBar:
        return ProgressBar(
            self.n_points, self.console, self.every, self.n_steps
        )  # a bar being drawn, and a console, cannot be copied

    def __getstate__(self) -> dict[str, Any]:
        return {**ProgressBar(self.n_points, None, self.every, self.n_steps).__dict__}  # nor pickled

    def _clear(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._started: Console | None = None
        self._last: ChunkEvent | None = None
        self._mark: tuple[int, float] | None = None
        self._printed = 0.0
        self._clock: float | None = None

    def on_start(self, phase: str, n_steps: int) -> None:
        self._mark = None
        if self._last is None:
            self._clock = time.perf_counter()
        if self._started is None:
            self._started = self.console if self.console is not None else _standard_error()
            if self._started.is_terminal and not self._started.is_dumb_terminal:
                self._bar = _make_bar(self._started)
                self._task = self._bar.add_task(phase, total=n_steps, report="")
                self._bar.start()
        if self._bar is not None:
            self._bar.reset(self._task, total=n_steps, description=phase, report="")
            self._bar.refresh()

    def on_chunk(self, event: ChunkEvent) -> None:
        if self._started is None:
            self.on_start(event.phase, event.n_steps)
        if self._last is not None and self._last.model_index != event.model_index:
            self._mark = None
        if self._last is None:
            self._print_estimate(event)
        self._last = event
        left = self._seconds_left(event)
        self._printed = min(self._printed, event.seconds)  # the next of many fits counts its own seconds
        if self._bar is None and event.step < event.n_steps and event.seconds - self._printed >= self.every:
            self._printed = event.seconds
            self._print(event, f"{clock(event.seconds)} taken, {clock(left)} left in this phase")
        if self._bar is not None:
            report = "  ".join([*_numbers(event, self.n_points), f"{clock(left)} left"])
            self._bar.update(
                self._task, completed=event.step, total=event.n_steps, description=_title(event), report=report
            )
            self._bar.refresh()

    def on_end(self) -> None:
        bar, last = self._bar, self._last
        if bar is not None:
            bar.stop()
        elif last is not None:
            self._print(last, f"{clock(last.seconds)} taken")
        self._clear()

    def _print(self, event: ChunkEvent, time: str) -> None:
        if self._started is not None:
            parts = [f"{_title(event)} {event.step}/{event.n_steps}", *_numbers(event, self.n_points), time]
            self._started.print("  ".join(parts), soft_wrap=True, highlight=False, markup=False)

    def _print_estimate(self, event: ChunkEvent) -> None:
        """How long the fit will take, by its first chunk, where that is more than a minute.

        Programs are compiled before a phase starts, so the first chunk is as quick as the others.
        """
        n_steps = event.n_steps if self.n_steps is None else max(self.n_steps, event.step)
        if self._started is None or self._clock is None or not event.step:
            return
        total = n_steps / event.step * (time.perf_counter() - self._clock)
        if total > LONG_FIT:
            of = f"phase {event.phase!r}" if self.n_steps is None else "training"
            said = f"{of} will take at most about {clock(total)} ({n_steps} steps)"
            self._started.print(said, soft_wrap=True, highlight=False, markup=False)

    def _seconds_left(self, event: ChunkEvent) -> float | None:
        """(n_steps − step) × seconds per step; the first chunk of a phase, most of it compilation, does not count."""
        if self._mark is None or self._mark[0] >= event.step:
            self._mark = (event.step, event.seconds)
            return 0.0 if event.step >= event.n_steps else None
        step, seconds = self._mark
        return (event.n_steps - event.step) * (event.seconds - seconds) / (event.step - step)


def _standard_error() -> Console:
    import sys

    from rich.console import Console

    # FORCE_COLOR and the like make rich take a log file for a terminal; a bar would then fill it with control codes.
    return Console(stderr=True, force_terminal=None if sys.stderr.isatty() else False)


def _make_bar(console: Console) -> Any:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None, table_column=Column(max_width=30)),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[report]}", markup=False),
        console=console,
        auto_refresh=False,  # drawn once per chunk: no thread that could outlive a fit
    )


def _title(event: ChunkEvent) -> str:
    return event.phase if event.n_models == 1 else f"{event.phase}, model {event.model_index + 1} of {event.n_models}"


def _numbers(event: ChunkEvent, n_points: int | None) -> list[str]:
    """The mean objective of the chunk, the noise after its last step, and how many steps were skipped, if any."""
    parts = []
    if "objective" in event.records:
        value = float(np.mean(event.records["objective"]))
        parts.append(f"objective {value:.5g}" if n_points is None else f"objective {value / n_points:.4g}/point")
    if "noise" in event.records:
        parts.append(f"noise {float(np.mean(event.records['noise'][-1])):.3g}")
    if (n_skipped := int(np.sum(event.records.get("skipped", 0)))) > 0:
        parts.append(f"{n_skipped} steps skipped")
    return parts


def clock(seconds: float | None) -> str:
    """Format a duration.

    Parameters
    ----------
    seconds : float or None
        The duration. None or a number that is not finite stands for one that is not known.

    Returns
    -------
    str
        Such as 0:07, 12:34 or 1:02:03; dashes where it is not known.

    Examples
    --------
    >>> from wishflow.callbacks import clock
    >>> clock(3723)
    '1:02:03'
    >>> clock(None)
    '-:--'
    """
    if seconds is None or not np.isfinite(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
