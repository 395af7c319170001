"""Fit many forecasters: those of equal shape are trained in one program on an accelerator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ..callbacks import CallbackList
from ..numerics import platform
from ..training.checkpoints import INTERRUPTED
from ..training.together import Fit, PartOfRun, fitted_together
from .data.frames import read
from .data.horizons import checked
from .data.times import TimeAxis


def fit_together(forecasters: Sequence[Any], data: Sequence[tuple], callbacks: Any = None) -> list[Any]:
    """Fit forecasters (`wishflow.fit_many`); an error or Ctrl-C in one fit leaves all of them as they were.

    What is not training, such as the choice of lags and the trials of candidates, is done for one after another.
    Forecasters with checkpoints are trained one after another too.
    """
    has_checkpoints = any(one.checkpoint_dir is not None for one in forecasters)
    if platform.trains_together(len(forecasters)) and not has_checkpoints:
        fits = [_fit(one, part) for one, part in zip(forecasters, data, strict=True)]
        fitted = fitted_together(fits, callbacks)
    else:
        fitted = _one_by_one(forecasters, data, callbacks)
    for forecaster, one in zip(forecasters, fitted, strict=True):
        one.callbacks, one.verbose = forecaster.callbacks, forecaster.verbose
        forecaster.__dict__ = one.__dict__
    return list(forecasters)


def check_horizon(forecaster: Any, data: tuple) -> None:
    """A mistake in the horizon of (y, X, fh) is said before a job is written, which does not know it."""
    if len(data) > 2 and data[2] is not None:
        indices = [table.index for table in read(data[0], "y").tables.values()]
        checked(data[2], TimeAxis.of(indices, forecaster.freq), [index[-1] for index in indices])


def _one_by_one(forecasters: Sequence[Any], data: Sequence[tuple], callbacks: Any) -> list[Any]:
    fitted: list[Any] = []
    with CallbackList(callbacks) as calls:
        for i, (forecaster, part) in enumerate(zip(forecasters, data, strict=True)):
            fitted.append(_fitted(forecaster, part, [PartOfRun(calls, [i], len(forecasters))]))
            if fitted[-1].status_ == INTERRUPTED:  # Ctrl-C is meant for the whole run
                raise KeyboardInterrupt
    return fitted


def _fit(forecaster: Any, data: tuple) -> Callable[[Fit], Any]:
    return lambda fit: _fitted(forecaster, data, [fit])


def _fitted(forecaster: Any, data: tuple, callbacks: list) -> Any:
    """A fitted copy."""
    found = copy.copy(forecaster)
    found.callbacks, found.verbose = callbacks, 0
    return found.fit(*data)
