"""Seconds from a new row to a forecast: `update` with one row, then 24 steps ahead with 1,000 draws of 12 series.

    python -m studies.benchmarks.update_latency            # writes studies/results/update_latency.json

The forecaster without options, which may keep a linear model, and one with a GP drift and Wishart noise. The first
round compiles and is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import output
from ..provenance import provenance

LIMIT = 0.25
CASES: dict[str, dict[str, Any]] = {
    "WishartForecaster()": {},
    "GP drift, Wishart noise": {
        **{"validation_fraction": 0, "lags": 3, "calendar": True, "white_noise": "state", "max_iter": 50},
    },
}
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


def run(options: dict[str, Any], y: pd.DataFrame) -> dict[str, Any]:
    """Median seconds of a forecaster, and what it is."""
    model = wf.WishartForecaster(random_state=0, **options).fit(y.iloc[:N_ROWS])
    seconds = measured(model, y.iloc[N_ROWS:])
    parts = {"update": seconds[:, 0], "forecast": seconds[:, 1], "both": seconds.sum(1)}
    found = {name: dict(zip(("wall", "cpu"), np.median(part, axis=0), strict=True)) for name, part in parts.items()}
    kept = f"{model.spec_.drift} drift, {type(model.spec_.diffusion).__name__} noise"
    return {"kept": kept, "longest": float(parts["both"][:, 0].max()), **found}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=output("update_latency.json"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    y = simulated(N_ROWS + N_ROUNDS + 1, N_SERIES)
    found = {name: run(case, y) for name, case in CASES.items()}
    write_json_atomic(options.output, {"runs": found, "limit": LIMIT, "provenance": provenance()})
    for name, case in found.items():
        print(name, case)


if __name__ == "__main__":
    main()
