"""Default estimators on problems that no setting was chosen for: log density beside the truth, and coverage.

    python -m studies.benchmarks.calibration            # writes studies/results/calibration.json

The problems are those of `studies.benchmarks.calibration_problems`, each drawn ten times with 1000 rows to score, and
scikit-learn's diabetes data in ten random splits. Estimators have no option but `random_state`; "sparse GP, plain" is
`SparseGPRegressor(calibrate=None)`. Finished problems are kept: a run can be stopped and continued.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance
from .calibration_problems import PROBLEMS

N_SEEDS = 10
LEAST_GAIN = -0.03
# A problem with noise by input or bends counts where this part of the gap from the plain GP to the truth is closed.
GAP_CLOSED = 1.0 / 3.0
COVERAGES = {0.95: (0.925, 0.975), 0.8: (0.77, 0.83)}
ESTIMATORS: dict[str, Callable[..., Any]] = {
    "sparse GP, plain": functools.partial(wf.SparseGPRegressor, calibrate=None),
    "sparse GP": wf.SparseGPRegressor,
    "flow": wf.FlowRegressor,
}
NAMES = [*PROBLEMS, "diabetes"]


def data_of(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """X, y to train on and to score, and the mean log density of the true law (NaN where it is not known)."""
    if name != "diabetes":
        return PROBLEMS[name].data(seed)
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=seed)
    return X_train, y_train, X_test, y_test, float("nan")


def scores(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {"log_density": float(model.log_prob(X, y).mean())}
    for level in COVERAGES:
        low, high = model.predict_interval(X, coverage=level).T
        found[f"coverage_{level}"] = float(np.mean((low <= y) & (y <= high)))
    found["rmse"] = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    return {**found, "status": model.status_}


def run(name: str, n_seeds: int) -> dict[str, Any]:
    """Scores of all seeds of a problem, for each estimator."""
    data = [data_of(name, seed) for seed in range(n_seeds)]
    found: dict[str, Any] = {"truth": [row[4] for row in data]}
    for label, make in ESTIMATORS.items():
        started = time.perf_counter()
        models = [make(random_state=seed) for seed in range(n_seeds)]
        wf.fit_many(models, [(X, y) for X, y, *_ in data])
        seconds = time.perf_counter() - started
        rows = [scores(model, X, y) for model, (_, _, X, y, _) in zip(models, data, strict=True)]
        found[label] = {**{k: [row[k] for row in rows] for k in rows[0]}, "seconds": seconds}
    return {**found, "provenance": provenance()}


def verdict(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Means over the seeds, and whether they reach what is asked for."""
    flow, plain = result["flow"], result["sparse GP, plain"]
    density, reference = float(np.mean(flow["log_density"])), float(np.mean(plain["log_density"]))
    # Files have no number for the log density of a law without noise, or of one that is not known.
    gap = float(np.mean([np.nan if value is None else value for value in result["truth"]])) - reference
    kind = PROBLEMS[name].kind if name in PROBLEMS else "plain"
    covered = {level: float(np.mean(flow[f"coverage_{level}"])) for level in COVERAGES}
    return {
        "log_density": density,
        "gain": density - reference,
        "gap_closed": (density - reference) / gap if kind in ("noise", "bend") else float("nan"),
        **{f"coverage_{level}": value for level, value in covered.items()},
        "is_dense_enough": density - reference >= LEAST_GAIN,
        "is_covered": kind == "exact" or all(low <= covered[v] <= high for v, (low, high) in COVERAGES.items()),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "calibration.json")
    parser.add_argument("--seeds", type=int, default=N_SEEDS)
    parser.add_argument("--problems", default=",".join(NAMES), help="names of problems, with commas")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for name in options.problems.split(","):
        if name not in results:
            results[name] = run(name, options.seeds)
            write_json_atomic(options.output, results)
        print(name, verdict(name, results[name]), flush=True)
    closed = [verdict(name, results[name])["gap_closed"] for name in results]
    print(f"{sum(value >= GAP_CLOSED for value in closed)} problems with at least {GAP_CLOSED:.0%} of the gap closed")


if __name__ == "__main__":
    main()
