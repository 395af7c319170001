"""What a run leaves behind: records of its steps, told to callbacks chunk by chunk, and trained models."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, PyTree

from ..callbacks import CallbackList, ChunkEvent
from ..errors import TrainingError
from .stacks import unstacked

# Columns of the history, beside phase and step, that every phase has.
ALWAYS = ("objective", "noise", "seconds")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model, its history (one row for each iteration), how training ended, and what the model is.

    `before` is the model as it was before it saw rows that were held back from it (None: none were).
    """

    model: Any
    history: pd.DataFrame
    n_iter: int
    status: str
    spec: Any
    calibration: Any = None
    before: Any = None


@dataclasses.dataclass
class Clock:
    """The seconds of a fit, which all its journals share; those of an earlier run count."""

    started: float = dataclasses.field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def resume(self, seconds: float) -> None:
        """Go on from the seconds of an earlier run, if these are more."""
        self.started = min(self.started, time.perf_counter() - seconds)


class Journal:
    """Records of K models that are trained together; `indices` are their places among all `n_models` of a call."""

    def __init__(
        self, calls: CallbackList, indices: Sequence[int] = (0,), n_models: int = 1, clock: Clock | None = None
    ) -> None:
        self.calls, self.indices, self.n_models = calls, tuple(indices), n_models
        self.clock = Clock() if clock is None else clock
        self.records: list[list[dict[str, Any]]] = [[] for _ in self.indices]

    def begin(self, phase: str, n_steps: int) -> None:
        self.calls.on_start(phase, n_steps)

    def resume(self, phase: str, n_steps: int) -> None:
        """Tell callbacks of the chunks of an earlier run, the last records of each model; time goes on from there."""
        for own, index in zip(self.records, self.indices, strict=True):
            for chunk in _chunks(own[-1]) if own and own[-1]["phase"] == phase else ():
                step, seconds = int(chunk["step"][-1]) + 1, float(chunk["seconds"][-1])
                shown = {name: values for name, values in chunk.items() if name not in ("step", "seconds")}
                shown["noise"] = np.sqrt(shown["noise"])
                self.calls.on_resume(ChunkEvent(phase, step, n_steps, shown, seconds, index, self.n_models))
                self.clock.resume(seconds)

    def add(
        self,
        phase: str,
        step: int,
        n_steps: int,
        records: dict[str, np.ndarray],
        n: int,
        is_bound: bool = False,
        is_open: Bool[np.ndarray, " K"] | None = None,
    ) -> Bool[np.ndarray, " K"]:
        """Keep the records of n steps and tell the callbacks; which models a callback asked to stop.

        An objective that is a lower bound of the log evidence is recorded as "bound" too. Models that are not open had
        ended before these steps: they have no record of them (None: all are open).
        """
        if is_bound:
            records = {**records, "bound": records["objective"]}
        stop = np.zeros(len(self.indices), bool)
        seconds = self.clock.seconds()
        for i, index in enumerate(self.indices):
            if is_open is not None and not is_open[i]:
                continue
            mine = {k: (v[i] if len(self.indices) > 1 else v)[:n] for k, v in records.items()}
            times = {"step": np.arange(step - n, step), **mine, "seconds": np.full(n, seconds)}
            self.records[i].append({"phase": phase, **times})
            shown = {**mine, "noise": np.sqrt(mine["noise"])}
            event = ChunkEvent(phase, step, n_steps, shown, seconds, index, self.n_models)
            stop[i] = bool(self.calls.on_chunk(event))
        return stop

    def trained(self, models: PyTree, status: Sequence[str], specs: Sequence[Any]) -> list[Trained]:
        """Models with NumPy leaves: they pickle and stay float64 whatever JAX is set to."""
        found = []
        for model, records, ended, spec in zip(
            unstacked(models, len(self.indices)), self.records, status, specs, strict=True
        ):
            if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model)):
                raise TrainingError(
                    f"training ended with parameters that are not finite (status: {ended}); expected numbers. Check "
                    "the starting values of the kernel and the scale of the data, or lower learning_rate."
                )
            history = _history(records)
            found.append(Trained(jax.tree.map(np.asarray, model), history, len(history), ended, spec))
        return found


def joined(chunks: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The records of several chunks as one: those that all of them have."""
    names = [name for name in chunks[0] if name != "phase" and all(name in chunk for chunk in chunks)]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def _chunks(record: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    """The chunks that joined records were made of: each was told at a time of its own."""
    columns = {name: values for name, values in record.items() if name != "phase"}
    cuts = [0, *(np.flatnonzero(np.diff(columns["seconds"])) + 1), len(columns["seconds"])]
    return [{name: values[a:b] for name, values in columns.items()} for a, b in itertools.pairwise(cuts) if b > a]


def _history(records: list[dict[str, Any]]) -> pd.DataFrame:
    """One row for each iteration, from what was kept of each chunk; one frame for each phase, not for each chunk.

    Without any step, as after an interrupt before the first chunk, it has no rows, and the columns of all phases.
    """
    frames = []
    records = records or [{"phase": "", "step": np.zeros(0, int), **dict.fromkeys(ALWAYS, np.zeros(0))}]
    for phase, chunks in itertools.groupby(records, key=lambda record: record["phase"]):
        parts = list(chunks)
        frames.append(pd.DataFrame({"phase": phase, **joined(parts)}))
    return pd.concat(frames, ignore_index=True)


def skipped_words(history: pd.DataFrame) -> list[str]:
    """A line on the steps that were not finite, where there were some."""
    n_skipped = int(history["skipped"].sum()) if "skipped" in history else 0
    return [f"{n_skipped} of {len(history)} steps were not finite and were skipped"] if n_skipped else []


def history_of_file(header: dict[str, Any], numbers: dict[str, np.ndarray]) -> pd.DataFrame:
    """The history in a model file: columns and phases of its header, and the numbers of the other columns.

    Files of before 0.2 call every objective "bound"; whether it was one is not known of them.
    """
    columns = {"phase": header["history_phases"], **numbers}
    history = pd.DataFrame({name: columns[name] for name in header["history_columns"]})
    return history if "objective" in history else history.rename(columns={"bound": "objective"})
