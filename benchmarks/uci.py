"""Quality on the UCI sets: the 20 splits of design section 6, all splits of a data set trained by one `fit_many`.

    python -m benchmarks.uci --models sgp diffwgp --data boston concrete --splits 20

scores the test parts and writes one JSON file for each data set and model under results/uci. With --validation nothing
of the test part
is read: a tenth of each training part is held out and scored instead, which is how settings are chosen. Options of the
form
--set name=value override fields of the training settings (for tuning only; final tables use none).
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import time
from pathlib import Path

import jax
import numpy as np

import wishflow as wf
from benchmarks.record import provenance
from wishflow import specs
from wishflow.datasets import load_uci, split, validation_split
from wishflow.files import write_json_atomic

MODELS = {
    "sgp": lambda: wf.SparseGPRegressor(),
    "nonoise": lambda: wf.FlowRegressor(diffusion="none"),
    "diffgp": lambda: wf.FlowRegressor(diffusion="gp"),
    "diffwgp": lambda: wf.FlowRegressor(),
    "diffwgp_full": lambda: wf.FlowRegressor(diffusion=specs.Wishart(posterior="full")),
}


def parts(n: int, index: int, is_validation: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to score."""
    train, test = split(n, index)
    return validation_split(train, index) if is_validation else (train, test)


def score(model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Scores in original units."""
    interval = model.predict_interval(X, 0.95)
    mean, std = model.predict(X, return_std=True)
    return {
        "log_density": float(model.log_prob(X, y).mean()),
        "mean_log_density_of_paths": float(model.log_prob(X, y, average="log").mean()),
        "rmse": wf.metrics.rmse(y, mean),
        "crps_gaussian": float(wf.metrics.crps_gaussian(y, mean, std).mean()),
        "coverage_95": wf.metrics.coverage(y, interval[:, 0], interval[:, 1]),
        "bound": float(model.history_["bound"].iloc[-20:].mean()),
        "noise": float(model.history_["noise"].iloc[-1]),
    }


def brief_score(model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """What a search for settings looks at."""
    tail = model.history_.iloc[-50:]
    parts = {
        name: float(tail[name].mean())
        for name in ("bound", "noise", "kl_drift", "kl_diffusion", "kl_output")
        if name in tail
    }
    return {"log_density": float(model.log_prob(X, y).mean()), **parts}


def run_cell(name: str, model: str, n_splits: int, is_validation: bool, is_brief: bool = False) -> dict:
    """Train and score all splits of one data set with one model."""
    data = load_uci(name)
    rows = [parts(len(data.X), s, is_validation) for s in range(n_splits)]
    started = time.perf_counter()
    models = wf.fit_many([MODELS[model]() for _ in rows], [(data.X[a], data.y[a]) for a, _ in rows])
    fit_seconds = time.perf_counter() - started
    if is_brief:
        scores = [brief_score(m, data.X[b], data.y[b]) for m, (_, b) in zip(models, rows, strict=True)]
    else:
        scores = [score(m, data.X[b], data.y[b]) for m, (_, b) in zip(models, rows, strict=True)]
    return {
        "data": name,
        "model": model,
        "scored": "validation" if is_validation else "test",
        "training": models[0].training_.to_json(),
        "n_iter": [m.n_iter_ for m in models],
        "status": sorted({m.status_ for m in models}),
        "fit_seconds": fit_seconds,
        "total_seconds": time.perf_counter() - started,
        "splits": scores,
        "mean": {key: float(np.mean([s[key] for s in scores])) for key in scores[0]},
        "sd": {key: float(np.std([s[key] for s in scores], ddof=1)) if len(scores) > 1 else 0.0 for key in scores[0]},
    }


def override(settings: list[str]) -> None:
    """Replace fields of the `fast` rule for this process."""
    changes = {}
    for item in settings:
        key, _, value = item.partition("=")
        try:
            changes[key] = ast.literal_eval(value)
        except ValueError:
            changes[key] = value
    rule = specs.fast_preset
    specs.PRESETS["fast"] = lambda n, d: dataclasses.replace(rule(n, d), **changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["sgp", "diffwgp"], choices=list(MODELS))
    parser.add_argument("--data", nargs="+", default=["boston", "concrete", "kin8nm"])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--output", type=Path, default=Path("results/uci"))
    options = parser.parse_args()
    override(options.set)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.data:
        for model in options.models:
            result = run_cell(name, model, options.splits, options.validation)
            result["provenance"] = provenance()
            kind = "validation-" if options.validation else ""
            write_json_atomic(options.output / f"{kind}{name}-{model}.json", result)
            print(
                name,
                model,
                json.dumps(result["mean"]),
                f"{result['fit_seconds']:.1f} s",
                jax.default_backend(),
                flush=True,
            )


if __name__ == "__main__":
    main()
