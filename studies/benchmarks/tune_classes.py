"""The rule for labels beside the rule for numbers, on validation parts alone: log loss and seconds.

    python -m studies.benchmarks.tune_classes --data breast_cancer iris wine --splits 5

The rows that the tests score (`train_test_split` with seed 0) are set aside; the others are split again, with seeds
1, 2, …, into rows to train on and rows to score. Writes studies/results/tuning/classes.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import wishflow as wf
from wishflow.files.json import read_json, write_json_atomic
from wishflow.regression import presets

from ..paths import RESULTS
from ..provenance import provenance

DATA = {name: getattr(datasets, f"load_{name}") for name in ("breast_cancer", "iris", "wine", "digits")}
# As in the tests.
SET_ASIDE: dict[str, dict[str, Any]] = {"breast_cancer": {"test_size": 0.3}, "digits": {"train_size": 600}}
RULES = {
    "labels": presets.fast_class_preset,
    "numbers": lambda n, d: dataclasses.replace(
        presets.for_logits(presets.fast_preset(n, d, d)), path_average="log", n_train_samples=1, dof=None
    ),
}


def measure(name: str, rule: str, seed: int) -> dict[str, float]:
    """Log loss of one validation part, and the seconds of its fit."""
    X, y = DATA[name](return_X_y=True)
    size = SET_ASIDE.get(name, {"test_size": 0.3})
    X, _, y, _ = train_test_split(X, y, random_state=0, stratify=y, **size)
    X, X_scored, y, y_scored = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
    started = time.perf_counter()
    model = wf.FlowClassifier(preset=RULES[rule](*X.shape)).fit(X, y)
    seconds = time.perf_counter() - started
    return {"log_loss": float(log_loss(y_scored, model.predict_proba(X_scored))), "seconds": seconds}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["breast_cancer", "iris", "wine"], choices=list(DATA))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "tuning" / "classes.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    found: dict[str, Any] = read_json(options.output) or {"runs": {}}
    for name in options.data:
        measure(name, next(iter(RULES)), 0)  # what the rules share is compiled before the first measurement
        runs = {rule: [measure(name, rule, seed) for seed in range(1, options.splits + 1)] for rule in RULES}
        found["runs"][name] = {**runs, "provenance": provenance()}
        write_json_atomic(options.output, found)
        print(name, {rule: np.round([run["log_loss"] for run in part], 4) for rule, part in runs.items()}, flush=True)


if __name__ == "__main__":
    main()
