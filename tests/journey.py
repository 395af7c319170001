"""The way of y through `fit`, measured: `python -m tests.journey` prints it.

A profiler watches `fit` until the first call of the file that trains. Of every call of a function in the watched folder
it asks whether an argument holds data of y, and notes the file of the function if so. Data of y are

- the frame or array itself, and a `Panel`, `Table`, `Rows`, `Tail`, `Series`, `Ticks`, `Transitions` or `Windows`;
- an array of NumPy or an index of pandas that has as many rows as y, with or without rows for its holes (no other array
  has that many in the example), or that shares memory with y or with an array inside one of the above;
- a list, tuple or dict of such.

`self` is an argument as any other. What has been put on a device is an array of the model, and statistics of y (scales,
limits, a time axis) are no data. Calls that follow each other in one file are a *stay*; a stay in a file where y has
been before is a *return*. Calls of other folders (`numerics`, scikit-learn) are not watched, nor are comprehensions.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf

PACKAGE = Path(wf.__file__).parent
KINDS = ("Panel", "Table", "Rows", "Tail", "Series", "Ticks", "Transitions", "Windows")
N_ROWS, N_HOLES = 151, 14


class Arrived(Exception):
    """Training begins."""


@dataclasses.dataclass(frozen=True)
class Journey:
    """The calls that y went through, (file, function), in order."""

    calls: tuple[tuple[str, str], ...]

    @property
    def stays(self) -> list[tuple[str, list[str]]]:
        """Files in the order of the visits, each with the functions called there, repeated ones once."""
        groups = itertools.groupby(self.calls, key=lambda call: call[0])
        return [(file, list(dict.fromkeys(name for _, name in calls))) for file, calls in groups]

    @property
    def returns(self) -> int:
        files = [file for file, _ in self.stays]
        return len(files) - len(set(files))

    def __str__(self) -> str:
        lines = [f"{place:3}  {file:22}{', '.join(names)}" for place, (file, names) in enumerate(self.stays, start=1)]
        return "\n".join([*lines, f"{len(self.stays)} stays, {self.returns} returns"])


class Watch:
    """A profiler that notes the calls with data of y; `fit` ends with `Arrived` at the first call of `last`."""

    def __init__(self, y: Any, folder: str, last: str, row_counts: set[int]):
        self.folder, self.last, self.row_counts = f"{PACKAGE / folder}/", last, row_counts
        self.calls: list[tuple[str, str]] = []
        self.y, self.memory = y, [memory for memory in map(_memory, _arrays(y)) if memory is not None]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self.folder) or code.co_name.startswith("<"):
            return
        file = code.co_filename.removeprefix(self.folder)
        if file == self.last:
            raise Arrived
        n_arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)
        values = [frame.f_locals[name] for name in code.co_varnames[:n_arguments] if name in frame.f_locals]
        # No generator: all must be looked at, for what they hold is data from then on.
        if any([self.holds_y(value) for value in values]):
            self.calls.append((file, code.co_qualname))

    def holds_y(self, value: Any) -> bool:
        if value is self.y:
            return True
        if type(value) in (list, tuple, dict):
            return any([self.holds_y(part) for part in (value.values() if type(value) is dict else value)])
        if type(value).__name__ in KINDS and type(value).__module__.startswith("wishflow"):
            self.memory += [memory for memory in map(_memory, _arrays(value)) if memory is not None]
            return True
        memory = _memory(value)
        if memory is None or not memory.ndim:
            return False
        return len(memory) in self.row_counts or any(np.shares_memory(memory, other) for other in self.memory)


def _arrays(value: Any) -> list[Any]:
    """Arrays and indices inside a value."""
    if isinstance(value, pd.DataFrame):
        return [value.index, value.to_numpy()]
    if type(value) is dict:
        return [array for part in value.values() for array in _arrays(part)]
    if dataclasses.is_dataclass(value):
        return [array for name, part in vars(value).items() if name != "columns" for array in _arrays(part)]
    return [value]


def _memory(value: Any) -> np.ndarray | None:
    if isinstance(value, pd.DatetimeIndex | pd.PeriodIndex):
        return value.asi8
    return np.asarray(value) if isinstance(value, np.ndarray | pd.Index) else None


def journey(fit: Callable[[], Any], y: Any, folder: str, last: str, row_counts: set[int]) -> Journey:
    """The way of y through `fit` over the files of a folder of the package, up to the file that trains."""
    watch, before = Watch(y, folder, last, row_counts), sys.getprofile()
    sys.setprofile(watch)
    try:
        fit()
    except Arrived:
        return Journey(tuple(watch.calls))
    finally:
        sys.setprofile(before)
    raise RuntimeError(f"no function of {folder}/{last} was called")


def of_forecaster(**options: Any) -> Journey:
    """Hours with missing rows and entries, off the grid by some minutes; a transform, a calendar, a frequency."""
    rng = np.random.default_rng(0)
    index = pd.date_range("2024-01-01", periods=N_ROWS, freq="h") + pd.to_timedelta(rng.uniform(-9, 9, N_ROWS), "min")
    values = np.exp(np.cumsum(rng.normal(size=(N_ROWS, 2)), axis=0) / 10)
    values[rng.random(values.shape) < 0.05] = np.nan
    keep = np.sort(rng.permutation(np.arange(1, N_ROWS - 1))[: N_ROWS - 2 - N_HOLES])
    y = pd.DataFrame(values, index, ["a", "b"]).iloc[[0, *keep, N_ROWS - 1]]
    chosen = {"freq": "h", "transform": "log", "calendar": True, "random_state": 0, "n_inducing": 8}
    chosen |= {"validation_fraction": 0, **options}
    model = wf.WishartForecaster(**chosen)
    return journey(lambda: model.fit(y), y, "series", "training.py", {len(y), N_ROWS})


def of_regressor() -> Journey:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=N_ROWS)
    model = wf.FlowRegressor(random_state=0, n_inducing=8)
    return journey(lambda: model.fit(X, y), y, "regression", "training.py", {N_ROWS})


if __name__ == "__main__":
    found = {
        "WishartForecaster.fit": of_forecaster(),
        "WishartForecaster.fit, six lags": of_forecaster(lags=6),
        "WishartForecaster.fit, latent": of_forecaster(latent_dim=1),
        "FlowRegressor.fit": of_regressor(),
    }
    for name, way in found.items():
        print(f"{name}\n{way}\n")
