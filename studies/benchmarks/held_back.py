"""What rows held back from training cost and gain: `FlowRegressor()` beside `validation_fraction=0`, paired by split.

    python -m studies.benchmarks.held_back boston,concrete            # adds to studies/results/held_back.jsonl

Scores are of validation parts of UCI sets: no row of a test part is read. Splits that are there are skipped, so a run
can be stopped and continued. One line for each fit.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow.datasets import load_uci

from ..paths import RESULTS
from ..provenance import provenance
from ..uci.training import split_rows

FRACTIONS = {"default": None, "all rows": 0}
# The default of the estimator, and as many as the tables have.
PATHS = (100, 1000)


def measure(data: str, index: int, kind: str) -> dict[str, Any]:
    """Scores of one fit on the validation part of a split."""
    table = load_uci(data)
    train, test = split_rows(len(table.X), index, is_validation=True)
    started = time.perf_counter()
    model = wf.FlowRegressor(validation_fraction=FRACTIONS[kind], random_state=index)
    model.fit(table.X[train], table.y[train])
    seconds = time.perf_counter() - started
    scores: dict[str, float] = {}
    for n_paths in PATHS:
        model.n_predict_samples = n_paths
        scores[f"log_density_{n_paths}"] = float(model.log_prob(table.X[test], table.y[test]).mean())
    low, high = model.predict_interval(table.X[test], coverage=0.95).T
    scores["coverage_95"] = float(np.mean((low <= table.y[test]) & (table.y[test] <= high)))
    return {"data": data, "split": index, "kind": kind, **scores, "seconds": seconds, "status": model.status_}


def differences(rows: list[dict[str, Any]], data: str, score: str) -> np.ndarray:
    """Default minus all rows, for each split that has both."""
    found = {(row["split"], row["kind"]): row[score] for row in rows if row["data"] == data}
    splits = sorted(s for s, kind in found if kind == "default" and (s, "all rows") in found)
    return np.array([found[s, "default"] - found[s, "all rows"] for s in splits])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="names of UCI sets, with commas")
    parser.add_argument("--output", type=Path, default=RESULTS / "held_back.jsonl")
    parser.add_argument("--splits", type=int, default=20)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    lines = options.output.read_text().splitlines() if options.output.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["data"], row["split"], row["kind"]) for row in rows}
    for index in range(options.splits):
        for data in options.data.split(","):
            for kind in FRACTIONS:
                if (data, index, kind) in done:
                    continue
                rows.append({**measure(data, index, kind), "provenance": provenance()})
                with options.output.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
            gains = differences(rows, data, f"log_density_{PATHS[-1]}")
            print(data, len(gains), f"{gains.mean():+.3f}", flush=True)


if __name__ == "__main__":
    main()
