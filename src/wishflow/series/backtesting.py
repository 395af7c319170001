"""Rolling evaluation: fit once, then forecast from origin after origin and score what came."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from sklearn.base import clone

from .. import metrics
from ..errors import DataError, OptionError
from ..specs import checks
from .data.frames import ONLY, read
from .data.horizons import steps_of
from .data.times import TimeAxis
from .forecast import Forecast


def backtest(
    forecaster: Any,
    y: pd.DataFrame | pd.Series,
    X: pd.DataFrame | None = None,
    fh: Any = 24,
    initial: Any = None,
    step: int | None = None,
    n_draws: int = 500,
    coverage: float = 0.8,
    n_densities: int | None = None,
) -> xr.Dataset:
    """Scores by origin and horizon: "crps" and "covered" for each variable, the others for each time.

    "energy" is the energy score, "variogram" the variogram score of order ½, "log_density" the mixture's,
    "log_density_moments" that of a Gaussian with the moments of the draws (absent where there are too few draws for
    it). `fh` counts steps, as in `forecast`: an int, a list, or a time span such as "48h".

    The forecaster is fitted to the rows before `initial` (a number of rows, a stamp, or a share; 70 % by default)
    unless it is fitted already; then origins follow every `step` rows (the longest horizon by default), and at each the
    forecaster is conditioned on all rows before it. Cells that were not observed have no score (NaN). `n_densities`
    limits log densities, which cost most, to the first horizons. Any object with `fit`, `update`, `forecast` and `end_`
    can be rolled.
    """
    frame = _one_series(y)
    first = _first_origin(frame, initial)
    rolling = copy.copy(forecaster) if hasattr(forecaster, "end_") else clone(forecaster)
    if getattr(rolling, "is_panel_", False):
        raise OptionError(
            "the forecaster was fitted to a panel; expected one of a single series: pass one that is not fitted "
            "(sklearn.base.clone)."
        )
    if not hasattr(rolling, "end_"):
        rolling.fit(frame.iloc[:first], X)
    elif rolling.end_ >= frame.index[first]:
        raise OptionError(
            f"the forecaster has seen data up to {rolling.end_}, the first origin is {frame.index[first]}; choose a "
            "later initial, or pass a forecaster that is not fitted."
        )
    units = getattr(rolling, "units_", None)
    axis = TimeAxis.of([frame.index], getattr(forecaster, "freq", None)) if units is None else units.axis
    steps = _steps(axis, fh, frame.index[first - 1])
    jump = max(steps) if step is None else checks.positive_int("step", step)
    origins = range(first, len(frame) - max(steps) + 1, jump)
    if not len(origins):
        raise OptionError(f"no origin after row {first} leaves {max(steps)} rows to score; lower initial or fh.")
    seen, parts = _start_of_rest(rolling, frame), []
    for origin in origins:
        if origin > seen:
            rolling.update(frame.iloc[seen:origin], X)
            seen = origin
        found = rolling.forecast(steps, X, n_draws=n_draws)
        parts.append(_scores(found, _rows_at(frame, axis, found.index), n_draws, coverage, n_densities))
    scores = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    coordinates = {"origin": frame.index[list(origins)], "horizon": steps, "variable": list(frame.columns)}
    by_cell, by_time = ("origin", "horizon", "variable"), ("origin", "horizon")
    dims = {name: by_cell if name in ("crps", "covered") else by_time for name in scores}
    return xr.Dataset({n: (dims[n], v) for n, v in scores.items()}, coordinates, attrs={"coverage": coverage})


def _one_series(y: Any) -> pd.DataFrame:
    panel = read(y, "y")
    if panel.is_panel:
        kind = "a dict" if isinstance(y, dict) else "a frame with a MultiIndex"
        raise DataError(
            f"y is {kind}, a panel of {len(panel.tables)} series; expected one series, as a frame: pass them one at a "
            "time."
        )
    table = panel.tables[ONLY]
    return pd.DataFrame(table.values, table.index, panel.columns)


def _steps(axis: TimeAxis, fh: Any, end: Any) -> list[int]:
    steps = steps_of(axis, fh, end)
    if steps is None:
        raise OptionError(
            f"fh={fh!r} holds stamps; expected steps (an int or a list) or a time span such as '48h', because every "
            "origin has a horizon of its own."
        )
    return steps


def _rows_at(frame: pd.DataFrame, axis: TimeAxis, stamps: pd.Index) -> np.ndarray:
    """The rows nearest to the stamps of a forecast, less than half a step away; NaN where there is none."""
    rows = pd.Index(axis.numbers(frame.index))
    at = rows.get_indexer(pd.Index(axis.numbers(stamps)), method="nearest", tolerance=0.499 * axis.unit)
    return np.where((at >= 0)[:, None], frame.to_numpy()[at], np.nan)


def _first_origin(frame: pd.DataFrame, initial: Any) -> int:
    """The position of the first row that is forecast."""
    if initial is None:
        initial = 0.7
    if isinstance(initial, float):
        initial = round(initial * len(frame))
    position = int(initial) if isinstance(initial, numbers.Integral) else _place(frame.index, initial)
    if not 1 < position < len(frame):
        raise OptionError(f"initial={initial!r} leaves {position} rows to train on; the series has {len(frame)} rows.")
    return position


def _place(index: pd.Index, stamp: Any) -> int:
    """The first row at a stamp or after it. Without a zone it is of the zone of the data, as where pandas selects."""
    try:
        if isinstance(index, pd.DatetimeIndex):
            stamp = pd.Timestamp(stamp)
            stamp = stamp.tz_localize(index.tz) if stamp.tz is None else stamp
        return int(index.searchsorted(stamp))
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"initial={stamp!r} is no place among stamps like {index[0]!r} ({error}); expected a number of rows, a "
            "share between 0 and 1, or a stamp of the kind of the index."
        ) from error


def _start_of_rest(forecaster: Any, frame: pd.DataFrame) -> int:
    """The first row the forecaster has not seen."""
    return int(frame.index.searchsorted(forecaster.end_, side="right"))


def _scores(
    found: Forecast, values: Float[np.ndarray, "T P"], n_draws: int, coverage: float, n_densities: int | None
) -> dict[str, np.ndarray]:
    """Scores of one forecast, given what came at its stamps."""
    samples = found.samples.values
    is_there = ~np.isnan(values)
    filled = np.where(is_there, values, 0.0)
    low, high = np.quantile(samples, [0.5 - coverage / 2, 0.5 + coverage / 2], axis=0)
    to_score = values.copy()
    if n_densities is not None:
        to_score[n_densities:] = np.nan
    scores = {
        "crps": np.where(is_there, metrics.crps_samples(filled, samples), np.nan),
        "covered": np.where(is_there, (low <= filled) & (filled <= high), np.nan),
        "energy": np.where(is_there.all(axis=1), metrics.energy_score(filled, samples), np.nan),
        "variogram": np.where(is_there.all(axis=1), metrics.variogram_score(filled, samples), np.nan),
        "log_density": found.log_prob(to_score).to_numpy(),
    }
    if n_draws > 2 * values.shape[1]:
        scores["log_density_moments"] = found.log_prob(values, kind="moments").to_numpy()
    return scores
