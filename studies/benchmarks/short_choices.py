"""Whether short series keep the better of their two fits, on simulated series of several kinds.

    python -m studies.benchmarks.short_choices        # writes studies/results/short_choices.json

Each series of `short_problems` is fitted with the options that the evidence chooses and with those that rolled
forecasts choose. Both fits forecast 300 later rows from every twelfth of them: the mean CRPS in standard deviations of
the rows that were fitted, at three horizons, and the coverage of 80 % intervals. `kept` is what the default keeps.
Finished series are kept: a run can be stopped and continued.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.metrics import crps_samples
from wishflow.series import defaults, fitting
from wishflow.series.validated import Validated
from wishflow.series.ways import compared

from ..paths import RESULTS
from ..provenance import provenance
from .short_problems import N_LATER, PROBLEMS

HORIZONS = (1, 4, 12)
STEP, N_DRAWS = 12, 300


def fitted(y: pd.DataFrame, way: int) -> tuple[Any, Validated, str, float]:
    """A forecaster with the options of one way, what training gave, the name of the way, and seconds."""
    choose, train, found = defaults.settings_of, fitting._trained, []

    def one_way(*data: Any) -> tuple[defaults.Settings, ...]:
        return (choose(*data)[way],)

    def kept(*data: Any) -> Validated:
        found.append(train(*data))
        return found[-1]

    started = time.perf_counter()
    with mock.patch.object(defaults, "settings_of", one_way), mock.patch.object(fitting, "_trained", kept):
        model = wf.WishartForecaster().fit(y)
    return model, found[0], ("evidence", "rolled forecasts")[way], time.perf_counter() - started


def scores(model: Any, y: pd.DataFrame, n: int) -> dict[str, list[float]]:
    """Forecasts of the rows from n on."""
    sd, values, seen = y.iloc[:n].std().to_numpy(), y.to_numpy(), n
    crps, covered = [], []
    for origin in range(n, n + N_LATER - max(HORIZONS) + 1, STEP):
        if origin > seen:
            model.update(y.iloc[seen:origin])
            seen = origin
        draws, rows = (
            model.forecast(list(HORIZONS), n_draws=N_DRAWS).samples.values,
            values[origin - 1 + np.array(HORIZONS)],
        )
        low, high = np.quantile(draws, [0.1, 0.9], axis=0)
        crps.append(crps_samples(rows, draws) / sd)
        covered.append((low <= rows) & (rows <= high))
    return {"crps": np.mean(crps, axis=(0, 2)).tolist(), "coverage": np.mean(covered, axis=(0, 2)).tolist()}


def run(name: str, seed: int) -> dict[str, Any]:
    """Scores of both ways, and which of them is kept."""
    problem = PROBLEMS[name]
    y, n = problem.frame(seed), problem.n_rows
    ways = [fitted(y.iloc[:n], way) for way in (0, -1)]
    verdict = compared([found for _, found, _, _ in ways], [label for _, _, label, _ in ways])
    cells = {
        label: {**scores(model, y, n), "seconds": seconds, "model": model.status_, "lags": list(model.lags_)}
        for model, _, label, seconds in ways
    }
    return {**cells, "kept": ways[verdict.which][2], "why": verdict.why, "provenance": provenance()}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "short_choices.json")
    parser.add_argument("--problems", default=";".join(PROBLEMS), help="names of problems, with semicolons")
    parser.add_argument("--seeds", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for seed in range(options.seeds):
        for name in options.problems.split(";"):
            key = f"{name}, seed {seed}"
            if key not in results:
                results[key] = run(name, seed)
                write_json_atomic(options.output, results)
            cell = results[key]
            numbers = [" ".join(f"{v:.3f}" for v in cell[way]["crps"]) for way in ("evidence", "rolled forecasts")]
            print(f"{key:<30} {numbers[0]} | {numbers[1]} | {cell['kept']}", flush=True)


if __name__ == "__main__":
    main()
