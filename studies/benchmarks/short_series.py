"""Options of short series, chosen by rolled forecasts and by the evidence of a regression.

    python -m studies.benchmarks.short_series        # writes studies/results/short_series.json

Linear auto-regressions alone, on the training parts of three sets of `forecast_sets`, four sets of statsmodels and two
simulated ones. Options are chosen on the first 55, 70 and 85 % of the rows, and the next 15 % are forecast from origin
after origin. The number is the mean CRPS by band of horizons, in standard deviations of y.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wishflow.files.json import write_json_atomic
from wishflow.numerics.process import BLAS
from wishflow.series.choices import Choice, Given, by_rolled_forecasts, by_the_evidence
from wishflow.series.choosing import Config, Judge, Piece, band_names

from ..paths import RESULTS
from ..provenance import provenance
from .forecast_sets import SEED, SETS
from .forecasts import filled, split_of

WINDOWS = ((0.55, 0.7), (0.7, 0.85), (0.85, 1.0))
FRACTION = 0.1
WAYS = {"rolled": by_rolled_forecasts, "evidence": by_the_evidence}


def growth() -> pd.DataFrame:
    """Eight series that grow by percentages, 180 rows."""
    rng = np.random.default_rng(SEED + 4)
    rates = np.zeros((180, 8))
    for t in range(1, len(rates)):
        rates[t] = 0.5 * rates[t - 1] + 0.006 * rng.normal(size=8)
    return pd.DataFrame(100.0 * np.exp(np.cumsum(0.01 + rates, axis=0)))


def cycle() -> pd.DataFrame:
    """The exponential of a noisy cycle of nine rows, 260 rows."""
    rng = np.random.default_rng(SEED + 5)
    angle, x, rows = 2.0 * np.pi / 9.0, np.zeros(2), []
    turn = 0.97 * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    for _ in range(260):
        x = turn @ x + 0.3 * rng.normal(size=2)
        rows.append(np.exp(0.5 * x[0] + 3.0))
    return pd.DataFrame({"cycle": rows})


def frames() -> dict[str, pd.DataFrame]:
    """All series, each without the rows that the benchmark of forecasts scores."""
    from statsmodels.datasets import danish_data, elec_equip, interest_inflation, nile

    found = {name: (split := split_of(SETS[name], False)).y.iloc[: split.n_train] for name in SHORT}
    found["danish money"] = danish_data.load_pandas().data
    german = interest_inflation.load_pandas().data[["Dp", "R"]]
    found["german interest"] = german.set_index(pd.date_range("1972-04-01", periods=len(german), freq="QS"))
    found["nile"] = nile.load_pandas().data[["volume"]]
    equipment = elec_equip.load_pandas().data.astype(float)
    found["electrical equipment"] = equipment.set_index(pd.DatetimeIndex(equipment.index))
    return found | {"growth": growth(), "cycle": cycle()}


SHORT = ("macro", "sunspots", "monthly")


def judge_of(frame: pd.DataFrame, end: int, fraction: float) -> Judge:
    rows = filled(frame.iloc[:end])
    piece = Piece(rows, frame.index[:end], np.zeros((end, 0)), 0, end)
    return Judge([piece], pd.Index(frame.columns.astype(str)), fraction)


def words(config: Config) -> str:
    logs = sum(choice is not None for choice in config.transform)
    return f"{len(config.lags)} lags up to {config.lags[-1]}, {logs} logarithms, {config.prior.describe()}"


def run(frame: pd.DataFrame, way: Callable[[Judge, Given], Choice]) -> dict[str, Any]:
    scores, chosen, n = [], [], len(frame)
    for first, end in ((round(a * n), round(b * n)) for a, b in WINDOWS):
        with BLAS.held():
            config = way(judge_of(frame, first, FRACTION), Given()).config
        judge = judge_of(frame, end, (end - first) / end)
        judge.n_folds = 1
        found = judge.score(config)
        assert found is not None
        scores.append(found.by_band)
        chosen.append(words(config))
    return {"crps": np.mean(scores, axis=0).tolist(), "chosen": chosen, "steps": band_names(judge.n_steps)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "short_series.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {"series": {}, "provenance": provenance()}
    for name, frame in frames().items():
        found = {label: run(frame, way) for label, way in WAYS.items()}
        results["series"][name] = found
        change = np.exp(np.mean(np.log(found["evidence"]["crps"]) - np.log(found["rolled"]["crps"]))) - 1.0
        numbers = [" ".join(f"{value:.4f}" for value in found[label]["crps"]) for label in found]
        print(f"{name:<22} {numbers[0]} | {numbers[1]} | {100.0 * change:+.1f} %", flush=True)
    write_json_atomic(options.output, results)


if __name__ == "__main__":
    main()
