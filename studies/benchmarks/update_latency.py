"""Seconds from a new row to a forecast: `update` with one row, then 24 steps ahead with 1,000 draws of 12 series.

    python -m studies.benchmarks.update_latency [--members 4] [--wishart]

The first round compiles and is not counted.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

import wishflow as wf

N_ROWS, N_SERIES, N_ROUNDS, N_STEPS, N_DRAWS = 1500, 12, 20, 24, 1000


def simulated(n_rows: int, n_series: int, seed: int = 0) -> pd.DataFrame:
    """Hourly series with a common part and a daily cycle."""
    rng = np.random.default_rng(seed)
    y, mixing = np.zeros((n_rows, n_series)), 0.4 * rng.normal(size=(n_series, 3))
    for t in range(1, n_rows):
        y[t] = 0.9 * y[t - 1] + mixing @ rng.normal(size=3) + 0.3 * rng.normal(size=n_series)
    hours = pd.date_range("2024-01-01", periods=n_rows, freq="h")
    cycle = np.sin(2.0 * np.pi * hours.hour.to_numpy() / 24.0)
    return pd.DataFrame(y + cycle[:, None], hours, [f"s{i}" for i in range(n_series)])


def measured(model: wf.WishartForecaster, rows: pd.DataFrame) -> np.ndarray:
    """Seconds of updates and of forecasts (rows), of the clock and of processors (last axis)."""
    found = []
    for i in range(len(rows)):
        marks = [now()]
        model.update(rows.iloc[i : i + 1])
        marks.append(now())
        model.forecast(N_STEPS, n_draws=N_DRAWS)
        marks.append(now())
        found.append(np.diff(marks, axis=0))
    return np.stack(found[1:])


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--wishart", action="store_true", help="GP drift and Wishart noise whatever is held back")
    options = parser.parse_args()
    plain = {"validation_fraction": 0, "lags": 3, "calendar": True, "white_noise": "state", "max_iter": 50}
    chosen = plain if options.wishart else {}
    y = simulated(N_ROWS + N_ROUNDS + 1, N_SERIES)
    started = time.perf_counter()
    model = wf.WishartForecaster(n_members=options.members, random_state=0, **chosen).fit(y.iloc[:N_ROWS])
    print(f"fit {time.perf_counter() - started:.1f} s, {model.summary().splitlines()[-1]}", flush=True)
    seconds = measured(model, y.iloc[N_ROWS:])
    for name, values in (("update", seconds[:, 0]), ("forecast", seconds[:, 1]), ("both", seconds.sum(1))):
        wall, cpu = np.median(values, axis=0)
        print(f"{name:9} median {wall:.3f} s, longest {values[:, 0].max():.3f} s, of processors {cpu:.3f} s")


if __name__ == "__main__":
    main()
