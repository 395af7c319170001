"""The search for the `fast` rule, on validation parts alone: a list of settings for each data set, scored one after
another.

    python -m studies.benchmarks.tune_uci studies/results/tuning/jobs/uci-59.json --minutes 9

The file is a list of {"data", "model", "splits", "set": {field: value}, "options": {name: value}}: `set` changes fields
of the rule, `options` go to the estimator (specs as their JSON). Each finished job is one line of the result file,
studies/results/tuning/uci-59.jsonl; jobs that are there already are skipped. Several processes may share the jobs:
--part 0/4, --part 1/4, …
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow import specs
from wishflow.datasets import load_uci
from wishflow.regression import presets

from ..paths import tuning_output
from ..provenance import provenance
from ..uci.suite import MODELS as SUITE_MODELS
from ..uci.suite import N_PATHS
from ..uci.training import run_splits, split_rows
from .shares import share_of

MODELS = {
    **{name: model.make for name, model in SUITE_MODELS.items()},
    "diffwgp": wf.FlowRegressor,
}
# Whether a mixture has enough paths: scored with the default of the estimator, and with as many as the suite has.
PATHS = {"log_density": 100, "log_density_of_more_paths": N_PATHS}
PARTS = ("objective", "noise", "kl_drift", "kl_diffusion", "kl_output")


def brief_scores(models: Sequence[Any], data: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[dict[str, float]]:
    """What a search for settings looks at."""
    rows = []
    for model, (X, y) in zip(models, data, strict=True):
        tail = model.history_.iloc[-50:]
        parts = {name: float(tail[name].mean()) for name in PARTS if name in tail}
        rows.append({**log_densities(model, X, y), **parts})
    return rows


def log_densities(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The log density for few and for many paths, where a model has paths."""
    if not hasattr(model, "n_predict_samples"):
        return {"log_density": float(model.log_prob(X, y).mean())}
    found = {}
    for name, n_paths in PATHS.items():
        model.n_predict_samples = n_paths
        found[name] = float(model.log_prob(X, y).mean())
    return found


def changes(job: dict[str, Any]) -> dict[str, Any]:
    """The fields of the rule that a job changes; a batch size counts rows, as where a user gives it."""
    given = job.get("set", {})
    return {"batch_counts_paths": False, **given} if "batch_size" in given else given


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train all splits of a job and score the validation parts; no row of a test part is read."""
    data = load_uci(job["data"])
    rows = [split_rows(len(data.X), s, is_validation=True) for s in range(job.get("splits", 20))]
    options = {name: specs.from_json(value) for name, value in job.get("options", {}).items()}
    if "state_dim" in job:  # written so before estimators had the option
        options["state_dim"] = job["state_dim"]
    rule = dataclasses.replace(presets.fast_preset(len(rows[0][0]), data.X.shape[1]), **changes(job))
    make = functools.partial(MODELS[job["model"]], preset=rule, **options)
    return {"n_train": len(rows[0][0]), **run_splits(make, data.X, data.y, rows, score=brief_scores)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--output", type=Path, help="studies/results/tuning/JOBS.jsonl if not given")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--part", default="0/1", help="which share of the jobs, as 0/4")
    options = parser.parse_args(arguments)
    options.output = options.output or tuning_output(options.jobs, ".jsonl")
    return options


def main() -> None:
    options = parse()
    started = time.perf_counter()
    lines = options.output.read_text().splitlines() if options.output.exists() else []
    done = [json.loads(text)["job"] for text in lines]
    for job in share_of(json.loads(options.jobs.read_text()), options.part):
        if job in done:
            continue
        if time.perf_counter() - started > 60 * options.minutes:
            print("out of time before", job, flush=True)
            break
        try:
            result = run_job(job)
        except Exception:
            traceback.print_exc()
            continue
        line = {
            "job": job,
            "n_train": result["n_train"],
            "mean": result["mean"],
            "sd": result["sd"],
            "seconds": result["fit_seconds"],
            "status": result["status"],
            "provenance": provenance(),
        }
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
