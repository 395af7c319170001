"""`forecast`: a table of series in, forecasts, a model file and a report out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .. import WishartForecaster, enable_compilation_cache
from ..errors import DataError, ModelFileError, OptionError
from ..series.data.times import TimeAxis
from .regression import MODEL_FILE, checked_levels, loaded
from .tables import check_columns, check_output, guessed_time, listed, numbers, read_table, time_index, write_table
from .terminal import Terminal

REMEDY = "leave the column out, by naming those you want with --series"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where series come from: a file, its column of stamps and those of the values."""

    path: Path
    time: str | None = None
    series: Sequence[str] = ()
    separator: str | None = None
    date_format: str | None = None

    def read(self, terminal: Terminal) -> pd.DataFrame:
        """The series, with stamps as the index, in order of time."""
        frame = read_table(self.path, self.separator)
        name = self.time if self.time is not None else guessed_time(frame, self.path)
        check_columns(frame, [name], self.path, "--time")
        check_columns(frame, self.series, self.path, "--series")
        columns = list(self.series) or [column for column in frame.columns if column != name]
        if not columns:
            raise DataError(f"{str(self.path)!r} has no column beside {name!r}; expected at least one of numbers.")
        values = numbers(frame, columns, self.path, REMEDY)
        values.index = time_index(frame, name, self.path, self.date_format)
        if not values.index.is_monotonic_increasing:
            terminal.note(f"Note: the rows of {self.path} were not in order of time; they were sorted by {name!r}.")
            values = values.sort_index(kind="stable")
        return values


def horizon_of(text: str) -> int | str:
    """A number of steps, or a time span."""
    if text.lstrip("+-").isdecimal():
        if int(text) < 1:
            raise OptionError(f"--horizon {text} given; expected at least 1 step, or a time span such as 48h.")
        return int(text)
    try:
        span = pd.Timedelta(text)
    except ValueError:
        span = None
    if span is None or not span > pd.Timedelta(0):
        raise OptionError(f"--horizon {text!r} is no time span; expected steps such as 48, or a span such as 48h.")
    return text


@dataclasses.dataclass(frozen=True)
class Forecasting:
    """How to forecast: the horizon, what is drawn, and the model's options."""

    horizon: str
    freq: str | None = None
    seed: int = 0
    draws: int = 1000
    max_iter: int | None = None

    def built(self, verbose: int) -> WishartForecaster:
        """The forecaster."""
        options: dict[str, Any] = {} if self.max_iter is None else {"max_iter": self.max_iter}
        freq = _number_or_name(self.freq)
        return WishartForecaster(freq=freq, random_state=self.seed, verbose=verbose, **options)


def _number_or_name(freq: str | None) -> float | str | None:
    """A step of numeric stamps, or a frequency of pandas."""
    try:
        return None if freq is None else float(freq)
    except ValueError:
        return freq


def check_regular(index: pd.Index, freq: str | None) -> None:
    """Horizons count steps: without a regular grid they have no length. Found before the fit."""
    if freq is not None:
        return
    axis = TimeAxis.of([index.drop_duplicates()]) if len(index) > 2 else None
    if axis is not None and not axis.is_regular:
        length = axis.unit if axis.kind == "number" else pd.Timedelta(round(axis.unit), unit="ns")
        raise OptionError(
            f"the stamps are irregular (median gap {length}), so a step has no length; name one with --freq, such as "
            "--freq h."
        )


def run_forecast(
    terminal: Terminal,
    source: Source | None,
    output: Path | None,
    how: Forecasting,
    quantiles: Sequence[float],
    model: Path | None,
    save: Path | None,
    report: Path | None,
) -> None:
    """Fit, or take a saved model on to the rows given, and forecast."""
    check_output(output, (".csv", ".tsv", ".parquet", ".pq"), "-o")
    check_output(save, MODEL_FILE, "--save")
    check_output(report, (".html",), "--report")
    if source is None and model is None:
        raise OptionError("neither a file of series nor --from was given; expected one of them, or both.")
    if output is None and terminal.as_json:
        raise OptionError("--json given without -o; name a file for the forecast.")
    levels, fh = checked_levels(quantiles), horizon_of(how.horizon)
    y = None if source is None else source.read(terminal)
    enable_compilation_cache()
    start = time.perf_counter()
    if model is None and y is not None:
        check_regular(y.index, how.freq)
        fitted = how.built(terminal.verbose).fit(y)
    else:
        fitted = continued(terminal, forecaster_of(Path(str(model))), y)
    if save is not None:
        fitted.save(save)
    found = fitted.forecast(fh, n_draws=how.draws)
    write_table(forecast_table(found, levels), output)
    if report is not None:
        found.report(report, history=y, model=fitted)
    seconds = time.perf_counter() - start
    written = {"forecast": output, "model": save, "report": report}
    answer = {
        **{name: None if path is None else str(path) for name, path in written.items()},
        **{"series": [str(name) for name in found.columns], "steps": len(found.index), "freq": str(fitted.freq_)},
        **{"first": str(found.index[0]), "last": str(found.index[-1])},
        **{"status": fitted.status_, "seconds": round(seconds, 2)},
    }
    if output is not None or terminal.as_json:
        files = ", ".join(f"{name}: {path}" for name, path in written.items() if path is not None)
        terminal.result(
            answer,
            f"{len(found.columns)} series, {len(found.index)} steps from {found.index[0]} to {found.index[-1]}, "
            f"{seconds:.1f} s\n{fitted.status_}\n{files}",
        )


def forecaster_of(path: Path) -> WishartForecaster:
    """The forecaster of a model file."""
    fitted = loaded(path)
    if not isinstance(fitted, WishartForecaster):
        raise ModelFileError(
            f"{str(path)!r} holds a {type(fitted).__name__}, which has no time; use `wishflow predict {path} data.csv`."
        )
    if fitted.is_panel_:
        raise ModelFileError(f"{str(path)!r} holds a model of a panel; forecast it in Python (docs: panels).")
    return fitted


def continued(terminal: Terminal, fitted: WishartForecaster, y: pd.DataFrame | None) -> WishartForecaster:
    """A saved model, conditioned on the rows that it has not seen."""
    if y is None:
        return fitted
    names = list(fitted.columns_)
    missing = [name for name in names if name not in y.columns]
    if missing:
        raise DataError(f"the file lacks the series {listed(missing)}; the model was fitted to {listed(names)}.")
    end = fitted.end_
    zone = getattr(end, "tzinfo", None)
    if isinstance(y.index, pd.DatetimeIndex) != isinstance(end, pd.Timestamp):
        raise DataError(f"the stamps of the file are {y.index.dtype}, the model has {type(end).__name__}s; give such.")
    if isinstance(y.index, pd.DatetimeIndex) and (y.index.tz is None) != (zone is None):
        raise DataError(f"the stamps of the file have the zone {y.index.tz}, those of the model {zone}; give both one.")
    new = y.loc[y.index > end, names]
    if not len(new):
        terminal.note(f"Note: no row of the file is after {end}, the end of the model's data.")
        return fitted
    terminal.note(f"{len(new)} rows after {end} were added to what the model knows; its parameters stay.")
    return fitted.update(new)


def forecast_table(found: Any, levels: Sequence[float]) -> pd.DataFrame:
    """Stamps, and mean, sd and quantiles of each series."""
    return found.to_frame(levels).rename_axis(found.index.name or "time").reset_index()
