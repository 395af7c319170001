"""The time-series half of the demonstration: New York weather, random walk, VAR and ours side by side."""

from __future__ import annotations

import copy
import dataclasses
import time
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

import wishflow as wf

from .. import plotting
from .rivals import RandomWalk, VectorAutoregression, filled

ORIGIN = "2013-11-01"
HORIZON = 24
BANDS = {"1 h": slice(0, 1), "2–6 h": slice(1, 6), "7–24 h": slice(6, 24)}
WIND = [f"{airport} wind_speed" for airport in ("EWR", "JFK", "LGA")]


@dataclasses.dataclass(frozen=True)
class SeriesSize:
    """How much is computed."""

    max_iter: int = 150
    n_inducing: int = 60
    n_draws: int = 100
    n_days: int = 30
    first_day: str = "2013-01-01"


@dataclasses.dataclass(frozen=True)
class SeriesScores:
    """Scores of one forecaster over all windows; CRPS in units of the training part's standard deviations."""

    name: str
    crps: dict[str, float]
    energy: float
    coverage: float
    seconds: float


def forecasters(size: SeriesSize, callbacks: Any = None) -> dict[str, Any]:
    """The three, unfitted. Settings of ours were chosen on October, with training up to September."""
    ours = wf.WishartForecaster(
        lags=3,
        rank=5,
        white_noise="state",
        calendar=True,
        n_inducing=size.n_inducing,
        max_iter=size.max_iter,
        callbacks=callbacks,
        transform=None,
        validation_fraction=0,
    )
    return {"random walk": RandomWalk(), "VAR(3)": VectorAutoregression(3), "wishflow": ours}


def standardised(size: SeriesSize) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training part and the days to forecast, in units of the training part."""
    y = wf.datasets.load_nyc_weather(clean=True).loc[size.first_day :]
    origin = pd.Timestamp(ORIGIN, tz=pd.DatetimeIndex(y.index).tz)
    train = y.loc[: origin - pd.Timedelta("1h")]
    rest = y.loc[origin : origin + pd.Timedelta(days=size.n_days) - pd.Timedelta("1h")]
    return (train - train.mean()) / train.std(), (rest - train.mean()) / train.std()


def compare(size: SeriesSize, callbacks: Any = None) -> tuple[dict[str, Any], list[SeriesScores]]:
    """Fit on January to October, roll 24-hour forecasts over November."""
    train, rest = standardised(size)
    whole, fitted, rows = pd.concat([train, rest]), {}, []
    for name, forecaster in forecasters(size, callbacks).items():
        started = time.perf_counter()
        fitted[name] = forecaster.fit(train)
        scores = wf.backtest(fitted[name], whole, fh=HORIZON, initial=len(train), n_draws=size.n_draws, n_densities=0)
        rows.append(_summary(name, scores, time.perf_counter() - started))
    return fitted, rows


def _summary(name: str, scores: xr.Dataset, seconds: float) -> SeriesScores:
    crps = scores["crps"].mean(("origin", "variable")).values
    bands = {band: float(crps[part].mean()) for band, part in BANDS.items()}
    return SeriesScores(name, bands, float(scores["energy"].mean()), float(scores["covered"].mean()), seconds)


def windiest_day(rest: pd.DataFrame) -> int:
    """The row of the midnight (of the wall clock) that begins the day with the strongest wind."""
    days = pd.DatetimeIndex(rest.index).date
    by_day = rest[WIND].max(axis=1).groupby(days).max()
    return int(np.flatnonzero(days == by_day.idxmax())[0])


def fan_figure(forecaster: wf.WishartForecaster, size: SeriesSize, n_draws: int = 500) -> Figure:
    """24 hours of the windiest day, forecast from the midnight before it, in the units of the data."""
    train, rest = standardised(size)
    start = windiest_day(rest)
    moved = copy.copy(forecaster)
    if start:
        moved.update(rest.iloc[:start])
    found = moved.forecast(HORIZON, n_draws=n_draws)
    raw = wf.datasets.load_nyc_weather(clean=True)
    before = raw.loc[size.first_day :].loc[: train.index[-1]]
    samples = found.samples.values * before.std().to_numpy() + before.mean().to_numpy()
    shown = wf.Forecast(samples, found.index, found.columns)
    history = filled(raw.loc[found.index[0] - pd.Timedelta("24h") : found.index[-1]])
    figure = Figure(figsize=(8.0, 8.2), layout="constrained")
    shown.plot_fan(["EWR temp", "EWR pressure", *WIND[:2]], history, axes=figure.subplots(4, 1))
    title = f"{found.index[0]:%d %B %Y}, forecast at midnight"
    figure.suptitle(title, fontsize=10)
    return figure


def correlation_figure(forecaster: wf.WishartForecaster, size: SeriesSize) -> tuple[Figure, dict[str, np.ndarray]]:
    """Correlations of the noise between airports in the calmest and in the stormiest tenth of the hours."""
    _, rest = standardised(size)
    correlation = forecaster.correlation(rest)
    wind = filled(rest)[WIND].mean(axis=1)
    names = [f"{airport} {part}" for part in ("temp", "wind_speed", "pressure") for airport in ("EWR", "JFK", "LGA")]
    hours = {"calm": wind <= wind.quantile(0.1), "stormy": wind >= wind.quantile(0.9)}
    means = {
        name: correlation.sel(variable=names, variable_2=names).values[is_in.to_numpy()].mean(axis=0)
        for name, is_in in hours.items()
    }
    figure = Figure(figsize=(8.6, 4.4), layout="constrained")
    panels = figure.subplots(1, 2)
    for ax, (name, matrix) in zip(panels, means.items(), strict=True):
        image = plotting.plot_correlation_matrix(matrix, names, ax=ax).images[0]
        ax.set_title(f"{name} hours")
    figure.colorbar(image, ax=panels, shrink=0.8, label="correlation of the noise")
    return figure, means
