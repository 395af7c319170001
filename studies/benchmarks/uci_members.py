"""Default estimators on the UCI data sets, beside the mixture of five members and a posterior for the drift.

    python -m studies.benchmarks.uci_members --data concrete,power    # writes studies/results/uci_members.json

Splits are those of `studies.uci`. With `--validation` the scored rows are a part of the training rows, and nothing of
the test parts is read: settings are chosen so. Results are written after every group of splits: a run can be stopped
and continued.
"""

from __future__ import annotations

import argparse
import functools
import json
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
from ..uci.suite import DATA, N_PATHS, N_SPLITS
from ..uci.training import run_splits, score_models, split_rows, summary

N_MEMBERS = 5
RANK = 5
_flow = functools.partial(wf.FlowRegressor, n_predict_samples=N_PATHS, random_state=0)
MODELS: dict[str, Callable[[], Any]] = {
    "SGP": functools.partial(wf.SparseGPRegressor, random_state=0),
    "No noise": functools.partial(_flow, diffusion="none"),
    "diffGP": functools.partial(_flow, diffusion="gp"),
    "diffWGP": functools.partial(_flow, rank=RANK),
    "drift_posterior": functools.partial(_flow, rank=RANK, drift_posterior="gaussian"),
    "members": functools.partial(_flow, rank=RANK, n_members=N_MEMBERS),
}
CANDIDATES = ("flow", "flow without noise", "sparse GP")


def scores(models: Sequence[Any], data: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[dict[str, float]]:
    """Scores of fitted models, and the weights of candidates where there are members."""
    return [
        row | {f"weight of {name}": weights.get(name, 0.0) for name in CANDIDATES if weights}
        for row, weights in zip(
            score_models(models, data), [getattr(model, "weights_", {}) for model in models], strict=True
        )
    ]


def continued(cell: dict[str, Any], data: str, model: str, group: int, is_validation: bool) -> dict[str, Any]:
    """A cell with the scores of `group` more splits."""
    table, done = load(data), cell.get("splits", [])
    rows = [split_rows(len(table.X), index, is_validation) for index in range(len(done), len(done) + group)]
    found = run_splits(MODELS[model], table.X, table.y, rows, score=scores)
    splits = [*done, *found["splits"]]
    return {
        "data": data,
        "model": model,
        "scored": "validation" if is_validation else "test",
        "splits": splits,
        **summary(splits),
        "seconds": cell.get("seconds", 0.0) + found["fit_seconds"] + found["score_seconds"],
        "provenance": provenance(),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--splits", type=int, default=N_SPLITS)
    parser.add_argument("--group", type=int, default=N_SPLITS, help="splits trained at once on an accelerator")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "uci_members.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    warnings.simplefilter("ignore", RuntimeWarning)  # flows that diverge are kept as they were before
    for data in options.data.split(","):
        for model in options.models.split(","):
            key = f"{data}, {model}" + (", validation" if options.validation else "")
            results = json.loads(options.output.read_text()) if options.output.exists() else {}
            cell = results.get(key, {})
            while (n_left := options.splits - len(cell.get("splits", ()))) > 0:
                cell = continued(cell, data, model, min(options.group, n_left), options.validation)
                results[key] = cell
                write_json_atomic(options.output, results)
                print(key, {name: round(value, 4) for name, value in cell["mean"].items()}, flush=True)


if __name__ == "__main__":
    main()
