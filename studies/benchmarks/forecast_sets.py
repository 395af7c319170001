"""Series and protocols of the benchmark `forecasts`: fixed before any forecaster was scored on them.

Each set is a frame, the number of rows to train on, the steps between origins, and the horizons that are scored. New
York is split as in docs/results.md: trained to October 2013, scored over November. All others keep the last fifth to
score, with origins spread evenly over it. Simulated sets are drawn from one seed each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd

import wishflow as wf

SEED = 20240601
# The part of a series that is scored, and the most origins in it.
SCORED = 0.2
N_ORIGINS = 60


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows to train on and the rows of each origin (the first row that is forecast)."""

    y: pd.DataFrame
    n_train: int
    origins: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class SeriesSet:
    """`make` gives the series; `season` is the period of the seasonal naive forecast in rows."""

    make: Callable[[], pd.DataFrame]
    horizons: tuple[int, ...]
    season: int
    split: Callable[[pd.DataFrame, int], Split]


def last_fifth(y: pd.DataFrame, longest: int, n_origins: int = N_ORIGINS) -> Split:
    """The last fifth is scored, from at most so many origins spread evenly over it."""
    first = round((1.0 - SCORED) * len(y))
    last = len(y) - longest
    step = max(1, -(-(last - first + 1) // n_origins))
    return Split(y, first, tuple(range(first, last + 1, step)))


def november(y: pd.DataFrame, longest: int) -> Split:
    """Trained to the end of October; origins every twelve hours that leave 24 hours of November to score."""
    first, end = (int(y.index.searchsorted(pd.Timestamp(day, tz=y.index.tz))) for day in ("2013-11-01", "2013-12-01"))
    return Split(y, first, tuple(range(first, end - longest + 1, 12)))


# --- series ------------------------------------------------------------------------------------------


def new_york() -> pd.DataFrame:
    return wf.datasets.load_nyc_weather(clean=True)


def macro() -> pd.DataFrame:
    """203 quarters of 12 series of the United States (statsmodels)."""
    import statsmodels.api as sm

    frame = sm.datasets.macrodata.load_pandas().data
    stamps = pd.PeriodIndex.from_fields(year=frame["year"].astype(int), quarter=frame["quarter"].astype(int), freq="Q")
    return frame.drop(columns=["year", "quarter"]).set_index(stamps.to_timestamp())


def sunspots() -> pd.DataFrame:
    """309 years of sunspot numbers (statsmodels): one series with a cycle of about eleven rows."""
    import statsmodels.api as sm

    frame = sm.datasets.sunspots.load_pandas().data
    return frame[["SUNACTIVITY"]].set_index(pd.PeriodIndex(frame["YEAR"].astype(int).astype(str), freq="Y"))


def monthly() -> pd.DataFrame:
    """Sea surface temperature and carbon dioxide by month from 1959 to 2001 (statsmodels): cycles of the year."""
    import statsmodels.api as sm

    frame = sm.datasets.elnino.load_pandas().data.set_index("YEAR")
    stamps = pd.date_range("1950-01-01", periods=frame.size, freq="MS")
    temperature = pd.Series(frame.to_numpy().reshape(-1), stamps)
    carbon = sm.datasets.co2.load_pandas().data["co2"].resample("MS").mean()
    return pd.DataFrame({"temperature": temperature, "co2": carbon}).loc["1959":"2001"]


def lorenz() -> pd.DataFrame:
    """The Lorenz system with noise on its states, seen every 0.05 units of time: 4,000 rows of three series."""
    rng = np.random.default_rng(SEED)
    n_sub, dt, x = 50, 0.001, np.array([1.0, 1.0, 25.0])
    rows = np.zeros((4000, 3))
    for t in range(len(rows)):
        for _ in range(n_sub):
            slope = [10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8.0 / 3.0 * x[2]]
            x = x + dt * np.array(slope) + np.sqrt(dt) * 0.5 * rng.normal(size=3)
        rows[t] = x
    return pd.DataFrame(rows, pd.RangeIndex(len(rows)), ["x", "y", "z"])


def heavy_tails() -> pd.DataFrame:
    """A VAR(2) of 20 daily series, 2,000 rows, whose noise is Student-t with four degrees of freedom."""
    rng = np.random.default_rng(SEED + 1)
    D, n = 20, 2000
    A1 = 0.4 * np.eye(D) + rng.normal(0.0, 0.05, (D, D))
    A2 = 0.2 * np.eye(D) + rng.normal(0.0, 0.03, (D, D))
    L = np.linalg.cholesky(0.5 * np.eye(D) + 0.5)
    rows = np.zeros((n + 200, D))
    for t in range(2, len(rows)):
        noise = L @ rng.normal(size=D) * np.sqrt(2.0 / (rng.chisquare(4) / 4.0))
        rows[t] = A1 @ rows[t - 1] + A2 @ rows[t - 2] + noise
    index = pd.date_range("2018-01-01", periods=n, freq="D")
    return pd.DataFrame(rows[200:], index, [f"s{d}" for d in range(D)])


def ten_minutes() -> pd.DataFrame:
    """Loads of four feeders every ten minutes over sixty days: daily and weekly cycles, noise that grows with load."""
    rng = np.random.default_rng(SEED + 2)
    index = pd.date_range("2023-03-01", periods=60 * 144, freq="10min", tz="Europe/Berlin")
    hour = np.arange(len(index)) % 144 / 6.0
    is_weekend = index.dayofweek.to_numpy() >= 5
    shape = 1.0 + 0.5 * np.sin(2 * np.pi * (hour - 9.0) / 24.0) + 0.25 * np.cos(4 * np.pi * (hour - 19.0) / 24.0)
    level = np.log(shape) - 0.2 * is_weekend
    noise = np.zeros((len(index), 4))
    mixing = np.linalg.cholesky(0.4 * np.eye(4) + 0.6)
    for t in range(1, len(index)):
        noise[t] = 0.97 * noise[t - 1] + (0.02 + 0.02 * shape[t]) * mixing @ rng.normal(size=4)
    loads = np.array([40.0, 25.0, 60.0, 10.0]) * np.exp(level[:, None] + noise)
    frame = pd.DataFrame(loads, index, ["north", "east", "south", "west"])
    return frame.mask(rng.uniform(size=frame.shape) < 0.01)


def hourly(n_series: int, seed: int = SEED + 3) -> pd.DataFrame:
    """Hourly series over one year: five common factors with daily cycles, and noise of their own."""
    rng = np.random.default_rng(seed)
    index = pd.date_range("2022-01-01", periods=8760, freq="h")
    hour = np.arange(len(index)) % 24
    factors, own = np.zeros((len(index), 5)), np.zeros((len(index), n_series))
    loadings, phases = rng.normal(size=(n_series, 5)), rng.uniform(0, 2 * np.pi, 5)
    for t in range(1, len(index)):
        factors[t] = 0.95 * factors[t - 1] + 0.3 * rng.normal(size=5)
        own[t] = 0.8 * own[t - 1] + 0.6 * rng.normal(size=n_series)
    cycle = np.sin(2 * np.pi * hour[:, None] / 24.0 + phases)
    values = (factors + 0.8 * cycle) @ loadings.T + own
    return pd.DataFrame(values, index, [f"s{d}" for d in range(n_series)])


def fifty_hourly() -> pd.DataFrame:
    """50 of these series."""
    return hourly(50)


def five_hundred_hourly() -> pd.DataFrame:
    """500 of these series, for the benchmark `wide`."""
    return hourly(500, SEED + 4)


SETS = {
    "new_york": SeriesSet(new_york, (1, 6, 24), 24, november),
    "macro": SeriesSet(macro, (1, 4, 8), 4, last_fifth),
    "sunspots": SeriesSet(sunspots, (1, 5, 11), 11, last_fifth),
    "monthly": SeriesSet(monthly, (1, 6, 12), 12, last_fifth),
    "lorenz": SeriesSet(lorenz, (1, 5, 20), 1, last_fifth),
    "heavy_tails": SeriesSet(heavy_tails, (1, 3, 7), 7, last_fifth),
    "ten_minutes": SeriesSet(ten_minutes, (1, 18, 144), 144, last_fifth),
    "fifty_hourly": SeriesSet(fifty_hourly, (1, 6, 24), 24, last_fifth),
}
