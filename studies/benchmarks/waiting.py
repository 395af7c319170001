"""How long a person waits with the defaults, compilation included: regression on concrete (927 × 8), then 200 rows of
prediction; forecasters on hourly series, then a forecast of a day by 1,000 draws.

    python -m studies.benchmarks.waiting            # writes studies/results/waiting.json
    python -m studies.benchmarks.waiting --only "WishartForecaster(), New York"  # one line; the others are kept

Each measurement runs in a process of its own with no compilation cache, so that it is the first use after an import.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance
from .alone import measured_alone
from .forecast_sets import SETS, hourly

MODULE = f"{__package__}.waiting"
LIMITS = {
    "SparseGPRegressor()": {"fit": 10.0, "predict": 3.0},
    "FlowRegressor()": {"fit": 90.0, "predict": 3.0},
    "FlowRegressor(n_members=5)": {"fit": 450.0, "predict": 15.0},
    "WishartForecaster(), New York": {"fit": 60.0, "predict": 3.0},
    "WishartForecaster(), 50 series": {"fit": 300.0, "predict": 15.0},
    "WishartForecaster(), 100 series": {"fit": 600.0, "predict": 30.0},
}
SERIES: dict[str, Callable[[], pd.DataFrame]] = {
    "WishartForecaster(), New York": lambda: training_part("new_york"),
    "WishartForecaster(), 50 series": lambda: hourly(50),
    "WishartForecaster(), 100 series": lambda: hourly(100),
}


def training_part(name: str) -> pd.DataFrame:
    """The rows of a set of the benchmark `forecasts` that its models are trained on."""
    chosen = SETS[name]
    split = chosen.split(chosen.make(), max(chosen.horizons))
    return split.y.iloc[: split.n_train]


def measure_series(name: str) -> dict[str, float]:
    """Seconds of `fit`, and of a forecast of 24 steps by 1,000 draws once compiled (median of three)."""
    import wishflow as wf

    y = SERIES[name]()
    model = wf.WishartForecaster()
    started = time.perf_counter()
    model.fit(y)
    fitted = time.perf_counter()
    forecast = functools.partial(model.forecast, 24, n_draws=1000)
    return {"fit": fitted - started, "predict": median_seconds(forecast), "n_iter": model.n_iter_}


def median_seconds(call: Callable[[], object]) -> float:
    """Seconds of a call that has been made before: the median of three."""
    call()
    seconds = []
    for _ in range(3):
        again = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - again)
    return sorted(seconds)[1]


def measure(name: str) -> dict[str, float]:
    """Seconds of `fit`, and of `predict(return_std)` for 200 rows once compiled (median of three)."""
    import wishflow as wf

    data = wf.datasets.load_uci("concrete")
    train, _ = wf.datasets.split(len(data.X), 0)
    models: dict[str, Callable[[], Any]] = {
        "SparseGPRegressor()": wf.SparseGPRegressor,
        "FlowRegressor()": wf.FlowRegressor,
        "FlowRegressor(n_members=5)": functools.partial(wf.FlowRegressor, n_members=5),
    }
    model = models[name]()
    started = time.perf_counter()
    model.fit(data.X[train], data.y[train])
    fitted = time.perf_counter()
    predict = functools.partial(model.predict, data.X[:200], return_std=True)
    return {"fit": fitted - started, "predict": median_seconds(predict), "n_iter": model.n_iter_}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=list(LIMITS), action="append", help="a line of the table; may be repeated")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "waiting.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.one:
        print(json.dumps((measure_series if options.one in SERIES else measure)(options.one)))
        return
    result = json.loads(options.output.read_text()) if options.only and options.output.is_file() else {"lines": {}}
    for name in options.only or LIMITS:
        runs = [measured_alone(MODULE, name) for _ in range(options.repeats)]
        middle = {key: sorted(run[key] for run in runs)[len(runs) // 2] for key in runs[0]}
        result["lines"][name] = {"limit": LIMITS[name], "runs": runs, "median": middle, "provenance": provenance()}
        print(name, middle, flush=True)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(options.output, result)


if __name__ == "__main__":
    main()
