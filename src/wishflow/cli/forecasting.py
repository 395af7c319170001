"""`forecast`: a table of series in, forecasts, a model file and a report out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .. import WishartForecaster, enable_compilation_cache
from ..errors import ModelFileError, OptionError
from ..report.numbers import span_in_words
from ..series.data.frames import ONLY
from .options import SeriesModel, check_no_fit
from .regression import MODEL_FILE, check_table_output, checked_levels, loaded
from .series_files import (
    SeriesData,
    Source,
    check_has_future,
    check_horizon,
    check_matches,
    check_regular,
    number_or_name,
)
from .tables import PAGE, check_output, counted, listed, write_table
from .terminal import Terminal


@dataclasses.dataclass(frozen=True)
class Files:
    """Where a model comes from, and where model, forecast and report go."""

    model: Path | None = None
    save: Path | None = None
    output: Path | None = None
    report: Path | None = None

    def check(self, terminal: Terminal) -> None:
        """Before the work is done."""
        check_table_output(terminal, self.output, "forecast")
        check_output(self.save, MODEL_FILE, "--save")
        check_output(self.report, PAGE, "--report")


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
        raise OptionError(f"--horizon {text!r} is not a time span; expected steps such as 48, or a span such as 48h.")
    return text


def built(model: SeriesModel, verbose: int) -> WishartForecaster:
    """The forecaster of these options."""
    options: dict[str, Any] = {} if model.max_iter is None else {"max_iter": model.max_iter}
    return WishartForecaster(freq=number_or_name(model.freq), random_state=model.seed, verbose=verbose, **options)


def run_forecast(
    terminal: Terminal,
    source: Source,
    files: Files,
    model: SeriesModel,
    span: str,
    quantiles: Sequence[str],
    n_draws: int,
) -> None:
    """Fit, or take a saved model on to the rows given, and forecast."""
    files.check(terminal)
    if source.path is None and files.model is None:
        raise OptionError("neither a file of series nor --from was given; expected one of them, or both.")
    if files.model is not None:
        check_no_fit(model)
    levels, fh = checked_levels(quantiles), horizon_of(span)
    saved = None if files.model is None else forecaster_of(files.model)
    data = source.read(terminal, saved)
    if files.report is not None and ONLY not in (data.tables if saved is None else saved.tails_):
        raise OptionError("--report shows the forecast of one series, but the data are a panel; leave it out.")
    enable_compilation_cache()
    start = time.perf_counter()
    fitted = fitted_to(terminal, data, model, fh) if saved is None else continued(terminal, saved, data)
    if files.save is not None:
        fitted.save(files.save)
    found = fitted.forecast(fh, data.X, n_draws=n_draws, given=data.given)
    forecasts = found if fitted.is_panel_ else {ONLY: found}
    write_table(forecast_table(forecasts, levels, fitted), files.output)
    if files.report is not None:
        found.report(files.report, history=data.y, model=fitted)
    _answer(terminal, files, fitted, forecasts, time.perf_counter() - start)


def _answer(
    terminal: Terminal, files: Files, fitted: WishartForecaster, forecasts: dict[Any, Any], seconds: float
) -> None:
    written = {"forecast": files.output, "model": files.save, "report": files.report}
    first, last = (pick(f.index[at] for f in forecasts.values()) for pick, at in ((min, 0), (max, -1)))
    n_steps = len(next(iter(forecasts.values())).index)
    answer = {
        **{name: None if path is None else str(path) for name, path in written.items()},
        **{"series": [str(name) for name in fitted.columns_], "steps": n_steps, "freq": str(fitted.freq_)},
        **({"ids": [str(key) for key in forecasts]} if fitted.is_panel_ else {}),
        **{"first": str(first), "last": str(last), "status": fitted.status_, "seconds": round(seconds, 2)},
    }
    if files.output is not None or terminal.as_json:
        panel = f" of {len(forecasts)} ids" if fitted.is_panel_ else ""
        span = span_in_words(first, last)
        paths = ", ".join(f"{name}: {path}" for name, path in written.items() if path is not None)
        terminal.result(
            answer,
            f"{len(fitted.columns_)} series{panel}, {counted(n_steps, 'step')} from {span}, {seconds:.1f} s\n"
            f"{fitted.status_}\n{paths}",
        )


def fitted_to(terminal: Terminal, data: SeriesData, model: SeriesModel, fh: int | str) -> WishartForecaster:
    """A forecaster fitted to the series of a file; what is wrong with the horizon is found before."""
    check_horizon(data, check_regular(data, model.freq), fh)
    return built(model, terminal.verbose).fit(data.y, data.X)


def forecaster_of(path: Path) -> WishartForecaster:
    """The forecaster of a model file."""
    fitted = loaded(path)
    if not isinstance(fitted, WishartForecaster):
        raise ModelFileError(
            f"{str(path)!r} holds a {type(fitted).__name__}, which does not forecast series; use "
            f"`wishflow predict {path} data.csv`."
        )
    return fitted


def continued(terminal: Terminal, fitted: WishartForecaster, data: SeriesData) -> WishartForecaster:
    """A saved model, conditioned on the rows that it has not seen."""
    check_has_future(fitted, data)
    if data.y is None:
        return fitted
    check_matches(fitted, data.y)
    ends = {key: tail.index[-1] for key, tail in fitted.tails_.items()}
    later = {k: part[part.index > ends[k]] if k in ends else part for k, part in data.tables.items()}
    new = {key: part for key, part in later.items() if len(part)}
    end = fitted.end_
    if not new:
        terminal.note(f"Note: no row of the file is after {end}, the end of the model's data.")
        return fitted
    unseen = [key for key in new if key not in ends]
    if unseen:
        terminal.note(f"Note: the series {listed(unseen)} are new to the model; they are forecast with its parameters.")
    n_rows = sum(map(len, new.values()))
    terminal.note(f"{counted(n_rows, 'row')} after {end} added to the model; its parameters did not change.")
    return fitted.update(new if fitted.is_panel_ else new[ONLY], data.X)


def forecast_table(found: dict[Any, Any], levels: Sequence[float], fitted: WishartForecaster) -> pd.DataFrame:
    """Stamps, of a panel after the ids, and mean, sd and quantiles of each series."""
    tables = {key: _law_table(forecast, levels) for key, forecast in found.items()}
    if not fitted.is_panel_:
        return tables[ONLY]
    name = fitted.units_.index_names[0] or "id"
    for key, table in tables.items():
        table.insert(0, name, [key] * len(table))
    return pd.concat(tables.values(), ignore_index=True)


def _law_table(found: Any, levels: Sequence[float]) -> pd.DataFrame:
    return found.to_frame(levels).rename_axis(found.index.name or "time").reset_index()
