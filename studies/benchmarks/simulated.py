"""Defaults on simulated problems: `FlowRegressor()` beside `SparseGPRegressor()`.

    python -m studies.benchmarks.simulated            # writes studies/results/simulated.json

Each problem (`studies.benchmarks.problems`) is drawn ten times, with 1000 rows to score. Estimators have no option but
`random_state`. Finished problems are kept: a run can be stopped and continued.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance
from .problems import PROBLEMS

N_SEEDS = 10
# What the default must reach: log density beside the sparse GP's, and coverage of 95 % intervals.
LEAST_GAIN = -0.03
COVERAGE = (0.91, 0.98)
ESTIMATORS: dict[str, Callable[..., Any]] = {"sgp": wf.SparseGPRegressor, "flow": wf.FlowRegressor}


def scores(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    low, high = model.predict_interval(X, coverage=0.95).T
    return {
        "log_density": float(model.log_prob(X, y).mean()),
        "coverage_95": float(np.mean((low <= y) & (y <= high))),
        "is_flow": float(getattr(model, "weights_", {}).get("flow", 0.0) > 0.5),
    }


def run(name: str, n_seeds: int) -> dict[str, Any]:
    """Scores of all seeds of a problem, for each estimator."""
    data = [PROBLEMS[name].data(seed) for seed in range(n_seeds)]
    found: dict[str, Any] = {}
    for label, make in ESTIMATORS.items():
        started = time.perf_counter()
        models = [make(random_state=seed) for seed in range(n_seeds)]
        wf.fit_many(models, [(X, y) for X, y, _, _ in data])
        seconds = time.perf_counter() - started
        rows = [scores(model, X, y) for model, (_, _, X, y) in zip(models, data, strict=True)]
        found[label] = {**{k: [row[k] for row in rows] for k in rows[0]}, "seconds": seconds}
    return {**found, "provenance": provenance()}


def verdict(result: dict[str, Any]) -> dict[str, float | bool]:
    """Means over the seeds, and whether they reach what is asked for."""
    flow, gp = result["flow"], result["sgp"]
    gain = float(np.mean(flow["log_density"]) - np.mean(gp["log_density"]))
    coverage = float(np.mean(flow["coverage_95"]))
    is_reached = gain >= LEAST_GAIN and COVERAGE[0] <= coverage <= COVERAGE[1]
    return {"gain": gain, "coverage": coverage, "flows": float(np.sum(flow["is_flow"])), "is_reached": is_reached}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "simulated.json")
    parser.add_argument("--seeds", type=int, default=N_SEEDS)
    parser.add_argument("--problems", default=",".join(PROBLEMS), help="names of problems, with commas")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for name in options.problems.split(","):
        if name not in results:
            results[name] = run(name, options.seeds)
            write_json_atomic(options.output, results)
        print(name, verdict(results[name]), flush=True)


if __name__ == "__main__":
    main()
