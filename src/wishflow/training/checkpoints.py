"""Checkpoints: the state of training on disk, so that a fit that was killed goes on where it was.

A fit is a sequence of phases that its data and settings determine. One folder for each fit, named by a fingerprint of
both, holds the last states of the phase at work and the end of each phase before it. A fit that is started again walks
through the same phases: those that have ended are read, the one at work goes on from its last state, bit by bit as if
it had not been interrupted. Phases without a state of this kind (L-BFGS, models beside the one that is watched) start
anew, from the same start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from .. import __version__
from ..callbacks import Callback, CallbackList, ChunkEvent
from ..errors import CheckpointError, ModelFileError, OptionError, TrainingWarning
from ..files.arrays import flatten_arrays, part_of, unflatten_arrays
from ..files.model_file import read_model, write_model
from ..files.writing import remove_all_left_over, sync_folder
from ..specs import Spec, checks
from .journal import ALWAYS, Journal, joined

# A state is written after so many seconds of training, at the end of a chunk, and the last few of a phase are kept.
EVERY_SECONDS = 30.0
KEPT = 2
INTERRUPTED = "interrupted"
# Values of a learning rate that is a function of the step by which two of them are told apart.
N_RATES = 50_000


@dataclasses.dataclass(frozen=True)
class Checkpointing:
    """Where checkpoints of training are kept, how often they are written, and how many are kept.

    An estimator takes it in place of a folder: `checkpoint_dir=wf.Checkpointing("checkpoints", every_seconds=5)`. A
    state is written at the end of each phase, and at the end of a chunk of 100 steps if one of the two intervals has
    passed.

    Parameters
    ----------
    folder : str or path
        The folder. Each fit has a subfolder of its own.
    every_seconds : float or None, default=30.0
        Seconds of training after which a state is written. 0 writes one after each chunk, None does not count seconds.
    every_steps : int, optional
        Steps after which a state is written. By default steps are not counted.
    keep : int, default=2
        How many states of the current phase are kept. If the last one is damaged, the one before it is used.

    Raises
    ------
    OptionError
        If a value is outside its range or of another type.

    Examples
    --------
    >>> import wishflow as wf
    >>> often = wf.Checkpointing("checkpoints", every_seconds=None, every_steps=500, keep=3)
    >>> model = wf.FlowRegressor(checkpoint_dir=often)
    """

    folder: str | Path
    every_seconds: float | None = EVERY_SECONDS
    every_steps: int | None = None
    keep: int = KEPT

    def __post_init__(self) -> None:
        _check_folder(self.folder)
        checks.share_or_none("every_seconds", self.every_seconds)
        checks.positive_int("keep", self.keep)
        if self.every_steps is not None:
            checks.positive_int("every_steps", self.every_steps)

    def is_due(self, seconds: float, n_steps: int) -> bool:
        """Whether a state is to be written.

        Parameters
        ----------
        seconds : float
            Time since the state before it.
        n_steps : int
            Steps since then.

        Returns
        -------
        bool
            True if one of the two limits is reached.
        """
        is_late = self.every_seconds is not None and seconds >= self.every_seconds
        return is_late or (self.every_steps is not None and n_steps >= self.every_steps)


def checkpointing_of(option: Any) -> Checkpointing | None:
    """What `checkpoint_dir` stands for, a folder or all that is said of checkpoints; None for none."""
    if option is None or isinstance(option, Checkpointing):
        return option
    _check_folder(option)
    return Checkpointing(option, EVERY_SECONDS, keep=KEPT)


def _check_folder(folder: Any) -> None:
    if not isinstance(folder, str | Path) or not str(folder):
        raise OptionError(f"checkpoint_dir={folder!r} given; expected the path of a folder, a Checkpointing, or None.")


class Checkpoints(Callback):
    """The checkpoints of one fit, as one of its callbacks; `folder` is that of the fingerprint.

    It counts the phases that come to it, and stops training where a signal asked for it.
    """

    def __init__(self, options: Checkpointing, name: str) -> None:
        # Where the process is now: a callback may change the working directory.
        self.options, self.folder = options, Path(options.folder).absolute() / name
        self.n_phases = 0
        self.is_interrupted = self.is_terminated = False
        self.is_writer = True
        self._saved, self._saved_step = time.monotonic(), 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self.folder.parent)
        except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
            raise _not_written(self.folder, error) from error
        remove_all_left_over(self.folder)

    def on_chunk(self, event: ChunkEvent) -> bool:
        """Whether a signal asked for the end of training."""
        return self.is_interrupted or self.is_terminated

    def next_phase(self) -> int:
        """The number of a phase that begins; none begins after SIGTERM, which may have cut the one before it short."""
        self._end_if_terminated()
        self.n_phases += 1
        self._saved, self._saved_step = time.monotonic(), 0
        return self.n_phases

    # --- reading ---

    def restored(
        self, number: int, phase: str, template: PyTree, journal: Journal, is_sound: Callable[[PyTree], bool]
    ) -> PyTree | None:
        """The last sound state of a phase, with its records in the journal; None where there is none to be read.

        Names, shapes and types are those of the template, the state at the beginning of the phase.
        """
        for path in sorted(self.folder.glob(f"{number:04d}-*.ckpt"), reverse=True):
            try:
                header, arrays = read_model(path)
                if header.get("phase") != phase:
                    raise ModelFileError(f"it belongs to phase {header.get('phase')!r}; expected {phase!r}")
                parts = {kind: part_of(arrays, f"{kind}.") for kind in ("state", "record")}
                state = unflatten_arrays(template, parts["state"])
                records = _records(header.get("columns"), parts["record"], phase, len(journal.indices))
                if not is_sound(state):
                    raise ModelFileError("it holds a state that this training cannot reach")
            except FileNotFoundError:  # another process has removed it
                continue
            except (ModelFileError, OSError) as error:  # damaged, or not readable
                warnings.warn(f"the checkpoint {path} was ignored: {error}", UserWarning, stacklevel=4)
                continue
            for own, record in zip(journal.records, records, strict=True):
                own += [record] if len(record) > 1 else []  # of a phase without a step there is none
            return state
        return None

    # --- writing ---

    def after_chunk(self, number: int, phase: str, state: PyTree, n_done: int, journal: Journal) -> None:
        """Write the state where it is time, or a signal came; after SIGTERM the process is asked to end."""
        is_due = self.options.is_due(time.monotonic() - self._saved, n_done - self._saved_step)
        if is_due or self.is_interrupted or self.is_terminated:
            self._write(number, phase, state, n_done, journal)
        self._end_if_terminated()

    def at_end(self, number: int, phase: str, state: PyTree, n_done: int, journal: Journal) -> None:
        """Write the state with which a phase ends, unless it ends because of a signal."""
        if not self.is_interrupted:
            self._write(number, phase, state, n_done, journal, is_end=True)

    def _write(
        self, number: int, phase: str, state: PyTree, n_done: int, journal: Journal, is_end: bool = False
    ) -> None:
        if not self.is_writer:
            return
        records = [_joined(own, phase) for own in journal.records]
        arrays = {f"state.{name}": array for name, array in flatten_arrays(state).items()}
        for i, record in enumerate(records):
            arrays |= {f"record.{i}.{name}": array for name, array in record.items()}
        header = {"phase": phase, "number": number, "columns": list(records[0]) if records else []}
        # By name the end of a phase comes after all states of it, that of the same step too: ".ckpt" < ".end.ckpt".
        path = self.folder / f"{number:04d}-{n_done:09d}{'.end' if is_end else ''}.ckpt"
        try:
            write_model(path, header, arrays)
        except OSError as error:
            raise _not_written(path, error) from error
        self._saved, self._saved_step = time.monotonic(), n_done
        # Later ones were not used, or training would have gone on from them.
        others = sorted(other for other in self.folder.glob(f"{number:04d}-*.ckpt") if other != path)
        before = [other for other in others if other.name < path.name]
        kept = [] if is_end else before[max(0, len(before) + 1 - self.options.keep) :]
        for other in set(others) - set(kept):
            with contextlib.suppress(OSError):
                other.unlink()

    # --- signals ---

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """During a fit in the main thread, Ctrl-C and SIGTERM end it at the next chunk; a second Ctrl-C at once.

        Handlers that were not set by Python could not be restored, and stay.
        After SIGTERM the process is asked to end here at the latest: some parts of a fit have no chunks.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # That of Ctrl-C is set first and restored last: without it, Ctrl-C may end this block at any place.
        both = (signal.SIGINT, signal.SIGTERM)
        before: dict[signal.Signals, Any] = {}
        try:
            for number in (one for one in both if signal.getsignal(one) is not None):
                before[number] = signal.signal(number, self._received)
            yield
        finally:
            for which, handler in reversed(before.items()):
                signal.signal(which, handler)
            self._end_if_terminated()

    def _end_if_terminated(self) -> None:
        if self.is_terminated:
            raise SystemExit(128 + signal.SIGTERM)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.is_terminated = True
        elif self.is_interrupted:
            raise KeyboardInterrupt
        else:
            self.is_interrupted = True


def checkpoints_of(option: Any, *described: Any) -> Checkpoints | None:
    """The checkpoints of the fit that data and settings describe, in a folder of users; None where they gave none."""
    options = checkpointing_of(option)
    return None if options is None else Checkpoints(options, fingerprint(*described))


def for_workers(option: Any) -> Checkpointing | None:
    """The same folder for workers, which may have another working directory."""
    options = checkpointing_of(option)
    return None if options is None else dataclasses.replace(options, folder=str(Path(options.folder).absolute()))


def watched(callbacks: list, checkpoints: Checkpoints | None) -> list:
    """Callbacks, and the checkpoints among them."""
    return callbacks if checkpoints is None else [*callbacks, checkpoints]


def checkpoints_among(calls: CallbackList) -> Checkpoints | None:
    """The checkpoints among the callbacks of a fit."""
    return next((one for one in calls.callbacks if isinstance(one, Checkpoints)), None)


@contextlib.contextmanager
def interruptible(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Around a fit: signals end it at the next chunk where there are checkpoints."""
    if checkpoints is None:
        yield
        return
    with checkpoints.signals():
        yield


def in_worker(option: Any, described: Any, fit: Callable[[list], Any]) -> Any:
    """In a worker: what a fit returns that is given callbacks, with checkpoints of its own where there is a folder."""
    kept = checkpoints_of(option, described)
    with interruptible(kept):
        found = fit(watched([], kept))
    if kept is not None and kept.is_interrupted:  # half a fit is no result
        raise KeyboardInterrupt
    return found


def told(status: str, checkpoints: Checkpoints | None) -> str:
    """The status of a fit, with a warning where Ctrl-C ended it."""
    if checkpoints is None or not checkpoints.is_interrupted:
        return status
    again = "start from the beginning, because no checkpoint was written (L-BFGS writes none)"
    if any(checkpoints.folder.glob("*.ckpt")):
        again = f"resume from its checkpoint in {checkpoints.folder}"
    warnings.warn(
        f"training was interrupted, and the estimator holds the last good state; the same fit will {again}.",
        TrainingWarning,
        stacklevel=4,
    )
    return INTERRUPTED


# --- fingerprints --------------------------------------------------------------------------------


def fingerprint(*described: Any) -> str:
    """A short name of data and settings: fits of equal ones, by equal versions on equal devices, take equal steps."""
    digest = hashlib.sha256()
    versions = [__version__, *map(importlib.metadata.version, ("jax", "jaxlib", "numpy", "optax", "equinox"))]
    _feed(digest.update, [versions, jax.default_backend(), *described])
    return digest.hexdigest()[:16]


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    """The value as bytes that tell it from others; devices do not, so that a fit may go on with more or fewer."""
    value = None if isinstance(value, Mesh) else value
    update(f"<{type(value).__name__}>".encode())
    if isinstance(value, np.ndarray | jax.Array) and value.dtype != object:
        update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Spec):
        _feed(update, value.to_json())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _feed(update, getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _feed(update, (key, item))
    elif isinstance(value, list | tuple):
        update(str(len(value)).encode())
        for item in value:
            _feed(update, item)
    elif callable(value):  # a learning rate: what it says counts, not its name
        _feed(update, np.asarray(value(jnp.arange(N_RATES))))
    elif hasattr(value, "asi8"):  # stamps; their text is cut where there are many
        _feed(update, [np.asarray(value.asi8), str(value.dtype)])
    elif hasattr(value, "tolist"):  # other indices
        update(repr(value.tolist()).encode())
    else:
        update(re.sub(r" at 0x[0-9a-f]+", "", repr(value)).encode())


# --- records -------------------------------------------------------------------------------------


def _joined(chunks: list[dict[str, Any]], phase: str) -> dict[str, np.ndarray]:
    """The records of a phase as one chunk."""
    own = [chunk for chunk in chunks if chunk["phase"] == phase]
    return joined(own) if own else {}


def _records(columns: Any, arrays: dict[str, np.ndarray], phase: str, n_models: int) -> list[dict[str, Any]]:
    """One chunk of records for each model."""
    found = []
    for i in range(n_models):
        own = part_of(arrays, f"{i}.")
        is_list = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
        is_named = is_list and sorted(own) == sorted(columns) and "phase" not in own
        is_table = all(a.ndim == 1 for a in own.values()) and len({a.shape for a in own.values()}) <= 1
        kinds = {name: own[name].dtype.kind if name in own else "" for name in ("step", *ALWAYS)}
        has_times = not own or kinds == {"step": "i", **dict.fromkeys(ALWAYS, "f")}
        if not (is_named and is_table and has_times):
            raise ModelFileError("its records are inconsistent")
        found.append({"phase": phase, **{name: own[name] for name in columns}})
    return found


def _not_written(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} could not be written ({error}); expected a writable folder with free space. "
        "Earlier checkpoints are unchanged: once there is free space, the same fit resumes from the last of them."
    )
