"""Rolling evaluation: fit, then forecast from origin after origin and score the rows that were observed."""

from __future__ import annotations

import copy
import dataclasses
import functools
import numbers
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from sklearn.base import clone

from .. import metrics
from ..callbacks import CallbackList, ChunkEvent, ProgressBar
from ..errors import OptionError
from ..specs import checks
from ..training.backends import Workers
from ..training.checkpoints import INTERRUPTED
from .data.frames import ONLY, Panel, read, with_columns
from .data.horizons import steps_of
from .data.times import TimeAxis, check_same_kind
from .data.unstamped import beside
from .forecast import Forecast
from .noise_frames import read_covariates


def backtest(
    forecaster: Any,
    y: Any,
    X: Any = None,
    fh: Any = 24,
    initial: Any = None,
    step: int | None = None,
    n_draws: int = 500,
    coverage: float = 0.8,
    n_densities: int | None = None,
    verbose: int = 0,
    backend: str | None = None,
    backend_params: Mapping[str, Any] | None = None,
    refit: int | None = None,
) -> xr.Dataset:
    """Score forecasts from many origins against the rows that were observed.

    The forecaster is fitted once, or again every few origins (`refit`). At each origin it is conditioned on all rows
    before it and forecasts the horizon.

    Parameters
    ----------
    forecaster : WishartForecaster or object
        The forecaster, fitted or not; it is copied. Any object with `fit`, `update`, `forecast` and `end_` can be used.
        One that is fitted already, to rows before `initial`, is not fitted again unless `refit` says so.
    y : DataFrame, Series, array or dict
        The series, or a panel: a dict of frames by id, or a frame with a MultiIndex (id, time).
    X : DataFrame, Series, array or dict, optional
        Covariates, at all rows of y. Row i of an array belongs to row i of y.
    fh : int, list of int or str, default=24
        The horizon, as in `forecast`: a number of steps, a list of steps, or a time span such as "48h".
    initial : int, float or stamp, optional
        The rows to fit to: their number, their share, or the first stamp after them. By default 70 % of the rows.
    step : int, optional
        Rows from one origin to the next. By default the longest horizon.
    n_draws : int, default=500
        Paths of each forecast.
    coverage : float, default=0.8
        Coverage of the intervals that are scored.
    n_densities : int, optional
        Log densities, which cost most, are computed for this number of horizons, the first ones. By default for all.
    verbose : int, default=0
        0 is silent, 1 shows how many origins are done, and the time left.
    backend : {None, "loky", "ray", "dask", "slurm"}, default=None
        Where the series of a panel are forecast and scored, each by itself: see `wishflow.fit_many`.
    backend_params : dict, optional
        Options of the backend.
    refit : int, optional
        Number of origins after which a copy of the forecaster is fitted anew to all rows before the next one. By
        default there is one fit. Of a panel the stamps of origins are counted, and all series are fitted together.

    Returns
    -------
    Dataset
        Scores by "origin" and "horizon". Values that were not observed have no score (NaN). See Notes.

    Raises
    ------
    OptionError
        If no origin leaves rows to score, `fh` holds stamps, the forecaster has seen rows after the first origin, or it
        was fitted to one series and `y` is a panel, or the reverse. Options are checked before a model is trained.

    See Also
    --------
    WishartForecaster : The forecaster.
    wishflow.metrics : The scores.

    Notes
    -----
    For each variable there are "crps" and "covered", whether the value lies in the central interval. For each time
    there are "energy", the energy score; "variogram", the variogram score of order ½; "log_density", that of the
    mixture (`Forecast.log_prob`); and "log_density_moments", that of a Gaussian with the moments of the draws. The last
    one is absent where there are too few draws for it.

    Panels: all series are fitted together, up to one stamp; `initial` counts the stamps of all series together. Each
    series is then forecast from its own origins, conditioned on its own past. The scores have a further dimension
    "series" in front, with NaN at origins that a series does not have. A series that begins later is forecast from its
    second row on.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import wishflow as wf
    >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
    >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
    >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
    >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0)
    >>> scores = wf.backtest(forecaster, y, fh=2, initial=34, n_draws=50)
    >>> dict(scores["crps"].sizes)
    {'origin': 3, 'horizon': 2, 'variable': 2}
    >>> by_horizon = scores["crps"].mean(("origin", "variable"))
    """
    panel, workers = _named(forecaster, read(y, "y")), Workers.of(backend, backend_params)
    frames = {key: pd.DataFrame(t.values, t.index, panel.columns) for key, t in panel.tables.items()}
    X = _stamped(X, panel, forecaster)
    is_fitted = hasattr(forecaster, "end_")
    if is_fitted and getattr(forecaster, "is_panel_", False) != panel.is_panel:
        known, given = ("a panel", "one series") if forecaster.is_panel_ else ("one series", "a panel")
        raise OptionError(
            f"the forecaster was fitted to {known}, y is {given}; expected the same: pass a forecaster that is not "
            "fitted (sklearn.base.clone)."
        )
    start = _first_stamp(frames, initial)
    # All that is asked for is looked at before a model is trained.
    axis = _axis_of(forecaster, frames, start)
    scoring = _Scoring(
        axis,
        checks.positive_int("n_draws", n_draws),
        checks.level("coverage", coverage, "score one at a time"),
        None if n_densities is None else checks.whole_number("n_densities", n_densities, 0, sys.maxsize),
        checks.verbosity(verbose),
    )
    every = None if refit is None else checks.positive_int("refit", refit)
    plans = _plans(frames, axis, start, fh, None if step is None else checks.positive_int("step", step))
    if is_fitted:
        for key, plan in plans.items():
            _Rolling(forecaster, key, X).check_end(frames[key].index[plan.origins[0]])
    parts: dict[Any, list[xr.Dataset]] = {key: [] for key in plans}
    for place, (begin, end) in enumerate(_blocks(frames, plans, every)):
        if place == 0 and is_fitted:
            rolling = copy.copy(forecaster)
        else:
            rolling = clone(forecaster)
            rows = _rows_before(frames, start if place == 0 else begin)
            rolling.fit(rows if panel.is_panel else rows[ONLY], X)
            if getattr(rolling, "status_", None) == INTERRUPTED:  # half a fit has no score; the next run resumes it
                raise KeyboardInterrupt
            _check_steps(rolling, axis, begin)
        calls = {}
        for key, plan in plans.items():
            origins = plan.between(frames[key].index, begin, end)
            if origins:
                one = rolling if key is ONLY else _alone(rolling, key)
                calls[key] = (_Rolling(one, key, X), frames[key], origins, plan.steps, scoring)
        found = workers.map(_rolled, list(calls.values())) if panel.is_panel else [_rolled(*calls[ONLY])]
        for key, scores in zip(calls, found, strict=True):
            parts[key].append(scores)
    whole = {key: scores[0] if len(scores) == 1 else xr.concat(scores, "origin") for key, scores in parts.items()}
    if not panel.is_panel:
        return whole[ONLY]
    keys = np.empty(len(whole), object)
    keys[:] = list(whole)
    joined = xr.concat(whole.values(), "series", join="outer", coords="minimal", compat="override")
    return joined.assign_coords(series=keys).sortby("origin").assign_attrs(next(iter(whole.values())).attrs)


@dataclasses.dataclass(frozen=True)
class _Scoring:
    """What is computed at each origin."""

    axis: TimeAxis
    n_draws: int
    coverage: float
    n_densities: int | None
    verbose: int


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The rows of a series to forecast from, and the steps of their horizon."""

    origins: range
    steps: list[int]

    def between(self, index: pd.Index, begin: Any, end: Any) -> list[int]:
        """The origins from one stamp up to another one (None: all that follow)."""
        return [row for row in self.origins if index[row] >= begin and (end is None or index[row] < end)]


def _named(forecaster: Any, panel: Panel) -> Panel:
    """The series in the columns of a fitted forecaster, in their order; arrays get its names."""
    columns = getattr(forecaster, "columns_", None) if hasattr(forecaster, "end_") else None
    for tail in getattr(forecaster, "tails_", {}).values():
        check_same_kind(next(iter(panel.tables.values())).index, tail.index, "y", "the data of fit")
    return panel if columns is None else with_columns(panel, columns, "y")


def _stamped(X: Any, panel: Panel, forecaster: Any) -> Any:
    """Covariates as frames: row i of an array belongs to row i of y, and its columns are those that fit saw."""
    known = read_covariates(X)
    if known is None or all(table.has_stamps for table in known.tables.values()):
        return X
    columns = getattr(getattr(forecaster, "units_", None), "x_columns", None)
    found = beside(known if columns is None else with_columns(known, columns, "X"), panel)
    frames = {key: pd.DataFrame(table.values, table.index, found.columns) for key, table in found.tables.items()}
    return frames if found.is_panel else frames[ONLY]


def _axis_of(forecaster: Any, frames: dict[Any, pd.DataFrame], start: Any) -> TimeAxis:
    """The axis of a forecaster, or the one that it will have."""
    units = getattr(forecaster, "units_", None)
    if units is not None:
        return units.axis
    inner = getattr(forecaster, "forecaster", None)  # of a WideForecaster
    if not hasattr(forecaster, "freq") and not hasattr(forecaster, "forecaster"):
        # Another object may count steps as it likes; all stamps together say best what they are.
        return TimeAxis.of([frame.index for frame in frames.values()])
    before = _rows_before(frames, start)
    if not before:
        raise OptionError(
            f"no series has a value before {start}, the first origin, so there are no rows to fit to; choose a later "
            "initial."
        )
    return TimeAxis.of(
        [rows.index for rows in before.values()], getattr(forecaster if inner is None else inner, "freq", None)
    )


def _check_steps(fitted: Any, axis: TimeAxis, begin: Any) -> None:
    """Horizons and scores are counted in the steps of the first fit, which those that follow must have too."""
    units = getattr(fitted, "units_", None)
    if units is not None and units.axis.step_name != axis.step_name:
        raise OptionError(
            f"the rows before {begin} have steps of {units.axis.step_name!r}, those of the first fit have "
            f"{axis.step_name!r}, so that a horizon would mean two things; pass freq= to the forecaster, or choose a "
            "later initial."
        )


def _rows_before(frames: dict[Any, pd.DataFrame], stamp: Any) -> dict[Any, pd.DataFrame]:
    """The rows of each series before a stamp; of a panel without series that have no value there."""
    found = {key: frame.iloc[: int(frame.index.searchsorted(stamp))] for key, frame in frames.items()}
    return {key: rows for key, rows in found.items() if key is ONLY or rows.notna().any(axis=None)}


def _plans(frames: dict[Any, pd.DataFrame], axis: TimeAxis, start: Any, fh: Any, step: int | None) -> dict[Any, _Plan]:
    """Origins and horizons of each series that has some."""
    plans = {}
    for key, frame in frames.items():
        first = int(frame.index.searchsorted(start))
        if key is not ONLY:
            # The past of a series that begins later is its first row with a value.
            has_value = frame.notna().any(axis=1).to_numpy()
            first = max(first, int(has_value.argmax()) + 1 if has_value.any() else len(frame))
        steps = _steps(axis, fh, frame.index[first - 1])
        origins = range(first, len(frame) - max(steps) + 1, max(steps) if step is None else step)
        if key is ONLY and not origins:
            raise OptionError(f"no origin after row {first} leaves {max(steps)} rows to score; lower initial or fh.")
        if origins:
            plans[key] = _Plan(origins, steps)
    if not plans:
        raise OptionError(f"no series has an origin from {start} on that leaves rows to score; lower initial or fh.")
    return plans


def _blocks(frames: dict[Any, pd.DataFrame], plans: dict[Any, _Plan], every: int | None) -> list[tuple[Any, Any]]:
    """The stamps from which on, and before which, one fit is used: all, or those of so many origins."""
    stamps = functools.reduce(
        lambda one, other: one.union(other), (frames[key].index[list(plan.origins)] for key, plan in plans.items())
    )
    begins = list(stamps[:1] if every is None else stamps[::every])
    return list(zip(begins, [*begins[1:], None], strict=True))


@dataclasses.dataclass(frozen=True)
class _Rolling:
    """A forecaster that follows one series, of a panel or alone."""

    forecaster: Any
    key: Any
    X: Any

    def end(self) -> Any:
        """The last stamp it has seen of the series; None where it knows nothing of it."""
        tails = getattr(self.forecaster, "tails_", None)
        if tails is None:
            return self.forecaster.end_
        return tails[self.key].index[-1] if self.key in tails else None

    def check_end(self, first: Any) -> None:
        """The forecaster must not have seen rows that it is to forecast."""
        end = self.end()
        if end is not None and end >= first:
            of_series = "" if self.key is ONLY else f" of {self.key!r}"
            raise OptionError(
                f"the forecaster has seen data{of_series} up to {end}, the first origin is {first}; choose a later "
                "initial, or pass a forecaster that is not fitted."
            )

    def update(self, rows: pd.DataFrame) -> None:
        with warnings.catch_warnings():
            # When it is fitted anew is said by `refit`.
            warnings.filterwarnings("ignore", "a new fit is due", UserWarning)
            self.forecaster.update(rows if self.key is ONLY else {self.key: rows}, self.X)

    def forecast(self, steps: list[int], n_draws: int) -> Forecast:
        found = self.forecaster.forecast(steps, self.X, n_draws=n_draws)
        return found if self.key is ONLY else found[self.key]


def _alone(forecaster: Any, key: Any) -> Any:
    """A forecaster of a panel that knows one of its series alone, so that no others are forecast with it."""
    alone = copy.copy(forecaster)
    for name in ("tails_", "reservoir_"):
        rows = getattr(forecaster, name, None)
        if rows is not None:
            setattr(alone, name, {key: rows[key]} if key in rows else {})
    return alone


def _rolled(
    rolling: _Rolling, frame: pd.DataFrame, origins: list[int], steps: list[int], scoring: _Scoring
) -> xr.Dataset:
    """The scores of one series at these origins."""
    end = rolling.end()
    seen, parts = 0 if end is None else int(frame.index.searchsorted(end, side="right")), []
    began = time.perf_counter()
    with CallbackList(ProgressBar() if scoring.verbose else None) as progress:
        progress.on_start("backtest", len(origins))
        for origin in origins:
            if origin > seen:
                rolling.update(frame.iloc[seen:origin])
                seen = origin
            found = rolling.forecast(steps, scoring.n_draws)
            parts.append(_scores(found, _rows_at(frame, scoring.axis, found.index), scoring))
            progress.on_chunk(ChunkEvent("backtest", len(parts), len(origins), {}, time.perf_counter() - began))
    scores = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    stamps = frame.index[origins].rename("origin")
    coordinates = {"origin": stamps, "horizon": steps, "variable": list(frame.columns)}
    by_cell, by_time = ("origin", "horizon", "variable"), ("origin", "horizon")
    dims = {name: by_cell if name in ("crps", "covered") else by_time for name in scores}
    return xr.Dataset({n: (dims[n], v) for n, v in scores.items()}, coordinates, attrs={"coverage": scoring.coverage})


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


def _first_stamp(frames: dict[Any, pd.DataFrame], initial: Any) -> Any:
    """The first stamp that is forecast, among those of all series."""
    stamps = functools.reduce(lambda one, other: one.union(other), (frame.index for frame in frames.values()))
    if initial is None:
        initial = 0.7
    if isinstance(initial, float):
        initial = round(initial * len(stamps))
    position = int(initial) if isinstance(initial, numbers.Integral) else _place(stamps, initial)
    if not 1 < position < len(stamps):
        raise OptionError(f"initial={initial!r} leaves {position} rows to train on; y has {len(stamps)} stamps.")
    return stamps[position]


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


def _scores(found: Forecast, values: Float[np.ndarray, "T P"], scoring: _Scoring) -> dict[str, np.ndarray]:
    """Scores of one forecast, given the observed values at its stamps."""
    samples, coverage = found.samples.values, scoring.coverage
    is_there = ~np.isnan(values)
    filled = np.where(is_there, values, 0.0)
    low, high = np.quantile(samples, [0.5 - coverage / 2, 0.5 + coverage / 2], axis=0)
    to_score = values.copy()
    if scoring.n_densities is not None:
        to_score[scoring.n_densities :] = np.nan
    scores = {
        "crps": np.where(is_there, metrics.crps_samples(filled, samples), np.nan),
        "covered": np.where(is_there, (low <= filled) & (filled <= high), np.nan),
        "energy": np.where(is_there.all(axis=1), metrics.energy_score(filled, samples), np.nan),
        "variogram": np.where(is_there.all(axis=1), metrics.variogram_score(filled, samples), np.nan),
        "log_density": found.log_prob(to_score).to_numpy(),
    }
    if scoring.n_draws > 2 * values.shape[1]:
        scores["log_density_moments"] = found.log_prob(values, kind="moments").to_numpy()
    return scores
