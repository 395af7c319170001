"""Default estimators on the UCI data sets, beside the mixture of five members.

    python -m studies.benchmarks.uci_members --data concrete,power    # writes studies/results/uci_members.json

Splits are those of `studies.uci`. With `--validation` the scored rows are a part of the training rows, and nothing of
the test parts is read: settings are chosen so. Finished cells with as many splits are kept: a run can be stopped and
continued.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance
from ..uci.reproduce import load
from ..uci.suite import DATA, N_SPLITS
from ..uci.training import score_mixture, split_rows, summary

N_MEMBERS = 5
# The mixture of 100 paths, the default, is a biased estimate of the density of infinitely many.
N_PATHS = 1000
_flow = functools.partial(wf.FlowRegressor, rank=5, n_predict_samples=N_PATHS, random_state=0)
MODELS: dict[str, Callable[[], Any]] = {
    "SGP": functools.partial(wf.SparseGPRegressor, random_state=0),
    "diffWGP": _flow,
    "members": functools.partial(_flow, n_members=N_MEMBERS),
}


def run_cell(data: str, model: str, n_splits: int, group: int, is_validation: bool) -> dict[str, Any]:
    """Scores of one estimator on all splits, `group` of them at a time."""
    table, started, scores, weights = load(data), time.perf_counter(), [], []
    rows = [split_rows(len(table.X), index, is_validation) for index in range(n_splits)]
    for start in range(0, n_splits, group):
        part = rows[start : start + group]
        fitted: list[Any] = wf.fit_many([MODELS[model]() for _ in part], [(table.X[a], table.y[a]) for a, _ in part])
        for estimator, (_, b) in zip(fitted, part, strict=True):
            mixture = estimator.predict_components(table.X[b], return_weights=True)
            scores.append(score_mixture(table.y[b], *mixture) | _coverage_80(estimator, table.X[b], table.y[b]))
            weights.append(getattr(estimator, "weights_", {}))
    return {
        "data": data,
        "model": model,
        "scored": "validation" if is_validation else "test",
        "splits": scores,
        **summary(scores),
        "weights": weights,
        "seconds": time.perf_counter() - started,
        "provenance": provenance(),
    }


def _coverage_80(estimator: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    low, high = estimator.predict_interval(X, 0.8).T
    return {"coverage_80": float(np.mean((low <= y) & (y <= high)))}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--splits", type=int, default=N_SPLITS)
    parser.add_argument("--group", type=int, default=N_SPLITS, help="splits trained at once on an accelerator")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "uci_members.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    warnings.simplefilter("ignore", RuntimeWarning)  # flows that diverge are kept as they were before
    for data in options.data.split(","):
        for model in options.models.split(","):
            found = json.loads(options.output.read_text()) if options.output.exists() else {}
            key = f"{data}, {model}" + (", validation" if options.validation else "")
            if len(found.get(key, {}).get("splits", ())) >= options.splits:
                continue
            result = run_cell(data, model, options.splits, options.group, options.validation)
            write_json_atomic(options.output, {**found, key: result})
            print(key, {name: round(value, 4) for name, value in result["mean"].items()}, flush=True)


if __name__ == "__main__":
    main()
