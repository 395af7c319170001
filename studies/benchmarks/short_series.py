"""Options of short series, chosen by rolled forecasts and by the evidence of a regression, which chooses lags too.

    python -m studies.benchmarks.short_series        # writes studies/results/short_series.json

Linear auto-regressions alone, on the training parts of three sets of `forecast_sets`, four sets of statsmodels and two
simulated ones. Options are chosen on the first 55, 70 and 85 % of the rows, and the next 15 % are forecast from origin
after origin. The number is the mean CRPS by band of horizons, in standard deviations of y. On the simulated series of
`short_problems` options are chosen on all rows to fit, and 300 later rows are forecast up to twelve steps ahead; the
number is the mean over five draws of each kind.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wishflow.files.json import write_json_atomic
from wishflow.numerics.process import BLAS
from wishflow.series.choices import (
    ROWS_PER_SMALL_WEIGHT,
    Choice,
    Given,
    by_rolled_forecasts,
    by_the_evidence,
    lag_candidates,
)
from wishflow.series.choosing import Config, Judge, Piece, band_names

from ..paths import RESULTS
from ..provenance import provenance
from .forecast_sets import SEED, SETS
from .forecasts import filled, split_of
from .short_problems import N_LATER, PROBLEMS, Problem

WINDOWS = ((0.55, 0.7), (0.7, 0.85), (0.85, 1.0))
FRACTION = 0.1
N_SEEDS, N_STEPS = 5, 12


def with_longest_lags(judge: Judge, given: Given) -> Choice:
    """The evidence with the longest of the candidates for the lags."""
    sets = lag_candidates(judge.dim, judge.n_rows, judge.season, ROWS_PER_SMALL_WEIGHT)
    return by_the_evidence(judge, dataclasses.replace(given, lags=sets[-1]))


WAYS: dict[str, Callable[[Judge, Given], Choice]] = {
    "rolled": by_rolled_forecasts,
    "evidence": by_the_evidence,
    "evidence, longest lags": with_longest_lags,
}


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


def later(problem: Problem, way: Callable[[Judge, Given], Choice]) -> dict[str, Any]:
    """The rows after those of a simulated series, forecast with options chosen on the series."""
    scores, chosen, n = [], [], problem.n_rows
    for seed in range(N_SEEDS):
        frame = problem.frame(seed)
        with BLAS.held():
            config = way(judge_of(frame, n, FRACTION), Given()).config
            judge = judge_of(frame, len(frame), N_LATER / len(frame))
            judge.n_folds, judge.n_steps = 1, N_STEPS
            found = judge.score(config)
        assert found is not None
        scores.append(found.by_band)
        chosen.append(words(config))
    return {"crps": np.mean(scores, axis=0).tolist(), "chosen": chosen, "steps": band_names(N_STEPS)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "short_series.json")
    return parser.parse_args(arguments)


def show(name: str, found: dict[str, Any]) -> None:
    """How far the evidence is below each of the others, in percent."""
    logs = {label: np.mean(np.log(part["crps"])) for label, part in found.items()}
    changes = [f"{100.0 * np.expm1(logs['evidence'] - logs[label]):+.1f} % {label}" for label in logs]
    print(f"{name:<22} evidence beside {'; '.join(changes)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {"series": {}, "simulated": {}, "provenance": provenance()}
    for name, frame in frames().items():
        results["series"][name] = {label: run(frame, way) for label, way in WAYS.items()}
        show(name, results["series"][name])
    for name, problem in PROBLEMS.items():
        results["simulated"][name] = {label: later(problem, way) for label, way in WAYS.items()}
        show(name, results["simulated"][name])
    write_json_atomic(options.output, results)


if __name__ == "__main__":
    main()
